"""How much weight decay a training did, read from what it changed.

Decay moves a tensor along its initial values w, all of them together; rounding and jumping gradients move each value
its own way. So of two trainings that differ by a share of the decay and by rounding, the projection of the difference
of their changes a and b on w,

    <b - a, w> / <w, w>,        over all tensors that one rule of decay is for,

tells the share where rounding is a thousand times larger than what decay does to any one value. Sketches are linear, so
it is taken from those. It is given as a share of what the model's decay does to a weight by itself: 0 where two decay
alike, 1 where one does not decay at all, or decays what does not decay.

What points anywhere has a part along w, too, by chance: of n values, with r the rest of b - a, one with a standard
deviation of |r| |w| / sqrt(n). Only what is beyond CHANCE of them counts. In VGG16, whose decay is the smallest beside
its gradients, one of them was 0.6 to 0.8 of the model's decay in float32, and six frameworks were off by 0.2 to 1.4:
there decay is seen in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlperf import models
from dlperf.models.parameters import initial
from dlperf.schema import Trajectory

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Sketches = Mapping[str, NDArray[numpy.float64]]

#: standard deviations of what chance has along w that say nothing
CHANCE = 4.0
#: values at most of a group's tensors, the smallest first: enough to tell, and drawn in a second
VALUES = 2**22


def off(ours: Sketches, theirs: Sketches, of: Trajectory) -> dict[str, float]:
    """By which share of the model's own decay two trainings differ, in weights and in scales; nothing where the model
    has no decay, or changes are not known."""
    whole = _whole(of)
    found = {}
    for group, starts in _starts(of.model, of.seed).items() if whole else ():
        names = [name for name in starts if f"change/{name}" in ours and f"change/{name}" in theirs]
        square = sum(float((starts[name] ** 2).sum()) for name in names)
        if square:
            apart = {name: theirs[f"change/{name}"] - ours[f"change/{name}"] for name in names}
            along = sum(float((part * starts[name]).sum()) for name, part in apart.items())
            far = sum(float((part * part).sum()) for part in apart.values())
            rest = max(0.0, far - along**2 / square)
            chance = math.sqrt(rest * square / sum(part.size for part in apart.values()))
            found[group] = max(0.0, abs(along) - CHANCE * chance) / square / whole
    return found


def _whole(of: Trajectory) -> float:
    """The share of itself that a weight loses in a trajectory by decay alone."""
    recipe = models.family(of.model).optimizer(of.batch_size)
    momentum = getattr(recipe, "momentum", 0.0)
    rate = getattr(recipe, "learning_rate", 0.0) * getattr(recipe, "weight_decay", 0.0)
    return float(rate * sum((1 - momentum**step) / (1 - momentum) for step in range(1, of.steps + 1)))


@functools.cache
def _starts(model: str, seed: int) -> dict[str, Sketches]:
    """Sketches of initial values that are not zero: of weights, which decay, and of scales, which do not."""
    from dlperf.adapters.trace import sketch  # imports numpy

    parameters = models.family(model).parameters(models.config(model))
    begun = [one for one in parameters if one.trained and one.init != "zeros"]
    groups: dict[str, dict[str, NDArray[numpy.float64]]] = {"weights": {}, "scales": {}}
    left = dict.fromkeys(groups, VALUES)
    for one in sorted(begun, key=lambda one: one.size):
        group = "weights" if one.decayed else "scales"
        left[group] -= one.size
        if left[group] >= 0:
            groups[group][one.name] = sketch(one.name, initial(one, seed, "float64"))
    return dict(groups)
