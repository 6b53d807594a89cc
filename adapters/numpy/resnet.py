"""ResNet-50 v1.5 and its kin in NumPy, as dlperf.models.resnet has them: forward, backward and update written out."""

import numpy

from dlperf import models
from dlperf.adapters.numpy import convolution, runtime
from dlperf.adapters.numpy.convolution import average, max_pool, relu
from dlperf.adapters.numpy.optimizers import SGD
from dlperf.adapters.numpy.runtime import mean_cross_entropy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    network, recipe = Network(job, config), resnet.optimizer(job.batch_size)
    effective = {
        "layout": "NHWC",
        "label_smoothing": str(config.label_smoothing),
        "dropout": str(network.dropout),
    }
    return runtime.Trainer(job, ranks, network, SGD(job, recipe), effective)


def loss(logits, labels, config):
    """The mean over the batch, and its gradient. logits: (batch, classes)."""
    return mean_cross_entropy(logits, labels, config.label_smoothing)


class Network(convolution.Layers):
    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config, self.dropout = config, config.dropout * job.dropout

    def step(self, batch):
        backwards = []

        def then(result):
            backwards.append(result[1])
            return result[0]

        x = then(self.conv("conv1", batch["images"].transpose(0, 2, 3, 1), 2))
        x = then(relu(then(self.norm("bn1", x))))
        x = then(max_pool(x, 3, 1))
        for block in resnet.blocks(self.config):
            x = then(self._block(block, x))
        x = then(self.drop(then(average(x)), self.dropout))
        logits = then(self.dense("fc", x))
        self.shapes["logits"] = logits.shape[1:]
        value, d = loss(logits, batch["labels"], self.config)
        for back in reversed(backwards):
            d = back(d)
        return value, (logits,)

    def _block(self, block, x):
        name, backwards = block.name, []

        def then(result):
            backwards.append(result[1])
            return result[0]

        y = then(self.conv(name + ".conv1", x, 1))
        if name == "layer2.0":
            self.shapes = {"layer2.0.conv1": (y.shape[3], *y.shape[1:3])}
        y = then(relu(then(self.norm(name + ".bn1", y))))
        y = then(self.conv(name + ".conv2", y, block.stride, block.groups))
        y = then(relu(then(self.norm(name + ".bn2", y))))
        y = then(self.conv(name + ".conv3", y, 1))
        y = then(self.norm(name + ".bn3", y))
        if block.squeezed:
            y = then(self._excite(name + ".se", y))
        shortcut, shortcut_back = x, lambda d: d
        if block.projected:
            z, conv_back = self.conv(name + ".downsample.0", x, block.stride)
            shortcut, norm_back = self.norm(name + ".downsample.1", z)

            def shortcut_back(d):
                return conv_back(norm_back(d))

        out, relu_back = relu(y + shortcut)

        def backward(d):
            d = dx = relu_back(d)
            for back in reversed(backwards):
                dx = back(dx)
            return dx + shortcut_back(d)

        return out, backward

    def _excite(self, name, x):
        """Squeeze-and-excitation."""
        means, means_back = average(x)
        inner, inner_back = self.dense(name + ".fc1", means)
        active, active_back = relu(inner)
        outer, outer_back = self.dense(name + ".fc2", active)
        share = 1 / (1 + numpy.exp(-outer))

        def backward(dy):
            d = (dy * x).sum((1, 2)) * share * (1 - share)
            return dy * share[:, None, None] + means_back(inner_back(active_back(outer_back(d))))

        return x * share[:, None, None], backward
