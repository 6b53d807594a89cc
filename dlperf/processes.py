"""Work on many things at once, in processes that end with this one."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from typing import TypeVar

from dlperf.errors import ENDING, RunError, hold_signals, release_signals

Part = TypeVar("Part")
Made = TypeVar("Made")
#: processes at most: each takes memory
MOST = 8
PR_SET_PDEATHSIG = 1


def cpus() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def uncollected() -> Iterator[None]:
    """Looks for no garbage meanwhile: among thousands of records that takes a tenth of the time, and finds nothing."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def each(work: Callable[[Part], Made], parts: Sequence[Part], chunk: int = 1) -> Iterator[Made]:
    """What `work`, a function of a module, makes of each part, in their order; what it raises is raised here. A process
    takes half a second to start: of one part or on one CPU there is none. chunk: parts that a process is given at a
    time. RunError where a process is killed."""
    count = min(cpus(), MOST, len(parts))
    if count < 2:
        yield from map(work, parts)
        return
    before = {child.pid for child in active_children()}
    pool = ProcessPoolExecutor(count, get_context("spawn"), begin)
    try:
        yield from _sent(pool, work, parts, chunk)
    except BrokenProcessPool:
        why = "a process of dlperf was killed, perhaps for lack of memory (dmesg tells). Nothing was kept."
        raise RunError("killed", why) from None
    except BaseException:  # Ctrl-C, or nobody wants the rest: what is being made is not waited for
        for child in active_children():
            if child.pid not in before:
                child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _sent(pool: ProcessPoolExecutor, work: Callable[[Part], Made], parts: Sequence[Part], chunk: int) -> Iterator[Made]:
    """Processes start where Ctrl-C is blocked, which lasts until `begin`; the one that multiprocessing starts beside
    them would unblock it. Another thread of this process may get it, so it waits here, too."""
    resource_tracker.ensure_running()
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    hold_signals()
    try:
        return pool.map(work, parts, chunksize=chunk)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
        release_signals()


def begin() -> None:
    """Ctrl-C reaches all processes of a terminal: the one that started us tells, and ends us."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
