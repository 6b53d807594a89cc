"""Rules on tables that have what was counted beside a rate, or a line for each step: samples, seconds, losses, clocks.
Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise

from dlperf.audit import headings
from dlperf.audit.cells import SECONDS, Cell, Subject
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.objects import PAUSE
from dlperf.audit.scaling import NOISE

SAMPLES = re.compile(r"^(total )?(samples|images|sentences|sequences|tokens)$", re.IGNORECASE)
CLOCK = re.compile(headings.CLOCK)
#: words of a column of moments, whose cells are such: dates, times of day, or seconds since 1970
CLOCKED = re.compile(r"time|clock|stamp|\bts\b|date|\bwhen\b|moment|\butc\b|epoch|\bat$", re.IGNORECASE)
SINCE_1970 = 1e9, 2.2e9
DAY = 86400.0
BEGUN, ENDED = (
    re.compile(rf"\b({words})\b")
    for words in ("start|started|begin|began|begun|from", "end|ended|finish|finished|stop|stopped|until")
)
#: a row of a table of steps that is made of the others
AVERAGE = re.compile(r"average|avg\.?|mean|total|all|overall", re.IGNORECASE)
#: of a row, that it is said to be of a warm-up
WARM = re.compile(r"\bwarm", re.IGNORECASE)
#: times that a first step is slower than the median of the others, from which on it is a warm-up
FIRST = 2.0
#: losses of which the means of the first and last third are held against each other, and the share that they fall
FLAT, FALLS = 12, 1e-3
#: seconds that ranks of a log, or loggers, may be late, where its steps are not in order, as in several epochs
AGAIN = 60.0
STEPPED = re.compile(r"step|iter|batch", re.IGNORECASE)


def totals(subject: Subject) -> Iterator[Finding]:
    """A rate beside the samples and seconds that it is of, in options or in its row."""
    for cells in subject.tables.values():
        counted = any(CLOCK.match(_head(one)) or "seconds" in one.figure.options for one in cells)
        for row in _rows(cells) if counted else ():
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
        known = known[next((at for at, one in enumerate(known) if one.number), 0) :]  # 0 stands in for none
        falls = sum(b.number < a.number for a, b in pairwise(known))
        few = several[0].figure.origin == "log" and subject.excerpts  # a few lines of a document
        if (
            len(known) > (4 if few else 2)
            and not (few and falls)
            and of_steps(subject, known)
            and known[-1].number >= known[0].number
        ):
            yield of(known[-1], WARNING, f"below {known[0].figure.printed}, the first", known[-1].figure.printed)
        elif len(known) >= FLAT and not few and of_steps(subject, known):
            third = len(known) // 3
            first, last = (statistics.fmean(one.number for one in part) for part in (known[:third], known[-third:]))
            if last > first * (1 - FALLS):
                expected = f"below {first:.4g}, the mean of the first {third}"
                yield of(known[-1], WARNING, expected, f"{last:.4g}, the mean of the last {third}")
    for cells in subject.tables.values():
        ended = any("loss" in _head(one) and LAST.search(_head(one)) for one in cells)
        ends: list[tuple[float, float, Cell]] = []
        for row in _rows(cells) if ended else ():
            first, last = (
                _only(row, re.compile(rf".*\b({words})\b.*loss.*|.*loss.*\b({words})\b.*")) for words in ENDS
            )
            at = next((one for one in row if LAST.search(_head(one)) and one.number == last), row[0])
            ends.append((first, last, at))
        usual = (
            statistics.median(last / first for first, last, _ in ends if first) if any(one[0] for one in ends) else 1.0
        )
        for first, last, at in ends:
            if first and (last >= first or (usual < FALLEN and last > first * (1 - FALLS))):
                yield of(at, WARNING, f"below {first:g}, the first", f"{last:g}")


ENDS = "initial|first|start|starting|begin|beginning|before", "final|last|end|ending|after|finish"
LAST = re.compile(rf"\b({ENDS[1]})\b")
#: share of the first loss that most rows end at, where one that hardly falls is told
FALLEN = 0.8


def first_step(subject: Subject) -> Iterator[Finding]:
    """Of a table of steps from the first one on, with a time or a rate of each."""
    for cells in subject.tables.values():
        columns: dict[str, list[Cell]] = {}
        if not STEPPED.search(subject.labels.get(cells[0].figure.table, "")):
            continue
        for one in cells:
            step_time = re.search(r"(step|iter\w*|batch) time|time|seconds|latency|duration", _head(one))
            if (
                one.number
                and (one.figure.quantity == "throughput" or step_time)
                and not (AVERAGE.match(one.figure.row) or WARM.search(one.figure.row))
            ):
                columns.setdefault(one.figure.column, []).append(one)
        for several in columns.values():
            if CLOCK.match(_head(several[0])) and not is_of_each([one.number for one in several]):
                continue
            if len(several) < 5 or not of_steps(subject, several) or not re.match(r"[01]\b", several[0].figure.row):
                continue
            first, usual = several[0].number, statistics.median(one.number for one in several[1:])
            times = usual / first if several[0].figure.quantity == "throughput" else first / usual
            if times > FIRST:
                expected = f"a first step as fast as the others, {usual:.4g} in the median, or left out"
                yield of(several[0], WARNING, expected, f"{several[0].figure.printed}: {times:.3g} times as slow")
                break


def is_of_each(numbers: Sequence[float]) -> bool:
    """Whether times are those of each step: those that pass do not fall."""
    return sum(b <= a for a, b in pairwise(numbers)) * 4 > len(numbers)


def pauses(subject: Subject) -> Iterator[Finding]:
    """Of lines with times, one that comes long after the one before, but for the first: the first of each column."""
    for several in _passing(subject):
        at = _at(subject, several)
        known = [(one, moment) for one in several if (moment := _moment(one)) is not None]
        if at is None or len(known) < 6:
            continue
        waits = [later - earlier for (_, earlier), (_, later) in pairwise(known)]
        usual = statistics.median(waits)
        for (one, _), wait in list(zip(known[1:], waits, strict=True))[1:]:
            if usual > 0 and wait > PAUSE * usual:
                expected = f"a line every {usual:.3g} s, as in the median"
                yield of(one, WARNING, expected, f"{wait:.4g} s after the one before")
                break


def clocks(subject: Subject) -> Iterator[Finding]:
    """A column of times, a line for each step."""
    for several in _passing(subject):
        known = [(one, moment) for one in several if (moment := _moment(one)) is not None]
        again = 0.0 if of_steps(subject, [one for one, _ in known]) else AGAIN
        if again and several[0].figure.origin != "log":
            continue
        for (before, earlier), (one, later) in pairwise(known):
            if later < earlier - again and not (":" in one.figure.printed and _midnight(earlier, later)):
                yield of(one, ERROR, f"{before.figure.printed} or later", one.figure.printed)
                break
    yield from _labelled(subject)


def _midnight(earlier: float, later: float) -> bool:
    """Whether two times of day are of two days."""
    return earlier < DAY and later < DAY and earlier - later > DAY / 2


def _labelled(subject: Subject) -> Iterator[Finding]:
    """A column of moments that is a part of the label of each step."""
    for cells in subject.tables.values():
        rows = [row[0] for row in _rows(cells)]
        if not of_steps(subject, rows):
            continue
        told = [parts(subject, one) for one in rows]
        for head in (head for head in told[0] if CLOCKED.search(_plain(head))):
            known = [
                (one, part[head], moment)
                for one, part in zip(rows, told, strict=True)
                if (moment := _stated(part.get(head, ""))) is not None
            ]
            for (_, before, earlier), (one, after, later) in pairwise(known):
                if later < earlier and not _midnight(earlier, later):
                    yield replace(of(one, ERROR, f"{before} or later", after), column=head)
                    break


def _passing(subject: Subject) -> Iterator[Sequence[Cell]]:
    """Columns of times that pass: not those of each step, which stand beside the samples of it, or often fall."""
    counts = {one[0].figure.table: [each.number for each in one] for one in _columns(subject, SAMPLES)}
    for several in (*_columns(subject, CLOCK), *_moments(subject)):
        samples = counts.get(several[0].figure.table, ())
        moments = [moment for one in several if (moment := _moment(one)) is not None]
        falls = sum(later < earlier for earlier, later in pairwise(moments))
        if not (samples and samples[-1] <= samples[0]) and (falls < 2 or falls * 4 < len(moments)):
            yield several


def _moments(subject: Subject) -> Iterator[Sequence[Cell]]:
    """Columns of moments by what their cells are, and a word that may be of a time."""
    for several in _columns(subject, CLOCKED):
        known = [one for one in several if one.value is None or SINCE_1970[0] <= one.number < SINCE_1970[1]]
        if not CLOCK.search(_head(several[0])) and len(known) == len(several):
            yield several


def _moment(one: Cell) -> float | None:
    """Seconds of a cell, of a date by its clock."""
    return one.value if one.value is not None else _clock(one.figure.printed)


def _clock(printed: str) -> float | None:
    """Seconds of a date, or of a time of day from midnight on."""
    told = printed.strip().removesuffix("Z")
    if found := TIME_OF_DAY.fullmatch(told):
        return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3] or 0)
    try:
        return datetime.fromisoformat(told).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")


def ends(subject: Subject) -> Iterator[Finding]:
    """Of a row that says when a run began and when it ended: not before. Times of day may go past midnight."""
    for cells in subject.tables.values():
        for row in _rows(cells):
            told = {**parts(subject, row[0]), **{_head(one): one.figure.printed for one in row}}
            begun, ended = (
                [
                    (head, printed, moment)
                    for head, printed in told.items()
                    if named.search(_plain(head)) and (moment := _stated(printed)) is not None
                ]
                for named in (BEGUN, ENDED)
            )
            if len(begun) != 1 or len(ended) != 1 or begun == ended:
                continue
            (_, start, first), (head, end, last) = begun[0], ended[0]
            if last < first and (first < DAY) == (last < DAY) and not _midnight(first, last):
                yield replace(of(row[0], ERROR, f"{start} or later", end), column=head)


def _stated(printed: str) -> float | None:
    """A moment of a row: a date, a time of day, or seconds since 1970."""
    if re.fullmatch(r"1\d{9}(\.\d+)?", printed.strip()):
        return float(printed)
    return _clock(printed)


def parts(subject: Subject, one: Cell) -> dict[str, str]:
    """The parts of a row's label by their heads."""
    heads = subject.labels.get(one.figure.table, "").split(" | ")
    told = re.sub(r" \(\d+\)$", "", one.figure.row).split(" | ")
    return dict(zip(heads, told, strict=True)) if len(heads) == len(told) else {}


