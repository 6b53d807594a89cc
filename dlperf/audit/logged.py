"""Rules on tables that have what was counted beside a rate, or a line for each step: samples, seconds, losses, clocks.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dlperf.audit.cells import SECONDS, Cell, Subject
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.scaling import NOISE

SAMPLES = re.compile(r"^(total )?(samples|images|sentences|sequences|tokens)$", re.IGNORECASE)
CLOCK = re.compile(
    r"^(total |elapsed )?(seconds|elapsed|time|timestamp|clock)( time)?( ?[(\[]s(ec|econds)?[)\]])?$", re.IGNORECASE
)
STEP = re.compile(r"^(step|iteration|iter|batch)s?( number)?$", re.IGNORECASE)


def totals(subject: Subject) -> Iterator[Finding]:
    """A rate beside the samples and seconds that it is of, in options or in its row."""
    for cells in subject.tables.values():
        for row in _rows(cells):
            beside = {"samples": _only(row, SAMPLES), "seconds": _only(row, CLOCK)}
            for one in row:
                if one.figure.quantity != "throughput" or not one.value:
                    continue
                told = [_option(one, key) or beside[key] for key in ("samples", "seconds")]
                samples, seconds = told
                if not samples or not seconds:
                    continue
                rate = samples / seconds
                if not one.low <= rate <= one.high:
                    apart = one.number / rate - 1
                    severity = ERROR if abs(apart) > NOISE else WARNING
                    expected = f"{rate:,.6g}: {samples:g} samples over {seconds:g} s"
                    yield of(one, severity, expected, f"{one.figure.printed}, {100 * apart:+.1f} %")


def losses(subject: Subject) -> Iterator[Finding]:
    """A column of losses: none that is no number, and of many the last below the first."""
    for several in _columns(subject, re.compile(r"\bloss\b", re.IGNORECASE)):
        for one in several:
            if re.fullmatch(r"[+-]?(nan|inf|infinity)", one.figure.printed.strip(), re.IGNORECASE):
                yield of(one, ERROR, "a loss that is a number", one.figure.printed)
                break
        known = [one for one in several if one.value is not None]
        if len(known) > 2 and _of_steps(subject, known) and known[-1].number >= known[0].number:
            yield of(known[-1], WARNING, f"below {known[0].figure.printed}, the first", known[-1].figure.printed)


def clocks(subject: Subject) -> Iterator[Finding]:
    """A column of times, a line for each step."""
    for several in _columns(subject, CLOCK):
        known = [one for one in several if one.value is not None]
        if not _of_steps(subject, known):
            continue
        for before, one in pairwise(known):
            if one.number < before.number:
                yield of(one, ERROR, f"{before.figure.printed} or later", one.figure.printed)
                break


def _rows(cells: Sequence[Cell]) -> list[list[Cell]]:
    rows: dict[str, list[Cell]] = {}
    for one in cells:
        rows.setdefault(one.figure.row, []).append(one)
    return list(rows.values())


def _columns(subject: Subject, named: re.Pattern[str]) -> Iterator[list[Cell]]:
    columns: dict[tuple[str, str], list[Cell]] = {}
    for one in subject.cells:
        if one.figure.quantity == "other" and named.search(one.figure.column.strip()):
            columns.setdefault((one.figure.table, one.figure.column), []).append(one)
    yield from columns.values()


def _of_steps(subject: Subject, cells: Sequence[Cell]) -> bool:
    """Whether the rows of a table are steps, as its labels say, one after the other."""
    heads = subject.labels.get(cells[0].figure.table, "").split(" | ") if cells else []
    at = next((number for number, head in enumerate(heads) if STEP.fullmatch(head.strip())), None)
    if at is None:
        return False
    steps = [one.figure.row.split(" | ")[at].partition(" ")[0] for one in cells]
    numbers = [int(one) for one in steps if re.fullmatch(r"[0-9]{1,12}", one)]
    return len(numbers) == len(cells) and all(a < b for a, b in pairwise(numbers))


def _only(row: Sequence[Cell], named: re.Pattern[str]) -> float:
    found = [one for one in row if one.figure.quantity == "other" and named.fullmatch(one.figure.column.strip())]
    return found[0].number * SECONDS.get(found[0].figure.unit, 1.0) if len(found) == 1 else 0.0


def _option(one: Cell, key: str) -> float:
    told = one.figure.options.get(key, "")
    return float(told) if re.fullmatch(r"\d{1,15}(\.\d+)?", told) else 0.0


RULES = (
    Rule(
        "samples over seconds",
        "A rate is that of the samples and seconds that stand beside it.",
        ERROR,
        "arithmetic, within the printed digits; 2 % as super-linear: a warning",
        totals,
    ),
    Rule(
        "losses of a log",
        "A table of steps has losses that are numbers, and at last below the first.",
        ERROR,
        "none: a training that works has them",
        losses,
    ),
    Rule(
        "clock of a log",
        "A table of steps has times that do not go backwards.",
        ERROR,
        "arithmetic",
        clocks,
    ),
)
