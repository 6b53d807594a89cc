"""Where figures that others published lie, and reads them: folders with a figures.csv, and a source.toml where one says
what was measured and how."""

from __future__ import annotations

import csv
import io
import os
import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from dlperf.errors import Problem, UsageError, did_you_mean, reason
from dlperf.figures.published import Source, Told, read

FIGURES, TOLD = "figures.csv", "source.toml"
DLPERF = "dlperf-v1.0"
#: no source is larger
BYTES = 2**26


def published() -> Path:
    """The folder of all that dlperf has, in a checkout and where it is installed."""
    return Path(str(resources.files("dlperf.report"))) / "published"


def in_checkout() -> bool:
    return (published().parents[1] / "setup.cfg").is_file()


def own(place: Path) -> bool:
    """Whether a folder is one of those that dlperf has."""
    return place.resolve().parent == published().resolve()


def names() -> list[str]:
    return sorted(path.parent.name for path in published().glob(f"*/{FIGURES}"))


def run(name: str) -> Path:
    """What a command line calls a run: its path, or the name of one of dlperf's own published reports, which a checkout
    has."""
    from dlperf.comparison import store

    place = published() / name
    known = Path(name).name == name and not os.path.lexists(name) and (place / store.RESULTS).is_file()
    return place if known else Path(name)


def holds(place: Path) -> bool:
    """Whether a source can be read from here: a folder of one, or its figures.csv."""
    return (place / FIGURES).is_file() or (place.name == FIGURES and place.is_file())


def find(name: str, field: str) -> Path:
    """The folder of a source, by its id or its path. UsageError, which lists the ids, where there is none."""
    if name in (known := names()):
        return published() / name
    if holds(place := Path(name)):
        return place.parent if place.is_file() else place
    says = f"no such source, and no folder with {FIGURES}. {did_you_mean(name, known)} Sources: {', '.join(known)}."
    raise UsageError([Problem(field, name, says=" ".join(says.split()))])


def dlperf_v1() -> Source:
    """DLPerf's report of 2020, whose tables the model of scaling and the site show again."""
    return read_source(published() / DLPERF)


def read_source(place: Path) -> Source:
    """UsageError, which names the file and the line or field, where it is none."""
    folder = (place.parent if place.is_file() else place).resolve()
    text = _text(folder / FIGURES)
    try:
        figures = tuple(read(io.StringIO(text, newline="")))
    except (ValueError, csv.Error) as error:
        raise UsageError([Problem(str(place / FIGURES), "", says=f"{error}.")]) from None
    if not (path := folder / TOLD).is_file():
        return Source(folder.name, Told(), figures, {FIGURES: text})
    told = _text(path)
    return Source(folder.name, _told(told, path), figures, {FIGURES: text, TOLD: told})


def _told(text: str, path: Path) -> Told:
    try:
        data: Any = tomllib.loads(text)
        return msgspec.convert(data, Told)
    except (ValueError, RecursionError) as error:  # of tomllib and of msgspec
        raise UsageError([Problem(str(path), "", says=f"not as a source has it ({reason(error)}).")]) from None


def _text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            held = file.read(BYTES + 1)
        if len(held) > BYTES:
            raise UsageError([Problem(str(path), "", says=f"it has more than {BYTES:,} bytes. Name a smaller one.")])
        return held.decode("utf-8")
    except OSError as error:
        raise UsageError([Problem(str(path), "", says=f"cannot be read: {error.strerror}.")]) from None
    except UnicodeDecodeError as error:
        raise UsageError([Problem(str(path), "", says=f"is not UTF-8 (byte {error.start}).")]) from None


def tree(repository: str, commit: str) -> str:
    """On GitHub; nothing where these are no repository and commit."""
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", repository, re.ASCII):
        return ""
    return f"https://github.com/{repository}" + (f"/tree/{commit}" if _is_commit(commit) else "")


def _is_commit(commit: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{7,40}", commit))


def link(told: Told, path: str, lines: Sequence[int]) -> str:
    """A link to lines of a file at the source's commit, or at that of `owner/name@commit:path`; else nothing."""
    other = re.fullmatch(r"([^@:]+/[^@:]+)@([0-9a-f]{7,40}):(.+)", path)
    repository, commit, path = other.groups() if other else (told.repository, told.commit, path)
    at_commit = tree(repository, commit)
    if not (path and _is_commit(commit) and at_commit):
        return ""
    plain = "?plain=1" if lines and path.endswith((".md", ".csv")) else ""
    first, last = (min(lines), max(lines)) if lines else (0, 0)
    at = f"#L{first}" + (f"-L{last}" if last > first else "") if lines else ""
    return f"{at_commit.replace('/tree/', '/blob/')}/{quote(path)}{plain}{at}"
