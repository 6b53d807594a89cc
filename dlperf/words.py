"""What people read: tables, how many of something, and how long it takes."""

from __future__ import annotations

from collections.abc import Container, Sequence


def columns(rows: Sequence[Sequence[str]], numeric: Container[int] = ()) -> str:
    """A table as text, its columns aligned. numeric: the numbers of those that end at one line."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    sides = [str.rjust if column in numeric else str.ljust for column in range(len(widths))]
    lines = ["  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def count(number: float, noun: str) -> str:
    """ "1 run", "2 runs", "1.5 CPU cores"."""
    ending = "" if number == 1 else "es" if noun.endswith(("tch", "s")) else "s"
    return f"{number:,.15g} {noun}{ending}"


def duration(seconds: float) -> str:
    """ "40 s", "6 min 05 s", "1 h 20 min"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
