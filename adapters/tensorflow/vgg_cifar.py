"""VGG16 for CIFAR-10 in TensorFlow: NHWC, fused batch normalisation, one tf.function per step; or a graph of each
worker over parameter servers."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.api import Unsupported
from dlperf.adapters.tensorflow import optimizers, runtime, servers
from dlperf.adapters.tensorflow.layers import biased, dense, drop
from dlperf.adapters.tensorflow.photos import AUGMENTATION, Loader, pixels
from dlperf.adapters.tensorflow.resnet import norm
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import vgg, vgg_cifar

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "serve", "versions"]


def build(job, ranks):
    config, dtype = models.config(job.model), runtime.DTYPES[job.precision]
    recipe = vgg_cifar.optimizer(job.batch_size * ranks.world_size)
    if job.servers:
        if job.input != "synthetic":
            raise Unsupported("images from files are not written for workers of TensorFlow's servers yet")
        looked = Looked(config, dtype, job.dropout)
        return servers.Trainer(job, ranks, looked, loss, None, servers.LazyAdam(recipe), {"layout": "NHWC"})
    strategy = runtime.configure(job, ranks)
    weights = runtime.load(job)
    network = Network(config, weights, dtype, job.dropout)
    optimizer = optimizers.AdamW(job, weights, recipe)
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks)
    effective = {"layout": "NHWC"}
    if job.input == "native":
        effective["augmentation"] = AUGMENTATION
    return runtime.Trainer(job, strategy, network, loss, optimizer, feed, effective)


def serve(job, ranks):
    return servers.serve(job, ranks)


def loss(network, batch, *weights):
    logits = network(batch["images"], *weights)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits)), (logits,)


class Network:
    """Names are the canonical ones of dlperf.models.vgg_cifar; dtype is that of convolutions and products. share: of
    its rates of dropout."""

    def __init__(self, config, weights, dtype, share):
        self.config, self.weights, self._dtype, self._share = config, weights, dtype, share
        self.shapes, self.compute_dtype = {}, None
        self._convolutions = [(one, norm(weights, vgg_cifar.norm_of(one), config)) for one in vgg.convolutions(config)]
        self._norm = norm(weights, "bn6", config)
        self._dense = [dense(weights, name) for name in ("fc6", "fc7", "fc8")]

    def __call__(self, images):
        x = tf.cast(images, self._dtype)
        for one, normalise in self._convolutions:
            kernel, bias = self.weights[one.name + ".weight"], self.weights[one.name + ".bias"]
            y = biased(tf.nn.conv2d(x, tf.cast(kernel, x.dtype), 1, "SAME"), bias)
            if one.name == "conv2_1":
                self.shapes[one.name], self.compute_dtype = (y.shape[3], *y.shape[1:3]), y.dtype
            x = drop(tf.nn.relu(normalise(y)), vgg_cifar.rate(self.config, one) * self._share)
            if one.last:
                x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        first, second, last = self._dense
        rate = self.config.dropout * self._share
        y = first(drop(tf.reshape(tf.transpose(x, (0, 3, 1, 2)), [x.shape[0], -1]), rate))
        x = tf.nn.relu(self._norm(y[:, None, None]))[:, 0, 0]
        logits = tf.cast(last(second(drop(x, rate))), self.weights["fc8.bias"].dtype)
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits


class Looked:
    """The same over weights that come with each call."""

    def __init__(self, config, dtype, share):
        self.config, self._dtype, self._share = config, dtype, share
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, images, weights):
        network = Network(self.config, weights, self._dtype, self._share)
        logits = network(images)
        self.shapes, self.compute_dtype = network.shapes, network.compute_dtype
        return logits
