"""One flat row for each row of a report: what `dlperf.compare` of Python gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlperf.figures import ranking, standings, summaries
from dlperf.figures.standings import Standing
from dlperf.figures.summaries import Summary
from dlperf.models import FAMILIES
from dlperf.schema import Comparison, Job, Skip

#: of columns that may have no figure in any row, and would then be objects
TYPES = dict.fromkeys(("batch_size_per_device", "rank_first", "rank_last"), "Int64") | dict.fromkeys(
    ("median", "low", "high", "relative", "relative_low", "relative_high"), "float64"
)


def rows(comparison: Comparison) -> list[dict[str, object]]:
    """The rows of all tables, the fastest of each first, then those without a figure and those that were not run.

    median, low, high: samples per second in `unit`, and its 95 % interval; relative: to the fastest; rank_first,
    rank_last: all that the runs leave open. None where a row has no such figure; why says why it has no rank.
    """
    found = summaries.summarized(comparison)
    groups: dict[tuple[object, ...], list[Summary]] = {}
    for job in comparison.jobs:
        key = (job.model, job.precision_asked, job.precision, job.device, job.kind, *job.work)
        groups.setdefault(key, []).append(found[job.id])
    made: list[dict[str, object]] = []
    for group in groups.values():
        made += _table(group, comparison)
    return made + [_row(skip, why=f"{skip.status}: {skip.why}") for skip in comparison.skips]


def _table(group: list[Summary], comparison: Comparison) -> Iterator[dict[str, object]]:
    obstacles = standings.obstacles(comparison)
    for one in standings.standings(group, obstacles, ranking.level(comparison.spec)):
        yield _row(one.summary.job, **_figures(one, comparison))
    for summary in group:
        if not summary.done:
            failure = next((record.failure for record in reversed(summary.failed) if record.failure), None)
            why = f"{failure.kind}: {failure.message}" if failure else "not run"
            yield _row(summary.job, n=0, failed=len(summary.failed), why=why)


def _figures(standing: Standing, comparison: Comparison) -> Mapping[str, object]:
    summary, job = standing.summary, standing.summary.job
    measured, relative = summary.throughput, standing.relative
    assert measured is not None
    known: dict[str, object] = {"n": measured.n, "failed": len(summary.failed), "why": standing.obstacle or None}
    known |= {"median": measured.centre, "low": measured.low, "high": measured.high}
    if job.traits.ranked and not standing.obstacle:
        known |= {"relative": relative.centre if relative else 1.0}
        known |= {"relative_low": relative.low, "relative_high": relative.high} if relative else {}
        known |= dict(zip(("rank_first", "rank_last"), standing.ranks, strict=True)) if standing.ranks else {}
    if job.traits.proven:
        known["proof"] = standings.proof(comparison, job)
    return known


def _row(row: Job | Skip, **known: object) -> dict[str, object]:
    job = row if isinstance(row, Job) else None
    return {
        "model": row.model,
        "precision": row.precision_asked,
        "device": row.device,
        "nnodes": row.nnodes,
        "nproc_per_node": row.nproc_per_node,
        "batch_size_per_device": job.batch_size if job else None,
        "system": row.system,
        "n": known.get("n", 0),
        "failed": known.get("failed", 0),
        "median": known.get("median"),
        "low": known.get("low"),
        "high": known.get("high"),
        "unit": FAMILIES[row.family].RATE_UNIT if row.family in FAMILIES else None,
        "relative": known.get("relative"),
        "relative_low": known.get("relative_low"),
        "relative_high": known.get("relative_high"),
        "rank_first": known.get("rank_first"),
        "rank_last": known.get("rank_last"),
        "proof": known.get("proof"),
        "why": known.get("why"),
        "origin": row.kind,
        "job": job.id if job else None,
    }
