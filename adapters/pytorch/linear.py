"""Dense layers, by F.linear or by the oneDNN of PyTorch's wheel: for CPUs on which its MKL, which F.linear calls in
float32, takes other kernels than those that they are best at."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf.adapters.api import Unsupported

OPERATOR = "mkldnn._linear_pointwise"


def function(job):
    """A function like torch.nn.functional.linear, or that itself; and what it is, in words."""
    if job.options.get("linear", "torch") == "torch":
        return F.linear, "torch.nn.functional.linear"
    if job.device != "cpu":
        raise Unsupported("option linear=onednn of pytorch is for CPUs: leave it out")
    if job.precision != "fp32":
        return F.linear, "torch.nn.functional.linear, which in bfloat16 is oneDNN's and in float64 MKL's"
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return F.linear, f"torch.nn.functional.linear: this wheel has no {OPERATOR}"
    return product, f"oneDNN's in float32, by torch.ops.{OPERATOR}"


class Dense(nn.Linear):
    """product: of `function`."""

    def __init__(self, inputs, outputs, product, bias=True):
        super().__init__(inputs, outputs, bias)
        self.product = product

    def forward(self, x):
        return self.product(x, self.weight, self.bias)


def product(x, weight, bias=None):
    return Linear.apply(x, weight, bias)


class Linear(torch.autograd.Function):
    """x (.., n, in) times weight (out, in) transposed, plus bias (out)."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return multiplied(x, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        of_weight = multiplied(rows.t(), x.flatten(0, -2).t(), None)
        return multiplied(gradient, weight.t(), None), of_weight, rows.sum(0) if ctx.needs_input_grad[2] else None


def multiplied(x, weight, bias):
    """By an operator of the wheel that its documentation does not name: Inductor calls it."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
