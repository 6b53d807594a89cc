"""Word2Vec, skip-gram with negative sampling: the network, its optimizer and its synthetic batches.

Mikolov et al., "Distributed Representations of Words and Phrases and their Compositionality" (2013), as PaddlePaddle's
FleetX and its TensorFlow twin trained it on parameter servers (2019): 354,051 words of 300 values, 5 negatives, SGD.

Network: two tables, of words and of contexts, these with a bias. Of an example with a word, its context and the
negatives, each a row of the tables:

    logit of a context c = <emb[word], emb_w[c]> + emb_b[c]
    loss = softplus(-logit of the true context) + sum over the negatives of softplus(their logit)

and its mean over the batch. Both scripts draw one set of negatives for all examples of a batch ("per_batch"), the paper
for each its own ("per_example"), which touches a hundred times as many rows. A step changes the rows that its batch
has, and no others.

What the scripts count and call words is lines of text, of 17 words each on average; here an example is one word with
one context.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from dlperf.models.parameters import Init, Parameter, random_state
from dlperf.models.zipf import zipf

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Config(NamedTuple):
    vocabulary: int = 354051
    width: int = 300
    negatives: int = 5
    shared: bool = True  # one set of negatives for a batch


SIZES = {
    "word2vec": Config(),
    "word2vec_per_example": Config(shared=False),
    "word2vec_tiny": Config(vocabulary=600, width=16),
}
#: for checking in float64, which has the sketches of whole tables: the same network over fewer words
SIZES.update({name + "_check": one._replace(vocabulary=min(one.vocabulary, 20000)) for name, one in SIZES.items()})

TITLES = {
    "word2vec": "Word2Vec, negatives per batch",
    "word2vec_per_example": "Word2Vec, negatives per example",
}
ALIASES: Dict[str, str] = {}
DEFAULT = ""
#: what the report counts, and its unit
SAMPLE = "examples"
RATE_UNIT = "examples/s"
BATCH_SIZE = {"cuda": {"fp32": 100, "tf32": 100, "amp": 100}, "cpu": 100}
INPUT = "words"
EFFECTIVE = ("tables",)
WORK = ("negatives",)
MEANINGS = {
    "negatives": "Contexts that an example is told from, and whether all examples of a batch have the same.",
    "tables": "What a step changes: the rows that it has looked up, or whole tables.",
}
TOTALS: Dict[str, str] = {}
COUNTED = ""
#: a step takes milliseconds, on a CPU too
FAST = True
SMOOTH = True

#: Zipf's exponents of synthetic words, as in running text, and of negatives, whose counts are taken to the power of 3/4
EXPONENT, OF_NEGATIVES = 1.0, 0.75
#: of a table, rows from the first that half of all words are: of these measured runs show values, since a step leaves
#: nearly all others as they are
BUSY = 512


class Optimizer(NamedTuple):
    """SGD, constant: w = w - learning_rate * g. The scripts lower it by 0.1 % every 100,000 steps."""

    learning_rate: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer()


def rates(config: Config, recipe: Optimizer) -> Dict[str, float]:
    """The learning rate of each tensor."""
    return {one.name: recipe.learning_rate for one in parameters(config)}


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. 212,784,651 trained values with 354,051 words.

    Words start as spread as the scripts' uniform values of up to 0.5 / width, contexts from zero, as there."""
    rows, width = config.vocabulary, config.width
    return [
        Parameter("emb.weight", (rows, width), "embedding", 1 / width / 12**0.5),
        Parameter("emb_w.weight", (rows, width), "embedding", "zeros"),
        Parameter("emb_b.weight", (rows, 1), "embedding", "zeros"),
    ]


def revealing(config: Config) -> List[Parameter]:
    """Logits of about 1, where softplus bends, and biases that are not zero."""
    alike = config.width**-0.25
    inits: Dict[str, Init] = {"emb.weight": alike, "emb_w.weight": alike, "emb_b.weight": 0.5}
    return [one._replace(init=inits[one.name]) for one in parameters(config)]


def batch(config: Config, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
    """Synthetic batch number `index`, of words as frequent as Zipf's law has them.

    Returns words and contexts: int32 (batch_size,); negatives: int32 (batch_size, negatives), where they are shared the
    same in each row, as the scripts hand them over.
    """
    import numpy

    random = random_state(seed, f"word2vec batch {index}")
    words, contexts = (zipf(config.vocabulary, EXPONENT, random.random_sample(batch_size)) for _ in range(2))
    draws = (1 if config.shared else batch_size, config.negatives)
    negatives = zipf(config.vocabulary, OF_NEGATIVES, random.random_sample(draws))
    whole = numpy.ascontiguousarray(numpy.broadcast_to(negatives, (batch_size, config.negatives)))
    return {"words": words, "contexts": contexts, "negatives": whole}


def logits(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The network's outputs: name -> shape without the batch axis. The first one is the true context's."""
    return {"logits": (1 + config.negatives,)}


def samples(config: Config) -> str:
    return f"words with a context and {config.negatives} negatives"


def units(config: Config) -> int:
    return 1


def first_loss(config: Config) -> Tuple[float, float]:
    """That of a guess at each context: all logits are zero."""
    return (1 + config.negatives) * math.log(2), 1e-3


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The logits, and the sets of negatives of a step: () where its examples share one."""
    return {**logits(config), "negatives": (config.negatives,) if not config.shared else ()}


def observed(shapes: Mapping[str, Sequence[int]]) -> Dict[str, str]:
    """How many negatives there are, and whose they are."""
    found = tuple(shapes.get("logits", ()))
    if len(found) != 1 or "negatives" not in shapes:
        return {}
    return {"negatives": f"{found[0] - 1} per {'example' if shapes['negatives'] else 'batch'}"}


def flops(config: Config) -> Dict[str, int]:
    """Floating-point operations of one training step for one example: 3 times the forward pass, 2 per multiply-add.
    10,800 with 300 values and 5 negatives: a step is bound by rows that are moved, not by these."""
    return {"product": 3 * 2 * (1 + config.negatives) * config.width}


def normalised(config: Config) -> Dict[str, int]:
    """No BatchNorm."""
    return {}


def activations(config: Config) -> int:
    """Values of one example that a step keeps for its gradients: its rows and its logits."""
    return (2 + config.negatives) * config.width + 1 + config.negatives
