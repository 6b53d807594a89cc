"""Without dropout: does rounding explain by how much a run differs from the reference? Pure.

The reference runs twice, with more precision and with the row's. How far these two are apart, with a slack, a right run
may be from the first, in what training has made of all tensors together and of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlperf.words import count

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Tensors = Mapping[str, "NDArray[numpy.float64]"]

#: how much further than the reference's own two runs a right one may be apart from it
SLACK = 3.0
#: of a weight in float32
ROUNDOFF = 2.0**-24
#: below which differences of changes say nothing: 1 - beta2 of Adam alone, as the difference of two numbers in float32,
#: is off by up to 3e-5 of it
FLOOR = 1e-4
#: share of all tensors' that one has at least, to be looked at alone
WEIGHT = 1e-3
#: how many times as large one tensor's may be: seen 1.04 in bfloat16 in the tiny ResNet with PyTorch, TensorFlow, MXNet
LENGTHS = 1.25
#: tensors that the reference's two runs themselves have this far apart are not looked at alone
UNDECIDED = 0.5
#: without dropout, how far apart all tensors are where rounding has not yet decided for single ones
DECIDED = 0.05
#: values of a tensor, of which fewer may all be far off by chance
VALUES = 16


@dataclass(frozen=True)
class Bars:
    """Of what training changes, how far from the reference's it may be without dropout.

    slack: of all tensors together, times how far the reference's two runs are apart, or `floor` where that is more.
    slack_alone, floor_alone: of one tensor, times how far that is apart or all are, and in any case. weight: share of
    all tensors' that one has at least, to be looked at alone. sign, noise: see `decided`. factor: how far all may be
    off by a common factor, which then counts for nothing else. lengths: how many times as large one tensor's may be,
    or as small.
    """

    what: str
    slack: float = SLACK
    floor: float = FLOOR
    slack_alone: float = SLACK
    floor_alone: float = SLACK * FLOOR
    weight: float = WEIGHT
    sign: float = 0.0
    noise: float = 0.0
    factor: float = 0.0
    lengths: float = LENGTHS


#: of what weights have changed by
CHANGES = Bars("change")
#: the same where updates are signs, of values that `decided` leaves; a gradient may be as far off there as MEANS lets a
#: tensor be. Alone 4.2 times as far as all, a bias of which TensorFlow sums gradients in bfloat16, and 2e-3, embeddings
#: of types in its float32
SIGNS = Bars("change", slack_alone=10.0, floor_alone=5e-3, sign=10.0, noise=1e-5)
#: the same in 16 bits: NumPy rounds products alone, TensorFlow all that flows between them, which moved BERT-base's
#: changes 2.5 times as much after one step and 2.8 times after three; others 1.0 to 1.7 times
HALVES = replace(SIGNS, slack=6.0, sign=3.0)
#: of Adam's means of gradients, from revealing weights. In float32 six frameworks were up to 4e-5 off in BERT-base in
#: step 1, a tensor alone 1e-3, both TensorFlow; but for a common factor, by rounding of the norm that is clipped: in
#: PyTorch 6e-5, in NumPy 2e-5. In bfloat16 0.8 to 2.7 times as far as NumPy; a tensor alone 6.4 times, in the tiny BERT
MEANS = Bars("mean gradient", slack=4.0, floor=1e-5, slack_alone=10.0, floor_alone=3e-3, weight=1e-5, factor=3e-4)
#: by how much of the learning rate noise may move an update of Adam that is looked at
MOVED = 1e-2


def kinked(bars: Bars, revealing: bool) -> Bars:
    """The same where a ReLU or a maximum decides, in the first steps, in which the reference's own two runs may happen
    to have decided alike. revealing: whether runs begin with such weights.

    In SE-ResNet-50 at a batch of 4, from its usual weights, images that were moved by 1e-6 of themselves moved all
    changes in NumPy by 3e-5, 1.2e-3 or 2.3e-3, nothing between, and a tensor by 3.5e-3; in OneFlow a tensor was 1.7e-2
    off in one run of 5. From revealing weights one value decides over as much as it is of all behind it: in the tiny
    ResNet it moved changes by 3e-4 at a batch of 4, and a bias by 1.3e-2; at a batch of 2 by 9e-3; in the Transformer
    all gradients behind it by 3e-4. In bfloat16 one of JAX's convolutions was 0.78 times as large, at a batch of 1."""
    if not revealing:
        return replace(bars, floor=max(2.5e-3, bars.floor), floor_alone=max(5e-2, bars.floor_alone))
    return replace(bars, floor=1e-2, floor_alone=0.3, lengths=2.0, noise=1e-3 if bars.noise else 0.0)


