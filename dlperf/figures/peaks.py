"""What a device can do at most, by what was measured there and by the datasheet of a GPU, and the share of it that a
row reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dlperf import models
from dlperf.figures.once import once
from dlperf.schema import Comparison, Job, Record

#: FLOP/s of dense products in 1e12: float32, TF32, 16 bits with sums in float32; 0: it has no such mode. By the name
#: that nvidia-smi gives, or publishers, the first that fits. NVIDIA's datasheets of each card, figures with sparsity
#: halved; of K80 one of its two GPUs, at boost; Turing and Ada by the whitepapers of these architectures; of TPUs a
#: chip, by Google Cloud's page on each version
PEAKS: tuple[tuple[str, float, float, float], ...] = (
    (r"K80", 4.37, 0, 0),
    (r"P100", 10.6, 0, 21.2),
    (r"V100-PCIE", 14.0, 0, 112.0),
    (r"V100", 15.7, 0, 125.0),
    (r"Tesla T4|\bT4\b", 8.1, 0, 65.0),
    (r"A100|A800", 19.5, 156.0, 312.0),
    (r"A30\b", 10.3, 82.0, 165.0),
    (r"A10G?\b", 31.2, 62.5, 125.0),
    (r"L40S", 91.6, 183.0, 366.0),
    (r"L40\b", 90.5, 90.5, 181.0),
    (r"L4\b", 30.3, 60.0, 121.0),
    (r"H100( 80GB)? PCIe", 51.0, 378.0, 756.0),
    (r"H100 NVL|H200 NVL", 60.0, 418.0, 836.0),
    (r"H100|H200|H800|GH200", 67.0, 495.0, 990.0),
    (r"B200|GB200", 80.0, 1125.0, 2250.0),
    (r"RTX 6000 Ada", 91.1, 182.1, 364.2),
    (r"RTX A6000", 38.7, 77.4, 154.8),
    (r"Quadro RTX [68]000", 16.3, 0, 130.5),
    (r"RTX 3090 Ti", 40.0, 40.0, 160.0),
    (r"RTX 3090", 35.6, 35.6, 142.0),
    (r"RTX 4090", 82.6, 82.6, 330.0),
    (r"TPU ?v2", 0, 0, 45.0),
    (r"TPU ?v3", 0, 0, 123.0),
    (r"TPU ?v4", 0, 0, 275.0),
    (r"TPU ?v5e", 0, 0, 197.0),
    (r"TPU ?v5p", 0, 0, 459.0),
)
#: cards run a few per cent over the clock that their datasheet counts with
OVERCLOCK = 1.1
#: times the FLOP/s of the fastest product seen on a CPU that no step reaches: on a busy machine products were timed at
#: a fifth of their speed, and convolutions reach twice as much where a BLAS takes AVX2 on a CPU with AVX-512
BEYOND = 10.0
#: likewise on a GPU, where a row has the device to itself. Winograd's convolutions of 3 x 3 multiply up to 4 times less
#: than the model's definition says, for half of ResNet-50's FLOPs: 1.6 times the speed
BEYOND_ON_GPU = 2.0


@lru_cache(maxsize=2**10)
def of(name: str, precision: str) -> float | None:
    """FLOP/s of a GPU by its name, in a precision; None for a card or a mode that is not known here."""
    for pattern, fp32, tf32, half in PEAKS:
        if re.search(pattern, name):
            found = {"fp32": fp32, "tf32": tf32, "amp_fp16": half, "amp_bf16": half}.get(precision)
            return 1e12 * found if found else None
    return None


def of_machine(machine: Mapping[str, Any], precision: str) -> float | None:
    """Of each of a machine's GPUs; None unless all are the same card, and known."""
    names = {str(gpu.get("name")) for gpu in machine.get("gpus", ())}
    return of(names.pop(), precision) if len(names) == 1 else None


@dataclass(frozen=True)
class Ceiling:
    """What runs measured on one kind of device, a GPU or all CPUs of a host: the best of all, since others may have
    used it meanwhile. flops: by precision, FLOP/s of the fastest product of large matrices, NumPy's in float32 too.
    copied: bytes/s, read and written, of the fastest copy of memory; 0 where none was timed."""

    flops: Mapping[str, float]
    copied: float = 0.0


@once
def ceilings(comparison: Comparison) -> dict[str, Ceiling]:
    """By device, for those on which a run timed something. Ranks on the CPUs of one host do it at the same time."""
    found: dict[str, Ceiling] = {}
    for record in comparison.records:
        told, job = record.product, record.job
        before, ranks = found.get(job.device, Ceiling({})), job.nproc_per_node if job.device == "cpu" else 1
        flops, copied = dict(before.flops), before.copied
        for precision, key in ((job.precision, "large_seconds"), ("fp32", "large_fp32_seconds")):
            if timed := of_product(record, key):
                flops[precision] = max(flops.get(precision, 0.0), timed)
        if record.done and told.get("copy_seconds"):
            copied = max(copied, told["copy_bytes"] * ranks / told["copy_seconds"])
        if flops or copied:
            found[job.device] = Ceiling(flops, copied)
    return found


def of_product(record: Record, key: str = "large_seconds") -> float | None:
    """FLOP/s of the product of large matrices that a run timed, of all ranks on one device; None where it timed none.
    key: of Record.product, its seconds."""
    told, job = record.product, record.job
    if not (record.done and told.get("large_size") and told.get(key)):
        return None
    ranks = job.nproc_per_node if job.device == "cpu" else 1
    return float(2 * told["large_size"] ** 3 * ranks / told[key])


def share_of_product(job: Job, rate: float, found: Mapping[str, Ceiling]) -> float | None:
    """Of the fastest product, what was reached at a rate in rows of batches/s; found: see `ceilings`."""
    ceiling = found.get(job.device)
    fastest = ceiling.flops.get(job.precision) if ceiling and job.model in models.FAMILY_OF else None
    together = job.nproc_per_node if job.device == "cpu" else 1
    return reached(job, rate) * together / fastest if fastest else None


def reached(job: Job, rate: float) -> float:
    """FLOP/s of each device, by the FLOPs of the model's definition, at a rate in rows of batches/s."""
    return rate * models.flops(job.model) / job.world_size


def impossible(job: Job, rate: float, machine: Mapping[str, Any], found: Mapping[str, Ceiling]) -> str:
    """That a rate in rows of batches/s is more than the device can reach, in words; empty for others, and where nothing
    is known of it. found: see `ceilings`."""
    share, on_cpu = share_of_product(job, rate, found), job.device == "cpu"
    if share is not None and share > (BEYOND if on_cpu else BEYOND_ON_GPU):
        flops = reached(job, rate) / 1e9 * (job.nproc_per_node if on_cpu else 1)
        speed = f"{flops:,.0f} GFLOP/s" if on_cpu else f"{flops / 1e3:,.0f} TFLOP/s"
        return f"impossible: {speed}, {share:,.1f} times what the fastest product of matrices reached here"
    peak = of_machine(machine, job.precision) if job.device == "cuda" and job.model in models.FAMILY_OF else None
    flops = reached(job, rate) if peak else 0.0
    if not peak or flops <= OVERCLOCK * peak:
        return ""
    return f"impossible: {flops / 1e12:.0f} TFLOP/s, of {peak / 1e12:.0f} that the GPU reaches at most"
