"""Rules on cells that are far off the others of their column, as in another unit, and on load and clocks. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise

from dlperf.audit import headings
from dlperf.audit.cells import SECONDS, Cell, Subject
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.logged import parts

#: what a label may be: numbers of something, or on what a row ran; among models a rate may span anything
NUMBERS = frozenset(
    (
        *("devices", "nodes", "per_node", "batch", "micro_batch", "global_batch", "sequence", "parallel"),
        *("steps", "runs", "warmup", "ran", "accumulation"),
    )
)
WORDS = frozenset(("device", "framework", "precision"))
#: times that the others of a column may span, and that a cell must be off them all
SPAN, FAR = 30.0, 10.0
#: of 60 and 3,600, which a growing time may be off by itself
CLOSE = 4.0
#: times that a cell may be off the others once its unit is right
NEAR = 1.5
#: a row that may be as slow as that
SLOW = re.compile(r"\bcpus?\b|xeon|epyc|\bcores?\b|raspberry|mobile|laptop", re.IGNORECASE)
#: a word for a factor between two units, and whether it is of times alone
UNITS = ((1e3, "1,000", False), (1e6, "1,000,000", False), (60.0, "60", True), (3600.0, "3,600", True))


def units(subject: Subject) -> Iterator[Finding]:
    """One cell of a column in another unit than the rest."""
    for cells in subject.tables.values():
        sure = _labels(subject, cells)
        if sure is None:
            continue
        for column in _columns(cells):
            for value in (_value, _of_each):
                if found := _slip(
                    [(one, value(one)) for one in column], timed=column[0].figure.quantity != "throughput"
                ):
                    one, (low, high), word = found
                    span = f"{low.figure.printed} to {high.figure.printed}"
                    expected = f"a figure among the others of its column, {span}"
                    told = f"{one.figure.printed}, off by about {word}, as in another unit"
                    yield of(one, ERROR if sure else WARNING, expected, told)
                    break


def _labels(subject: Subject, cells: Sequence[Cell]) -> bool | None:
    """Whether the rows of a table differ in numbers alone; None where they may be of several models, or of CPUs."""
    told = [parts(subject, one) for one in {one.figure.row: one for one in cells}.values()]
    kinds: set[str] = set()
    for head in told[0]:
        texts = {each.get(head, "") for each in told}
        sized = all(
            re.fullmatch(r"x?\d+x?", text) or (any(headings.size(text)) and headings.bare(text)) for text in texts
        )
        named = (
            headings.kind(head, True) if sized or headings.kind(head, True) in NUMBERS else headings.kind(head, False)
        )
        kinds.add(named if named in NUMBERS | WORDS else "devices" if sized else "device" if _devices(texts) else "")
        if any(SLOW.search(text) for text in texts):
            return None
    of_one = len({one.figure.model for one in cells}) == 1
    if "" in kinds or not kinds or not of_one:
        return None
    return kinds <= NUMBERS


def _devices(texts: Collection[str]) -> bool:
    return all(headings.device(text) == text.strip() for text in texts)


def _columns(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Of rates and times."""
    found: dict[str, list[Cell]] = {}
    for one in cells:
        timed = one.figure.quantity in ("other", "time_to_train") and one.figure.unit.partition("/")[0] in SECONDS
        if one.number > 0 and not one.of_log and (one.figure.quantity == "throughput" or timed):
            found.setdefault(one.figure.column, []).append(one)
    return list(found.values())


def _value(one: Cell) -> float:
    """A rate as it is, a time in seconds."""
    return one.number * (SECONDS[one.figure.unit.partition("/")[0]] if one.figure.quantity != "throughput" else 1.0)


def _of_each(one: Cell) -> float:
    """The rate of each device, as far as it is known."""
    return _value(one) / max(one.devices, 1) if one.figure.quantity == "throughput" else _value(one)


def _slip(cells: Sequence[tuple[Cell, float]], timed: bool) -> tuple[Cell, tuple[Cell, Cell], str] | None:
    """The one cell that is among the others once it is in another unit, with the least and the greatest of them."""
    if len(cells) < 4:
        return None
    ends = sorted(cells, key=lambda one: one[1])
    for (one, value), rest in ((ends[0], ends[1:]), (ends[-1], ends[:-1])):
        low, high = rest[0][1], rest[-1][1]
        if high > SPAN * low or low / FAR < value < high * FAR:
            continue
        for factor, word, of_time in UNITS:
            right = value * factor if value < low else value / factor
            if of_time and not (timed and high <= CLOSE * low):
                continue
            if one.digits > 1 and low / NEAR <= right <= high * NEAR:
                return one, (rest[0][0], rest[-1][0]), word
    return None


def swapped(subject: Subject) -> Iterator[Finding]:
    """A cell far off those before and after it, in a column of growing batches or numbers of devices."""
    for cells in subject.tables.values():
        columns = {several[0].figure.column: several for several in _columns(cells)}
        odd = {name: [*_odd(several)] for name, several in columns.items()}
        for found in odd.values():
            for one, before, after in found:
                other = next((each for each in _beside(one, columns) if _fits(each, before, after)), None)
                back = other and any(each is other and _fits(one, a, b) for each, a, b in odd[other.figure.column])
                expected = (
                    f"a figure like those before and after it, {before.figure.printed} and {after.figure.printed}"
                )
                told = (
                    f"{one.figure.printed}, swapped with {other.figure.column}"
                    if other and back
                    else one.figure.printed
                )
                yield of(one, ERROR if back else WARNING, expected, told)


def _odd(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Cell, Cell]]:
    sizes = [(one.devices, one.batch[1] or 0.0) for one in cells]
    if len(cells) < 3 or not all(a != b and a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(sizes)):
        return
    if len({one.setting for one in cells}) > 1:
        return
    for before, one, after in zip(cells, cells[1:], cells[2:], strict=False):
        low, high = sorted((before.number, after.number))
        if high < FAR * low and (one.number * FAR < low or one.number > FAR * high):
            yield one, before, after


def _beside(one: Cell, columns: dict[str, list[Cell]]) -> Iterator[Cell]:
    for several in columns.values():
        yield from (each for each in several if each.figure.row == one.figure.row and each is not one)


def _fits(one: Cell, before: Cell, after: Cell) -> bool:
    low, high = sorted((before.number, after.number))
    return low / 2 <= one.number <= high * 2


def exchanged(subject: Subject) -> Iterator[Finding]:
    """Of two columns of rates, a row in which one is over the other what the other is over it in all other rows."""
    for cells in subject.tables.values():
        columns = [several for several in _columns(cells) if several[0].figure.quantity == "throughput"]
        for a, b in combinations(columns[:WIDE], 2):
            beside = {one.figure.row: one for one in b}
            pairs = [(one, beside[one.figure.row]) for one in a if one.figure.row in beside]
            ratios = [one.number / other.number for one, other in pairs]
            odd = [at for at, ratio in enumerate(ratios) if (ratio > 1) != (statistics.median(ratios) > 1)]
            sizes = {each.size for pair in pairs for each in pair}  # on fewer devices another may well be ahead
            if len(pairs) < 4 or len(odd) != 1 or len(sizes) > 1:
                continue
            rest = [ratio for at, ratio in enumerate(ratios) if at != odd[0]]
            low, high = min(rest), max(rest)
            apart = low > APART or high < 1 / APART
            if apart and high < ALIKE * low and low / BESIDE <= 1 / ratios[odd[0]] <= high * BESIDE:
                one, other = pairs[odd[0]]
                expected = f"{low:.3g} to {high:.3g} times {other.figure.column}, as in all other rows"
                found = (
                    f"{one.figure.printed} over {other.figure.printed}: {ratios[odd[0]]:.3g}, as if they were swapped"
                )
                yield of(one, WARNING, expected, found)


