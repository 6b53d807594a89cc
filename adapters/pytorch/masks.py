"""Dropout for CPUs on which PyTorch's own draws a number for each value on one thread: all but Intel's, where MKL draws
them. Sixteen random bits decide, four decisions of one number, as in JAX's adapter."""

import torch
from torch.profiler import record_function

from dlperf.adapters import cpu

#: decisions of one int64
DECISIONS = 4


def dropout(job):
    """A function like torch.nn.functional.dropout; None for that itself."""
    fits = job.device == "cpu" and "GenuineIntel" not in (cpu.flags() or ())
    return dropped if job.options["masks"] == "16bits" or (job.options["masks"] == "auto" and fits) else None


def words(drop):
    """What `dropout` gave, in words."""
    return "16 random bits a value" if drop else "torch.nn.functional.dropout"


@record_function("dropout")  # for dlperf.adapters.pytorch.profiling
def dropped(x, p, training):
    if not (training and p):
        return x
    numbers = torch.empty(-(-x.numel() // DECISIONS), dtype=torch.int64, device=x.device)
    numbers.random_(torch.iinfo(torch.int64).min, None)  # of all 64 bits
    bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    least = round(p * 2**16)  # that keep a value, without a sign
    kept = torch.ge(bits, least - 2**15, out=torch.empty_like(x, requires_grad=False))
    return x * kept.mul_(2**16 / (2**16 - least))


@record_function("attention")
def attention(query, key, value, mask, p):
    """softmax(query key' / sqrt(size) + mask), dropped, times value: (batch, heads, sequence, size) each. With dropout
    torch.nn.functional.scaled_dot_product_attention takes the same products on a CPU, and its own dropout."""
    scores = torch.matmul(query, key.transpose(2, 3)).mul(query.shape[-1] ** -0.5)
    return torch.matmul(dropped(torch.softmax(scores + mask, -1), p, True), value)
