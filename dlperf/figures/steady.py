"""Windows that began before the warm-up was over: found over the runs of a row, and left out of every row of its table,
so that no system is helped or hurt by them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from dlperf.figures.once import once
from dlperf.figures.statistics import stdev
from dlperf.schema import Comparison, Job, Record

#: of tables in which all windows are alike, those that leave some out; and what a window must be slower by at least
LEVEL, LEAST = 0.05, 0.01
#: runs of a row below which nothing is said of it
SEEN = 3


@dataclass(frozen=True)
class Unsettled:
    """Of one table: how many windows of each run, from the first, are left out of its figures, and by how much the
    first was slower in the rows that were not at their pace."""

    jobs: tuple[Job, ...]
    windows: int
    slower: tuple[tuple[Job, float], ...]


@once
def found(comparison: Comparison) -> list[Unsettled]:
    """Tables with windows to leave out. A row is not at its pace in a window that is slower than the median of the
    later ones of its run: by 1 % or more, as a mean over its runs on logarithms, and by Student's t one-sided at LEVEL
    over the rows of its table (Bonferroni). The windows of all its rows are looked at from the first until one is in
    which all are at their pace; never more than half are left out.

    Left out of all rows alike, since only some would be a choice for or against them. A false find costs windows, and
    moves no ratio one way more than the other.
    """
    tables: dict[tuple[str, ...], list[Job]] = {}
    for job in comparison.jobs:
        if job.traits.ranked:
            tables.setdefault((job.model, job.precision_asked, job.precision, job.device), []).append(job)
    return [one for jobs in tables.values() if (one := _table(jobs, comparison)).windows]


def without(comparison: Comparison) -> Comparison:
    """The comparison as its figures see it: records without these windows."""
    early = {job.id: one.windows for one in found(comparison) for job in one.jobs}
    if not early:
        return comparison
    records = (replace(one, windows=one.windows[early.get(one.job.id, 0) :]) for one in comparison.records)
    return replace(comparison, records=tuple(records))


def _table(jobs: Sequence[Job], comparison: Comparison) -> Unsettled:
    rows = {job.id: [one for one in comparison.runs.get(job.id, ()) if one.done and one.windows] for job in jobs}
    fewest = min((len(record.windows) for records in rows.values() for record in records), default=0)
    seen = [job for job in jobs if len(rows[job.id]) >= SEEN]
    slower: dict[str, float] = {}
    for number in range(fewest // 2):
        at_fault = {
            job.id: share for job in seen if (share := _slower(rows[job.id], number, LEVEL / len(seen))) is not None
        }
        if not at_fault:
            return _unsettled(jobs, number, slower)
        slower = {**at_fault, **slower}
    return _unsettled(jobs, fewest // 2, slower)


def _unsettled(jobs: Sequence[Job], windows: int, slower: dict[str, float]) -> Unsettled:
    return Unsettled(tuple(jobs), windows, tuple((job, slower[job.id]) for job in jobs if job.id in slower))


def _slower(records: Iterable[Record], number: int, level: float) -> float | None:
    """By which share a window is slower than the later ones of its run; None where it is not, or nobody can tell."""
    logs = list(_logs(records, number))
    mean = fmean(logs)
    if mean < math.log1p(LEAST):
        return None
    from scipy import special  # a slow import that only a report needs

    error = stdev(logs) / math.sqrt(len(logs))
    surprising = not error or float(special.stdtr(len(logs) - 1, -mean / error)) < level
    return math.expm1(mean) if surprising else None


def _logs(records: Iterable[Record], number: int) -> Iterator[float]:
    for record in records:
        paces = [window.seconds / window.samples for window in record.windows]
        yield math.log(paces[number] / median(paces[number + 1 :]))
