"""What is audited, read from files: figures.csv, tables, logs, folders of these, comparisons, published sources."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from dlperf import sources
from dlperf.audit import cells, steps, tables, wide
from dlperf.audit.cells import Cell, Subject, cell
from dlperf.comparison import store
from dlperf.errors import Problem, UsageError
from dlperf.figures import published
from dlperf.importlogs import read, trees
from dlperf.importlogs.format import Format
from dlperf.importlogs.formats import formats
from dlperf.importlogs.recognise import Refused

#: bytes of a file, and files of a folder, that are read
MOST, MOST_FILES = 2**27, 5000
LOGS, TABLES = (
    (".log", ".out", ".txt", ".err"),
    (".csv", ".tsv", ".md", ".markdown", ".html", ".htm", ".json", ".jsonl"),
)
FIELD = "FILE|RUN|SOURCE"


def subjects(named: str) -> list[Subject]:
    """Of a file, a comparison, a published source or a folder of tables and logs. UsageError where it is none."""
    for place in (Path(named), sources.published() / named):
        if place.is_dir() and store.holds(place):
            return [comparison(place, named)]
    place = Path(named)
    if place.is_file():
        ours = place.suffix.lower() == ".json" and _ours(_text(place))
        return [comparison(place, named) if ours else file(place)]
    if place.is_dir() and not sources.holds(place) and (found := list(_tree(place))):
        return found
    return [folder(sources.find(named, FIELD))]


def comparison(place: Path, name: str) -> Subject:
    """With what was changed in it by hand."""
    held, warnings = store.read(place)
    return replace(cells.subject(held, name), changed=tuple(f"{warning}" for warning in warnings))


def _ours(text: str) -> bool:
    """Whether a JSON is a comparison, as dlperf writes it."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and {"schema", "records", "jobs"} <= told.keys()


def folder(place: Path) -> Subject:
    """Of a published source. UsageError where its source.toml cannot be read."""
    made = file(place / sources.FIGURES, place.name)
    if not (place / sources.TOLD).exists():
        return made
    return Subject(made.name, made.cells, labels={one.id: one.row for one in sources.read_source(place).told.table})


def file(path: Path, name: str = "") -> Subject:
    """Of a figures.csv, a plain table or a log. UsageError that names file, line and column."""
    name = name or path.name
    text = _text(path)
    try:
        if path.suffix.lower() not in tables.MARKDOWN and is_figures(text):
            found = published.numbered(text.splitlines(keepends=True), partial=True)
            of_lines = [of(wide.completed(figure, path.stem), name, f"{path.name}:{line}") for line, figure in found]
            return Subject(name, of_lines, plain=True)
        logged = path.suffix.lower() in LOGS or (not path.suffix and "loss" in text)
        if logged and (made := log(path, path.name, name, text)):
            return made
        figures, labels = wide.figures(tables.tables(text, path.suffix.lower()), path.name, path.stem)
        return Subject(name, [of(figure, name, "") for figure in figures], labels=labels, plain=True)
    except ValueError as error:
        raise UsageError([Problem(str(path), "", says=f"{error}.")]) from None


def log(path: Path, shown: str, name: str, text: str) -> Subject | None:
    """Its figures, as dlperf.importlogs has them, and its lines as a table of steps; None of what has neither."""
    lines = steps.logged(text)
    labels: dict[str, str] = {}
    made = [of(replace(_ran(one, lines), origin="log"), name, shown) for one in _figures(path, shown)]
    if lines and any(any(row[1:]) for _, row in lines.rows):
        figures, labels = wide.figures([lines], shown, shown, needed=False)
        made += [of(figure, name, "") for figure in figures]
    return Subject(name, made, labels=labels, plain=True) if made else None


def _ran(one: published.Figure, lines: tables.Table | None) -> published.Figure:
    """With the step that its log ends at, where that is before those that it claims; not where several ranks print."""
    numbers = [int(row[0]) for _, row in lines.rows] if lines else []
    gaps = [b - a for a, b in pairwise(numbers)]
    ends = gaps and min(gaps) > 0 and one.steps.isdigit() and numbers[-1] + statistics.mode(gaps) <= int(one.steps)
    return replace(one, options={**one.options, "ran": str(numbers[-1])}) if ends else one


#: what stands in for what neither a log nor its path tells, and something else, to see which figures are of it
ABSENT = {
    "nodes": ("1", "2"),
    "devices_per_node": ("1", "3"),
    "batch": ("1", "7"),
    "precision": ("fp32", "fp32"),
}


