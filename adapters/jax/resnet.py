"""ResNet-50 v1.5 and its kin in JAX: NHWC, pure functions over dicts of arrays, one jitted step with donated state."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from dlperf import models
from dlperf.adapters.jax import derivatives, optimizers, runtime
from dlperf.adapters.jax.dropout import Dropout
from dlperf.adapters.jax.linear import dense, linear, summed, wide
from dlperf.adapters.jax.photos import Loader, pixels
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "copy", "loss", "pixels", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config, job)
    optimizer = optimizers.SGD(job, resnet.optimizer(job.batch_size * ranks.world_size))
    feed = (runtime.Feed if job.input == "synthetic" else Loader)(job, ranks)
    effective = {
        "layout": "NHWC",
        "label_smoothing": str(config.label_smoothing),
        "bn_running_variance": "unbiased",
        "bn_moments": "one pass" if network.one_pass else "two passes",
    }
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


# named_scope: for dlperf.adapters.jax.profiling
def loss(network, weights, statistics, batch, key):
    logits, statistics = network(weights, statistics, batch["images"], key)
    with jax.named_scope("loss"):
        logs = jax.nn.log_softmax(wide(logits))
        smoothing = network.config.label_smoothing
        right = jnp.take_along_axis(logs, batch["labels"][:, None], axis=1)
        return -((1 - smoothing) * right.mean() + smoothing * logs.mean()), (logits,), statistics


class Network:
    """weights and statistics: dicts of arrays under the canonical names of dlperf.models.resnet."""

    def __init__(self, config, job):
        self.config, self.dtype, self.device = config, runtime.DTYPES[job.precision], job.device
        self.dropout = config.dropout * job.dropout
        #: two read x twice, and a GPU waits for memory; in one, float32 loses digits that full precision has
        self.one_pass = job.device == "cuda" and (job.mixed or job.precision == "tf32")
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, weights, statistics, images, key):
        """Logits, and the new running statistics."""
        norm = Norm(self.config, weights, statistics, self.device, self.one_pass)
        x = self._conv(images.astype(self.dtype), weights["conv1.weight"], stride=2)
        x = norm(x, "bn1", relu=True)
        with jax.named_scope("pooling"):
            x = (max_pool_by_shifts if self.device == "cuda" else max_pool)(x)
        for block in resnet.blocks(self.config):
            x = self._bottleneck(x, block, weights, norm)
        with jax.named_scope("pooling"):
            x = wide(x).mean((1, 2)).astype(self.dtype)
        logits = dense(Dropout(self.dropout, key, self.device)(x), weights, "fc", self.device)
        self.shapes["logits"] = logits.shape[1:]
        return logits, norm.updated

    def _bottleneck(self, x, block, weights, norm):
        name = block.name
        shortcut = x
        if block.projected:
            shortcut = self._conv(x, weights[name + ".downsample.0.weight"], block.stride)
            shortcut = norm(shortcut, name + ".downsample.1")
        y = self._conv(x, weights[name + ".conv1.weight"])
        if name == "layer2.0":
            _, height, width, channels = y.shape
            self.shapes["layer2.0.conv1"], self.compute_dtype = (channels, height, width), y.dtype
        y = norm(y, name + ".bn1", relu=True)
        y = self._conv(y, weights[name + ".conv2.weight"], block.stride, block.groups)
        y = self._conv(norm(y, name + ".bn2", relu=True), weights[name + ".conv3.weight"])
        y = norm(y, name + ".bn3")
        if block.squeezed:
            y = y * self._share(y, weights, name + ".se.")
        return jax.nn.relu(y + shortcut)

    def _share(self, x, weights, name):
        """Of squeeze-and-excitation."""
        with jax.named_scope("pooling"):
            means = wide(x).mean((1, 2)).astype(self.dtype)
        inner = jax.nn.relu(dense(means, weights, name + "fc1", self.device))
        return jax.nn.sigmoid(dense(inner, weights, name + "fc2", self.device))[:, None, None]

    def _conv(self, x, weight, stride=1, groups=1):
        return conv(x, weight, stride, self.device, groups)


@jax.named_scope("convolution")
def conv(x, weight, stride, device, groups=1):
    """weight: (height, width, in, out), or (out, in) for 1x1, which is faster as a matrix product on a CPU."""
    if weight.ndim == 2 and stride > 1 and device == "cuda":
        weight = weight.T[None, None]  # a convolution: a slice would be a copy of x
    if weight.ndim == 2:
        x = x[:, ::stride, ::stride]
        return linear(x.reshape(-1, x.shape[-1]), weight, device).reshape(*x.shape[:-1], -1)
    weight = weight.astype(x.dtype)
    if groups > 1 and device == "cpu":
        parts = max(1, min(groups, x.shape[-1] // GROUPED))
        whole = [block_diagonal(one, groups // parts) for one in jnp.split(weight, parts, axis=-1)]
        parted = zip(jnp.split(x, parts, axis=-1), whole)
        return jnp.concatenate([convolved(one, its, stride) for one, its in parted], axis=-1)
    if device == "cpu" and stride == groups == 1:
        if min(x.shape[1:3]) < weight.shape[0]:
            return unfolded(x, weight)
        if max(weight.shape[2:]) >= MANY and min(x.shape[1:3]) >= LARGE:
            return convolved_by_taps(x, weight)
    return convolved(x, weight, stride, groups)


def convolved(x, weight, stride, groups=1):
    padding = (weight.shape[0] // 2, weight.shape[0] // 2)
    return lax.conv_general_dilated(
        x,
        weight,
        (stride, stride),
        (padding, padding),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


#: channels and height from which a weight's gradient is products on a CPU, one for each of its places. XLA's own
#: convolution for it took 2.9 times as long at 56 x 56 with 256 channels, 1.6 times at 28 x 28 with 128, and as long
#: with 64 channels or at 14 x 14 (Intel, AMX, 2 threads)
MANY, LARGE = 128, 16


@jax.custom_vjp
def convolved_by_taps(x, weight):
    return convolved(x, weight, 1)


def _backward_by_taps(kept, gradient):
    x, weight = kept
    with jax.named_scope("convolution"):
        (of_x,) = jax.vjp(lambda x: convolved(x, weight, 1), x)[1](gradient)
        rows = gradient.reshape(-1, gradient.shape[-1])
        products = [summed(one.reshape(-1, one.shape[-1]), rows, -2, -2, wide(rows).dtype) for one in taps(x, weight)]
        return of_x, jnp.stack(products).reshape(weight.shape).astype(weight.dtype)


convolved_by_taps.defvjp(lambda x, weight: (convolved(x, weight, 1), (x, weight)), _backward_by_taps)


def taps(x, weight):
    """What each place of a kernel meets of x, padded."""
    (_, height, width, _), (rows, columns, _, _) = x.shape, weight.shape
    padded = jnp.pad(x, ((0, 0), (rows // 2, rows // 2), (columns // 2, columns // 2), (0, 0)))
    return [padded[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)]


def unfolded(x, weight):
    """A convolution as one product. Where the kernel is larger than x XLA has none for a CPU but plain loops: of 512
    channels at 2 x 2 they took 533 ms, and the gradient of x 501 ms, where a product takes 7 ms."""
    inputs = math.prod(weight.shape[:3])
    rows = jnp.concatenate(taps(x, weight), axis=-1).reshape(-1, inputs)
    return linear(rows, weight.reshape(inputs, -1).T, "cpu").reshape(*x.shape[:-1], -1)


#: channels of the convolutions that one of groups is made of on a CPU. XLA has no kernel for the gradients of groups
#: there: of 128 channels in 32 groups, at 56 x 56, they took 8 s, and 0.06 s as four convolutions of 32 channels, seven
#: of eight of whose weights are zeros. With 16 or 64 channels it is the same or up to twice as long
GROUPED = 32


def block_diagonal(weight, groups):
    """The weight (height, width, in, out) of a convolution in groups as that of one without: zeros from one to the
    other."""
    height, width, inputs, outputs = weight.shape
    each = weight.reshape(height, width, inputs, groups, outputs // groups)
    whole = jnp.einsum("hwigo,gk->hwkigo", each, jnp.eye(groups, dtype=weight.dtype))
    return whole.reshape(height, width, groups * inputs, outputs)


def max_pool(x):
    padding = ((0, 0), (1, 1), (1, 1), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)


@jax.custom_vjp
def max_pool_by_shifts(x):
    """The same. Of its gradient XLA makes one kernel; of JAX's own, on a GPU, a scatter with atomic additions. Not for
    a CPU, where it made a step 1.08 times as fast, and the gradient of bn1.bias 80 % off, behind a barrier too: most
    likely x is computed again, rounded otherwise, to look for the greatest, and some windows then have none."""
    return max_pool(x)


def _max_pool_gradient(saved, gradient):
    """Of each window, the first value that is its greatest takes the gradient, as in JAX's."""
    x, greatest = saved
    rows, columns = greatest.shape[1:3]
    edges = ((0, 0, 0), (1, 2 * rows - x.shape[1], 0), (1, 2 * columns - x.shape[2], 0), (0, 0, 0))
    padded = lax.pad(x, jnp.array(-jnp.inf, x.dtype), edges)
    shifts = [(row, column) for row in range(3) for column in range(3)]
    first, result = jnp.zeros(greatest.shape, jnp.int8), jnp.zeros_like(x)
    for row, column in reversed(shifts):
        values = padded[:, row : row + 2 * rows - 1 : 2, column : column + 2 * columns - 1 : 2]
        first = jnp.where(values == greatest, 3 * row + column, first)
    for row, column in shifts:
        back = ((0, 0, 0), _back(row, x.shape[1], rows), _back(column, x.shape[2], columns), (0, 0, 0))
        hit = jnp.where(first == 3 * row + column, gradient, 0)
        result += lax.pad(hit, jnp.zeros((), gradient.dtype), back)
    return (result,)


