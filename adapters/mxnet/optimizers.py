"""SGD and AdamW of MXNet's fused kernels, or written out in float64, with clipping; and those of a KVStore."""

import collections

import mxnet as mx
import numpy as np
from mxnet import nd
from mxnet.ndarray import sparse

from dlperf.adapters import compression
from dlperf.adapters.mxnet.runtime import pairs


class Stored(mx.optimizer.Optimizer):
    """For a KVStore, which may send it to its servers. Gradients may have some rows of a table alone.

    kernels: what updates, in words, by type. moments: see LazyAdam. counts: key of a tensor that has for each server
    how many updates it has applied; pushed there is how many that were when the worker pulled, of several workers in
    step the sum. pushes, stale: on a server, how many pushes it has applied, and how many updates each was behind ->
    how often.
    """

    def __init__(self, count, moments=(), **settings):
        super().__init__(**settings)
        self.moments = {moment: (1 + number) * count for number, moment in enumerate(moments)}
        self.counts = (1 + len(moments)) * count
        self.pushes, self.stale = 0, collections.Counter()

    def update(self, index, weight, grad, state):
        if index != self.counts:
            self.change(index, weight, grad)
            return
        workers = round(1 / self.rescale_grad)
        self.stale[(self.pushes - int(grad.asscalar())) // workers] += workers
        self.pushes += workers
        weight += 1
        SERVING[:] = [self]


#: on a server, its optimizer
SERVING = []


class RowsSGD(Stored):
    """w = w - rate * g. rates: of each tensor, by name, in the order of the KVStore's keys."""

    kernels = dict.fromkeys(("float32", "float64"), "sgd_update (lazy)")

    def __init__(self, rates):
        super().__init__(len(rates), learning_rate=1.0, param_idx2name=dict(enumerate(rates)))
        self.set_lr_mult(rates)

    def change(self, index, weight, grad):
        rate = self._get_lr(index)
        if weight.dtype == np.float64:  # the kernel holds rates as float32
            grad, rate = grad * rate, 1.0
        nd.sgd_update(weight, grad, out=weight, lr=rate, rescale_grad=self.rescale_grad, lazy_update=True)


class LazyAdam(Stored):
    """As dlperf.models.ctr_dnn.Optimizer says. count: of the tensors that it updates.

    moments: "mean" and "square", which are tensors of the KVStore, too: nobody can read what an optimizer on a server
    keeps by itself. Of the tensor with key k they have keys moments["mean"] + k and moments["square"] + k, and are kept
    from the first push on, which changes nothing.

    MXNet's own Adam adds epsilon to sqrt(v), where v has no correction, see AdamW. Steps are counted by key: with async
    a server is not told of a push that has none of its rows. By Zipf's law that takes very many servers.
    """

    def __init__(self, recipe, count):
        super().__init__(count, ("mean", "square"), learning_rate=recipe.learning_rate)
        self._recipe, self._count, self._kept = recipe, count, {}
        self.kernels = {"float32": "adam_update (lazy)", "float64": "plain arithmetic (lazy)"}

    def change(self, index, weight, grad):
        if index >= self._count:
            self._kept[index] = weight
            return
        self._update_count(index)
        steps, recipe = self._index_update_count[index], self._recipe
        c1, c2 = 1 - recipe.beta1**steps, 1 - recipe.beta2**steps
        mean, square = (self._kept[first + index] for first in self.moments.values())
        if weight.dtype == np.float64:
            self._exactly(weight, grad, mean, square, c1, c2)
            return
        nd.adam_update(
            weight,
            grad,
            mean,
            square,
            out=weight,
            lr=self.lr * c2**0.5 / c1,
            beta1=recipe.beta1,
            beta2=recipe.beta2,
            epsilon=recipe.eps * c2**0.5,
            rescale_grad=self.rescale_grad,
            lazy_update=True,
        )

    def _exactly(self, weight, grad, mean, square, c1, c2):
        """For float64, in one process: the kernel holds its constants as float32."""
        recipe, rows = self._recipe, grad.indices if grad.stype == "row_sparse" else None
        g = grad if rows is None else grad.data
        m, v = (one if rows is None else sparse.retain(one, rows).data for one in (mean, square))
        less_m, less_v = (1 - recipe.beta1) * (m - g), (1 - recipe.beta2) * (v - g * g)
        change = recipe.learning_rate * ((m - less_m) / c1 / (nd.sqrt((v - less_v) / c2) + recipe.eps))
        for array, less in ((mean, less_m), (square, less_v), (weight, change)):
            if rows is not None:
                less = sparse.row_sparse_array((less, rows), shape=array.shape)
            nd.sgd_update(array, less, out=array, lr=1.0, lazy_update=True)


class Optimizer:
    """Weights, gradients and states in groups, each updated by one fused kernel; in float64 by plain arithmetic.

    The fused kernels hold learning rates and the like as float32. On a GPU one takes as many tensors as it may; on the
    CPU, where it walks through all of them in step, one tensor at a time is two to four times faster.

    step(grad_scale): that many times too large are the gradients, by the loss scale and as sums over the ranks.
    """

    def __init__(self, job, network, recipe, states, group):
        self.recipe, self.exact, self.steps = recipe, job.precision == "fp64", 0
        trained = [(p.data(), p.grad(), parameter.decayed) for parameter, p in pairs(network, job) if parameter.trained]
        if compression.asked(job) == "dgc":  # which updates those that it compresses
            trained = [one for one in trained if not compression.deep(one[0])]
        if self.exact:  # by pieces: Linux maps large intermediate results again each time, half the time of a step
            trained = [(w, g, decayed) for *arrays, decayed in trained for w, g in zip(*map(pieces, arrays))]
        self.gradients = [gradient for _, gradient, _ in trained]
        self.groups = []
        size = group if job.device == "cuda" and not self.exact else 1
        for start in range(0, len(trained), size):
            weights, gradients, decayed = zip(*trained[start : start + size])
            zeros = [[nd.zeros_like(weight) for weight in weights] for _ in range(states)]
            decays = [recipe.weight_decay if one else 0.0 for one in decayed]
            self.groups.append((list(weights), list(gradients), zeros, decays))

    def moments(self):
        """As dlperf.adapters.api.Trainer, but lists in the order of dlperf.models."""
        return {}

    @property
    def kernel(self):
        """What updates the weights, in words."""
        return "plain arithmetic" if self.exact else self.name


class SGD(Optimizer):
    """The kernel keeps learning_rate * v: the same as models.resnet's formula while the learning rate is constant."""

    name = "multi_sgd_mom_update"

    def __init__(self, job, network, recipe):
        super().__init__(job, network, recipe, states=1, group=60)

    def step(self, grad_scale):
        recipe = self.recipe
        for weights, gradients, (velocities,), decays in self.groups:
            if self.exact:
                (w,), (g,), (v,), (decay,) = weights, gradients, velocities, decays
                v[:] = recipe.momentum * v + ((g if grad_scale == 1 else g / grad_scale) + decay * w)
                w -= recipe.learning_rate * v
                continue
            nd.multi_sgd_mom_update(
                *[one for member in zip(weights, gradients, velocities) for one in member],
                out=weights,
                num_weights=len(weights),
                lrs=[recipe.learning_rate] * len(weights),
                wds=decays,
                momentum=recipe.momentum,
                rescale_grad=1 / grad_scale,
            )


class AdamW(Optimizer):
    """The kernel has no bias correction, so the learning rate and eps carry it:

    m / c1 / (sqrt(v / c2) + eps) = sqrt(c2) / c1 * m / (sqrt(v) + sqrt(c2) * eps), where c = 1 - beta^t.
    """

    name = "multi_adamw_update"

    def __init__(self, job, network, recipe):
        super().__init__(job, network, recipe, states=2, group=50)
        self.clip_norm = job.clip_norm
        self.one = nd.ones(1, ctx=self.gradients[0].context, dtype=job.weights_dtype)
        # multi_sum_sq has float32 sums; on the CPU it adds one by one, 5 % off for the word embedding. There BLAS's
        # dot, over views of at most 262144 values, is exact to 1e-7, and four times faster
        fused = job.device == "cuda" and not self.exact
        self.pieces = None if fused else [piece for gradient in self.gradients for piece in pieces(gradient)]

    def moments(self):
        means, squares = zip(*(zeros for _, _, zeros, _ in self.groups))
        return {
            "mean": [one for group in means for one in group],
            "square": [one for group in squares for one in group],
        }

    def step(self, grad_scale):
        self.steps += 1
        recipe, scale = self.recipe, self._scale(grad_scale)
        c1, c2 = 1 - recipe.beta1**self.steps, 1 - recipe.beta2**self.steps
        rate = recipe.learning_rate
        for weights, gradients, (means, squares), decays in self.groups:
            if self.exact:
                (w,), (g,), (m,), (v,), (decay,) = weights, gradients, means, squares, decays
                g = nd.broadcast_mul(g, scale)
                m *= recipe.beta1
                m += (1 - recipe.beta1) * g
                v *= recipe.beta2
                v += (1 - recipe.beta2) * (g * g)
                w -= rate * (m / c1 / (nd.sqrt(v / c2) + recipe.eps) + decay * w)
                continue
            count = len(weights)
            nd.contrib.multi_adamw_update(
                weights,
                gradients,
                means,
                squares,
                scale,
                out=weights,
                size=count,
                lrs=[rate * c2**0.5 / c1] * count,
                etas=[1.0] * count,
                wds=[rate * decay for decay in decays],
                beta1=recipe.beta1,
                beta2=recipe.beta2,
                epsilon=recipe.eps * c2**0.5,
            )

    def _scale(self, grad_scale):
        """What gradients are multiplied by, on the device: grad_scale taken out, the global norm clipped."""
        if self.clip_norm is None:
            return self.one / grad_scale
        if self.pieces is None:
            squares = nd.multi_sum_sq(*self.gradients, num_arrays=len(self.gradients))
        else:
            squares = nd.concat(*[nd.dot(piece, piece) for piece in self.pieces], dim=0)
        return nd.minimum(self.clip_norm / nd.sqrt(nd.sum(squares)), 1 / grad_scale)


def pieces(array, size=2**18):
    """Flat views of an array."""
    flat = array.reshape(-1)
    return [flat[start : start + size] for start in range(0, flat.size, size)]
