"""Runs the jobs of a comparison, one process group after the other, and stores what came of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dlperf import cache, launchers, machine
from dlperf.adapters import variables
from dlperf.catalog.adapter import Adapter
from dlperf.comparison import estimate, largest
from dlperf.comparison.progress import Progress
from dlperf.comparison.store import Store
from dlperf.comparison.work import Work
from dlperf.envs import changes
from dlperf.envs.environment import Environment
from dlperf.errors import Problem, RunError, UsageError, reason
from dlperf.figures import summaries, until
from dlperf.launchers import Launcher
from dlperf.planning import plan
from dlperf.planning.spec import Spec
from dlperf.proof import audit
from dlperf.proof.certify import Certifier
from dlperf.proof.references import ADAPTER
from dlperf.revision import revision
from dlperf.runs import bundle, failures, worker
from dlperf.runs.events import Stream
from dlperf.runs.execute import Enough, Exit, Outcome, execute, now
from dlperf.runs.stages import stages
from dlperf.schema import Failure, Job, Record, run_folder
from dlperf.shell import quote
from dlperf.stored import DAMAGED, content, decoded, no_rate
from dlperf.systems import kinds as systems
from dlperf.systems.system import System

#: failures of what surrounds a run, not of the run: `--resume` tries them again
NEVER_RAN = frozenset(["environment", "machine"])
#: what shells, mpirun and Slurm print where a folder is not there
NOT_THERE = ("No such file", "cannot open", "can't open", "couldn't chdir")
#: of a job's communication event, what a record keeps
MEASURED = ("gradient_bytes", "all_reduce_bytes", "all_reduce_seconds", "link_gigabits")
#: of its product event
PRODUCT = (
    *("size", "seconds", "fp32_seconds", "large_size", "large_seconds", "large_fp32_seconds"),
    *("copy_bytes", "copy_seconds", "slowest_rank", "slowest_share"),
)


@dataclass
class Runner:
    """One comparison at work. Nothing here computes while a worker measures: it sleeps until the worker ends. told:
    what it takes, where the user knows that already. only: the rows that are run, by Job.id; all if empty."""

    store: Store
    adapters: Mapping[str, Adapter]
    progress: Progress
    retry_failed: bool = False
    told: estimate.Estimate | None = None
    only: frozenset[str] = frozenset()
    _first_block: int = 0
    _work: Work = field(init=False)
    _expected: Mapping[str, float] = field(default_factory=dict)
    _dropped_told: bool = False

    def __post_init__(self) -> None:
        self._work = Work(self.store, self.adapters, self.progress, self._execute)

    def run(self) -> None:
        """Make environments, then run what is missing. KeyboardInterrupt ends every child and goes on."""
        runs = list(self._missing())
        jobs = {job.id: job for _, job in runs}
        used = {job.adapter: self.adapters[job.adapter] for job in jobs.values() if job.traits.run}
        code = self.store.folder / "code"
        bundle.copy_code(code, {**used, ADAPTER: self.adapters[ADAPTER]}.values())
        self.store.note_code(bundle.listed(code))
        if runs:
            self.store.note_revision(revision())
        edited = bundle.changed(code, self.store.manifest.get("code")) or self._other_code()
        if edited:
            says = f"the code of its runs was changed since: {code / edited[0]}. Put it back, or start anew."
            raise UsageError([Problem("--resume", self.store.folder, says=says)])
        expected = self.told or estimate.expected(self.store.spec, [job for _, job in runs], self.adapters)
        for line in estimate.text(expected) if runs and not self.told else ():
            self.progress.note(line)
        self._expected = expected.each
        self.progress.begin([job for _, job in runs], self.store.spec, expected.each)
        with self.store.spending("environments"):
            environments = self._environments(runs)
            self._tell_changed(environments.values())
            self._look_for_folder(list(jobs.values()), environments)
        with self.store.spending("batch sizes"):
            self._find_batch_sizes(environments)
        jobs = {job.id: job for job in self.store.plan.jobs}
        with self.store.spending("proofs"), self._told("Proofs"):
            self._prove(environments)
        with self.store.spending("the reference of measured runs"), self._told("The reference of measured runs"):
            self._work.refer([job for job in jobs.values() if job.id in environments], expected.seconds or 0.0)
        # what is run later is in blocks of its own: a pause of hours may lie between
        earlier = [record.repeat if record.block is None else record.block for record in self.store.records.values()]
        self._first_block = max(earlier, default=-1) + 1
        block = -1
        for repeat, job in ((repeat, jobs[planned.id]) for repeat, planned in runs):
            if repeat != block and until.stopped(self.store.comparison):
                break
            block = repeat
            if job.id in environments and not summaries.given_up(self._records(job)):
                self.progress.started(job, repeat)
                self._one(job, repeat, environments[job.id])
            elif (job.id, repeat) not in self.store.records:
                self.progress.passed(job)

    def _other_code(self) -> list[str]:
        """Of the adapters whose runs were of other code than there is now, relative to code/."""
        ran = {(one.job.adapter, one.code) for one in self.store.records.values() if one.code}
        return [f"dlperf/adapters/{adapter}" for adapter, code in sorted(ran) if code != self._code(adapter)]

    def _code(self, adapter: str) -> str:
        return bundle.digest(self.store.folder / "code" / "dlperf", adapter)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """What the machine refuses to something beside the runs is a line, and the runs are made."""
        try:
            yield
        except OSError as error:
            self.progress.note(f"{what} could not be made: {reason(error)}")

    def _look_for_folder(self, jobs: Sequence[Job], environments: Mapping[str, Environment]) -> None:
        """UsageError if some node does not see the folder of the comparison, or the environments; and what the nodes
        are. A node that cannot be reached is not told here: each of its rows says so."""
        wide = [job for job in jobs if job.nnodes > 1 and job.traits.worker and job.id in environments]
        if not wide:
            return
        folder, spec = self.store.folder / "look", self.store.spec
        widest = max(wide, key=lambda job: job.nnodes)
        environment, launcher = environments[widest.id], launchers.find(widest.launcher)
        python = "" if environment.image else f"test -x {quote(environment.python)} && "
        ours = quote(spec.launcher_arguments.get("python", sys.executable))
        look = f'{python}test -f job.json && {{ {ours} -m dlperf.machine > "seen.$(hostname)" 2>/dev/null || :; }}'
        look += f' || {{ echo "$(hostname): {NOT_THERE[0]}" >&2; exit 1; }}'
        one_each, title = replace(widest, nproc_per_node=1), f"who sees this folder, for {widest.id}"
        of_row = worker.launch(one_each, environment, spec, f"{widest.id}-look", title)
        launch = replace(of_row, code=Path("../code"), instead=look)
        script, timeout = launcher.script(launch), min(60.0, spec.timeout)
        busy = partial(self.progress.busy, lambda: f"looking for {self.store.folder} on {widest.nnodes} nodes")
        looked = execute(folder, {}, script, Stream, _not_seen, timeout, busy, launcher, environment.engine)
        if looked.failure:
            where = f"of {widest.nnodes} nodes, {looked.failure.message} can see it and {cache.folder()}"
            says = f"{where}. All nodes must share both; see {folder / 'stderr.log'}."
            raise UsageError([Problem("--output", self.store.folder, says=says)])
        self.store.note_nodes(machine.alike([*_nodes(folder)]))

    def _missing(self) -> Iterator[tuple[int, Job]]:
        if until.stopped(self.store.comparison):
            return
        for repeat, job in plan.order(self.store.plan, self.store.spec.protocol.repeats, self.store.spec.seed):
            record = self.store.records.get((job.id, repeat))
            again = record and record.failure and (self.retry_failed or record.failure.kind in NEVER_RAN)
            if self.only and job.id not in self.only:
                continue
            if record is None or again:
                if again:
                    del self.store.records[job.id, repeat]
                yield repeat, job

    def _tell_changed(self, environments: Iterable[Environment]) -> None:
        for one in {one.folder: one for one in environments if one.changed}.values():
            self.progress.note(
                f"{one.adapter} {one.key}: files of its environment were changed since it was made: "
                f"{changes.named(one.changed)}. Its proofs are of what is there now; what was there comes back with "
                f"python -m dlperf.envs remove {one.adapter}."
            )

    def _records(self, job: Job) -> list[Record]:
        return [record for record in self.store.records.values() if record.job.id == job.id]

    def _environments(self, runs: Sequence[tuple[int, Job]]) -> dict[str, Environment]:
        """The environment of each row, by Job.id, as far as `runs` need it; one that can't be made becomes a failed
        record of each row in `runs`."""
        following = {job.id: repeat for repeat, job in reversed(runs)}
        sharing: dict[tuple[str, str, str], list[Job]] = {}
        for job in self.store.plan.jobs:
            sharing.setdefault((job.adapter, job.environment, job.image), []).append(job)
        needed = [jobs for jobs in sharing.values() if any(job.id in following for job in jobs)]
        found: dict[str, Environment] = {}
        for system in systems.SYSTEMS.values():
            mine = [jobs for jobs in needed if self._system(jobs[0]) is system]
            wanted = [(self.adapters[jobs[0].adapter], jobs[0]) for jobs in mine]
            made: Sequence[Environment | RunError]
            try:
                made = system.environments(wanted, self.store.spec, self.store.folder, self.progress.note)
            except OSError as error:
                made = [RunError("environment", reason(error))] * len(mine)
            for job, one in [(job, one) for jobs, one in zip(mine, made, strict=True) for job in jobs]:
                if isinstance(one, Environment):
                    found[job.id] = one
                elif job.id in following:
                    self._never_ran(job, following[job.id], one)
        return found

    def _system(self, job: Job) -> System:
        return systems.of(self.adapters[job.adapter])

    def _find_batch_sizes(self, environments: Mapping[str, Environment]) -> None:
        """With --batch-size max: of each row, unless an earlier call found it."""
        for job in self.store.plan.jobs if self.store.spec.largest_batch else ():
            if job.id in environments and job.id not in self.store.sizes and not job.duplicate_of:
                found, how = largest.search(job.batch_size, partial(self._probe, job, environments[job.id]))
                self.store.size(job, found, how)
                self.progress.note(f"{_row(job)}: {how}")

    def _probe(self, job: Job, environment: Environment, batch_size: int) -> Failure | None:
        """Why a few steps with batches of this size do not run."""
        sized, spec = replace(job, batch_size=batch_size), largest.probing(self.store.spec)
        folder = self.store.folder / "probes" / job.id / str(batch_size)
        busy = partial(self.progress.busy, lambda: f"{_row(job)}: trying batch size {batch_size:,}")
        return self._execute(folder, sized, spec, 0, environment, busy)[1].failure

    def _prove(self, environments: Mapping[str, Environment]) -> None:
        """Certificates of the rows that can be proven, unless an earlier call had them all."""
        spec, folder = self.store.spec, self.store.folder
        proven = [job for job in self.store.plan.jobs if self.adapters[job.adapter].provable]
        if all(self._proven(job, environments.get(job.id)) for job in proven):
            return
        certifier = Certifier(folder, spec, self.progress.note, self.progress.busy)
        made = certifier.certificates([job for job in proven if not job.duplicate_of], environments)
        again = {job.id: made[job.duplicate_of] for job in proven if job.duplicate_of in made}
        kept = {job.id: self.store.proofs[job.id] for job in proven if self._proven(job, environments.get(job.id))}
        self.store.prove({**kept, **made, **again})

    def _proven(self, job: Job, environment: Environment | None) -> bool:
        """Whether an earlier call had its certificates, of the code and the environment that there are now."""
        code = self._code(job.adapter)
        made = [one.trajectory for one in self.store.proofs.get(job.id, ())]
        return bool(made) and all(
            one.code == code and (environment is None or one.environment["digest"] == environment.digest)
            for one in made
        )

    def _never_ran(self, job: Job, repeat: int, error: RunError) -> None:
        failure = Failure(error.kind, str(error), error.lines)
        self._finish(Record(job, repeat, now(), 0.0, "", "", {"kind": self.store.spec.env}, failure=failure))

    def _one(self, job: Job, repeat: int, environment: Environment) -> None:
        spec, adapter, system = self.store.spec, self.adapters[job.adapter], self._system(job)
        try:
            system.check(environment)
        except RunError as error:
            self._never_ran(job, repeat, error)
            return
        folder = self.store.folder / run_folder(job, repeat)

        def tick() -> None:
            self.progress.tick(folder)
            if system.complete(adapter, job, spec, folder):
                raise Enough

        try:
            command, outcome = self._execute(folder, job, spec, repeat, environment, tick)
            stored = system.stored(adapter, job, spec, environment)
            code = self._code(job.adapter) if job.traits.worker else ""
            made = replace(recorded(job, repeat, command, stored, outcome), block=self._first_block + repeat, code=code)
            if made.done:
                made = self._work.looked_at(made, environment, outcome.stream, self._expected.get(job.id, 0.0))
        except RunError as error:
            self._never_ran(job, repeat, error)
        except Exception as error:  # a row's trouble is the row's
            self._never_ran(job, repeat, RunError("machine", f"its run could not be made: {reason(error)}"))
        else:
            self._tell_dropped(outcome.stream)
            self._finish(made)
        finally:
            with suppress(OSError):
                (folder / audit.WEIGHTS).unlink(
                    missing_ok=True
                )  # which may be gigabytes, also of a run that was stopped

    def _tell_dropped(self, stream: Stream) -> None:
        """Once: which of the user's variables for frameworks workers do without."""
        names = [name for name in stream.start.get("dropped", ()) if name.startswith(variables.NOTABLE)]
        if names and not self._dropped_told:
            self._dropped_told = True
            self.progress.note(f"Variables of your shell that workers do not get: {', '.join(names)}.")

    def _execute(
        self,
        folder: Path,
        job: Job,
        spec: Spec,
        repeat: int,
        environment: Environment,
        tick: Callable[[], None],
        checked: Mapping[str, float] | None = None,
    ) -> tuple[str, Outcome]:
        """Run a job in a folder. Returns its script and what came of it. checked: of dlperf.adapters.api.Job, what is
        otherwise than in a run that is measured; then it is not audited."""
        adapter, system = self.adapters[job.adapter], self._system(job)
        command, request = (
            system.script(adapter, job, spec, repeat, environment),
            system.request(adapter, job, spec, repeat),
        )
        if checked:
            asked: Any = request["job"]
            request = {**request, "job": {**asked, **checked}, "audit": False}
        outcome = execute(
            folder,
            request,
            command,
            lambda: system.read(adapter, job, spec, repeat, environment, folder),
            system.failure,
            spec.timeout,
            tick,
            launchers.find(job.launcher or "local"),
            environment.engine,
        )
        return command, outcome

    def _finish(self, record: Record) -> None:
        self.store.append(record)
        self.progress.finished(record)


