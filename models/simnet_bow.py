"""Simnet-BOW, a bag-of-words matching network for queries and titles: its optimizer and its synthetic batches.

As PaddlePaddle's FleetX trained it on parameter servers (2019, deprecated/benchmark/ps/semantic_matching): one table of
1,451,594 words of 128 values, which queries and titles share. Of a text, the rows of its words:

    bag = softsign(sum of the rows)        softsign(x) = x / (1 + |x|)
    a query's vector = q_fc(bag), a title's = fc(bag), dense layers of 128
    loss = max(0, margin - cosine(query, its title) + cosine(query, another's title))

and its mean over the batch. A step changes the rows that its batch has, and no others.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from dlperf.models.parameters import Init, Parameter, dense, random_state
from dlperf.models.zipf import zipf

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Config(NamedTuple):
    """query, title: words that each has at most."""

    vocabulary: int = 1451594
    width: int = 128
    hidden: int = 128
    query: int = 8
    title: int = 16
    margin: float = 0.1


SIZES = {
    "simnet_bow": Config(),
    "simnet_bow_tiny": Config(vocabulary=600, width=16, hidden=16, query=4, title=6),
}
#: for checking in float64, which has the sketches of whole tables: the same network over fewer words
SIZES.update({name + "_check": one._replace(vocabulary=min(one.vocabulary, 20000)) for name, one in SIZES.items()})

TITLES = {"simnet_bow": "Simnet-BOW"}
ALIASES: Dict[str, str] = {}
DEFAULT = ""
#: what the report counts, and its unit: a query with its title and another's
SAMPLE = "pairs"
RATE_UNIT = "pairs/s"
BATCH_SIZE = {"cuda": {"fp32": 128, "tf32": 128, "amp": 128}, "cpu": 128}
INPUT = "queries"
EFFECTIVE = ("tables",)
WORK = ("words",)
MEANINGS = {
    "words": "How many words a query and a title have at most; a row without a word is in no sum.",
    "tables": "What a step changes: the rows that it has looked up, or whole tables.",
}
TOTALS: Dict[str, str] = {}
COUNTED = ""
#: a step takes milliseconds, on a CPU too
FAST = True
SMOOTH = False

#: Zipf's exponent of synthetic words, as in running text
EXPONENT = 1.0
#: of a table, rows from the first that half of all words are: of these measured runs show values, since a step leaves
#: nearly all others as they are
BUSY = 512
#: the three texts of a pair, in the order in which their words are looked up
TEXTS = ("query", "title", "other")


class Optimizer(NamedTuple):
    """SGD, constant: w = w - learning_rate * factor * g. factor: `table` for the table, `weights` for those of dense
    layers, and 1 for their biases. The scripts set 5 times the batch size for the table, which is 128 there."""

    learning_rate: float = 1e-4
    momentum: float = 0.0
    weight_decay: float = 0.0
    table: float = 640.0
    weights: float = 200.0


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer()


def rates(config: Config, recipe: Optimizer) -> Dict[str, float]:
    """The learning rate of each tensor."""
    factors = {"embedding": recipe.table, "dense": recipe.weights, "bias": 1.0}
    return {one.name: recipe.learning_rate * factors[one.kind] for one in parameters(config)}


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. 185,837,056 trained values with 1,451,594 words.

    All start as spread as Glorot and Bengio's uniform values (2010), PaddlePaddle's default."""
    rows, width = config.vocabulary, config.width
    of_dense = glorot(width, config.hidden)
    return [
        Parameter("emb.weight", (rows, width), "embedding", glorot(rows, width)),
        *dense("q_fc", width, config.hidden, of_dense),
        *dense("fc", width, config.hidden, of_dense),
    ]


def glorot(inputs: int, outputs: int) -> float:
    """The standard deviation of Glorot's initial values."""
    return math.sqrt(2 / (inputs + outputs))


def revealing(config: Config) -> List[Parameter]:
    """Sums of words of about 1, where softsign bends, and biases that are not zero."""
    inits: Dict[str, Init] = {"embedding": 0.5, "bias": 0.2}
    return [one._replace(init=inits.get(one.kind, one.init)) for one in parameters(config)]


def batch(config: Config, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
    """Synthetic batch number `index`, of words as frequent as Zipf's law has them; of each text as many as any other
    number from 1. Every second batch is the one before with its titles exchanged: else training would soon know all
    that wait on the device by heart, and go on with gradients of zero.

    Returns query: int32 (batch_size, config.query); title, other: int32 (batch_size, config.title). Behind a text's
    words there are -1.
    """
    import numpy

    random = random_state(seed, f"simnet_bow batch {index - index % 2}")
    query, *titles = TEXTS
    found = {}
    for name, most in zip((query, *(reversed(titles) if index % 2 else titles)), (config.query, *[config.title] * 2)):
        words = zipf(config.vocabulary, EXPONENT, random.random_sample((batch_size, most)))
        lengths = random.randint(1, most + 1, (batch_size, 1))
        found[name] = numpy.where(numpy.arange(most) < lengths, words, -1).astype("int32")
    return found


def logits(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The network's outputs: name -> shape without the batch axis. A query's cosine with its title, and with
    another's."""
    return {"cosines": (2,)}


def samples(config: Config) -> str:
    return f"queries of up to {config.query} words with two titles of up to {config.title}"


def units(config: Config) -> int:
    return 1


def first_loss(config: Config) -> Tuple[float, float]:
    """Two cosines between random directions, each with a standard deviation of hidden^-1/2: the mean of
    max(0, margin + d), where d is their difference. It is of a pair about as large as its own mean, so that of the few
    pairs of a small batch it may be half of that, or twice."""
    spread = math.sqrt(2 / config.hidden)
    z = config.margin / spread
    density, share = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), (1 + math.erf(z / math.sqrt(2))) / 2
    return config.margin * share + spread * density, 0.8


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The cosines, and the words of a query and of a title."""
    return {**logits(config), "query": (config.query,), "title": (config.title,)}


def observed(shapes: Mapping[str, Sequence[int]]) -> Dict[str, str]:
    """How many words a text has at most."""
    found = [tuple(shapes.get(name, ())) for name in ("query", "title")]
    if any(len(one) != 1 for one in found):
        return {}
    return {"words": " and ".join(str(one[0]) for one in found)}


def flops(config: Config) -> Dict[str, int]:
    """Floating-point operations of one training step for one pair: 3 times the forward pass, 2 per multiply-add, of
    the dense layers: 294,912. A step is bound by rows that are moved, not by these."""
    return {"product": 3 * 3 * 2 * config.width * config.hidden}


def normalised(config: Config) -> Dict[str, int]:
    """No BatchNorm."""
    return {}


def activations(config: Config) -> int:
    """Values of one pair that a step keeps for its gradients: its words' rows, its bags and its vectors."""
    return (config.query + 2 * config.title) * config.width + 3 * (config.width + config.hidden)
