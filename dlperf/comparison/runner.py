"""Runs the jobs of a comparison, one process group after the other, and stores what came of each."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dlperf import cache, launchers
from dlperf.catalog.adapter import Adapter
from dlperf.comparison import estimate
from dlperf.comparison.progress import Progress
from dlperf.comparison.store import Store
from dlperf.envs import kinds
from dlperf.envs.environment import Environment
from dlperf.errors import Problem, RunError, UsageError
from dlperf.figures import summaries
from dlperf.launchers import Launch
from dlperf.planning import plan
from dlperf.planning.spec import Spec
from dlperf.proof.certify import Certifier
from dlperf.runs import bundle, events, execute, failures
from dlperf.runs.execute import Enough
from dlperf.schema import Failure, Job, Record
from dlperf.shell import quote
from dlperf.upstream import commands, logs, setup
from dlperf.upstream.commands import WORK

#: failures of what surrounds a run, not of the run: `--resume` tries them again
NEVER_RAN = frozenset(["environment"])
#: what shells, mpirun and Slurm print where a folder is not there
NOT_THERE = ("No such file", "cannot open", "can't open", "couldn't chdir")
#: of a job's communication event, what a record keeps
MEASURED = ("gradient_bytes", "all_reduce_bytes", "all_reduce_seconds")
#: of its product event
PRODUCT = ("size", "seconds", "fp32_seconds")


@dataclass
class Runner:
    """One comparison at work. Nothing here computes while a worker measures: it sleeps until the worker ends."""

    store: Store
    adapters: Mapping[str, Adapter]
    progress: Progress
    retry_failed: bool = False

    def run(self) -> None:
        """Make environments, then run what is missing. KeyboardInterrupt ends every child and goes on."""
        runs = list(self._missing())
        jobs = {job.id: job for _, job in runs}
        used = {job.adapter: self.adapters[job.adapter] for job in jobs.values()}
        bundle.make(self.store.folder / "code", used.values())
        expected = estimate.of(self.store.spec, [job for _, job in runs], self.adapters)
        for line in estimate.text(expected) if runs else ():
            self.progress.note(line)
        self.progress.begin([job for _, job in runs], self.store.spec, expected.each)
        environments = self._environments(list(jobs.values()), runs)
        self._look_for_folder(list(jobs.values()), environments)
        self._prove(environments)
        for repeat, job in runs:
            key = (job.adapter, job.environment)
            if key in environments and not summaries.given_up(self._records(job)):
                self.progress.started(job, repeat)
                self._one(job, repeat, environments[key])
            elif (job.id, repeat) not in self.store.records:
                self.progress.passed(job)

    def _look_for_folder(self, jobs: Sequence[Job], environments: Mapping[tuple[str, str], Environment]) -> None:
        """UsageError if some node does not see the folder of the comparison, or the environments. A node that cannot
        be reached is not told here: each of its rows says so."""
        wide = [job for job in jobs if job.nnodes > 1 and (job.adapter, job.environment) in environments]
        if not wide:
            return
        folder, spec = self.store.folder / "look", self.store.spec
        widest = max(wide, key=lambda job: job.nnodes)
        environment, launcher = environments[widest.adapter, widest.environment], launchers.find(widest.launcher)
        python = "" if environment.image else f"test -x {quote(environment.python)} && "
        look = f'{python}test -f job.json && echo > "seen.$(hostname)"'
        look += f' || {{ echo "$(hostname): {NOT_THERE[0]}" >&2; exit 1; }}'
        launch = replace(_launch(spec, widest, 0, environment), code=Path("../code"), nproc_per_node=1, instead=look)
        execute.prepare(folder, {}, launcher.script(launch))
        busy = partial(self.progress.busy, lambda: f"looking for {self.store.folder} on {widest.nnodes} nodes")
        ended = execute.execute(folder, min(60.0, spec.timeout), busy, launcher, environment.engine)
        printed = failures.printed(folder)
        if ended.code and not ended.timed_out and any(sign in printed for sign in NOT_THERE):
            seen = sorted(file.name.removeprefix("seen.") for file in folder.glob("seen.*"))
            step = f"It is seen on {', '.join(seen) or 'none of them'}; see {folder / 'stderr.log'}."
            allowed = f"a folder that all {widest.nnodes} nodes share, as they must share {cache.folder()}"
            raise UsageError([Problem("--output", self.store.folder, allowed, step)])

    def _missing(self) -> Iterator[tuple[int, Job]]:
        for repeat, job in plan.order(self.store.plan, self.store.spec.protocol.repeats, self.store.spec.seed):
            record = self.store.records.get((job.id, repeat))
            again = record and record.failure and (self.retry_failed or record.failure.kind in NEVER_RAN)
            if record is None or again:
                if again:
                    del self.store.records[job.id, repeat]
                yield repeat, job

    def _records(self, job: Job) -> list[Record]:
        return [record for record in self.store.records.values() if record.job.id == job.id]

    def _environments(self, jobs: list[Job], runs: list[tuple[int, Job]]) -> dict[tuple[str, str], Environment]:
        """The environment of each adapter; one that can't be made becomes a failed record of each of its jobs."""
        keys = list(dict.fromkeys((job.adapter, job.environment) for job in jobs if not job.upstream))
        pairs = [(self.adapters[name], environment) for name, environment in keys]
        made = kinds.ensure_all(pairs, self.store.spec.env, self.progress.note, self.store.spec.images)
        made = [one if isinstance(one, RunError) else on_cpu(one, self.store.spec) for one in made]
        for job in {(job.adapter, job.environment): job for job in jobs if job.upstream}.values():
            keys.append((job.adapter, job.environment))
            made.append(self._of_script(job))
        for key, error in zip(keys, made, strict=True):
            if isinstance(error, RunError):
                mine = [(repeat, job) for repeat, job in runs if (job.adapter, job.environment) == key]
                for repeat, job in {job.id: (repeat, job) for repeat, job in reversed(mine)}.values():
                    self._never_ran(job, repeat, error)
        return {key: one for key, one in zip(keys, made, strict=True) if isinstance(one, Environment)}

    def _of_script(self, job: Job) -> Environment | RunError:
        """What a script that is not ours needs."""
        try:
            adapter = self.adapters[job.adapter]
            return setup.environment(adapter, job, self.store.spec, self.store.folder, self.progress.note)
        except RunError as error:
            return error

    def _prove(self, environments: Mapping[tuple[str, str], Environment]) -> None:
        """Certificates of the rows whose scripts are ours, unless an earlier call had them all."""
        spec, folder = self.store.spec, self.store.folder
        jobs = [job for job in self.store.plan.jobs if not job.upstream]
        if all(job.id in self.store.proofs for job in jobs):
            return
        threads = spec.threads * max(spec.nproc_per_node)
        certifier = Certifier(
            folder,
            threads,
            spec.timeout,
            self.progress.note,
            spec.verify,
            spec.hosts,
            spec.launcher_arguments,
            spec.container_arguments,
            self.progress.busy,
        )
        self.store.prove({**self.store.proofs, **certifier.certificates(jobs, environments)})

    def _never_ran(self, job: Job, repeat: int, error: RunError) -> None:
        failure = Failure(error.kind, str(error), error.lines)
        record = Record(job, repeat, _now(), 0.0, "", "", environment={"kind": self.store.spec.env}, failure=failure)
        self._finish(record)

    def _one(self, job: Job, repeat: int, environment: Environment) -> None:
        if job.upstream:
            self._script(job, repeat, environment)
            return
        try:
            kinds.check(environment)
        except RunError as error:
            self._never_ran(job, repeat, error)
            return
        folder = self.store.folder / run_folder(job, repeat)
        command = script(self.store.spec, job, repeat, environment, self.adapters[job.adapter])
        kernels = self.adapters[job.adapter].kernels_of(job.family, job.device, job.precision, job.options)
        execute.prepare(folder, request(job, self.store.spec, kernels), command)
        started, began = _now(), time.monotonic()
        launcher = launchers.find(job.launcher)
        timeout = self.store.spec.timeout
        ended = execute.execute(folder, timeout, lambda: self.progress.tick(folder), launcher, environment.engine)
        stream = events.of_job(folder, job.world_size)
        self._finish(
            Record(
                job=job,
                repeat=repeat,
                started=started,
                seconds=time.monotonic() - began,
                command=command,
                folder=str(run_folder(job, repeat)),
                environment=environment.stored,
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
                failure=failures.failure(ended, stream, folder, launcher),
            )
        )

    def _script(self, job: Job, repeat: int, environment: Environment) -> None:
        """One run of a script that is not ours: its log is what it tells."""
        spec, adapter = self.store.spec, self.adapters[job.adapter]
        theirs, folder = adapter.scripts[job.model], self.store.folder / run_folder(job, repeat)

        def tick() -> None:
            self.progress.tick(folder)
            if not theirs.stops and logs.complete(folder, theirs, job, spec.protocol):
                raise Enough

        command = script(spec, job, repeat, environment, adapter)
        execute.prepare(folder, request(job, spec), command)
        started, began = _now(), time.monotonic()
        engine = setup.engine(spec) if environment.kind == "image" else ""
        ended = execute.execute(folder, spec.timeout, tick, engine=engine)
        seconds = time.monotonic() - began
        shutil.rmtree(folder / WORK, ignore_errors=True)
        stream = logs.read(folder, theirs, job, spec.protocol, setup.versions(adapter, environment))
        given = job.adapter in spec.sources
        self._finish(
            Record(
                job=job,
                repeat=repeat,
                started=started,
                seconds=seconds,
                command=command,
                folder=str(run_folder(job, repeat)),
                environment={
                    "kind": environment.kind,
                    "python": environment.python_version,
                    "digest": environment.digest,
                    "image": job.upstream["image"] if environment.kind == "image" else "",
                    "source": job.upstream["script"] if given else "in the image, not checked",
                },
                versions=stream.start["versions"],
                effective=stream.warm["effective"],
                windows=stream.windows,
                first_step_seconds=stream.warm["first_step_seconds"],
                failure=logs.failure(ended, stream, folder),
            )
        )

    def _finish(self, record: Record) -> None:
        self.store.append(record)
        self.progress.finished(record)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def script(spec: Spec, job: Job, repeat: int, environment: Environment, adapter: Adapter) -> str:
    """What `sh` runs for one run of a job, in the run's folder."""
    if job.upstream:
        return commands.launch(adapter, job, spec, repeat, str(environment.python), environment.kind == "image")
    return launchers.find(job.launcher).script(_launch(spec, job, repeat, environment))


