"""Rows on several devices beside the same system on one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlperf.figures.statistics import Estimate, divided, ratio
from dlperf.figures.summaries import Summary, rates_of
from dlperf.schema import Job


@dataclass(frozen=True)
class Speedup:
    """A row beside its system's row on one device, `base`; the row on one device is its own.

    kind: "weak", the same batch per device; "strong", the same global batch. speedup: its rate over the base's;
    efficiency: that over the number of devices; None for the row on one device, and where `why` says why.
    """

    summary: Summary
    kind: str
    base: Summary | None
    speedup: Estimate | None = None
    efficiency: Estimate | None = None
    why: str = ""


def speedups(summaries: Sequence[Summary]) -> list[Speedup]:
    """Each row beside the one of the same system, model, precision, input and options on one device of one node.

    Of two such rows the one with the same batch per device is taken: weak scaling.
    """
    return [_scaling(summary, summaries) for summary in summaries]


def _scaling(summary: Summary, others: Iterable[Summary]) -> Speedup:
    job = summary.job
    if job.world_size == 1:
        return Speedup(summary, "weak", summary)
    alone = [other for other in others if other.job.world_size == 1 and _alike(other.job) == _alike(job)]
    weak = [other for other in alone if other.job.batch_size == job.batch_size]
    strong = [other for other in alone if other.job.batch_size == job.global_batch_size]
    base = next(iter(weak + strong), None)
    if base is None:
        sizes = f"batch {job.batch_size} per device or {job.global_batch_size} in all"
        return Speedup(summary, "weak", None, why=f"no speedup: there is no row of 1 device with {sizes}")
    kind = "weak" if weak else "strong"
    if not base.done or not summary.done:
        which = "the row" if base.done else "its row of 1 device"
        return Speedup(summary, kind, base, why=f"no speedup: {which} has no figure")
    speedup = ratio(rates_of(summary), rates_of(base))
    return Speedup(summary, kind, base, speedup, divided(speedup, job.world_size))


def _alike(job: Job) -> tuple[object, ...]:
    """What a row and its row on one device have in common."""
    what = (job.system, job.model, job.precision_asked, job.precision, job.device, job.input, job.format, job.data_dir)
    return *what, job.servers, job.ps_mode, tuple(sorted(job.options.items()))
