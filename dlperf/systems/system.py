"""What a comparison asks of a row's system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dlperf.catalog.adapter import Adapter
from dlperf.envs.environment import Environment, Note, none
from dlperf.errors import RunError
from dlperf.launchers import Launcher
from dlperf.planning.spec import Spec
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.schema import Failure, Job


class System:
    """The verbs of a kind of systems. Here they are those of one for which nothing is installed and nothing is run:
    a kind must have `read`, and any of the others. folder, in the verbs of a run: that of the run."""

    def planned(self, adapter: Adapter, job: Job, spec: Spec) -> Environment:
        """The environment that `environments` would return. Runs nothing."""
        return none(adapter.name, job.environment)

    def commands(self, adapter: Adapter, job: Job, spec: Spec) -> str:
        """The shell commands that bring what a job needs; empty if nothing is to be made."""
        return ""

    def environments(
        self, wanted: Sequence[tuple[Adapter, Job]], spec: Spec, folder: Path, note: Note
    ) -> list[Environment | RunError]:
        """What each of these jobs runs in, made first if needed, or why there is none. folder: the comparison's."""
        return [self.planned(adapter, job, spec) for adapter, job in wanted]

    def check(self, environment: Environment) -> None:
        """Cheap: RunError if the environment has vanished since."""

    def script(self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment) -> str:
        """What `sh` runs for one run of a job, in the run's folder: launch.sh; empty if nothing is. Pure."""
        return ""

    def request(self, adapter: Adapter, job: Job, spec: Spec, repeat: int) -> dict[str, object]:
        """The content of job.json."""
        return {}

    def complete(self, adapter: Adapter, job: Job, spec: Spec, folder: Path) -> bool:
        """Whether a run that is still at work has done what it is for, and is to be ended."""
        return False

    def read(
        self, adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment, folder: Path
    ) -> Stream:
        """What a run that has ended tells."""
        raise NotImplementedError

    def failure(self, ended: Exit, stream: Stream, folder: Path, launcher: Launcher) -> Failure | None:
        """What went wrong with a run; None if nothing."""
        return stream.failure

    def stored(self, adapter: Adapter, job: Job, spec: Spec, environment: Environment) -> Mapping[str, str]:
        """What a record says of the environment."""
        return environment.stored
