"""Figures of one row: all runs of a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dlperf.figures import steady
from dlperf.figures.once import once
from dlperf.figures.rates import (
    all_reduce_bandwidth,
    cpu_seconds_per_sample,
    cpu_use,
    input_wait,
    joules_per_sample,
    skew,
    throughput,
)
from dlperf.figures.statistics import Estimate, estimate, median_of
from dlperf.schema import Comparison, Job, Record

#: timed steps of a run, or runs of a row, that figures to publish have at least
STEPS, RUNS = 20, 7


@dataclass(frozen=True)
class Summary:
    """One row's figures. `done` are the runs that succeeded, `failed` the others; figures are None without any.

    throughput in samples/s; peak memory in bytes; cpu_use in cores; first_step_seconds includes compilation.
    Of rows with several devices: skew as a share of the windows, gradient_bytes of a step, all_reduce_bandwidth in
    bytes/s, sent_bytes of a step, as the network of one node counts them, and link_gigabits a second and
    link_milliseconds that were found where nodes were emulated.
    Of rows on GPUs: joules_per_sample, of all of them.
    Of rows with a loader: its throughput alone in samples/s, and the share of the windows that steps waited for input.
    """

    job: Job
    done: tuple[Record, ...]
    failed: tuple[Record, ...]
    throughput: Estimate | None
    cpu_use: float | None
    cpu_seconds_per_sample: float | None
    peak_memory_bytes: int | None
    peak_device_memory_bytes: int | None
    first_step_seconds: float | None
    skew: float | None = None
    gradient_bytes: float | None = None
    all_reduce_bandwidth: float | None = None
    loader_throughput: float | None = None
    input_wait: float | None = None
    joules_per_sample: float | None = None
    sent_bytes: float | None = None
    link_gigabits: float | None = None
    link_milliseconds: float | None = None


@once
def summarized(comparison: Comparison) -> dict[str, Summary]:
    """The figures of each job, by Job.id, without windows of which the warm-up was not over."""
    comparison = steady.without(comparison)
    return {job.id: summarize(job, comparison.runs.get(job.id, ())) for job in comparison.jobs}


def summarize(job: Job, mine: Sequence[Record]) -> Summary:
    """The figures of one job from the records of its runs: medians over runs, peaks as the largest."""
    done = tuple(record for record in mine if record.done)
    failed = tuple(record for record in mine if not record.done)
    host_memory = [r.peak_memory_bytes for r in done if r.peak_memory_bytes is not None]
    device_memory = [r.peak_device_memory_bytes for r in done if r.peak_device_memory_bytes is not None]
    first_steps = [r.first_step_seconds for r in done if r.first_step_seconds is not None]
    several = done if job.world_size > 1 and job.traits.worker else ()
    gradients = [r.communication["gradient_bytes"] for r in several if "gradient_bytes" in r.communication]
    bandwidths = [found for found in map(all_reduce_bandwidth, several) if found is not None]
    loaders = [record.input["samples"] / record.input["seconds"] for record in done if record.input.get("seconds")]
    waits = [found for found in map(input_wait, done) if found is not None]
    return Summary(
        job=job,
        done=done,
        failed=failed,
        throughput=estimate([throughput(r) for r in done]) if done else None,
        cpu_use=median_of(map(cpu_use, done)),
        cpu_seconds_per_sample=median_of(map(cpu_seconds_per_sample, done)),
        peak_memory_bytes=max(host_memory, default=None),
        peak_device_memory_bytes=max(device_memory, default=None),
        first_step_seconds=median(first_steps) if first_steps else None,
        skew=median(skew(r) for r in several) if several else None,
        gradient_bytes=median(gradients) if gradients else None,
        all_reduce_bandwidth=median(bandwidths) if bandwidths else None,
        loader_throughput=median(loaders) if loaders else None,
        input_wait=median(waits) if waits else None,
        joules_per_sample=median_of(map(joules_per_sample, done)),
        sent_bytes=median_of(map(sent_bytes, several)),
        link_gigabits=median_of(record.communication.get("link_gigabits") for record in several),
        link_milliseconds=median_of(record.communication.get("link_milliseconds") for record in several),
    )


def sent_bytes(record: Record) -> float | None:
    """Of a step, what the network of the node that sent most has counted."""
    counted = [window.conditions.get("network_sent_bytes") for window in record.windows]
    steps = sum(window.steps for window in record.windows)
    return None if None in counted or not steps else math.fsum(filter(None, counted)) / steps


def given_up(records: Sequence[Record]) -> bool:
    """Whether a row with these runs gets no more of them, unless asked: two failed and none succeeded, or its
    environment could not be made."""
    failed = [record.failure.kind for record in records if record.failure]
    return len(failed) == len(records) and (len(failed) >= 2 or "environment" in failed)


def missing_runs(summary: Summary, repeats: int) -> int:
    """Runs of a row that are still to be made. repeats: the protocol's."""
    made = [*summary.done, *summary.failed]
    return 0 if given_up(made) else max(0, summary.job.runs(repeats) - len(made))


def rates_of(summary: Summary) -> dict[int, float]:
    """By block."""
    return {record.repeat if record.block is None else record.block: throughput(record) for record in summary.done}


def few(comparison: Comparison) -> tuple[int, int] | None:
    """How many steps a run times and how many runs a row has, where neither is enough to publish figures."""
    asked = comparison.spec.get("protocol") or {}
    steps = asked.get("windows", 0) * asked.get("steps_per_window", 0)
    ranked = [job for job in comparison.jobs if job.traits.ranked]
    runs = [sum(record.done for record in comparison.runs.get(job.id, ())) for job in ranked]
    fewest = min(filter(None, runs), default=RUNS)
    return (steps, fewest) if asked and steps < STEPS and fewest < RUNS else None
