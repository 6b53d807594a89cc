"""What of results.json the runs' own records give again: job.json, launch.sh and events of each run, and
comparison.json as it was when the comparison began. Who makes all of these up, and consistently, is not found."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from fnmatch import fnmatch
from typing import IO, Any, Literal

import msgspec

from dlperf.archive.content import RUN, logs
from dlperf.comparison.runner import recorded
from dlperf.errors import clean, shortened
from dlperf.report.public import cleaned
from dlperf.runs import events
from dlperf.runs.events import Stream
from dlperf.runs.execute import Outcome
from dlperf.schema import Comparison, Job, Record, Window
from dlperf.stored import DAMAGED, Manifest, decoded, each, job_from, skip_from

Files = Mapping[str, bytes]
#: of a Record, what its events do not tell
GIVEN = frozenset(
    ("job", "repeat", "started", "seconds", "command", "folder", "environment", "work", "failure", "block", "code")
)
#: conditions of windows that older results.json lack, of events that have them
LATER = frozenset(("cpu_busy_share",))
#: of job.json's job, what it has as a Job has it
ASKED = ("model", "device", "precision", "batch_size", "input", "format")
#: seconds by which a host's clock may have been set, and those that a core needs to see that a run has ended
CLOCK, ENDING = 3600.0, 1.0
#: of the kinds of Failure, what the outside saw: events do not tell it
OUTSIDE = frozenset(
    ("timeout", "killed", "out_of_memory", "unsupported", "crash", "launcher", "environment", "machine")
)


def runs(files: Files, comparison: Comparison) -> Iterator[str]:
    """What of runs is not as their job.json, script and events have it."""
    told = {record.folder for record in comparison.records}
    made, seen = folders(files, "runs/"), set[str]()
    yield from (f"{folder} is of a run that results.json lacks." for folder in sorted(made.keys() - told))
    planned = {job.id: job for job in comparison.jobs}
    for record in comparison.records:
        if record.folder in seen and record.folder:
            yield f"results.json has the run {record.folder} twice."
        seen.add(record.folder)
        name, mine = record.folder or record.job.id, made.get(record.folder, {})
        if record.job != planned.get(record.job.id):
            yield f"{name}: its row is not as jobs of results.json has it."
        yield from (f"{name}: {why}" for why in _run(mine, record, comparison))


def folders(files: Files, below: str) -> dict[str, dict[str, bytes]]:
    """The files of each run's folder, by their names."""
    found: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        folder, _, last = name.rpartition("/")
        if folder.startswith(below):
            found.setdefault(folder, {})[last] = content
    return found


def _run(mine: Files, record: Record, comparison: Comparison) -> Iterator[str]:
    """mine: the files of its folder."""
    script = mine.get("launch.sh")
    if script is not None and clean(script.decode("utf-8", "replace")) != record.command:
        yield "its command in results.json is not launch.sh."
    allowed = (*RUN, *logs(record))
    yield from (f"{name} is no file of a run." for name in sorted(mine) if not is_of(name, allowed))
    if record.job.traits.worker:
        yield from _asked(mine, record.job, comparison.spec, record.done)
        yield from _told(mine, record)


def is_of(name: str, allowed: Iterable[str] = RUN) -> bool:
    """Whether a file of this name is one that is packed of a run's folder."""
    return any(fnmatch(name, pattern) for pattern in allowed)


def _asked(mine: Files, job: Job, spec: Mapping[str, Any], done: bool) -> Iterator[str]:
    """Where a row, or the request, is not what job.json asked of its run."""
    if "job.json" not in mine:
        yield from ["it has no job.json."] if done else []
        return
    try:
        request = msgspec.convert(decoded(mine["job.json"]), dict[str, Any])
        asked = msgspec.convert(request["job"], dict[str, Any])
    except DAMAGED as error:
        yield f"its job.json is not what dlperf wrote ({error})."
        return
    protocol = spec.get("protocol") or {}
    ours = {"adapter": job.adapter, "options": dict(job.options), **{name: getattr(job, name) for name in ASKED}}
    ours |= {name: spec[name] for name in ("seed", "threads") if name in spec}
    ours |= {name: protocol[name] for name in ("warmup_steps", "windows", "steps_per_window") if name in protocol}
    theirs = {"adapter": request.get("adapter"), **asked}
    for name, value in ours.items():
        if name in theirs and clean(str(theirs[name])) != clean(str(value)):
            yield f"{name} is {value} in results.json, and {theirs[name]} in its job.json."


