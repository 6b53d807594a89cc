"""VGG16 in MXNet: gluon, hybridized with static memory; NCHW, turned into oneDNN's own layouts."""

from mxnet.gluon import HybridBlock, nn

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime
from dlperf.adapters.mxnet.layers import Conv, Dense
from dlperf.adapters.mxnet.photos import Loader, pixels
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import vgg

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, runtime.Precision(job), config.dropout * job.dropout)
    runtime.load(network, job, device)
    optimizer = optimizers.SGD(job, network, vgg.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks, device)
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, {"layout": "NCHW"})


def loss(F, network, batch):
    logits = network(batch["images"])
    return -F.mean(F.pick(F.log_softmax(logits), batch["labels"])), (logits,)


class Network(HybridBlock):
    """Names are the canonical ones of dlperf.models.vgg. With mixed precision the activations are 16 bits wide from the
    images to the last product."""

    def __init__(self, config, precision, dropout):
        super().__init__()
        self.precision, self._convolutions = precision, vgg.convolutions(config)
        for one in self._convolutions:
            setattr(self, one.name, Conv(precision, one.channels_in, one.channels, 3, use_bias=True))
        self.fc6 = Dense(precision, vgg.flattened(config), config.hidden)
        self.fc7 = Dense(precision, config.hidden, config.hidden)
        self.fc8 = Dense(precision, config.hidden, config.classes)
        self.dropout = nn.Dropout(dropout)

    @property
    def observed(self):
        """See runtime.Trainer."""
        return {"conv2_1": self.conv2_1, "logits": self.fc8}

    def hybrid_forward(self, F, images):
        x = self.precision.down(F, images)
        for one in self._convolutions:
            x = F.Activation(getattr(self, one.name)(x), act_type="relu")
            if one.last:
                x = F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", pooling_convention="valid")
        x = F.flatten(x)
        for dense in (self.fc6, self.fc7):
            x = self.precision.without_bfloat16(F, self.dropout, F.Activation(dense(x), act_type="relu"))
        return self.precision.up(F, self.fc8(x))
