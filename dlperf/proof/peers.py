"""Did measured runs' losses go where those of other systems went, in the steps that no reference was trained for? Pure.

Frameworks that train the same weights on the same batches see the same losses, but for rounding and dropout's masks: in
ResNet-50 six of them agreed to 6e-6 after 8 steps in float32 and to 1e-4 in bfloat16, in a tiny one to 1e-3 after 120
steps; with dropout to 1 % in BERT-base, to 0.1 % in a tiny one. A system that trains otherwise, even if only after some
steps, parts from them for good. Where servers apply pushes as they come, their order is a matter of chance: losses of
six runs of Word2Vec in one framework had a standard deviation of 2.6 % after 300 steps, of three in another 3.6 % after
100.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from dlperf import models
from dlperf.proof.judge import work_options
from dlperf.proof.references import drops
from dlperf.schema import Comparison, Job, Record
from dlperf.words import count

#: frameworks below which nobody can say who is right
ENOUGH = 4
#: of the two thirds that are nearest to the middle, how many times as far as the furthest of them another may be away
SLACK = 10.0
#: relatively, how far away it may be in any case: without dropout, with it, and on asynchronous parameter servers (four
#: standard deviations)
FLOOR, FLOOR_WITH_DROPOUT, FLOOR_ASYNCHRONOUS = 0.01, 0.05, 0.15

#: losses of a row, by the steps that its windows had made until then
_Losses = Mapping[int, float]


def odd(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Rows whose losses went elsewhere, by Job.id, and in what words. Rows of the same work are compared: each has the
    median over its runs, each framework the median over its rows."""
    groups: dict[tuple[object, ...], list[Job]] = {}
    for job in comparison.jobs:
        if job.traits.ranked and job.input == "synthetic" and job.model in models.FAMILY_OF:
            options = tuple(sorted(work_options(job).items()))
            groups.setdefault((job.model, job.precision, job.device, job.work, options), []).append(job)
    for jobs in groups.values():
        rows = {job.id: _losses(comparison.runs.get(job.id, ())) for job in jobs}
        yield from _odd(jobs, rows)


def _losses(runs: Iterable[Record]) -> _Losses:
    found: dict[int, list[float]] = {}
    for record in runs:
        steps = 0
        for window in record.windows if record.done else ():
            steps += window.steps
            if window.loss is not None and math.isfinite(window.loss):
                found.setdefault(steps, []).append(window.loss)
    return {steps: median(losses) for steps, losses in found.items()}


def _odd(jobs: list[Job], rows: Mapping[str, _Losses]) -> Iterator[tuple[str, str]]:
    floor = _floor(jobs[0])
    told = set()
    for steps in sorted({steps for losses in rows.values() for steps in losses}):
        there = [(job, rows[job.id][steps]) for job in jobs if steps in rows[job.id]]
        by_framework: dict[str, list[float]] = {}
        for job, loss in there:
            by_framework.setdefault(job.adapter, []).append(loss)
        if len(by_framework) < ENOUGH:
            continue
        middle, bar = _expected([median(losses) for losses in by_framework.values()], floor)
        for job, loss in there:
            if abs(loss - middle) > bar and job.id not in told:
                told.add(job.id)
                yield (
                    job.id,
                    (
                        f"after {count(steps, 'step')} of its windows its loss is {loss:.4g}; the median "
                        f"of {len(by_framework)} frameworks is {middle:.4g}, from which a right one may be {bar:.1g} "
                        "away"
                    ),
                )


def _floor(job: Job) -> float:
    if job.ps_mode not in ("", "sync"):
        return FLOOR_ASYNCHRONOUS
    return FLOOR_WITH_DROPOUT if drops(job.model) else FLOOR


def _expected(losses: list[float], floor: float) -> tuple[float, float]:
    """The middle of the frameworks' losses, and how far from it another may be."""
    middle = median(losses)
    away = sorted(abs(loss - middle) for loss in losses)
    nearest = away[math.ceil(2 * len(away) / 3) - 1]
    return middle, max(SLACK * nearest, floor * abs(middle))
