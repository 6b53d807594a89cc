"""What is stored and shown: records, skips, and the comparison that holds them. Plain data, JSON in and out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Job:
    """One row of the comparison: a system, a model, a precision and a size. Planned; run several times.

    id: a file name, unique in the comparison. system: the adapter, with what sets it apart from the adapter's
    defaults, e.g. "pytorch+compile" or "pytorch clip_norm=off". precision_asked: what the user wrote ("amp");
    precision: what it means on this device ("amp_bf16"). batch_size: per device. options: all options of the adapter
    that apply, defaults included. untested: nobody of us has run this combination.
    """

    id: str
    system: str
    adapter: str
    title: str
    model: str
    family: str
    device: str
    precision_asked: str
    precision: str
    batch_size: int
    input: str
    data_dir: str | None
    options: Mapping[str, str]
    nnodes: int = 1
    nproc_per_node: int = 1
    untested: bool = False

    @property
    def world_size(self) -> int:
        return self.nnodes * self.nproc_per_node

    @property
    def global_batch_size(self) -> int:
        return self.batch_size * self.world_size


@dataclass(frozen=True)
class Skip:
    """A row that is not run, and why. status: not_yet | upstream | never | option | environment."""

    system: str
    adapter: str
    title: str
    model: str
    family: str
    device: str
    precision_asked: str
    precision: str
    status: str
    why: str


@dataclass(frozen=True)
class Window:
    """A timed stretch of `steps` optimizer steps. `samples` counts all ranks; cpu_seconds is user + system time."""

    index: int
    steps: int
    samples: int
    seconds: float
    cpu_seconds: float
    loss: float


@dataclass(frozen=True)
class Failure:
    """kind: crash | timeout | out_of_memory | nan | killed | environment | unsupported."""

    kind: str
    message: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """One run of a job: one fresh process per rank. A failed run is a record too.

    repeat counts from 0. environment: kind, python, digest of what defines it. first_step_seconds includes
    compilation. start_seconds: importing the framework and building the model. peak_memory_bytes: the process's
    largest resident size. command: the script that was run, verbatim. folder: its logs, relative to the comparison.
    """

    job: Job
    repeat: int
    started: str
    seconds: float
    command: str
    folder: str
    environment: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict)
    parameter_count: int | None = None
    effective: Mapping[str, str] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    start_seconds: float | None = None
    first_step_seconds: float | None = None
    peak_memory_bytes: int | None = None
    peak_device_memory_bytes: int | None = None
    failure: Failure | None = None

    @property
    def done(self) -> bool:
        return self.failure is None


@dataclass(frozen=True)
class Comparison:
    """All that a report shows.

    spec: the request, as stored. machine: see dlperf.machine. planned: runs that the plan has, done or not.
    commands: how each environment was made, by "adapter device".
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


def to_json(value: Any) -> str:
    """One line of JSON for any dataclass here."""
    return json.dumps(dataclasses.asdict(value), sort_keys=False)


def job_from(data: Mapping[str, Any]) -> Job:
    return Job(**data)


def record_from(data: Mapping[str, Any]) -> Record:
    """The inverse of to_json for a Record. KeyError, TypeError or ValueError when the data is something else."""
    fields = dict(data)
    fields["job"] = job_from(fields["job"])
    fields["windows"] = tuple(Window(**window) for window in fields["windows"])
    if fields["failure"]:
        fields["failure"] = Failure(**{**fields["failure"], "lines": tuple(fields["failure"]["lines"])})
    return Record(**fields)


def comparison_from(data: Mapping[str, Any]) -> Comparison:
    """The inverse of to_json for a Comparison; ignores "schema", which results.json adds. Errors as in record_from."""
    fields = {key: value for key, value in data.items() if key != "schema"}
    fields["jobs"] = tuple(job_from(job) for job in fields["jobs"])
    fields["records"] = tuple(record_from(record) for record in fields["records"])
    fields["skips"] = tuple(Skip(**skip) for skip in fields["skips"])
    return Comparison(**fields)
