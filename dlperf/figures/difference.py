"""Where the difference between the steps of two rows is, by kinds of operations. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dlperf import models
from dlperf.adapters.profiling import KINDS
from dlperf.figures import summaries
from dlperf.figures.peaks import Ceiling
from dlperf.figures.rates import units
from dlperf.figures.statistics import Estimate
from dlperf.schema import Job, Record

#: of a step besides KINDS: what no operation ran in, and what the profiler added, which is taken off again
WAITING, PROFILER = "waiting", "profiler"
#: of a step that the profiler may add before a reader is told
ADDED = 0.05


@dataclass(frozen=True)
class Operation:
    """In one step: how long it ran, and how often."""

    kind: str
    name: str
    seconds: float
    calls: float


@dataclass(frozen=True)
class Side:
    """One row's step. step: its seconds in the timed windows, over runs, with a 95 % interval. kinds: seconds by kind,
    WAITING and PROFILER too, which together are step.centre. operations: the longest first."""

    job: Job
    step: Estimate
    kinds: Mapping[str, float]
    operations: tuple[Operation, ...]
    parameter_count: int

    @property
    def added(self) -> float:
        """Share of the step that the profiler added to it."""
        return abs(self.kinds[PROFILER]) / self.step.centre


def side(job: Job, records: Sequence[Record], profiles: Sequence[Mapping[str, Any]]) -> Side | None:
    """Of a row's runs and the profile of each, the event of dlperf.adapters.worker; None where there is none."""
    rate = summaries.summarize(job, records).throughput
    seen = [one for one in profiles if one.get("operations") and one.get("steps")]
    if rate is None or not seen:
        return None
    samples = job.global_batch_size * units(job, [record for record in records if record.done])
    low, high = (samples / bound if bound else None for bound in (rate.high, rate.low))
    step = Estimate(samples / rate.centre, low, high, rate.n)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in seen:
        for kind, name, seconds, calls in one["operations"]:
            found.setdefault((kind, name), []).append((seconds / one["steps"], calls / one["steps"]))
    operations = [
        Operation(*key, math.fsum(s for s, _ in each) / len(seen), math.fsum(c for _, c in each) / len(seen))
        for key, each in found.items()
    ]
    kinds = {kind: math.fsum(one.seconds for one in operations if one.kind == kind) for kind in KINDS}
    kinds[WAITING] = max(0.0, fmean(one["waited_seconds"] / one["steps"] for one in seen))
    kinds[PROFILER] = step.centre - math.fsum(kinds.values())
    counts = [record.parameter_count for record in records if record.parameter_count]
    operations.sort(key=lambda one: -one.seconds)
    return Side(job, step, kinds, tuple(operations), counts[0] if counts else 0)


def differences(a: Side, b: Side) -> list[tuple[str, float, float]]:
    """kind, seconds of a and of b; where the difference is largest first, and the profiler's own last."""
    kinds = [kind for kind in (*KINDS, WAITING) if a.kinds[kind] or b.kinds[kind]]
    kinds.sort(key=lambda kind: -abs(b.kinds[kind] - a.kinds[kind]))
    return [(kind, a.kinds[kind], b.kinds[kind]) for kind in (*kinds, PROFILER)]


def share(side: Side, kind: str, ceiling: Ceiling | None) -> float | None:
    """Of what this machine can do, how much a kind's operations reached: FLOP/s of the model's definition over the
    fastest product in that precision; of the optimizer, whose memory is what takes time, bytes over those of a copy.
    None where neither is known."""
    seconds, job = side.kinds.get(kind, 0.0), side.job
    if not (seconds and ceiling and job.model in models.FAMILY_OF):
        return None
    work = models.family(job.model).flops(models.config(job.model)).get(kind)
    fastest = ceiling.flops.get(job.precision)
    if work and fastest:
        return work * job.batch_size / seconds / fastest
    if kind == "optimizer" and ceiling.copied and side.parameter_count:
        return moved(job, side.parameter_count) / seconds / ceiling.copied
    return None


def moved(job: Job, parameters: int) -> int:
    """Bytes that an update reads and writes at the least: weights and what the optimizer keeps of each are read and
    written, gradients are read, and once more where their norm is clipped."""
    clipped = job.options.get("clip_norm", "off") != "off"
    each = 8 if job.precision == "fp64" else 4
    return parameters * each * (2 * (1 + models.moments(job.model)) + 1 + clipped)
