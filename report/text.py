"""Text for people: numbers with the digits that they deserve, and text from outside made harmless to show. Pure."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence

from dlperf.errors import clean
from dlperf.figures.statistics import Estimate
from dlperf.report.shape import Table
from dlperf.words import columns
from dlperf.words import count as count

#: stands for a figure that there is none of
NONE = "–"


def decimals(estimates: Iterable[Estimate]) -> int:
    """Places after the point for a column: two digits of the narrowest interval's half, at least two of each value.

    So 9.83 ± 0.42 keeps two places, and 3130 ± 12 none. Without any interval, three digits of the smallest value.
    """
    estimates = list(estimates)
    digits = [_places(value.centre, 2) for value in estimates]
    halves = [(value.high - value.low) / 2 for value in estimates if value.low is not None and value.high is not None]
    narrow = [_places(half, 2) for half in halves if half > 0]
    digits += narrow or [_places(value.centre, 3) for value in estimates]
    return max(0, min(3, max(digits, default=0)))


def _places(value: float, digits: int) -> int:
    """Places after the point that show so many digits of a value."""
    return digits - 1 - math.floor(math.log10(value)) if value > 0 else 0


def number(value: float | None, places: int) -> str:
    return NONE if value is None else f"{value:,.{places}f}"


def interval(estimate: Estimate, places: int) -> str:
    """[low, high], or a dash when there is none."""
    if estimate.low is None:
        return NONE
    return f"[{number(estimate.low, places)}, {number(estimate.high, places)}]"


def gibibytes(size: int | None, places: int = 2) -> str:
    return number(size / 2**30 if size is not None else None, places)


#: names in a sentence
MOST_NAMES = 30


def listing(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`, each name once; nothing of nothing. Of very many the first, and how many more."""
    *first, last = dict.fromkeys(names) or [""]
    if len(first) >= MOST_NAMES:
        first, last = first[: MOST_NAMES - 1], f"{len(first) + 2 - MOST_NAMES:,} more"
    return f"{', '.join(first)} and {last}" if first else last


def alternatives(values: Iterable[str]) -> str:
    """What should be one value: all that were found, or a dash."""
    return " / ".join(dict.fromkeys(values)) or NONE


def times(values: Sequence[str]) -> str:
    """`8 × NVIDIA H200`."""
    return ", ".join(f"{values.count(value)} × {value}" for value in dict.fromkeys(values))


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


@functools.lru_cache(2**14)  # thousands of records have the same few
def line(text: str, limit: int = 200) -> str:
    """One line of a text from outside, at most `limit` characters of it."""
    joined = " ".join(clean(text).split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def last_lines(lines: Iterable[str], most: int = 30, limit: int = 400) -> str:
    """The last lines of some output, long ones cut."""
    flat = [part for text in lines for part in clean(text).rstrip("\n").split("\n")]
    return "\n".join(part if len(part) <= limit else part[: limit - 1] + "…" for part in flat[-most:])


def slug(text: str) -> str:
    """A name that is safe in file names and anchors."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-.") or "x"


def column(values: Iterable[float | None], digits: int = 3, most: int = 4) -> list[str]:
    """Numbers with one count of places for all: that many digits of the smallest, so that points line up."""
    values = list(values)
    places = max((_places(value, digits) for value in values if value is not None), default=0)
    return [number(value, max(0, min(most, places))) for value in values]


def in_columns(table: Table) -> list[str]:
    """A table in columns of spaces."""
    cells = [tuple(column.title for column in table.columns), *(row.cells for row in table.rows)]
    numeric = [number for number, column in enumerate(table.columns) if column.numeric]
    return columns(cells, numeric).split("\n")
