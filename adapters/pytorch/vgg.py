"""VGG16 in PyTorch: channels_last, autocast, fused SGD."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import masks, optimizers, runtime
from dlperf.adapters.pytorch.photos import Loader, pixels
from dlperf.adapters.pytorch.resnet import LAYOUTS
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import vgg

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config, drop = models.config(job.model), masks.dropout(job)
    layout = LAYOUTS[job.options["layout"]]
    network = Network(config, config.dropout * job.dropout, drop or F.dropout)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype), memory_format=layout)
    runtime.load(network, job)
    optimizer = optimizers.sgd(job, network, vgg.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device, layout)
    effective = {
        "layout": "NHWC" if network.conv1_1.weight.is_contiguous(memory_format=torch.channels_last) else "NCHW",
        "masks": masks.words(drop),
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["images"])
    return F.cross_entropy(logits, batch["labels"].long()), (logits,)


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.vgg. drop: a function like torch.nn.functional.dropout."""

    def __init__(self, config, dropout, drop):
        super().__init__()
        self._dropout, self._drop, self._convolutions = dropout, drop, vgg.convolutions(config)
        self.shapes, self.compute_dtype = {}, None
        for one in self._convolutions:
            self.add_module(one.name, nn.Conv2d(one.channels_in, one.channels, 3, padding=1))
        self.fc6 = nn.Linear(vgg.flattened(config), config.hidden)
        self.fc7 = nn.Linear(config.hidden, config.hidden)
        self.fc8 = nn.Linear(config.hidden, config.classes)

    def forward(self, x):
        for one in self._convolutions:
            x = F.relu(getattr(self, one.name)(x), inplace=True)
            if one.name == "conv2_1":
                self.shapes, self.compute_dtype = {one.name: tuple(x.shape[1:])}, x.dtype
            if one.last:
                x = F.max_pool2d(x, 2)
        x = x.flatten(1)
        for dense in (self.fc6, self.fc7):
            x = self._drop(F.relu(dense(x), inplace=True), p=self._dropout, training=self.training)
        logits = self.fc8(x)
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits

    def kernels(self, batch, compiled):
        """None that is chosen: for Trainer.effective."""
        return {}
