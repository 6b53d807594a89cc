"""What things are called where people read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dlperf import models
from dlperf.errors import clean
from dlperf.figures.published import Figure
from dlperf.figures.rates import rate_unit as rate_unit
from dlperf.figures.summaries import Summary
from dlperf.precision import TABLE
from dlperf.report.text import NONE, count, slug
from dlperf.schema import Job, Skip, Trajectory

#: Skip.status and Failure.kind in words
STATUSES = {
    "not_yet": "not supported by dlperf yet",
    "unavailable": "not supported by the framework",
    "never": "does not apply",
    "option": "excluded by an option",
    "environment": "environment could not be made",
    "hardware": "this machine lacks what it needs",
    "crash": "crashed",
    "timeout": "ran out of time",
    "out_of_memory": "out of memory",
    "nan": "loss became NaN or infinite",
    "killed": "killed",
    "unsupported": "not supported by this build of the framework",
    "wrong_tensor": "handed back a tensor that is not the model's",
    "lost": "ranks did not find each other, or are not alike",
    "port_taken": "a port was taken",
    "launcher": "the launcher could not start or keep the ranks",
    "no_figures": "no figures in its log",
    "machine": "this machine could not run it",
    "bad_event": "told something that cannot be",
    "lost_push": "pushes to its servers were lost, or applied twice",
    "ranks_differ": "the ranks ended up with different weights",
}

#: Skip.status in a word, for a table's cell
SHORT = {
    "not_yet": "unsupported",
    "unavailable": "unsupported",
    "never": "unsupported",
    "option": "excluded",
    "environment": "no environment",
    "hardware": "not on this machine",
}

#: keys of `effective` that all families have, in one sentence each; MEANINGS of a family has its own
MEANINGS = {
    "precision": "The precision that was asked for.",
    "compute_dtype": "The type of the large products: half the bits, and a product may take half the time or less.",
    "accumulation": "The type in which products of 16 bits are summed up.",
    "loss_scale": "Factor that keeps float16 gradients from vanishing; a dynamic one checks all gradients each step.",
    "data": "Where batches come from; synthetic ones cost no reading and decoding.",
    "compile": "What turns the step into one program, which saves calls and passes over memory.",
    "compilation_cache": "What a process need not compile that one before it did.",
    "graph": "What of a step is recorded once and then launched as a whole, which saves the host's time.",
    "bn_moments": "In how many passes over memory batch normalisation takes mean and variance.",
    "norm_moments": "In how many passes over memory LayerNorm takes mean and variance.",
    "optimizer": "The kernel that updates the weights.",
    "threads": "CPU threads that the framework may use.",
    "libraries": "Libraries of products on a CPU, as far as they tell of themselves, and what chooses their kernels.",
    "dense_layers": "By what dense layers are computed, where a framework has several ways.",
    "openblas": "Whose OpenBLAS multiplies, where a framework can be given another.",
    "weight_decay": "Share of a weight that is taken off it, times the learning rate.",
    "device_memory": "What the column of device memory counts: not the same in all frameworks.",
    "server_dtype": "In what parameter servers keep the parameters.",
    "exchange": "How often workers tell parameter servers how far their copies went.",
    "overlap": "What of the next step goes on during a step, with parameter servers.",
    "communication": "What averages gradients over the ranks, and by which transport.",
    "compression": "What of its gradients a rank hands to the others.",
}
#: Job.compression in a size
COMPRESSED = {
    "fp16": "gradients in float16",
    "powersgd": "gradients of rank 2 (PowerSGD)",
    "2bit": "gradients of 2 bits",
    "dgc": "deep gradient compression",
}

DEVICES = {"cpu": "CPU", "cuda": "CUDA"}


def rows(jobs: Iterable[Job], skips: Iterable[Skip]) -> list[Job | Skip]:
    """What was asked for, run or not."""
    return [*jobs, *skips]


def model(name: str) -> str:
    return models.family(name).TITLES.get(name, name) if name in models.FAMILY_OF else name


def system(row: Job | Skip | Trajectory) -> str:
    """The framework's own name with what sets the system apart: `pytorch+compile` is shown as PyTorch+compile."""
    return row.title + row.system.removeprefix(row.adapter) if row.system.startswith(row.adapter) else row.system


def has_figures(skip: Skip, groups: Iterable[Iterable[Summary]]) -> bool:
    """Whether other rows of a system have figures, of another size or with other servers."""
    return any(one.done and one.job.system == skip.system for group in groups for one in group)


def status(word: str) -> str:
    return STATUSES.get(word, word)


def status_short(word: str) -> str:
    return SHORT.get(word, word)


