"""ResNet-50 of gluon's model zoo with the strides of v1.5, trained as GluonCV's train_imagenet.py does: hybridized,
gluon.Trainer."""

import mxnet as mx
from mxnet import autograd, gluon, nd
from mxnet.contrib import amp
from mxnet.gluon.model_zoo import vision

from dlperf.models import resnet
from dlperf.models.batches import Batches

__all__ = ["build", "versions"]


def versions():
    return {"mxnet": mx.__version__}


def build(job, ranks):
    if job.precision == "amp_bf16":
        amp.init(target_dtype="bfloat16")
    note = "plain is the zoo's v1, its strides moved to the 3x3, as in v1.5"
    return Trainer(job, ranks, network(), resnet.optimizer(job.batch_size), prepare, note)


def network():
    """The zoo has v1 alone, whose 1x1 convolutions have the strides: 6 % fewer FLOPs."""
    made = vision.resnet50_v1(classes=1000)
    for stage in made.features:
        if isinstance(stage, gluon.nn.HybridSequential):
            first, _, _, second, *_ = stage[0].body
            first._kwargs["stride"], second._kwargs["stride"] = second._kwargs["stride"], first._kwargs["stride"]
    return made


class Trainer:
    """prepare: a batch of arrays -> images and labels, these one-hot."""

    input_seconds = None

    def __init__(self, job, ranks, network, recipe, prepare, note=""):
        self._size = job.batch_size
        self._batches = [prepare(batch) for batch in Batches(job, ranks).pool()]
        self._network = network
        self._network.initialize(mx.init.MSRAPrelu())
        self._network.hybridize(static_alloc=True, static_shape=True)
        self._loss = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)
        settings = {"learning_rate": recipe.learning_rate, "momentum": recipe.momentum, "wd": recipe.weight_decay}
        self._trainer = gluon.Trainer(self._network.collect_params(), "sgd", settings)
        self._network(self._batches[0][0])  # the shapes of the weights are known from here on
        weights = [weight for weight in self._network.collect_params().values() if weight.grad_req != "null"]
        self._steps = 0
        self.shapes = {}
        self.parameter_count = sum(weight.data().size for weight in weights)
        self.effective = {
            "precision": job.precision,
            "compute_dtype": "bfloat16" if job.precision == "amp_bf16" else "float32",
            "threads": job.threads,
            "data": "synthetic",
            "note": note,
        }

    def step(self):
        images, labels = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        with autograd.record():
            loss = self._loss(self._network(images), labels)
        loss.backward()
        self._trainer.step(self._size)
        return loss

    def wait(self):
        nd.waitall()

    def read(self, loss):
        return loss.mean().asscalar().item()

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        nd.waitall()


def prepare(batch):
    labels = nd.one_hot(nd.array(batch["labels"]), 1000, on_value=0.9001, off_value=0.0001)  # smoothed by 0.1
    return nd.array(batch["images"]), labels
