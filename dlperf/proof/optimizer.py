"""Has a run's optimizer the constants that it must have? Pure.

Adam (`faults`): is the update the one that it makes of the run's own gradients? What 16 bits do to a gradient hides
what another beta2 or half of the decay does to a weight. But weights, Adam's two moments and the update itself are in
float32 in each precision, and a run hands these out. So between two states that are one step apart, whatever the
gradient g was (`dlperf.models.bert.Optimizer` has the formulas),

    g = (m' - beta1 m) / (1 - beta1)        v' = beta2 v + (1 - beta2) g^2
    w' = w - learning_rate (m' / (1 - beta1^t) / (sqrt(v' / (1 - beta2^t)) + eps) + weight_decay w)

hold to the rounding of float32: six frameworks show 0.02 of the decay and 1e-5 of the learning rate. Whether g is the
gradient of the right loss is another question, which `measured` asks of the moments.

SGD with momentum (`faults_of_sgd`): of its velocity a run shows nothing that its weights do not. But in the first two
steps, from common weights, rounding moves each value of a weight its own way, where a constant moves all of them along
one direction d, which is known. So of what a run differs from the reference, y, these explain the c for which |y - c d|
is least, each value as a multiple of its tensor's rounding error: 0 where the constants are right. That error is the
median of how far the reference's two runs are apart; what is beyond three of it counts by its size and not its square
(Huber, "Robust estimation of a location parameter", 1964).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dlperf.proof.rounding import ROUNDOFF

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Tensors = Mapping[str, "NDArray[numpy.float64]"]
    Moments = Mapping[str, Tensors]

#: of Adam
MOMENTS = ("mean", "square")
#: how far squares may be from what they must be, as a share of a tensor's: 1 - 0.999 in float32 is 4.7e-5 off
SQUARES = 2e-4
#: how far off the learning rate may be, as a share of it; seen 1.3e-5
RATE = 2e-4
#: of the decay of weights, how much may be missing, or spared tensors may have: 1 - 1e-6 in float32 is 0.02 of it off
DECAY = 0.1
#: what rounding of the update adds to that of the weight, as a share of the learning rate
FINE = 1e-5
#: how many times its rounding a tensor may be off besides; seen 0.6
ROUNDINGS = 4.0
#: of SGD, in float32 and in 16 bits: how far off the learning rate may be, as a share of it, momentum, and decay, as in
#: DECAY. Seen 1e-6, 1e-5 and 0.06 in float32 and 0.004, 0.009 and 0.03 in bfloat16, in ResNet-50 and the tiny one
SGD, SGD_OF_HALVES = (1e-3, 2e-3, 0.25), (1e-2, 2e-2, 0.25)
#: rounding errors beyond which a difference counts by its size, and how often weights are made for that
HUBER, ROUNDS = 3.0, 30
#: how many roundings of a weight decay must move it by, to be read: of less, rounding leaves some other share (in the
#: tiny VGG, whose learning rate times decay is 1.6e-8, six frameworks and NumPy have 0.7 of it in float32)
READABLE = 3.0
#: the standard deviation of a normal distribution as a multiple of the median of its sizes
DEVIATION = 1.4826


def faults(
    states: Mapping[int, Tensors],
    moments: Mapping[int, Moments],
    decayed: Mapping[str, bool],
    recipe: Any,
    since: int = 0,
    tables: Collection[str] = (),
) -> Iterator[str]:
    """What is otherwise in the first update that is, in words. states, moments ("mean" and "square"): by steps, of each
    tensor. decayed: of each that is trained, whether it decays. recipe: the constants. since: steps made before.
    tables: names of those of which a step updates some rows alone, as "lazy" Adam does, and leaves all others, and
    their moments, as they are."""
    for before, after in pairwise(sorted(states)):
        if after > before + 1:
            continue
        if after not in moments or (before not in moments and since + before):
            yield "it hands out no moments of its optimizer"
            return
        zero = {name: 0.0 * states[before][name] for name in decayed}
        old = moments[before] if since + before else {"mean": zero, "square": zero}
        first, second, new = states[before], states[after], moments[after]
        for name in tables:
            moved = first[name] != second[name]
            for moment in MOMENTS:
                moved = moved | (old[moment][name] != new[moment][name])
            first, second = ({**one, name: one[name][moved]} for one in (first, second))
            old, new = (
                {moment: {**one[moment], name: one[moment][name][moved]} for moment in MOMENTS} for one in (old, new)
            )
        fault = _squares(old, new, decayed, recipe) or _update(first, second, new, decayed, recipe, since + after)
        if fault:
            yield f"from step {since + before} to {since + after} {fault}"
            return


def _squares(old: Moments, new: Moments, names: Iterable[str], recipe: Any) -> str:
    """The first tensor of whose mean and square of gradients one is not what the other says; empty if none is."""
    import numpy

    for name in names:
        gradient = (new["mean"][name] - recipe.beta1 * old["mean"][name]) / (1 - recipe.beta1)
        must = recipe.beta2 * old["square"][name] + (1 - recipe.beta2) * gradient**2
        found = float(numpy.linalg.norm(new["square"][name] - must))
        if not found <= SQUARES * float(numpy.linalg.norm(must)):
            return f"{name} has moments that no gradient gives with beta1 {recipe.beta1} and beta2 {recipe.beta2}"
    return ""


def _update(before: Tensors, after: Tensors, new: Moments, decayed: Mapping[str, bool], recipe: Any, step: int) -> str:
    """What is otherwise in an update; empty if nothing. step: its number, from 1.

    Of what all weights are off, as multiples of their rounding, the least squares of three directions: the update, the
    decay of what decays, and that of all else."""
    import numpy

    off, directions = {}, {}
    for name, decays in decayed.items():
        mean, square = new["mean"][name] / (1 - recipe.beta1**step), new["square"][name] / (1 - recipe.beta2**step)
        change, decay = mean / (numpy.sqrt(square) + recipe.eps), recipe.weight_decay * before[name]
        must = before[name] - recipe.learning_rate * (change + decays * decay)
        rounding = ROUNDOFF * numpy.maximum(abs(before[name]), abs(after[name])) + FINE * recipe.learning_rate
        parts = numpy.stack([change, decays * decay, (not decays) * decay])
        off[name], directions[name] = (after[name] - must) / rounding, -recipe.learning_rate * parts / rounding
    every = numpy.concatenate([*directions.values()], axis=1)
    shares = numpy.linalg.lstsq(every.T, numpy.concatenate([*off.values()]), rcond=None)[0]
    rate, decay, spared = map(float, shares)
    if not abs(rate) <= RATE:
        return f"its learning rate was {1 + rate:.5g} times what it must be"
    if not abs(decay) <= DECAY:
        return f"its decay of weights was {1 + decay:.2g} times what it must be"
    if not abs(spared) <= DECAY:
        return f"what must not decay did, by {spared:.2g} of what decays"
    for name, found in off.items():
        left = float(numpy.sqrt(numpy.mean((found - shares @ directions[name]) ** 2))) if found.size else 0.0
        if not left <= ROUNDINGS:
            return f"{name} was updated otherwise than Adam does: off by {left:.2g} times its rounding"
    return ""


def faults_of_sgd(
    run: Mapping[int, Tensors],
    first: Mapping[int, Tensors],
    second: Mapping[int, Tensors],
    decayed: Mapping[str, bool],
    recipe: Any,
    most: tuple[float, float, float],
) -> Iterator[str]:
    """What is otherwise in the first two updates, in words. run, first, second: states by steps, of the run and of the
    reference's two. decayed, recipe: as in `faults`. most: SGD or SGD_OF_HALVES."""
    if not all({0, 1, 2} <= one.keys() for one in (run, first, second)):
        return
    import numpy

    off, directions = [], []
    for name, decays in decayed.items():
        start, between, after = (first[steps][name] for steps in (0, 1, 2))
        rounding = DEVIATION * float(numpy.median(abs(second[2][name] - after)))
        rounding += ROUNDOFF * float(numpy.median(abs(after)))
        if rounding:  # a tensor that begins as zeros and does not move tells nothing
            decay = -recipe.learning_rate * recipe.weight_decay * (2 + recipe.momentum) * start
            parts = (after - start, between - start, decays * decay, (not decays) * decay)
            off.append((run[2][name] - after) / rounding)
            directions.append(numpy.stack(parts) / rounding)
    every, difference = numpy.concatenate(directions, axis=1), numpy.concatenate(off)
    shares: NDArray[numpy.float64] = numpy.zeros(len(every))
    for _ in range(ROUNDS):
        weighted = every / numpy.maximum(1, abs(difference - shares @ every) / HUBER)
        shares = numpy.linalg.lstsq(weighted @ every.T, weighted @ difference, rcond=None)[0].astype(float)
    rate, momentum, decay, spared = map(float, shares)
    of_rate, of_momentum, of_decay = most
    if not abs(rate) <= of_rate:
        yield f"in its first two updates the learning rate was {1 + rate:.4g} times what it must be"
    elif not abs(momentum) <= of_momentum:
        yield f"in its first two updates momentum was {recipe.momentum + momentum:.3g}, must be {recipe.momentum:g}"
    elif recipe.learning_rate * recipe.weight_decay * (2 + recipe.momentum) < READABLE * ROUNDOFF:
        return
    elif not abs(decay) <= of_decay:
        yield f"in its first two updates decay of weights was {1 + decay:.2g} times what it must be"
    elif not abs(spared) <= of_decay:
        yield f"in its first two updates what must not decay did, by {spared:.2g} of what decays"
