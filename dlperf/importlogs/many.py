"""Many logs: read one after the other, or where there is much to read on all processors."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dlperf import processes
from dlperf.errors import shown
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
    """Each file and what was read, or why it was not. Of logs of the same bytes the first counts: runs that are copies
    of one are one run."""
    forms = formats()
    sizes = Counter(_bytes(file) for file in files)
    first: dict[str, str] = {}
    for file, found in zip(files, _found(files, partial(_one, named=named, given=given)), strict=True):
        if isinstance(found, str):
            yield file, found
        elif sizes[_bytes(file)] > 1 and (same := first.setdefault(_digest(file), file.label)) != file.label:
            yield file, f"it is the same log as {shown(same)}, byte for byte, which counts once"
        else:
            yield file, Read(forms[found[0]], *found[1:])


def _digest(file: File) -> str:
    """Its label where it can no longer be read."""
    try:
        with open(file.path, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return file.label


#: a Read with its format's name for its format, which has functions: no other process could be given those
Found = tuple  # type: ignore[type-arg]


def _one(file: File, named: str | None, given: Mapping[str, str]) -> Found | str:
    if file.why:
        return file.why
    try:
        with processes.uncollected():
            found = read(file.path, shown(file.label), formats(), named, given)
    except Refused as refused:
        return str(refused)
    return found.form.name, found.size, found.figures, found.values


def _found(files: Sequence[File], one: partial[Found | str]) -> Iterable[Found | str]:
    if sum(map(_bytes, files)) < MUCH:
        return map(one, files)
    return processes.each(one, files, chunk=max(1, min(16, len(files) // processes.cpus() // 4)))


def _bytes(file: File) -> int:
    try:
        return 0 if file.why else file.path.stat().st_size
    except OSError:
        return 0
