"""What was asked, checked and resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product, zip_longest
from typing import Any

import msgspec

from dlperf import models
from dlperf import precision as precisions
from dlperf.adapters import cpu
from dlperf.adapters.gpu import Gpu
from dlperf.catalog.adapter import RUNNABLE, Adapter

#: in place of them: amp, unless too few frameworks have kernels for it
AUTO, ENOUGH = "auto", 3


@dataclass(frozen=True)
class Protocol:
    """How often: `repeats` fresh processes, each with warm-up steps and then windows of steps. warmup_seconds,
    window_seconds: what these take at least, of one rank on CUDA; 0: as long as their steps."""

    name: str
    warmup_steps: int
    windows: int
    steps_per_window: int
    repeats: int
    warmup_seconds: float = 0.0
    window_seconds: float = 0.0


#: dlperf: DLPerf's 20 steps of warm-up, 100 measured, 7 repeats. quick: for machines where a step takes seconds. fast:
#: for networks of which it takes milliseconds there, too, and a window of two is over before it has begun.
PROTOCOLS = {
    "dlperf": Protocol("dlperf", 20, 5, 20, 7),
    "quick": Protocol("quick", 2, 3, 2, 3),
    "fast": Protocol("fast", 20, 3, 100, 3),
}
#: of warm-up and of a window on CUDA under dlperf: 120 steps of BERT-base take 2 s on a card of 2024
CUDA_SECONDS = (5.0, 2.0)
#: with --until: blocks before ratios are looked at, and at most
FIRST_LOOK, MAX_BLOCKS = 7, 40
#: seconds that one run may take, unless --timeout says otherwise
TIMEOUTS = {"dlperf": 7200.0, "quick": 1200.0, "fast": 1200.0}


@dataclass(frozen=True)
class Spec:
    """A comparison as asked.

    precisions: as the user wrote them; dlperf.precision says what they mean on the device. batch sizes: None means the
    model's default, from which on largest_batch has the largest that runs searched for. tuned: one of CHOICES of
    dlperf.planning.tuned. settings: option -> value, or "adapter.option" -> value. data: "synthetic" or a folder.
    timeout: seconds for one run. threads: CPU threads that each rank's framework may use. verify: whether to make
    certificates that are missing. nnodes, nproc_per_node: each pair is a row, or those of sizes alone. hosts: names, in
    order; empty: this machine, or those that the launcher finds. launcher: its name, resolved. launcher_arguments: see
    Launcher.arguments. predict: numbers of devices whose throughput the report predicts. inputs: "native", "dali" for a
    data folder, each a row. formats: of the images in the data folder, those that may be read. images: adapter ->
    reference of its image, "ngc" for NVIDIA's; "" stands for all others. container_arguments: see
    dlperf.launchers.containers. sources: of adapters whose scripts are others', their checkouts. instructions: what the
    CPU that runs the rows has, see dlperf.adapters.cpu; None where other machines run them, or nothing tells.
    emulate_cpu: the CPU that qemu-user emulates for the workers; empty for this machine's own. allow_reference: run
    rows whose kernels are of last resort. aa: rows of each table that are made twice. gpus: those that run the rows;
    empty on a CPU, where other machines run them, or nothing tells. until: the half width of a ratio's interval, as a
    share, for which blocks are added; 0: as many as the protocol's repeats. max_time: seconds that runs take together,
    after which none is added; 0: however many. profile: steps of each run that its framework's profiler looks at, after
    the windows; of dlperf.why. turns: of two comparisons whose runs took turns in one session, block by block, what
    both have; of dlperf.diff --rerun. allocation: what one job of the launcher's holds, see Launcher.allocations.
    batches: of each of sizes its batch size, 0 for the one of all rows; empty where none has its own. servers:
    numbers of parameter servers, each a row; empty where each rank has all parameters. servers_of_sizes: of each of
    sizes its own number of them, 0 for those of all rows; empty where none has its own. ps_modes: of them, see
    dlperf.adapters.api. bandwidths: of emulated nodes' links, in Gb/s, each a row; empty where nodes are what they are.
    latencies: the same in milliseconds.
    """

    models: tuple[str, ...]
    precisions: tuple[str, ...]
    frameworks: tuple[str, ...]
    device: str
    env: str
    protocol: Protocol
    batch_size: int | None = None
    largest_batch: bool = False
    global_batch_size: int | None = None
    compile: tuple[str, ...] = ()
    tuned: str = "off"
    settings: Mapping[str, str] = field(default_factory=dict)
    data: str = "synthetic"
    timeout: float = TIMEOUTS["quick"]
    seed: int = 1
    threads: int = 1
    verify: bool = True
    nnodes: tuple[int, ...] = (1,)
    nproc_per_node: tuple[int, ...] = (1,)
    hosts: tuple[str, ...] = ()
    launcher: str = "local"
    launcher_arguments: Mapping[str, str] = field(default_factory=dict)
    predict: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ("synthetic",)
    formats: tuple[str, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    container_arguments: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    instructions: tuple[str, ...] | None = None
    emulate_cpu: str = ""
    allow_reference: bool = False
    aa: int = 0
    gpus: tuple[Gpu, ...] = ()
    until: float = 0.0
    max_time: float = 0.0
    profile: int = 0
    turns: str = ""
    allocation: str = ""
    sizes: tuple[tuple[int, int], ...] = ()
    batches: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()
    servers_of_sizes: tuple[int, ...] = ()
    ps_modes: tuple[str, ...] = ()
    bandwidths: tuple[float, ...] = ()
    latencies: tuple[float, ...] = ()

    @property
    def grid(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of each row of a system nodes, ranks on each, and batch size and parameter servers, 0 for those of all
        rows."""
        sizes = self.sizes or tuple(product(self.nnodes, self.nproc_per_node))
        whole = zip_longest(sizes, self.batches, self.servers_of_sizes, fillvalue=0)
        return tuple((*size, batch, servers) for size, batch, servers in whole)  # type: ignore[misc]

    @property
    def on_servers(self) -> bool:
        return bool(self.servers) or any(self.servers_of_sizes)

    @property
    def world_sizes(self) -> list[int]:
        return sorted({nodes * devices for nodes, devices, *_ in self.grid})


