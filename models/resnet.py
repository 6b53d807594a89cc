"""ResNet-50 v1.5, SE-ResNet-50 and SE-ResNeXt-50: the networks, their optimizer and their synthetic batches.

He et al., "Deep Residual Learning for Image Recognition" (2015), with the stride of 2 in the 3x3 convolution
("v1.5", as NVIDIA DeepLearningExamples, torchvision and TensorFlow's model garden have it).

Network, NCHW: conv1 7x7/2 padding 3 - bn1 - ReLU - max-pool 3x3/2 padding 1 (never SAME) - layer1..4 of bottleneck
blocks - global average - fc. Every padding is symmetric: (kernel - 1) / 2. A block:

    conv1 1x1 -> bn1 -> ReLU -> conv2 3x3 (stride here) -> bn2 -> ReLU -> conv3 1x1 -> bn3 -> + shortcut -> ReLU

The shortcut is the identity, or `downsample.0` (1x1, strided) and `downsample.1` (BatchNorm) in the first block of a
layer. BatchNorm: eps 1e-5; running statistics keep 0.9 of the old value; the running variance is the unbiased one, as
cuDNN and PyTorch have it. Names are torchvision's.

With `reduction`, a block squeezes and excites behind bn3 (Hu et al., "Squeeze-and-Excitation Networks", 2018), by two
dense layers with biases, named as timm names them:

    bn3 -> y; mean over height and width -> se.fc1 -> ReLU -> se.fc2 -> sigmoid -> times y -> + shortcut -> ReLU

With `groups`, conv2 is in that many groups (Xie et al., "Aggregated Residual Transformations", 2017): each takes as
many of its input channels, in their order, and gives as many of its output channels.

Loss: cross-entropy with label smoothing 0.1 (target 0.9 + 0.1/classes on the class, 0.1/classes elsewhere), mean over
the batch, in float32 or better. Weight decay is in the optimizer, not in the loss.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from dlperf.models.parameters import Init, Parameter, batch_norm, dense, random_state

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Config(NamedTuple):
    blocks: Tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64  # channels of the stem; layer i has 4 * width * 2**i outside its blocks
    inner: int = 1  # times width * 2**i are inside
    groups: int = 1  # of conv2
    reduction: int = 0  # of the channels that squeeze-and-excitation has inside; 0 for a network without
    dropout: float = 0.0  # in front of the dense layer
    classes: int = 1000
    image_size: int = 224
    label_smoothing: float = 0.1
    bn_eps: float = 1e-5
    bn_decay: float = 0.9  # share of the old running statistics that is kept; PyTorch calls 0.1 momentum


SIZES = {
    "resnet50": Config(),
    "resnet_tiny": Config(blocks=(1, 1, 1, 1), width=8, classes=16, image_size=64),
    "se_resnet50": Config(reduction=16),
    "se_resnext50": Config(inner=2, groups=32, reduction=16, dropout=0.5),
    "se_resnext_tiny": Config((1, 1, 1, 1), 8, 2, groups=4, reduction=4, dropout=0.5, classes=16, image_size=64),
}
#: for checking in float64: the same network and weights, smaller images
SIZES.update({name + "_check": config._replace(image_size=64) for name, config in SIZES.items()})

TITLES = {"resnet50": "ResNet-50 v1.5", "se_resnet50": "SE-ResNet-50", "se_resnext50": "SE-ResNeXt-50 32x4d"}
ALIASES: Dict[str, str] = {}
DEFAULT = "resnet50"
#: what the report counts, and its unit
SAMPLE = "images"
RATE_UNIT = "img/s"
#: batch per device where none is asked: DLPerf's on an accelerator; on CPU what a step of a few seconds allows
BATCH_SIZE = {"cuda": {"fp32": 128, "tf32": 128, "amp": 256}, "cpu": 16}
INPUT = "photos"
EFFECTIVE = ("layout", "label_smoothing", "dropout")
WORK = ("label_smoothing", "dropout")
MEANINGS = {
    "label_smoothing": "Share of the target spread over all classes; none makes the loss a look-up.",
    "dropout": "Share of activations in front of the dense layer that is set to zero at random.",
    "layout": "Order of an image's axes in memory; each framework has kernels that are fast for one.",
    "loader": "What reads and decodes images; its speed alone is in the table of inputs.",
    "augmentation": "How a loader draws the random part of an image, where that differs.",
    "batch_norm": "The kernel of batch normalisation.",
    "grouped_convolutions": "How convolutions in groups are computed, where that is another way than a whole one.",
    "bn_running_variance": "Whether the running variance divides by n - 1 or n; it does not enter training.",
    "bn_decay": "Share of the running statistics that a step keeps; as float32 it is 2.4e-8 less.",
    "bn_eps": "Added to a variance before its root; as float32 it is 2.5e-13 less.",
    "classes": "Classes that the network chooses from.",
}
TOTALS: Dict[str, str] = {}
COUNTED = ""
SMOOTH = False

EXPANSION = 4


class Optimizer(NamedTuple):
    """SGD with momentum: g += weight_decay * w; v = momentum * v + g; w -= learning_rate * v. Not Nesterov.

    The values of NVIDIA DeepLearningExamples' ResNet-50 v1.5. The learning rate is 0.256 for a global batch of 256
    and proportional to it, constant: a benchmark of some hundred steps stays inside any warm-up. Weight decay applies
    to weights of convolutions and dense layers only, not to biases nor BatchNorm.
    """

    learning_rate: float
    momentum: float = 0.875
    weight_decay: float = 2.0**-15


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer(learning_rate=0.256 * global_batch_size / 256)


class Block(NamedTuple):
    """One bottleneck block: `name` as in "layer2.0"; strided and projected only in the first block of a layer.
    channels: inside. squeezed: channels inside squeeze-and-excitation, 0 without."""

    name: str
    channels_in: int
    channels: int
    channels_out: int
    stride: int
    groups: int
    squeezed: int
    projected: bool


def blocks(config: Config) -> List[Block]:
    """All blocks from input to output."""
    result = []
    channels_in = config.width
    for layer, repeats in enumerate(config.blocks):
        channels = config.width * 2**layer
        inner, outer = config.inner * channels, EXPANSION * channels
        squeezed = outer // config.reduction if config.reduction else 0
        for index in range(repeats):
            stride = 2 if layer > 0 and index == 0 else 1
            name = f"layer{layer + 1}.{index}"
            result.append(Block(name, channels_in, inner, outer, stride, config.groups, squeezed, index == 0))
            channels_in = outer
    return result


def normalised(config: Config) -> Dict[str, int]:
    """How many values of one image each BatchNorm takes the statistics of a channel from: its height times width."""
    size = config.image_size // 2
    result = {"bn1": size * size}
    size //= 2
    for block in blocks(config):
        result[block.name + ".bn1"] = size * size
        size //= block.stride
        result.update(dict.fromkeys([block.name + ".bn2", block.name + ".bn3"], size * size))
        if block.projected:
            result[block.name + ".downsample.1"] = size * size
    return result


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. ResNet-50 has 25,557,032 trained values, SE-ResNet-50 28,088,024,
    SE-ResNeXt-50 27,559,896."""
    result = _conv_bn("conv1", "bn1", 3, config.width, 7)
    for block in blocks(config):
        inner, outer = block.channels, block.channels_out
        result += _conv_bn(block.name + ".conv1", block.name + ".bn1", block.channels_in, inner, 1)
        result += _conv_bn(block.name + ".conv2", block.name + ".bn2", inner // block.groups, inner, 3)
        result += _conv_bn(block.name + ".conv3", block.name + ".bn3", inner, outer, 1, scale="zeros")
        if block.squeezed:
            result += dense(block.name + ".se.fc1", outer, block.squeezed, (2 / outer) ** 0.5)
            result += dense(block.name + ".se.fc2", block.squeezed, outer, (2 / block.squeezed) ** 0.5)
        if block.projected:
            result += _conv_bn(block.name + ".downsample.0", block.name + ".downsample.1", block.channels_in, outer, 1)
    width = config.width * 2 ** (len(config.blocks) - 1) * EXPANSION
    result.append(Parameter("fc.weight", (config.classes, width), "dense", 0.01))
    result.append(Parameter("fc.bias", (config.classes,), "bias", "zeros"))
    return result


def revealing(config: Config) -> List[Parameter]:
    """In the last layer variances of about 3e-4, in whose normalisation an epsilon of 1e-3 counts: there rounding moves
    gradients least. Scales, shifts and biases that are not 0 and 1; small ones at the end of blocks, since with larger
    ones rounding decides over more of the maxima and ReLUs behind them."""
    last = f"layer{len(config.blocks)}."
    inits: Dict[str, Init] = {"scale": (1.0, 0.2), "shift": 0.3, "bias": 0.3}
    result = []
    for one in parameters(config):
        init = inits.get(one.kind, one.init)
        if one.name.startswith(last) and one.name.endswith(".conv3.weight"):
            init = 0.03 * (2.0 / one.shape[0]) ** 0.5
        elif one.name.endswith(".bn3.weight"):
            init = (0.5, 0.1) if one.name.startswith(last) else (0.1, 0.02)
        result.append(one._replace(init=init))
    return result


def _conv_bn(
    conv: str, bn: str, channels_in: int, channels_out: int, kernel: int, scale: str = "ones"
) -> List[Parameter]:
    # He initialisation, fan-out, as torchvision's and Goyal et al.'s; the last scale of a block starts at zero.
    deviation = (2.0 / (channels_out * kernel * kernel)) ** 0.5
    weight = Parameter(conv + ".weight", (channels_out, channels_in, kernel, kernel), "conv", deviation)
    return [weight, *batch_norm(bn, channels_out, scale)]


def batch(config: Config, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
    """Synthetic batch number `index`.

    Returns images: float32 (batch_size, 3, image_size, image_size), NCHW, with the mean and the deviation of
    normalised photographs (0 and 1, uniform); labels: int32 (batch_size,).
    """
    import numpy

    random = random_state(seed, f"resnet batch {index}")
    size = (batch_size, 3, config.image_size, config.image_size)
    images = random.random_sample(size).astype("float32")
    images -= numpy.float32(0.5)
    images *= numpy.float32(12**0.5)
    return {"images": images, "labels": random.randint(0, config.classes, batch_size).astype("int32")}


def logits(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The network's outputs: name -> shape without the batch axis."""
    return {"logits": (config.classes,)}


def samples(config: Config) -> str:
    return f"images of {config.image_size} x {config.image_size}"


def units(config: Config) -> int:
    return 1


def first_loss(config: Config) -> Tuple[float, float]:
    """That of a guess: ln(classes)."""
    return math.log(config.classes), 0.05


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The output of the first 1x1 convolution of stage 2, whose sides v1.5 halves later than v1; the logits."""
    side = config.image_size // 4
    return {"layer2.0.conv1": (2 * config.inner * config.width, side, side), "logits": (config.classes,)}


def observed(shapes: Mapping[str, Sequence[int]]) -> Dict[str, str]:
    """Nothing."""
    return {}


def flops(config: Config) -> Dict[str, int]:
    """Floating-point operations of one training step for one image: 3 times the forward pass (forward, gradient of
    the input, gradient of the weights), 2 per multiply-add, convolutions and dense layers only."""
    size = config.image_size // 2
    macs: int = config.width * 3 * 49 * size * size
    products: int = config.width * 2 ** (len(config.blocks) - 1) * EXPANSION * config.classes
    size //= 2
    for block in blocks(config):
        inner, outer = block.channels, block.channels_out
        macs += block.channels_in * inner * size * size
        size //= block.stride
        macs += inner * inner // block.groups * 9 * size * size + inner * outer * size * size
        products += 2 * block.squeezed * outer
        if block.projected:
            macs += block.channels_in * outer * size * size
    return {"convolution": 3 * 2 * macs, "product": 3 * 2 * products}


def activations(config: Config) -> int:
    """Values that the convolutions give for one image, which a step keeps for its gradients. ResNet-50: 1.1e7."""
    places = normalised(config)
    return sum(p.size * places[p.name.rpartition(".")[0]] for p in parameters(config) if p.kind == "scale")
