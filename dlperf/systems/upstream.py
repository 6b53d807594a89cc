"""Systems whose scripts are third-party: what such a script needs, how it is started, what its log says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlperf.catalog.adapter import Adapter
from dlperf.envs.environment import Environment, Note
from dlperf.errors import RunError
from dlperf.launchers import Launcher
from dlperf.planning.spec import Spec
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.schema import Failure, Job
from dlperf.systems import native
from dlperf.systems.system import System
from dlperf.upstream import commands, logs, setup


class Upstream(System):
    """Its verbs are told in dlperf.systems.system. Nothing is checked: a script that finds none of its own fails by
    itself."""

    def planned(self, adapter: Adapter, job: Job, spec: Spec) -> Environment:
        return setup.planned(adapter, job, spec)

    def commands(self, adapter: Adapter, job: Job, spec: Spec) -> str:
        return setup.commands_to_get(adapter, job, spec)

    def environments(
        self, wanted: Sequence[tuple[Adapter, Job]], spec: Spec, folder: Path, note: Note
    ) -> list[Environment | RunError]:
        return [_environment(adapter, job, spec, folder, note) for adapter, job in wanted]

    def script(self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment) -> str:
        return commands.launch(adapter, job, spec, repeat, environment)

    def request(self, adapter: Adapter, job: Job, spec: Spec, repeat: int) -> dict[str, object]:
        return native.request(adapter, job, spec, repeat)

    def complete(self, adapter: Adapter, job: Job, spec: Spec, folder: Path) -> bool:
        theirs = adapter.scripts[job.model]
        return not theirs.stops and logs.complete(folder, theirs, job, spec.protocol)

    def read(
        self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment, folder: Path
    ) -> Stream:
        """Its log. Where it worked is removed, since scripts leave checkpoints."""
        shutil.rmtree(folder / commands.WORK, ignore_errors=True)
        versions = setup.versions(adapter, environment)
        return logs.read(folder, adapter.scripts[job.model], job, spec.protocol, versions)

    def failure(self, ended: Exit, stream: Stream, folder: Path, launcher: Launcher) -> Failure | None:
        return logs.failure(ended, stream, folder)

    def stored(self, adapter: Adapter, job: Job, spec: Spec, environment: Environment) -> Mapping[str, str]:
        source = job.about["script"] if job.adapter in spec.sources else "in the image, not checked"
        return {**environment.stored, "source": source}


def _environment(adapter: Adapter, job: Job, spec: Spec, folder: Path, note: Note) -> Environment | RunError:
    try:
        return setup.environment(adapter, job, spec, folder, note)
    except RunError as error:
        return error
