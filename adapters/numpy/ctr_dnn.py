"""CTR-DNN in NumPy, as the formulas of dlperf.models.ctr_dnn: forward, backward and update written out."""

import numpy

from dlperf import models
from dlperf.adapters.base import summed
from dlperf.adapters.numpy import runtime
from dlperf.adapters.numpy.convolution import relu
from dlperf.adapters.numpy.optimizers import LazyAdam
from dlperf.adapters.numpy.runtime import mean_cross_entropy, product, versions
from dlperf.models import ctr_dnn

__all__ = ["Network", "build", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    update = LazyAdam(job, ctr_dnn.optimizer(job.batch_size))
    return runtime.Trainer(job, ranks, Network(job, models.config(job.model)), update, {"tables": "rows of a batch"})


def loss(logits, batch):
    """Its value, and the gradient of the logits: (batch, 2)."""
    return mean_cross_entropy(logits, batch["clicked"])


class Network(runtime.Layers):
    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config = config

    def step(self, batch):
        categories, numbers = batch["categories"], batch["numbers"]
        rows = self.weights["emb.weight"][categories].reshape(len(categories), -1)
        x, backs = numpy.concatenate([rows, numbers], 1), []
        for name in ctr_dnn.LAYERS:
            x, back = self.dense(name, x)
            backs.append(back)
            if name != ctr_dnn.LAYERS[-1]:
                x, back = relu(x)
                backs.append(back)
        self.shapes = ctr_dnn.shapes(self.config)

        value, d = loss(x, batch)
        for back in reversed(backs):
            d = back(d)
        self.gradients["emb.weight"] = summed(categories, d[:, : rows.shape[1]])
        return value, (x,)
