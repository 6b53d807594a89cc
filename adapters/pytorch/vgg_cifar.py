"""VGG16 for CIFAR-10 in PyTorch: channels_last, autocast, fused Adam."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import masks, optimizers, runtime, servers
from dlperf.adapters.pytorch.photos import Loader, pixels
from dlperf.adapters.pytorch.resnet import LAYOUTS, norm
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import vgg, vgg_cifar

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "serve", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    drop, layout = masks.dropout(job), LAYOUTS[job.options["layout"]]
    network = Network(models.config(job.model), job.dropout, drop or F.dropout)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype), memory_format=layout)
    runtime.load(network, job)
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device, layout)
    effective = {
        "layout": "NHWC" if network.conv1_2.weight.is_contiguous(memory_format=torch.channels_last) else "NCHW",
        "masks": masks.words(drop),
    }
    if job.servers:
        return servers.Trainer(job, ranks, network, servers.whole(job, loss), feed, None, effective)
    optimizer = optimizers.adamw(job, network, vgg_cifar.optimizer(job.batch_size * ranks.world_size))
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def serve(job, ranks):
    return servers.serve(job, ranks, servers.Adam(vgg_cifar.optimizer(job.batch_size)))


def loss(network, batch):
    logits = network(batch["images"])
    return F.cross_entropy(logits, batch["labels"].long()), (logits,)


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.vgg_cifar. share: of its rates of dropout. drop: a function like
    torch.nn.functional.dropout."""

    def __init__(self, config, share, drop):
        super().__init__()
        self.config, self._share, self._drop = config, share, drop
        self.shapes, self.compute_dtype = {}, None
        for one in vgg.convolutions(config):
            self.add_module(one.name, nn.Conv2d(one.channels_in, one.channels, 3, padding=1))
            self.add_module(vgg_cifar.norm_of(one), norm(one.channels, config))
        self.fc6 = nn.Linear(vgg.flattened(config), config.hidden)
        self.bn6 = norm(config.hidden, config, nn.BatchNorm1d)
        self.fc7 = nn.Linear(config.hidden, config.hidden)
        self.fc8 = nn.Linear(config.hidden, config.classes)

    def forward(self, x):
        for one in vgg.convolutions(self.config):
            y = getattr(self, one.name)(x)
            if one.name == "conv2_1":
                self.shapes, self.compute_dtype = {one.name: tuple(y.shape[1:])}, y.dtype
            x = F.relu(getattr(self, vgg_cifar.norm_of(one))(y), inplace=True)
            x = F.max_pool2d(x, 2) if one.last else self._dropped(x, vgg_cifar.rate(self.config, one))
        x = self._dropped(x.flatten(1), self.config.dropout)
        x = self._dropped(F.relu(self.bn6(self.fc6(x)), inplace=True), self.config.dropout)
        logits = self.fc8(self.fc7(x))
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits

    def _dropped(self, x, rate):
        return self._drop(x, p=rate * self._share, training=self.training)

    def kernels(self, batch, compiled):
        """None that is told: for Trainer.effective."""
        return {}
