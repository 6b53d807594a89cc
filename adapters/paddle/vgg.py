"""VGG16 in PaddlePaddle: dygraph, NCHW on a CPU, NHWC and auto_cast on tensor cores."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime
from dlperf.adapters.paddle.photos import Loader, pixels
from dlperf.adapters.paddle.resnet import layout_of
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import vgg

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config, layout = models.config(job.model), layout_of(job)
    network = Network(config, layout, config.dropout * job.dropout)
    runtime.load(network, job)
    optimizer = optimizers.sgd(job, network, vgg.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, layout)
    effective = {"layout": network.conv1_1._data_format, "dropout": str(network.dropout)}
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["images"])
    return F.cross_entropy(logits.astype(paddle.get_default_dtype()), batch["labels"]), (logits,)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.vgg."""

    def __init__(self, config, layout, dropout):
        super().__init__()
        self.layout, self.dropout, self._convolutions = layout, dropout, vgg.convolutions(config)
        self.seen = {}  # see runtime.Replica
        for one in self._convolutions:
            setattr(self, one.name, nn.Conv2D(one.channels_in, one.channels, 3, padding=1, data_format=layout))
        self.fc6 = nn.Linear(vgg.flattened(config), config.hidden)
        self.fc7 = nn.Linear(config.hidden, config.hidden)
        self.fc8 = nn.Linear(config.hidden, config.classes)

    def forward(self, x):
        seen = {}
        for one in self._convolutions:
            x = F.relu(getattr(self, one.name)(x))
            if one.name == "conv2_1":
                seen[one.name] = x.detach()
            if one.last:
                x = F.max_pool2d(x, 2, data_format=self.layout)
        x = (x if self.layout == "NCHW" else x.transpose([0, 3, 1, 2])).flatten(1)
        for dense in (self.fc6, self.fc7):
            x = F.dropout(F.relu(dense(x)), self.dropout, training=self.training)
        logits = self.fc8(x)
        self.seen = {**seen, "logits": logits.detach()}
        return logits
