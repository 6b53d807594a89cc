"""VGG16 in JAX: NHWC, pure functions over dicts of arrays, one jitted step with donated state."""

import jax
import jax.numpy as jnp
from jax import lax

from dlperf import models
from dlperf.adapters.jax import optimizers, runtime
from dlperf.adapters.jax.dropout import Dropout
from dlperf.adapters.jax.linear import dense, wide
from dlperf.adapters.jax.photos import Loader, pixels
from dlperf.adapters.jax.resnet import conv
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.models import vgg

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(models.config(job.model), job)
    optimizer = optimizers.SGD(job, vgg.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks)
    effective = {"layout": "NHWC", "masks": Dropout.words(job.device)}
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, weights, statistics, batch, key):
    logits = network(weights, batch["images"], key)
    return cross_entropy(logits, batch["labels"]), (logits,), statistics


@jax.named_scope("loss")  # for dlperf.adapters.jax.profiling
def cross_entropy(logits, labels):
    """The mean over the batch."""
    return -jnp.take_along_axis(jax.nn.log_softmax(wide(logits)), labels[:, None], axis=1).mean()


class Network:
    """weights: a dict of arrays under the canonical names of dlperf.models.vgg."""

    def __init__(self, config, job):
        self.dtype, self.device, self.dropout = runtime.DTYPES[job.precision], job.device, config.dropout * job.dropout
        self._convolutions = vgg.convolutions(config)
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, weights, images, key):
        dropout, x = Dropout(self.dropout, key, self.device), images.astype(self.dtype)
        for one in self._convolutions:
            y = conv(x, weights[one.name + ".weight"], 1, self.device)
            with jax.named_scope("elementwise"):
                x = jax.nn.relu((wide(y) + weights[one.name + ".bias"]).astype(self.dtype))
            if one.name == "conv2_1":
                _, height, width, channels = x.shape
                self.shapes[one.name], self.compute_dtype = (channels, height, width), x.dtype
            if one.last:
                x = max_pool(x)
        x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        for name in ("fc6", "fc7"):
            x = dropout(jax.nn.relu(dense(x, weights, name, self.device)))
        logits = dense(x, weights, "fc8", self.device)
        self.shapes["logits"] = logits.shape[1:]
        return logits


@jax.named_scope("pooling")
def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