def _head(one: Cell) -> str:
    return _plain(one.figure.column)


@lru_cache(maxsize=2**12)
def _plain(column: str) -> str:
    return column.replace("_", " ").strip().lower()


def _rows(cells: Sequence[Cell]) -> list[list[Cell]]:
    rows: dict[str, list[Cell]] = {}
    for one in cells:
        rows.setdefault(one.figure.row, []).append(one)
    return list(rows.values())


def _columns(subject: Subject, named: re.Pattern[str]) -> Iterator[Sequence[Cell]]:
    """Those of no rates, speedups or times to train."""
    for (_, column), cells in subject.columns.items():
        if named.search(_plain(column)) and (found := [one for one in cells if one.figure.quantity == "other"]):
            yield found


def of_steps(subject: Subject, cells: Sequence[Cell]) -> bool:
    """Whether the rows of a table are steps, as its labels say, one after the other."""
    at = _at(subject, cells)
    if at is None:
        return False
    labels = [one.figure.row.split(" | ")[at:] for one in cells]  # a row without a label has none of its parts
    steps = [label[0].partition(" ")[0] if label else "" for label in labels]
    numbers = [int(one) for one in steps if re.fullmatch(r"[0-9]{1,12}", one)]
    gaps = [b - a for a, b in pairwise(numbers)]
    head = subject.labels[cells[0].figure.table].split(" | ")[at]
    sizes = len(set(gaps)) > 1 and re.search("batch", head, re.IGNORECASE)
    return len(numbers) == len(cells) and not sizes and all(gap > 0 for gap in gaps)


def _at(subject: Subject, cells: Sequence[Cell]) -> int | None:
    """Which part of a row's label is its step; None where its table has none."""
    heads = subject.labels.get(cells[0].figure.table, "").split(" | ") if cells else []
    return next((number for number, head in enumerate(heads) if headings.STEP.fullmatch(head.strip())), None)


def _only(row: Sequence[Cell], named: re.Pattern[str]) -> float:
    found = [one for one in row if one.figure.quantity == "other" and named.fullmatch(_head(one))]
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
        "warm-up in a log",
        "A table of steps that begins with the first one is as fast there as later.",
        WARNING,
        "twice as slow as the median of the others: what is compiled or allocated once",
        first_step,
    ),
    Rule(
        "pause in a log",
        "No line of a table of steps comes long after the one before: the end of an epoch, evaluation, another load.",
        WARNING,
        "three times the median between lines",
        pauses,
    ),
    Rule(
        "clock of a log",
        "A table of steps has times that do not go backwards.",
        ERROR,
        "arithmetic",
        clocks,
    ),
    Rule(
        "end before start",
        "A run ends after it begins, by the times in its row.",
        ERROR,
        "arithmetic; times of day that are more than twelve hours back are of the next day",
        ends,
    ),
)