def on_cpu(environment: Environment, spec: Spec) -> Environment:
    """The environment, with the CPU that --emulate-cpu names."""
    return replace(environment, emulated=spec.emulate_cpu)


def _launch(spec: Spec, job: Job, repeat: int, environment: Environment) -> Launch:
    return Launch(
        title=f"{job.id}, repeat {repeat + 1} of {spec.protocol.repeats}",
        name=f"{job.id}-r{repeat + 1}",
        python=environment.python,
        code=Path("../../../code"),
        device=job.device,
        threads=spec.threads,
        variables=environment.variables,
        nnodes=job.nnodes,
        nproc_per_node=job.nproc_per_node,
        hosts=spec.hosts[: job.nnodes],
        arguments=spec.launcher_arguments,
        container=environment.container(job.device, spec.container_arguments, _data(job)),
        emulated=environment.emulated,
    )


def _data(job: Job) -> str | None:
    return os.path.abspath(job.data_dir) if job.data_dir else None


def run_folder(job: Job, repeat: int) -> Path:
    """Where a run's files are, relative to the comparison."""
    return Path("runs") / job.id / str(repeat)


def request(job: Job, spec: Spec, kernels: Sequence[Mapping[str, object]] = ()) -> dict[str, object]:
    """The content of job.json, see dlperf.adapters.api.Job. kernels: see dlperf.adapters.cpu."""
    return {
        "adapter": job.adapter,
        "kernels": list(kernels),
        "allow_reference": spec.allow_reference,
        "job": {
            "model": job.model,
            "device": job.device,
            "precision": job.precision,
            "batch_size": job.batch_size,
            "input": job.input,
            "data_dir": _data(job),
            "format": job.format,
            "warmup_steps": spec.protocol.warmup_steps,
            "windows": spec.protocol.windows,
            "steps_per_window": spec.protocol.steps_per_window,
            "seed": spec.seed,
            "threads": spec.threads,
            "meeting_seconds": min(300.0, spec.timeout / 2),
            "options": dict(job.options),
        },
    }
