"""ResNet-50 v1.5 in MXNet: gluon, hybridized with static memory; NCHW, from which oneDNN makes its own blocked layouts."""

from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import runtime
from dlperf.adapters.mxnet.runtime import versions
from dlperf.models import resnet

__all__ = ["Network", "build", "loss", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config)
    parameters = runtime.load(network, job, device)
    recipe = resnet.optimizer(job.batch_size * ranks.world_size)
    optimizer = runtime.SGD(job, device, parameters, recipe)
    feed = runtime.Feed(job, ranks, device)
    observed = {"layer2.0.conv1": network.layer2[0].conv1, "logits": network.fc}
    effective = {
        "layout": "NCHW",
        "label_smoothing": str(config.label_smoothing),
        "bn_running_variance": "biased",
    }
    return runtime.Trainer(job, device, network, parameters, optimizer, feed, observed, effective)


def loss(F, logits, labels, config):
    scores = F.log_softmax(logits)
    spread = config.label_smoothing / config.classes
    return -F.mean((1 - config.label_smoothing) * F.pick(scores, labels) + spread * F.sum(scores, axis=-1))


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.resnet. Its output is the loss: one graph, one call."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.conv1 = conv(3, config.width, 7, strides=2)
        self.bn1 = norm(config.width, config)
        blocks = resnet.blocks(config)
        for index in range(len(config.blocks)):
            layer = nn.HybridSequential()
            layer.add(*(Bottleneck(block, config) for block in blocks if block.name.startswith(f"layer{index + 1}.")))
            setattr(self, f"layer{index + 1}", layer)
        self.fc = nn.Dense(config.classes, in_units=blocks[-1].channels_out)

    def hybrid_forward(self, F, images, labels):
        x = F.relu(self.bn1(self.conv1(images)))
        x = F.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", pooling_convention="valid")
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits = self.fc(F.Pooling(x, pool_type="avg", global_pool=True))
        return loss(F, logits, labels, self.config)


class Bottleneck(HybridBlock):
    def __init__(self, block, config):
        super().__init__()
        self.conv1 = conv(block.channels_in, block.channels, 1)
        self.bn1 = norm(block.channels, config)
        self.conv2 = conv(block.channels, block.channels, 3, strides=block.stride)
        self.bn2 = norm(block.channels, config)
        self.conv3 = conv(block.channels, block.channels_out, 1)
        self.bn3 = norm(block.channels_out, config)
        self.downsample = None
        if block.projected:
            self.downsample = nn.HybridSequential()
            self.downsample.add(
                conv(block.channels_in, block.channels_out, 1, strides=block.stride),
                norm(block.channels_out, config),
            )

    def hybrid_forward(self, F, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + shortcut)


def conv(channels_in, channels_out, kernel, strides=1):
    return nn.Conv2D(channels_out, kernel, strides, kernel // 2, in_channels=channels_in, use_bias=False)


def norm(channels, config):
    return nn.BatchNorm(in_channels=channels, epsilon=config.bn_eps, momentum=config.bn_decay)
