"""VGG16 for CIFAR-10 in JAX: NHWC, pure functions over dicts of arrays, one jitted step with donated state."""

import jax

from dlperf import models
from dlperf.adapters.jax import optimizers, runtime
from dlperf.adapters.jax.dropout import Dropout
from dlperf.adapters.jax.linear import dense, wide
from dlperf.adapters.jax.photos import Loader, pixels
from dlperf.adapters.jax.resnet import Norm, conv
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.adapters.jax.vgg import cross_entropy, max_pool
from dlperf.models import vgg, vgg_cifar

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(models.config(job.model), job)
    optimizer = optimizers.AdamW(job, vgg_cifar.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks)
    effective = {"layout": "NHWC", "masks": Dropout.words(job.device), "bn_running_variance": "unbiased"}
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, weights, statistics, batch, key):
    logits, statistics = network(weights, statistics, batch["images"], key)
    return cross_entropy(logits, batch["labels"]), (logits,), statistics


class Network:
    """weights and statistics: dicts of arrays under the canonical names of dlperf.models.vgg_cifar."""

    def __init__(self, config, job):
        self.config, self.dtype, self.device, self._share = (
            config,
            runtime.DTYPES[job.precision],
            job.device,
            job.dropout,
        )
        #: as in `resnet.Network`
        self.one_pass = job.device == "cuda" and (job.mixed or job.precision == "tf32")
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, weights, statistics, images, key):
        """Logits, and the new running statistics."""
        config, x = self.config, images.astype(self.dtype)
        norm = Norm(config, weights, statistics, self.device, self.one_pass)
        dropout = Dropout(config.dropout * self._share, key, self.device)
        for one in vgg.convolutions(config):
            y = conv(x, weights[one.name + ".weight"], 1, self.device)
            with jax.named_scope("elementwise"):
                y = (wide(y) + weights[one.name + ".bias"]).astype(self.dtype)
            if one.name == "conv2_1":
                _, height, width, channels = y.shape
                self.shapes[one.name], self.compute_dtype = (channels, height, width), y.dtype
            x = norm(y, vgg_cifar.norm_of(one), relu=True)
            x = max_pool(x) if one.last else dropout(x, vgg_cifar.rate(config, one) * self._share)
        x = dropout(x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1))
        x = dropout(norm(dense(x, weights, "fc6", self.device), "bn6", relu=True))
        logits = dense(dense(x, weights, "fc7", self.device), weights, "fc8", self.device)
        self.shapes["logits"] = logits.shape[1:]
        return logits, norm.updated
