"""VGG16 in OneFlow: nn.Graph over forward, backward and SGD."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.photos import Loader, pixels
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import vgg

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, config.dropout * job.dropout)
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.sgd(job, network, vgg.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device)
    effective = {"layout": "NCHW", "dropout": str(network.dropout)}
    if network.dropout and ranks.world_size > 1:
        effective["dropout_masks"] = "the same on all ranks"  # the seed is in the Graph, which all share
    return runtime.Trainer(job, device, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["images"])
    scores = flow._C.amp_black_identity(logits)  # the loss in float32
    losses = F.cross_entropy(scores, batch["labels"], reduction="none")
    return losses.mean(), (logits,)  # reduction="mean" divides by a count that ranks must exchange first


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.vgg."""

    def __init__(self, config, dropout):
        super().__init__()
        self.dropout, self.convolutions = dropout, vgg.convolutions(config)
        self.shapes = {}  # not bound anew in forward: a Graph calls it on a stand-in for this module
        for one in self.convolutions:
            setattr(self, one.name, nn.Conv2d(one.channels_in, one.channels, 3, padding=1))
        self.fc6 = nn.Linear(vgg.flattened(config), config.hidden)
        self.fc7 = nn.Linear(config.hidden, config.hidden)
        self.fc8 = nn.Linear(config.hidden, config.classes)

    def forward(self, x):
        for one in self.convolutions:
            x = F.relu(getattr(self, one.name)(x))
            if one.name == "conv2_1":
                self.shapes[one.name] = tuple(x.shape[1:])
            if one.last:
                x = F.max_pool2d(x, 2)
        x = x.flatten(1)
        for dense in (self.fc6, self.fc7):
            x = F.dropout(F.relu(dense(x)), self.dropout, self.training)
        logits = self.fc8(x)
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits
