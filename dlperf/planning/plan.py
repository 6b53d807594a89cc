"""From a spec to jobs and skips, and the order in which runs go. Pure."""

from __future__ import annotations

import platform
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import NamedTuple

from dlperf import launchers, models
from dlperf.catalog.adapter import RUNNABLE, Adapter, Distributed, Servers
from dlperf.launchers.containers import ENGINES
from dlperf.planning import obstacles, scripts, tuned
from dlperf.planning.spec import Spec, default_batch_size
from dlperf.precision import resolve
from dlperf.schema import Job, Skip


@dataclass(frozen=True)
class Plan:
    """Rows that run, and rows that don't, with the reason."""

    jobs: tuple[Job, ...]
    skips: tuple[Skip, ...]


def from_spec(spec: Spec, adapters: Mapping[str, Adapter], machine: str | None = None) -> Plan:
    """One row for each model, precision, number of nodes and of ranks on each with its batch size, framework,
    --compile, --input and value of --set.

    machine: the architecture that environments are made for, this one's if left out.
    """
    machine = platform.machine() if machine is None else machine
    jobs: dict[str, Job] = {}
    skips: dict[tuple[object, ...], Skip] = {}
    compiles: tuple[str | None, ...] = spec.compile or (None,)
    for model, asked, name, compile, input, chosen in product(
        spec.models, spec.precisions, spec.frameworks, compiles, spec.inputs, _choices(spec.settings)
    ):
        settings = {**chosen, **({"compile": compile} if compile else {})}
        concerned = _concerned(spec, adapters, models.FAMILY_OF[model])
        given = _mine(adapters[name], settings, concerned)
        precision = resolve(asked, spec.device)
        for mine in tuned.settings(spec, adapters[name], models.FAMILY_OF[model], precision, given):
            row = _row(spec, adapters[name], model, asked, input, mine, machine)
            if isinstance(row, Skip):
                skips.setdefault((row.system, row.model, row.precision_asked), row)
                continue
            for place in _places(spec):
                placed = _placed(spec, adapters[name], row, place)
                if isinstance(placed, Job):
                    jobs.setdefault(placed.id, placed)
                else:
                    key = (placed.system, placed.model, placed.precision_asked, place.nnodes, place.nproc, placed.why)
                    skips.setdefault(key, placed)
    return Plan((*jobs.values(), *_duplicates(spec, jobs.values())), tuple(skips.values()))


def _duplicates(spec: Spec, jobs: Iterable[Job]) -> Iterator[Job]:
    """Rows that are made once more: of frameworks that are named several times, and the first of each table, as many
    as asked."""
    seen: Counter[tuple[object, ...]] = Counter()
    for job in jobs:
        if not job.traits.proven:
            continue
        table = (job.model, job.precision, *job.work)
        more = max(spec.frameworks.count(job.adapter) - 1, int(seen[table] < spec.aa))
        seen[table] += 1
        for number in range(2, more + 2):
            yield replace(job, id=f"{job.id}-again{number}", system=f"{job.system}#{number}", duplicate_of=job.id)


def _choices(settings: Mapping[str, str]) -> list[dict[str, str]]:
    """One value of each option: graph=on,off is two."""
    values = product(*(value.split(",") for value in settings.values()))
    return [dict(zip(settings, chosen, strict=True)) for chosen in values]


class Place(NamedTuple):
    """Nodes, ranks on each, batch size (0: that of all rows), parameter servers on all nodes, their mode, and Gb/s and
    ms between nodes."""

    nnodes: int
    nproc: int
    batch_size: int = 0
    servers: int = 0
    mode: str = ""
    bandwidth: float = 0.0
    latency: float = 0.0


def _places(spec: Spec) -> Iterator[Place]:
    """Those of each row of a system."""
    for nnodes, nproc, batch_size, own in spec.grid:
        latencies, bandwidths = (one if one and nnodes > 1 else (0.0,) for one in (spec.latencies, spec.bandwidths))
        servers = (own,) if own else spec.servers or (0,)
        for count, mode, latency, bandwidth in product(servers, spec.ps_modes or ("",), latencies, bandwidths):
            yield Place(nnodes, nproc, batch_size, count, mode, bandwidth, latency)


