"""What a comparison will take: time, disk and memory, told before it starts.

One rate for all frameworks: what six of them trained with, in the mean over their time, so that a table of several is
met better than a lone row. Held against the published reports (`tests/comparison/test_estimate.py`): all runs of a
report together took 0.98 to 1.31 times what is expected here, a single one 0.46 (MXNet) to 2.4 times (OneFlow,
PaddlePaddle); all proofs of a report 0.86 to 1.1 times, a single one 0.47 to 2.7 times. What measured runs are held
against, and the looks at them, took 0.97 times in one comparison, of BERT-base in bfloat16. Memory is meant to be the
most that a run takes: they took 0.5 to 1.0 of it. Nothing was measured on a GPU, on Arm, or on more than two cores: the
first two get no time, and many cores are taken to be used as well as two, which they will not be.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlperf import cache, launchers, machine, models
from dlperf.catalog.adapter import Adapter
from dlperf.envs import kinds
from dlperf.errors import RunError
from dlperf.models.parameters import count as parameters_of
from dlperf.planning.spec import Spec
from dlperf.proof import asked, audit, certificates, references
from dlperf.proof.asked import Asked, batch_size
from dlperf.schema import Job
from dlperf.words import count

#: GFLOP/s a core in training, by the widest instruction sets: the harmonic mean over frameworks. AVX-512: the published
#: ResNet-50 and BERT-base in float32, of Zen 5. AVX2: the same on Zen 3. Neither: PaddlePaddle on Zen 3, whose MKL took
#: SSE kernels there; float64 is half.
FLOAT32 = {"avx512f": 42.0, "avx2": 31.0, "x86_64": 17.0}
#: the same in bfloat16: with instructions for it (Zen 5, the published BERT-base); without (Zen 3, those of TensorFlow
#: and JAX that convert); a CPU with AVX-512 but without them was not measured and gets its float32
BFLOAT16 = {"avx512_bf16": 105.0, "avx2": 38.0}
#: seconds of a run that are not steps: start, import, build, compiling
START = 7.0
#: seconds of a proof for each parameter, which is sketched and compared
SKETCH = 1e-7
#: how much longer it takes where several ranks make it: the mean of BERT-base's, of two
TOGETHER = 2.4
#: of the bits of all gradients, what compression leaves: of PowerSGD two matrices of rank 2 (ResNet-50's; VGG16's are
#: 0.0013), of 2 bits each push, beside pulls in float32
SENT = {"fp16": 0.5, "powersgd": 0.0086, "2bit": 0.53, "dgc": 0.002}
#: bytes of a run: for each parameter (weight, gradient, optimizer, copies), for each value that a product or a
#: convolution gives (it, what follows it, its gradient), and besides. Fitted to the hungriest of five frameworks,
#: ResNet-50 at batch 8 and 16, BERT-base at 2 and 4; OneFlow's adapter.toml says how much more it takes
PER_PARAMETER, PER_ACTIVATION, BESIDES = 22, 14, 2**29
#: bytes for each parameter that several ranks need besides: JAX, 1.75 GiB for BERT-base
TO_EXCHANGE = 16


@dataclass(frozen=True)
class Here:
    """What there is. instruction_sets: see Spec.instructions. free, available: bytes of disk and memory; None, 0 where
    unknown. made: (adapter, environment) of those that are there. proved: names of trajectories in the cache.
    referenced: of runs of the reference there."""

    instruction_sets: tuple[str, ...] = ()
    architecture: str = "x86_64"
    cores: float = 1.0
    free: int | None = None
    available: int = 0
    made: frozenset[tuple[str, str]] = frozenset()
    proved: frozenset[str] = frozenset()
    referenced: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Estimate:
    """seconds: of all runs and proofs, without making environments; None where nothing like it was measured. each:
    seconds of a run by job id, empty then. to_make: environments. gigabytes: theirs; unmeasured: those left out of it.
    disk: whether there is something to say of it. memory: bytes by job id, with its proofs' under ""; empty where the
    rows run elsewhere. until: as in Spec."""

    rows: int
    runs: int
    proofs: int
    seconds: float | None
    each: Mapping[str, float]
    to_make: tuple[tuple[str, str], ...]
    gigabytes: float
    unmeasured: tuple[str, ...]
    disk: bool
    memory: Mapping[str, int]
    here: Here
    until: float = 0.0


def expected(spec: Spec, runs: Sequence[Job], adapters: Mapping[str, Adapter], here: Here | None = None) -> Estimate:
    """Of these runs of a comparison: a row as often as it is to be run. here: this machine, looked at if not given."""
    jobs = list({job.id: job for job in runs}.values())
    wanted = proofs(jobs, adapters) if spec.verify else []
    here = here or look(spec, jobs, wanted, adapters)
    wanted = [one for one in wanted if one.name not in here.proved]
    each = {job.id: seconds for job in jobs if (seconds := run_seconds(job, spec, here)) is not None}
    known = len(each) == len(jobs)
    used = {(job.adapter, job.environment): job for job in jobs if _in_venv(job, spec, adapters)}
    to_make = tuple(key for key in used if key not in here.made)
    sizes = {key: adapters[key[0]].environments[key[1]].gigabytes for key in to_make}
    return Estimate(
        rows=len(jobs),
        runs=len(runs),
        proofs=len(wanted),
        seconds=_in_all(jobs, sum(each[job.id] for job in runs), wanted, spec, adapters, here) if known else None,
        each=each if known else {},
        to_make=to_make,
        gigabytes=sum(size for size in sizes.values() if size),
        unmeasured=tuple(" ".join(key) for key, size in sizes.items() if not size),
        disk=spec.env == "venv" and not _elsewhere(spec),
        memory={} if _elsewhere(spec) or spec.device != "cpu" else _memory(jobs, wanted, adapters),
        here=here,
        until=spec.until,
    )


def _in_all(
    jobs: Sequence[Job], runs: float, wanted: Sequence[Asked], spec: Spec, adapters: Mapping[str, Adapter], here: Here
) -> float:
    seconds = runs + proofs_seconds(wanted, spec, here)
    proven = [job for job in jobs if adapters[job.adapter].provable and adapters[job.adapter].trains]
    return seconds + looks_seconds(proven, spec, here, seconds)


def proofs(jobs: Iterable[Job], adapters: Mapping[str, Adapter]) -> list[Asked]:
    """The trajectories that prove these rows, cached or not."""
    proven = [job for job in jobs if adapters[job.adapter].provable]
    return list({one.name: one for job in proven for one in asked.needed(job)}.values())


def look(spec: Spec, jobs: Iterable[Job], wanted: Iterable[Asked], adapters: Mapping[str, Adapter]) -> Here:
    """This machine, without starting a process: what an environment's interpreter says is not asked."""
    made = set()
    for adapter, key in {(job.adapter, job.environment) for job in jobs}:
        with suppress(RunError):
            kinds.check(kinds.planned(adapters[adapter], key, spec.env if spec.env == "current" else "venv"))
            made.add((adapter, key))
    proved = [one.name for one in wanted if (one.job.adapter, one.job.environment) in made and certificates.kept(one)]
    return Here(
        spec.instructions or (),
        os.uname().machine,
        machine.usable_cores(),
        free(cache.folder()),
        machine.available_memory(),
        frozenset(made),
        frozenset(proved),
        references.kept_names(),
    )


