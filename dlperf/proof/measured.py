"""Did a run that was measured do the work that its certificates are of? Pure.

Each run writes down losses and some values of each tensor (`dlperf.adapters.trace.samples`) on its way. They are held
against a run of the reference, the networks written out in NumPy, from the same weights on the same batches.

Two right runs differ: by rounding, which grows with each step until it decides, and by the masks of dropout. By how
much is measured, not assumed: the reference runs twice, differing in what may differ. With dropout its second run has
other masks; without, it has the precision of the row, and the first has more. So at each step

    e = how far the reference's two runs are apart      d = how far a run is from the reference's first

and a run that does the same has d <= SLACK * e: in losses, relatively; in what training changed, as a share of it, of
all tensors together and of each. Without dropout, e is the largest of all steps up to the next one that is looked at:
frameworks round by different amounts, and what grows from that decides earlier in one than in another. With
dropout, e is what masks do, which is much the same in all runs; it is looked at between each two states, so that what
was right before hides nothing. There d is between two bars (`Masks`) times e, and parameters move as far as the
reference's: masks turn a change more than they lengthen it.

What right runs show with dropout is known from 40 runs of the reference in bert_tiny, se_resnext_tiny and vgg_tiny
each, 400 times three of them taken as a run and the two that it is held against, and 1500 times in bert_tiny; larger
models vary less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from dlperf.proof import rounding
from dlperf.proof.rounding import (
    CHANGES,
    MEANS,
    ROUNDOFF,
    SLACK,
    VALUES,
    WEIGHT,
    Bars,
    distance,
    grown,
    norm,
    odd_length,
)
from dlperf.words import count

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Tensors = Mapping[str, "NDArray[numpy.float64]"]

#: the same of losses: numbers by themselves, of which two may be as good as equal by chance
SLACK_OF_LOSSES = 10.0
#: how rarely a right run's loss with dropout may be refused; what masks do to it is known from few draws
REFUSED = 1e-6
#: the same of the direction of a gradient after the last window, at most, and how many times as large a tensor of it:
#: seen 1.24 and 2.2 in BERT-base, where masks make up all of it, so that it is 1.8 times as long in one run
FAR_GRADIENT, LENGTHS_GRADIENT = 1.6, 10.0
#: how far the reference's two runs have a tensor apart in any case, as a share of its change
FLOOR_APART = 5e-3
#: below which differences say nothing: of losses, of running statistics
FLOOR_LOSS, FLOOR_STATISTIC = 2e-6, 1e-2
#: likewise, of typical values of a first update in float32: a weight of 1 has a rounding of 1e-3 of it
FLOOR_UPDATE = 2e-3
#: of a window's seconds, what reading its loss takes where the work was done; the shortest read of a run tells, since
#: on a busy machine one may take long
LATE = 0.25


@dataclass(frozen=True)
class Marks:
    """What a run wrote down. losses: by step, from 1. states: samples of its tensors after so many steps. windows: of
    each, the seconds that it took and those that reading its loss took afterwards. moments: of Adam, "mean" and
    "square" after so many steps."""

    losses: Mapping[int, float]
    states: Mapping[int, Tensors]
    windows: Sequence[tuple[float, float]] = ()
    moments: Mapping[int, Mapping[str, Tensors]] = field(default_factory=dict)

    def changes(self, steps: int, trained: Sequence[str], since: int = 0) -> Tensors:
        return {name: self.states[steps][name] - self.states[since][name] for name in trained}


@dataclass(frozen=True)
class Masks:
    """What the masks of dropout may do to what training changes.

    adam: whether each value of the first update is as large as the learning rate, whatever the masks. least, most: of
    what they do, what a right run shows at least and at most. least_mean, most_mean: the same of the mean of several
    changes. first, later: by how much parameters may move further or less far than the reference's in the first update,
    and in others. lengths: how many times as far, or less far, one tensor may move. apart: how many times as far from
    the reference's as its two runs from each other it may be: in Adam seen 3.8, where they happened to be near."""

    adam: bool
    least: float
    most: float
    least_mean: float
    most_mean: float
    first: float
    later: float
    lengths: float
    apart: float


