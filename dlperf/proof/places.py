"""Where dropout stands in a network, by which gradients are zero where it drops nearly all.

At a network's own rate masks hide where they are drawn: a Transformer that drops its sums in place of its parts trains
as another seed does. At a rate near 1, gradients of what stands behind or in front of a mask are zero wherever all rows
of a batch are dropped, to the last bit in any precision, and how many of a tensor's are depends on the place alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlperf import models
from dlperf.proof.measured import Marks
from dlperf.schema import Job

#: tensor -> the share of its gradients that are zero
Zeros = Mapping[str, float]

#: of channels, those that are dropped in all rows of a batch: half of them, and a quarter where rows are tokens, whose
#: networks are deep: there more would leave whole tensors without a gradient by chance
ALL_DROPPED, ALL_DROPPED_OF_TEXTS = 0.5, 0.25
#: shares between these tell something
SOME, MOST = 0.02, 0.98
#: how far such shares may be off on the mean: right runs of the tiny networks 0.04 to 0.19 in the reference with eight
#: seeds, VGG with dropout in front of its dense layers 0.29, on an Intel Xeon 0.20 to 0.23, SE-ResNeXt with it behind
#: the last 0.5. Where rows are tokens, the Transformer with PyTorch's own masks, which differ by CPU, 0.21 there, and
#: with dropout on its sums 0.26. And how many times as far as the reference's two runs
OFF, OFF_OF_TEXTS, APART = 0.2, 0.23, 1.5
#: of a weight, what a step by SGD may round it by, in float32
ROUNDED = 2e-7


def share(job: Job) -> float:
    """Job.dropout of such a run."""
    config, tokens = models.config(job.model), _tokens(job)
    kept = 1 - ALL_DROPPED ** (1 / job.batch_size)
    if tokens:
        kept = 1 - ALL_DROPPED_OF_TEXTS ** (1 / (job.batch_size * tokens))
    return float((1 - kept) / config.dropout)


def _tokens(job: Job) -> int:
    """Of a row of a batch; 0 where it has none."""
    config: Any = models.config(job.model)
    return int(getattr(config, "tokens", getattr(config, "sequence", 0)))


def off(job: Job) -> float:
    """How far a right run's shares may be off."""
    return OFF_OF_TEXTS if _tokens(job) else OFF


def zeros(run: Marks, decayed: Mapping[str, bool], recipe: Any) -> Zeros:
    """Of the gradients of a run's first step. decayed: what is trained, and whether it decays. recipe: of its
    optimizer, Adam or SGD with momentum."""
    if run.moments:
        return {name: float((mean == 0).mean()) for name, mean in run.moments[1]["mean"].items()}
    found = {}
    for name, change in run.changes(1, list(decayed)).items():
        start = run.states[0][name]
        by_decay = recipe.learning_rate * recipe.weight_decay * start if decayed[name] else 0.0
        found[name] = float((abs(change + by_decay) <= ROUNDED * abs(start)).mean())
    return found


def telling(*runs: Zeros) -> list[str]:
    """The tensors of which some but not all gradients are zero in some run."""
    return [name for name in runs[0] if any(SOME < run[name] < MOST for run in runs)]


def fault(ours: Zeros, first: Zeros, second: Zeros, least: float = OFF) -> str:
    """What is wrong with a run beside the reference's two; empty if nothing, or if these tell nothing. least: see
    `off`."""
    known, names = telling(first, second), telling(ours, first, second)
    if not known:
        return ""
    apart = sum(abs(first[name] - second[name]) for name in known) / len(known)
    far = {name: abs(ours[name] - (first[name] + second[name]) / 2) for name in names}
    mean, most = sum(far.values()) / len(far), max(least, APART * apart)
    if mean <= most:
        return ""
    worst = max(far, key=lambda name: far[name])
    return (
        f"with dropout that drops nearly all, other gradients are zero: {ours[worst]:.0%} of {worst} where it is "
        f"{first[worst]:.0%} in the reference, and {len(far)} tensors are off by {mean:.2f} on the mean, where "
        f"{most:.2f} is explained. Its dropout stands elsewhere, or has another rate"
    )
