"""From trajectories to certificates: did the frameworks do the same work? Pure.

All systems train the same steps from the same weights on the same batches, without dropout. What they compute is
compared in pairs, by relative errors:

    loss             |a - b| / max(|a|, |b|), at each step
    gradient norm    likewise, the norm of all gradients before clipping
    tensor           |a - b| / max(|a|, |b|, FLOOR * m), | | the Euclidean norm, m the root mean square of the norms of
                     all tensors of its sort: first logits, first gradients, changes of parameters over all steps,
                     BatchNorm's running statistics after them

FLOOR is for tensors that mathematics makes zero, as the gradient of a key's bias is: only rounding is left in them. A
change is what training did to a parameter; beside it an error is not hidden by what the parameter was before.

In float64 rounding is 1e-16, so what is left after ten steps tells a different computation from a differently rounded
one. float32 is judged, too, because a float64 run may take other kernels than the measured one, and a wrong constant in
those (an eps, a momentum) shows there as 1e-2 or more; `dlperf.proof.bars` says by how much rounding may move it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from dlperf import models
from dlperf.precision import TABLE
from dlperf.proof import decay
from dlperf.proof.bars import Bars, bars_for
from dlperf.schema import Certificate, Difference, Job, Trajectory

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

FLOOR = 1e-3
#: a relative error in place of infinity, which JSON does not know
FAR = 1e300
#: share of a step's time that `read` may take after `wait`: more in most steps, and `wait` had not waited
READ_SHARE = 0.1
#: seconds that a `read` may take in any case: in tiny models the call itself is a good part of a step
READ_SECONDS = 0.01
REFERENCE = "reference"
#: the kind of a trajectory's failure that is none: --no-verify
NOT_ASKED = "unproven"
SORTS = ("logits", "gradient", "change", "statistic")
#: keys of Trainer.effective that say of every model what work was done
COMMON_WORK = ("precision", "compute_dtype", "loss_scale", "data", "compression")
#: an option and its value that change nothing, see dlperf.adapters.compression
UNCOMPRESSED = ("compression", "none")


def work_keys(family: str) -> tuple[str, ...]:
    """Keys of Trainer.effective, and options, that say what work was done; all others say how."""
    return (*COMMON_WORK, *(models.FAMILIES[family].WORK if family in models.FAMILIES else ()))


def work_options(of: Job | Trajectory) -> dict[str, str]:
    """Of its options those that change the work. No compression of gradients is what it is for systems without."""
    keys = work_keys(of.family)
    return {key: value for key, value in of.options.items() if key in keys and (key, value) != UNCOMPRESSED}


@dataclass(frozen=True)
class Evidence:
    """A trajectory with its sketches, by name, as dlperf.adapters.trace writes them."""

    trajectory: Trajectory
    sketches: Mapping[str, NDArray[numpy.float64]]


def judge(pool: Sequence[Evidence], reference: Evidence | None = None) -> list[Certificate]:
    """One certificate for each system of a pool that trained the same job in the same precision, fp64 or fp32.

    The same work is what the reference did, where there is one; else what most of the pool did.
    """
    bars = bars_for(pool[0].trajectory)
    assert bars, pool[0].trajectory.precision
    reference = reference and _corrected(reference)[0]
    sound = [_corrected(one)[0] for one in pool if not fault(one)]
    witnesses = [*([reference] if reference else []), *sound]
    measure = {
        (a.trajectory.system, b.trajectory.system): difference(a, b, bars)
        for a in witnesses
        for b in witnesses
        if a is not b
    }
    anchor = reference or _most_agreed(sound, measure, bars)
    group = [
        one.trajectory.system for one in witnesses if anchor and (one is anchor or _agree(one, anchor, measure, bars))
    ]
    return [_certificate(one, witnesses, measure, anchor, group, bars) for one in pool]


def difference(ours: Evidence, theirs: Evidence, bars: Bars) -> Difference:
    """How far apart two trajectories of the same job are."""
    ours, theirs = settled(ours), settled(theirs)
    a, b = ours.trajectory, theirs.trajectory
    losses = tuple(_relative(x, y) for x, y in zip(a.losses, b.losses, strict=True))
    norms = [
        _relative(x, y)
        for x, y in zip(a.gradient_norms, b.gradient_norms, strict=True)
        if x is not None and y is not None
    ]
    worst = {sort: worst_tensor(ours.sketches, theirs.sketches, sort + "/") for sort in SORTS}
    decays = decay.off(ours.sketches, theirs.sketches, a)
    decayed = max(decays, key=lambda group: decays[group], default="")
    return Difference(
        other=b.system,
        losses=losses,
        gradient_norm=max(norms, default=None),
        logits=worst["logits"][0] or 0.0,
        logits_tensor=worst["logits"][1],
        gradient=worst["gradient"][0],
        gradient_tensor=worst["gradient"][1],
        change=worst["change"][0] or 0.0,
        change_tensor=worst["change"][1],
        statistic=worst["statistic"][0],
        statistic_tensor=worst["statistic"][1],
        gradients=vector_error(ours.sketches, theirs.sketches, "gradient/"),
        changes=vector_error(ours.sketches, theirs.sketches, "change/"),
        decay=decays.get(decayed),
        decay_tensors=decayed,
        parted=next((step for step, error in enumerate(losses, 1) if not error <= bars.loss), None),
    )


def settled(one: Evidence) -> Evidence:
    """Without the tensors that the work leaves open."""
    of = one.trajectory.model
    parameters = models.family(of).parameters(models.config(of))
    idle = {f"{sort}/{p.name}" for p in parameters if not p.settled for sort in SORTS}
    return replace(one, sketches={name: kept for name, kept in one.sketches.items() if name not in idle})


def _relative(x: float, y: float) -> float:
    return 0.0 if x == y else abs(x - y) / max(abs(x), abs(y))


_Sketches = Mapping[str, "NDArray[numpy.float64]"]


def _shared(ours: _Sketches, theirs: _Sketches, prefix: str) -> list[str]:
    return [name for name in ours if name.startswith(prefix) and name in theirs]


def worst_tensor(ours: _Sketches, theirs: _Sketches, prefix: str) -> tuple[float | None, str]:
    """The largest relative error and its tensor; (None, "") where one of the two has no tensors of this sort."""
    import numpy

    names = _shared(ours, theirs, prefix)
    if not names:
        return None, ""
    norms = {name: max(_norm(ours[name]), _norm(theirs[name])) for name in names}
    floor = FLOOR * math.sqrt(math.fsum(norm**2 for norm in norms.values()) / len(norms))
    errors = {name: _norm(numpy.subtract(ours[name], theirs[name])) for name in names}
    relative = {name: errors[name] / max(norms[name], floor) if errors[name] else 0.0 for name in names}
    worst = max(relative, key=lambda name: (math.inf if math.isnan(relative[name]) else relative[name]))
    return relative[worst], worst.removeprefix(prefix)


def vector_error(ours: _Sketches, theirs: _Sketches, prefix: str) -> float | None:
    """The relative error of all tensors of a sort together; None where one of the two has none."""
    names = _shared(ours, theirs, prefix)
    if not names:
        return None
    off = math.sqrt(math.fsum(_norm(ours[name] - theirs[name]) ** 2 for name in names))
    whole = math.sqrt(math.fsum(_norm(theirs[name]) ** 2 for name in names))
    return min(off / whole, FAR) if whole else FAR if off else 0.0


def _norm(values: NDArray[numpy.float64]) -> float:
    return math.sqrt(float((values * values).sum()))


def within(found: Difference, bars: Bars) -> bool:
    names = ("loss", "logits", "gradient", "change", "statistic", "gradients", "changes", "decay")
    pairs = [(getattr(found, name), getattr(bars, name)) for name in names]
    return all(bar is None or error is None or error <= bar for error, bar in pairs)


_Measure = Mapping[tuple[str, str], Difference]


def _agree(a: Evidence, b: Evidence, measure: _Measure, bars: Bars) -> bool:
    return within(measure[a.trajectory.system, b.trajectory.system], bars_of(a, b, bars))


def bars_of(a: Evidence, b: Evidence, bars: Bars) -> Bars:
    """The bars of a pair: wider for running statistics where a kernel of one of the two has no float64 for them, and
    those of float32 where the servers of one of them have nothing else."""
    if _single(a) or _single(b):
        return bars_for(replace(a.trajectory, precision="fp32")) or bars
    if bars.statistic is None or not (_narrow_decay(a) or _narrow_decay(b)):
        return bars
    return replace(bars, statistic=max(bars.statistic, decay_error(a.trajectory)))


def _most_agreed(pool: Sequence[Evidence], measure: _Measure, bars: Bars) -> Evidence | None:
    """The one that most others agree with; None where nobody agrees, or two camps are equally large."""
    camps = {
        id(one): {id(other) for other in pool if other is one or _agree(one, other, measure, bars)} for one in pool
    }
    ranked = sorted(pool, key=lambda one: -len(camps[id(one)]))
    if not ranked or len(camps[id(ranked[0])]) < 2:
        return None
    best = camps[id(ranked[0])]
    rivals = [one for one in ranked if id(one) not in best and len(camps[id(one)]) == len(best)]
    return None if rivals else ranked[0]


def _certificate(
    one: Evidence,
    witnesses: Sequence[Evidence],
    measure: _Measure,
    anchor: Evidence | None,
    group: Sequence[str],
    bars: Bars,
) -> Certificate:
    if refused := refusal(one):
        return refused
    trajectory, mine = one.trajectory, one.trajectory.system
    others = [other.trajectory.system for other in witnesses if other.trajectory.system != mine]
    differences = tuple(measure[mine, other] for other in others)
    exceptions = _corrected(one)[1]
    if not others:
        return Certificate(trajectory, "unproven", "there is no other system to compare it with", exceptions=exceptions)
    if mine in group and len(group) > 1:
        told = [found.loss for found in differences if found.other in group]
        size = measure[mine, REFERENCE].loss if REFERENCE in group else max(told)
        return Certificate(trajectory, "same", "", size, differences, exceptions)
    against = measure[mine, anchor.trajectory.system] if anchor else min(differences, key=lambda found: found.loss)
    why = _parting(against, bars_of(one, anchor or one, bars)) + (
        "" if anchor else ", and no two systems that agree outnumber the others"
    )
    return Certificate(trajectory, "different", why, against.loss, differences, exceptions)


def _parting(found: Difference, bars: Bars) -> str:
    """Where two trajectories part, in words."""
    whom = "the reference" if found.other == REFERENCE else found.other
    parts = []
    if found.logits and bars.logits is not None and found.logits > bars.logits:
        parts.append(f"its first {found.logits_tensor} are off by {short(found.logits)}")
    if found.gradient and bars.gradient is not None and found.gradient > bars.gradient:
        parts.append(f"its first gradients by up to {short(found.gradient)} ({found.gradient_tensor})")
    elif found.gradients and bars.gradients is not None and found.gradients > bars.gradients:
        parts.append(f"its first gradients, as one vector, by {short(found.gradients)}")
    if found.parted is not None:
        parts.append(f"its losses part at step {found.parted}, by {short(found.loss)} at most")
    if bars.change is not None and found.change > bars.change:
        parts.append(f"its parameters change otherwise by up to {short(found.change)} ({found.change_tensor})")
    elif found.changes and bars.changes is not None and found.changes > bars.changes:
        parts.append(f"its parameters, as one vector, change otherwise by {short(found.changes)}")
    if bars.statistic is not None and found.statistic is not None and found.statistic > bars.statistic:
        parts.append(f"its running statistics are off by up to {short(found.statistic)} ({found.statistic_tensor})")
    if bars.decay is not None and found.decay is not None and found.decay > bars.decay:
        parts.append(f"the decay of its {found.decay_tensors} by {found.decay:.2g} times the model's")
    return f"against {whom}, {', '.join(parts)}"


def refusal(one: Evidence) -> Certificate | None:
    """The certificate of a trajectory with a fault."""
    trajectory, wrong = one.trajectory, fault(one)
    parted = not trajectory.failure or trajectory.failure.kind == "ranks_differ"
    return Certificate(trajectory, "different" if parted else "unproven", wrong) if wrong else None


def fault(one: Evidence) -> str:
    """What is wrong with a trajectory without any other beside it; empty if nothing."""
    trajectory = one.trajectory
    if trajectory.failure and trajectory.failure.kind == NOT_ASKED:
        return trajectory.failure.message
    if trajectory.failure:
        return f"{trajectory.failure.kind}: {trajectory.failure.message}"
    ran, asked = trajectory.effective.get("compute_dtype", ""), TABLE[trajectory.precision].dtype
    if ran != asked:
        return f"it computed in {ran or 'an unknown type'}, not in {asked}"
    return _unwaited(trajectory.step_seconds[1:], trajectory.read_seconds[1:])


def _unwaited(steps: Sequence[float], reads: Sequence[float]) -> str:
    """By medians: a step whose work was done before it was waited for shows nothing."""
    if not reads:
        return ""
    read, total = median(reads), median(step + read for step, read in zip(steps, reads, strict=True))
    if read <= max(READ_SHARE * total, READ_SECONDS):
        return ""
    return f"its `wait` does not wait: reading a loss after it took {read / total:.0%} of a step"


#: keys of Trainer.effective that say no kernel, or that a proof cannot have in common with a measured run
NO_KERNEL = frozenset(
    ["precision", "compute_dtype", "loss_scale", "dropout", "masked_positions", "data", "threads", "communication"]
)


def other_kernels(trajectory: Trajectory, measured: Mapping[str, str]) -> list[str]:
    """Keys of `effective` in which the run that a proof is from and a measured one differ, as far as both have them."""
    proven = trajectory.effective
    return [key for key in proven if key not in NO_KERNEL and measured.get(key) not in (None, proven[key])]


def verdict(certificates: Sequence[Certificate], measured: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Of a row by its certificates: same | different | unproven, and a phrase: "same work: 3e-13 (fp64)". measured:
    `effective` of its runs; where a proof took other kernels, the phrase has "fp64 of another kernel"."""
    if not certificates:
        return "unproven", "no proof"
    for word, phrase in (("different", "different work"), ("unproven", "no proof")):
        bad = [one for one in certificates if one.verdict == word]
        if bad:
            reasons: dict[str, list[str]] = {}
            for one in bad:
                reasons.setdefault(one.why, []).append(_precision(one))
            return word, f"{phrase}: " + "; ".join(f"{', '.join(of)}: {why}" for why, of in reasons.items())
    return "same", "same work: " + ", ".join(f"{size(one)} ({_precision(one, measured)})" for one in certificates)


