"""The lock of an environment, and how one is deleted.

Whoever builds an environment, and every uv or pip that still writes to it, holds a file lock; so what lies in an
unlocked building folder is left over from a builder that died.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from dlperf.envs.target import BUILDING, building_folder


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


@contextmanager
def guard(folder: Path, busy: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of an environment. While another holds it, `busy` is called, which raises or waits a little.

    The file descriptor goes to every child that writes to the environment, so that the lock outlives a killed builder.
    """
    held = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not _locked(held):
            busy()
        yield held
    finally:
        os.close(held)


def _locked(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(folder: Path) -> bool:
    """Whether some process makes or removes the environment now."""
    try:
        probe = os.open(_lock_file(folder), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False


def discard(folder: Path) -> None:
    """Delete an environment and what its dead builders left. The caller holds its lock.

    Renamed first: an environment that is deleted halfway must not look whole.
    """
    leftover = building_folder(folder)
    shutil.rmtree(leftover, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.rename(folder, leftover)
    if leftover.exists():
        shutil.rmtree(leftover)


def sweep(root: Path) -> None:
    """Delete what dead builders of other environments left."""
    for leftover in root.glob(BUILDING + "*"):
        with suppress(BlockingIOError), guard(root / leftover.name.removeprefix(BUILDING), busy=_give_up):
            shutil.rmtree(leftover, ignore_errors=True)


def _give_up() -> NoReturn:
    raise BlockingIOError


def size_of(folder: Path) -> tuple[int, int]:
    """Bytes on disk, and how many of them are shared with files outside, as with uv's cache."""
    found: dict[tuple[int, int], tuple[int, int]] = {}  # a file: its bytes, and its links that lie outside
    for parent, _, names in os.walk(folder):
        for name in names:
            file = os.lstat(os.path.join(parent, name))
            _, outside = found.get((file.st_dev, file.st_ino), (0, file.st_nlink))
            found[file.st_dev, file.st_ino] = file.st_blocks * 512, outside - 1
    return sum(size for size, _ in found.values()), sum(size for size, outside in found.values() if outside)
