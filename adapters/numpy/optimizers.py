"""The optimizers of NumPy's steps."""

import numpy

from dlperf.adapters.numpy import runtime


class SGD:
    """As dlperf.models.resnet.Optimizer says."""

    def __init__(self, job, recipe):
        self._recipe, self._decayed, self._velocity = recipe, runtime.decayed(job), {}
        self.moments = {}

    def __call__(self, weights, gradients, step):
        for name, g in gradients.items():
            if name in self._decayed:
                g = g + self._recipe.weight_decay * weights[name]
            self._velocity[name] = self._recipe.momentum * self._velocity.get(name, 0) + g
            weights[name] -= self._recipe.learning_rate * self._velocity[name]


class RowsSGD:
    """As dlperf.models.word2vec.Optimizer says; gradients are Sparse."""

    def __init__(self, recipe):
        self._recipe, self.moments = recipe, {}

    def __call__(self, weights, gradients, step):
        for name, g in gradients.items():
            weights[name][g.rows] -= self._recipe.learning_rate * g.values


class AdamW:
    """As dlperf.models.bert.Optimizer says."""

    def __init__(self, job, recipe):
        self._recipe, self._clip_norm, self._decayed = recipe, job.clip_norm, runtime.decayed(job)
        self.moments = {"mean": {}, "square": {}}

    def __call__(self, weights, gradients, step):
        r = self._recipe
        scale = 1.0 if self._clip_norm is None else min(1.0, self._clip_norm / runtime.norm(gradients))
        for name, g in gradients.items():  # in place, as far as it goes: temporary arrays take most of the time
            g *= scale
            m, v = (held.setdefault(name, numpy.zeros_like(g)) for held in self.moments.values())
            m *= r.beta1
            m += (1 - r.beta1) * g
            g *= g
            v *= r.beta2
            v += numpy.multiply(g, 1 - r.beta2, out=g)
            change = numpy.divide(v, 1 - r.beta2**step, out=g)
            numpy.sqrt(change, out=change)
            change += r.eps
            numpy.divide(m, change, out=change)
            change /= 1 - r.beta1**step
            if name in self._decayed:
                change += r.weight_decay * weights[name]
            change *= r.learning_rate
            weights[name] -= change
