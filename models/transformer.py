"""Transformer for translation: the network, its optimizer and its synthetic batches.

Vaswani et al., "Attention Is All You Need" (2017), base; with normalisation in front of each part, as PaddlePaddle's
benchmark and tensor2tensor have it, or behind, as the paper.

Network: token embedding * sqrt(hidden) + sines and cosines of the position - dropout - encoder, and the same table for
the decoder and, as its head, for the logits, without a bias. A layer of the encoder has self-attention and a
feed-forward part; one of the decoder self-attention, attention to the encoder's output, and a feed-forward part:

    x = x + dropout(part(LayerNorm(x))), and a LayerNorm behind the last layer     pre-norm
    x = LayerNorm(x + dropout(part(x)))                                            post-norm

attention: dense to query, key and value, softmax(q k^T / sqrt(head) + mask) -> dropout -> times v -> dense, all without
biases. Feed-forward: dense - ReLU - dropout - dense. The mask keeps attention from padding of the source, and the
decoder's from later positions. LayerNorm's eps is 1e-5, dropout 0.1 in all places.

Loss: cross-entropy with label smoothing 0.1 (target 0.9 + 0.1/vocabulary on the token, 0.1/vocabulary elsewhere),
weighted mean over the whole batch, in which padding has weight 0; in float32 or better.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Tuple

from dlperf.models import bert, gpt
from dlperf.models.parameters import Init, Parameter, dense, norm, random_state

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Config(NamedTuple):
    layers: int = 6  # of the encoder, and of the decoder
    hidden: int = 512
    heads: int = 8
    intermediate: int = 2048
    vocabulary: int = 33708
    sequence: int = 64  # tokens of a source and of a target sentence, with padding
    tokens: int = 56  # of them without, on average
    pre_norm: bool = True
    dropout: float = 0.1
    label_smoothing: float = 0.1
    norm_eps: float = 1e-5

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


SIZES = {
    "transformer": Config(),
    "transformer_post": Config(pre_norm=False),
    "transformer_big": Config(hidden=1024, heads=16, intermediate=4096, vocabulary=33712),
    "transformer_tiny": Config(layers=2, hidden=32, heads=2, intermediate=64, vocabulary=256, sequence=16, tokens=14),
    "transformer_post_tiny": Config(
        layers=2, hidden=32, heads=2, intermediate=64, vocabulary=256, sequence=16, tokens=14, pre_norm=False
    ),
}
#: for checking in float64: the same network and weights, shorter sentences
SIZES.update({name + "_check": config._replace(sequence=16, tokens=14) for name, config in SIZES.items()})
#: and less deep, where weights, gradients and moments of float64 would take 7 GB
SIZES["transformer_big_check"] = SIZES["transformer_big_check"]._replace(layers=3)

TITLES = {
    "transformer": "Transformer base",
    "transformer_post": "Transformer base, post-norm",
    "transformer_big": "Transformer big",
}
ALIASES: Dict[str, str] = {}
DEFAULT = ""
#: what the report counts, and its unit: those of the target, padding not counted
SAMPLE = "target tokens"
RATE_UNIT = "tokens/s"
#: sentences per device where none is asked: the 2,048 tokens, with padding, of PaddlePaddle's benchmark; on CPU what a
#: step of a few seconds allows
BATCH_SIZE = {"cuda": {"fp32": 32, "tf32": 32, "amp": 64}, "cpu": 8}
INPUT = "translation"
EFFECTIVE = ("dropout", "label_smoothing", "attention")
WORK = ("dropout", "label_smoothing", "sequence", "vocabulary")
MEANINGS = {
    **{name: bert.MEANINGS[name] for name in ("dropout", "masks", "attention", "dropout_masks")},
    **{name: gpt.MEANINGS[name] for name in ("norm_eps", "norm_moments")},
    "label_smoothing": "Share of the target spread over all tokens; none makes the loss a look-up.",
    "sequence": "Tokens of a target sentence, with padding, for which scores are computed.",
    "vocabulary": "Tokens that the head chooses from: the width of the largest product.",
}
#: the loss is divided by it, so that the mean of the ranks' losses is the loss of the global batch, however many tokens
#: each rank has
TOTALS = {"target_total": "target_weights"}
COUNTED = "target_weights"
SMOOTH = False


class Optimizer(NamedTuple):
    """Adam, as dlperf.models.vgg_cifar.Optimizer has it.

    Values of PaddlePaddle's benchmark, whose learning rate is constant, as a benchmark of some hundred steps stays
    inside any warm-up: it is what the paper's schedule has after 570 steps. Nothing decays, nothing is clipped.
    """

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.997
    eps: float = 1e-9
    weight_decay: float = 0.0


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer()


#: the parts of a layer, in their order; before or behind number i is the LayerNorm norm{i}, from 1
ENCODER = ("self_attention", "feed_forward")
DECODER = ("self_attention", "cross_attention", "feed_forward")
SIDES = {"encoder": ENCODER, "decoder": DECODER}


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. The base network has 61,362,176 trained values."""
    hidden, inner = config.hidden, config.intermediate
    result = [Parameter("embedding.weight", (config.vocabulary, hidden), "embedding", hidden**-0.5)]
    for side, parts in SIDES.items():
        for index in range(config.layers):
            layer = f"{side}.layers.{index}."
            for number, part in enumerate(parts, 1):
                result += [] if not config.pre_norm else norm(f"{layer}norm{number}", hidden)
                if part == "feed_forward":
                    deviation = (2 / (hidden + inner)) ** 0.5
                    result += dense(f"{layer}{part}.inner", hidden, inner, deviation)
                    result += dense(f"{layer}{part}.outer", inner, hidden, deviation)
                else:
                    for name in ("query", "key", "value", "output"):
                        result += dense(f"{layer}{part}.{name}", hidden, hidden, hidden**-0.5)[:1]
                result += norm(f"{layer}norm{number}", hidden) if not config.pre_norm else []
        result += norm(f"{side}.norm", hidden) if config.pre_norm else []
    return result


