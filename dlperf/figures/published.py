"""Figures that others published: report/published/SOURCE/figures.csv, a line for each cell of their tables. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

#: what a cell tells
QUANTITIES = ("throughput", "speedup", "efficiency", "time_to_train", "other")
#: how it was made of what was measured, by its source or the scripts there; empty for what is no measurement
ESTIMATORS = (
    *("samples_over_seconds", "mean_of_rates", "median_of_runs", "mean_of_runs", "one_run", "last_printed", "unknown"),
    "",
)
#: what its batch size is of
BATCHES = ("device", "global", "tokens per device", "unknown", "")
#: where it stands: what was read off a chart is never computed with; of a log, its own or what is counted there
ORIGINS = ("table", "text", "chart", "log")
PRECISIONS = ("fp32", "tf32", "amp", "fp16", "bf16", "")
#: a number as tables have it: 1,234.50, 97 %, 3.02x, x1.60, ~5 hours, +12.5 %, 3.1k
NUMBER = re.compile(
    r"[~≈x×]?\s?[+]?(-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s?([kKM](?![A-Za-z]))?\s*"
    r"(?:%|[A-Za-zµ/²×]+)?"
)
SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, None: 1.0}


@dataclass(frozen=True)
class Figure:
    """One cell.

    table: of its source, see source.toml. row, column: its labels, and printed: it, to the letter. quantity, estimator,
    batch_of, origin, precision: see above. unit: as it is meant, also where the label is wrong. system, framework,
    version: empty where the source does not say. options: what else tells rows apart. nodes, devices: of all nodes
    together, None where unknown. batch, steps: as stated. path, line: of the document or file in its repository, at the
    commit that source.toml has, or as `owner/name@commit:path`. doubt: what is known to be wrong, unclear or not like
    for like.
    """

    table: str
    row: str
    column: str
    printed: str
    quantity: str
    unit: str
    estimator: str
    model: str
    system: str
    framework: str
    version: str
    precision: str
    options: Mapping[str, str]
    nodes: int | None
    devices: int | None
    device: str
    batch: str
    batch_of: str
    steps: str
    origin: str
    path: str
    line: int | None
    doubt: str

    @property
    def value(self) -> float | None:
        """None for a blank, `OOM`, and whatever else is no number."""
        found = number(self.printed)
        return found[0] if found else None


@lru_cache(maxsize=2**16)
def number(printed: str) -> tuple[float, float] | None:
    """What a cell says, and one of its last digit; None for a blank, `OOM`, and whatever else is no number."""
    found = NUMBER.fullmatch(printed.strip())
    if not found:
        return None
    mantissa, _, exponent = found[1].replace(",", "").lower().partition("e")
    scale = SCALES[found[2]] * 10.0 ** int(exponent or 0)
    value = float(mantissa) * scale if scale != 1.0 else float(mantissa)
    return value, scale * 10.0 ** -len(mantissa.partition(".")[2])


@dataclass(frozen=True)
class Headed:
    """One table, as source.toml has it. line: of its title. row, columns: what labels its rows and its columns."""

    id: str
    title: str = ""
    path: str = ""
    line: int | None = None
    row: str = ""
    columns: str = ""
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """A source.toml; empty where a source has none. doubt: each with `what`, `seen` or `how`, and `where`."""

    id: str = ""
    title: str = ""
    publisher: str = ""
    date: str = ""
    url: str = ""
    repository: str = ""
    commit: str = ""
    licence: str = ""
    about: str = ""
    hardware: tuple[Mapping[str, str | int], ...] = ()
    software: tuple[Mapping[str, str | int], ...] = ()
    table: tuple[Headed, ...] = ()
    doubt: tuple[Mapping[str, str], ...] = ()
    cited: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True)
class Source:
    """name: of its folder. files: figures.csv and, where it has one, source.toml, as they are."""

    name: str
    told: Told
    figures: tuple[Figure, ...]
    files: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.told.id or self.name

    @property
    def title(self) -> str:
        return self.told.title or self.id

    @property
    def by(self) -> str:
        """Who published it, and when."""
        return ", ".join(filter(None, (self.told.publisher, self.told.date)))


COLUMNS = [field.name for field in fields(Figure)]
#: without which nothing can be told of a figure
NEEDED = {"row", "column", "printed"}
CLOSED = {
    "quantity": QUANTITIES,
    "estimator": ESTIMATORS,
    "batch_of": BATCHES,
    "origin": ORIGINS,
    "precision": PRECISIONS,
}


def read(lines: Iterable[str]) -> list[Figure]:
    """The figures of a figures.csv, in the order of its tables. ValueError, which names line and column, for one that
    is not as Figure has it, and for a cell that stands there twice."""
    found: list[Figure] = []
    seen: set[tuple[str, ...]] = set()
    for number, figure in numbered(lines):
        cell = (figure.table, figure.row, figure.column, figure.quantity)
        if cell in seen:
            raise ValueError(f"line {number}: {' / '.join(cell)} stands there twice")
        seen.add(cell)
        found.append(figure)
    return found


def text(figures: Iterable[Figure]) -> str:
    """A figures.csv that `read` gives back."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in figures:
        blank = {name: "" if getattr(one, name) is None else getattr(one, name) for name in COLUMNS}
        writer.writerow({**blank, "options": " ".join(f"{name}={value}" for name, value in one.options.items())})
    return file.getvalue()


