"""ResNet-50 v1.5 and its kin in TensorFlow: NHWC, fused batch normalisation, one tf.function per step."""

import numpy
import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime
from dlperf.adapters.tensorflow.layers import dense, drop
from dlperf.adapters.tensorflow.photos import AUGMENTATION, Loader, pixels
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]

#: channels of a grouped convolution on a CPU that are computed together: of 16, 32 and 64 the fastest
TOGETHER = 32


def build(job, ranks):
    strategy = runtime.configure(job, ranks)
    config = models.config(job.model)
    weights = runtime.load(job)
    network = Network(config, weights, runtime.DTYPES[job.precision], config.dropout * job.dropout)
    optimizer = optimizers.SGD(job, weights, resnet.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks)
    effective = {"layout": "NHWC", "label_smoothing": str(config.label_smoothing)}
    if config.groups > 1 and job.device == "cpu":
        effective["grouped_convolutions"] = f"of {TOGETHER} channels at once, with zeros between groups"
    if job.input == "native":
        effective["augmentation"] = AUGMENTATION
    return runtime.Trainer(job, strategy, network, loss, optimizer, feed, effective)


def loss(network, batch):
    config = network.config
    logits = network(batch["images"])
    rest = config.label_smoothing / config.classes
    target = tf.one_hot(batch["labels"], config.classes, 1 - config.label_smoothing + rest, rest, dtype=logits.dtype)
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(target, logits)), (logits,)


class Network:
    """Names are the canonical ones of dlperf.models.resnet; dtype is that of convolutions."""

    def __init__(self, config, weights, dtype, dropout):
        self.config, self.weights, self._dtype, self._dropout = config, weights, dtype, dropout
        self.shapes, self.compute_dtype = {}, None
        self._conv1 = conv(weights, "conv1", stride=2)
        self._bn1 = norm(weights, "bn1", config)
        self._blocks = [Bottleneck(block, config, weights) for block in resnet.blocks(config)]

    def __call__(self, images):
        x = tf.nn.relu(self._bn1(self._conv1(tf.cast(images, self._dtype))))
        # after a ReLU a padding of zeros is as good as one of minus infinity
        x = tf.nn.max_pool2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), 3, 2, "VALID")
        for block in self._blocks:
            x = block(x)
            if block.name == "layer2.0":
                self._observe(block.observed)
        x = drop(tf.reduce_mean(x, (1, 2)), self._dropout)
        x = tf.matmul(x, tf.cast(self.weights["fc.weight"], x.dtype))
        logits = tf.cast(x, self.weights["fc.bias"].dtype) + self.weights["fc.bias"]
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits

    def _observe(self, y):
        _, height, width, channels = y.shape
        self.shapes["layer2.0.conv1"], self.compute_dtype = (channels, height, width), y.dtype


class Bottleneck:
    def __init__(self, block, config, weights):
        self.name = block.name
        self._conv1 = conv(weights, block.name + ".conv1")
        self._bn1 = norm(weights, block.name + ".bn1", config)
        self._conv2 = conv(weights, block.name + ".conv2", block.stride, block.groups)
        self._bn2 = norm(weights, block.name + ".bn2", config)
        self._conv3 = conv(weights, block.name + ".conv3")
        self._bn3 = norm(weights, block.name + ".bn3", config)
        self._se = excitation(weights, block.name + ".se") if block.squeezed else tf.identity
        self._downsample = None
        if block.projected:
            projection = conv(weights, block.name + ".downsample.0", stride=block.stride)
            projection_norm = norm(weights, block.name + ".downsample.1", config)
            self._downsample = lambda x: projection_norm(projection(x))

    def __call__(self, x):
        shortcut = x if self._downsample is None else self._downsample(x)
        y = self.observed = self._conv1(x)
        y = tf.nn.relu(self._bn1(y))
        y = tf.nn.relu(self._bn2(self._conv2(y)))
        return tf.nn.relu(self._se(self._bn3(self._conv3(y))) + shortcut)


def excitation(weights, name):
    """Squeeze-and-excitation."""
    squeeze, excite = dense(weights, name + ".fc1"), dense(weights, name + ".fc2")

    def apply(x):
        share = tf.sigmoid(excite(tf.nn.relu(squeeze(tf.reduce_mean(x, (1, 2))))))
        return x * share[:, None, None]

    return apply


def conv(weights, name, stride=1, groups=1):
    """Symmetric padding, which is SAME at stride 1. An explicit list of paddings would keep gradients from oneDNN."""
    kernel, gpus = weights[name + ".weight"], tf.config.get_visible_devices("GPU")
    pad = kernel.shape[0] // 2
    padding = "SAME" if stride == 1 else "VALID"

    def apply(x):
        if stride > 1 and pad > 0:
            x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
        return (in_parts if groups > 1 and not gpus else whole)(x, tf.cast(kernel, x.dtype))

    def whole(x, kernel):
        return tf.nn.conv2d(x, kernel, stride, padding)

    def in_parts(x, kernel):
        parts, kernels = joined(kernel, groups)
        return tf.concat([whole(*both) for both in zip(tf.split(x, parts, 3), kernels)], 3)

    return apply


def joined(kernel, groups):
    """A grouped convolution's kernel as kernels of plain ones, each of some groups, with zeros between them: TensorFlow
    has no gradients of grouped ones on a CPU, and by one for each group a step takes up to twice as long.

    kernel: (height, width, in, groups * out). Returns their number, and the kernels."""
    channels_in, channels_out = kernel.shape[2], kernel.shape[3] // groups
    together = next(n for n in range(max(1, TOGETHER // channels_in), 0, -1) if groups % n == 0)
    own = numpy.kron(numpy.eye(together), numpy.ones((channels_in, channels_out)))
    parts = groups // together
    own = own.astype(kernel.dtype.as_numpy_dtype)
    return parts, [tf.tile(part, (1, 1, together, 1)) * own for part in tf.split(kernel, parts, 3)]


def norm(weights, name, config):
    scale, shift = weights[name + ".weight"], weights[name + ".bias"]
    mean, variance = weights[name + ".running_mean"], weights[name + ".running_var"]

    def fused(x):
        y, new_mean, new_variance, _, _, _ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=scale,
            offset=shift,
            mean=mean,
            variance=variance,
            epsilon=config.bn_eps,
            exponential_avg_factor=1 - config.bn_decay,
            is_training=True,
        )
        mean.assign(new_mean)
        variance.assign(new_variance)
        return y

    def written_out(x):  # the fused kernel has no float64
        batch_mean, batch_variance = tf.nn.moments(x, (0, 1, 2))
        count = tf.cast(tf.size(x) / x.shape[3], x.dtype)
        mean.assign(config.bn_decay * mean + (1 - config.bn_decay) * batch_mean)
        unbiased = batch_variance * count / (count - 1)
        variance.assign(config.bn_decay * variance + (1 - config.bn_decay) * unbiased)
        return tf.nn.batch_normalization(x, batch_mean, batch_variance, shift, scale, config.bn_eps)

    return written_out if scale.dtype == tf.float64 else fused
