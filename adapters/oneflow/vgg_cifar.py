"""VGG16 for CIFAR-10 in OneFlow: nn.Graph over forward, backward and Adam."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.photos import Loader, pixels
from dlperf.adapters.oneflow.resnet import norm, statistics_of
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import vgg, vgg_cifar

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    network = Network(models.config(job.model), job.dropout)
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.adamw(job, network, vgg_cifar.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device)
    effective = {
        "layout": "NCHW",
        "dropout": vgg_cifar.told(network.config, network.share),
        **statistics_of(network.config),
    }
    if network.share and ranks.world_size > 1:
        effective["dropout_masks"] = "the same on all ranks"  # the seed is in the Graph, which all share
    return runtime.Trainer(job, device, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["images"])
    scores = flow._C.amp_black_identity(logits)  # the loss in float32
    losses = F.cross_entropy(scores, batch["labels"], reduction="none")
    return losses.mean(), (logits,)  # reduction="mean" divides by a count that ranks must exchange first


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.vgg_cifar. share: of its rates of dropout."""

    def __init__(self, config, share):
        super().__init__()
        self.config, self.share = config, share
        self.shapes = {}  # not bound anew in forward: a Graph calls it on a stand-in for this module
        for one in vgg.convolutions(config):
            setattr(self, one.name, nn.Conv2d(one.channels_in, one.channels, 3, padding=1))
            setattr(self, vgg_cifar.norm_of(one), norm(one.channels, config))
        self.fc6 = nn.Linear(vgg.flattened(config), config.hidden)
        self.bn6 = norm(config.hidden, config, nn.BatchNorm1d)
        self.fc7 = nn.Linear(config.hidden, config.hidden)
        self.fc8 = nn.Linear(config.hidden, config.classes)

    def forward(self, x):
        for one in vgg.convolutions(self.config):
            y = getattr(self, one.name)(x)
            if one.name == "conv2_1":
                self.shapes[one.name] = tuple(y.shape[1:])
            x = F.relu(getattr(self, vgg_cifar.norm_of(one))(y))
            x = F.max_pool2d(x, 2) if one.last else self._dropped(x, vgg_cifar.rate(self.config, one))
        x = F.relu(self.bn6(self.fc6(self._dropped(x.flatten(1), self.config.dropout))))
        logits = self.fc8(self.fc7(self._dropped(x, self.config.dropout)))
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits

    def _dropped(self, x, rate):
        return F.dropout(x, rate * self.share, self.training)
