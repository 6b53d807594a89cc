"""Many logs: read one after the other, or where there is much to read on all processors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import NamedTuple

from dlperf.errors import Problem, UsageError, shown
from dlperf.importlogs.formats import formats
from dlperf.importlogs.read import Read, read
from dlperf.importlogs.recognise import Refused

#: bytes from which processes of their own are worth their start
MUCH = 2**24


class File(NamedTuple):
    """label: how figures and messages name it. why: it is not read, if so."""

    path: Path
    label: str
    why: str = ""


def every(files: Sequence[File], named: str | None, given: Mapping[str, str]) -> Iterator[tuple[File, Read | str]]:
    """Each file and what was read, or why it was not."""
    forms = formats()
    for file, found in zip(files, _found(files, partial(_one, named=named, given=given)), strict=True):
        yield file, found if isinstance(found, str) else Read(forms[found[0]], *found[1:])


#: a Read with its format's name for its format, which has functions: no other process could be given those
Found = tuple  # type: ignore[type-arg]


def _one(file: File, named: str | None, given: Mapping[str, str]) -> Found | str:
    if file.why:
        return file.why
    try:
        found = read(file.path, shown(file.label), formats(), named, given)
    except Refused as refused:
        return str(refused)
    return found.form.name, found.size, found.figures, found.values


def _found(files: Sequence[File], one: partial[Found | str]) -> Iterable[Found | str]:
    processors = len(os.sched_getaffinity(0))
    if processors < 2 or len(files) < 2 or sum(map(_bytes, files)) < MUCH:
        return map(one, files)
    return _on_all(files, one, processors)


def _on_all(files: Sequence[File], one: partial[Found | str], processors: int) -> Iterator[Found | str]:
    before = {child.pid for child in active_children()}
    pool = ProcessPoolExecutor(min(processors, 8), get_context("spawn"))
    try:
        yield from _sent(pool, one, files, max(1, min(16, len(files) // processors // 4)))
    except BrokenProcessPool:
        raise UsageError([Problem("PATH", "", says=KILLED)]) from None
    except BaseException:
        for child in active_children():
            if child.pid not in before:
                child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _sent(
    pool: ProcessPoolExecutor, one: partial[Found | str], files: Sequence[File], at_once: int
) -> Iterator[Found | str]:
    """Ctrl-C is for the command alone: its processes start where it is blocked, and keep that."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.map(one, files, chunksize=at_once)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


KILLED = "a process that read logs was killed, as where memory is short. Import fewer or smaller logs at once."


def _bytes(file: File) -> int:
    try:
        return 0 if file.why else file.path.stat().st_size
    except OSError:
        return 0