def _placed(spec: Spec, adapter: Adapter, row: Job, place: Place) -> Job | Skip:
    """A row on so many nodes and ranks."""
    nnodes, nproc, own, servers, mode, bandwidth, latency = place
    world = nnodes * nproc
    batch_size = spec.global_batch_size // world if spec.global_batch_size else own or row.batch_size
    support: Distributed | Servers = adapter.distributed_on(spec.device)
    if not row.traits.run:
        return _made(spec, adapter, row, nnodes, nproc, own)
    ours = row.traits.worker and launchers.find(spec.launcher).in_environment
    lacks = adapter.lacks_launcher(spec.launcher, row.options) if ours else ""
    if lacks := lacks or obstacles.uncompressed(row, world, servers):
        return _skip(row, "option", lacks, nnodes, nproc)
    if servers:
        support = adapter.servers_of(row.family, spec.device, mode, row.options)
    if (world > 1 or servers) and support.status not in RUNNABLE:
        return _skip(row, support.status, support.why, nnodes, nproc)
    placed = replace(
        row,
        id=_id(row.model, row.precision, row.system, _batch(spec, batch_size), place),
        batch_size=batch_size,
        nnodes=nnodes,
        nproc_per_node=nproc,
        servers=servers,
        ps_mode=mode,
        bandwidth=bandwidth,
        latency=latency,
        launcher=spec.launcher if row.traits.worker else "local",  # a script starts its own ranks
        untested=row.untested or ((world > 1 or servers > 0) and support.status == "untested"),
    )
    by = tuned.about(adapter, placed)
    return replace(placed, about={**scripts.about(adapter, placed), **({"tuned": by} if by else {})})


def _made(spec: Spec, adapter: Adapter, row: Job, nnodes: int, nproc: int, own: int) -> Job | Skip:
    """A row whose runs were made elsewhere: it is of their size and batch, and of no other."""
    found = adapter.imported_of(row.model, row.device, row.precision)
    asked = spec.global_batch_size // (nnodes * nproc) if spec.global_batch_size else own or spec.batch_size
    fits = [one for one in found if one.size == (nnodes, nproc, asked or one.batch_size)]
    if not fits:
        sizes = ", ".join(f"{one.nnodes} x {one.nproc_per_node} devices with batch {one.batch_size}" for one in found)
        wanted = f"{nnodes} x {nproc}" + (f" with batch {asked}" if asked else "")
        return _skip(row, "option", f"its figures are of {sizes}, not of {wanted}", nnodes, nproc)
    one = fits[0]
    return replace(
        row,
        id=_id(row.model, row.precision, row.system, one.batch_size, Place(nnodes, nproc)),
        batch_size=one.batch_size,
        nnodes=nnodes,
        nproc_per_node=nproc,
        input=one.input,
        data_dir=None,
        launcher="",
        repeats=one.runs,
        about=one.about,
    )


def _skip(row: Job, status: str, why: str, nnodes: int, nproc: int) -> Skip:
    names = (field.name for field in fields(Skip))
    same = {name: getattr(row, name) for name in names if name not in ("status", "why", "nnodes", "nproc_per_node")}
    return Skip(**same, status=status, why=why, nnodes=nnodes, nproc_per_node=nproc)