def size(certificate: Certificate) -> str:
    """Of the disagreement: the largest relative error of a loss, or the share of the bound of low precision."""
    if certificate.bounds:
        return (
            f"{max(bound.found / bound.most if bound.most else 0.0 for bound in certificate.bounds):.2f} of its bound"
        )
    return "–" if certificate.size is None else short(certificate.size)


def short(error: float) -> str:
    """`3e-13`; exact agreement is 0."""
    return f"{error:.0e}".replace("e-0", "e-") if error else "0"


def _precision(certificate: Certificate, measured: Mapping[str, str] | None = None) -> str:
    of = certificate.trajectory
    other = " of another kernel" if other_kernels(of, measured or {}) else ""
    return of.precision.removeprefix("amp_") + other + (f", {of.ranks} ranks" if of.ranks > 1 else "")


def _corrected(one: Evidence) -> tuple[Evidence, tuple[str, ...]]:
    """Take out what a framework's kernels are known to compute otherwise, and say so.

    A biased running variance: after T steps it is d^T + B where the others have d^T + B n / (n - 1), d being the share
    that is kept and n the number of values of a channel in a batch. It does not enter training.
    """
    trajectory = one.trajectory
    cause = trajectory.effective.get("bn_running_variance", "")
    said = _said_of_narrow(one)
    if not cause.startswith("biased"):
        return one, said
    import numpy

    from dlperf.adapters.trace import sketch

    config = models.config(trajectory.model)
    sizes = {p.name: p.size for p in models.family(trajectory.model).parameters(config)}
    sketches, worst = dict(one.sketches), 0.0
    for norm, values in models.family(trajectory.model).normalised(config).items():
        name, n = f"{norm}.running_var", values * trajectory.batch_size // trajectory.ranks
        before = one.sketches["statistic/" + name]
        left = config.bn_decay**trajectory.steps * sketch(name, numpy.ones(sizes[name]))
        sketches["statistic/" + name] = after = (before - left) * (n / (n - 1)) + left
        worst = max(worst, _norm(after - before) / _norm(after))
    text = f"running variances of BatchNorm: {cause}; up to {short(worst)} off, taken out before comparing"
    return replace(one, sketches=sketches), (text, *said)


