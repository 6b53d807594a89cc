"""What is stored and shown: records, skips, and the comparison that holds them. Plain data, JSON in and out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from dlperf.kind import KINDS, Kind

SCHEMA = 1
#: no run takes longer, no machine has more
Seconds = Annotated[float, Meta(ge=0, le=1e8)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Some = Annotated[int, Meta(ge=1, le=2**53)]
Ranks = Annotated[int, Meta(ge=1, le=2**20)]
#: a chart has to hold it
Label = Annotated[str, Meta(max_length=1000)]
#: a second
Gigabits = Annotated[float, Meta(ge=0, le=1e4)]
Milliseconds = Annotated[float, Meta(ge=0, le=1e6)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
#: of one or the other
Amount = Annotated[int, Meta(ge=0, le=2**60)] | Annotated[float, Meta(ge=0, le=1e18)]
Work = tuple[int, int, int, int, str, str, float, float, str]  # see Job.work


@dataclass(frozen=True)
class Job:
    """One row of the comparison: a system, a model, a precision and a size. Planned; run several times.

    id: a file name, unique in the comparison. system: the adapter, with what sets it apart from the adapter's
    defaults, e.g. "pytorch+compile" or "pytorch clip_norm=off". precision_asked: what the user wrote ("amp");
    precision: what it means on this device ("amp_bf16"). batch_size: per device. options: all options of the adapter
    that apply, defaults included. environment: key of the adapter's environment that they need, e.g. "cpu-horovod",
    whether the adapter has one or not. image: reference of the image that a third-party script runs in; empty for none.
    launcher: what starts the ranks; empty if nothing does. untested: nobody of us has run this combination. format: of
    the images in data_dir. kind: of its system, a name of dlperf.kind. about: what a reader must know of a row that is
    not native, see ABOUT. repeats: of a row whose runs were made elsewhere, how many there are; 0: as many as the
    protocol says. duplicate_of: of a row that is made once more, "pytorch#2", to see how far apart two rows of one
    system come out, the id of the first. servers, ps_mode: parameter servers on all nodes, and how they take pushes.
    bandwidth: of the link of each emulated node, in Gb/s; 0 where nodes are what they are. latency: ms by which what it
    sends is late.
    """

    id: Label
    system: Label
    adapter: Label
    title: Label
    model: Label
    family: Label
    device: Label
    precision_asked: Label
    precision: Label
    batch_size: Some
    input: Label
    data_dir: str | None
    options: Mapping[str, str]
    environment: Label
    nnodes: Ranks = 1
    nproc_per_node: Ranks = 1
    launcher: Label = "local"
    untested: bool = False
    format: Label = ""
    kind: Label = "native"
    about: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    repeats: Count = 0
    duplicate_of: Label = ""
    servers: Count = 0
    ps_mode: Label = ""
    bandwidth: Gigabits = 0.0
    latency: Milliseconds = 0.0

    @property
    def traits(self) -> Kind:
        return KINDS[self.kind]

    def runs(self, repeats: int) -> int:
        """How many runs of it there are to be. repeats: the protocol's."""
        return self.repeats or repeats

    @property
    def world_size(self) -> int:
        return self.nnodes * self.nproc_per_node

    @property
    def global_batch_size(self) -> int:
        return self.batch_size * self.world_size

    @property
    def size(self) -> str:
        """`2n16d`: 2 nodes with 16 devices together; `1n2d+2s async`: with 2 parameter servers; `2n2d at 0.1 Gb/s`."""
        servers = f"+{self.servers}s {self.ps_mode}" if self.servers else ""
        return f"{self.nnodes}n{self.world_size}d{servers}" + (f" at {self.link}" if self.link else "")

    @property
    def link(self) -> str:
        """`0.1 Gb/s and 5 ms`, as far as they were asked for."""
        asked = {"Gb/s": self.bandwidth, "ms": self.latency}
        return " and ".join(f"{value:g} {unit}" for unit, value in asked.items() if value)

    @property
    def compression(self) -> str:
        """How ranks compress the gradients that they exchange, see dlperf.adapters.compression."""
        return self.options.get("compression", "none")

    @property
    def work(self) -> Work:
        """What must be the same for two rates to be compared: nodes, devices on each, batch, parameter servers, their
        mode, how gradients are compressed, the nodes' links, and whether it is read from files: by what loader is a
        framework's own matter."""
        read = "synthetic" if self.input == "synthetic" else "files"
        ranks = self.nnodes, self.nproc_per_node, self.batch_size, self.servers, self.ps_mode
        return *ranks, self.compression, self.latency, self.bandwidth, read


