"""Several runs of one case: the median, and the speedup over one device, as DLPerf published them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from dlperf.figures.published import Figure
from dlperf.importlogs.format import Format, unrounded
from dlperf.importlogs.read import Read, digits


class Case(NamedTuple):
    """What figures of one case have in common."""

    table: str
    system: str
    model: str
    precision: str
    batch: str
    column: str
    nodes: int | None
    devices: int | None


class Run(NamedTuple):
    """A figure, and its value before it was printed."""

    form: Format
    figure: Figure
    value: float


def medians(logs: Iterable[Read]) -> Iterator[Figure]:
    """Of each case with several logs, and its speedup where the same on one device is there. Publishers' figures are
    rounded as their scripts do."""
    cases: dict[Case, list[Run]] = {}
    for log in logs:
        for figure, value in zip(log.figures, log.values, strict=True):
            if figure.quantity == "throughput":
                cases.setdefault(_case(figure), []).append(Run(log.form, figure, value))
    middle = {case: _rounded(runs)(median(one.value for one in runs)) for case, runs in cases.items()}
    for case, runs in cases.items():
        single = middle.get(case._replace(nodes=1, devices=1))
        if len(runs) > 1:
            theirs = runs[0].form.column == case.column and middle[case] >= 1
            printed = f"{middle[case]:.2f}" if theirs else digits(middle[case])
            yield _of(runs, "throughput", printed, runs[0].figure.unit)
        if single and (len(runs) > 1 or len(cases) > 1) and case.devices != 1:
            speedup = _rounded(runs)(middle[case] / single)
            yield _of(runs, "speedup", f"{speedup:.2f}" if speedup >= 0.01 else digits(middle[case] / single), "x")


def _case(one: Figure) -> Case:
    return Case(one.table, one.system, one.model, one.precision, one.batch, one.column, one.nodes, one.devices)


def _rounded(runs: Sequence[Run]) -> Callable[[float], float]:
    form = runs[0].form
    return form.rounded if runs[0].figure.column == form.column else unrounded


def _of(runs: Sequence[Run], quantity: str, printed: str, unit: str) -> Figure:
    first, name = runs[0].figure, runs[0].form.name
    each = (first.devices or 0) // (first.nodes or 1)
    return replace(
        first,
        row=f"{first.nodes}n{each}g {name} {first.model} b{first.batch} {first.precision}".replace("  ", " "),
        printed=printed,
        quantity=quantity,
        unit=unit,
        estimator="median_of_runs",
        options={"runs": str(len(runs)), "format": name, "of": first.estimator},
        doubt="" if len(runs) > 2 else "of fewer than three runs",
    )
