"""What all preparations of input share: the folder that they make, whole or not at all, and the progress they show."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf.errors import Problem, RunError, UsageError
from dlperf.models.prepared import path

if TYPE_CHECKING:
    from numpy.typing import NDArray

Advance = Callable[[int], None]


def output_problems(output: Path, flag: str, source: Path) -> list[Problem]:
    """Why a folder cannot be made there; flag, source: what it is made from."""
    if output.exists() and not output.is_dir():
        return [Problem("--output", output, says="this is a file. Name a folder.")]
    if output.is_dir() and any(output.iterdir()):
        return [Problem("--output", output, says="this folder is not empty. Remove it, or choose another.")]
    if os.path.islink(os.path.realpath(output)):
        return [Problem("--output", output, says="this link leads to itself. Remove it, or choose another folder.")]
    if Path(os.path.realpath(output)).is_relative_to(os.path.realpath(source)):
        # What is made would be taken for a source the next time.
        return [Problem("--output", output, says=f"it is inside {flag}. Choose a folder outside.")]
    parent = next(folder for folder in output.absolute().parents if folder.exists())
    if not parent.is_dir():
        return [Problem("--output", output, says=f"{parent} is not a folder.")]
    if not os.access(parent, os.W_OK | os.X_OK):
        return [Problem("--output", output, says=f"you do not have permission to write to {parent}.")]
    return []


@contextmanager
def aside(output: Path) -> Iterator[Path]:
    """An empty folder, in a temporary one beside the output, that becomes the output in the end; nothing is kept if
    something is raised. UsageError where none can be made, RunError when files cannot be written."""
    final = Path(os.path.realpath(output))
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=f".{final.name}.", dir=final.parent)
    except OSError as error:
        raise UsageError([Problem("--output", output, says=f"cannot be made: {error.strerror or error}.")]) from None
    try:
        with temporary:
            data = Path(temporary.name, "data")
            data.mkdir()
            yield data
            data.rename(final)  # over an empty folder at most
    except OSError as error:
        where = error.filename2 or error.filename or output
        raise RunError("files", f"{where}: {error.strerror or error}. Nothing was kept.") from None


@contextmanager
def stage(name: str, total: int, quiet: bool) -> Iterator[Advance]:
    """Shows a stage of `total` units: a bar on a terminal, else a line at times. Yields what counts units."""
    if quiet:
        yield lambda amount: None
    elif sys.stderr.isatty():
        with _bar(name, total) as advance:
            yield _every(0.1, advance)
    else:
        begin = time.monotonic()
        yield _every(10, lambda done: print(f"{name}: {done / total:.0%}", file=sys.stderr, flush=True))
        print(f"{name}: done in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done: progress.update(task, completed=done)
        progress.update(task, completed=total)


def _every(seconds: float, show: Callable[[int], None]) -> Advance:
    """Adds up amounts, and shows the sum no more often than that."""
    done, shown = 0, time.monotonic()

    def advance(amount: int) -> None:
        nonlocal done, shown
        done += amount
        if time.monotonic() - shown >= seconds:
            shown = time.monotonic()
            show(done)

    return advance


class Growing:
    """An array on disk that rows are added to, whose number is known in the end. `digest` is the SHA-256 of its bytes.

    Not a memory map: on a full disk that would kill the process, where a write tells.
    """

    def __init__(self, file: str, dtype: str, shape: tuple[int, ...] = ()) -> None:
        """dtype: a name of NumPy's. shape: of a row."""
        self.rows, self._dtype, self._shape = 0, dtype, shape
        self._digest = hashlib.sha256()
        self._stream = open(file, "wb")  # noqa: SIM115 - closed by __exit__
        self._header()

    def _header(self) -> None:
        from numpy import dtype
        from numpy.lib.format import dtype_to_descr, write_array_header_1_0

        # NumPy leaves room in it for any number of rows
        descr, shape = dtype_to_descr(dtype(self._dtype)), (self.rows, *self._shape)
        write_array_header_1_0(self._stream, {"descr": descr, "fortran_order": False, "shape": shape})

    def add(self, rows: NDArray[Any]) -> None:
        content = rows.astype(self._dtype).tobytes()
        self._stream.write(content)
        self._digest.update(content)
        self.rows += len(rows)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def __enter__(self) -> Growing:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._stream:
            self._stream.seek(0)
            self._header()


@contextmanager
def growing(
    folder: Path, fields: Mapping[str, tuple[tuple[str, ...], str]], sizes: Mapping[str, int]
) -> Iterator[dict[str, Growing]]:
    """All arrays of a folder, by name. fields: name -> axes besides that of rows, and dtype. sizes: of axes."""
    with ExitStack() as stack:
        made = {}
        for field, (axes, dtype) in fields.items():
            made[field] = stack.enter_context(Growing(path(folder, field), dtype, tuple(sizes[axis] for axis in axes)))
        yield made


def digest(arrays: Mapping[str, Growing]) -> str:
    """The SHA-256 of their SHA-256s."""
    return hashlib.sha256(b"".join(bytes.fromhex(array.digest) for array in arrays.values())).hexdigest()
