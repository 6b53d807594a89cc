"""Deep gradient compression (Lin et al., arXiv:1712.01887) of SGD with momentum, as every adapter does it.

Each rank keeps u and v of every tensor that has several axes, zeros at first. In step t, for one of n values:

    g = gradient of this rank's own loss + weight_decay * w    (where the model decays it)
    u = momentum * u + g                                       momentum correction
    v = v + u                                                  all that was not sent yet
    I = the `kept(n, density)` places where |v| is largest     of this tensor, not of all together
    v[I] and I go to all ranks; u[I] = v[I] = 0                momentum factor masking
    w = w - learning_rate * (sum of what the ranks sent) / ranks

Tensors of one axis (biases, scales and shifts of normalisations) are averaged whole and have the usual momentum, as in
the authors' code (synxlin/deep-gradient-compression). The threshold that the paper takes from a sample is how to find I
fast, not what I is: I is exact here, so that ranks and frameworks agree. Its local clipping is for models that clip,
and those that SGD trains here do not.
"""

from typing import Any, Dict

from dlperf.adapters.api import Job, Unsupported

#: of a tensor's values, the share that is sent once the warm-up is over
DENSITY = 0.001
#: steps of a trajectory until then: about 25, 6, 1.6, 0.4 and 0.1 %, as in the paper's epochs
WARM_UP = 5
#: what Job.options["compression"] may be, for all adapters -> in words; each has some of them
KINDS = {
    "none": "gradients are exchanged as they are",
    "fp16": "gradients are float16 while they are exchanged",
    "dgc": "deep gradient compression: each rank sends the largest 0.1 % of each tensor, and keeps the rest for later",
}


def asked(job: Job) -> str:
    """A key of KINDS."""
    return job.options.get("compression", "none")


def effective(job: Job) -> Dict[str, str]:
    """What Trainer.effective says of it, where anything is compressed."""
    kind = asked(job)
    return {} if kind == "none" else {"compression": KINDS[kind]}


def check(job: Job) -> None:
    """Raise Unsupported where Horovod exchanges gradients, or where their scale changes from step to step."""
    if asked(job) != "none" and job.options.get("communication") == "horovod":
        raise Unsupported(f"compression={asked(job)} is not written for Horovod yet")
    if asked(job) == "dgc" and job.precision == "amp_fp16":
        raise Unsupported("compression=dgc keeps gradients from step to step, and float16's loss scale changes")


def density(job: Job, step: int) -> float:
    """The share of a tensor's values that is sent in a step, counted from 0: it falls exponentially over the steps of
    the warm-up, as in the paper, and is DENSITY in the last of them, so that what is compiled for it is there when
    windows begin."""
    steps = WARM_UP if job.trace_steps else max(1, job.warmup_steps)
    return float(DENSITY ** min(1.0, (step + 1) / steps))


def kept(size: int, share: float) -> int:
    """How many of `size` values are sent."""
    return max(1, int(size * share))


def deep(array: Any) -> bool:
    """Whether a tensor is compressed."""
    return len(array.shape) > 1
