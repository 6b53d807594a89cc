"""BERT pretraining: the network, its optimizer and its synthetic batches.

Devlin et al., "BERT" (2018), pretraining with masked words and next sentence, as google-research/bert computes it.

Network: word + position + token-type embeddings - LayerNorm - dropout - layers - pooler (dense, tanh) of position 0 -
NSP head (2); MLM head: the hidden states at the masked positions only (gathered: 20, not 128) - dense - GELU -
LayerNorm - decoder, whose weight is the word embedding (tied), plus a bias. A layer, post-norm:

    query, key, value (dense) -> softmax(q k^T / sqrt(head) + mask) -> dropout -> times v -> dense -> dropout
    -> LayerNorm(input + that) -> dense -> GELU -> dense -> dropout -> LayerNorm(attention output + that)

GELU is the exact one (erf), LayerNorm's eps is 1e-12, dropout 0.1 in all four places. `mask` keeps attention from
padding: positions >= the row's length get -10000 or minus infinity, the same thing after softmax. Names are those of
Hugging Face's BertForPreTraining.

Loss: cross-entropy of the masked words, weighted mean over the whole batch (sum of weight * loss / sum of weights),
plus cross-entropy of next sentence, mean over the batch; in float32 or better.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from dlperf.models.parameters import Init, Parameter, dense, norm, random_state

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Config(NamedTuple):
    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    vocabulary: int = 30522
    positions: int = 512  # rows of the position table
    sequence: int = 128  # tokens of a training example
    masked: int = 20  # masked positions of an example; unused ones have weight 0
    token_types: int = 2
    dropout: float = 0.1
    norm_eps: float = 1e-12

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def pre_norm(self) -> bool:
        return False


SIZES = {
    "bert_base": Config(),
    "bert_base_512": Config(sequence=512, masked=80),  # the second phase of pretraining (Devlin et al., 2018)
    "bert_large": Config(layers=24, hidden=1024, heads=16, intermediate=4096),
    "bert_large_512": Config(layers=24, hidden=1024, heads=16, intermediate=4096, sequence=512, masked=80),
    "bert_tiny": Config(
        layers=2, hidden=32, heads=2, intermediate=64, vocabulary=256, positions=32, sequence=32, masked=5
    ),
}
#: for checking in float64: the same network and weights, shorter rows
SIZES.update({name + "_check": config._replace(sequence=32, masked=5) for name, config in SIZES.items()})
#: and less deep, where weights, gradients and moments of float64 would take 11 GB: as many values as BERT-base
for _name in ("bert_large_check", "bert_large_512_check"):
    SIZES[_name] = SIZES[_name]._replace(layers=6)

TITLES = {
    "bert_base": "BERT-base pretraining",
    "bert_base_512": "BERT-base pretraining, 512 tokens",
    "bert_large": "BERT-large pretraining",
    "bert_large_512": "BERT-large pretraining, 512 tokens",
}
ALIASES = {"bert": "bert_base"}
DEFAULT = "bert"
#: what the report counts, and its unit
SAMPLE = "sentences"
RATE_UNIT = "sentences/s"
#: batch per device where none is asked: DLPerf's on an accelerator; on CPU what a step of a few seconds allows
BATCH_SIZE = {
    "cuda": {"fp32": 32, "tf32": 32, "amp": 64},
    "cpu": {"bert_base": 4, "bert_base_512": 1, "bert_large": 1, "bert_large_512": 1, "bert_tiny": 4},
}
INPUT = "pretraining"
EFFECTIVE = ("clip_norm", "dropout", "masked_positions", "gelu", "attention")
WORK = ("clip_norm", "dropout", "masked_positions", "vocabulary")
MEANINGS = {
    "clip_norm": "Global norm to which gradients are scaled down; off saves one or two passes over all gradients.",
    "dropout": "Share of activations set to zero at random; none saves the random numbers and the masks.",
    "masked_positions": "Words for which the masked-word head computes scores; all 128 instead of 20 is more work.",
    "vocabulary": "Words that the masked-word head chooses from: the width of the largest product.",
    "gelu": "The kernel of GELU; all compute the exact form, with erf.",
    "masks": "How dropout draws what it drops: by a random number for each value, or by some of its bits.",
    "attention": "How attention is written: as single products and a softmax, or as one kernel.",
    "dropout_masks": "Whether ranks draw the same masks for dropout; the work is the same.",
}
#: the masked-word loss is divided by it, so that the mean of the ranks' losses is the loss of the global batch, however
#: many words each rank has masked
TOTALS = {"masked_total": "masked_weights"}
COUNTED = ""
SMOOTH = True


class Optimizer(NamedTuple):
    """AdamW (Loshchilov and Hutter, 2017), with bias correction:

    m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2
    w -= learning_rate * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w)

    Before that, all gradients are scaled by min(1, clip_norm / (their global norm)), unless the job's option
    clip_norm is "off". Weight decay spares biases and LayerNorm. The learning rate is constant, as a benchmark of
    some hundred steps stays inside any warm-up.
    """

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer()


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. BERT-base has 110,106,428 trained values."""
    hidden = config.hidden
    embeddings = "bert.embeddings."
    result = [
        Parameter(embeddings + "word_embeddings.weight", (config.vocabulary, hidden), "embedding", 0.02),
        Parameter(embeddings + "position_embeddings.weight", (config.positions, hidden), "embedding", 0.02),
        Parameter(embeddings + "token_type_embeddings.weight", (config.token_types, hidden), "embedding", 0.02),
    ]
    result += norm(embeddings + "LayerNorm", hidden)
    for index in range(config.layers):
        layer = f"bert.encoder.layer.{index}."
        for part in ("query", "key", "value"):
            result += dense(layer + "attention.self." + part, hidden, hidden)
        result += dense(layer + "attention.output.dense", hidden, hidden)
        result += norm(layer + "attention.output.LayerNorm", hidden)
        result += dense(layer + "intermediate.dense", hidden, config.intermediate)
        result += dense(layer + "output.dense", config.intermediate, hidden)
        result += norm(layer + "output.LayerNorm", hidden)
    result += dense("bert.pooler.dense", hidden, hidden)
    result += dense("cls.predictions.transform.dense", hidden, hidden)
    result += norm("cls.predictions.transform.LayerNorm", hidden)
    result.append(Parameter("cls.predictions.bias", (config.vocabulary,), "bias", "zeros"))
    result += dense("cls.seq_relationship", hidden, 2)
    return result


