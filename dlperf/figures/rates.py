"""Figures of one run: rates, shares, bandwidths."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlperf import models
from dlperf.schema import Job, Record


def throughput(record: Record) -> float:
    """Samples per second of one run: all samples over all seconds of its windows, never a mean of rates."""
    return sum(window.samples for window in record.windows) / seconds(record)


def shown(rate: float) -> str:
    """With four digits, or all before the point: 0.2, 9.835, 1,234, 44,161."""
    if not 0 < rate < math.inf:
        return f"{rate:g}"
    places = max(0, 3 - math.floor(math.log10(rate)))
    digits = f"{rate:,.{places}f}"
    return digits.rstrip("0").rstrip(".") if places else digits


def rate_unit(family: str) -> str:
    """What its rates are in: "img/s"; samples/s of a family that this version does not know."""
    return models.FAMILIES[family].RATE_UNIT if family in models.FAMILIES else "samples/s"


def said(record: Record) -> str:
    """Of one run, for people: "1,234 sentences/s"."""
    return f"{shown(throughput(record))} {rate_unit(record.job.family)}"


def units(job: Job, records: Sequence[Record]) -> float:
    """How many samples a row of a batch had in some runs of a job: 1 image; the tokens of a text, which may differ. 1
    of a model that this version does not know."""
    if job.model not in models.FAMILY_OF:
        return 1.0
    if job.input == "synthetic" or not job.traits.worker or not records:
        return models.units(job.model)
    windows = [window for record in records for window in record.windows]
    return sum(window.samples for window in windows) / (job.global_batch_size * sum(window.steps for window in windows))


def seconds(record: Record) -> float:
    """Of all windows. A sum of floats that is shown is exact, so that every Python prints the same digits: what `sum`
    rounds to has changed with 3.12."""
    return math.fsum(window.seconds for window in record.windows)


def _cpu_seconds(record: Record) -> float | None:
    """In all windows; None where nobody measured them."""
    known = [window.cpu_seconds for window in record.windows if window.cpu_seconds is not None]
    return math.fsum(known) if len(known) == len(record.windows) else None


def cpu_use(record: Record) -> float | None:
    """CPU seconds per second inside the windows: 2.0 is two cores busy all the time."""
    used = _cpu_seconds(record)
    return None if used is None else used / seconds(record)


def cpu_seconds_per_sample(record: Record) -> float | None:
    used = _cpu_seconds(record)
    return None if used is None else used / sum(w.samples for w in record.windows)


def joules_per_sample(record: Record) -> float | None:
    """Energy of all GPUs in the windows; None where it was not measured in each."""
    known = [window.conditions["gpu_joules"] for window in record.windows if "gpu_joules" in window.conditions]
    whole = known and len(known) == len(record.windows)
    return math.fsum(known) / sum(window.samples for window in record.windows) if whole else None


def product_slowdown(record: Record) -> float | None:
    """How many times as long a matrix product took in the row's precision as NumPy's in float32 took beside it."""
    seconds, fp32 = record.product.get("seconds"), record.product.get("fp32_seconds")
    return seconds / fp32 if seconds and fp32 else None


def source(record: Record) -> str:
    """Where the figures of a script that is not ours stand: "runs/x/0/stdout.log:123-222"."""
    places = [window.source.rpartition(":") for window in record.windows if window.source]
    if not places:
        return ""
    lines = [int(number) for _, _, span in places for number in span.split("-")]
    return f"{record.folder}/{places[0][0]}:{min(lines)}-{max(lines)}"


def window_spread(record: Record) -> float:
    """The fastest window's rate over the slowest's, within one run: 1.0 when the machine was perfectly quiet."""
    rates = [window.samples / window.seconds for window in record.windows]
    return max(rates) / min(rates)


def read_share(record: Record) -> float:
    """Of its windows' seconds, what reading their losses took afterwards."""
    return math.fsum(window.read_seconds or 0.0 for window in record.windows) / seconds(record)


def skew(record: Record) -> float:
    """The share of the windows in which the fastest rank was done and the slowest was not."""
    return math.fsum(w.skew_seconds for w in record.windows) / seconds(record)


def bus_bandwidth(nbytes: float, seconds: float, ranks: int) -> float:
    """Bytes per second of each rank's link while `ranks` all-reduce `nbytes`, whatever the algorithm.

    busbw of nccl-tests (doc/PERFORMANCE.md): each rank must send and receive at least 2 (n - 1) / n of the bytes.
    """
    return 2 * (ranks - 1) / ranks * nbytes / seconds


def all_reduce_bandwidth(record: Record) -> float | None:
    """Bus bandwidth of a run's all-reduce probe; None where it made none."""
    nbytes, seconds = record.communication.get("all_reduce_bytes"), record.communication.get("all_reduce_seconds")
    return bus_bandwidth(nbytes, seconds, record.job.world_size) if nbytes and seconds else None


def input_wait(record: Record) -> float | None:
    """Share of the windows' time in which steps waited for their batches; None without a loader."""
    waited = [window.input_seconds for window in record.windows if window.input_seconds is not None]
    return math.fsum(waited) / seconds(record) if waited else None
