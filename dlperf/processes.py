"""Work on many things at once, in processes that end with this one."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from dlperf.errors import ENDING, RunError

Part = TypeVar("Part")
Made = TypeVar("Made")
#: processes at most: each takes memory
MOST = 8
PR_SET_PDEATHSIG = 1


def cpus() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def each(work: Callable[[Part], Made], parts: Sequence[Part], chunk: int = 1) -> Iterator[Made]:
    """What `work`, a function of a module, makes of each part, in their order; what it raises is raised here. A process
    takes half a second to start: of one part or on one CPU there is none. chunk: parts that a process is given at a
    time. RunError where a process is killed."""
    count = min(cpus(), MOST, len(parts))
    if count < 2:
        yield from map(work, parts)
        return
    pool = ProcessPoolExecutor(count, get_context("spawn"), _begin)
    try:
        yield from pool.map(work, parts, chunksize=chunk)
    except BrokenProcessPool:
        why = "a process of dlperf was killed, perhaps for lack of memory (dmesg tells). Nothing was kept."
        raise RunError("killed", why) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """Ctrl-C reaches all processes of a terminal: the one that started us tells, and ends us."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
