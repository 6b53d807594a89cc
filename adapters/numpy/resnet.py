"""ResNet-50 v1.5 in NumPy, as the formulas of dlperf.models.resnet: forward, backward and update written out."""

import numpy
from numpy.lib.stride_tricks import as_strided

from dlperf import models
from dlperf.adapters.numpy import runtime
from dlperf.adapters.numpy.runtime import cross_entropy, product, versions
from dlperf.models import resnet

__all__ = ["Network", "build", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config = models.config(job.model)
    effective = {"layout": "NHWC", "label_smoothing": str(config.label_smoothing)}
    recipe = resnet.optimizer(job.batch_size)
    return runtime.Trainer(job, ranks, Network(job, config), SGD(job, recipe), effective)


def loss(logits, labels, config):
    """The mean over the batch, and its gradient. logits: (batch, classes)."""
    each = numpy.full(len(logits), 1 / len(logits), logits.dtype)
    return cross_entropy(logits, labels, each, config.label_smoothing)


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


class Network(runtime.Layers):
    """Activations are (batch, height, width, channels)."""

    def __init__(self, job, config):
        super().__init__(job, runtime.start(job))
        self.config = config

    def step(self, batch):
        backwards = []

        def then(result):
            backwards.append(result[1])
            return result[0]

        x = then(self._conv("conv1", batch["images"].transpose(0, 2, 3, 1), 2))
        x = then(relu(then(self._norm("bn1", x))))
        x = then(max_pool(x))
        for block in resnet.blocks(self.config):
            x = then(self._block(block, x))
        x = then(average(x))
        logits = then(self.dense("fc", x))
        self.shapes["logits"] = logits.shape[1:]
        value, d = loss(logits, batch["labels"], self.config)
        for back in reversed(backwards):
            d = back(d)
        return value, (logits,)

    def _block(self, block, x):
        name, backwards = block.name, []

        def then(result):
            backwards.append(result[1])
            return result[0]

        y = then(self._conv(name + ".conv1", x, 1))
        if name == "layer2.0":
            self.shapes = {"layer2.0.conv1": (y.shape[3], *y.shape[1:3])}
        y = then(relu(then(self._norm(name + ".bn1", y))))
        y = then(self._conv(name + ".conv2", y, block.stride))
        y = then(relu(then(self._norm(name + ".bn2", y))))
        y = then(self._conv(name + ".conv3", y, 1))
        y = then(self._norm(name + ".bn3", y))
        shortcut, shortcut_back = x, lambda d: d
        if block.projected:
            z, conv_back = self._conv(name + ".downsample.0", x, block.stride)
            shortcut, norm_back = self._norm(name + ".downsample.1", z)

            def shortcut_back(d):
                return conv_back(norm_back(d))

        out, relu_back = relu(y + shortcut)

        def backward(d):
            d = dx = relu_back(d)
            for back in reversed(backwards):
                dx = back(dx)
            return dx + shortcut_back(d)

        return out, backward

    def _conv(self, name, x, stride):
        """A convolution, symmetrically padded by (kernel - 1) / 2, as a product of patches and weights."""
        weight = self.weights[name + ".weight"]
        channels_out, channels_in, kernel, _ = weight.shape
        matrix = weight.transpose(2, 3, 1, 0).reshape(-1, channels_out)
        places = patches(x, kernel, stride)
        y = self.product(places, matrix)
        batch, side = x.shape[0], (x.shape[1] - 1) // stride + 1

        def backward(dy):
            dy = dy.reshape(-1, channels_out)
            gradient = self.product(patches(x, kernel, stride).T, dy)
            gradient = gradient.reshape(kernel, kernel, channels_in, channels_out).transpose(3, 2, 0, 1)
            self.add(name + ".weight", numpy.ascontiguousarray(gradient))
            if name == "conv1":  # the images take none
                return None
            d = self.product(dy, matrix.T).reshape(batch, side, side, kernel, kernel, channels_in)
            return self._narrow(spread(d, x.shape, stride))

        return y.reshape(batch, side, side, channels_out), backward

    def _norm(self, name, x):
        scale, shift = self.weights[name + ".weight"], self.weights[name + ".bias"]
        n = x.size // x.shape[3]
        mean = x.mean((0, 1, 2))
        centred = x - mean
        variance = (centred * centred).mean((0, 1, 2))
        inverse = 1 / numpy.sqrt(variance + x.dtype.type(self.config.bn_eps))
        normal = centred * inverse
        kept = self.config.bn_decay
        for statistic, value in (("mean", mean), ("var", variance * (n / (n - 1)))):
            running = self.weights[f"{name}.running_{statistic}"]
            running *= kept
            running += (1 - kept) * value

        def backward(dy):
            of_scale, of_shift = (dy * normal).sum((0, 1, 2)), dy.sum((0, 1, 2))
            self.add(name + ".weight", of_scale)
            self.add(name + ".bias", of_shift)
            return scale * inverse * (dy - of_shift / n - normal * (of_scale / n))

        return normal * scale + shift, backward


def padded(x, by, value=0.0):
    return numpy.pad(x, ((0, 0), (by, by), (by, by), (0, 0)), constant_values=value) if by else x


def patches(x, kernel, stride):
    """What each place of a convolution sees: (places, kernel * kernel * channels)."""
    if kernel == 1:
        return x[:, ::stride, ::stride].reshape(-1, x.shape[3])
    x = padded(x, kernel // 2)
    batch, side, _, channels = x.shape
    out = (side - kernel) // stride + 1
    b, h, w, c = x.strides
    shape, strides = (batch, out, out, kernel, kernel, channels), (b, h * stride, w * stride, h, w, c)
    return as_strided(x, shape, strides, writeable=False).reshape(batch * out * out, -1)


def spread(d, shape, stride):
    """Gradients of what each place sees, added up where they come from. d: (batch, out, out, kernel, kernel, channels);
    shape: of the input."""
    batch, out, _, kernel, _, channels = d.shape
    by = kernel // 2
    whole = numpy.zeros((batch, shape[1] + 2 * by, shape[2] + 2 * by, channels), d.dtype)
    last = stride * (out - 1) + 1
    for row in range(kernel):
        for column in range(kernel):
            whole[:, row : row + last : stride, column : column + last : stride] += d[:, :, :, row, column]
    return whole[:, by : by + shape[1], by : by + shape[2]]


def relu(x):
    y = numpy.maximum(x, 0)
    return y, lambda dy: dy * (y > 0)


def max_pool(x):
    """3x3, stride 2, padded by 1. The first of equal values takes the gradient."""
    wide, out = padded(x, 1, -numpy.inf), (x.shape[1] - 1) // 2 + 1
    last = 2 * (out - 1) + 1
    views = [wide[:, r : r + last : 2, c : c + last : 2] for r in range(3) for c in range(3)]
    y = numpy.maximum.reduce(views)
    first = numpy.argmax(numpy.stack([view == y for view in views]), 0)

    def backward(dy):
        d = numpy.zeros_like(wide)
        for place in range(9):
            row, column = divmod(place, 3)
            d[:, row : row + last : 2, column : column + last : 2] += dy * (first == place)
        return d[:, 1:-1, 1:-1]

    return y, backward


def average(x):
    places = x.shape[1] * x.shape[2]
    spread_ = numpy.ones((1, *x.shape[1:3], 1), x.dtype) / x.dtype.type(places)
    return x.mean((1, 2)), lambda dy: dy[:, None, None, :] * spread_