#: keys of Job.about: repository and commit of the script; its image; what its batch argument means; how its log is
#: timed; what it computes otherwise; edits to it; where imported figures are from; how --batch-size max was found;
#: with what it is tuned
ABOUT = ("script", "image", "batch", "estimator", "differs", "edits", "source", "found", "tuned")


@dataclass(frozen=True)
class Skip:
    """A row that is not run, and why. status: not_yet | unavailable | never | option | environment | hardware.
    kind: as in Job."""

    system: Label
    adapter: Label
    title: Label
    model: Label
    family: Label
    device: Label
    precision_asked: Label
    precision: Label
    status: str
    why: str
    nnodes: Ranks = 1
    nproc_per_node: Ranks = 1
    kind: Label = "native"

    @property
    def traits(self) -> Kind:
        return KINDS[self.kind]


@dataclass(frozen=True)
class Window:
    """A timed stretch of `steps` optimizer steps, which all ranks begin together.

    seconds: of the slowest rank. skew_seconds: slowest less fastest. samples, cpu_seconds (user + system, of what the
    ranks started, too): of all ranks. loss: of the last step, mean over ranks. read_seconds: that reading it took then,
    of the slowest rank. input_seconds: that steps waited for batches, of the rank that waited longest; None where the
    input takes none. source: of a script that is not ours, file and lines of its log: "stdout.log:123-222"; such a log
    tells no CPU time, and may tell no loss. conditions: see dlperf.runs.conditions.
    """

    index: Count
    steps: Count
    samples: Count
    seconds: float
    cpu_seconds: Annotated[float, Meta(ge=0, le=1e15)] | None
    loss: Number | None
    skew_seconds: Seconds = 0.0
    input_seconds: Seconds | None = None
    source: Annotated[str, Meta(pattern=r"\A\Z|:[0-9]{1,18}(-[0-9]{1,18})?\Z")] = ""
    read_seconds: Seconds | None = None
    conditions: Mapping[str, Annotated[float, Meta(ge=-1e30, le=1e30)]] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """kind: crash | timeout | out_of_memory | nan | killed | environment | unsupported | wrong_tensor | lost |
    port_taken | launcher | ranks_differ | no_figures | bad_event | machine."""

    kind: str
    message: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """One run of a job: one fresh process per rank. A failed run is a record too.

    repeat counts from 0. block: runs of the same one took place one after the other, in random order; the repeat,
    where a comparison was not interrupted; None in older records. environment: kind, python, digest of what defines
    it. first_step_seconds includes compilation. start_seconds: importing the framework and building the model.
    peak_memory_bytes: the process's largest resident size, over all ranks. command: the script that was run,
    verbatim. folder: its logs, relative to the comparison. hosts: of each rank. communication: with several ranks,
    gradient_bytes that one hands over in each step; all_reduce_bytes, all_reduce_seconds of a probe outside of the
    windows. input: samples and seconds of the loader alone, without training, over all ranks. kernels: what the
    adapter says of its wheel's on that CPU, "kernels" and "why", see dlperf.adapters.cpu. product: what the
    worker's event of this name has: seconds of matrix products and of a copy of memory; on several hosts also the rank
    with the slowest product, and its share of the FLOP/s of the fastest's. not_sampled: why nobody knows the conditions
    of its GPUs; empty where they are known, and on a CPU. work: what dlperf.proof.references says of it, and
    dlperf.proof.audit of one run of a row. stages: where its seconds went, see dlperf.runs.stages. code: digest of what
    its workers ran, see dlperf.runs.bundle; empty for scripts that are not ours, and in older records. servers: of each
    its host, what it used, pushes it applied; stale_median, stale_95: updates between a worker's pull and its push.
    """

    job: Job
    repeat: Count
    started: str
    seconds: Seconds
    command: str
    folder: str
    environment: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict)
    parameter_count: Count | None = None
    effective: Mapping[str, str] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    start_seconds: Seconds | None = None
    first_step_seconds: Seconds | None = None
    peak_memory_bytes: Count | None = None
    peak_device_memory_bytes: Count | None = None
    hosts: tuple[str, ...] = ()
    communication: Mapping[str, Amount] = field(default_factory=dict)
    input: Mapping[str, Amount] = field(default_factory=dict)
    kernels: Mapping[str, Any] = field(default_factory=dict)
    product: Mapping[str, Amount] = field(default_factory=dict)
    not_sampled: str = ""
    work: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, Amount] = field(default_factory=dict)
    failure: Failure | None = None
    block: Count | None = None
    code: str = ""
    servers: tuple[Mapping[str, str | Amount], ...] = ()

    @property
    def done(self) -> bool:
        return self.failure is None