def _row(
    spec: Spec, adapter: Adapter, model: str, asked: str, input: str, mine: Mapping[str, str], machine: str
) -> Job | Skip:
    """`mine`: the settings that address this adapter and this family."""
    family, precision = models.FAMILY_OF[model], resolve(asked, spec.device)
    options = {name: mine.get(name, option.default(spec.device)) for name, option in adapter.options_of(family).items()}
    script = adapter.scripts.get(model)
    if script:  # what feeds it is its own matter
        input = options.get("input", script.input)
    fed = input if adapter.kind.worker else ""
    system = system_name(adapter, family, spec.device, mine, fed)
    status, why = _supported(adapter, model, spec.device, precision, input)
    if status in RUNNABLE:
        why = _misfit(adapter, family, mine) or (_unread(spec, adapter, model, fed) if fed else "")
        status = "option" if why else status
    image = adapter.image(spec.device, options) if spec.env != "current" else ""
    environment = adapter.environment_key(spec.device, options, fed, spec.on_servers)
    if status in RUNNABLE and spec.env == "venv" and not image:
        why = obstacles.unbuilt(adapter, environment, spec.device)
        status = "not_yet" if why else status
    if status in RUNNABLE and spec.env in ENGINES and not image and adapter.kind.run:
        why = obstacles.no_image(adapter, environment, spec.device, spec.images)
        status = "not_yet" if why else status
    if status in RUNNABLE and not image and obstacles.from_lock(spec, adapter) and environment in adapter.environments:
        made = adapter.environments[environment]
        why = made.lacks(machine)
        status = ("unavailable" if machine in made.unavailable else "not_yet") if why else status
    if status in RUNNABLE:
        why = obstacles.too_old(spec, adapter, family, precision, options) or (
            "" if image else obstacles.other_gpu(spec, adapter, environment, precision)
        )
        status = "hardware" if why else status
    if status not in RUNNABLE:
        names = (system, adapter.name, adapter.title, model, family, spec.device, asked, precision)
        return Skip(*names, status, why, kind=adapter.kind.name)
    usual = default_batch_size(model, spec.device, precision)
    usual = script.batch_size.get(precision, usual) if script and spec.device == "cuda" else usual
    batch_size = spec.batch_size or spec.global_batch_size or usual
    return Job(
        id=_id(model, precision, system, _batch(spec, batch_size)),
        system=system,
        adapter=adapter.name,
        title=adapter.title,
        model=model,
        family=family,
        device=spec.device,
        precision_asked=asked,
        precision=precision,
        batch_size=batch_size,
        input=input,
        data_dir=None if "synthetic" in (input, spec.data) else spec.data,
        options=options,
        environment=environment,
        image=image,
        untested=status == "untested",
        kind=adapter.kind.name,
        format=_format(spec, adapter, fed),
    )


def _supported(adapter: Adapter, model: str, device: str, precision: str, input: str) -> tuple[str, str]:
    """Whether an adapter has such a row, and why not."""
    if adapter.imported_of(model, device, precision):
        return "yes", ""
    if adapter.imported:
        has = dict.fromkeys(f"{one.model} {one.precision} on {one.device}" for one in adapter.imported)
        return "never", f"its figures are of {', '.join(has)}"
    if adapter.scripts and model not in adapter.scripts:
        *first, last = adapter.scripts
        return "never", f"its scripts train {' and '.join(filter(None, (', '.join(first), last)))}"
    support = adapter.support_of(models.FAMILY_OF[model], device, precision, input)
    return support.status, support.why


def _format(spec: Spec, adapter: Adapter, input: str) -> str:
    """The first format that the adapter's loader reads and the data folder has; empty if there is none."""
    return next((one for one in adapter.formats.get(input, ()) if one in spec.formats), "")


def _unread(spec: Spec, adapter: Adapter, model: str, input: str) -> str:
    """Why this adapter cannot read the data folder; empty if it can."""
    reads = models.input_of(model)
    if input == "synthetic" or reads is None or not reads.FORMATS or _format(spec, adapter, input):
        return ""
    wanted, there = " or ".join(adapter.formats.get(input, ())), ", ".join(spec.formats)
    none = f"no {models.family(model).SAMPLE}"
    return f"reads {wanted or none}; there is {there}: {reads.COMMAND} --format {wanted}"


