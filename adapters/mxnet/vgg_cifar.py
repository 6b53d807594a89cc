"""VGG16 for CIFAR-10 in MXNet: gluon, hybridized with static memory; NCHW, turned into oneDNN's own layouts."""

from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime, tables
from dlperf.adapters.mxnet.layers import Conv, Dense
from dlperf.adapters.mxnet.photos import Loader, pixels
from dlperf.adapters.mxnet.resnet import norm, norm_relu, running_variance
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import vgg, vgg_cifar

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "serve", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    fused = job.device == "cpu" and job.precision == "fp32"
    network = Network(models.config(job.model), runtime.Precision(job), fused, job.dropout)
    runtime.load(network, job, device)
    recipe = vgg_cifar.optimizer(job.batch_size * ranks.world_size)
    if job.servers:
        pairs = list(runtime.pairs(network, job))
        adam = optimizers.LazyAdam(recipe, sum(one.trained for one, _ in pairs))
        optimizer = tables.OnServers(job, ranks, pairs, adam)
    else:
        optimizer = optimizers.AdamW(job, network, recipe)
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device)
    effective = {"layout": "NCHW", **running_variance(job)}
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def serve(job, ranks):
    return tables.serve(job, ranks)


def loss(F, network, batch):
    logits = network(batch["images"])
    return -F.mean(F.pick(F.log_softmax(logits), batch["labels"])), (logits,)


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.vgg_cifar. With mixed precision the activations are 16 bits wide
    from the images to the last product. fused: as in `resnet.Network`. share: of the rates of dropout."""

    def __init__(self, config, precision, fused, share):
        super().__init__()
        self.precision, self._convolutions = precision, vgg.convolutions(config)
        for one in self._convolutions:
            setattr(self, one.name, Conv(precision, one.channels_in, one.channels, 3, use_bias=True))
            setattr(self, vgg_cifar.norm_of(one), norm_relu(one.channels, config, fused))
            setattr(self, one.name + "_dropout", nn.Dropout(vgg_cifar.rate(config, one) * share))
        self.fc6 = Dense(precision, vgg.flattened(config), config.hidden)
        self.bn6 = norm(config.hidden, config)
        self.fc7 = Dense(precision, config.hidden, config.hidden)
        self.fc8 = Dense(precision, config.hidden, config.classes)
        self.dropout = nn.Dropout(config.dropout * share)

    @property
    def observed(self):
        """See runtime.Trainer."""
        return {"conv2_1": self.conv2_1, "logits": self.fc8}

    def hybrid_forward(self, F, images):
        x = self.precision.down(F, images)
        for one in self._convolutions:
            x = getattr(self, vgg_cifar.norm_of(one))(getattr(self, one.name)(x))
            x = self.precision.without_bfloat16(F, getattr(self, one.name + "_dropout"), x)
            if one.last:
                x = F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", pooling_convention="valid")
        x = self.bn6(self.fc6(self.precision.without_bfloat16(F, self.dropout, F.flatten(x))))
        x = self.precision.without_bfloat16(F, self.dropout, F.Activation(x, act_type="relu"))
        return self.precision.up(F, self.fc8(self.fc7(x)))
