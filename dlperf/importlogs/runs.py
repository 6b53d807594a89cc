"""Several runs of one case: the median, and the speedup over one device, as DLPerf published them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from dlperf.figures.published import Figure

Case = tuple[str, str, str, str, int | None, int | None, str, str]


def medians(figures: Iterable[Figure]) -> Iterator[Figure]:
    """Of each case with several logs, and its speedup where the same on one device is there."""
    cases: dict[Case, list[Figure]] = {}
    for one in figures:
        cases.setdefault(_case(one), []).append(one)
    middle = {case: round(median(one.value or 0.0 for one in runs), 2) for case, runs in cases.items()}
    for case, runs in cases.items():
        single = middle.get((*case[:4], 1, 1, *case[6:]))
        if len(runs) > 1:
            yield _of(runs, "throughput", f"{middle[case]:.2f}", runs[0].unit)
        if single and (len(runs) > 1 or len(cases) > 1) and case[5] != 1:
            yield _of(runs, "speedup", f"{round(middle[case] / single, 2):.2f}", "x")


def _case(one: Figure) -> Case:
    return one.table, one.system, one.model, one.precision, one.nodes, one.devices, one.batch, one.column


def _of(runs: Sequence[Figure], quantity: str, printed: str, unit: str) -> Figure:
    first = runs[0]
    each = (first.devices or 0) // (first.nodes or 1)
    options = {"runs": str(len(runs)), "format": first.options["format"], "of": first.estimator}
    return replace(
        first,
        row=f"{first.nodes}n{each}g {first.options['format']} {first.model} b{first.batch} {first.precision}",
        printed=printed,
        quantity=quantity,
        unit=unit,
        estimator="median_of_runs",
        options=options,
        doubt="" if len(runs) > 2 else "of fewer than three runs",
    )