#: seen 0.87 to 1.16, with a standard deviation of 0.04, 0.97 to 1.02 in BERT-base; the mean 0.91 to 1.11, with 0.03,
#: where it is 0.73 to 0.82 without dropout and 0.84 to 0.89 with half. Lengths 0.005, 0.060 and 1.6
OF_ADAM = Masks(True, 0.85, 1.25, 0.88, 1.14, first=0.015, later=0.12, lengths=1.8, apart=5.0)
#: seen 0.81 to 1.39, with a standard deviation of 0.09 at most; the mean 0.89 to 1.15, with 0.04, where it is 0.64 to
#: 0.79 without dropout and 0.74 to 0.90 with half. Lengths 0.45 and 0.23. In SE-ResNeXt-50 one tensor moved 15 times as
#: far and was 22 times as far apart, so that single ones say nothing
OF_SGD = Masks(False, 0.7, 1.6, 0.82, 1.3, first=0.7, later=0.35, lengths=math.inf, apart=math.inf)


@dataclass(frozen=True)
class Reference:
    """The reference's two runs. masks: what those of dropout may do, by which the two differ; None without dropout.
    bars, means: without it, of changes and of Adam's means of gradients. eps: Adam's, as it is beside its mean of
    gradients after one step."""

    first: Marks
    second: Marks
    masks: Masks | None = None
    bars: Bars = CHANGES
    means: Bars = MEANS
    eps: float = 0.0

    @property
    def steps(self) -> int:
        """Up to which a run is held against it."""
        return max(self.first.states)


def faults(run: Marks, trained: Sequence[str], reference: Reference | None) -> list[str]:
    """What a run did otherwise, in words; empty if nothing that can be seen. trained: names of the tensors that are
    trained. reference: None where there is none; some is seen without."""
    if not reference:
        return [*_alone(run, trained)]
    beside = (
        _losses(run, reference),
        *(one(run, reference, trained) for one in ((_first_update, _moves) if reference.masks else (_means, _changes))),
        _statistics(run, reference, trained),
    )
    return [*_alone(run, trained), *(fault for faults in beside for fault in faults)]


def audited(
    run: Marks, trained: Sequence[str], reference: Reference, momentum: float | None, least: float, least_loss: float
) -> Iterator[str]:
    """What the steps after the last window did otherwise, see dlperf.proof.audit.

    run: with the loss of the second of them, and states after 0, 1 and 2 of them. reference: with the loss of its one
    step, and states before and after it. momentum: None for an optimizer whose update is not looked at. least,
    least_loss: how far apart two right updates may be in any case, as a share of one, and two right losses.
    """
    yield from _losses(run, reference, least_loss)
    before, between, after = (run.states[steps] for steps in (0, 1, 2))
    if all((between[name] == after[name]).all() for name in trained):
        yield "its next step changed no parameter"
    elif momentum is not None:
        first, second = (one.changes(1, trained) for one in (reference.first, reference.second))
        ours = {name: after[name] - between[name] - momentum * (between[name] - before[name]) for name in trained}
        whole = norm(first.values())
        # a weight is stored rounded, and what changes it may be smaller than that
        rounding = ROUNDOFF * math.hypot(1, momentum) * norm(between[name] for name in trained) / whole
        found, most = distance(ours, first) / whole, SLACK * max(distance(second, first) / whole, rounding, least)
        if not found <= most:
            yield f"its next update is off by {found:.2g} where {most:.2g} is explained"


def audited_gradient(run: Marks, reference: Reference, beta1: float) -> Iterator[str]:
    """Of Adam, whose update is as large as its learning rate whatever the gradient is: the gradient of the step that is
    audited, by its means before and after it, against those of the reference's, which begins with a mean of zero. With
    dropout, all three have other masks. Where a mean is as it was there was no gradient: of rows that a step did not
    look up "lazy" Adam leaves it. run, reference: as in `audited`."""

    def gradient(marks: Marks, steps: int) -> Tensors:
        after, told = marks.moments[steps]["mean"], marks.moments.get(steps - 1)
        before = told["mean"] if told else {name: 0.0 * mean for name, mean in after.items()}
        return {
            name: (mean != before[name]) * (mean - beta1 * before[name]) / (1 - beta1) for name, mean in after.items()
        }

    ours, theirs, other = gradient(run, 2), gradient(reference.first, 1), gradient(reference.second, 1)
    longer = norm(ours.values()) / math.sqrt(norm(theirs.values()) * norm(other.values())) or 1.0
    far = _far({name: gradient / longer for name, gradient in ours.items()}, theirs, other)
    if reference.masks and not far <= FAR_GRADIENT:
        yield (
            f"its next gradient is another: {far:.2f} times as far from the reference's as other masks of dropout take "
            f"it, where {FAR_GRADIENT} is explained"
        )
    odd = odd_length(ours, theirs, other, LENGTHS_GRADIENT, "next gradient")
    if odd:
        yield odd


