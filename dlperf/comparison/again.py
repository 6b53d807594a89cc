"""Runs of a finished comparison made again, in a folder of their own: by their scripts, with a copy of the code that
they ran, in the environments that they had. What is there already is only read."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from dlperf import launchers
from dlperf.comparison import store as store_
from dlperf.comparison.runner import recorded
from dlperf.comparison.store import Store
from dlperf.envs import kept
from dlperf.errors import Problem, RunError, UsageError
from dlperf.figures import rates, summaries
from dlperf.planning.plan import Plan
from dlperf.proof import audit
from dlperf.revision import revision
from dlperf.runs import bundle, events, failures
from dlperf.runs.execute import execute, now
from dlperf.schema import Job, Record, run_folder
from dlperf.stored import DAMAGED, decoded
from dlperf.words import count, duration


@dataclass
class Again:
    """source: of the finished runs. store: of those that are made."""

    source: Store
    store: Store

    def run(self, job: Job, block: int) -> Record:
        """One run of a row, stored. What was asked of the finished runs is asked in turns: each has its own seed of
        dropout. RunError where it cannot be made as they were."""
        records = runs(self.source, job)
        old = records[block % len(records)]
        folder, spec = self.store.folder / run_folder(job, block), self.store.spec
        try:
            outcome = execute(
                folder,
                _request(self.source.folder / old.folder),
                old.command,
                lambda: events.read_job(folder, job.world_size, spec.protocol.windows, job.servers),
                failures.failure,
                spec.timeout,
                lambda: None,
                launchers.find(job.launcher or "local"),
                old.environment["kind"] if old.environment.get("image") else "",
            )
        finally:
            with suppress(OSError):
                (folder / audit.WEIGHTS).unlink(missing_ok=True)
        made = recorded(job, block, old.command, old.environment, outcome)
        if made.done and old.done and made.versions != old.versions:
            raise RunError(
                "environment", f"{job.id}: it ran with {made.versions}, and the finished run with {old.versions}"
            )
        made = replace(made, block=block, code=bundle.digest(self.store.folder / "code" / "dlperf", job.adapter))
        self.store.append(made)
        return made


def runs(source: Store, job: Job) -> list[Record]:
    """The finished runs of a row that have a script, in order; those that failed only where there are no others."""
    made = sorted((one for one in of_row(source, job) if one.command), key=lambda one: one.repeat)
    return [one for one in made if one.done] or made


def opened(folder: Path, field: str) -> Store:
    """A comparison whose runs can be made again. UsageError, about `field`, where it has no code, or other than ran."""
    if not (folder / store_.MANIFEST).exists() or not (folder / "code" / "dlperf").is_dir():
        says = f"runs are made again from the folder of their comparison, which has {store_.MANIFEST} and code/; "
        says += "a published report or a results.json has neither. Name that folder."
        raise UsageError([Problem(field, folder, says=says)])
    store_.no_links(folder, field)
    source = store_.open_folder(folder)
    code = folder / "code"
    # what Python compiled of it is not copied
    edited = [one for one in bundle.changed(code, source.manifest.get("code")) if "__pycache__" not in one]
    ran = {(one.job.adapter, one.code) for one in source.records.values() if one.code}
    edited += [f"dlperf/adapters/{name}" for name, of in sorted(ran) if bundle.digest(code / "dlperf", name) != of]
    if edited:
        says = f"the code of its runs was changed since: {code / edited[0]}. Put it back."
        raise UsageError([Problem(field, folder, says=says)])
    return source


def obstacle(source: Store, job: Job) -> str:
    """Why a row's runs cannot be made again, and what to do; empty if they can."""
    if not job.traits.worker:
        return "its script is not dlperf's, and only rows of our adapters are run again"
    records = runs(source, job)
    if not records:
        return "no run of it was started"
    return kept.gone(records[0].environment, records[0].command)


def create(
    source: Store, folder: Path, jobs: Sequence[Job], repeats: int, machine: Mapping[str, Any], turns: str = ""
) -> Again:
    """A comparison's folder for runs of these rows. turns: see Spec. UsageError if it is in use."""
    of_source = source.manifest
    protocol = replace(source.spec.protocol, repeats=repeats)
    spec = replace(source.spec, protocol=protocol, until=0.0, max_time=0.0, predict=(), turns=turns)
    made_by = (*filter(None, of_source.get("revision", "").split(store_.AND)), revision())
    store = store_.create(
        folder,
        spec,
        Plan(tuple(jobs), ()),
        of_source["commands"],
        machine,
        now(),
        of_source["version"],
        store_.AND.join(dict.fromkeys(made_by)),
    )
    shutil.copytree(source.folder / "code", folder / "code", ignore=shutil.ignore_patterns("__pycache__"))
    store.note_code(bundle.listed(folder / "code"))
    store.prove({job.id: source.proofs[job.id] for job in jobs if job.id in source.proofs})
    return Again(source, store)


def take_turns(a: Again, b: Again, rows: Sequence[Sequence[Job]], repeats: int, note: Callable[[str], None]) -> None:
    """Run each row of both sides in each block: rows in random order, and of each row its two sides, one right after
    the other. rows: A's job and B's. A row of which a side failed twice without a success is not tried again."""
    order = random.Random(a.store.spec.turns)
    once = [
        median(one.seconds for one in runs(side.source, job))
        for row in rows
        for side, job in zip((a, b), row, strict=True)
    ]
    runs_ = count(repeats * len(once), "run")
    note(f"{runs_}; as many of the finished ones took {duration(repeats * math.fsum(once))}.")
    for block in range(repeats):
        for row in order.sample(rows, len(rows)):
            sides = list(zip("AB", (a, b), row, strict=True))
            if not any(summaries.given_up(of_row(side.store, job)) for _, side, job in sides):
                for name, side, job in order.sample(sides, len(sides)):
                    note(f"block {block + 1} of {repeats}, {name}, {job.id}: {_told(side.run(job, block))}")


def _told(record: Record) -> str:
    failure = record.failure
    return f"{failure.kind}: {failure.message}" if failure else rates.said(record)


def of_row(store: Store, job: Job) -> list[Record]:
    return [record for record in store.records.values() if record.job.id == job.id]


def _request(folder: Path) -> Mapping[str, object]:
    """What a finished run was asked. RunError where nobody knows any more."""
    path = folder / "job.json"
    try:
        return msgspec.convert(decoded(path.read_bytes()), dict[str, Any])
    except OSError as error:
        raise RunError("machine", f"{path}: {error.strerror}") from None
    except DAMAGED as error:
        raise RunError("machine", f"{path} is not what dlperf wrote ({error})") from None
