"""The layers of networks of images: activations are (batch, height, width, channels)."""

import numpy
from numpy.lib.stride_tricks import as_strided

from dlperf.adapters.numpy import runtime


class Layers(runtime.Layers):
    """As dlperf.adapters.numpy.runtime.Layers. `first` is the convolution that takes the images."""

    first = "conv1"

    def conv(self, name, x, stride=1, groups=1):
        """A convolution, symmetrically padded by (kernel - 1) / 2; with a bias where there is one."""
        weights = numpy.split(self.weights[name + ".weight"], groups)
        parts = [self._group(*both, stride) for both in zip(numpy.split(x, groups, axis=3), weights)]
        y, bias = joined([y for y, _ in parts]), self.weights.get(name + ".bias")

        def backward(dy):
            if bias is not None:
                self.add(name + ".bias", dy.sum((0, 1, 2)))
            found = [back(d) for (_, back), d in zip(parts, numpy.split(dy, groups, axis=3))]
            self.add(name + ".weight", numpy.concatenate([gradient for gradient, _ in found]))
            if name == self.first:  # the images take none
                return None
            return joined([of_input() for _, of_input in found])

        return y if bias is None else y + bias, backward

    def _group(self, x, weight, stride):
        """One as a product of patches and weights; its backward gives the gradient of the weights, and a function that
        gives the input's."""
        channels_out, channels_in, kernel, _ = weight.shape
        matrix = weight.transpose(2, 3, 1, 0).reshape(-1, channels_out)
        places = patches(x, kernel, stride)
        y = self.product(places, matrix)
        batch, side = x.shape[0], (x.shape[1] - 1) // stride + 1

        def backward(dy):
            dy = dy.reshape(-1, channels_out)
            gradient = self.product(patches(x, kernel, stride).T, dy)
            gradient = gradient.reshape(kernel, kernel, channels_in, channels_out).transpose(3, 2, 0, 1)

            def of_input():
                d = self.product(dy, matrix.T).reshape(batch, side, side, kernel, kernel, channels_in)
                return self._narrow(spread(d, x.shape, stride))

            return numpy.ascontiguousarray(gradient), of_input

        return y.reshape(batch, side, side, channels_out), backward

    def norm(self, name, x):
        """BatchNorm over all axes but the last."""
        scale, shift = self.weights[name + ".weight"], self.weights[name + ".bias"]
        axes = tuple(range(x.ndim - 1))
        n = x.size // x.shape[-1]
        mean = x.mean(axes)
        centred = x - mean
        variance = (centred * centred).mean(axes)
        inverse = 1 / numpy.sqrt(variance + x.dtype.type(self.config.bn_eps))
        normal = centred * inverse
        kept = self.config.bn_decay
        for statistic, value in (("mean", mean), ("var", variance * (n / (n - 1)))):
            running = self.weights[f"{name}.running_{statistic}"]
            running *= kept
            running += (1 - kept) * value

        def backward(dy):
            of_scale, of_shift = (dy * normal).sum(axes), dy.sum(axes)
            self.add(name + ".weight", of_scale)
            self.add(name + ".bias", of_shift)
            return scale * inverse * (dy - of_shift / n - normal * (of_scale / n))

        return normal * scale + shift, backward


def joined(groups):
    return groups[0] if len(groups) == 1 else numpy.concatenate(groups, axis=3)


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


def max_pool(x, kernel, padding):
    """At a stride of 2. The first of equal values takes the gradient."""
    wide, out = padded(x, padding, -numpy.inf), (x.shape[1] + 2 * padding - kernel) // 2 + 1
    last = 2 * (out - 1) + 1
    places = [(slice(r, r + last, 2), slice(c, c + last, 2)) for r in range(kernel) for c in range(kernel)]
    views = [wide[:, rows, columns] for rows, columns in places]
    y = numpy.maximum.reduce(views)
    first = numpy.argmax(numpy.stack([view == y for view in views]), 0)

    def backward(dy):
        d = numpy.zeros_like(wide)
        for index, (rows, columns) in enumerate(places):
            d[:, rows, columns] += dy * (first == index)
        return d[:, padding : padding + x.shape[1], padding : padding + x.shape[2]]

    return y, backward


def average(x):
    places = x.shape[1] * x.shape[2]
    spread_ = numpy.ones((1, *x.shape[1:3], 1), x.dtype) / x.dtype.type(places)
    return x.mean((1, 2)), lambda dy: dy[:, None, None, :] * spread_
