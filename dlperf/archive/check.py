"""Whether an archive is what it says: its files as its manifest has them, its rates as its events have them, and its
report what its results give. What somebody makes up consistently, events too, is not found."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePath

import msgspec

from dlperf import report
from dlperf.archive import tar
from dlperf.archive.content import PACKED, Packed, here
from dlperf.comparison import store
from dlperf.errors import UsageError, clean
from dlperf.runs import bundle, events
from dlperf.runs.events import Stream
from dlperf.schema import Comparison, Record
from dlperf.stored import DAMAGED, decoded
from dlperf.words import count

#: of an archive, what is not the report
ASIDE = ("runs/", "proofs/", "code/")
CODE = "code/dlperf/"
CHART = re.compile(r"<svg.*?</svg>", re.DOTALL)


@dataclass(frozen=True)
class Checked:
    """problems: a sentence for each; empty when it verifies. notes: what was not looked at. comparison: what it is of,
    None where that cannot be read."""

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None


def check(path: Path, render: bool = True) -> Checked:
    """See dlperf.archive.verify."""
    try:
        files = tar.unpacked(path)
    except tar.Refused as error:
        return Checked((f"{error}.",))
    problems, notes = [f"{one}." for one in tar.differing(files)], list[str]()
    try:
        comparison = store.results(files.get(store.RESULTS, b""), store.RESULTS)
        packed = msgspec.convert(decoded(files.get(PACKED, b"")), Packed)
    except UsageError as error:
        return Checked((*problems, str(error)))
    except DAMAGED as error:
        return Checked((*problems, f"{PACKED} is not what dlperf wrote ({error})."))
    problems += _runs(files, comparison)
    problems += _code(files, comparison)
    others = [record.job.system for record in comparison.records if record.done and not record.job.traits.worker]
    if others:
        systems = ", ".join(dict.fromkeys(others))
        notes.append(f"Rates of {systems} are of logs that are not ours, and were not read again.")
    if render:
        found, said = _report(files, comparison, packed)
        problems, notes = problems + found, notes + said
    return Checked(tuple(map(clean, problems)), tuple(map(clean, notes)), comparison)


def _runs(files: Mapping[str, bytes], comparison: Comparison) -> Iterator[str]:
    """What of runs is not as their events and scripts have it."""
    told = {record.folder for record in comparison.records}
    logs, seen = _logs(files), set[str]()
    yield from (f"{folder} is of a run that results.json lacks." for folder in sorted(logs.keys() - told))
    for record in comparison.records:
        if record.folder in seen and record.folder:
            yield f"results.json has the run {record.folder} twice."
        seen.add(record.folder)
        mine = logs.get(record.folder, {})
        script = mine.get("launch.sh")
        if script is not None and clean(script.decode("utf-8", "replace")) != record.command:
            yield f"{record.folder}: its command in results.json is not launch.sh."
        if record.done and record.job.traits.worker:
            yield from (f"{record.folder or record.job.id}: {why}" for why in _windows(mine, record))


def _logs(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """The files of each run's folder, by their names."""
    found: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        folder, _, last = name.rpartition("/")
        if folder.startswith("runs/"):
            found.setdefault(folder, {})[last] = content
    return found


def _windows(mine: Mapping[str, bytes], record: Record) -> Iterator[str]:
    """Where a run's windows are not what its ranks' events make of them. mine: the files of its folder."""
    ranks = sum(name.startswith("events.rank") for name in mine)
    if not record.folder or ranks != record.job.world_size:
        yield f"it has the events of {ranks} of {record.job.world_size} ranks."
        return
    stream = _read(mine, ranks)
    if stream.failure:
        yield f"results.json has figures of it, but by its events it failed: {stream.failure.message}."
        return
    if len(stream.windows) != len(record.windows):
        yield f"it has {count(len(record.windows), 'window')} in results.json, and {len(stream.windows)} in its events."
    for stored, read in zip(record.windows, stream.windows, strict=False):
        for field in fields(read):
            ours, theirs = getattr(stored, field.name), getattr(read, field.name)
            if ours != theirs:
                yield f"{field.name} of window {read.index} is {ours} in results.json, and {theirs} in its events."


def _read(mine: Mapping[str, bytes], ranks: int) -> Stream:
    """What its ranks told, which is read from files: of all that is in an archive they alone are written."""
    names = {f"{what}.rank{rank}.jsonl" for what in ("events", "gpu") for rank in range(ranks)}
    with tempfile.TemporaryDirectory(prefix="dlperf-") as folder:
        for name in names & mine.keys():
            Path(folder, name).write_bytes(mine[name])
        return events.read_job(Path(folder), ranks)


def _code(files: Mapping[str, bytes], comparison: Comparison) -> Iterator[str]:
    """Adapters whose code is not that of which records and certificates have the digest."""
    modules = {
        PurePath(name.removeprefix(CODE)): content
        for name, content in files.items()
        if name.startswith(CODE) and name.endswith(".py")
    }
    shared = {path: one for path, one in modules.items() if path.parent in (PurePath("models"), PurePath("adapters"))}
    ran: dict[str, set[str]] = {}
    for record in comparison.records:
        ran.setdefault(record.job.adapter, set()).add(record.code)
    for trajectory in (one.trajectory for several in comparison.proofs.values() for one in several):
        ran.setdefault(trajectory.adapter, set()).add(trajectory.code)
    for adapter, digests in sorted(ran.items()):
        own = {path: one for path, one in modules.items() if path.is_relative_to(PurePath("adapters", adapter))}
        if digests - {""} and (not own or digests - {""} != {bundle.digest_of({**shared, **own})}):
            yield f"{CODE}adapters/{adapter} with what is shared is not the code of which results.json has the digest."


def _report(files: Mapping[str, bytes], comparison: Comparison, packed: Packed) -> tuple[list[str], list[str]]:
    """What of the report results.json does not give; and what was not compared: charts, where another version of
    matplotlib draws with other digits, and all that another dlperf rendered and this one would not, so that archives
    verify for as long as they are read."""
    try:
        made = report.render(comparison)
    except Exception as error:  # of figures that nobody thought of
        return [f"results.json cannot be rendered: {type(error).__name__}: {error}."], []
    del made[store.RESULTS]  # which later versions of dlperf add keys to
    own = here()
    redrawn = packed["matplotlib"] == own["matplotlib"]
    others = {store.RESULTS, PACKED, tar.MANIFEST}
    held = {name for name in files if not name.startswith(ASIDE) and name not in others}
    notes = list[str]()
    problems = [f"{name} is no part of the report that results.json gives." for name in sorted(held - made.keys())]
    for name, content in made.items():
        if name not in files:
            problems.append(f"{name} of the report is missing.")
            continue
        theirs = files[name].decode("utf-8", "replace")
        if not redrawn and name.endswith((".svg", ".html")):
            theirs, content = CHART.sub("", theirs), CHART.sub("", content)
        if theirs != content:
            problems.append(f"{name} is not what results.json gives.")
    if problems and packed["revision"] != own["revision"]:
        says = f"The report was rendered by dlperf {packed['revision']}, and this is {own['revision']}, which words it "
        says += "otherwise; only that one tells an edit from a change of dlperf: "
        problems, notes = [], [says + " ".join(problems)]
    drawn = f"matplotlib {packed['matplotlib']} drew them, and here is {own['matplotlib']}"
    return problems, notes if redrawn else [*notes, f"The charts were not compared: {drawn}."]
