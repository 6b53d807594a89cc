"""VGG16 of gluon's model zoo, trained as GluonCV's train_imagenet.py does: hybridized, gluon.Trainer."""

from mxnet import nd
from mxnet.contrib import amp
from mxnet.gluon.model_zoo import vision

from dlperf.adapters.mxnet_plain.resnet import Trainer, versions
from dlperf.models import vgg

__all__ = ["build", "versions"]


def build(job, ranks):
    if job.precision == "amp_bf16":
        amp.init(target_dtype="bfloat16")
    return Trainer(job, ranks, vision.vgg16(classes=1000), vgg.optimizer(job.batch_size), prepare)


def prepare(batch):
    return nd.array(batch["images"]), nd.one_hot(nd.array(batch["labels"]), 1000)