def _not_seen(ended: Exit, stream: Stream, folder: Path, launcher: Launcher) -> Failure | None:
    """That some node does not see a folder; the message names those that do."""
    printed = failures.printed(folder)
    if not ended.code or ended.timed_out or not any(sign in printed for sign in NOT_THERE):
        return None
    seen = sorted(file.name.removeprefix("seen.") for file in folder.glob("seen.*"))
    return Failure("launcher", ", ".join(seen) or "none")


def _nodes(folder: Path) -> Iterator[dict[str, Any]]:
    """What each node told of itself, where it has dlperf."""
    for file in sorted(folder.glob("seen.*")):
        with suppress(*DAMAGED):
            yield msgspec.convert(decoded(content(file)), dict[str, Any])


def recorded(job: Job, repeat: int, command: str, environment: Mapping[str, str], outcome: Outcome) -> Record:
    """What came of a run. command: its script. environment: see Environment.stored."""
    stream = outcome.stream
    return Record(
        job=job,
        repeat=repeat,
        started=outcome.started,
        seconds=outcome.seconds,
        command=command,
        folder=str(run_folder(job, repeat)),
        environment=environment,
        versions=stream.start.get("versions", {}),
        parameter_count=stream.built.get("parameter_count"),
        effective=stream.warm.get("effective", {}),
        windows=stream.windows,
        start_seconds=stream.built.get("seconds"),
        first_step_seconds=stream.warm.get("first_step_seconds"),
        peak_memory_bytes=(stream.end or {}).get("peak_memory_bytes"),
        peak_device_memory_bytes=(stream.end or {}).get("peak_device_memory_bytes"),
        hosts=stream.hosts,
        communication={key: stream.communication[key] for key in MEASURED if key in stream.communication},
        input={key: stream.input[key] for key in ("samples", "seconds") if key in stream.input},
        kernels=stream.start.get("kernels") or {},
        product={key: stream.product[key] for key in PRODUCT if key in stream.product},
        not_sampled=str(stream.sampled.get("not_sampled", "")) if job.device == "cuda" else "",
        stages=stages(stream, outcome.seconds),
        failure=outcome.failure or no_rate(stream.windows),
        servers=tuple(one.used for one in stream.servers if one.end),
    )


def _row(job: Job) -> str:
    return f"{job.model} {job.precision_asked} {job.system}"
