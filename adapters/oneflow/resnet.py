"""ResNet-50 v1.5 and its kin in OneFlow: nn.Graph over forward, backward and SGD."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime
from dlperf.adapters.oneflow.photos import Loader, pixels
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, config.dropout * job.dropout)
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.sgd(job, network, resnet.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device)
    effective = {
        "layout": "NCHW",
        "label_smoothing": str(config.label_smoothing),
        "dropout": str(network.dropout),
        **statistics_of(config),
    }
    return runtime.Trainer(job, device, network, loss, optimizer, feed, effective)


def statistics_of(config):
    """Of BatchNorm: for Trainer.effective. Two are attributes of the kernel, in float64 too."""
    return {
        "bn_running_variance": "unbiased",
        "bn_decay": f"{config.bn_decay}, as float32",
        "bn_eps": f"{config.bn_eps}, as float32",
    }


def loss(network, batch):
    logits = network(batch["images"])
    scores = flow._C.amp_black_identity(logits)  # the loss in float32
    smoothing = network.config.label_smoothing
    losses = F.cross_entropy(scores, batch["labels"], label_smoothing=smoothing, reduction="none")
    return losses.mean(), (logits,)  # reduction="mean" divides by a count that ranks must exchange first


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.resnet."""

    def __init__(self, config, dropout):
        super().__init__()
        self.config, self.dropout = config, dropout
        self.shapes = {}  # not bound anew in forward: a Graph calls it on a stand-in for this module
        self.conv1 = conv(3, config.width, 7, stride=2)
        self.bn1 = norm(config.width, config)
        blocks = resnet.blocks(config)
        for index in range(len(config.blocks)):
            layer = [Bottleneck(block, config) for block in blocks if block.name.startswith(f"layer{index + 1}.")]
            setattr(self, f"layer{index + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(blocks[-1].channels_out, config.classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits = self.fc(F.dropout(x.mean(dim=(2, 3)), self.dropout, self.training))
        self.shapes["layer2.0.conv1"] = self.layer2[0].observed
        self.shapes["logits"] = tuple(logits.shape[1:])
        return logits


class Bottleneck(nn.Module):
    def __init__(self, block, config):
        super().__init__()
        self.conv1 = conv(block.channels_in, block.channels, 1)
        self.bn1 = norm(block.channels, config)
        self.conv2 = conv(block.channels, block.channels, 3, stride=block.stride, groups=block.groups)
        self.bn2 = norm(block.channels, config)
        self.conv3 = conv(block.channels, block.channels_out, 1)
        self.bn3 = norm(block.channels_out, config)
        self.se = Excitation(block) if block.squeezed else nn.Identity()
        self.downsample = None
        if block.projected:
            projection = conv(block.channels_in, block.channels_out, 1, stride=block.stride)
            self.downsample = nn.Sequential(projection, norm(block.channels_out, config))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.conv1(x)
        self.observed = tuple(y.shape[1:])
        y = F.relu(self.bn1(y))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.se(self.bn3(self.conv3(y))) + shortcut)


class Excitation(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, block):
        super().__init__()
        self.fc1 = nn.Linear(block.channels_out, block.squeezed)
        self.fc2 = nn.Linear(block.squeezed, block.channels_out)

    def forward(self, x):
        share = flow.sigmoid(self.fc2(F.relu(self.fc1(x.mean(dim=(2, 3))))))
        return x * share.unsqueeze(2).unsqueeze(3)


def conv(channels_in, channels_out, kernel, stride=1, groups=1):
    more = {"groups": groups, "bias": False}
    return nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, **more)


def norm(channels, config, kind=nn.BatchNorm2d):
    return kind(channels, eps=config.bn_eps, momentum=1 - config.bn_decay)