#: how an adapter ends the value of a constant that its kernel has as float32 in float64 runs too
NARROW = ", as float32"


def _narrow_decay(one: Evidence) -> bool:
    return one.trajectory.effective.get("bn_decay", "").endswith(NARROW)


def _single(one: Evidence) -> bool:
    """Whether its parameter servers keep float32, whatever they are given."""
    return one.trajectory.precision == "fp64" and one.trajectory.effective.get("server_dtype") == "float32"


def decay_error(trajectory: Trajectory) -> float:
    """How far running statistics may be off after T steps if the share kept is d' = float32(0.9) in place of d = 0.9.

    They are sums of d^k (1 - d) s, k < T, and of d^T: to first order (T / d + 1 / (1 - d)) |d' - d|, relative.
    """
    kept, float32 = 0.9, 0.8999999761581421
    return (trajectory.steps / kept + 1 / (1 - kept)) * abs(float32 - kept)


def _said_of_narrow(one: Evidence) -> tuple[str, ...]:
    """In float64: the constants that kernels hold as float32, or all that servers do."""
    trajectory = one.trajectory
    if _single(one):
        return ("its servers keep float32, in float64 too: it is held to the bars of float32",)
    held = [f"{key} = {value}" for key, value in trajectory.effective.items() if value.endswith(NARROW)]
    if trajectory.precision != "fp64" or not held:
        return ()
    bar = f"; so the bar of running statistics is {short(decay_error(trajectory))}" if _narrow_decay(one) else ""
    return (f"its kernels have constants in float32, in float64 too: {', '.join(held).replace(NARROW, '')}{bar}",)
