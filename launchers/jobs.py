"""What an engine is that has jobs of its own: one of them holds a comparison, whose runs are its steps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from dlperf.launchers.api import Launcher, Node, command
from dlperf.shell import quote

#: in a comparison's folder: of its jobs
PLACE = "allocation"
#: seconds before its limit at which a job is asked to end, so that its comparison writes a report
WARNED = 120
#: states in which a job is over, in words
OVER = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit",
    "NODE_FAIL": "lost a node",
    "PREEMPTED": "was preempted",
    "EVICTED": "was evicted",
    "OUT_OF_MEMORY": "ran out of memory",
    "BOOT_FAIL": "could not start its nodes",
    "DEADLINE": "reached its deadline",
    "REVOKED": "was revoked",
    "UNKNOWN": "is not known to {engine} any more",
}


class State(NamedTuple):
    """A job's, by Slurm's names, and why it is in it. code: of what it ran, where it told one. never: whether it waits
    for what no waiting brings."""

    name: str
    reason: str
    code: int | None = None
    never: bool = False

    @property
    def over(self) -> bool:
        """Whether it does not run any more, and will not again."""
        return self.name in OVER

    def words(self, engine: str) -> str:
        """ "is pending (Priority)"."""
        why = f" ({self.reason})" if self.reason not in ("", "None") else ""
        state = OVER.get(self.name, f"is {self.name.lower().replace('_', ' ')}")
        return state.format(engine=engine) + why


@dataclass(frozen=True)
class Batch:
    """A job that holds a comparison, or some of its rows.

    nnodes, nproc_per_node: the most that a row has, servers included. words: of `python -m dlperf.compare`, for a new
    comparison; for one that goes on: `again`. folder: the comparison's where it runs. minutes: the limit.
    """

    name: str
    nnodes: int
    nproc_per_node: int
    device: str
    minutes: int
    folder: Path
    words: Sequence[str]
    again: Sequence[str]
    python: str
    hosts: Sequence[str] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)


#: in PLACE: what a job writes, one line for each time that it began or ended
TOLD = "jobs.jsonl"
#: on a job's first node: the comparison, as a child that is told of a SIGTERM; its exit code is $code
COMPARE = """\
told() {{ printf '{{"event": "%s", "job": "%s", "code": %s, "at": %s, "nodes": "%s"}}\\n' \\
  "$1" {job} "${{2:-null}}" "$(date +%s)" {nodes} >> {told}; }}
if [ -e {manifest} ]; then set -- {again} "$@"; else set -- {words}; fi
told began
{under}{python} -m dlperf.compare "$@" &
comparison=$!
trap 'kill -TERM $comparison' TERM INT
wait $comparison; code=$?
while kill -0 $comparison 2>/dev/null; do wait $comparison; code=$?; done
told ended $code
"""


def compare(asked: Batch, job: str, nodes: str, under: str = "") -> str:
    """Shell commands that run the comparison; where it was begun before (the job was requeued, or is a further one) it
    goes on. job, nodes: their names, as the shell has them. under: a program that runs it."""
    return COMPARE.format(
        job=job,
        nodes=nodes,
        told=quote(asked.folder / PLACE / TOLD),
        manifest=quote(asked.folder / "comparison.json"),
        again=command(*asked.again),
        words=command(*asked.words),
        under=under,
        python=quote(asked.python),
    )


def setup(arguments: Mapping[str, str]) -> str:
    """The shell commands that a site wants first."""
    return f"{arguments['setup']}\n" if "setup" in arguments else ""


def ask(*words: str) -> subprocess.CompletedProcess[str] | None:
    """What one of an engine's commands answers; None where it is not there, or does not answer in a minute."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


class Jobs(Launcher):
    """An engine with jobs. title: as messages have it. suffix: of the file that is submitted. shares: whether the
    submitting machine sees the comparison's folder where it runs."""

    title: ClassVar[str] = ""
    suffix: ClassVar[str] = ".sh"
    shares: ClassVar[bool] = True
    many_nodes = True

    def inside(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Whether this process is in a job, on the node that runs its rows."""
        raise NotImplementedError

    def held(self) -> bool:
        """Whether this process, on a login node, has an allocation."""
        return False

    def hosts(self) -> tuple[str, ...]:
        """The names of the nodes of the job that this process is in; none where the engine does not say."""
        raise NotImplementedError

    def elsewhere(self, nnodes: int, hosts: Sequence[str]) -> bool:
        return not self.inside()

    def nodes(self, arguments: Mapping[str, str]) -> tuple[Node, ...]:
        """Each kind of node that a job could go to; none where the engine does not answer."""
        raise NotImplementedError

    def node(self, hosts: Sequence[str], arguments: Mapping[str, str]) -> Node | None:
        return max(self.nodes(arguments), key=lambda one: one.gpus, default=None)

    @property
    def python(self) -> str:
        """The interpreter on its nodes that has dlperf, where none is named."""
        return sys.executable

    def there(self, folder: Path, arguments: Mapping[str, str]) -> Path:
        """Where a comparison's folder is where its rows run. folder: where it is here, absolute."""
        return folder

    def limit(self, arguments: Mapping[str, str]) -> int | None:
        """Minutes that a job may take, where its arguments say so in minutes."""
        return None

    def batch(self, asked: Batch, working: Path) -> str:
        """What is submitted, as text. working: the folder that the command was given in. Pure."""
        raise NotImplementedError

    def submit(self, path: Path, after: str, more: Sequence[str]) -> str:
        """Submit the file. after: a job that must be over before. more: words for a comparison that goes on. The job's
        id; RunError with what the engine says where it refuses."""
        raise NotImplementedError

    def states(self, jobs: Sequence[str]) -> dict[str, State] | None:
        """Of those that the engine still knows; None where it does not answer."""
        raise NotImplementedError

    def printed(self, job: str) -> dict[str, str]:
        """What a job has printed, by names of logs, where the submitting machine has to ask for it."""
        return {}

    def cancel(self, jobs: Sequence[str]) -> None:
        raise NotImplementedError
