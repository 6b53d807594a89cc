"""Runs one script as a process group of its own, and says what came of it."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dlperf import events
from dlperf.schema import Failure

#: seconds between asking a process group to end and ending it
GRACE = 5.0


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
    """How a process group ended: `code` as Popen.returncode has it."""

    code: int
    timed_out: bool
    timeout: float
    machine_ran_out_of_memory: bool


def execute(folder: Path, timeout: float, tick: Callable[[], None]) -> Ended:
    """Run launch.sh as a process group of its own; the group is gone when this returns or raises."""
    kills = _oom_kills()
    with open(folder / "stdout.log", "wb") as out, open(folder / "stderr.log", "wb") as err:
        process = subprocess.Popen(
            ["sh", str(folder / "launch.sh")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        with _ending(process):
            timed_out = not _wait(process, timeout, tick)
    return Ended(process.returncode, timed_out, timeout, _oom_kills() > kills)


@contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens inside, no process of the group is left behind."""
    try:
        yield
    finally:
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        _signal_group(process, signal.SIGKILL)  # helpers that the worker left behind, too
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _wait(process: subprocess.Popen[bytes], timeout: float, tick: Callable[[], None]) -> bool:
    """Sleep until the process ends (True) or the time is over. Wakes once a second, for the display."""
    deadline = time.monotonic() + timeout
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


def _oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since the machine started."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def failure(ended: Ended, stream: events.Stream, folder: Path) -> Failure | None:
    """What the outside saw goes before what the worker wrote: a killed worker writes nothing."""
    lines = _last_lines(folder)
    if ended.timed_out:
        message = f"it did not end within {ended.timeout:g} s (--timeout) and was ended with its process group"
        return Failure("timeout", message, lines)
    told = stream.failure
    if ended.code < 0 and stream.failed is None:
        name = signal.Signals(-ended.code).name
        if ended.machine_ran_out_of_memory:
            return Failure("out_of_memory", f"the system ended it for want of memory ({name})", lines)
        return Failure("killed", f"it was ended by signal {-ended.code} ({name})", lines)
    if told is None and ended.code != 0:
        return Failure("crash", f"it ended with exit code {ended.code} after its last event", lines)
    return dataclasses.replace(told, lines=told.lines or lines) if told else None


def _last_lines(folder: Path, count: int = 15) -> tuple[str, ...]:
    """The end of what the framework printed: standard error, or standard output where that is empty."""
    for name in ("stderr.log", "stdout.log"):
        with suppress(OSError):
            lines = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
            if lines:
                return tuple(lines[-count:])
    return ()
