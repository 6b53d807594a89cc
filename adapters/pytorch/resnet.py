"""ResNet-50 v1.5 and its kin in PyTorch: channels_last, autocast, fused SGD."""

import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch import config as aot_autograd

from dlperf import models
from dlperf.adapters.pytorch import optimizers, runtime
from dlperf.adapters.pytorch.photos import Loader, pixels
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]

LAYOUTS = {"nhwc": torch.channels_last, "nchw": torch.contiguous_format}


def build(job, ranks):
    device = runtime.configure(job, ranks)
    # two readers of a gradient of 16 bits that convert it to float32 would share the conversion, which Inductor then
    # writes to memory in place of the gradient
    aot_autograd.cse = device.type != "cuda"
    config = models.config(job.model)
    layout = LAYOUTS[job.options["layout"]]
    network = Network(config, config.dropout * job.dropout)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype), memory_format=layout)
    runtime.load(network, job)
    optimizer = optimizers.sgd(job, network, resnet.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device, layout)
    nhwc = network.layer2[0].conv2.weight.is_contiguous(memory_format=torch.channels_last)
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, {"layout": "NHWC" if nhwc else "NCHW"})


def loss(network, batch):
    logits = network(batch["images"])
    mean = F.cross_entropy(logits, batch["labels"].long(), label_smoothing=network.config.label_smoothing)
    return mean, (logits,)


class Network(nn.Module):
    """Names are the canonical ones of dlperf.models.resnet."""

    def __init__(self, config, dropout):
        super().__init__()
        self.config, self.dropout = config, dropout
        self.shapes, self.compute_dtype = {}, None
        self.conv1 = conv(3, config.width, 7, stride=2)
        self.bn1 = norm(config.width, config)
        blocks = resnet.blocks(config)
        for index in range(len(config.blocks)):
            layer = [Bottleneck(block, config) for block in blocks if block.name.startswith(f"layer{index + 1}.")]
            setattr(self, f"layer{index + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(blocks[-1].channels_out, config.classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)
        logits = self.fc(F.dropout(x, p=self.dropout, training=self.training) if self.dropout else x)
        inner, self.compute_dtype = self.layer2[0].observed
        self.shapes = {"layer2.0.conv1": inner, "logits": tuple(logits.shape[1:])}
        return logits

    def kernels(self, batch, compiled):
        """What BatchNorm is computed by: for Trainer.effective. Compiled, Inductor writes it."""
        if compiled:
            return {"batch_norm": "Inductor's"}
        norm, images = self.bn1, batch["images"]
        layout = next(one for one in LAYOUTS.values() if images.is_contiguous(memory_format=one))
        x = torch.empty(
            len(images), norm.num_features, 8, 8, device=images.device, dtype=self.compute_dtype, memory_format=layout
        )
        statistics = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        chosen = str(torch._C._select_batch_norm_backend(x, *statistics, True, norm.eps)).rpartition(".")[2]
        return {"batch_norm": {"Native": "PyTorch's", "Cudnn": "cuDNN's"}.get(chosen, chosen)}


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
        self.observed = tuple(y.shape[1:]), y.dtype
        y = F.relu(self.bn1(y), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.se(self.bn3(self.conv3(y))) + shortcut, inplace=True)


class Excitation(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, block):
        super().__init__()
        self.fc1 = nn.Linear(block.channels_out, block.squeezed)
        self.fc2 = nn.Linear(block.squeezed, block.channels_out)

    def forward(self, x):
        share = torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3))))))
        return x * share[:, :, None, None]


def conv(channels_in, channels_out, kernel, stride=1, groups=1):
    return nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)


def norm(channels, config, kind=nn.BatchNorm2d):
    layer = kind(channels, eps=config.bn_eps, momentum=1 - config.bn_decay)
    layer.num_batches_tracked = None  # counts steps in a kernel of its own, for a momentum of None alone
    return layer