def faults(
    run: Mapping[int, Tensors], first: Mapping[int, Tensors], second: Mapping[int, Tensors], bars: Bars
) -> Iterator[str]:
    """What is too far off, in words: the first that is. run, first, second: after so many steps what training has made,
    of the run and of the reference's two.

    What rounds to each side as often turns a change rather than lengthens it: one that is off by e is (1 + e^2)^0.5
    times as long, give or take e over the root of how many values make most of it up."""
    shared = sorted(first.keys() & second.keys())
    others = {steps: _scaled(second[steps], first[steps]) if bars.factor else second[steps] for steps in shared}
    aparts = {steps: _off(others[steps], first[steps]) for steps in shared}
    for steps in [one for one in shared if one in run]:
        ours, theirs, other = run[steps], first[steps], others[steps]
        share = norm(ours.values()) / norm(theirs.values())
        if bars.factor:
            ours = _scaled(ours, theirs)
        apart = max(grown(aparts, steps), bars.floor)
        found, most = _off(ours, theirs), bars.slack * apart
        of_all = f"after {count(steps, 'step')} the {bars.what} of its parameters is"
        if not found <= most:
            yield (
                f"{of_all} another: off by {found:.2g} of the reference's where {most:.2g} is explained, and "
                f"{share:.2f} times as large"
            )
            return
        if not abs(share - 1) <= max(most**2 / 2 + most / math.sqrt(_weighty(theirs)), bars.factor or bars.floor):
            yield f"{of_all} {share:.4g} times as large as the reference's"
            return
        odd = (apart < DECIDED and _odd(ours, theirs, other, apart, bars)) or (
            apart < UNDECIDED / 2 and odd_length(ours, theirs, other, bars.lengths, bars.what)
        )
        if odd:
            yield f"after {count(steps, 'step')} {odd}"
            return


def odd_length(ours: Tensors, theirs: Tensors, other: Tensors, most: float, what: str) -> str:
    """The first tensor that is `most` times as large as in both of the reference's runs, or as small; empty if none is.
    what: training makes of it, in a word."""
    whole = norm(theirs.values())
    for name in theirs:
        least, largest = sorted((norm([theirs[name]]), norm([other[name]])))
        length = norm([ours[name]])
        if least < WEIGHT * whole or (length and theirs[name].size < VALUES):
            continue
        if not least / most <= length <= largest * most:
            return f"the {what} of {name} is {length / least:.2g} times as large as the reference's"
    return ""


def decided(first: Tensors, second: Tensors, bars: Bars, eps: float) -> dict[str, NDArray[numpy.bool_]]:
    """Of which values noise leaves Adam's first update as it is, or which have no gradient yet. That update is as large
    as the learning rate whatever the gradient, so where a gradient is noise the update is as wrong as it can be.

    first, second: means of gradients after one step in the reference's two runs. Noise is bars.sign times their
    distance in a tensor, or bars.noise times its size where that is more. eps: Adam's, as beside these means.

    From revealing weights in float32, of 23,495 values of the Transformer 0 to 5 were updated the other way in six
    frameworks, all of gradients less than 2.9 times that distance. But for what this leaves out, these were 7.6e-5 off
    after one step; with it, up to 2.9e-2."""

    def update(mean: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        moved: NDArray[numpy.float64] = mean / (abs(mean) + eps)
        return moved

    clear = {}
    for name, mean in first.items():
        apart = max(norm([second[name] - mean]), bars.noise * norm([mean])) / math.sqrt(max(1, mean.size))
        moved = abs(update(abs(mean) - bars.sign * apart) - update(abs(mean)))
        clear[name] = (moved <= MOVED) | (mean == 0)
    return clear


def _off(ours: Tensors, theirs: Tensors) -> float:
    """How far apart two changes are, as a share of the second."""
    return distance(ours, theirs) / norm(theirs.values())


def _odd(ours: Tensors, theirs: Tensors, other: Tensors, typical: float, bars: Bars) -> str:
    """The tensor that changed most unlike the reference's; empty if none is unlike. typical: how far all tensors
    together are apart, which one that happens to be nearer may be, too."""
    sizes = {name: norm([theirs[name]]) for name in theirs}
    whole = math.sqrt(sum(size**2 for size in sizes.values()))
    worst, excess = "", 1.0
    for name, size in sizes.items():
        if size < bars.weight * whole or not size or theirs[name].size < VALUES:
            continue
        found, apart = (_off({name: one[name]}, {name: theirs[name]}) for one in (ours, other))
        over = found / max(bars.slack_alone * max(apart, typical), bars.floor_alone)
        if apart <= UNDECIDED and over > excess:
            worst, excess = f"the {bars.what} of {name} is another: off by {found:.2g} of it", over
    return worst


def grown(apart: Mapping[int, float], step: int) -> float:
    """The largest up to the step that is looked at next."""
    following = min((one for one in apart if one > step), default=step)
    return max(value for one, value in apart.items() if one <= following)


def _scaled(ours: Tensors, theirs: Tensors) -> Tensors:
    """As large as theirs, all together."""
    factor = norm(theirs.values()) / (norm(ours.values()) or 1.0)
    return {name: factor * values for name, values in ours.items()}


def _weighty(tensors: Tensors) -> float:
    """How many values make up most of all: their number where all are as large, fewer else."""
    squares = [values**2 for values in tensors.values()]
    return sum(float(one.sum()) for one in squares) ** 2 / sum(float((one**2).sum()) for one in squares)


def distance(ours: Tensors, theirs: Tensors) -> float:
    return norm(ours[name] - theirs[name] for name in theirs)


def norm(parts: Iterable[NDArray[numpy.float64]]) -> float:
    return math.sqrt(sum(float((part * part).sum()) for part in parts))
