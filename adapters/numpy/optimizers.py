"""The optimizers of NumPy's steps."""

import numpy

from dlperf.adapters import base
from dlperf.adapters.api import Sparse
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
    """w = w - rate * g. rates: of each tensor. Gradients may be Sparse."""

    def __init__(self, rates):
        self._rates, self.moments = rates, {}

    def __call__(self, weights, gradients, step):
        for name, g in gradients.items():
            rows, values = of_rows(g)
            weights[name][rows] -= weights[name].dtype.type(self._rates[name]) * values


class LazyAdam:
    """As dlperf.models.ctr_dnn.Optimizer says. Gradients may be Sparse."""

    def __init__(self, job, recipe):
        self._recipe = recipe
        tensors = [(one.name, one.shape) for one in base.parameters(job)]
        self.moments = {
            moment: {name: numpy.zeros(shape, job.weights_dtype) for name, shape in tensors}
            for moment in ("mean", "square")
        }

    def __call__(self, weights, gradients, step):
        r = self._recipe
        for name, gradient in gradients.items():
            rows, g = of_rows(gradient)
            means, squares = (held[name] for held in self.moments.values())
            m = means[rows] = r.beta1 * means[rows] + (1 - r.beta1) * g
            v = squares[rows] = r.beta2 * squares[rows] + (1 - r.beta2) * g * g
            change = m / (1 - r.beta1**step) / (numpy.sqrt(v / (1 - r.beta2**step)) + r.eps)
            weights[name][rows] -= r.learning_rate * change


def of_rows(gradient):
    """The rows that a gradient has, and its values of these."""
    return (gradient.rows, gradient.values) if isinstance(gradient, Sparse) else (slice(None), gradient)


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
