"""The certificates behind the proof column: what was compared, how far apart it was, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dlperf import models
from dlperf.proof import judge
from dlperf.proof.bars import BARS, Bars, bars_for
from dlperf.proof.judge import REFERENCE, SORTS, work_options
from dlperf.report import names, text
from dlperf.report.shape import Column, Proof, Row, Table
from dlperf.schema import Certificate, Comparison, Difference, Record, Trajectory

ABOUT = (
    "Every system trained the same steps from the same weights, a fresh batch at each step, without dropout, and "
    "handed back its outputs, gradients, losses and parameters. They are compared in pairs, by relative errors. In "
    "float64 rounding is 1e-16: what differs by more than a bar is another computation. The learning rate is constant, "
    "here and in measured runs: no schedule is part of a proof.",
    "Loss: the largest relative difference of a loss at any step. Tensors: the Euclidean norm of the difference over "
    "that of the tensor (over a thousandth of the mean norm where that is more, for tensors that are zero but for "
    "rounding); outputs and gradients of the first step, and changes of parameters over all steps.",
    "Low precision is held to what it does to the same network written out in NumPy: three times as much, of losses "
    "ten times, since a loss is one number, which may be right by chance. Where that is not known, the bound "
    "is from the system's own float32 run: rounding error is proportional to the unit roundoff u, and a product in low "
    "precision rounds its two operands and its result, in float32 its result alone. So where float32 moved a system's "
    "results by e, low precision may move them by 3 · e · u / 2^-24. If it moved outputs by less than "
    "e · sqrt(u / 2^-24), low precision did not run.",
    "“of another kernel”: the measured run took other kernels than this proof, as both say of themselves. They are "
    "proven by a proof of the same row in the measured precision of which that is not said.",
)
IN_BAND = (
    "Which push comes before which depends on the machine, so there is no one result. NumPy's network trained in many "
    "orders of pulls and pushes: at each step the mean of the workers' losses must be between the least and most of "
    "these orders, and after the last all workers must find the same parameters."
)
#: the first run that succeeded of each system, model and device, and of each of these in a precision
_Runs = Mapping[tuple[str, ...], Record]
WORDS = {"same": "same work", "different": "different work", "unproven": "no proof"}


def proofs(comparison: Comparison) -> list[Proof]:
    """One for each model, device and precision that has certificates."""
    groups: dict[tuple[object, ...], dict[str, Certificate]] = {}
    for certificates in comparison.proofs.values():
        for one in certificates:
            t = one.trajectory
            work = tuple(sorted(work_options(t).items()))
            groups.setdefault((t.model, t.device, t.precision, t.batch_size, t.ranks, _mode(t), work), {})[t.system] = (
                one
            )
    runs: dict[tuple[str, ...], Record] = {}
    for record in comparison.records:
        if record.done:
            job = record.job
            runs.setdefault((job.system, job.model, job.device), record)
            runs.setdefault((job.system, job.model, job.device, job.precision), record)
    return [_proof(list(group.values()), runs) for group in groups.values()]


def _mode(of: Trajectory) -> str:
    """That of its parameter servers, where it says what several ranks compute."""
    return of.options.get("ps_mode", "") if of.ranks > 1 else ""


def _proof(group: Sequence[Certificate], runs: _Runs) -> Proof:
    first = group[0].trajectory
    banded = _mode(first) == "async"
    low = any(one.bounds for one in group) and not banded
    referred = any(found.other == REFERENCE for one in group for found in one.differences)
    bars = bars_for(first)
    if bars and all(found.gradients is None for one in group for found in one.differences):
        bars = replace(BARS[first.precision], gradients=None, changes=None)  # of older comparisons
    if bars and all(found.decay is None for one in group for found in one.differences):
        bars = replace(bars, decay=None)
    return Proof(
        model=first.of,
        title=f"{names.model(first.of)}, {_precision(first)}, {names.device(first.device)}"
        + (f", {first.ranks} ranks" if first.ranks > 1 else "")
        + (f", {_mode(first)}" if _mode(first) else ""),
        about=tuple(_about(first, None if banded else bars, referred)),
        systems=_band(group) if banded else _bounds(group) if low else _systems(group),
        pairs=None if low or banded else _pairs(group),
        notes=(*_notes(group), *_otherwise(group, runs)),
    )


def _precision(trajectory: Trajectory) -> str:
    return {"fp64": "float64", "fp32": "float32"}.get(trajectory.precision, trajectory.precision)


def _about(trajectory: Trajectory, bars: Bars | None, referred: bool) -> Iterable[str]:
    samples = models.family(trajectory.model).samples(models.config(trajectory.model))
    work = ", ".join(f"{key}={value}" for key, value in work_options(trajectory).items())
    together = f" of {trajectory.ranks} ranks together" if trajectory.ranks > 1 else ""
    about = ", ".join(one for one in (samples, _depth(trajectory), work) if one)
    yield f"Batch {trajectory.batch_size}{together}, {about}; {text.count(trajectory.steps, 'step')}."
    if _mode(trajectory) == "async":
        yield IN_BAND
    if bars:
        tensors = [f"{what} {judge.short(bar)}" for what, bar in _tensor_bars(bars, trajectory) if bar is not None]
        yield f"Bars: {', '.join([f'losses {judge.short(bars.loss)}', *tensors])}."
        if referred:
            yield (
                "The first table is against the published reference, which was made once with PyTorch, so that "
                "PyTorch's own row shows only how this machine differs; the second table has all pairs."
            )


def _depth(trajectory: Trajectory) -> str:
    """Where it has fewer layers than the model of the row: "6 of 24 layers"."""
    layers, of = (getattr(models.config(one), "layers", None) for one in (trajectory.model, trajectory.of))
    return f"{layers} of {of} layers" if layers != of else ""


def _tensor_bars(bars: Bars, trajectory: Trajectory) -> list[tuple[str, float | None]]:
    parameters = models.family(trajectory.model).parameters(models.config(trajectory.model))
    return [
        ("outputs", bars.logits),
        ("gradients", bars.gradient),
        ("all gradients as one vector", bars.gradients),
        ("changes of parameters", bars.change),
        ("all changes as one vector", bars.changes),
        ("weight decay", bars.decay),
        ("running statistics", bars.statistic if any(not one.trained for one in parameters) else None),
    ]


def _systems(group: Sequence[Certificate]) -> Table:
    """Each system against the reference, or where there is none against those that it agrees with: the largest error
    of each sort."""
    errors = ("loss", "at step", "outputs", "gradients", "changes", "statistics")
    titles = ("system", "verdict", *errors, "seconds", "memory (GiB)")
    rows = []
    for one in group:
        agreeing = [found for found in one.differences if one.size is not None and found.loss <= one.size]
        agreeing = [found for found in agreeing if found.other == REFERENCE] or agreeing
        worst = max(agreeing, key=lambda found: found.loss, default=None)
        cells = (
            *(names.system(one.trajectory), WORDS[one.verdict]),
            *((error(worst.loss), str(worst.losses.index(worst.loss) + 1)) if worst else (text.NONE, text.NONE)),
            *(_largest([getattr(found, sort) for found in agreeing]) for sort in SORTS),
            text.number(one.trajectory.seconds, 0),
            text.gibibytes(one.trajectory.peak_memory_bytes, 1),
        )
        rows.append(Row(cells, "" if one.verdict == "same" else "incomparable"))
    return Table((Column(titles[0]), Column(titles[1]), *(Column(title, True) for title in titles[2:])), tuple(rows))


def _largest(errors: Sequence[float | None]) -> str:
    return error(max((value for value in errors if value is not None), default=None))


def _bounds(group: Sequence[Certificate]) -> Table:
    """Low precision: what float32 did to a system's results and low precision to NumPy's, what that allows, and what
    low precision did."""
    titles = ("float32 is off by", "NumPy in low precision by", "low precision must be by", "may be by", "is by")
    rows = []
    for one in group:
        for bound in one.bounds:
            least = error(bound.least or None)
            errors = (error(bound.float32), error(bound.reference), least, error(bound.most), error(bound.found))
            rows.append(Row((names.system(one.trajectory), WORDS[one.verdict], bound.what, *errors)))
        if not one.bounds:
            rows.append(Row((names.system(one.trajectory), WORDS[one.verdict], *[text.NONE] * 6), "incomparable"))
    heads = (Column("system"), Column("verdict"), Column("of"), *(Column(title, True) for title in titles))
    return Table(heads, tuple(rows))


def _band(group: Sequence[Certificate]) -> Table:
    """Where the losses of workers are, whose pushes are applied as they come."""
    rows = []
    for one in group:
        off = max((bound.found for bound in one.bounds), default=None)
        cells = (names.system(one.trajectory), WORDS[one.verdict], text.number(off, 2))
        made = (text.number(one.trajectory.seconds, 0), text.gibibytes(one.trajectory.peak_memory_bytes, 1))
        rows.append(Row((*cells, *made), "" if one.verdict == "same" else "incomparable"))
    titles = ("farthest from the band's middle (1: its edge)", "seconds", "memory (GiB)")
    return Table((Column("system"), Column("verdict"), *(Column(title, True) for title in titles)), tuple(rows))


def _pairs(group: Sequence[Certificate]) -> Table | None:
    """Every pair once: all errors, the worst tensors, and the first step at which the two part."""
    titles = {one.trajectory.system: names.system(one.trajectory) for one in group}
    seen: set[frozenset[str]] = set()
    rows = []
    for one in group:
        for found in one.differences:
            pair = frozenset([one.trajectory.system, found.other])
            if pair not in seen:
                seen.add(pair)
                rows.append(_pair(titles[one.trajectory.system], titles.get(found.other, found.other), found))
    heads = ("loss", "parted at step", "gradient norm", "outputs", "gradients")
    columns = [Column("pair"), *(Column(head, True) for head in heads), Column("worst gradient")]
    columns += [Column("changes", True), Column("worst change")]
    columns += [Column("statistics", True), Column("worst statistic")]
    return Table(tuple(columns), tuple(rows)) if rows else None


def _pair(ours: str, theirs: str, found: Difference) -> Row:
    cells = (
        f"{ours} – {theirs}",
        error(found.loss),
        text.NONE if found.parted is None else str(found.parted),
        error(found.gradient_norm),
        error(found.logits),
        error(found.gradient),
        found.gradient_tensor if found.gradient else text.NONE,
        error(found.change),
        found.change_tensor if found.change else text.NONE,
        error(found.statistic),
        found.statistic_tensor if found.statistic else text.NONE,
    )
    return Row(cells)


def error(value: float | None) -> str:
    return text.NONE if value is None else judge.short(value)


def _notes(group: Sequence[Certificate]) -> Iterable[str]:
    for one in group:
        title = names.system(one.trajectory)
        if one.why:
            yield f"{title}: {WORDS[one.verdict]}: {text.line(one.why, 1000)}."
        for exception in one.exceptions:
            yield f"{title}: {text.line(exception, 1000)}."
        if one.differences and one.differences[0].gradient is None:
            yield f"{title}: its compiled step keeps the gradients to itself; the changes of parameters stand for them."


def _otherwise(group: Sequence[Certificate], runs: _Runs) -> Iterable[str]:
    """Where the measured runs took other kernels than the run that the proof is from."""
    for one in group:
        t = one.trajectory
        run = runs.get((t.system, t.of, t.device, t.precision)) or runs.get((t.system, t.of, t.device))
        if not run or (t.precision != "fp64" and t.precision != run.job.precision):
            continue
        keys = judge.other_kernels(t, run.effective)
        parts = [f"{key} is “{text.line(run.effective[key])}”, here “{text.line(t.effective[key])}”" for key in keys]
        if parts:
            yield f"{names.system(t)}: {_precision(t)} of another kernel; as measured, {'; '.join(parts)}."
