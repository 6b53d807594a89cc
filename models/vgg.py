"""VGG16: the network, its optimizer and its synthetic batches.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition" (2014), configuration D:

    conv1_1 conv1_2 - maximum - conv2_1 conv2_2 - maximum - conv3_1 ... conv5_3 - maximum
    - fc6 - ReLU - dropout - fc7 - ReLU - dropout - fc8

Convolutions are 3x3, padded by 1, with biases, each followed by a ReLU; a maximum is that of 2x2, at a stride of 2.
What fc6 takes is flattened with channels first. Names are the authors'. There is no BatchNorm.

Loss: cross-entropy, the mean over the batch, in float32 or better. Weight decay is in the optimizer, not in the loss.
On smaller images, as those of `vgg16_check`, fc6 has as many inputs fewer; all else is the same.
"""

from typing import Any, Dict, List, NamedTuple, Tuple

from dlperf.models import resnet
from dlperf.models.parameters import Parameter, dense


class Config(NamedTuple):
    blocks: Tuple[int, ...] = (2, 2, 3, 3, 3)  # convolutions in front of each maximum
    width: int = 64  # channels of the first block; each next one has twice as many, up to 8 times
    hidden: int = 4096  # of fc6 and fc7
    dropout: float = 0.5
    classes: int = 1000
    image_size: int = 224


SIZES = {
    "vgg16": Config(),
    "vgg_tiny": Config((1, 1, 2), width=8, hidden=256, classes=16, image_size=32),
}
#: for checking in float64: the same network, smaller images
SIZES.update({name + "_check": one._replace(image_size=min(64, one.image_size)) for name, one in SIZES.items()})

TITLES = {"vgg16": "VGG16"}
ALIASES: Dict[str, str] = {}
DEFAULT = ""
SAMPLE, RATE_UNIT, INPUT = resnet.SAMPLE, resnet.RATE_UNIT, resnet.INPUT
#: PaddlePaddle's on an accelerator; on CPU what a step of a few seconds allows
BATCH_SIZE = {"cuda": {"fp32": 32, "tf32": 32, "amp": 64}, "cpu": 4}
EFFECTIVE = ("layout", "dropout")
WORK = ("dropout",)
MEANINGS = {
    "dropout": "Share of activations behind fc6 and fc7 that are set to zero at random.",
    "masks": "How dropout draws what it drops: by a random number for each value, or by some of its bits.",
    "dropout_masks": "Whether ranks draw the same masks for dropout; the work is the same.",
    **{name: resnet.MEANINGS[name] for name in ("layout", "loader", "augmentation", "classes")},
}
TOTALS: Dict[str, str] = {}
COUNTED = ""
SMOOTH = False
#: of its trajectories. Nothing normalises, and from step to step ReLUs and maxima take rounding about twice as far: in
#: float32 losses of six frameworks were up to 4e-7 off the float64 reference's at the first step, 1e-5 at the sixth and
#: 1e-4, which is the bar, at the ninth and tenth (batch 4, Intel with AVX-512). In float64 all ten steps agree
STEPS_OF_PROOF = {"vgg16": 6}


class Optimizer(NamedTuple):
    """SGD with momentum: g += weight_decay * w; v = momentum * v + g; w -= learning_rate * v. Not Nesterov.

    Momentum and weight decay are PaddlePaddle's benchmark's, the learning rate is PaddleCV's: 0.01 for a global batch
    of 256, and proportional to it, constant. Weight decay spares biases.
    """

    learning_rate: float
    momentum: float = 0.9
    weight_decay: float = 1e-4


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer(learning_rate=0.01 * global_batch_size / 256)


class Convolution(NamedTuple):
    """name: as in "conv1_1". last: of its block, in front of a maximum."""

    name: str
    channels_in: int
    channels: int
    last: bool


def convolutions(config: Any) -> List[Convolution]:
    """From input to output; of a Config, or one of `dlperf.models.vgg_cifar`."""
    result, channels_in = [], 3
    for block, count in enumerate(config.blocks):
        channels = config.width * 2 ** min(block, 3)
        for index in range(count):
            result.append(Convolution(f"conv{block + 1}_{index + 1}", channels_in, channels, index == count - 1))
            channels_in = channels
    return result


def flattened(config: Any) -> int:
    """How many values fc6 takes."""
    side: int = config.image_size >> len(config.blocks)
    return convolutions(config)[-1].channels * side * side


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. VGG16 has 138,357,544 trained values."""
    result = []
    for one in convolutions(config):
        result += conv(one)
    inputs = flattened(config)
    result += dense("fc6", inputs, config.hidden, (2.0 / inputs) ** 0.5)
    result += dense("fc7", config.hidden, config.hidden, (2.0 / config.hidden) ** 0.5)
    return result + dense("fc8", config.hidden, config.classes, 0.01)


def conv(one: Convolution) -> List[Parameter]:
    """He initialisation, fan-out, as torchvision's."""
    shape = (one.channels, one.channels_in, 3, 3)
    return [
        Parameter(one.name + ".weight", shape, "conv", (2.0 / (one.channels * 9)) ** 0.5),
        Parameter(one.name + ".bias", (one.channels,), "bias", "zeros"),
    ]


def revealing(config: Config) -> List[Parameter]:
    """Biases that are not 0."""
    return [one._replace(init=0.3) if one.kind == "bias" else one for one in parameters(config)]


batch, logits, samples, units = resnet.batch, resnet.logits, resnet.samples, resnet.units
first_loss, observed = resnet.first_loss, resnet.observed


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The output of the second block's first convolution; the logits."""
    side = config.image_size // 2
    return {"conv2_1": (2 * config.width, side, side), "logits": (config.classes,)}


def normalised(config: Config) -> Dict[str, int]:
    return {}


def flops(config: Any) -> Dict[str, int]:
    """Floating-point operations of one training step for one image: 3 times the forward pass (forward, gradient of
    the input, gradient of the weights), 2 per multiply-add, convolutions and dense layers only."""
    macs, side = 0, config.image_size
    for one in convolutions(config):
        macs += 9 * one.channels_in * one.channels * side * side
        side >>= one.last
    products = (flattened(config) + config.hidden + config.classes) * config.hidden
    return {"convolution": 3 * 2 * macs, "product": 3 * 2 * products}


def activations(config: Any) -> int:
    """Values that the convolutions and their ReLUs give for one image, which a step keeps for its gradients. VGG16:
    2.7e7."""
    kept, side = 0, config.image_size
    for one in convolutions(config):
        kept += 2 * one.channels * side * side
        side >>= one.last
    return kept
