"""ResNet-50 v1.5 in TensorFlow: NHWC, fused batch normalisation, one tf.function per step."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime
from dlperf.adapters.tensorflow.photos import AUGMENTATION, Loader, pixels
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    strategy = runtime.configure(job, ranks)
    config = models.config(job.model)
    weights = runtime.load(job)
    network = Network(config, weights, runtime.DTYPES[job.precision])
    optimizer = optimizers.SGD(job, weights, resnet.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks)
    effective = {"layout": "NHWC", "label_smoothing": str(config.label_smoothing)}
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

    def __init__(self, config, weights, dtype):
        self.config, self.weights, self._dtype = config, weights, dtype
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
        x = tf.reduce_mean(x, (1, 2))
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
        self._conv2 = conv(weights, block.name + ".conv2", stride=block.stride)
        self._bn2 = norm(weights, block.name + ".bn2", config)
        self._conv3 = conv(weights, block.name + ".conv3")
        self._bn3 = norm(weights, block.name + ".bn3", config)
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
        return tf.nn.relu(self._bn3(self._conv3(y)) + shortcut)


def conv(weights, name, stride=1):
    """Symmetric padding, which is SAME at stride 1. An explicit list of paddings would keep gradients from oneDNN."""
    kernel = weights[name + ".weight"]
    pad = kernel.shape[0] // 2
    padding = "SAME" if stride == 1 else "VALID"

    def apply(x):
        if stride > 1 and pad > 0:
            x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
        return tf.nn.conv2d(x, tf.cast(kernel, x.dtype), stride, padding)

    return apply


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
