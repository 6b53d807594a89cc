"""Layers that several networks have."""

from mxnet.gluon import nn


class Conv(nn.Conv2D):
    """Symmetric padding; with mixed precision its input is 16 bits wide already."""

    def __init__(self, precision, channels_in, channels_out, kernel, strides=1, groups=1, use_bias=False):
        shape = {"in_channels": channels_in, "groups": groups, "use_bias": use_bias}
        super().__init__(channels_out, kernel, strides, kernel // 2, **shape)
        self.precision = precision

    def hybrid_forward(self, F, x, weight, bias=None):
        held = [weight] if bias is None else [weight, bias]
        return F.Convolution(x, *[self.precision.down(F, one) for one in held], name="fwd", **self._kwargs)


class Dense(nn.Dense):
    """With mixed precision its input is 16 bits wide already."""

    def __init__(self, precision, inputs, outputs):
        super().__init__(outputs, in_units=inputs, flatten=False)
        self.precision = precision

    def hybrid_forward(self, F, x, weight, bias):
        weight, bias = self.precision.down(F, weight, bias)
        return F.FullyConnected(x, weight, bias, num_hidden=self._units, flatten=False, name="fwd")
