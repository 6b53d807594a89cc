"""What tests ask of processes that a comparison started."""

import contextlib
import time
from pathlib import Path


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.05)


def left_behind(folder):
    """Command lines of the ranks, and of what started them, that work in a folder. The two hosts of tests/cluster share
    this machine's processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if (process / "cwd").resolve().is_relative_to(folder) and "dlperf.adapters" in line:
                found.append(line)
    return found