def revealing(config: Config) -> List[Parameter]:
    """Embeddings whose variance is not far above 1e-5, which LayerNorm's epsilon is in other networks; attention that
    prefers some words, but adds little, so that words stay unlike each other through all layers; in every second layer
    GELU's inputs about -3.5, where the form with tanh is 20 % off; in the pooler tanh's inputs of about 1.5; biases,
    scales and shifts that are not 0 and 1."""
    alike = config.hidden**-0.5  # a dense layer's deviation, whose outputs are then as large as its inputs
    inits: Dict[str, Init] = {
        "embedding": 0.003,
        "bias": 0.05,
        "scale": (1.0, 0.2),
        "shift": 0.05,
        "bert.pooler.dense.weight": 1.5 * alike,
        # as large logits as with embeddings of the usual size
        "cls.predictions.transform.LayerNorm.weight": (6.0, 1.0),
    }
    for index in range(config.layers):
        layer = f"bert.encoder.layer.{index}."
        inits[layer + "attention.output.dense.weight"] = 0.3 * alike
        if index % 2:
            inits[layer + "intermediate.dense.weight"] = 0.1 * alike
            inits[layer + "intermediate.dense.bias"] = (-3.5, 0.1)
    return [
        one._replace(init=inits.get(one.name, inits.get(one.kind, one.shape[-1] ** -0.5))) for one in parameters(config)
    ]


