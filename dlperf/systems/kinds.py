"""The kinds of systems: native ones run our scripts, upstream ones third-party scripts. An adapter is of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dlperf.catalog.adapter import Adapter
from dlperf.envs.environment import Environment, Progress
from dlperf.errors import RunError
from dlperf.kind import NATIVE, UPSTREAM
from dlperf.launchers import Launcher
from dlperf.planning.spec import Spec
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.schema import Failure, Job
from dlperf.systems import native, upstream


class System(Protocol):
    """What a comparison asks of a row's system. folder, in the verbs of a run: that of the run."""

    def planned(self, adapter: Adapter, job: Job, spec: Spec) -> Environment:
        """The environment that `environments` would return. Runs nothing."""

    def commands(self, adapter: Adapter, job: Job, spec: Spec) -> str:
        """The shell commands that bring what a job needs; empty if nothing is to be made."""

    def environments(
        self, wanted: Sequence[tuple[Adapter, Job]], spec: Spec, folder: Path, note: Progress
    ) -> list[Environment | RunError]:
        """What each of these jobs runs in, made first if needed, or why there is none. folder: the comparison's."""

    def check(self, environment: Environment) -> None:
        """Cheap: RunError if the environment has vanished since."""

    def script(self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment) -> str:
        """What `sh` runs for one run of a job, in the run's folder: launch.sh. Pure."""

    def request(self, adapter: Adapter, job: Job, spec: Spec) -> dict[str, object]:
        """The content of job.json."""

    def complete(self, adapter: Adapter, job: Job, spec: Spec, folder: Path) -> bool:
        """Whether a run that is still at work has done what it is for, and is to be ended."""

    def read(self, adapter: Adapter, job: Job, spec: Spec, environment: Environment, folder: Path) -> Stream:
        """What a run that has ended tells."""

    def failure(self, ended: Exit, stream: Stream, folder: Path, launcher: Launcher) -> Failure | None:
        """What went wrong with a run; None if nothing."""

    def stored(self, adapter: Adapter, job: Job, spec: Spec, environment: Environment) -> Mapping[str, str]:
        """What a record says of the environment."""


SYSTEMS: Mapping[str, System] = {NATIVE.name: native, UPSTREAM.name: upstream}


def of(adapter: Adapter) -> System:
    """The kind of an adapter's systems."""
    return SYSTEMS[adapter.kind.name]
