"""What is audited, read from files: figures.csv, plain tables, the folder of a published source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from dlperf.audit import wide
from dlperf.audit.cells import Cell, Subject, cell
from dlperf.errors import Problem, UsageError, did_you_mean
from dlperf.figures import published

#: where published sources are: below the working folder, or else in the checkout that dlperf is run from
_BELOW = Path("report", "published")
PUBLISHED = _BELOW if _BELOW.is_dir() else Path(__file__).parents[2] / _BELOW
FIGURES, SOURCE = "figures.csv", "source.toml"
#: bytes of a file that is read
MOST = 2**27


def sources(folder: Path = PUBLISHED) -> list[str]:
    """The ids of the published sources, by name."""
    return sorted(path.parent.name for path in folder.glob(f"*/{FIGURES}"))


def unknown(named: str) -> UsageError:
    known = sources()
    step = did_you_mean(named, known)
    allowed = f"a file, a comparison's folder, or one of {', '.join(known)}" if known else "a file or a folder"
    return UsageError([Problem("SOURCE", named, allowed, step)])


def folder(place: Path) -> Subject:
    """Of a published source."""
    made = file(place / FIGURES, place.name)
    told = place / SOURCE
    if not told.exists():
        return made
    try:
        source = tomllib.loads(told.read_text(encoding="utf-8"))
        labels = {str(one["id"]): str(one.get("row", "")) for one in source.get("table", ())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError([Problem(str(told), "", says=f"cannot be read: {error}.")]) from None
    return Subject(made.name, made.cells, labels=labels)


def file(path: Path, name: str = "") -> Subject:
    """Of a figures.csv, or of a plain table in CSV or Markdown. UsageError that names file, line and column."""
    name = name or path.name
    lines = _lines(path)
    try:
        if path.suffix.lower() not in (".md", ".markdown") and is_figures(lines):
            sizes = "devices" not in lines[0].lower()
            found = published.numbered(lines, partial=True)
            cells = [
                of(wide.completed(figure, path.stem, sizes), name, f"{path.name}:{line}") for line, figure in found
            ]
            return Subject(name, cells, plain=True)
        tables = wide.tables(lines, path.suffix.lower())
        figures, labels = wide.figures(tables, path)
        return Subject(name, [of(figure, name, "") for figure in figures], labels=labels, plain=True)
    except ValueError as error:
        raise UsageError([Problem(str(path), "", says=f"{error}.")]) from None


def of(figure: published.Figure, source: str, where: str) -> Cell:
    """where: of the line itself, for a figure that names no document."""
    place = f"{figure.path}:{figure.line}" if figure.path and figure.line else figure.path or where
    return cell(figure, source, place)


def is_figures(lines: Iterable[str]) -> bool:
    """Whether it is a line for each cell: the columns that such a file must have."""
    first = next(iter(lines), "").strip().lower().split(",")
    return {"row", "column", "printed"} <= {one.strip().strip('"') for one in first}


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MOST:
            says = f"it has {path.stat().st_size:,} bytes; at most {MOST:,} are read."
            raise UsageError([Problem(str(path), "", says=says)])
        return path.read_bytes().decode("utf-8-sig").splitlines(keepends=True)
    except OSError as error:
        raise UsageError([Problem(str(path), "", says=f"cannot be read: {error.strerror}.")]) from None
    except UnicodeDecodeError as error:
        says = f"it is no text in UTF-8 (byte {error.start}). Name a figures.csv, a table, or a results.json."
        raise UsageError([Problem(str(path), "", says=says)]) from None
