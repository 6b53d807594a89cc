"""VGG16 in NumPy, as dlperf.models.vgg has it: forward, backward and update written out."""

from dlperf import models
from dlperf.adapters.numpy import convolution, runtime
from dlperf.adapters.numpy.convolution import max_pool, relu
from dlperf.adapters.numpy.optimizers import SGD
from dlperf.adapters.numpy.runtime import mean_cross_entropy, product, versions
from dlperf.models import vgg

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network, recipe = Network(job, models.config(job.model)), vgg.optimizer(job.batch_size)
    effective = {"layout": "NHWC", "dropout": str(network.dropout)}
    return runtime.Trainer(job, ranks, network, SGD(job, recipe), effective)


def loss(logits, labels):
    """The mean over the batch, and its gradient. logits: (batch, classes)."""
    return mean_cross_entropy(logits, labels)


class Network(convolution.Layers):
    first = "conv1_1"

    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config, self.dropout = config, config.dropout * job.dropout

    def step(self, batch):
        backwards = []

        def then(result):
            backwards.append(result[1])
            return result[0]

        x = batch["images"].transpose(0, 2, 3, 1)
        for one in vgg.convolutions(self.config):
            x = then(self.conv(one.name, x))
            if one.name == "conv2_1":
                self.shapes = {one.name: (x.shape[3], *x.shape[1:3])}
            x = then(relu(x))
            if one.last:
                x = then(max_pool(x, 2, 0))
        x = then(flattened(x))
        for name in ("fc6", "fc7"):
            x = then(relu(then(self.dense(name, x))))
            x = then(self.drop(x, self.dropout))
        logits = then(self.dense("fc8", x))
        self.shapes["logits"] = logits.shape[1:]
        value, d = loss(logits, batch["labels"])
        for back in reversed(backwards):
            d = back(d)
        return value, (logits,)


def flattened(x):
    """Channels first."""
    batch, height, width, channels = x.shape
    return x.transpose(0, 3, 1, 2).reshape(batch, -1), lambda d: d.reshape(batch, channels, height, width).transpose(
        0, 2, 3, 1
    )