def free(folder: Path) -> int | None:
    """Bytes on the disk that a folder is on, or will be."""
    there = next((one for one in (folder, *folder.parents) if os.path.exists(one)), None)
    with suppress(OSError):
        system = os.statvfs(there or "/")
        return system.f_bavail * system.f_frsize
    return None


def _in_venv(job: Job, spec: Spec, adapters: Mapping[str, Adapter]) -> bool:
    return spec.env == "venv" and not job.image and job.environment in adapters[job.adapter].environments


def _elsewhere(spec: Spec) -> bool:
    """Whether the ranks run on other machines: named, or found by the launcher."""
    return launchers.find(spec.launcher).elsewhere(max(spec.nnodes), spec.hosts)


# Time


def rate(precision: str, device: str, here: Here) -> float | None:
    """GFLOP/s a core; None where nothing like it was measured."""
    if device != "cpu" or here.architecture not in ("x86_64", "AMD64"):
        return None
    sets = (*here.instruction_sets, "x86_64")
    float32 = next(value for name, value in FLOAT32.items() if name in sets)
    if precision == "amp_bf16":
        bfloat16 = {**BFLOAT16, "avx2": max(float32, BFLOAT16["avx2"])}
        return next((value for name, value in bfloat16.items() if name in sets), float32)
    return float32 / 2 if precision == "fp64" else float32


