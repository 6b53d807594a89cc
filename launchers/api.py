"""What a launcher is, and what all of them share.

A launcher turns a `Launch` into the text of a shell script, purely. `sh launch.sh` in the run's folder starts all ranks
and ends when they have ended, with an exit code that is not 0 if one has failed; when it gets SIGTERM, it leaves
nothing running anywhere. `sh launch.sh rank` is what the engine runs for each rank: it sets the variables and becomes
the worker. So every run can be repeated from its script, as `dlperf.repeat` does, and `start`, `wait` and `stop` are
the same for all engines; in a folder that has a run it becomes `dlperf repeat`, or names it where that is not on PATH.
With a container, `sh launch.sh inside` is what runs in it.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from dlperf.adapters.variables import SET, kept
from dlperf.launchers import containers
from dlperf.launchers import keeper as keeper_
from dlperf.launchers.containers import Container
from dlperf.shell import quote

#: glibc gives large blocks back to the system at once and takes them again in the next step; keeping them made
#: PyTorch's ResNet-50 step 17 % faster on two cores. Every CPU worker gets the same settings.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "67108864",
}
#: qemu-user's program for x86-64
EMULATOR = "qemu-x86_64-static"
#: variables that choose kernels for the host's CPU, which an emulated one may lack
OF_THE_HOST = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
#: keys of --launcher-arg by which an engine runs ranks in an image
IMAGES = {"image", "container-image"}


@dataclass(frozen=True)
class Launch:
    """What a launcher needs to know of one run.

    name: a file name, unique among the runs of a comparison. code: the bundle, relative to the run's folder, which has
    job.json. threads: of each rank. variables: of the framework's environment. hosts: of the first `nnodes` nodes;
    empty where the engine finds them. arguments: --launcher-arg. instead: what each rank runs in place of the worker.
    container: what the ranks run in, if they do. emulated: the CPU that qemu-user emulates for the worker. step:
    whether a job of the engine's that is there holds it. servers: parameter servers beside the ranks, on all nodes.
    bandwidth, latency: between nodes that are emulated, in Gb/s and ms; 0 for whatever it is.
    """

    title: str
    name: str
    python: Path
    code: Path
    device: str
    threads: int
    variables: Mapping[str, str]
    nnodes: int = 1
    nproc_per_node: int = 1
    hosts: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""
    container: Container | None = None
    emulated: str = ""
    step: bool = False
    servers: int = 0
    bandwidth: float = 0.0
    latency: float = 0.0

    @property
    def world_size(self) -> int:
        return self.nnodes * self.nproc_per_node

    @property
    def of_node(self) -> str:
        """What `dlperf.adapters.spawn` starts on each node: "2", or with a server "2+1"."""
        return f"{self.nproc_per_node}" + (f"+{self.servers // self.nnodes}" if self.servers else "")


class Ended(NamedTuple):
    """The rank, or with this role the server, that an engine says ended first by a signal: where, and how in words."""

    rank: int
    host: str
    how: str
    role: str = "rank"


#: descriptors of locks that outlive this process for as long as something that it ran does
HELD: list[int] = []
#: keepers that were started, and have not been stopped
KEEPERS: set[int] = set()


class Kept(subprocess.Popen[bytes]):
    """What a launcher started, under a keeper that ends with it. pipe: see dlperf.launchers.keeper; it is closed when
    this process ends, however that is. If the keeper is killed, this process stands in for it."""

    def __init__(self, command: Sequence[str], pipe: int, **given: Any):
        self._pipe = pipe
        self._others = keeper_.descendants()
        keeper_.adopt()
        super().__init__(command, **given)
        KEEPERS.add(self.pid)

    def let_go(self) -> None:
        """Ask for the end."""
        if self._pipe >= 0:
            pipe, self._pipe = self._pipe, -1
            with suppress(BrokenPipeError):
                os.write(pipe, b"x")
            os.close(pipe)

    def end_orphans(self) -> None:
        """After its end: of what a keeper that was killed has left, nothing stays."""
        KEEPERS.discard(self.pid)
        if self.returncode == -signal.SIGKILL:  # it, or its command, whose end is its own
            keeper_.end_orphans({*self._others, *KEEPERS})


class Node(NamedTuple):
    """What a node of an engine's has: GPUs, and CPU threads that ranks may use."""

    gpus: int
    threads: int


