"""The folder of a comparison: what was planned, and one line for each run that ended.

comparison.json   the request, the machine, the rows, the environments; written once, and the digest of code/ with it
records.jsonl     one Record per line, on disk before the next run starts; see dlperf.comparison.chain
last_record.json  the digest of its last line, or of one shortly before
proofs.json       the certificates of each row
batch_sizes.json  with --batch-size max: what was found for each row, and how
seconds.json      what was spent besides the runs, and on what
code/             the code that ran
runs/<job>/<n>/   job.json, launch.sh, events, stdout.log, stderr.log of repeat n
proofs/<run>/     likewise, of the runs that certificates needed
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from dlperf.comparison import chain, published
from dlperf.errors import Problem, UsageError
from dlperf.launchers.api import HELD
from dlperf.launchers.jobs import PLACE
from dlperf.machine import names
from dlperf.planning.plan import Plan, file_name, id_of
from dlperf.planning.spec import Spec, spec_from
from dlperf.schema import SCHEMA, Certificate, Comparison, Job, Record
from dlperf.stored import DAMAGED, Manifest, checksum, comparison_from, decoded, each, job_from, proofs_from, skip_from

MANIFEST = "comparison.json"
RECORDS, LAST = "records.jsonl", "last_record.json"
PROOFS = "proofs.json"
SIZES = "batch_sizes.json"
RESULTS = published.RESULTS
SECONDS = "seconds.json"
#: between the revisions of a comparison that another dlperf continued
AND = " and "


Read = TypeVar("Read")


class Found(TypedDict):
    """Of a row with --batch-size max: its batch size, and how that was found."""

    batch_size: Annotated[int, Meta(ge=1, le=2**40)]
    found: str


class Store:
    """One comparison's folder. `records` holds the last record of each run, by (job id, repeat)."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]):
        self.folder = folder
        self.manifest = manifest
        self.spec: Spec = spec_from(manifest["spec"])
        self.sizes = self._read_json(SIZES, dict[str, Found])
        self.plan = Plan(
            jobs=tuple(map(self._sized, each("jobs", manifest["jobs"], self._planned))),
            skips=each("skips", manifest["skips"], skip_from),
        )
        self._read_records()
        self.proofs = self._read_proofs()
        self.seconds = self._read_json(SECONDS, dict[str, float])

    def _planned(self, data: Mapping[str, Any]) -> Job:
        """A row, if its id and its environment's key, which are in names of folders, are such as a plan has."""
        job = job_from(data)
        if job.id != id_of(job, self.spec):
            raise ValueError(f"id is {job.id!r}, not {id_of(job, self.spec)!r}")
        if job.environment != file_name(job.environment):
            raise ValueError(f"environment of {job.id} is {job.environment!r}, which is no key of adapter.toml")
        return job

    def _read_records(self) -> None:
        """Every whole line. One that is half-written, by a crash, or was changed is passed over: its run counts as not
        done."""
        path, noted = self.folder / RECORDS, self._read_json(LAST, dict[str, str])
        held = path.read_bytes() if path.exists() else b""
        begun = MANIFEST, _digests(self.manifest)
        found = chain.read(RECORDS, held, noted.get("digest", ""), "code" not in self.manifest, begun)
        self._last, self.warnings, self._caveats = found.last, found.warnings, tuple(found.caveats)
        self.records = {(record.job.id, record.repeat): record for record in found.records}

    def _read_proofs(self) -> dict[str, tuple[Certificate, ...]]:
        """Those of what ran: a row whose certificates are of other code or environments has none. A missing or damaged
        file costs nothing: they come from the cache again, or are made again."""
        try:
            found = proofs_from(self._read_json(PROOFS, dict[str, Any]), "code" not in self.manifest)
        except DAMAGED as error:
            self.warnings.append(f"{PROOFS} is not used: {error}")
            return {}
        ran: dict[str, list[Record]] = {}
        for record in self.records.values():
            ran.setdefault(record.job.id, []).append(record)
        odd = sorted(job for job, several in found.items() if not _prove(several, ran.get(job, [])))
        self.warnings += [f"{PROOFS}: what it has of {job} is of other code, or another environment" for job in odd]
        return {job: several for job, several in found.items() if job not in odd}

    def _read_json(self, name: str, of: type[Read]) -> Read:
        """A file of the folder; nothing of one that is missing or damaged."""
        try:
            return msgspec.convert(decoded((self.folder / name).read_bytes()), of)
        except (OSError, *DAMAGED):
            return of()

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        aside = self.folder / (name + ".writing")
        aside.write_text(json.dumps(data, indent=1), encoding="utf-8")
        aside.rename(self.folder / name)

    def note_code(self, digest: str) -> None:
        """Store the digest of code/ before the first run; older comparisons have none."""
        if not self.records and self.manifest.get("code") == "":
            self.manifest = {**self.manifest, "code": digest}
            self._write_json(MANIFEST, self.manifest)

    def note_revision(self, revision: str) -> None:
        """Store which dlperf makes the next runs, where another one made those before; older comparisons tell none."""
        noted = self.manifest.get("revision", "")
        if noted and revision not in noted.split(AND):
            self.manifest = {**self.manifest, "revision": noted + AND + revision}
            self._write_json(MANIFEST, self.manifest)

    def note_nodes(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Store before the first run what the nodes are that rows run on."""
        if nodes and not self.records and "nodes" not in self.manifest["machine"]:
            self.manifest = {**self.manifest, "machine": {**self.manifest["machine"], "nodes": list(nodes)}}
            self._write_json(MANIFEST, self.manifest)

    def size(self, job: Job, batch_size: int, found: str) -> None:
        """Store the batch size that was found for a row, and how; it holds for the same row made again, too."""
        self.sizes[job.id] = {"batch_size": batch_size, "found": found}
        self._write_json(SIZES, self.sizes)
        self.plan = replace(self.plan, jobs=tuple(map(self._sized, self.plan.jobs)))

    def _sized(self, job: Job) -> Job:
        size = self.sizes.get(job.duplicate_of or job.id)
        return replace(job, batch_size=size["batch_size"], about={**job.about, "found": size["found"]}) if size else job

    def prove(self, proofs: Mapping[str, tuple[Certificate, ...]]) -> None:
        """Store the certificates of the rows, by Job.id."""
        self.proofs = dict(proofs)
        data = {job: [dataclasses.asdict(one) for one in certificates] for job, certificates in proofs.items()}
        data = json.loads(json.dumps(data))  # as it is read again
        self._write_json(PROOFS, {"checksum": checksum(data), "certificates": data})

    @contextmanager
    def spending(self, on: str) -> Iterator[None]:
        """Count what is done meanwhile, besides the runs, even if it is interrupted."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[on] = self.seconds.get(on, 0.0) + time.monotonic() - began
            with suppress(OSError):  # a sentence of the report; no run is to be lost for it
                self._write_json(SECONDS, self.seconds)

    def append(self, record: Record) -> None:
        """Store a record so that it survives the end of this process and of the machine."""
        path = self.folder / RECORDS
        with open(path, "ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a half-written line stays a line of its own
                    file.write(b"\n")
            line, own = chain.line(record, self._last, checksum(self.manifest))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._last = own
        with suppress(OSError):  # where the disk is full an earlier one stays
            self._write_json(LAST, {"digest": own})
        self.records[record.job.id, record.repeat] = record

    @property
    def comparison(self) -> Comparison:
        return Comparison(
            spec=self.manifest["spec"],
            machine=self.manifest["machine"],
            created=self.manifest["created"],
            version=self.manifest["version"],
            planned=sum(job.runs(self.spec.protocol.repeats) for job in self.plan.jobs),
            jobs=self.plan.jobs,
            records=tuple(self.records.values()),
            skips=self.plan.skips,
            commands=self.manifest["commands"],
            proofs=self.proofs,
            seconds=self.seconds,
            caveats=self._caveats,
            revision=self.manifest.get("revision", ""),
        )


def _digests(manifest: Mapping[str, Any]) -> list[str]:
    """Those of comparison.json as it is, and as it was before another dlperf went on, which is noted in it."""
    revisions = manifest.get("revision", "").split(AND)
    before = [AND.join(revisions[:count]) for count in range(1, len(revisions))]
    return [checksum(manifest), *(checksum({**manifest, "revision": one}) for one in before)]


def _prove(certificates: Sequence[Certificate], records: Sequence[Record]) -> bool:
    """Whether certificates are of code and environments that runs of their row had, as far as it had any."""
    codes = {one.code for one in records if one.done and one.code}
    digests = {one.environment["digest"] for one in records if one.done and one.environment.get("digest")}
    made = [one.trajectory for one in certificates]
    right = all(not codes or one.code in codes for one in made)
    return right and all(not digests or one.environment.get("digest") in digests for one in made)


def create(
    folder: Path,
    spec: Spec,
    plan: Plan,
    commands: Mapping[str, str],
    machine: Mapping[str, Any],
    created: str,
    version: str,
    revision: str = "",
) -> Store:
    """Start a comparison's folder. `commands`: how environments are made, by "adapter environment".

    UsageError if the folder is in use or can't be written.
    """
    claim(folder, submitted=bool(spec.allocation))
    manifest = {
        "schema": SCHEMA,
        "created": created,
        "version": version,
        "revision": revision,
        "spec": dataclasses.asdict(spec),
        "machine": machine,
        "commands": commands,
        "jobs": [dataclasses.asdict(job) for job in plan.jobs],
        "skips": [dataclasses.asdict(skip) for skip in plan.skips],
        "code": "",  # there is none yet
        "names": names(folder),
    }
    aside = folder / (MANIFEST + ".writing")
    aside.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    aside.rename(folder / MANIFEST)
    return Store(folder, json.loads(json.dumps(manifest)))


def dated(what: str = "") -> Path:
    """runs/DATE, or runs/WHAT-DATE, made now: with a number behind it where two begin in the same second."""
    began = f"{what}{'-' * bool(what)}{datetime.now():%Y%m%d-%H%M%S}"
    for number in count(1):
        folder = Path("runs", began + (f"-{number}" if number > 1 else ""))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.parent.is_dir():
                continue
        except OSError:
            pass  # which `claim` says
        return folder
    raise AssertionError


def claim(folder: Path, submitted: bool = False) -> None:
    """Make an empty folder, or raise UsageError saying why not. submitted: whether it may have what an engine's job has
    there, which now makes the comparison."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in folder.iterdir()}
        used = bool(there - {PLACE, "lock"} if submitted else there)
        if not used:
            (folder / "lock").touch(exist_ok=PLACE in there)  # else another process was first
    except FileExistsError:
        used = folder.is_dir()  # another process was first
        if not used:
            raise UsageError([Problem("--output", folder, says="this is a file. Choose another folder.")]) from None
    except OSError as error:
        raise UsageError([Problem("--output", folder, says=f"cannot be written: {error.strerror or error}.")]) from None
    if used:
        says = f"this folder is not empty. Continue with --resume {folder}, or choose another folder."
        raise UsageError([Problem("--output", folder, says=says)])


def open_results(path: Path) -> Comparison:
    """The comparison in a results.json, or in an archive. UsageError that names file and field where it is none."""
    return results(published.content(path), str(path))


def results(written: bytes, name: str) -> Comparison:
    """The same of its content. name: what messages call it."""
    try:
        data = msgspec.convert(decoded(written), dict[str, Any])
        if data.get("schema") != SCHEMA:
            says = f"it has schema {data.get('schema')}; this version of dlperf reads schema {SCHEMA}."
            raise UsageError([Problem(name, "", says=says)])
        return comparison_from(data)
    except KeyError as error:
        raise UsageError([Problem(name, "", says=f"not what dlperf wrote (it lacks {error}).")]) from None
    except DAMAGED as error:
        raise UsageError([Problem(name, "", says=f"not what dlperf wrote ({error}).")]) from None


def holds(place: Path) -> bool:
    """Whether a comparison can be read from here: a folder of one, a published report's, or a file."""
    return place.is_file() or (place / MANIFEST).exists() or (place / RESULTS).exists()


def read(place: Path) -> tuple[Comparison, Sequence[str]]:
    """The comparison that a place holds, and what was changed in it by hand. UsageError, which names file and field,
    where there is none."""
    if not holds(place):
        says = (
            f"this is no file and no folder with {MANIFEST} or {RESULTS}. Name a comparison's folder, its {RESULTS} or "
            "its archive."
        )
        raise UsageError([Problem("RUN", place, says=says)])
    if (place / MANIFEST).exists():
        opened = open_folder(place)
        return opened.comparison, opened.warnings
    return open_results(place if place.is_file() else place / RESULTS), ()


def manifest(folder: Path) -> dict[str, Any]:
    """The content of comparison.json. OSError, or one of DAMAGED, where there is none that dlperf wrote."""
    held = msgspec.convert(decoded((folder / MANIFEST).read_bytes()), dict[str, Any])
    if held["schema"] != SCHEMA:
        says = f"it has schema {held['schema']}; this version of dlperf reads schema {SCHEMA}."
        raise UsageError([Problem(str(folder / MANIFEST), "", says=says)])
    msgspec.convert(held, Manifest)
    return held


def open_folder(folder: Path) -> Store:
    """Read a comparison's folder. UsageError if it is none, or its comparison.json is damaged."""
    path = folder / MANIFEST
    try:
        return Store(folder, manifest(folder))
    except OSError as error:
        says = f"not the folder of a comparison: {MANIFEST}: {error.strerror}."
        raise UsageError([Problem("--resume", folder, says=says)]) from None
    except DAMAGED as error:
        says = f"not what dlperf wrote ({error}). Start the comparison again, in another folder."
        raise UsageError([Problem(str(path), "", says=says)]) from None


def no_links(folder: Path, field: str = "--resume") -> None:
    """UsageError if something in a comparison's folder that its runs are written to, or read from, is a symbolic link:
    none of dlperf's is."""
    runs = (
        path for name in ("runs", "proofs", "probes") for deep in ("*", "*/*") for path in folder.glob(f"{name}/{deep}")
    )
    for path in (*folder.iterdir(), *folder.glob("source/*"), *runs):
        if path.is_symlink():
            says = f"{path} is a symbolic link, and dlperf follows none there. Put what it leads to in its place."
            raise UsageError([Problem(field, folder, says=says)])


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from running the same comparison. UsageError if one does."""
    with open(folder / "lock", "a") as file:
        if not _flocked(file.fileno()):
            says = "another process is running this comparison. Wait until it is done."
            raise UsageError([Problem("--resume", folder, says=says)])
        HELD.append(file.fileno())
        try:
            yield
        finally:
            HELD.remove(file.fileno())


#: seconds that a killed process's runs take to end, with some to spare
ENDING = 3.0


def _flocked(descriptor: int) -> bool:
    deadline = time.monotonic() + ENDING
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        else:
            return True