@dataclass(frozen=True)
class Trajectory:
    """What one system computed in the first steps of a training job without dropout; see dlperf.adapters.trace.

    system, adapter, title: as in Job; "reference" is the published trajectory of the model. model: what was trained,
    e.g. "resnet50_check"; of: the model whose proof this is. losses, gradient_norms: of each step; a norm is None
    where the framework hides its gradients. step_seconds, read_seconds: of `step` and `wait`, of the `read` after it;
    on a CPU, of processor time. environment: kind, python, digest. code: digest of the adapter's code, the contract's
    and dlperf.models'. definition: digest of what was asked: sizes, optimizer, weights, batches. sketches: digest of
    the file of sketches. ranks: how many trained it together; batch_size is of all of them, losses are means over them,
    running statistics are rank 0's. gpu: model, compute capability and driver of each that it was made on, if any. cpu:
    model and instruction sets of the one it was made on; empty where a GPU trained, or nobody knows.
    """

    system: str
    adapter: str
    title: str
    of: str
    model: str
    family: str
    device: str
    precision: str
    batch_size: int
    steps: int
    seed: int
    options: Mapping[str, str]
    definition: str
    code: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    made: str = ""
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    command: str = ""
    losses: tuple[float, ...] = ()
    gradient_norms: tuple[float | None, ...] = ()
    step_seconds: tuple[float, ...] = ()
    read_seconds: tuple[float, ...] = ()
    effective: Mapping[str, str] = field(default_factory=dict)
    sketches: str = ""
    ranks: int = 1
    gpu: str = ""
    cpu: str = ""
    failure: Failure | None = None


@dataclass(frozen=True)
class Difference:
    """How far a trajectory is from another: relative errors, as dlperf.proof defines them.

    other: the other system. losses: of each step. logits, gradient, change, statistic: of the worst tensor, which is
    named; None where one of the two has none. gradients, changes: of all tensors as one vector. parted: the first step,
    from 1, whose losses differ by more than the bar. decay: see dlperf.proof.decay, and in which tensors.
    """

    other: str
    losses: tuple[float, ...]
    gradient_norm: float | None
    logits: float
    logits_tensor: str
    gradient: float | None
    gradient_tensor: str
    change: float
    change_tensor: str
    statistic: float | None
    statistic_tensor: str
    parted: int | None
    gradients: float | None = None
    changes: float | None = None
    decay: float | None = None
    decay_tensors: str = ""

    @property
    def loss(self) -> float:
        return max(self.losses)


@dataclass(frozen=True)
class Bound:
    """What low precision may do to a quantity: `float32` is the relative error of the system's own float32 run,
    `found` that of the low-precision run; below `least` nothing was rounded. `reference` is what low precision did to
    NumPy's network, where that is known; `most` is the bound that follows from it, or else from `float32`."""

    what: str
    float32: float
    found: float
    least: float
    most: float
    reference: float | None = None


@dataclass(frozen=True)
class Certificate:
    """Whether a system computes the same trajectory as others, in one precision.

    verdict: same | different | unproven. why: one sentence; empty for "same". size: largest relative error of a loss
    against the reference, or where there is none against those that it agrees with. exceptions: what its kernels
    compute otherwise, with cause and size, corrected for in the differences. bounds: of low precision;
    and of losses that are to be within a band, see dlperf.proof.band.
    """

    trajectory: Trajectory
    verdict: Literal["same", "different", "unproven"]
    why: str = ""
    size: float | None = None
    differences: tuple[Difference, ...] = ()
    exceptions: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """All that a report shows.

    spec: the request, as stored. machine: see dlperf.machine. planned: runs that the plan has, done or not.
    commands: how each environment was made, by "adapter environment". proofs: the certificates of each row, by Job.id.
    seconds: spent besides the runs, by what on. caveats: of its records, what was noticed when they were read.
    revision: see dlperf.revision; of several, joined by " and ", where others made runs later; empty in older ones.
    unmet: conditions of publishing, in words, that it does not meet and was published without.
    """

    spec: Mapping[str, Any]
    machine: Mapping[str, Any]
    created: str
    version: str
    planned: int
    jobs: tuple[Job, ...]
    records: tuple[Record, ...]
    skips: tuple[Skip, ...]
    commands: Mapping[str, str] = field(default_factory=dict)
    proofs: Mapping[str, tuple[Certificate, ...]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    revision: str = ""
    unmet: tuple[str, ...] = ()

    @cached_property
    def runs(self) -> Mapping[str, Sequence[Record]]:
        """The records of each job, by Job.id; of a job without any there is none."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.job.id, []).append(record)
        return found


def run_folder(job: Job, repeat: int) -> Path:
    """Where a run's files are, relative to the comparison."""
    return Path("runs") / job.id / str(repeat)


def to_json(value: Any) -> str:
    """One line of JSON for any dataclass here."""
    return json.dumps(dataclasses.asdict(value), sort_keys=False)
