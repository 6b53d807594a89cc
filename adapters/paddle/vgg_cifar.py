"""VGG16 for CIFAR-10 in PaddlePaddle: dygraph, NCHW on a CPU, NHWC and auto_cast on tensor cores."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime
from dlperf.adapters.paddle.photos import Loader, pixels
from dlperf.adapters.paddle.resnet import layout_of, norm, statistics_of
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import vgg, vgg_cifar

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    layout = layout_of(job)
    network = Network(models.config(job.model), layout, job.dropout)
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, vgg_cifar.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, layout)
    effective = {
        "layout": network.conv1_1._data_format,
        "dropout": vgg_cifar.told(network.config, network.share),
        **statistics_of(job, network.bn1_1),
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["images"])
    return F.cross_entropy(logits.astype(paddle.get_default_dtype()), batch["labels"]), (logits,)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.vgg_cifar. share: of its rates of dropout."""

    def __init__(self, config, layout, share):
        super().__init__()
        self.config, self.layout, self.share = config, layout, share
        self.seen = {}  # see runtime.Replica
        for one in vgg.convolutions(config):
            setattr(self, one.name, nn.Conv2D(one.channels_in, one.channels, 3, padding=1, data_format=layout))
            setattr(self, vgg_cifar.norm_of(one), norm(one.channels, config, layout))
        self.fc6 = nn.Linear(vgg.flattened(config), config.hidden)
        self.bn6 = nn.BatchNorm1D(config.hidden, momentum=config.bn_decay, epsilon=config.bn_eps)
        self.fc7 = nn.Linear(config.hidden, config.hidden)
        self.fc8 = nn.Linear(config.hidden, config.classes)

    def forward(self, x):
        seen, config = {}, self.config
        for one in vgg.convolutions(config):
            y = getattr(self, one.name)(x)
            if one.name == "conv2_1":
                seen[one.name] = y.detach()
            x = F.relu(getattr(self, vgg_cifar.norm_of(one))(y))
            if one.last:
                x = F.max_pool2d(x, 2, data_format=self.layout)
            else:
                x = self._dropped(x, vgg_cifar.rate(config, one))
        x = (x if self.layout == "NCHW" else x.transpose([0, 3, 1, 2])).flatten(1)
        x = F.relu(self.bn6(self.fc6(self._dropped(x, config.dropout))))
        logits = self.fc8(self.fc7(self._dropped(x, config.dropout)))
        self.seen = {**seen, "logits": logits.detach()}
        return logits

    def _dropped(self, x, rate):
        return F.dropout(x, rate * self.share, training=self.training)
