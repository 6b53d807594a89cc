"""What ranks exchange in place of their gradients.

**dgc**: deep gradient compression (Lin et al., arXiv:1712.01887) of SGD with momentum, as every adapter does it. Each
rank keeps u and v of every tensor that has several axes, zeros at first. In step t, for one of n values:

    g = gradient of this rank's own loss + weight_decay * w    (where the model decays it)
    u = momentum * u + g                                       momentum correction
    v = v + u                                                  all that was not sent yet
    I = the `kept(n, density)` places where |v| is largest     of this tensor, not of all together
    v[I] and I go to all ranks; u[I] = v[I] = 0                momentum factor masking
    w = w - learning_rate * (sum of what the ranks sent) / ranks

Tensors of one axis (biases, scales and shifts of normalisations) are averaged whole and have the usual momentum, as in
the authors' code (synxlin/deep-gradient-compression). The threshold that the paper takes from a sample is how to find I
fast, not what I is: I is exact here, so that ranks and frameworks agree. Its local clipping is for models that clip,
and those that SGD trains here do not. In a proof v starts at `first`, not at zeros, so that no two values are
equal: of a million float32 weights several are, and so are their v where the loss has no gradient. Which of them is
sent would then depend on how a framework lays out its tensors.

**powersgd**: PowerSGD (Vogels et al., arXiv:1905.13727) as PyTorch's hook has it, with error feedback and a warm start.
A gradient with several axes is a matrix M of n rows, as many as its first axis has, and m columns. It is compressed if
n * m > 2 * (n + m) * r, with r = min(RANK, n, m); others are averaged. In the first WHOLE steps all are. From then on,
with e zero and the columns of Q normal at first (`basis`):

    M = gradient of this rank's own loss + e
    P = orthonormal(sum over ranks of M orthonormal(Q))
    Q = mean over ranks of M^T P
    the gradient is P Q^T in all ranks; e = M - P Q^T

**2bit**: of each value of each gradient a rank sends +t, 0 or -t, as MXNet's KVStore has it; servers add these up, and
send the sum as it is. What a rank did not send it adds to the next gradient, in float32:

    e = e + gradient of this rank's own loss
    s = t where e >= t, -t where e <= -t, else 0;  e = e - s

t is MXNet's usual THRESHOLD for losses that are added up over a rank's rows, as gluon's Trainer has them: ours are
means, so t = THRESHOLD / rows.
"""

from typing import TYPE_CHECKING, Any, Dict, Sequence, Tuple

from dlperf.adapters.api import Job, Unsupported
from dlperf.models.parameters import random_state

if TYPE_CHECKING:
    from numpy import ndarray

#: of a tensor's values, the share that is sent once the warm-up is over
DENSITY = 0.001
#: steps of a trajectory until then: about 25, 6, 1.6, 0.4 and 0.1 %, as in the paper's epochs
WARM_UP = 5
#: what v starts at in a proof, at most: less than anything that a weight's decay adds
FAINT = 1e-12
#: of PowerSGD: as the paper has it for ResNet-18; and the steps before it begins, as few as PyTorch's hook takes
RANK, WHOLE = 2, 2
#: of 2bit
THRESHOLD = 0.5
#: what Job.options["compression"] may be, for all adapters -> in words; each has some of them
KINDS = {
    "none": "gradients are exchanged as they are",
    "fp16": "gradients are float16 while they are exchanged",
    "powersgd": f"PowerSGD: gradients are matrices of rank {RANK}, and what that leaves out is kept for later",
    "2bit": "each value of a gradient is exchanged as +t, 0 or -t, and the rest is kept for later",
    "dgc": "deep gradient compression: each rank sends the largest 0.1 % of each tensor, and keeps the rest for later",
}


def asked(job: Job) -> str:
    """A key of KINDS."""
    return job.options.get("compression", "none")


def effective(job: Job) -> Dict[str, str]:
    """What Trainer.effective says of it, where anything is compressed."""
    kind = asked(job)
    return {} if kind == "none" else {"compression": KINDS[kind]}


def check(job: Job, by_horovod: bool = False) -> None:
    """Raise Unsupported where the scale of gradients changes from step to step, and where Horovod exchanges them unless
    by_horovod says that it may."""
    if asked(job) != "none" and job.options.get("communication") == "horovod" and not by_horovod:
        raise Unsupported(f"compression={asked(job)} is not written for Horovod yet")
    if asked(job) in ("powersgd", "2bit", "dgc") and job.precision == "amp_fp16":
        raise Unsupported(f"compression={asked(job)} keeps gradients from step to step; float16's loss scale changes")


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


def first(shape: Sequence[int], axes: Sequence[int] = ()) -> "ndarray[Any, Any]":
    """v of a tensor before the first step of a proof. shape: as a framework has it. axes: which of the canonical ones
    its axes are, where they are in another order."""
    canonical = [side for _, side in sorted(zip(axes, shape))] if axes else list(shape)
    values = random_state(0, "v of deep gradient compression").random_sample(canonical) * FAINT
    return values.transpose(axes) if axes else values


def basis(name: str, shape: Tuple[int, ...]) -> "ndarray[Any, Any]":
    """Q of PowerSGD before its first step, of a tensor with so many axes; of shape (*shape[1:], r)."""
    columns = 1
    for side in shape[1:]:
        columns *= side
    values = random_state(1, f"{name} in PowerSGD").standard_normal((columns, min(RANK, shape[0], columns)))
    return values.reshape((*shape[1:], -1))


def threshold(job: Job) -> float:
    """t of 2bit."""
    return THRESHOLD / job.batch_size