def meaning(key: str, family: str) -> str:
    """What a key of `effective` is, in a sentence; nothing for one that only its adapter knows."""
    own = models.FAMILIES[family].MEANINGS if family in models.FAMILIES else {}
    return own.get(key) or MEANINGS.get(key, "")


def device(name: str) -> str:
    return DEVICES.get(name, name)


def precision(row: Job | Skip) -> str:
    """One sentence: what was asked, and what that means on this device."""
    means = f", which on {device(row.device)} is {row.precision}" if row.precision_asked != row.precision else ""
    meaning = f" ({TABLE[row.precision].meaning})" if row.precision in TABLE else ""
    return f"Precision: {row.precision_asked}{means}{meaning}."


def precision_short(row: Job | Skip) -> str:
    """`fp32`, or `amp (bf16 mixed precision)` where what was asked depends on the device."""
    if row.precision_asked == row.precision:
        return row.precision
    return f"{row.precision_asked} ({row.precision.removeprefix('amp_')} mixed precision)"


def section(row: Job | Skip) -> str:
    """`ResNet-50 v1.5, fp32, CPU`."""
    return f"{model(row.model)}, {precision_short(row)}, {device(row.device)}"


def anchor(row: Job | Skip) -> str:
    """Where a report has its section."""
    return slug(clean(f"{row.model}-{row.precision_asked}-{row.device}"))


def sample(family: str) -> str:
    """One of what the family counts, e.g. `image`."""
    return (models.FAMILIES[family].SAMPLE if family in models.FAMILIES else "samples").removesuffix("s")


def flops(model_name: str) -> int | None:
    """Floating-point operations of a training step for one `sample`; None for a model that this version does not
    know."""
    if model_name not in models.FAMILY_OF:
        return None
    return models.flops(model_name) // models.units(model_name)


def row(job: Job, several: bool) -> str:
    """Of one row of a section. several: whether its rows have several sizes."""
    served = f" with {servers(job)}" if job.servers else ""
    sizes = f"{job.nnodes}×{job.nproc_per_node}{served}, batch {job.batch_size}"
    return f"{system(job)}, {sizes}" if several else system(job)


def servers(job: Job) -> str:
    """`2 parameter servers (async)`."""
    return f"{count(job.servers, 'parameter server')} ({job.ps_mode})"


def command(job: Job) -> str:
    """Where a page has a row's command."""
    return f"row-{slug(job.id)}"


def size(job: Job) -> str:
    """`1 node, 2 devices, 2 parameter servers (async), batch 16 per device`."""
    places = f"{count(job.nnodes, 'node')}, {count(job.world_size, 'device')}"
    places += f", {servers(job)}" if job.servers else ""
    places += f", links of {job.link}" if job.link else ""
    places += f", {COMPRESSED[job.compression]}" if job.compression in COMPRESSED else ""
    return f"{places}, batch {job.batch_size} per device"


def printed_batch(one: Figure) -> str:
    """What a published batch is of, in words; empty where there is none."""
    if not one.batch:
        return "not stated" if one.batch_of == "unknown" else ""
    of = {"device": " per device", "global": " in all", "unknown": ", of what is not stated"}
    return one.batch + of.get(one.batch_of, f" {one.batch_of}".rstrip())


def short_sizes(jobs: Sequence[Job]) -> list[str]:
    """See Job.size; with how gradients are compressed, and with batch and input where these differ."""
    batches, inputs = {job.batch_size for job in jobs}, {job.work[-1] for job in jobs}
    return [
        job.size
        + (f" with {job.compression}" if job.compression in COMPRESSED else "")
        + (f" at batch {job.batch_size}" if len(batches) > 1 else "")
        + (f" from {job.work[-1]}" if len(inputs) > 1 else "")
        for job in jobs
    ]


def titled(job: Job) -> str:
    """A row as a heading has it."""
    return f"{system(job)}, {model(job.model)}, {job.precision}, {size(job)}"


def sizes_differ(jobs: Iterable[Job]) -> bool:
    return len({job.work for job in jobs}) > 1


#: what rows may differ by besides devices and batch -> what a row says of it: columns of tables
APART: Mapping[str, Callable[[Job], str]] = {
    "servers": lambda job: f"{job.servers} {job.ps_mode}" if job.servers else "",
    "link": lambda job: job.link,
}


def apart(jobs: Iterable[Job]) -> list[str]:
    """Those of APART that any row has."""
    some = list(jobs)
    return [name for name, says in APART.items() if any(map(says, some))]


def told(job: Job, apart: Sequence[str]) -> list[str]:
    """Its cells in these columns."""
    return [APART[name](job) or NONE for name in apart]
