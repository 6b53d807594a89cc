"""Layers that several networks have."""

from functools import partial

from mxnet.gluon import nn


class Conv(nn.Conv2D):
    """Symmetric padding; with mixed precision its input is 16 bits wide already."""

    def __init__(self, precision, channels_in, channels_out, kernel, strides=1, groups=1, use_bias=False):
        shape = {"in_channels": channels_in, "groups": groups, "use_bias": use_bias}
        super().__init__(channels_out, kernel, strides, kernel // 2, **shape)
        self.precision = precision

    def hybrid_forward(self, F, x, weight, bias=None):
        held = [self.precision.down(F, one) for one in (weight, bias) if one is not None]
        if self._kwargs["num_group"] == 1 or self.precision.device == "cuda":
            return F.Convolution(x, *held, name="fwd", **self._kwargs)
        return self.precision.without_bfloat16(F, partial(self._grouped, F), x, *held)

    def _grouped(self, F, x, *held):
        """oneDNN has blocks of as many channels here as a group has. A BatchNorm beside it would find its input and
        gradient in unlike blocks, and take oneDNN's reference, which is a hundred times as slow. A slice is whole here,
        and in the plain layout."""
        y = F.Convolution(F.slice_axis(x, axis=0, begin=0, end=None), *held, name="fwd", **self._kwargs)
        return F.slice_axis(y, axis=0, begin=0, end=None)


class Dense(nn.Dense):
    """With mixed precision its input is 16 bits wide already."""

    def __init__(self, precision, inputs, outputs, use_bias=True):
        super().__init__(outputs, in_units=inputs, flatten=False, use_bias=use_bias)
        self.precision = precision

    def hybrid_forward(self, F, x, weight, bias=None):
        held = [self.precision.down(F, one) for one in (weight, bias) if one is not None]
        return F.FullyConnected(x, *held, num_hidden=self._units, no_bias=bias is None, flatten=False, name="fwd")


def multiplied(F, precision, *arrays):
    """In the type of attention's products: batch_dot has no kernel for bfloat16, and transpose damages the heap."""
    return precision.up(F, *arrays) if precision.low != "float16" else arrays if len(arrays) > 1 else arrays[0]


def attend(F, precision, inputs, heads, scale, weigh):
    """weigh(scores) times value, where scores are scale * query times key', as batched products of all heads. inputs:
    query, key and value, (batch, sequence, hidden) each, see `multiplied`. weigh: gives shares for scores, in float32
    or better."""
    half = precision.low == "float16"
    query, key, value = [_split(F, one, heads) for one in inputs]
    scores = F.batch_dot(query * scale, key, transpose_b=True)
    shares = weigh(precision.up(F, scores) if half else scores)
    context = F.batch_dot(precision.down(F, shares) if half else shares, value)
    context = F.transpose(F.reshape(context, (-4, -1, heads, 0, 0)), (0, 2, 1, 3))
    context = F.reshape(context, (0, 0, -3))
    return context if half else precision.down(F, context)


def _split(F, x, heads):
    """(batch, sequence, hidden) -> (batch * heads, sequence, head)"""
    return F.reshape(F.transpose(F.reshape(x, (0, 0, heads, -1)), (0, 2, 1, 3)), (-3, 0, 0))


def of_two_classes(F, scores, right):
    """Cross-entropy of each row, by softrelu: oneDNN's log_softmax is 1e-6 off in float32, all to one side. scores: (n,
    2). right: the class of each row."""
    return F.Activation(F.pick(scores, 1 - right) - F.pick(scores, right), act_type="softrelu")