def _alone(run: Marks, trained: Sequence[str]) -> Iterator[str]:
    """What is wrong with a run by itself."""
    seen: dict[float, int] = {}
    for step, loss in sorted(run.losses.items()):
        if loss in seen:
            yield f"its losses of steps {seen[loss]} and {step} are the same to the last bit"
            return
        seen[loss] = step
    reads = [read for _, read in run.windows]
    if reads and min(reads) > LATE * median(seconds for seconds, _ in run.windows):
        yield f"its windows end before their work does: reading a loss then took {min(reads):.2g} s and more"
    *_, before, last = (0, 0, *sorted(run.states))
    if before < last and all((run.states[before][name] == run.states[last][name]).all() for name in trained):
        yield f"no parameter changed between steps {before} and {last}"


def _losses(run: Marks, reference: Reference, least: float = FLOOR_LOSS) -> Iterator[str]:
    shared = sorted(run.losses.keys() & reference.first.losses.keys() & reference.second.losses.keys())
    apart = {step: _relative(reference.first.losses[step], reference.second.losses[step]) for step in shared}
    typical = math.sqrt(sum(one**2 for one in apart.values()) / len(apart)) if apart else 0.0
    for step in shared:
        most = _beyond(len(apart)) * typical if reference.masks else SLACK_OF_LOSSES * grown(apart, step)
        most = max(most, SLACK_OF_LOSSES * least)
        found = _relative(run.losses[step], reference.first.losses[step])
        if not found <= most:
            yield (
                f"its loss at step {step} is {run.losses[step]:.6g}, the reference's "
                f"{reference.first.losses[step]:.6g}: off by {found:.0e} where {most:.0e} is explained"
            )
            return


def _beyond(draws: int) -> float:
    """Student's t: how many times the root mean square of so many draws another one reaches with REFUSED."""
    from scipy import stats  # a slow import

    return float(stats.t.ppf(1 - REFUSED / 2, draws))


def _relative(x: float, y: float) -> float:
    return abs(x - y) / max(abs(x), abs(y)) if x != y else 0.0


def _first_update(run: Marks, reference: Reference, trained: Sequence[str]) -> Iterator[str]:
    """With dropout: Adam's first update is as large as its learning rate wherever a gradient is much larger than its
    epsilon, whatever the masks, which decide over signs alone. So most values of two right runs are alike."""
    whole = all(1 in one.states for one in (run, reference.first, reference.second))
    if not (reference.masks and reference.masks.adam and whole):
        return
    first, second, ours = (one.changes(1, trained) for one in (reference.first, reference.second, run))
    found, most = _typical(ours, first), SLACK * max(_typical(second, first), FLOOR_UPDATE)
    if not found <= most:
        yield f"half of the values of its first update are off by {found:.2g} or more, where {most:.2g} is explained"


def _typical(ours: Tensors, theirs: Tensors) -> float:
    """The median of the relative differences of values."""
    import numpy

    parts = [(ours[name].ravel(), theirs[name].ravel()) for name in theirs]
    mine, other = (numpy.concatenate(several) for several in zip(*parts, strict=True))
    moved = other != 0
    return float(numpy.median(abs(mine - other)[moved] / abs(other)[moved])) if moved.any() else 0.0


def _moves(run: Marks, reference: Reference, trained: Sequence[str]) -> Iterator[str]:
    """With dropout: what changed from each state to the next, and on the mean of these changes."""
    shares, masks = [], reference.masks or OF_ADAM
    looked_at = sorted(run.states.keys() & reference.first.states.keys() & reference.second.states.keys())
    for since, until in pairwise(looked_at):
        ours, theirs, other = (one.changes(until, trained, since) for one in (run, reference.first, reference.second))
        fault = _moved(until == 1, ours, theirs, other, masks)
        if fault:
            yield f"from step {since} to {until} {fault}"
            return
        if until > 1:
            shares.append(_far(ours, theirs, other))
    if len(shares) > 1 and not masks.least_mean <= fmean(shares) <= masks.most_mean:
        yield (
            f"in {len(shares)} parts its parameters have changed otherwise: {fmean(shares):.2f} times as far from the "
            f"reference's as other masks of dropout take them, where {masks.least_mean} to {masks.most_mean} is "
            "explained"
        )


