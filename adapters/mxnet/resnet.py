"""ResNet-50 v1.5 and its kin in MXNet: gluon, hybridized with static memory; NCHW, turned into oneDNN's own layouts.

On CUDA too: MXNet 1.9.1 convolves and pools in NHWC, but hands its BatchNorm to cuDNN as NCHW of (N * H * W, C, 1, 1)
(cudnn_batch_norm-inl.h), whose first axis has a limit that a batch of 71 passes (PyTorch's Normalization.cpp: 880,801);
BatchNormWithReLU has no CUDA kernel. With float16 a step waits for its loss scale (runtime.py): multi_sgd_mom_update
can't skip an update on the device.
"""

from functools import partial

from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime
from dlperf.adapters.mxnet.layers import Conv
from dlperf.adapters.mxnet.photos import Loader, pixels
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    precision = runtime.Precision(job)
    fused = job.device == "cpu" and job.precision == "fp32" and config.groups == 1
    network = Network(config, precision, fused, config.dropout * job.dropout)
    runtime.load(network, job, device)
    optimizer = optimizers.SGD(job, network, resnet.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device)
    effective = {"layout": "NCHW", "label_smoothing": str(config.label_smoothing), **running_variance(job)}
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def running_variance(job):
    """Of BatchNorm, and its kernel: for Trainer.effective."""
    if job.device == "cpu":
        return {"bn_running_variance": "biased (MXNet has no other on the CPU)"}
    # nn/batch_norm.cu takes cuDNN's wherever it is built with it
    kernel = "cuDNN's" if runtime.built_with("CUDNN") else "MXNet's"
    return {"bn_running_variance": "unbiased (cuDNN's)", "batch_norm": kernel}


def loss(F, network, batch):
    config = network.config
    logits = network(batch["images"])
    scores = F.log_softmax(logits)
    spread = config.label_smoothing / config.classes
    right = F.pick(scores, batch["labels"])
    return -F.mean((1 - config.label_smoothing) * right + spread * F.sum(scores, axis=-1)), (logits,)


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.resnet.

    With mixed precision the activations are 16 bits wide from the images to the last block. fused: BatchNorm and ReLU
    as one operator, which only oneDNN has; with bfloat16 it is no faster and fails between layers of unlike layouts.
    Behind a grouped convolution its gradient is wrong: in the tiny SE-ResNeXt that of layer1.0.conv2 was all off.
    """

    def __init__(self, config, precision, fused, dropout):
        super().__init__()
        self.config, self.precision = config, precision
        self.conv1 = Conv(precision, 3, config.width, 7, strides=2)
        self.bn1 = norm_relu(config.width, config, fused)
        blocks = resnet.blocks(config)
        for index in range(len(config.blocks)):
            own = [block for block in blocks if block.name.startswith(f"layer{index + 1}.")]
            setattr(
                self, f"layer{index + 1}", sequence(*[Bottleneck(block, config, precision, fused) for block in own])
            )
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Dense(config.classes, in_units=blocks[-1].channels_out)

    @property
    def observed(self):
        """See runtime.Trainer."""
        return {"layer2.0.conv1": self.layer2[0].conv1, "logits": self.fc}

    def hybrid_forward(self, F, images):
        x = self.bn1(self.conv1(self.precision.down(F, images)))
        x = F.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", pooling_convention="valid")
        x = self.precision.up(F, self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        return self.fc(self.dropout(F.Pooling(x, pool_type="avg", global_pool=True)))


class Bottleneck(HybridBlock):
    def __init__(self, block, config, precision, fused):
        super().__init__()
        self.conv1 = Conv(precision, block.channels_in, block.channels, 1)
        self.bn1 = norm_relu(block.channels, config, fused)
        self.conv2 = Conv(precision, block.channels, block.channels, 3, strides=block.stride, groups=block.groups)
        self.bn2 = norm_relu(block.channels, config, fused)
        self.conv3 = Conv(precision, block.channels, block.channels_out, 1)
        self.bn3 = norm(block.channels_out, config)
        self.se = Excitation(block, precision) if block.squeezed else None
        self.downsample = None
        if block.projected:
            projection = Conv(precision, block.channels_in, block.channels_out, 1, strides=block.stride)
            self.downsample = sequence(projection, norm(block.channels_out, config))

    def hybrid_forward(self, F, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.bn3(self.conv3(self.bn2(self.conv2(self.bn1(self.conv1(x))))))
        if self.se is not None:
            y = self.se(y)
        # not F.relu, which has no oneDNN kernel: it goes back to the plain layout, and takes a quarter of the step
        return F.Activation(y + shortcut, act_type="relu")


class Excitation(HybridBlock):
    """Squeeze-and-excitation, between activations of 16 bits with mixed precision."""

    def __init__(self, block, precision):
        super().__init__()
        self.precision = precision
        self.squeeze = nn.GlobalAvgPool2D()
        self.fc1 = nn.Dense(block.squeezed, in_units=block.channels_out)
        self.fc2 = nn.Dense(block.channels_out, in_units=block.squeezed)

    def hybrid_forward(self, F, x):
        return self.precision.without_bfloat16(F, partial(self._excited, F), x)

    def _excited(self, F, x):
        means = self.precision.up(F, self.squeeze(x))
        inner = F.Activation(self.fc1(means), act_type="relu")
        share = F.Activation(self.fc2(inner), act_type="sigmoid")
        x, share = F.amp_multicast(x, share, num_outputs=2, cast_narrow=True)
        if self.precision.device == "cuda":
            return F.broadcast_mul(x, share.reshape((0, 0, 1, 1)))
        # on the CPU broadcast_mul takes up to twice as long as a product for each image and channel
        maps = F.batch_dot(share.reshape((-3, 1, 1)), x.reshape((-3, 1, -1)))
        return F.reshape_like(maps, x)


def norm(channels, config):
    return nn.BatchNorm(in_channels=channels, epsilon=config.bn_eps, momentum=config.bn_decay)


def norm_relu(channels, config, fused):
    if fused:
        return nn.BatchNormReLU(in_channels=channels, epsilon=config.bn_eps, momentum=config.bn_decay)
    return NormReLU(in_channels=channels, epsilon=config.bn_eps, momentum=config.bn_decay)


class NormReLU(nn.BatchNorm):
    def hybrid_forward(self, F, x, gamma, beta, running_mean, running_var):
        y = super().hybrid_forward(F, x, gamma, beta, running_mean, running_var)
        return F.Activation(y, act_type="relu")


def sequence(*blocks):
    result = nn.HybridSequential()
    result.add(*blocks)
    return result