#: columns that are compared; times that one is over the other at least, by which these may span, and one may be off
WIDE, APART, ALIKE, BESIDE = 10, 1.25, 1.6, 1.15


def clocks_fall(subject: Subject) -> Iterator[Finding]:
    """A column of a device's clock, row by row of time or steps, that ends far below its highest."""
    for cells in subject.tables.values():
        heads = [subject.labels.get(cells[0].figure.table, ""), *dict.fromkeys(one.figure.column for one in cells)]
        if not any(PASSING.search(head.replace("_", " ")) for head in heads):
            continue
        columns: dict[str, list[Cell]] = {}
        for one in cells:
            if CLOCK.search(one.figure.column.replace("_", " ")) and one.number:
                columns.setdefault(one.figure.column, []).append(one)
        for several in columns.values():
            most = max(several, key=lambda one: one.number)
            if (
                len(several) >= FEW
                and several[-1].number < DOWN * most.number
                and several[0].number > DOWN * most.number
            ):
                expected = f"a clock that stays near {most.figure.printed}"
                yield of(several[-1], WARNING, expected, f"{several[-1].figure.printed} at the end")


#: of a heading: a device's clock; that rows are of one run as it goes on
CLOCK = re.compile(
    r"\b(sm|gpu|core|graphics|boost)? ?(clocks?|freq(uency)?)\b.*\b[mg]hz\b|\bclock\b.*\bmhz\b|^mhz$", re.I
)
PASSING = re.compile(r"\b(time|elapsed|seconds|minutes?|step|iter(ation)?s?|timestamp|t)\b", re.IGNORECASE)
#: rows, and the share of its highest that a clock must keep
FEW, DOWN = 5, 0.9


def loads(subject: Subject) -> Iterator[Finding]:
    """What rows tell of throttling and of others on the machine."""
    for cells in subject.tables.values():
        throttled = [
            one
            for one in cells
            if "throttled" in one.figure.options and not CALM.fullmatch(one.figure.options["throttled"])
        ]
        for one in throttled[:1]:
            yield of(one, WARNING, "clocks that nothing holds down", one.figure.options["throttled"])
        told = {head for head in {one.figure.column for one in cells} if LOAD.search(head.replace("_", " "))}
        for one in (one for one in cells if one.figure.column in told and one.number):
            yield of(one, WARNING, "nobody else on the machine", one.figure.printed)


CALM = re.compile(r"(none|no|false|0(\.0*)?( ?%)?|0x0+|not active|idle|gpu_idle|-|n/?a|)", re.IGNORECASE)
LOAD = re.compile(
    r"(other|foreign) (\w+ )?(processes|load|process|users|cpu)|\bsteal\b|throttl|\butil\w* before", re.IGNORECASE
)


RULES = (
    Rule(
        "load that is told",
        "A table that tells of throttling or of others on the machine has neither.",
        WARNING,
        "none: any of it changes a figure",
        loads,
    ),
    Rule(
        "clock that falls",
        "A device's clock does not end far below its highest, as where it is throttled.",
        WARNING,
        "10 %, as for throttling in a record",
        clocks_fall,
    ),
    Rule(
        "another unit",
        "No cell of a column is a thousand or a million times off the others, nor 60 or 3,600 times if they are times.",
        ERROR,
        "ten times off all others, which span 30 at most (4 of 60 and 3,600), and among them in the other unit; rows "
        "of several devices or frameworks: a warning",
        units,
    ),
    Rule(
        "swapped between two columns",
        "Two systems of a table are in one proportion in all rows, not in its inverse in one.",
        WARNING,
        "1.25 times or more in all other rows, which span 1.6 at most, and within 15 % of these when they are swapped",
        exchanged,
    ),
    Rule(
        "far off its neighbours",
        "No cell is far off those before and after it, as batch or devices grow.",
        ERROR,
        "ten times off both; an error where two cells of a row fit when they are swapped",
        swapped,
    ),
)
