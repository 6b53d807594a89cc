"""Of what others published, the row that is closest to one of ours. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dlperf import models
from dlperf.errors import whole_number
from dlperf.figures.published import Figure
from dlperf.schema import Job

#: by what a row is chosen, the first deciding
ORDER = (
    "the same model, before another of its family",
    "the same length of sequences, and no other task such as fine-tuning, where these are stated",
    "precision",
    "framework",
    "number of devices",
    "batch per device",
    "printed, before what was read off a chart",
    "clipping and samples over seconds as ours",
    "no doubt about it",
    "the order of the source",
)
HALF, SINGLE = frozenset({"amp", "amp_fp16", "amp_bf16", "fp16", "bf16"}), frozenset({"fp32", "tf32"})
#: two names of one thing
UNITS = {"sequences/s": "sentences/s"}
FAR = 99.0


def closest(job: Job, figures: Iterable[Figure]) -> Figure | None:
    """None where no rate is of the row's model or its family."""
    rates = [one for one in figures if one.quantity == "throughput" and one.value and related(job, one) is not None]
    return min(rates, key=lambda one: _far(job, one), default=None)


def related(job: Job, one: Figure) -> int | None:
    """0: the same model; 1: another of its family; None: neither."""
    if one.model == job.model:
        return 0
    return 1 if one.model and models.FAMILY_OF.get(one.model) == job.family else None


def precision_apart(job: Job, one: Figure) -> int:
    """0: the same, as far as a source says; 1: both in 16 bits, or both in 32; 2: not stated; 3: other ones."""
    asked = {job.precision, job.precision_asked}
    if one.precision in asked and (one.precision != "amp" or job.precision != "amp_bf16"):
        return 0
    if any(job.precision in kind and one.precision in kind for kind in (HALF, SINGLE)):
        return 1
    return 3 if one.precision else 2


def sequence(job: Job) -> str:
    """Of a model of sequences; empty of others, and of one that this version does not know."""
    found = getattr(models.config(job.model), "sequence", None) if job.model in models.FAMILY_OF else None
    return str(found) if found else ""


def other_work(job: Job, one: Figure) -> bool:
    """Whether a source says that it has sequences of another length, or another task than training from the start."""
    length = one.options.get("sequence", "")
    return bool(length and sequence(job) and length != sequence(job)) or "finetun" in one.options.get("task", "")


def batch_per_device(one: Figure) -> float | None:
    batch = whole_number(one.batch)
    if batch is None or one.batch_of not in ("global", "device"):
        return None
    if one.batch_of == "device":
        return float(batch)
    return batch / one.devices if one.devices else None


def clips(told: str) -> bool | None:
    """Whether gradients are clipped, by an option's value; None where it does not say."""
    return None if not told else told not in ("off", "none", "no", "0", "0.0")


def _far(job: Job, one: Figure) -> tuple[float, ...]:
    clip = clips(job.options.get("clip_norm", ""))
    return (
        float(related(job, one) or 0),
        float(other_work(job, one)),
        float(precision_apart(job, one)),
        float(one.framework != job.adapter),
        _octaves(job.world_size, one.devices),
        _octaves(job.batch_size, batch_per_device(one)),
        float(one.origin == "chart"),
        float(clip is not None and clips(one.options.get("clip", "")) not in (clip, None))
        + float(one.estimator != "samples_over_seconds"),
        float(bool(one.doubt)),
    )


def _octaves(ours: float, theirs: float | None) -> float:
    return abs(math.log2(ours / theirs)) if theirs else FAR


def no_ratio(job: Job, unit: str, one: Figure) -> str:
    """Why ours over theirs would say nothing; empty where it may stand, with what differs beside it. unit: ours."""
    apart = precision_apart(job, one)
    other = {
        "model": bool(related(job, one)),
        "unit": UNITS.get(one.unit, one.unit) != unit,
        "work": other_work(job, one),
        "precision": apart == 3,
        "number of devices": one.devices not in (None, job.world_size),
    }
    unsaid = {"precision": apart == 2, "number of devices": one.devices is None}
    told = [("another ", other, ""), ("", unsaid, " not stated")]
    parts = [(head, ", ".join(name for name, true in of.items() if true), tail) for head, of, tail in told]
    why = [f"{head}{names}{tail}" for head, names, tail in parts if names]
    return "; ".join([*why, *(["read off a chart"] if one.origin == "chart" else [])])
