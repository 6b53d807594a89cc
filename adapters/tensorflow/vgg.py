"""VGG16 in TensorFlow: NHWC, one tf.function per step."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime
from dlperf.adapters.tensorflow.layers import biased, dense, drop
from dlperf.adapters.tensorflow.photos import AUGMENTATION, Loader, pixels
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import vgg

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    strategy = runtime.configure(job, ranks)
    config = models.config(job.model)
    weights = runtime.load(job)
    network = Network(config, weights, runtime.DTYPES[job.precision], config.dropout * job.dropout)
    optimizer = optimizers.SGD(job, weights, vgg.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks)
    effective = {"layout": "NHWC"}
    if job.input == "native":
        effective["augmentation"] = AUGMENTATION
    return runtime.Trainer(job, strategy, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["images"])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)), (logits,)


class Network:
    """Names are the canonical ones of dlperf.models.vgg; dtype is that of convolutions and products."""

    def __init__(self, config, weights, dtype, dropout):
        self._dtype, self._dropout, self.weights = dtype, dropout, weights
        self.shapes, self.compute_dtype = {}, None
        self._convolutions = vgg.convolutions(config)
        self._dense = [dense(weights, name) for name in ("fc6", "fc7", "fc8")]

    def __call__(self, images):
        x = tf.cast(images, self._dtype)
        for one in self._convolutions:
            x = tf.nn.relu(self._conv(x, one.name))
            if one.name == "conv2_1":
                self.shapes[one.name], self.compute_dtype = (x.shape[3], *x.shape[1:3]), x.dtype
            if one.last:
                x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        x = tf.reshape(tf.transpose(x, (0, 3, 1, 2)), [x.shape[0], -1])
        *inner, last = self._dense
        for layer in inner:
            x = drop(tf.nn.relu(layer(x)), self._dropout)
        logits = tf.cast(last(x), self.weights["fc8.bias"].dtype)
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits

    def _conv(self, x, name):
        return biased(
            tf.nn.conv2d(x, tf.cast(self.weights[name + ".weight"], x.dtype), 1, "SAME"), self.weights[name + ".bias"]
        )
