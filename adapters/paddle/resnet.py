"""ResNet-50 v1.5 and its kin in PaddlePaddle: dygraph, NCHW on a CPU, NHWC and auto_cast on tensor cores."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime
from dlperf.adapters.paddle.photos import Loader, pixels
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    layout = layout_of(job)
    network = Network(config, layout, config.dropout * job.dropout)
    runtime.load(network, job)
    optimizer = optimizers.sgd(job, network, resnet.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, layout)
    effective = {
        "layout": network.layer2[0].conv2._data_format,
        "label_smoothing": str(config.label_smoothing),
        "dropout": str(network.dropout),
        **statistics_of(job, network.bn1),
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def layout_of(job):
    """NCHW or NHWC."""
    layout = job.options["layout"].upper()
    if layout == "AUTO":  # NHWC for tensor cores; Paddle's CPU kernels are NCHW, with transposes around
        layout = "NHWC" if job.mixed else "NCHW"
    return layout


def statistics_of(job, norm):
    """Of BatchNorm: for Trainer.effective."""
    return {
        # cuDNN's kernel keeps the unbiased variance, as models/resnet.py has it; Paddle's own keep the biased one,
        # and there is no choice. It does not enter training.
        "bn_running_variance": "biased" if job.device == "cpu" else "unbiased where cuDNN's kernel runs, else biased",
        # attributes of the kernel, in float64 too
        "bn_decay": f"{norm._momentum}, as float32",
        "bn_eps": f"{norm._epsilon}, as float32",
    }


def loss(network, batch):
    logits = network(batch["images"])
    targets = smoothed(batch["labels"], network.config.classes, network.config.label_smoothing)
    return F.cross_entropy(logits.astype(targets.dtype), targets, soft_label=True), (logits,)


def smoothed(labels, classes, smoothing):
    """Targets: for each label a row of its classes."""
    dtype = paddle.get_default_dtype()
    # as tensors, because label_smooth's epsilon, and in a graph every Python float, is a float32: too little for fp64
    hit, miss = paddle.full([1], 1 - smoothing, dtype), paddle.full([1], smoothing / classes, dtype)
    return F.one_hot(labels, classes).astype(dtype) * hit + miss


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.resnet; BatchNorm's statistics are _mean and _variance here."""

    def __init__(self, config, layout, dropout):
        super().__init__()
        self.config, self.layout, self.dropout = config, layout, dropout
        self.seen = {}  # see runtime.Replica
        self.conv1 = conv(3, config.width, 7, layout, stride=2)
        self.bn1 = norm(config.width, config, layout)
        blocks = resnet.blocks(config)
        for index in range(len(config.blocks)):
            layer = [
                Bottleneck(block, config, layout) for block in blocks if block.name.startswith(f"layer{index + 1}.")
            ]
            setattr(self, f"layer{index + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(blocks[-1].channels_out, config.classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, 3, stride=2, padding=1, data_format=self.layout)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = F.adaptive_avg_pool2d(x, 1, data_format=self.layout)
        logits = self.fc(F.dropout(paddle.flatten(x, 1), self.dropout, training=self.training))
        first, self.layer2[0].first = self.layer2[0].first, None
        self.seen = {"layer2.0.conv1": first, "logits": logits.detach()}
        return logits


class Bottleneck(nn.Layer):
    def __init__(self, block, config, layout):
        super().__init__()
        self.conv1 = conv(block.channels_in, block.channels, 1, layout)
        self.bn1 = norm(block.channels, config, layout)
        self.conv2 = conv(block.channels, block.channels, 3, layout, stride=block.stride, groups=block.groups)
        self.bn2 = norm(block.channels, config, layout)
        self.conv3 = conv(block.channels, block.channels_out, 1, layout)
        self.bn3 = norm(block.channels_out, config, layout)
        self.se = Excitation(block, layout) if block.squeezed else nn.Identity()
        self.first = None  # output of conv1, for Network.seen
        self.downsample = None
        if block.projected:
            projection = conv(block.channels_in, block.channels_out, 1, layout, stride=block.stride)
            self.downsample = nn.Sequential(projection, norm(block.channels_out, config, layout))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.conv1(x)
        self.first = y.detach()
        y = F.relu(self.bn1(y))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.se(self.bn3(self.conv3(y))) + shortcut)


class Excitation(nn.Layer):
    """Squeeze-and-excitation."""

    def __init__(self, block, layout):
        super().__init__()
        self.layout = layout
        self.fc1 = nn.Linear(block.channels_out, block.squeezed)
        self.fc2 = nn.Linear(block.squeezed, block.channels_out)

    def forward(self, x):
        means = F.adaptive_avg_pool2d(x, 1, data_format=self.layout).flatten(1)
        share = F.sigmoid(self.fc2(F.relu(self.fc1(means))))
        return x * share.unsqueeze([2, 3] if self.layout == "NCHW" else [1, 2])


def conv(channels_in, channels_out, kernel, layout, stride=1, groups=1):
    more = {"groups": groups, "bias_attr": False, "data_format": layout}
    return nn.Conv2D(channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, **more)


def norm(channels, config, layout):
    return nn.BatchNorm2D(channels, momentum=config.bn_decay, epsilon=config.bn_eps, data_format=layout)