def _far(ours: Tensors, theirs: Tensors, other: Tensors) -> float:
    """How far a change is from the reference's two, as a share of how far they are apart: their mean, which varies less
    than one of them."""
    near, apart = (distance(ours, theirs) + distance(ours, other)) / 2, distance(other, theirs)
    return near / apart if apart else math.inf


def _moved(first: bool, ours: Tensors, theirs: Tensors, other: Tensors, masks: Masks) -> str:
    """What is wrong with a change; empty if nothing. first: it is the first update. Of Adam's masks decide signs alone,
    see `_first_update`."""
    whole = math.sqrt(norm(theirs.values()) * norm(other.values()))
    length, most = norm(ours.values()) / whole, masks.first if first else masks.later
    signs = first and masks.adam
    if not abs(length - 1) <= most:
        return (
            f"its parameters have moved {length:.3g} times as far as the reference's, where {most} more or less is "
            "explained"
        )
    far = _far(ours, theirs, other)
    if not signs and not far <= masks.most:
        return (
            f"its parameters have changed otherwise: {far:.2f} times as far from the reference's as other masks of "
            f"dropout take them, where {masks.most} is explained"
        )
    if not signs and far < masks.least:
        return (
            f"its parameters are nearer to the reference's ({far:.2f}) than other masks of dropout take them: dropout "
            "is off, or less"
        )
    return odd_length(ours, theirs, other, masks.lengths, "change") or (
        "" if signs else _odd_move(ours, theirs, other, whole, masks.apart)
    )


def _odd_move(ours: Tensors, theirs: Tensors, other: Tensors, whole: float, most: float) -> str:
    """The first tensor that is much further from the reference's than its two runs from each other; empty if none."""
    for name in theirs:
        length = math.sqrt(norm([theirs[name]]) * norm([other[name]]))
        if length < WEIGHT * whole or theirs[name].size < VALUES:
            continue
        apart = max(norm([other[name] - theirs[name]]), FLOOR_APART * length)
        near = norm([ours[name] - theirs[name]])
        if not near <= most * apart:
            return (
                f"{name} has changed otherwise: off by {near / length:.2g} of its change, {near / apart:.2g} times as "
                "much as masks do"
            )
    return ""


def _means(run: Marks, reference: Reference, trained: Sequence[str]) -> Iterator[str]:
    """Without dropout: Adam's means of gradients. They show what an update does not, which is as large whatever the
    gradient is; and rounding moves them as it moves gradients, while an update may turn round."""

    ours, first, second = (_mean(one) for one in (run, reference.first, reference.second))
    return rounding.faults(ours, first, second, reference.means)


def _mean(marks: Marks) -> dict[int, Tensors]:
    return {steps: moments["mean"] for steps, moments in marks.moments.items() if steps}


def _changes(run: Marks, reference: Reference, trained: Sequence[str]) -> Iterator[str]:
    """Without dropout: what changed since the start; by Adam, of values whose first update was decided."""
    clear: dict[str, Any] = dict.fromkeys(trained, True)
    first, second = _mean(reference.first), _mean(reference.second)
    if first.keys() & second.keys():
        steps = min(first.keys() & second.keys())
        clear = rounding.decided(first[steps], second[steps], reference.bars, reference.eps)

    def changes(marks: Marks) -> dict[int, Tensors]:
        moved = {steps: marks.changes(steps, trained) for steps in marks.states if steps}
        return {steps: {name: clear[name] * one for name, one in found.items()} for steps, found in moved.items()}

    return rounding.faults(changes(run), changes(reference.first), changes(reference.second), reference.bars)


def _statistics(run: Marks, reference: Reference, trained: Sequence[str]) -> Iterator[str]:
    """Of what is kept and not trained: means, since some divide a variance by n and some by n - 1."""
    first, second = reference.first, reference.second
    means = [name for name in first.states[0] if name not in trained and not name.endswith("_var")]
    shared = sorted((first.states.keys() & second.states.keys()) - {0}) if means else []
    aparts = {steps: _apart(second, first, steps, means) for steps in shared}
    for steps in [one for one in shared if one in run.states]:
        found, most = _apart(run, first, steps, means), max(SLACK * grown(aparts, steps), FLOOR_STATISTIC)
        if not found <= most:
            yield f"after {count(steps, 'step')} its running means are off by {found:.2g} of their change"
            return


def _apart(one: Marks, other: Marks, steps: int, trained: Sequence[str]) -> float:
    theirs = other.changes(steps, trained)
    return distance(one.changes(steps, trained), theirs) / norm(theirs.values())
