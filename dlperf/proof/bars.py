"""How far apart two systems may be that do the same work, in float64 and in float32.

Where a ReLU or a maximum is undecided but for rounding, gradients jump, and changes after them: in float32 six
frameworks were 1e-6 to 2e-3 off in ResNet-50's first gradients, all tensors as one vector, and 5e-3 to 1e-2 in its
changes; single tensors up to 2e-2 and 2e-1. So the vector is held to ten times that. A family without such places
(`SMOOTH`) is held tensor by tensor: BERT-base was off by up to 3e-6 and 3e-4, and in its outputs by 9e-7. Decay of
weights, as a share of the model's, was off by up to 0.014 in BERT, tiny and base, 0.007 in the tiny ResNet and 3e-4 in
ResNet-50; one that is not there is off by 1. Measured on Zen 4 and Zen 5.

One step of Adam is the sign of each gradient. Where gradients are off by e, as one vector, and both spread normally,
atan(e) / pi of the signs are others, and the changes are off by 2 sqrt(e / pi). VGG16 for CIFAR-10, where e was 6e-5 to
1.2e-2, was off by 0.008 to 0.076. So where one step is all that is compared, changes are held to what the bar of
gradients leads to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlperf import models
from dlperf.schema import Trajectory


@dataclass(frozen=True)
class Bars:
    """The largest relative errors with which two systems still do the same work; None: shown, not judged. gradients,
    changes: of all tensors as one vector. decay: see `dlperf.proof.decay`."""

    loss: float
    logits: float | None = None
    gradient: float | None = None
    change: float | None = None
    statistic: float | None = None
    gradients: float | None = None
    changes: float | None = None
    decay: float | None = None


BARS = {
    "fp64": Bars(loss=1e-9, logits=1e-9, gradient=1e-7, change=1e-7, statistic=1e-7),
    "fp32": Bars(loss=1e-4, logits=1e-4, statistic=1e-3, gradients=2e-2, changes=1e-1, decay=0.1),
}
#: of float32 where nothing jumps
SMOOTH = {"logits": 1e-5, "gradient": 3e-5, "change": 3e-3}
#: of changes where most of a network are tables, and few ReLUs or maxima decide: six frameworks were up to 1e-4 off
TABLES = 1e-2
#: of changes by one step of Adam, see above
SIGNS = 2 * math.sqrt(0.02 / math.pi)


def bars_for(trajectory: Trajectory) -> Bars | None:
    """Those of its precision and its network; None where low precision has a bound instead."""
    bars = BARS.get(trajectory.precision)
    if not bars or trajectory.precision != "fp32":
        return bars
    family = models.family(trajectory.model)
    if family.SMOOTH:
        return replace(bars, **SMOOTH)
    if "tables" in family.EFFECTIVE:
        return replace(bars, changes=TABLES)
    return replace(bars, changes=SIGNS) if trajectory.steps == 1 else bars
