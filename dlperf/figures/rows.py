"""One flat row for each run: results.csv, and dlperf.load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dlperf.figures import goodput, steady
from dlperf.figures.peaks import reached
from dlperf.figures.rates import (
    all_reduce_bandwidth,
    cpu_seconds_per_sample,
    cpu_use,
    input_wait,
    joules_per_sample,
    seconds,
    source,
    throughput,
    units,
)
from dlperf.models import FAMILY_OF
from dlperf.proof import judge
from dlperf.runs import conditions
from dlperf.schema import Certificate, Comparison, Record

#: in their order
GROUPS = ("option", "version", "effective", "condition", "stage")


def rows(comparison: Comparison) -> list[dict[str, object]]:
    """One flat row per run, failed ones included: what results.csv and `dlperf.load` show.

    Units are in the names; None where a run has no such figure. Options, versions and what really ran follow as
    option.x, version.x, effective.x, condition.x and stage.x (seconds); every row has the same keys in the same order.
    """
    kept = steady.without(comparison)
    flat = [(record, _groups(record)) for record in kept.records]
    extra = sorted({key for _, groups in flat for key in groups}, key=_group_order)
    early = [
        len(whole.windows) - len(record.windows) for whole, (record, _) in zip(comparison.records, flat, strict=True)
    ]
    return [
        {**_row(record, number, comparison.proofs.get(record.job.id, ())), **{key: groups.get(key) for key in extra}}
        for number, (record, groups) in zip(early, flat, strict=True)
    ]


def _row(record: Record, early: int, proofs: Sequence[Certificate]) -> dict[str, object]:
    """early: windows that are left out, see `steady`."""
    job, failure = record.job, record.failure
    measured = record.done and bool(record.windows)
    return {
        "job": job.id,
        "system": job.system,
        "adapter": job.adapter,
        "framework_version": next(iter(record.versions.values()), None),
        "model": job.model,
        "device": job.device,
        "precision_asked": job.precision_asked,
        "precision": job.precision,
        "input": job.input,
        "format": job.format or None,
        "batch_size_per_device": job.batch_size,
        "global_batch_size": job.global_batch_size,
        "nnodes": job.nnodes,
        "nproc_per_node": job.nproc_per_node,
        "servers": job.servers,
        "ps_mode": job.ps_mode or None,
        "gradient_compression": job.compression,
        "bandwidth_gigabits_per_second": job.bandwidth or None,
        "latency_milliseconds": job.latency or None,
        "launcher": job.launcher or None,
        "hosts": " ".join(dict.fromkeys(record.hosts)) or None,
        "origin": job.kind,
        "untested": job.untested,
        "proof": judge.verdict(proofs, record.effective)[1] if job.traits.proven else None,
        "repeat": record.repeat,
        "started": record.started,
        "run_seconds": record.seconds,
        "throughput_samples_per_second": throughput(record) if measured else None,
        "device_flops_per_second": reached(job, throughput(record) / units(job, [record]))
        if measured and job.model in FAMILY_OF
        else None,
        "samples": sum(window.samples for window in record.windows),
        "steps": sum(window.steps for window in record.windows),
        "windows": len(record.windows),
        "windows_left_out": early,
        "window_seconds": seconds(record),
        "skew_seconds": math.fsum(window.skew_seconds for window in record.windows),
        "gradient_bytes": record.communication.get("gradient_bytes"),
        "all_reduce_bus_bytes_per_second": all_reduce_bandwidth(record),
        "loader_samples_per_second": record.input["samples"] / record.input["seconds"]
        if record.input.get("seconds")
        else None,
        "input_wait_share": input_wait(record),
        "cpu_cores_busy": cpu_use(record) if measured else None,
        "cpu_seconds_per_sample": cpu_seconds_per_sample(record) if measured else None,
        "joules_per_sample": joules_per_sample(record),
        "peak_memory_bytes": record.peak_memory_bytes,
        "peak_device_memory_bytes": record.peak_device_memory_bytes,
        "start_seconds": record.start_seconds,
        "first_step_seconds": record.first_step_seconds,
        "goodput": goodput.goodput(goodput.shares([record])),
        "last_loss": record.windows[-1].loss if record.windows else None,
        "parameter_count": record.parameter_count,
        "failure_kind": failure.kind if failure else None,
        "failure_message": failure.message if failure else None,
        "environment_kind": record.environment.get("kind"),
        "environment_digest": record.environment.get("digest"),
        "python": record.environment.get("python"),
        "folder": record.folder,
        "figures_from": source(record) or None,
    }


def _groups(record: Record) -> dict[str, object]:
    seen = conditions.together([window.conditions for window in record.windows])
    values_of = (record.job.options, record.versions, record.effective, seen, record.stages)
    groups: dict[str, Mapping[str, object]] = dict(zip(GROUPS, values_of, strict=True))
    return {f"{group}.{key}": value for group, values in groups.items() for key, value in values.items()}


def _group_order(key: str) -> tuple[int, str]:
    return GROUPS.index(key.split(".")[0]), key
