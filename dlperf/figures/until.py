"""When a comparison has enough blocks: `--until`. Pure.

Blocks are added until the half width of each ratio that a table shows, a row's to the fastest, is within a goal.
Whether rows differ is never looked at; but a table that is looked at again and again stops more often where its runs
happen to vary little, which makes equal rows look different. So it is looked at after few numbers of blocks, and its
ranking is made at `ranking.LEVEL_OF_LOOKS`. `make bench-statistics` counts what comes of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dlperf.figures import summaries
from dlperf.figures.statistics import Estimate, mean_logarithm, ratio
from dlperf.figures.summaries import Summary
from dlperf.planning.spec import FIRST_LOOK
from dlperf.schema import Comparison

#: each look takes so many times as many blocks as the one before
GROWTH = 1.4


def looked_at(blocks: int, most: int) -> bool:
    """Whether a table is looked at after so many blocks: 7, 10, 14, 20, 28, 40 and so on, and the last."""
    look = FIRST_LOOK
    while look < blocks:
        look = round(look * GROWTH)
    return blocks == look or blocks >= most


def widest(rows: Sequence[Mapping[int, float]]) -> float:
    """The largest half width of the rows' ratios to the fastest, as a share; infinite where a row has one run.

    rows: rate by block.
    """
    if len(rows) < 2:
        return 0.0
    fastest = max(rows, key=mean_logarithm)
    return max(_half(ratio(row, fastest)) for row in rows if row is not fastest)


def _half(of: Estimate) -> float:
    return math.inf if of.low is None or of.high is None else (of.high - of.low) / 2 / of.centre


def stopped(comparison: Comparison) -> str:
    """Why no more blocks are made: "goal", "blocks" or "time"; empty where more are, and without --until."""
    asked = comparison.spec
    if not asked.get("until") or not comparison.records:
        return ""
    made, most = blocks(comparison), asked["protocol"]["repeats"]
    if asked["max_time"] and math.fsum(record.seconds for record in comparison.records) >= asked["max_time"]:
        return "time"
    if not looked_at(made, most):
        return ""
    if all(widest(table) <= asked["until"] for table in tables(comparison)):
        return "goal"
    return "blocks" if made >= most else ""


def blocks(comparison: Comparison) -> int:
    """Whole blocks: of all rows that are not given up."""
    counts = [
        len(runs)
        for job in comparison.jobs
        if job.traits.ranked and not summaries.given_up(runs := comparison.runs.get(job.id, ()))
    ]
    return min(counts, default=max(map(len, comparison.runs.values()), default=0))


def tables(comparison: Comparison) -> list[list[dict[int, float]]]:
    """Rates by block of the rows that are compared with each other, table by table."""
    found: dict[tuple[object, ...], list[Summary]] = {}
    for summary in summaries.summarized(comparison).values():
        job = summary.job
        if summary.done and job.traits.ranked:
            found.setdefault((job.model, job.precision_asked, job.precision, job.device, job.work), []).append(summary)
    return [[summaries.rates_of(summary) for summary in rows] for rows in found.values()]
