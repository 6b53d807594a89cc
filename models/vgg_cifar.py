"""VGG16 for CIFAR-10: the network, its optimizer and its synthetic batches.

The network of PaddlePaddle's benchmark on CIFAR-10 (`vgg16_bn_drop` of its vgg16_fluid.py), on images of 32 x 32:

    conv1_1 conv1_2 - maximum - conv2_1 ... conv5_3 - maximum
    - dropout - fc6 - BatchNorm - ReLU - dropout - fc7 - fc8

The convolutions are those of `dlperf.models.vgg`, each followed by BatchNorm ("bn1_1" behind "conv1_1"), a ReLU and,
but for the last of a block, dropout: of 0.3 in the first block and 0.4 in the others. In front of fc6 and fc7 it is
0.5. fc7 is linear. BatchNorm is as in `dlperf.models.resnet`; it takes the biases of convolutions and of fc6 away
again, whose gradients are rounding alone.

Loss: cross-entropy, the mean over the batch, in float32 or better.
"""

import math
from typing import Dict, List, NamedTuple, Tuple

from dlperf.models import resnet, vgg
from dlperf.models.parameters import Init, Parameter, batch_norm, dense


class Config(NamedTuple):
    blocks: Tuple[int, ...] = (2, 2, 3, 3, 3)  # convolutions in front of each maximum
    width: int = 64  # channels of the first block; each next one has twice as many, up to 8 times
    hidden: int = 512  # of fc6 and fc7
    dropout: float = 0.5  # of what fc6 and fc7 take
    classes: int = 10
    image_size: int = 32
    bn_eps: float = 1e-5
    bn_decay: float = 0.9


SIZES = {
    "vgg16_cifar": Config(),
    "vgg_cifar_tiny": Config((2, 1, 1), width=8, hidden=64, image_size=16),
}
#: for checking in float64: the same, as images are small
SIZES.update({name + "_check": config for name, config in SIZES.items()})

TITLES = {"vgg16_cifar": "VGG16 for CIFAR-10"}
ALIASES: Dict[str, str] = {}
DEFAULT = ""
SAMPLE, RATE_UNIT, INPUT = resnet.SAMPLE, resnet.RATE_UNIT, resnet.INPUT
#: the benchmark's; on CPU what a step of a few seconds allows
BATCH_SIZE = {"cuda": {"fp32": 128, "tf32": 128, "amp": 128}, "cpu": 32}
EFFECTIVE = ("layout", "dropout")
WORK = ("dropout",)
MEANINGS = {
    **vgg.MEANINGS,
    "dropout": "Shares of activations that are set to zero at random, from the first layers to the last.",
    **{name: resnet.MEANINGS[name] for name in ("batch_norm", "bn_running_variance", "bn_decay", "bn_eps")},
}
TOTALS: Dict[str, str] = {}
COUNTED = ""
SMOOTH = False
#: of its trajectories. Adam takes signs, which rounding decides where gradients are small, and without shortcuts each
#: layer takes that further: in float32 losses of six frameworks were 2e-6 apart at the first step, 2e-3 at the second
#: and 1e-1 at the tenth, at batches of 4 to 64; in float64 up to 4e-10 at the second (of an epsilon in float32) and
#: 2e-2 at the tenth. The tiny network has all ten steps
STEPS_OF_PROOF = {"vgg16_cifar": 1, "vgg16_cifar_check": 1}

#: of what convolutions give in the first block, and in others
RATES = (0.3, 0.4)


class Optimizer(NamedTuple):
    """Adam (Kingma and Ba, 2014), with bias correction:

    m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2
    w -= learning_rate * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    The benchmark's learning rate, and the other values that it leaves as they are. Nothing decays.
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer()


def rate(config: Config, one: vgg.Convolution) -> float:
    """Of the dropout behind a convolution."""
    return 0.0 if one.last else RATES[not one.name.startswith("conv1_")]


def told(config: Config, share: float) -> str:
    """The network's rates of dropout, as `Trainer.effective` has them. share: of them."""
    rates = {rate(config, one) for one in vgg.convolutions(config)} - {0.0} | {config.dropout}
    return ", ".join(f"{share * one:.3g}" for one in sorted(rates)) if share else "0.0"


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. The network for CIFAR-10 has 15,254,602 trained values."""
    result = []
    for one in vgg.convolutions(config):
        result += _idle(vgg.conv(one) + batch_norm(norm_of(one), one.channels))
    inputs = vgg.flattened(config)
    result += _idle(dense("fc6", inputs, config.hidden, (2.0 / inputs) ** 0.5) + batch_norm("bn6", config.hidden))
    result += dense("fc7", config.hidden, config.hidden, (1.0 / config.hidden) ** 0.5)
    return result + dense("fc8", config.hidden, config.classes, 0.01)


def _idle(layer: List[Parameter]) -> List[Parameter]:
    """A layer in front of a BatchNorm, and that."""
    idle = {"bias": "idle_bias", "running_mean": "idle_mean"}
    return [one._replace(kind=idle.get(one.kind, one.kind)) for one in layer]


def norm_of(one: vgg.Convolution) -> str:
    """The name of the BatchNorm behind a convolution."""
    return one.name.replace("conv", "bn")


def revealing(config: Config) -> List[Parameter]:
    """In the last block, and in fc6, variances of about 3e-4, in whose normalisation an epsilon of 1e-3 counts. Scales,
    shifts and biases that are not 0 and 1; those that BatchNorm takes away small, since a variance is less exact
    beside a large mean: with biases of 0.3 OneFlow's gradients were off by 9e-5."""
    last = (f"conv{len(config.blocks)}_", "fc6.")
    inits: Dict[str, Init] = {"scale": (1.0, 0.2), "shift": 0.3, "bias": 0.3, "idle_bias": 0.01}
    result = []
    for one in parameters(config):
        init = inits.get(one.kind, one.init)
        if one.name.startswith(last) and one.name.endswith(".weight") and isinstance(init, float):
            init = 0.03 * init
        result.append(one._replace(init=init))
    return result


batch, logits, samples, units = resnet.batch, resnet.logits, resnet.samples, resnet.units
observed, flops, activations = resnet.observed, vgg.flops, vgg.activations


def first_loss(config: Config) -> Tuple[float, float]:
    """That of a guess: ln(classes). Behind BatchNorm logits have a standard deviation of 0.23, and so the mean loss of
    two images one of 0.17."""
    return math.log(config.classes), 0.3


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The output of the second block's first convolution; the logits."""
    side = config.image_size // 2
    return {"conv2_1": (2 * config.width, side, side), "logits": (config.classes,)}


def normalised(config: Config) -> Dict[str, int]:
    result, side = {}, config.image_size
    for one in vgg.convolutions(config):
        result[norm_of(one)] = side * side
        side >>= one.last
    return {**result, "bn6": 1}
