"""Executes a run's launch.sh, and leaves nothing of it behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlperf import launchers
from dlperf.docker import engine as engine_
from dlperf.launchers import Launcher


def prepare(folder: Path, job: Mapping[str, object], command: str) -> None:
    """A fresh folder for one run; what an interrupted attempt left is moved out of the way, not lost."""
    if folder.exists():
        earlier = sum(1 for _ in folder.parent.glob(folder.name + ".earlier*"))
        folder.rename(folder.with_name(f"{folder.name}.earlier{earlier}"))
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(job, indent=1), encoding="utf-8")
    (folder / "launch.sh").write_text(command, encoding="utf-8")


@dataclass(frozen=True)
class Ended:
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


def execute(
    folder: Path, timeout: float, tick: Callable[[], None], launcher: Launcher | None = None, engine: str = ""
) -> Ended:
    """Run launch.sh by its launcher (default: local); nothing of it is left when this returns or raises.

    engine: of the containers in which it runs, if it does.
    """
    launcher = launcher or launchers.find("local")
    kills = _oom_kills()
    process = launcher.start(folder)
    try:
        timed_out = not launcher.wait(process, timeout, tick)
    except Enough:
        launcher.stop(process)
        return Ended(0, False, timeout, False)
    finally:
        launcher.stop(process)
        if engine:
            engine_.end(engine, folder)
    return Ended(process.returncode, timed_out, timeout, _oom_kills() > kills, engine)


def _oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since the machine started."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0
