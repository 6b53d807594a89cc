"""Systems whose scripts are ours: an adapter's modules, run by our worker."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlperf import launchers
from dlperf.catalog.adapter import Adapter
from dlperf.envs import kinds
from dlperf.envs.environment import Environment, Note
from dlperf.errors import RunError
from dlperf.launchers import Launcher
from dlperf.planning.obstacles import made_of
from dlperf.planning.spec import Spec
from dlperf.proof.references import obstacle
from dlperf.runs import events, failures, worker
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.schema import Failure, Job
from dlperf.systems.system import System


class Native(System):
    """Its verbs are told in dlperf.systems.system."""

    def planned(self, adapter: Adapter, job: Job, spec: Spec) -> Environment:
        return _on_cpu(kinds.planned(adapter, job.environment, spec.env, spec.images), spec)

    def commands(self, adapter: Adapter, job: Job, spec: Spec) -> str:
        try:
            return "\n".join(kinds.commands(adapter, job.environment, spec.env, spec.images))
        except RunError as error:
            return f"# {error}"

    def environments(
        self, wanted: Sequence[tuple[Adapter, Job]], spec: Spec, folder: Path, note: Note
    ) -> list[Environment | RunError]:
        pairs = [(adapter, job.environment) for adapter, job in wanted]
        made = kinds.ensure_all(pairs, spec.env, note, spec.images)
        return [one if isinstance(one, RunError) else _on_cpu(one, spec) for one in made]

    def check(self, environment: Environment) -> None:
        kinds.check(environment)

    def script(self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment) -> str:
        title = f"{job.id}, repeat {repeat + 1} of {spec.protocol.repeats}"
        launch = worker.launch(job, environment, spec, f"{job.id}-r{repeat + 1}", title)
        return launchers.find(job.launcher).script(launch)

    def request(self, adapter: Adapter, job: Job, spec: Spec, repeat: int) -> dict[str, object]:
        return request(adapter, job, spec, repeat)

    def read(
        self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment, folder: Path
    ) -> Stream:
        return events.read_job(folder, job.world_size, spec.protocol.windows, job.servers)

    def failure(self, ended: Exit, stream: Stream, folder: Path, launcher: Launcher) -> Failure | None:
        return failures.failure(ended, stream, folder, launcher)


def _on_cpu(environment: Environment, spec: Spec) -> Environment:
    """The environment, with the CPU that --emulate-cpu names."""
    return replace(environment, emulated=spec.emulate_cpu)


def request(adapter: Adapter, job: Job, spec: Spec, repeat: int = 0) -> dict[str, object]:
    """What a run is asked for; of a third-party script, for whoever reads its folder."""
    protocol = spec.protocol
    timed = job.world_size == 1  # of several each would choose steps of its own
    asked = worker.request(
        job,
        spec,
        dropout_seed=spec.seed + 1 + repeat,
        input=job.input,
        data_dir=worker.data_of(job),
        format=job.format,
        warmup_steps=protocol.warmup_steps,
        windows=protocol.windows,
        steps_per_window=protocol.steps_per_window,
        **({"warmup_seconds": protocol.warmup_seconds, "window_seconds": protocol.window_seconds} if timed else {}),
        meeting_seconds=min(300.0, spec.timeout / 2),
    )
    audited = adapter.provable and adapter.trains and not obstacle(job, spec)
    profile = {"profile": spec.profile} if spec.profile else {}
    return {**asked, **_kernels(adapter, job, spec), "audit": audited, **profile}


def _kernels(adapter: Adapter, job: Job, spec: Spec) -> dict[str, object]:
    """What the worker asks its device before it imports the framework, as the plan did where that was known; and who
    samples it."""
    if job.device == "cpu":
        kernels = adapter.kernels_of(job.family, job.device, job.precision, job.options)
        return {"kernels": kernels, "allow_reference": spec.allow_reference}
    made = made_of(spec, adapter, job.environment)
    sampler: dict[str, object] = {
        "sampler": sys.executable
    }  # may have pynvml, which our environments of frameworks lack
    return {"kernels": made.kernels, "cuda": made.cuda, **sampler} if made else sampler