def _told(mine: Files, record: Record) -> Iterator[str]:
    """Where a record is not what its ranks' events make of it."""
    ranks = sum(name.startswith("events.rank") for name in mine)
    if not record.folder or ranks != record.job.world_size:
        if record.done:
            yield f"it has the events of {ranks} of {record.job.world_size} ranks."
        return
    stream = read(mine, ranks, record.job.servers)
    if record.done and stream.failure:
        yield f"results.json has figures of it, but by its events it failed: {stream.failure.message}."
        return
    if (told := _failed(record, stream)) and told != (failure := record.failure) and failure:
        yield f"it failed by {failure.kind} in results.json, and by {told.kind} in its events: {told.message}"
    outcome = Outcome(record.started, record.seconds, stream, record.failure)
    again = cleaned(recorded(record.job, record.repeat, record.command, record.environment, outcome))
    yield from _windows(record.windows, again.windows)
    for field in fields(Record):
        if field.name not in GIVEN and field.name != "windows":
            yield from differs(field.name, getattr(record, field.name), getattr(again, field.name))
    yield from _times(record, stream)
    audited = record.work.get("audited")
    if audited is not None:
        yield from differs("audited", audited, stream.audit.get("steps"))


def _failed(record: Record, stream: Stream) -> Any:
    """How a run failed by what its worker says; what the outside saw goes before that."""
    if not record.failure or not stream.failed or record.failure.kind in OUTSIDE or stream.ranks:
        return None
    return replace(cleaned(stream.failure), lines=record.failure.lines) if stream.failure else None


def _windows(ours: tuple[Window, ...], theirs: tuple[Window, ...]) -> Iterator[str]:
    if len(ours) != len(theirs):
        yield f"it has {len(ours)} windows in results.json, and {len(theirs)} in its events."
    for stored, made in zip(ours, theirs, strict=False):
        known = {k: v for k, v in made.conditions.items() if k in stored.conditions or k not in LATER}
        again = replace(made, conditions=known)
        for field in fields(again):
            of = f"{field.name} of window {again.index}"
            yield from differs(of, getattr(stored, field.name), getattr(again, field.name))


def differs(what: str, ours: Any, theirs: Any, where: str = "its events") -> Iterator[str]:
    """A sentence for each part of a value in results.json that is not as `where` has it."""
    if ours == theirs:
        return
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and ours and theirs:
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            yield from differs(f"{key} in {what}", ours.get(key), theirs.get(key), where)
    else:
        yield f"{what} is {_shown(ours)} in results.json, and {_shown(theirs)} in {where}."


def _shown(value: Any) -> str:
    return "missing" if value is None else shortened(str(value))


def _times(record: Record, stream: Stream) -> Iterator[str]:
    """Where a run took less time than its rank 0 says, or was at another time."""
    at = (stream.ranks or (stream,))[0].times
    if "start" not in at or len({*stream.hosts} - {""}) > 1:  # clocks of several hosts may differ
        return
    took = at.get("end", at["start"]) - at["start"]
    if record.seconds < took - ENDING:
        yield f"it took {record.seconds:.1f} s in results.json, and {took:.1f} s in its events."
    try:
        off = abs(at["start"] - datetime.fromisoformat(record.started).timestamp())
    except ValueError:
        off = float("inf")
    if off > record.seconds + CLOCK:
        yield f"it started {shortened(record.started)} in results.json, and at another time by its events."


def read(mine: Files, ranks: int, servers: int = 0) -> Stream:
    """What its ranks and servers told."""
    return events.read_job(_Packed(mine), ranks, servers=servers)


@dataclass(frozen=True)
class _Packed:
    """A folder in an archive, or a file in it: nothing of an archive is written to disk."""

    files: Files
    name: str = ""

    def __truediv__(self, name: str) -> _Packed:
        return _Packed(self.files, name)

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        if self.name not in self.files:
            raise FileNotFoundError(self.name)
        return io.BytesIO(self.files[self.name])


# What was known when the comparison began


def begun(written: bytes, comparison: Comparison) -> Iterator[str]:
    """What of results.json is not as comparison.json has it. written: its content."""
    try:
        manifest: Any = msgspec.convert(decoded(written), Manifest)
        told = {
            name: manifest.get(name, "") for name in ("spec", "machine", "created", "version", "commands", "revision")
        }
        jobs = each("jobs", manifest["jobs"], job_from)
        told |= {"jobs": tuple(_sized(job, comparison) for job in jobs)}
        told |= {"skips": each("skips", manifest["skips"], skip_from)}
        repeats = manifest["spec"]["protocol"]["repeats"]
        told |= {"planned": sum(job.runs(repeats) for job in jobs)}
    except DAMAGED as error:
        yield f"comparison.json is not what dlperf wrote ({error})."
        return
    for name, value in told.items():
        ours = getattr(comparison, name)
        if name in ("jobs", "skips") and ours != value:
            yield f"{name} of results.json are not those of comparison.json."
        else:
            yield from differs(name, ours, value, "comparison.json")


def _sized(job: Job, comparison: Comparison) -> Job:
    """With the batch size that was found for it, with --batch-size max: only results.json and job.json have that."""
    found = next((one for one in comparison.jobs if one.id == job.id), job)
    largest = comparison.spec.get("largest_batch")
    return replace(job, batch_size=found.batch_size, about=found.about) if largest else job
