"""What the parameter servers of a section's rows used, beside their workers. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from dlperf import models
from dlperf.figures import disturbances
from dlperf.figures.summaries import Summary
from dlperf.models.parameters import count
from dlperf.report import names, text
from dlperf.report.shape import Column, Row, Table
from dlperf.schema import Job, Record

COLUMNS = (
    "servers",
    "workers",
    "CPUs busy, all processes",
    "CPU of a server (s)",
    "CPU cores busy, a server",
    "peak memory of a server (GiB)",
    "after its import (GiB)",
    "times tensors and optimizer state",
    "staleness, median",
    "staleness, 95 %",
)
ABOUT = (
    "Medians of runs. CPUs busy: of the time of a host's CPUs in windows, what workers, servers and all else took. Of "
    "a server: in each run of the one that used most, over its whole life: it also starts, and waits for workers. "
    "After its import: by how much its peak rose from when its framework was there, which older runs do not tell; "
    "times: that over its share of the float32 tensors and of what the model's optimizer keeps of each. CPU time and "
    "memory of other tables are of workers alone. Staleness: updates that a server applied between a worker's pull and "
    "its push, where the system counts them."
)


def table(summaries: Sequence[Summary]) -> Table | None:
    """A row for each row with parameter servers that told what they used."""
    told = [one for one in summaries if any(record.servers for record in one.done)]
    if not told:
        return None
    columns = (Column("system"), Column("mode"), *(Column(title, numeric=True) for title in COLUMNS))
    return Table(columns, tuple(map(_row, told)))


def _row(summary: Summary) -> Row:
    job = summary.job
    runs = [record for record in summary.done if record.servers]
    busy = median(_most(record, "cpu_seconds", "seconds") for record in runs)
    used, memory = (median(_most(record, name) for record in runs) for name in ("cpu_seconds", "peak_memory_bytes"))
    sizes = (f"{job.servers:,}", f"{job.world_size:,}")
    shown = (_busy(runs), text.number(used, 2), text.number(busy, 2), text.gibibytes(math.floor(memory)))
    grown = _grown(runs)
    times = text.number(grown / state if grown is not None and (state := _state(job)) else None, 2)
    stale = (_stale(runs, name) for name in ("stale_median", "stale_95"))
    return Row((names.system(job), job.ps_mode, *sizes, *shown, text.gibibytes(grown), times, *stale))


def _grown(runs: Sequence[Record]) -> int | None:
    """Bytes by which a server's peak rose after its import; None where a run does not tell."""
    kept = ("peak_memory_bytes", "imported_memory_bytes")
    if not all(name in one for record in runs for one in record.servers for name in kept):
        return None
    peaks = [max(int(one[kept[0]]) - int(one[kept[1]]) for one in record.servers) for record in runs]
    return math.floor(median(peaks))


def _state(job: Job) -> float:
    """A server's share of the tensors and of what the optimizer keeps of each, in bytes; 0 for an unknown model."""
    if job.model not in models.FAMILY_OF:
        return 0
    values = count(models.family(job.model).parameters(models.config(job.model)))
    return 4 * values * (1 + models.moments(job.model)) / job.servers


def _busy(runs: Sequence[Record]) -> str:
    known = [share for record in runs if (share := disturbances.share([record], "cpu_busy_share"))]
    return f"{100 * median(known):.0f} %" if known else text.NONE


def _stale(runs: Sequence[Record], name: str) -> str:
    counted = [_most(record, name) for record in runs if all(name in one for one in record.servers)]
    return f"{median(counted):g}" if counted else text.NONE


def _most(record: Record, name: str, over: str = "") -> float:
    """Of its servers the largest of a figure, or of one over another."""
    return max(float(one.get(name, 0)) / (float(one.get(over, 0)) or math.inf if over else 1) for one in record.servers)
