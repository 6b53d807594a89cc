"""Word2Vec in NumPy, as the formulas of dlperf.models.word2vec: forward, backward and update written out."""

import numpy

from dlperf import models
from dlperf.adapters.base import summed
from dlperf.adapters.numpy import runtime
from dlperf.adapters.numpy.optimizers import RowsSGD
from dlperf.adapters.numpy.runtime import product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    rates = word2vec.rates(config, word2vec.optimizer(job.batch_size))
    return runtime.Trainer(job, ranks, Network(job, config), RowsSGD(rates), {"tables": "rows of a batch"})


def loss(logits, batch):
    """Its value, and the gradient of the logits: (batch, 1 + negatives)."""
    sign = numpy.where(numpy.arange(logits.shape[1]) == 0, -1, 1).astype(logits.dtype)
    value = numpy.logaddexp(0, sign * logits).sum(1).mean()
    return value, sign / (1 + numpy.exp(-sign * logits)) / len(logits)


class Network(runtime.Layers):
    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config = config

    def step(self, batch):
        words, chosen = batch["words"], numpy.concatenate([batch["contexts"][:, None], batch["negatives"]], 1)
        h, w = self.weights["emb.weight"][words], self.weights["emb_w.weight"][chosen]
        logits = self.product(w, h[:, :, None])[:, :, 0] + self.weights["emb_b.weight"][chosen][:, :, 0]
        self.shapes = word2vec.shapes(self.config)

        value, d = loss(logits, batch)
        self.gradients = {
            "emb.weight": summed(words, self.product(d[:, None, :], w)),
            "emb_w.weight": summed(chosen, self.product(d[:, :, None], h[:, None, :])),
            "emb_b.weight": summed(chosen, d),
        }
        return value, (logits,)