def _concerned(spec: Spec, adapters: Mapping[str, Adapter], family: str) -> set[str]:
    """The options that some chosen adapter has for a family; --set layout=... does not concern BERT."""
    return {"compile"}.union(*(adapters[name].options_of(family) for name in spec.frameworks))


def _mine(adapter: Adapter, settings: Mapping[str, str], concerned: set[str]) -> dict[str, str]:
    """The settings for this row: "option" addresses all adapters, "adapter.option" one, and wins."""
    general = {key: value for key, value in settings.items() if key in concerned}
    own = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith(adapter.name + ".")}
    return {**general, **{key: value for key, value in own.items() if key in concerned}}


def _misfit(adapter: Adapter, family: str, mine: Mapping[str, str]) -> str:
    """Why this adapter can't take the settings; empty if it can."""
    options = adapter.options_of(family)
    for name, value in mine.items():
        if name in options and not options[name].accepts(value):
            return f"option {name} takes {' or '.join(options[name].values)}, not {value}"
        if name not in options and (name, value) != ("compile", "off"):  # nothing to switch off
            return f"has no option {name}; it has {', '.join(sorted(options)) or 'none'}"
    return ""


def system_name(
    adapter: Adapter, family: str, device: str, settings: Mapping[str, str], input: str = "synthetic"
) -> str:
    """The adapter and what differs from its defaults: "pytorch+inductor", "pytorch+dali", "pytorch clip_norm=off"."""
    labels, rest = ("+dali" if input == "dali" else ""), ""
    for name, option in adapter.options_of(family).items():
        value = settings.get(name, option.default(device))
        if value in option.labels:
            labels += "+" + option.labels[value]
        elif value != option.default(device):
            rest += f" {name}={value}"
    return adapter.name + labels + rest


def _batch(spec: Spec, batch_size: int) -> int | str:
    """In a row's name, which it keeps when its largest batch is found."""
    return "max" if spec.largest_batch else batch_size


def _id(model: str, precision: str, system: str, batch_size: int | str, place: Place | None = None) -> str:
    """ "bert_base-fp32-pytorch-b4", "bert_base-fp32-pytorch-2n8d-b4", "word2vec-fp32-mxnet-1n2d+2s-async-b100"."""
    nnodes, nproc, _, servers, mode, bandwidth, latency = place or Place(1, 1)
    size = f"-{nnodes}n{nproc}d" if nnodes * nproc > 1 or servers else ""
    size += f"+{servers}s-{mode}" if servers else ""
    size += f"-{bandwidth:g}gbit" if bandwidth else ""
    size += f"-{latency:g}ms" if latency else ""
    return file_name(f"{model}-{precision}-{system}{size}-b{batch_size}")


def id_of(job: Job, spec: Spec) -> str:
    """The id that the plan gives a row."""
    system, _, again = job.system.rpartition("#") if job.duplicate_of else (job.system, "", "")
    place = Place(job.nnodes, job.nproc_per_node, 0, job.servers, job.ps_mode, job.bandwidth, job.latency)
    made = _id(job.model, job.precision, system, _batch(spec, job.batch_size), place)
    return made + (f"-again{again}" if again else "")


def file_name(text: str) -> str:
    """Letters, digits and -._=+ only."""
    return "".join(letter if letter.isalnum() or letter in "-._=+" else "_" for letter in text)


def size(job: Job) -> tuple[int, int]:
    """What rows are sorted by, small ones first."""
    return job.nnodes, job.world_size


def order(plan: Plan, repeats: int, seed: int) -> list[tuple[int, Job]]:
    """Every run: blocks of one repeat of every job that has as many, each block in its own random order, so that a
    drift of the machine hits all systems alike; in a block small sizes first, so that a mistake shows early."""
    runs = []
    for repeat in range(max((job.runs(repeats) for job in plan.jobs), default=0)):
        block = [job for job in plan.jobs if repeat < job.runs(repeats)]
        random.Random(f"{seed} {repeat}").shuffle(block)
        block.sort(key=size)
        runs += [(repeat, job) for job in block]
    return runs
