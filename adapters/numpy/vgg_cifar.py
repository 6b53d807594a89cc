"""VGG16 for CIFAR-10 in NumPy, as dlperf.models.vgg_cifar has it: forward, backward and update written out."""

from dlperf import models
from dlperf.adapters.numpy import convolution, runtime
from dlperf.adapters.numpy.convolution import max_pool, relu
from dlperf.adapters.numpy.optimizers import AdamW
from dlperf.adapters.numpy.runtime import mean_cross_entropy, product, versions
from dlperf.adapters.numpy.vgg import flattened
from dlperf.models import vgg, vgg_cifar

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(job, models.config(job.model))
    effective = {"layout": "NHWC", "dropout": vgg_cifar.told(network.config, job.dropout)}
    return runtime.Trainer(job, ranks, network, AdamW(job, vgg_cifar.optimizer(job.batch_size)), effective)


def loss(logits, labels):
    """The mean over the batch, and its gradient. logits: (batch, classes)."""
    return mean_cross_entropy(logits, labels)


class Network(convolution.Layers):
    first = "conv1_1"

    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config, self._share = config, job.dropout

    def step(self, batch):
        backwards, config = [], self.config

        def then(result):
            backwards.append(result[1])
            return result[0]

        x = batch["images"].transpose(0, 2, 3, 1)
        for one in vgg.convolutions(config):
            x = then(self.conv(one.name, x))
            if one.name == "conv2_1":
                self.shapes = {one.name: (x.shape[3], *x.shape[1:3])}
            x = then(relu(then(self.norm(vgg_cifar.norm_of(one), x))))
            x = then(self.drop(x, vgg_cifar.rate(config, one) * self._share))
            if one.last:
                x = then(max_pool(x, 2, 0))
        x = then(self.drop(then(flattened(x)), config.dropout * self._share))
        x = then(relu(then(self.norm("bn6", then(self.dense("fc6", x))))))
        x = then(self.drop(x, config.dropout * self._share))
        logits = then(self.dense("fc8", then(self.dense("fc7", x))))
        self.shapes["logits"] = logits.shape[1:]
        value, d = loss(logits, batch["labels"])
        for back in reversed(backwards):
            d = back(d)
        return value, (logits,)
