"""Dropout on CPUs. PyTorch's own numbers are one for each value, drawn on one thread but on Intel's CPUs, where MKL
draws them. On others sixteen random bits decide, four decisions of one number, as in JAX's adapter."""

import torch
from torch.profiler import record_function

from dlperf.adapters import cpu

#: decisions of one int64
DECISIONS = 4


def dropout(job):
    """A function like torch.nn.functional.dropout; None for that itself."""
    fits = job.device == "cpu" and "GenuineIntel" not in (cpu.flags() or ())
    if job.options["masks"] == "16bits" or (job.options["masks"] == "auto" and fits):
        return dropped
    return drawn if job.device == "cpu" else None


def words(drop):
    """What `dropout` gave, in words."""
    return {dropped: "16 random bits a value", drawn: "Tensor.bernoulli_"}.get(drop, "torch.nn.functional.dropout")


@record_function("dropout")  # for dlperf.adapters.pytorch.profiling
def drawn(x, p, training):
    """torch.nn.functional.dropout, which draws what to keep. Near one float32's numbers are so far apart that MKL
    rounds one of 2^25 up to it and drops that value at each rate, however small; what to drop is drawn as it should."""
    if not (training and p):
        return x
    gone = torch.empty_like(x, requires_grad=False).bernoulli_(p)
    return x * torch.rsub(gone, 1 / (1 - p), alpha=1 / (1 - p))


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
def attention(query, key, value, mask, drop, p):
    """softmax(query key' / sqrt(size) + mask), dropped, times value: (batch, heads, sequence, size) each. drop: as
    `dropout` gave it. With dropout torch.nn.functional.scaled_dot_product_attention takes the same products on a CPU,
    and its own dropout."""
    scores = torch.matmul(query, key.transpose(2, 3)).mul(query.shape[-1] ** -0.5)
    return torch.matmul(drop(torch.softmax(scores + mask, -1), p, True), value)