def run_seconds(job: Job, spec: Spec, here: Here) -> float | None:
    """Of one run of a row; None where nothing like it was measured."""
    if not job.traits.run:
        return 0.0
    if spec.emulate_cpu:
        return None
    protocol = spec.protocol
    steps = max(protocol.warmup_steps, 1) + protocol.windows * protocol.steps_per_window
    threads = min(float(spec.threads), here.cores / job.nproc_per_node)
    seconds = _seconds(job.model, job.precision, job.device, steps * job.batch_size, threads, here)
    return None if seconds is None else seconds + steps * _link_seconds(job)


def _link_seconds(job: Job) -> float:
    """Of a step, what a ring of the nodes takes where their links were shaped. Latency is left out: nobody knows
    before how many messages a framework sends."""
    if not job.bandwidth:
        return 0.0
    sent = 32 * _parameters(job.model) * SENT.get(job.compression, 1.0)
    return 2 * (job.nnodes - 1) / job.nnodes * sent / (job.bandwidth * 1e9)


def _seconds(model: str, precision: str, device: str, samples: int, threads: float, here: Here) -> float | None:
    speed = rate(precision, device, here)
    if speed is None:
        return None
    work = samples * models.flops(model) / 1e9
    return START / min(1.0, threads) + work / (speed * threads)


def proofs_seconds(wanted: Sequence[Asked], spec: Spec, here: Here) -> float:
    """Of all of these, as dlperf.certify makes them: several at a time where it can."""
    alone = [one for one in wanted if one.ranks == 1]
    threads = min(float(asked.threads(spec)), here.cores)
    at_once = asked.at_once(alone, int(threads), here.available, [one.memory_bytes for one in spec.gpus])
    each = [_proof_seconds(one, threads / at_once, here) / at_once for one in alone]
    return sum(each) + sum(_proof_seconds(one, threads / one.ranks, here) for one in wanted if one.ranks > 1)


def _proof_seconds(one: Asked, threads: float, here: Here) -> float:
    samples = one.steps * batch_size(one.model) // one.ranks
    seconds = _seconds(one.model, one.precision, one.job.device, samples, threads, here) or 0.0
    return (seconds + SKETCH * _parameters(one.model)) * (TOGETHER if one.ranks > 1 else 1.0)


def looks_seconds(jobs: Sequence[Job], spec: Spec, here: Here, seconds: float) -> float:
    """Of what measured runs of these rows are held against, where it is not in the cache, and of one look at a run of
    each: the reference's step, a run from revealing weights, and one that drops nearly all. seconds: of all else."""
    rows = [job for job in jobs if not references.obstacle(job, spec)]
    each, threads, total = references.budget(rows, spec.protocol, seconds), spec.threads, 0.0
    for job, revealing in references.pairs(rows):
        protocol = references.affordable(job, spec.protocol, threads, each, revealing)
        made = references.pair(job, protocol, revealing) if protocol else ()
        total += sum(references.seconds(one, threads) for one in made if one.name not in here.referenced)
        alike = [row for row in rows if references.work(row) == references.work(job)]
        if not revealing:
            of_row = [spec.protocol.repeats * (run_seconds(row, spec, here) or 0.0) for row in alike]
            took = audit.takes(job, threads)
            total += took * sum(took <= audit.allowed(one) for one in of_row)
        else:
            steps = protocol.warmup_steps if protocol else 0
            total += _again(alike, steps, spec, here)
            if references.places_dropout(job):
                both = references.placing(job, spec.protocol)
                total += sum(references.seconds(one, threads) for one in both if one.name not in here.referenced)
                total += _again(alike, 1, spec, here)
    return total


def _again(rows: Sequence[Job], steps: int, spec: Spec, here: Here) -> float:
    """Seconds in which each of these rows makes so many steps once more."""
    short = replace(spec, protocol=references.steps_alone(spec.protocol, steps))
    return sum(run_seconds(row, short, here) or 0.0 for row in rows)


def _parameters(model: str) -> int:
    return parameters_of(models.family(model).parameters(models.config(model)))


# Memory