#: the arrays of a batch: name -> (shape without the batch axis, dtype); `sequence` and `masked` stand for sizes
FIELDS: Dict[str, Tuple[Tuple[str, ...], str]] = {
    "input_ids": (("sequence",), "int32"),  # words, with [MASK] and its substitutes in place
    "token_type_ids": (("sequence",), "int32"),  # 0 first sentence, 1 second
    "lengths": ((), "int32"),  # tokens that are not padding; 3 to sequence
    "masked_positions": (("masked",), "int32"),
    "masked_ids": (("masked",), "int32"),  # the original words there
    "masked_weights": (("masked",), "float32"),  # 1, or 0 for an unused place
    "next_sentence_labels": ((), "int32"),  # 0 follows, 1 random
}


def batch(config: Config, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
    """Synthetic batch number `index`: the arrays of FIELDS, batch axis first.

    Half of the rows fill the sequence, half are shorter, as in prepared text; every system computes on the padding
    too, so that the work does not depend on it.
    """
    import numpy

    random = random_state(seed, f"bert batch {index}")
    full = config.sequence
    lengths = numpy.where(numpy.arange(batch_size) % 2 == 0, full, random.randint(full // 2, full + 1, batch_size))
    columns = numpy.arange(full)[None, :]
    inside = columns < lengths[:, None]
    words = random.randint(0, config.vocabulary, (batch_size, full))
    second = columns >= random.randint(1, full // 2, batch_size)[:, None]
    positions = numpy.stack([numpy.sort(random.permutation(full // 2)[: config.masked]) for _ in range(batch_size)])
    used = random.randint(max(1, config.masked // 2), config.masked + 1, batch_size)
    weights = numpy.arange(config.masked)[None, :] < used[:, None]
    arrays = {
        "input_ids": numpy.where(inside, words, 0),
        "token_type_ids": second & inside,
        "lengths": lengths,
        "masked_positions": numpy.where(weights, positions, 0),
        "masked_ids": numpy.where(weights, random.randint(0, config.vocabulary, positions.shape), 0),
        "masked_weights": weights,
        "next_sentence_labels": random.randint(0, 2, batch_size),
    }
    return {name: numpy.ascontiguousarray(arrays[name], dtype) for name, (_, dtype) in FIELDS.items()}


def logits(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The network's outputs: name -> shape without the batch axis."""
    return {"mlm_logits": (config.masked, config.vocabulary), "nsp_logits": (2,)}


def samples(config: Config) -> str:
    return f"{config.sequence} tokens, {config.masked} masked"


def units(config: Config) -> int:
    return 1


def first_loss(config: Config) -> Tuple[float, float]:
    """That of two guesses: ln(vocabulary) + ln(2)."""
    return math.log(config.vocabulary) + math.log(2), 0.05


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The logits: the MLM head computes 20 gathered positions, not 128."""
    return logits(config)


def observed(shapes: Mapping[str, Sequence[int]]) -> Dict[str, str]:
    """Positions and words of the MLM head's logits, if they have these two axes."""
    found = tuple(shapes.get("mlm_logits", ()))
    return dict(zip(("masked_positions", "vocabulary"), map(str, found))) if len(found) == 2 else {}


def flops(config: Config) -> Dict[str, int]:
    """Floating-point operations of one training step for one sentence: 3 times the forward pass, 2 per multiply-add,
    matrix products only. BERT-base at sequence 128 and 20 masked words: 7.1e10."""
    tokens, hidden = config.sequence, config.hidden
    macs = config.layers * tokens * (4 * hidden * hidden + 2 * hidden * config.intermediate)
    macs += hidden * hidden + 2 * hidden
    macs += config.masked * (hidden * hidden + hidden * config.vocabulary)
    return {"product": 3 * 2 * macs, "attention": 3 * 2 * config.layers * 2 * tokens * tokens * hidden}


def normalised(config: Config) -> Dict[str, int]:
    """No BatchNorm."""
    return {}


def activations(config: Config) -> int:
    """Values that the matrix products give for one sentence, which a step keeps for its gradients. BERT-base: 1.5e7."""
    tokens, hidden = config.sequence, config.hidden
    layer = tokens * (6 * hidden + config.intermediate) + config.heads * tokens * tokens
    return config.layers * layer + config.masked * (hidden + config.vocabulary)
