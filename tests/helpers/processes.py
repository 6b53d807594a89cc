"""What tests ask of processes that a comparison started."""

import contextlib
import time
from pathlib import Path

from dlperf.launchers import Launcher


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.05)


def time_is_up_when(monkeypatch, condition):
    """In this process, a run's timeout comes when the condition holds, however busy the machine is."""

    def wait(self, process, seconds, tick):
        wait_for(lambda: process.poll() is not None or condition())
        return process.returncode is not None

    monkeypatch.setattr(Launcher, "wait", wait)


def alive(pid):
    """Whether a process runs; a zombie that init has not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def working_in(folder):
    """Command lines of the processes that work in a folder; other tests have theirs. A zombie works nowhere."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder.resolve()):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def left_behind(folder):
    """Of these, the ranks and what started them. The two hosts of tests/cluster share this machine's processes."""
    return [line for line in working_in(folder) if "dlperf.adapters" in line]