def revealing(config: Config) -> List[Parameter]:
    """Attention that prefers some tokens; biases, scales and shifts that are not 0 and 1."""
    inits: Dict[str, Init] = {"bias": 0.1, "scale": (1.0, 0.2), "shift": 0.1}
    result = []
    for one in parameters(config):
        init = inits.get(one.kind, one.init)
        if one.name.endswith((".query.weight", ".key.weight")):
            init = 1.5 * config.hidden**-0.5
        result.append(one._replace(init=init))
    return result


def positions(config: Config) -> "NDArray[Any]":
    """What is added to the embeddings: float64 (sequence, hidden). Sines in the first half of the channels, cosines in
    the second, of periods from 2 pi to 2e4 pi: those of tensor2tensor and PaddlePaddle's benchmark."""
    import numpy

    count = config.hidden // 2
    frequencies = numpy.exp(numpy.arange(count) * -(math.log(1e4) / (count - 1)))
    angles = numpy.arange(config.sequence)[:, None] * frequencies
    return numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], 1)


def batch(config: Config, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
    """Synthetic batch number `index`, of random sentences of about equal length, as batches by buckets have them.

    source: int32 (batch_size, sequence), padded with 0. source_lengths: int32 (batch_size,). target: int32 (batch_size,
    sequence), what the decoder reads: 1, for the beginning, then the tokens of labels but the last. labels: int32
    (batch_size, sequence). target_weights: float32 (batch_size, sequence), 1 for tokens, 0 for padding; they have
    batch_size * config.tokens ones.
    """
    import numpy

    random = random_state(seed, f"transformer batch {index}")
    columns = numpy.arange(config.sequence)
    source_lengths, lengths = (_lengths(config, batch_size, random) for _ in range(2))
    size = (batch_size, config.sequence)
    source, labels = (random.randint(2, config.vocabulary, size) for _ in range(2))
    arrays = {"source": numpy.where(columns < source_lengths[:, None], source, 0), "source_lengths": source_lengths}
    result = {name: numpy.ascontiguousarray(array, "int32") for name, array in arrays.items()}
    return {**result, **decoder(labels, lengths)}


def decoder(labels: "NDArray[Any]", lengths: "NDArray[Any]") -> "Dict[str, NDArray[Any]]":
    """The part of a batch that is of the target. labels: (batch_size, sequence), whose first tokens count, so many as
    lengths (batch_size,) says."""
    import numpy

    inside = numpy.arange(labels.shape[1]) < lengths[:, None]
    labels = numpy.where(inside, labels, 0)
    target = numpy.concatenate([numpy.ones((len(labels), 1), int), labels[:, :-1]], 1)
    tokens = {"target": numpy.where(inside, target, 0), "labels": labels}
    result = {name: numpy.ascontiguousarray(array, "int32") for name, array in tokens.items()}
    return {**result, "target_weights": numpy.ascontiguousarray(inside, "float32")}


def _lengths(config: Config, batch_size: int, random: Any) -> "NDArray[Any]":
    """One sentence is as much longer than the average as the next one is shorter; an odd last one is average."""
    import numpy

    more = random.randint(0, config.sequence - config.tokens + 1, batch_size)
    signs = numpy.where(numpy.arange(batch_size) % 2, -1, 1)
    more = signs * numpy.repeat(more[::2], 2)[:batch_size]
    if batch_size % 2:
        more[-1] = 0
    found: NDArray[Any] = config.tokens + more
    return found


logits, shapes, observed, normalised = gpt.logits, gpt.shapes, gpt.observed, gpt.normalised


def samples(config: Config) -> str:
    return f"pairs of sentences of {config.tokens} tokens on average, padded to {config.sequence}"


def units(config: Config) -> int:
    return config.tokens


def first_loss(config: Config) -> Tuple[float, float]:
    """That of a guess by logits of variance 1, which normalised sums with embeddings of length 1 are:
    ln(vocabulary) + 1/2."""
    return math.log(config.vocabulary) + 0.5, 0.05


def flops(config: Config) -> Dict[str, int]:
    """Floating-point operations of one training step for one pair of sentences, padding included: 3 times the forward
    pass, 2 per multiply-add, matrix products only. Attention counts whole, though half of the decoder's is masked. The
    base network at 64 tokens: 2.4e10."""
    tokens, hidden = config.sequence, config.hidden
    attention, feed_forward = 4 * hidden * hidden, 2 * hidden * config.intermediate
    macs = config.layers * tokens * (3 * attention + 2 * feed_forward)
    macs += tokens * hidden * config.vocabulary
    return {"product": 3 * 2 * macs, "attention": 3 * 2 * 3 * config.layers * 2 * tokens * tokens * hidden}


def activations(config: Config) -> int:
    """Values that the matrix products give for one pair, which a step keeps for its gradients. The base network:
    7.7e6."""
    tokens, hidden = config.sequence, config.hidden
    attention = 5 * tokens * hidden + config.heads * tokens * tokens
    layers = config.layers * (3 * attention + 2 * tokens * (hidden + config.intermediate))
    return layers + tokens * config.vocabulary
