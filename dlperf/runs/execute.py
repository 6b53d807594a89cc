"""One run: a script is executed in a folder of its own, nothing of it is left behind, and what it wrote is read."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from dlperf.docker import engine as engine_
from dlperf.launchers import Launcher
from dlperf.runs.events import Stream
from dlperf.schema import Failure


@dataclass(frozen=True)
class Exit:
    """How a process group ended: `code` as Popen.returncode has it. engine: of its containers, if it had some."""

    code: int
    timed_out: bool
    timeout: float
    machine_ran_out_of_memory: bool
    engine: str = ""

    @property
    def signal(self) -> int:
        """What ended it, or 0. A container's client says it with an exit code."""
        in_container = self.engine and self.code > 128 and self.code - 128 in set(signal.Signals)
        return -self.code if self.code < 0 else self.code - 128 if in_container else 0


class Enough(Exception):
    """Raised by `tick`: the run has done what it is for, and is to be ended."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run. started: as ISO 8601 has it, in UTC. seconds: until all its processes had ended."""

    started: str
    seconds: float
    stream: Stream
    failure: Failure | None


def execute(
    folder: Path,
    request: Mapping[str, object],
    script: str,
    read: Callable[[], Stream],
    failure: Callable[[Exit, Stream, Path, Launcher], Failure | None],
    timeout: float,
    tick: Callable[[], None],
    launcher: Launcher,
    engine: str = "",
) -> Outcome:
    """Run a script in a new folder, and read what it left there; an empty one is not run, and takes no time.

    request: the content of job.json. tick: called once a second; it may raise Enough. engine: of the containers in
    which it runs, if it does.
    """
    _prepare(folder, request, script)
    started, began = now(), time.monotonic()
    ended = run_script(folder, timeout, tick, launcher, engine) if script else Exit(0, False, timeout, False)
    seconds = time.monotonic() - began if script else 0.0
    stream = read()
    return Outcome(started, seconds, stream, failure(ended, stream, folder, launcher))


def _prepare(folder: Path, job: Mapping[str, object], command: str) -> None:
    """A fresh folder for one run; what an interrupted attempt left is moved out of the way, not lost."""
    if os.path.lexists(folder):
        aside = (folder.with_name(f"{folder.name}.earlier{number}") for number in count())
        folder.rename(next(place for place in aside if not os.path.lexists(place)))
    folder.mkdir(parents=True)
    if not command:
        return
    (folder / "job.json").write_text(json.dumps(job, indent=1), encoding="utf-8")
    (folder / "launch.sh").write_text(command, encoding="utf-8")


def run_script(folder: Path, timeout: float, tick: Callable[[], None], launcher: Launcher, engine: str = "") -> Exit:
    """Run launch.sh by its launcher; nothing of it is left when this returns or raises."""
    kills = _oom_kills()
    process = launcher.start(folder)
    try:
        timed_out = not launcher.wait(process, timeout, tick)
    except Enough:
        launcher.stop(process)
        return Exit(0, False, timeout, False)
    finally:
        launcher.stop(process)
        if engine:
            engine_.end(engine, folder)
    return Exit(process.returncode, timed_out, timeout, _oom_kills() > kills, engine)


def _oom_kills() -> int:
    """How many processes the kernel has ended because memory ran out since the machine started."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