def run_memory(job: Job, adapter: Adapter) -> int:
    """Bytes that all ranks of one machine take, at the most."""
    config, family = models.config(job.model), models.family(job.model)
    activations = job.batch_size * family.activations(config)
    known = adapter.environments.get(job.environment)
    rank = (PER_PARAMETER * _parameters(job.model) + PER_ACTIVATION * activations) * (known.memory if known else 1.0)
    exchange = TO_EXCHANGE * _parameters(job.model) if job.world_size > 1 else 0
    nodes = launchers.find(job.launcher).nodes_here(job.nnodes) if job.launcher else 1
    return nodes * job.nproc_per_node * (BESIDES + int(rank) + exchange)


def _memory(jobs: Iterable[Job], wanted: Iterable[Asked], adapters: Mapping[str, Adapter]) -> dict[str, int]:
    rows = {job.id: run_memory(job, adapters[job.adapter]) for job in jobs if job.traits.run}
    most = max((one.ranks * asked.memory(one) for one in wanted), default=0)
    return {**rows, "": most} if most else rows


# In words


def text(found: Estimate) -> list[str]:
    """One line, and one for each thing that will not do."""
    parts = [_rows(found), _disk(found), _memory_line(found)]
    return [" ".join(filter(None, parts)), *_disk_warning(found), *_memory_warning(found)]


def _rows(found: Estimate) -> str:
    rows = count(found.rows, "row")
    each, rest = divmod(found.runs, max(found.rows, 1))
    most = "up to " if found.until else ""
    runs = count(found.runs, "run") if rest or not each else f"{most}{count(each, 'repeat')} each"
    line = f"{rows}, {runs}"
    if found.proofs:
        line += f", {count(found.proofs, 'proof')} to make"
    if found.seconds is None:
        return line + "."
    cores = count(found.here.cores, "CPU core")
    environments = ", plus making the environments" if found.to_make else ""
    return f"{line}: {most}about {about(found.seconds)} on {cores}{environments}."


def _disk(found: Estimate) -> str:
    if not found.disk:
        return ""
    if not found.to_make:
        return "Environments: all there."
    size = f", {found.gigabytes:.2g} GB on disk" if found.gigabytes else ""
    if found.unmeasured:
        size += f"{' and' * bool(size)} what {', '.join(found.unmeasured)} takes" if size else ", of unknown size"
    free = f" ({_gigabytes(found.here.free)} free)" if found.here.free is not None else ""
    return f"Environments: {len(found.to_make)} to make{size}{free}."


def _memory_line(found: Estimate) -> str:
    if not found.memory:
        return ""
    available = f" ({_gigabytes(found.here.available)} available)" if found.here.available else ""
    return f"Memory: up to {_gigabytes(max(found.memory.values()))} for one run{available}."


def _disk_warning(found: Estimate) -> list[str]:
    if not found.disk or found.here.free is None or found.gigabytes * 1e9 <= found.here.free:
        return []
    return [
        f"Not enough disk: the environments take {found.gigabytes:.2g} GB, and {cache.folder()} has "
        f"{_gigabytes(found.here.free)}. Free some, name a folder on another disk in DLPERF_CACHE, or leave out "
        f"frameworks: --frameworks."
    ]


def _memory_warning(found: Estimate) -> list[str]:
    if not found.here.available:
        return []
    large = {id_: needed for id_, needed in found.memory.items() if id_ and needed > found.here.available}
    lines = []
    if large:
        lines.append(
            f"Memory may not be enough: {', '.join(large)} may take up to {_gigabytes(max(large.values()))}, and "
            f"{_gigabytes(found.here.available)} are available. End other programs, choose a smaller --batch-size, or "
            f"leave out frameworks: --frameworks."
        )
    if found.memory.get("", 0) > found.here.available:
        lines.append(
            f"Memory may not be enough for proofs: one may take up to {_gigabytes(found.memory[''])}, and "
            f"{_gigabytes(found.here.available)} are available. End other programs, or go without: --no-verify."
        )
    return lines


def about(seconds: float) -> str:
    """One or two digits: "40 s", "14 min", "2.5 h"."""
    if seconds < 95:
        return f"{max(10, round(seconds / 10) * 10)} s"
    return f"{round(seconds / 60)} min" if seconds < 95 * 60 else f"{seconds / 3600:.2g} h"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2g} GB" if size < 1e11 else f"{size / 1e9:.0f} GB"