def _back(shift, size, windows):
    """The padding that puts one value of each window back to where it was: before, after, between."""
    return shift - 1, size - (2 * windows - 1) - (shift - 1), 1


def _max_pool_forward(x):
    greatest = max_pool(x)
    return greatest, (x, greatest)


max_pool_by_shifts.defvjp(_max_pool_forward, _max_pool_gradient)


class Norm:
    """BatchNorm by name; collects the new running statistics in `updated`."""

    def __init__(self, config, weights, statistics, device, one_pass):
        self._config, self._weights, self._statistics = config, weights, statistics
        self._device, self._one_pass = device, one_pass
        self.updated = {}

    @jax.named_scope("normalisation")
    def __call__(self, x, name, relu=False):
        weight, bias = self._weights[name + ".weight"], self._weights[name + ".bias"]
        if self._device == "cuda":
            flat = x.reshape(-1, x.shape[-1])
            result, *moments = derivatives.batch_norm(flat, weight, bias, self._config.bn_eps, self._one_pass, relu)
            self._count(x, name, *moments)
            return result.reshape(x.shape)
        values = wide(x)
        axes = tuple(range(x.ndim - 1))
        mean = values.mean(axes)
        variance = jnp.square(values - mean).mean(axes)
        self._count(x, name, mean, variance)
        scale = weight * lax.rsqrt(variance + self._config.bn_eps)
        result = ((values - mean) * scale + bias).astype(x.dtype)
        return jax.nn.relu(result) if relu else result

    def _count(self, x, name, mean, variance):
        count = x.size // x.shape[-1]
        self._keep(name + ".running_mean", mean)
        self._keep(name + ".running_var", variance * (count / (count - 1)))

    def _keep(self, name, value):
        decay = self._config.bn_decay
        self.updated[name] = decay * self._statistics[name] + (1 - decay) * value
