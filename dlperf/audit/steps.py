"""The lines of a log as a table of steps, whatever program wrote it. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from itertools import pairwise

from dlperf.audit.tables import Table

#: of a line of a log: its step, its loss, when it was written
_STEP = re.compile(
    r"[\"']step[\"']: ?\[\d{1,9}, ?(\d{1,9})|^(\d{1,9})\s+images/sec|(?:\bEpoch:? \[\d+\] ?|^\s*)\[ *(\d{1,9})/\d+\]|"
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?|batch)s?\b[\"']?\s*[:=#]?\s*\[?\s*(\d{1,12})",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"\b[\w.]*loss\b[\"']?\s*[:=]?\s*([-+]?(?:nan|inf(?:inity)?|\d+(?:\.\d+)?(?:e[-+]?\d+)?))\b", re.IGNORECASE
)
_MOMENT = re.compile(r"\b(\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?|(?<![\d.])1\d{9}(?:\.\d+)?)\b")


POINTS = str.maketrans(",/", ".-")


def logged(text: str) -> Table | None:
    """The lines of a log that tell a step, with loss and time as they are there; None of fewer than two."""
    found: list[tuple[int, tuple[str, str, str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        low = line[:2000]
        if not ("loss" in low.lower() or "/s" in low or "PerSec" in low) or not (step := _STEP.search(low)):
            continue
        loss, moment = _LOSS.search(low), _MOMENT.search(low)
        found.append(
            (
                number,
                (
                    next(filter(None, step.groups())),
                    loss[1] if loss else "",
                    moment[1].translate(POINTS) if moment else "",
                ),
            )
        )
    if len(found) < 2:
        return None
    return Table("", ["step", "loss", "timestamp"], [(number, list(row)) for number, row in found])


def most(lines: Table) -> int | None:
    """The most steps that can have run: up to where the line after the last would be."""
    return reach([int(row[0]) for _, row in lines.rows])


def reach(numbers: Sequence[int]) -> int | None:
    """Likewise of the numbers of steps; None where they do not ascend."""
    gaps = [b - a for a, b in pairwise(numbers)]
    return numbers[-1] + statistics.mode(gaps) if gaps and min(gaps) > 0 else None


def begins(lines: Table) -> bool:
    """Whether the first line is of the first steps, as far as the others tell how many each is of."""
    numbers = [int(row[0]) for _, row in lines.rows]
    return numbers[0] <= statistics.mode(b - a for a, b in pairwise(numbers))
