"""Holds the measured runs of a comparison against the reference: did they do the same work?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

from dlperf.adapters.api import NEXT_TO_NONE
from dlperf.catalog.adapter import Adapter
from dlperf.comparison.progress import Progress
from dlperf.comparison.store import Store
from dlperf.envs.environment import Environment
from dlperf.errors import reason
from dlperf.planning.spec import FIRST_LOOK
from dlperf.proof import audit, places
from dlperf.proof.references import ADAPTER, References, budget, obstacle, pairs, places_dropout, steps_alone
from dlperf.runs.events import Stream
from dlperf.runs.execute import Outcome
from dlperf.schema import Failure, Job, Record
from dlperf.stored import DAMAGED, Audit


@dataclass
class Work:
    """Of one comparison. execute: `Runner.execute`."""

    store: Store
    adapters: Mapping[str, Adapter]
    progress: Progress
    execute: Callable[..., tuple[str, Outcome]]
    _references: References | None = None
    _drawn: dict[str, int] = field(default_factory=dict)

    def refer(self, jobs: Sequence[Job], seconds: float) -> None:
        """Make the reference's runs that these rows' are held against. seconds: that the comparison is expected to
        take."""
        rows = [job for job in jobs if self._proves_itself(job)]
        folder, spec, progress = self.store.folder, self.store.spec, self.progress
        each = budget(rows, spec.protocol, seconds)
        self._references = References(folder, spec, self.adapters[ADAPTER], each, progress.note, progress.busy)
        for job, revealing in pairs(rows):
            self._references.of(job, revealing)
        for job in rows:
            if places_dropout(job):
                self._references.placed(job)

    def looked_at(self, made: Record, environment: Environment, stream: Stream, seconds: float) -> Record:
        """A run that is over, with Record.work. It keeps its figures where what it computed cannot be read, and is not
        comparable then. stream: its events. seconds: that a run of its row takes, roughly."""
        if not (self._references and self._proves_itself(made.job)):
            return made
        try:
            return replace(made, work=self._work(self._references, made, environment, bool(stream.audit), seconds))
        except OSError as error:
            why = f"what it computed cannot be read: {reason(error)}"
            return replace(made, work={"verdict": "unproven", "why": why})

    def _proves_itself(self, job: Job) -> bool:
        adapter = self.adapters[job.adapter]
        return adapter.provable and adapter.trains

    def _work(
        self, references: References, made: Record, environment: Environment, asked: bool, seconds: float
    ) -> dict[str, Any]:
        """See Record.work. Of each row one run, which is drawn among those that are left, is looked at more closely.
        asked: whether it wrote down what an audit needs."""
        job, spec, folder = made.job, self.store.spec, self.store.folder / made.folder
        work, last = references.verdict(job, folder), max(made.repeat + 1, min(spec.protocol.repeats, FIRST_LOOK))
        drawn = self._drawn.setdefault(job.id, SystemRandom().randrange(made.repeat, last))
        earlier = [record.work for record in self.store.records.values() if record.job.id == job.id]
        looked = any(Audit.__optional_keys__ & one.keys() for one in earlier)
        if work["verdict"] == "different" or looked or made.repeat < drawn:
            return work
        with self.store.spending("audits of measured runs"):
            if asked:
                work = {**work, **audit.verdict(references, job, folder, seconds * spec.protocol.repeats)}
            if work["verdict"] != "different" and not obstacle(job, spec):
                work = {**work, **self._revealed(references, job, environment)}
            if work["verdict"] != "different" and places_dropout(job):
                work = {**work, **self._placed(references, job, environment)}
        return work

    def _revealed(self, references: References, job: Job, environment: Environment) -> dict[str, Any]:
        """Rounding and dropout's masks hide much of what a run computes. So the program that is measured runs once
        more, from weights that reveal more and with so little dropout that it drops nothing, and is held against the
        reference."""
        held = references.of(job, revealing=True)
        if isinstance(held, str):
            return {"unrevealed": held}
        checked = {"revealing": True, "dropout": NEXT_TO_NONE}
        folder, failure = self._again(job, environment, "from revealing weights", held.steps, checked)
        if failure:
            return {"unrevealed": f"that run failed ({failure.kind}: {failure.message})"}
        found = references.verdict(job, folder, revealing=True)
        if found["verdict"] == "different":
            return {**found, "why": f"from revealing weights {found['why']}"}
        return {"revealed": found["steps"]} if found["verdict"] == "same" else {"unrevealed": found["why"]}

    def _placed(self, references: References, job: Job, environment: Environment) -> dict[str, Any]:
        """Masks hide where they are drawn. So the program that is measured makes one step more, with so much dropout
        that it drops nearly all."""
        held = references.placed(job)
        if isinstance(held, str):
            return {"unplaced": held}
        folder, failure = self._again(job, environment, "that drops nearly all", 1, {"dropout": places.share(job)})
        if failure:
            return {"unplaced": f"that run failed ({failure.kind}: {failure.message})"}
        try:
            why = references.place(job, folder)
        except (OSError, *DAMAGED) as error:
            return {"unplaced": f"what it wrote down of its tensors cannot be read: {error}"}
        return {"verdict": "different", "why": why} if why else {"placed": True}

    def _again(
        self, job: Job, environment: Environment, how: str, steps: int, checked: Mapping[str, Any]
    ) -> tuple[Path, Failure | None]:
        """The program that is measured, for so many steps. checked: of its Job, what is another. Returns the folder of
        that run, and how it failed."""
        spec = replace(self.store.spec, protocol=steps_alone(self.store.spec.protocol, steps))
        folder = self.store.folder / "proofs" / f"{job.id}-{how.replace(' ', '-')}" / "run"
        row = f"{job.model} {job.precision_asked} {job.system}"
        busy = partial(self.progress.busy, lambda: f"{row}: a run {how}")
        return folder, self.execute(folder, job, spec, 0, environment, busy, checked)[1].failure