def spec_from(data: Mapping[str, Any]) -> Spec:
    """The inverse of dataclasses.asdict, from JSON. KeyError, TypeError or ValueError when the data is something
    else."""
    older = {} if data["data"] == "synthetic" else {"inputs": ("native",)}  # had none
    return msgspec.convert({**older, **data}, Spec)


def without_amp(
    chosen: Sequence[Adapter], families: Iterable[str], device: str, instructions: frozenset[str] | None
) -> list[Adapter]:
    """The frameworks without kernels worth a row for amp in some family, if fewer than three have them, or than all
    where fewer were chosen: then a comparison in amp would be of few. Empty otherwise."""
    for family in sorted(families):
        without = [one for one in chosen if not _runs_amp(one, family, device, instructions)]
        if len(chosen) - len(without) < min(ENOUGH, len(chosen)):
            return without
    return []


def _runs_amp(adapter: Adapter, family: str, device: str, instructions: frozenset[str] | None) -> bool:
    precision = precisions.resolve("amp", device)
    runs = adapter.support_of(family, device, precision, "synthetic").status in RUNNABLE
    return runs and not cpu.refusal(adapter.kernels_of(family, device, precision), instructions)


def chosen_precision(spec: Spec, adapters: Mapping[str, Adapter]) -> str:
    """What --precision auto chose, and why, in one line."""
    if spec.precisions == ("amp",):
        return "Comparing in amp (mixed precision)."
    found = None if spec.instructions is None else frozenset(spec.instructions)
    families = {models.FAMILY_OF[model] for model in spec.models}
    without = without_amp([adapters[name] for name in spec.frameworks], families, spec.device, found)
    titles = ", ".join(one.title for one in without)
    return (
        f"Comparing in fp32: on this CPU {titles} have no usable kernels for amp. --precision amp compares the others."
    )


def default_batch_size(model: str, device: str, precision: str) -> int:
    sizes = models.family(model).BATCH_SIZE[device]
    if device == "cpu":
        return int(sizes[model] if isinstance(sizes, dict) else sizes)
    return int(sizes["amp" if precision.startswith("amp") else "fp32" if precision == "fp64" else precision])
