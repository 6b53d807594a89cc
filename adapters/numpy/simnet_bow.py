"""Simnet-BOW in NumPy, as the formulas of dlperf.models.simnet_bow: forward, backward and update written out."""

import numpy

from dlperf import models
from dlperf.adapters.base import summed
from dlperf.adapters.numpy import runtime
from dlperf.adapters.numpy.optimizers import RowsSGD
from dlperf.adapters.numpy.runtime import product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    rates = simnet_bow.rates(config, simnet_bow.optimizer(job.batch_size))
    return runtime.Trainer(job, ranks, Network(job, config), RowsSGD(rates), {"tables": "rows of a batch"})


def loss(cosines, margin):
    """Its value, and the gradient of the cosines: (batch, 2)."""
    each = margin - cosines[:, 0] + cosines[:, 1]
    wrong = (each > 0).astype(cosines.dtype) / cosines.dtype.type(len(cosines))
    return numpy.maximum(each, 0).mean(), numpy.stack([-wrong, wrong], 1)


def cosine(a, b):
    """Of the rows of two arrays, with a function from its gradient to those of both."""
    lengths = [numpy.sqrt((one * one).sum(1, keepdims=True)) for one in (a, b)]
    u, v = a / lengths[0], b / lengths[1]
    value = (u * v).sum(1, keepdims=True)
    return value[:, 0], lambda d: (d[:, None] * (v - value * u) / lengths[0], d[:, None] * (u - value * v) / lengths[1])


class Network(runtime.Layers):
    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config = config

    def bag(self, words):
        """softsign of the sum of a text's rows, with a function from its gradient to that of each row."""
        there = (words >= 0)[:, :, None]
        sums = (self.weights["emb.weight"][words] * there).sum(1)
        scale = 1 / (1 + abs(sums))
        return sums * scale, lambda d: (d * scale * scale)[:, None, :] * there

    def step(self, batch):
        words = [batch[name] for name in simnet_bow.TEXTS]
        bags, of_rows = zip(*map(self.bag, words))
        layers = [self.dense(name, bag) for name, bag in zip(("q_fc", "fc", "fc"), bags)]
        query, title, other = (vector for vector, _ in layers)
        (own, of_own), (wrong, of_wrong) = cosine(query, title), cosine(query, other)
        cosines = numpy.stack([own, wrong], 1)
        self.shapes = simnet_bow.shapes(self.config)

        value, d = loss(cosines, cosines.dtype.type(self.config.margin))
        (d_query, d_title), (d_again, d_other) = of_own(d[:, 0]), of_wrong(d[:, 1])
        d_bags = [back(one) for (_, back), one in zip(layers, (d_query + d_again, d_title, d_other))]
        rows = [of(one).reshape(-1, self.config.width) for of, one in zip(of_rows, d_bags)]
        # a place without a word looks up row 0 in the frameworks, with a gradient of zero
        looked_up = numpy.concatenate([numpy.maximum(one, 0).reshape(-1) for one in words])
        self.gradients["emb.weight"] = summed(looked_up, numpy.concatenate(rows))
        return value, (cosines,)