class Launcher:
    """An engine that places ranks. Subclasses say what they take, and write the script.

    arguments: key of --launcher-arg -> what it is. required: those that must be given. programs: program that must be
    on PATH -> the Debian package, or other place, that has it. in_environment: whether its program comes with some
    frameworks' environments instead; it starts only the adapters whose adapter.toml names it. many_nodes: whether it
    reaches other machines; needs_hosts: whether it must be told which. starts_servers:
    whether it starts parameter servers beside ranks. emulates: whether its nodes are all on this machine, with links
    whose bandwidth and latency may be asked for. allocations: what one of its jobs may hold, the
    usual first; none for an engine without jobs. no_containers: why its ranks can't run in
    containers; empty if they can. In what the engine printed, `ended` finds the first rank that a signal killed, with
    groups rank, host, how; `ended_inside` the first whose container ended that way, with groups rank, host (which may
    be empty) and code; `gone` the line that says, as group `said`, which node it lost; `stopped` the one by which the
    engine took away what the ranks ran in; and `cause` the one that says why the ranks could not be started or kept.
    """

    name = ""
    about = ""
    arguments: ClassVar[Mapping[str, str]] = {}
    required: tuple[str, ...] = ()
    programs: ClassVar[Mapping[str, str]] = {}
    in_environment = False
    many_nodes = False
    needs_hosts = False
    starts_servers = False
    emulates = False
    allocations: tuple[str, ...] = ()
    no_containers = ""
    ended: re.Pattern[str] | None = None
    gone: re.Pattern[str] | None = None
    stopped: re.Pattern[str] | None = None
    ended_inside: re.Pattern[str] | None = None
    cause: re.Pattern[str] = re.compile(
        r"^(ssh: .*|docker: .*|.*Permission denied \(.*|Host key verification failed.*|.*not enough slots.*)$",
        re.MULTILINE,
    )

    def script(self, launch: Launch) -> str:
        """The text of launch.sh. Pure."""
        raise NotImplementedError

    def wrong(self, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Which of its arguments have a value that cannot be, and what is allowed."""
        yield from ()

    def missing(self) -> str:
        """Which of its programs are not on PATH, and where to get them; empty if none."""
        programs = [program for program in self.programs if not shutil.which(program)]
        if not programs:
            return ""
        are, them = ("is", "it") if len(programs) == 1 else ("are", "them")
        where = "; ".join(dict.fromkeys(self.programs[program] for program in programs))
        return f"{', '.join(programs)} {are} not on PATH. Install {them} ({where})"

    def elsewhere(self, nnodes: int, hosts: Sequence[str]) -> bool:
        """Whether ranks run on other machines than this one: those that are named, or that the engine finds."""
        return bool(hosts) or nnodes > 1 or (self.many_nodes and not self.needs_hosts)

    def node(self, hosts: Sequence[str], arguments: Mapping[str, str]) -> Node | None:
        """What nodes have, asked of the first host with the interpreter that runs this; None where nobody answers."""
        if not hosts:
            return None
        ask = [*self.rsh(arguments), hosts[0], f"{command(sys.executable)} -m dlperf.machine"]
        try:
            told = json.loads(subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True).stdout)
            return Node(len(told.get("gpus", ())), int(told["usable_threads"]))
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
            return None

    def nodes_here(self, nnodes: int) -> int:
        """How many of a run's nodes share a machine."""
        return nnodes if self.emulates else 1

    def rsh(self, arguments: Mapping[str, str]) -> list[str]:
        """The command that runs another on a host, as ssh does."""
        return [*shlex.split(arguments.get("rsh", "ssh")), *(["-o", "BatchMode=yes"] if "rsh" not in arguments else [])]

    def start(self, folder: Path, variables: Mapping[str, str] | None = None) -> Kept:
        """Run launch.sh in a session of its own, with its output in stdout.log and stderr.log, under a keeper."""
        pipe, ours = os.pipe()
        try:
            with open(folder / "stdout.log", "wb") as out, open(folder / "stderr.log", "wb") as err:
                held = (pipe, *HELD)
                keeper = [sys.executable, "-IS", keeper_.__file__, ",".join(map(str, held)), str(self.grace)]
                return Kept(
                    [*keeper, "sh", os.path.abspath(folder / "launch.sh")],  # a name may begin with a dash
                    ours,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    pass_fds=held,
                    env={**os.environ, **variables} if variables else None,
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(pipe)

    def wait(self, process: Kept, seconds: float, tick: Callable[[], None]) -> bool:
        """Sleep until the process ends (True) or the time is over. Calls `tick` once a second."""
        deadline = time.monotonic() + seconds
        descriptor = os.pidfd_open(process.pid)
        try:
            while (left := deadline - time.monotonic()) > 0:
                if select.select([descriptor], [], [], min(left, 1.0))[0]:
                    process.wait()
                    return True
                tick()
            return False
        finally:
            os.close(descriptor)

    #: seconds between asking a run's processes to end and ending them
    grace = 5.0

    def stop(self, process: Kept) -> None:
        """Nothing of the run is left when this returns, whether it had ended or not; nor soon after it was
        interrupted."""
        process.let_go()
        process.wait()
        process.end_orphans()

    def first_ended(self, printed: str) -> Ended | None:
        """The first rank that ended by a signal, by what the engine printed."""
        found = (self.ended.search(printed) if self.ended else None) or SPAWNED.search(printed)
        if found:
            role = found.groupdict().get("role") or "rank"
            return Ended(int(found["rank"]), found["host"], " ".join(found["how"].split()), role)
        found = self.ended_inside.search(printed) if self.ended_inside else None
        return Ended(int(found["rank"]), found["host"], how_ended(int(found["code"]))) if found else None


#: what dlperf.adapters.spawn prints of the process that ended first
SPAWNED = re.compile(
    r"^(?P<role>rank|server) (?P<rank>\d+) on (?P<host>\S+) was (?P<how>ended by signal .*)$", re.MULTILINE
)


#: exit codes by which shells and containers say that a signal ended what they ran, without those that engines send
BY_SIGNAL = {128 + number: number for number in (4, 6, 7, 8, 9, 11)}


def how_ended(code: int) -> str:
    """Of a code in BY_SIGNAL, in words."""
    return f"its container was ended by signal {BY_SIGNAL[code]} ({signal.Signals(BY_SIGNAL[code]).name})"


# The script


def worker(launch: Launch, variables: Mapping[str, str], raw: Mapping[str, str] | None = None) -> str:
    """The command that becomes one rank: `env NAME=VALUE ... python -m dlperf.adapters.worker job.json .`

    raw: variables whose values are for the shell to expand.
    """
    here = 'cd "$(dirname "$0")" &&\n'
    if launch.instead:
        return f"{here}{launch.instead}\n"
    values = {
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(launch.threads),
        **(KEEP_MEMORY if launch.device == "cpu" else {}),
        **launch.variables,
        **variables,
    }
    in_image = launch.container or IMAGES & launch.arguments.keys()  # whose variables are the image's
    if not (in_image or launch.emulated):  # an emulated worker cannot start itself again
        values[SET] = " ".join(name for name in [*values, *(raw or {})] if not kept(name))
    words = [f'PYTHONPATH="$PWD"/{quote(launch.code)}']
    words += [f"{name}={_value(name, value)}" for name, value in values.items()]
    words += [f"{name}={value}" for name, value in (raw or {}).items()]
    settings = " \\\n".join(f"  {word}" for word in words)
    python, unset = command(launch.python), ""
    if launch.emulated:
        python = command(EMULATOR, "-cpu", launch.emulated, launch.python)
        unset = "".join(f" -u {name}" for name in OF_THE_HOST)
    return f"{here}exec env{unset} \\\n{settings} \\\n  {python} -m dlperf.adapters.worker job.json .\n"


def _value(name: str, value: str) -> str:
    """A variable's value for the shell; the folders of libraries go before those that the user has set."""
    return quote(value) + ("${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" if name == "LD_LIBRARY_PATH" else "")


def single(launch: Launch) -> str:
    """The script of one process on this machine."""
    if launch.container:
        return several(launch, "", worker(launch, {}))
    return f"#!/bin/sh\n{comment(launch.title)}{ONCE}{worker(launch, {})}"


def several(
    launch: Launch,
    rank: str,
    start: str,
    head: str = "",
    others: Mapping[str, str] | None = None,
    contained: str = "",
    variables: Sequence[str] = (),
) -> str:
    """The script of several ranks: `start` starts them all, `rank` becomes one of them.

    head: comments that must stand first. others: further parts, by the argument that chooses them. contained: the part
    that runs in a container, if the launch has one; all ranks in the same one if empty. variables: names of those that
    the engine sets for that part.
    """
    parts = {"rank": rank, **(others or {})}
    if launch.container and contained:
        parts["inside"] = parts[contained]
        parts[contained] = HERE + _container(launch, 'inside "$2"' if contained == "node" else "inside", variables)
    elif launch.container:
        parts["inside"] = start if start.startswith("cd ") else HERE + start
        start = _container(launch, "inside")
    text = "".join(f"{name})\n{body}exit\n;;\n" for name, body in parts.items() if body)
    head = f"#!/bin/sh\n{head}{comment(launch.title)}"
    met = f"rank*.json {'server*.json ' if launch.servers else ''}versions*.json"
    return f'{head}case "$1" in\n{text}esac\n{ONCE}{HERE}rm -f {met}\n{start}'


BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def comment(text: str, mark: str = "#") -> str:
    """A line of a script that does nothing, or that only an engine reads; a text never begins another line."""
    return f"{mark} {BREAKS.sub(' ', text)}\n"


HERE = 'cd "$(dirname "$0")" || exit\n'
#: what a run has told is not written over
ONCE = """\
if [ -e "$(dirname "$0")/events.rank0.jsonl" ]; then
command -v dlperf >/dev/null && exec dlperf repeat "$(dirname "$0")"
echo "This run was made. Again, in a new folder: python -m dlperf.repeat '$(dirname "$0")'" >&2
exit 1
fi
"""


def _container(launch: Launch, part: str, variables: Sequence[str] | None = None) -> str:
    """Shell commands that become a container in which launch.sh runs a part. variables: None for all ranks in one."""
    assert launch.container is not None
    root = f"$(cd {quote(launch.code.parent)} && pwd)"
    inside = f'sh "$PWD"/launch.sh {part}'
    return containers.script(launch.container, root, inside, variables or (), apart=variables is not None)


def command(*words: object) -> str:
    """Words of a command, quoted, one line."""
    return " ".join(quote(word) for word in words)


def extra(launch: Launch) -> list[str]:
    """The words of the argument that goes to the engine as it is."""
    return shlex.split(launch.arguments.get("extra", ""))
