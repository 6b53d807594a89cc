"""Systems whose scripts are third-party: what such a script needs, how it is started, what its log says."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from dlperf.catalog.adapter import Adapter
from dlperf.envs.environment import Environment, Progress
from dlperf.errors import RunError
from dlperf.launchers import Launcher
from dlperf.planning.spec import Spec
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.schema import Failure, Job
from dlperf.systems import native
from dlperf.upstream import commands as commands_
from dlperf.upstream import logs, setup

planned = setup.planned
commands = setup.get
request = native.request


def environments(
    wanted: Sequence[tuple[Adapter, Job]], spec: Spec, folder: Path, note: Progress
) -> list[Environment | RunError]:
    return [_environment(adapter, job, spec, folder, note) for adapter, job in wanted]


def _environment(adapter: Adapter, job: Job, spec: Spec, folder: Path, note: Progress) -> Environment | RunError:
    try:
        return setup.environment(adapter, job, spec, folder, note)
    except RunError as error:
        return error


def check(environment: Environment) -> None:
    """Nothing: a script that finds none of its own fails by itself."""


def script(adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment) -> str:
    return commands_.launch(adapter, job, spec, repeat, environment)


def complete(adapter: Adapter, job: Job, spec: Spec, folder: Path) -> bool:
    theirs = adapter.scripts[job.model]
    return not theirs.stops and logs.complete(folder, theirs, job, spec.protocol)


def read(adapter: Adapter, job: Job, spec: Spec, environment: Environment, folder: Path) -> Stream:
    """Its log. Where it worked is removed, since scripts leave checkpoints."""
    shutil.rmtree(folder / commands_.WORK, ignore_errors=True)
    versions = setup.versions(adapter, environment)
    return logs.read(folder, adapter.scripts[job.model], job, spec.protocol, versions)


def failure(ended: Exit, stream: Stream, folder: Path, launcher: Launcher) -> Failure | None:
    return logs.failure(ended, stream, folder)


def stored(adapter: Adapter, job: Job, spec: Spec, environment: Environment) -> dict[str, str]:
    source = job.about["script"] if job.adapter in spec.sources else "in the image, not checked"
    return {**environment.stored, "source": source}
