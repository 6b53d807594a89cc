"""Where two rows' steps differ, for readers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dlperf.adapters.profiling import KINDS
from dlperf.figures import difference, peaks
from dlperf.figures.difference import ADDED, PROFILER, WAITING, Operation, Side
from dlperf.report import names, text
from dlperf.report.shape import Column, Row, Table, Waterfall, Why
from dlperf.report.view import MACHINE, SYSTEMS, machine, systems
from dlperf.schema import Comparison

#: what each line of the table is of
ABOUT = {
    **KINDS,
    WAITING: "no operation ran",
    PROFILER: "what the profiler added to the step, taken off again: the sum is the step without it",
}
#: in a sentence: "0.2 s less in ..."
IN = {
    "convolution": "convolutions",
    "product": "matrix products",
    "elementwise": "elementwise operations",
    "embedding": "embeddings",
    "loss": "the loss",
    "layout": "copies and casts",
    "optimizer": "the optimizer",
    "host": "the interpreter or scheduler",
}
MINUS = "\u2212"
#: seconds of a step from which on it is told in them, not in thousandths
LONG = 1.0
#: of the longer step, what a difference must be to have a bar, or to be told in the first sentence
SHOWN, TOLD = 0.01, 0.05
#: kinds in the first sentence, and operations of each row in the table, at most
MOST_KINDS, MOST_OPERATIONS = 3, 15


@dataclass(frozen=True)
class Explained:
    """All that a page is made of, as its why.json has it. shares: by kind, how much of its ceiling a and b reached;
    systems, machine: rows of these tables."""

    a: Side
    b: Side
    shares: Mapping[str, tuple[float | None, float | None]]
    systems: tuple[tuple[str, ...], ...]
    machine: tuple[tuple[str, ...], ...]


def explained(comparison: Comparison, a: Side, b: Side) -> Explained:
    """How the step of b differs from that of a."""
    found = peaks.ceilings(comparison).get(a.job.device)
    shares = {kind: (difference.share(a, kind, found), difference.share(b, kind, found)) for kind in a.kinds}
    rows = [tuple(tuple(row.cells) for row in table.rows) for table in (systems(comparison), machine(comparison))]
    return Explained(a, b, shares, *rows)


def why(one: Explained) -> Why:
    """Its page."""
    a, b, job = one.a, one.b, one.a.job
    what = f"{names.model(job.model)}, {job.precision_asked}, {names.device(job.device)}, batch {job.batch_size}"
    title = f"Why {name(b)} and {name(a)} differ: {what}"
    return Why(
        title=title,
        summary=summary(a, b),
        notes=tuple(_notes(a, b)),
        kinds=_kinds(one),
        operations=_operations(a, b),
        systems=_table(SYSTEMS, one.systems),
        chart=_chart(a, b),
        machine=_table(MACHINE, one.machine),
    )


def _table(titles: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(tuple(map(Column, titles)), tuple(map(Row, rows)))


def name(side: Side) -> str:
    return names.system(side.job)


def summary(a: Side, b: Side) -> str:
    """ "JAX takes 1.05 s a step, PyTorch 1.34 s: 0.29 s less. Of that convolution is 0.21 s less, ..." """
    more, longer = b.step.centre - a.step.centre, max(a.step.centre, b.step.centre)
    unit, times = _unit(a, b)
    changes = [(kind, y - x) for kind, x, y in difference.differences(a, b) if kind != PROFILER]
    large = [(kind, change) for kind, change in changes if abs(change) >= TOLD * longer][:MOST_KINDS]
    figures = [a.step.centre, b.step.centre, abs(more), *(abs(change) for _, change in large)]
    first, second, apart, *rest = (
        f"{one} {unit}" for one in text.column([times * one for one in figures], digits=2, most=2)
    )
    said = f"A step of {name(b)} takes {second}, one of {name(a)} {first}: {apart} {_word(more)}."
    parts = [
        f"{told} {_word(change)} in {IN.get(kind, kind)}" for told, (kind, change) in zip(rest, large, strict=True)
    ]
    return f"{said} It spends {text.listing(parts)}." if parts else said


def _unit(a: Side, b: Side) -> tuple[str, float]:
    """In which times are told, and how many of it a second is."""
    return ("s", 1.0) if max(a.step.centre, b.step.centre) >= LONG else ("ms", 1e3)


def _word(change: float) -> str:
    return "more" if change > 0 else "less"


def _kinds(one: Explained) -> Table:
    a, b = one.a, one.b
    lines = difference.differences(a, b)
    unit, times = _unit(a, b)
    seconds = [(times * x, times * y) for _, x, y in lines] + [(times * a.step.centre, times * b.step.centre)]
    places = max(0, 2 - math.floor(math.log10(seconds[-1][0])))
    rows = []
    for number, kind in enumerate([*(kind for kind, _, _ in lines), "step"]):
        shares = one.shares.get(kind, (None, None))
        told = [text.NONE if share is None else f"{text.number(100 * share, 0)} %" for share in shares]
        about = ABOUT.get(kind, f"{_n(a)}, {_n(b)}")
        x, y = seconds[number]
        cells = (text.number(x, places), text.number(y, places), f"{y - x:+.{places}f}")
        rows.append(Row((kind, *(cell.replace("-", MINUS) for cell in cells), *told, about)))
    columns = (
        Column("of a step"),
        *(Column(f"{name(side)}, {unit}", numeric=True) for side in (a, b)),
        Column(f"difference, {unit}", numeric=True),
        *(Column(f"{name(side)}, of the ceiling", numeric=True) for side in (a, b)),
        Column("what it is"),
    )
    return Table(columns, tuple(rows))


def _n(side: Side) -> str:
    return f"{name(side)}: median of {text.count(side.step.n, 'run')}"


def _operations(a: Side, b: Side) -> Table:
    unit, times = _unit(a, b)
    told = [(side, one) for side in (a, b) for one in side.operations[:MOST_OPERATIONS]]
    seconds = text.column(times * one.seconds for _, one in told)
    rows = [
        Row((name(side), one.kind, text.line(one.name, 120), text.number(one.calls, 0), took, _share(one, side)))
        for (side, one), took in zip(told, seconds, strict=True)
    ]
    words, figures = ("system", "kind", "operation"), ("calls a step", f"{unit} a step", "of the step")
    return Table((*map(Column, words), *(Column(one, numeric=True) for one in figures)), tuple(rows))


def _share(one: Operation, side: Side) -> str:
    return f"{text.number(100 * one.seconds / side.step.centre, 1)} %"


def _chart(a: Side, b: Side) -> Waterfall:
    longer, (unit, times) = max(a.step.centre, b.step.centre), _unit(a, b)
    changes = [(kind, y - x) for kind, x, y in difference.differences(a, b)]
    shown = [(kind, times * change) for kind, change in changes if abs(change) >= SHOWN * longer]
    rest = times * math.fsum(change for _, change in changes if abs(change) < SHOWN * longer)
    return Waterfall(
        file="why.svg",
        title=summary(a, b).partition(": ")[0],
        unit=f"{unit} of a step",
        alt=summary(a, b),
        begin=(name(a), times * a.step.centre),
        steps=(*shown, ("all else", rest)),
        end=(name(b), times * b.step.centre),
    )


def _notes(a: Side, b: Side) -> Iterator[str]:
    yield (
        "Each moment of a step is counted once: for the operation that runs, the innermost of those that call each "
        "other, or in equal parts for those that run at the same time on several threads. Seconds are of the wall, "
        "with all threads that an operation uses."
    )
    yield (
        "The ceiling of convolutions, products and attention is the fastest product of large matrices that was timed "
        "here in that precision; of the optimizer, the fastest copy of memory, which it may exceed: a CPU reads what a "
        "copy writes over, and that is not counted. Of the others nobody knows what they must do at the least."
    )
    for side in (a, b):
        if side.added > ADDED:
            yield (
                f"The profiler changed {name(side)}'s step by {text.number(100 * side.added, 0)} %: what is made of "
                "many small operations looks longer than it is."
            )
