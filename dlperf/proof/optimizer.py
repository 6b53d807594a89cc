"""In which constants of its optimizer does a measured run differ from the reference? Pure.

Rounding to 16 bits moves each value of an update by more than another beta2, or no decay of weights, does. But it moves
each its own way, where a constant moves all of them along one direction, which is known: the reference writes down what
other optimizers, with one constant changed each, would have made of its gradients (`adapters/numpy`). So of what a run
differs from the reference, y, these directions d explain

    c = the c for which |y - c d| is least, over all values, each as a multiple of its tensor's rounding error

c is 0 where the optimizer is right, and 1 where it is that other one. The rounding error of a tensor is the median over
its values of how far the reference's two runs are apart. A gradient near zero that is rounded to its other side makes
an update as wrong as it can be, so errors count by their squares up to K and by their size beyond (Huber, "Robust
estimation of a location parameter", 1964), by weighting them again until that holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Tensors = Mapping[str, "NDArray[numpy.float64]"]

#: rounding errors beyond which a difference counts by its size
K = 3.0
#: how often weights are made again: with as many the shares that bars are from were read
ROUNDS = 30
#: the standard deviation of a normal distribution as a multiple of the median of its sizes
DEVIATION = 1.4826
#: of a weight in float32, which its state is rounded to in any case
ROUNDOFF = 2.0**-24


def faults(
    ours: Mapping[int, Tensors],
    theirs: Mapping[int, Tensors],
    second: Mapping[int, Tensors],
    others: Mapping[int, Mapping[str, Tensors]],
    trained: Sequence[str],
    most: float,
) -> Iterator[str]:
    """What is another in a run's optimizer, in words. By steps: a run's states, those of the reference's two runs, and
    what the first of these would have come to by other optimizers. most: share of one that a right run may show. In
    the first step Adam's constants cancel out."""
    for steps in sorted(others.keys() & second.keys() & ours.keys() - {0, 1}):
        found = explained(ours[steps], theirs[steps], second[steps], others[steps], trained)
        worst = max(found, key=lambda name: abs(found[name]))
        if not abs(found[worst]) <= most:
            yield f"after {steps} steps its {worst} is another: {found[worst]:.2g} of the way to one that is wrong"


def explained(
    ours: Tensors, theirs: Tensors, other: Tensors, others: Mapping[str, Tensors], trained: Sequence[str]
) -> dict[str, float]:
    """By which share of each other optimizer's difference a run differs. ours, theirs, other: its state, and those of
    the reference's two runs. others: by name, what the first of these would have come to."""
    import numpy

    rows, differences = [], []
    for name in trained:
        rounding = float(numpy.median(abs(other[name] - theirs[name]))) * DEVIATION
        rounding += ROUNDOFF * float(numpy.median(abs(theirs[name])))
        if rounding:  # a tensor that begins as zeros and does not move tells nothing
            rows.append(numpy.stack([found[name] - theirs[name] for found in others.values()]) / rounding)
            differences.append((ours[name] - theirs[name]) / rounding)
    directions, difference = numpy.concatenate(rows, axis=1), numpy.concatenate(differences)
    shares: NDArray[numpy.float64] = numpy.zeros(len(others))
    for _ in range(ROUNDS):
        weights = 1 / numpy.maximum(1, abs(difference - shares @ directions) / K)
        weighted = directions * weights
        shares = numpy.linalg.lstsq(weighted @ directions.T, weighted @ difference, rcond=None)[0].astype(float)
    return dict(zip(others, map(float, shares), strict=True))
