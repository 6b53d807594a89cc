"""What is audited, read from files: figures.csv, plain tables, the folder of a published source."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dlperf.audit import wide
from dlperf.audit.cells import Cell, Subject, cell
from dlperf.errors import Problem, UsageError
from dlperf.figures import published
from dlperf.sources import FIGURES, TOLD, read_source

#: bytes of a file that is read
MOST = 2**27


def folder(place: Path) -> Subject:
    """Of a published source. UsageError where its source.toml cannot be read."""
    made = file(place / FIGURES, place.name)
    if not (place / TOLD).exists():
        return made
    return Subject(made.name, made.cells, labels={one.id: one.row for one in read_source(place).told.table})


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