def numbered(lines: Iterable[str], partial: bool = False) -> Iterator[tuple[int, Figure]]:
    """The same with their lines, whether or not a cell stands there twice. partial: columns but for NEEDED may be
    missing, in any order, and are empty then."""
    reader = csv.DictReader(lines, strict=True)
    try:
        columns = [*(reader.fieldnames or [])]
        if partial:
            reader.fieldnames = columns = [one.strip().lower() for one in columns]
        usable = len(set(columns)) == len(columns) and NEEDED <= set(columns) <= set(COLUMNS) if partial else False
        if columns != COLUMNS and not usable:
            needed = f"; needed: {', '.join(one for one in COLUMNS if one in NEEDED)}" if partial else ""
            raise ValueError(f"line 1: its columns are {','.join(columns)!r}; allowed: {','.join(COLUMNS)}{needed}")
        for row in reader:
            try:
                yield reader.line_num, _figure(row, columns, partial)
            except ValueError as error:
                raise ValueError(f"line {reader.line_num}: {error}") from None
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None


def _figure(told: Mapping[str, str], columns: Sequence[str], partial: bool) -> Figure:
    if len(told) != len(columns) or None in told.values():
        raise ValueError(f"it has other than {len(columns)} columns")
    row = {**dict.fromkeys(COLUMNS, ""), **told}
    for name, allowed in CLOSED.items():
        if row[name] not in allowed and not (partial and not row[name]):
            raise ValueError(f"{name} is {row[name]!r}; allowed: {', '.join(filter(None, allowed))}, or nothing")
    whole = {name: _whole(name, row[name]) for name in ("nodes", "devices", "line")}
    return Figure(**{**row, **whole, "options": dict(_option(one) for one in row["options"].split())})  # type: ignore[arg-type]


def _whole(name: str, told: str) -> int | None:
    if told and not re.fullmatch(r"[1-9]\d{0,8}", told):
        raise ValueError(f"{name} is {told!r}; allowed: a whole number from 1, or nothing")
    return int(told) if told else None


def _option(told: str) -> tuple[str, str]:
    name, equals, value = told.partition("=")
    if not (name and equals):
        raise ValueError(f"options has {told!r}; allowed: NAME=VALUE, with spaces between")
    return name, value


def tables(figures: Iterable[Figure]) -> dict[str, tuple[list[str], dict[str, list[str]]]]:
    """By table its columns, and of each row what is printed in them, as the source has it: a second quantity in
    brackets, as `263.29 (78.64%)`; blank where there is no cell."""
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for one in figures:
        row = cells.setdefault(one.table, {}).setdefault(one.row, {})
        row[one.column] = f"{row[one.column]} ({one.printed})" if one.column in row else one.printed
    return {name: _table(rows) for name, rows in cells.items()}


def _table(rows: Mapping[str, Mapping[str, str]]) -> tuple[list[str], dict[str, list[str]]]:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    return columns, {label: [row.get(column, "") for column in columns] for label, row in rows.items()}