#: devices that a log may be of whose path does not tell: of these one fits batch, clock and printed rates, or none
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
UNLIKE = re.compile("are not the samples of a step|ranks that should print")


def _figures(path: Path, shown: str) -> list[published.Figure]:
    """Of a log: those that need nothing which neither it nor its path tells; that is blank in them."""
    absent: list[str] = []
    for _ in ABSENT:  # nodes may tell how many devices each has
        try:
            return _needing_none(path, shown, absent)
        except Refused as refused:
            missing = [name for name in ABSENT if name.replace("_", " ") in str(refused) and name not in absent]
            if not missing:
                return []
            absent += [name for name in missing if name != "devices_per_node"] or missing
    return []


def _needing_none(path: Path, shown: str, absent: Sequence[str]) -> list[published.Figure]:
    """Refused where more is absent."""
    one, other = (_read(path, shown, {name: ABSENT[name][at] for name in absent}) for at in (0, 1))
    blank: dict[str, Any] = {name: "" for name in absent if name in ("batch", "precision")}
    blank |= {"batch_of": ""} if "batch" in absent else {}
    if "devices_per_node" in absent:
        known = {"nodes": "1", "precision": ABSENT["precision"][0]}
        told = [] if "batch" in absent else [_read(path, shown, {**known, "devices_per_node": str(n)}) for n in NUMBERS]
        fit = [figures for figures in told if figures and not any(UNLIKE.search(each.doubt) for each in figures)]
        if len(fit) == 1:
            return [replace(figure, nodes=None, **blank) for figure in fit[0]]
        blank |= {"nodes": None, "devices": None}
    same = {(figure.column, figure.printed) for figure in other}
    return [replace(figure, **blank) for figure in one if (figure.column, figure.printed) in same]


def _read(path: Path, shown: str, given: Mapping[str, str]) -> list[published.Figure]:
    return list(read.read(path, shown, _formats(), None, given).figures)


@cache
def _formats() -> dict[str, Format]:
    return dict(formats())


def _tree(place: Path) -> Iterator[Subject]:
    """Each table of a folder, and all its logs as one."""
    logs: list[Subject] = []
    for number, (path, name, why) in enumerate(trees.files(place)):
        if number >= MOST_FILES:
            says = f"it has more than {MOST_FILES:,} files. Name a smaller folder."
            raise UsageError([Problem(str(place), "", says=says)])
        if why or path.stat().st_size > MOST or path.name == sources.TOLD:
            continue
        suffix = path.suffix.lower()
        if suffix in LOGS or not suffix:
            made = log(path, name, place.name, path.read_bytes().decode("utf-8", "replace"))
            logs += [made] if made else []
        elif suffix in TABLES:
            try:
                if suffix != ".json" or not _ours(_text(path)):
                    yield file(path, name)
            except UsageError:
                continue  # of a folder, what is no table is passed over
    if logs:
        held = [one for several in logs for one in several.cells]
        labels = {key: label for one in logs for key, label in one.labels.items()}
        yield Subject(f"{place.name}: logs", held, labels=labels, plain=True)


def of(figure: published.Figure, source: str, where: str) -> Cell:
    """where: of the line itself, for a figure that names no document."""
    place = f"{figure.path}:{figure.line}" if figure.path and figure.line else figure.path or where
    return cell(figure, source, place)


def is_figures(text: str) -> bool:
    """Whether it is a line for each cell: the columns that such a file must have."""
    first = text.partition("\n")[0].strip().lower().split(",")
    return {one.strip().strip('"') for one in first} >= published.NEEDED


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST:
            says = f"it has {path.stat().st_size:,} bytes; at most {MOST:,} are read."
            raise UsageError([Problem(str(path), "", says=says)])
        held = path.read_bytes()
        if b"\0" in held[:4096]:
            raise UsageError([Problem(str(path), "", says="it is binary. Name a table, a log, or a results.json.")])
        return held.decode("utf-8-sig")
    except OSError as error:
        raise UsageError([Problem(str(path), "", says=f"cannot be read: {error.strerror}.")]) from None
    except UnicodeDecodeError as error:
        says = f"it is no text in UTF-8 (byte {error.start}). Name a figures.csv, a table, or a results.json."
        raise UsageError([Problem(str(path), "", says=says)]) from None
