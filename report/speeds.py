"""FLOP/s of a row's device, and the share of what it can do, as columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from dlperf import models
from dlperf.figures import peaks
from dlperf.figures.rates import units
from dlperf.figures.summaries import Summary
from dlperf.report import names, text
from dlperf.schema import Comparison

#: titles, and what makes the cells of a row
Columns = tuple[tuple[str, ...], Callable[[Summary], tuple[str, ...]]]


def columns(comparison: Comparison, device: str, family: str) -> Columns:
    """Of the rows on a device; none where nothing was measured that tells what it can do."""
    found = peaks.ceilings(comparison)
    timed = device in found and bool(found[device].flops)
    product = ("of the fastest product",) if timed else ()
    if device == "cuda":
        energy = f"energy (J per {names.sample(family)})"
        shown = partial(_on_gpu, machine=comparison.machine, found=found if timed else None)
        return ("TFLOP/s per device", "of the GPU's peak", *product, energy), shown
    if not timed or family not in models.FAMILIES:
        return (), lambda summary: ()
    return ("GFLOP/s per device", *product), partial(_on_cpu, found=found)


def _on_gpu(summary: Summary, machine: Mapping[str, Any], found: Mapping[str, peaks.Ceiling] | None) -> tuple[str, ...]:
    """TFLOP/s of each device, the share of what its datasheet says, where that is known here, and of what a product of
    large matrices reached, and energy."""
    job, estimate = summary.job, summary.throughput
    joules = text.number(summary.joules_per_sample, 3)
    if estimate is None or job.model not in models.FAMILY_OF:
        return (*[text.NONE] * (2 if found is None else 3), joules)
    rate = estimate.centre / units(job, summary.done)
    flops, peak = peaks.reached(job, rate), peaks.of_machine(machine, job.precision)
    product = () if found is None else (_percent(peaks.share_of_product(job, rate, found)),)
    return text.number(flops / 1e12, 1), _percent(flops / peak if peak else None), *product, joules


def _on_cpu(summary: Summary, found: Mapping[str, peaks.Ceiling]) -> tuple[str, ...]:
    """GFLOP/s of each device, and the share of what a product of large matrices reached."""
    job, estimate = summary.job, summary.throughput
    if estimate is None or job.model not in models.FAMILY_OF:
        return text.NONE, text.NONE
    rate = estimate.centre / units(job, summary.done)
    flops, share = peaks.reached(job, rate), peaks.share_of_product(job, rate, found)
    return text.number(flops / 1e9, 1), _percent(share)


def measured(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """What runs saw the machine do, as rows of its table."""
    for device, ceiling in peaks.ceilings(comparison).items():
        scale, unit = (1e9, "GFLOP/s") if device == "cpu" else (1e12, "TFLOP/s")
        each = "" if device == "cpu" else " of a GPU"
        flops = [f"{precision} {text.number(value / scale, 1)} {unit}" for precision, value in ceiling.flops.items()]
        yield f"fastest matrix product{each}", ", ".join(flops)
        if ceiling.copied:
            yield f"fastest copy of memory{each}", f"{text.number(ceiling.copied / 1e9, 1)} GB/s (read and written)"


def _percent(share: float | None) -> str:
    return text.NONE if share is None else f"{text.number(100 * share, 1)} %"
