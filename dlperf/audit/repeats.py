"""Rules on digits that stand in two places. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from dlperf.audit import headings
from dlperf.audit.agreement import configuration, configurations
from dlperf.audit.beside import may_be_of
from dlperf.audit.cells import SECONDS, Cell, Subject, counted
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.neutral import NEUTRAL

#: cells that two tables have in common by chance: of three digits one in 900
LEAST_CELLS, LEAST_DIGITS = 4, 3
ALIKE = 0.8
#: of a model's name, how long it was trained
SCHEDULE = re.compile(r"[_\- ]\d+ ?(x|e|ep|epochs?)\b", re.IGNORECASE)
#: pairs of cells of a table that may have the same digits by chance, for such a pair to be told
RARE = 0.05
#: cells whose spread tells how near each other they are, as the steps of one run
MANY = 5

#: cells of a part of a table, by their digits
Printed = dict[str, Cell]
#: precision, model and table of a part
Part = tuple[str, str, str]


def two_models(subject: Subject) -> Iterator[Finding]:
    """The same digits in two tables: under two models an error, else a warning."""
    groups: dict[Part, list[Cell]] = {}
    whole: dict[Part, list[Cell]] = {}
    for one in filter(_measured, subject.cells):
        figure = one.figure
        groups.setdefault((figure.precision, figure.model, figure.table), []).append(one)
        whole.setdefault(("", figure.model, figure.table), []).append(one)
    large = {key[1:] for key, cells in groups.items() if len(cells) >= LEAST_CELLS}
    for key, cells in whole.items():  # of few cells of each precision
        if key[1:] not in large and len({one.figure.precision for one in cells}) > 1:
            groups[key] = cells
    sets = {key: {one.figure.printed: one for one in cells if _wide(one)} for key, cells in groups.items()}
    full = [(key, printed) for key, printed in sets.items() if len(printed) >= LEAST_CELLS - 1]
    holders: dict[str, list[int]] = {}
    for number, (_, printed) in enumerate(full):
        for digits in printed:
            holders.setdefault(digits, []).append(number)
    shared: dict[tuple[int, int], int] = {}
    for numbers in holders.values():
        for number in numbers[1:]:
            pair = numbers[0], number
            shared[pair] = shared.get(pair, 0) + 1
    for (a, b), count in sorted(shared.items()):
        yield from _same(full[a], full[b], count)


def _wide(one: Cell) -> bool:
    """Whether it has three digits or more, one of which may be a 0 at its end."""
    return one.digits + one.figure.printed.strip().endswith("0") >= LEAST_DIGITS


def _measured(one: Cell) -> bool:
    """Whether it is a rate or a time, which are a model's own."""
    figure = one.figure
    timed = figure.quantity == "time_to_train" or (
        figure.quantity == "other" and figure.unit in SECONDS and not CHOSEN.fullmatch(figure.column.strip())
    )
    return one.value is not None and not one.of_log and (figure.quantity == "throughput" or timed)


def _same(first: tuple[Part, Printed], second: tuple[Part, Printed], count: int) -> Iterator[Finding]:
    """count: of digits that both have."""
    ((_, model_a, table_a), a), ((_, model_b, _), b) = first, second
    same = [digits for digits in b if digits in a]
    sharp = count == min(len(a), len(b)) and sum(b[digits].digits for digits in same) > LEAST_DIGITS * (count + 1)
    round_ = sum(b[digits].digits < LEAST_DIGITS for digits in same)
    if count < ALIKE * min(len(a), len(b)) or count < LEAST_CELLS - sharp or round_ > 1:
        return
    cell, other = b[same[0]], a[same[0]]
    alone = cell.source != other.source  # as of one framework, which a file need not name
    if model_a == model_b and (configuration(cell) == configuration(other) or may_be_of(cell, other, alone)):
        return  # printed again
    if model_a != model_b and _spelt(model_a) == _spelt(model_b):
        return  # one network that was trained longer, or is spelt in another way
    named = bool(model_a and model_b)
    if model_a != model_b and not named and not _laid_out_alike([(a[digits], b[digits]) for digits in same]):
        return  # one that does not say its model may be a summary of the other
    what = f"{count} of {len(b)} cells as in {table_a}{f' of {model_a}' if model_a else ''} ({other.where})"
    expected = f"figures of {model_b} of its own" if model_a != model_b and model_b else "figures of its own"
    yield of(cell, ERROR if model_a != model_b and named else WARNING, expected, f"the digits of {what}")


def _spelt(model: str) -> str:
    """A name without its schedule, signs and the v of a version."""
    return re.sub(r"[^a-z0-9]|v(?=\d)", "", SCHEDULE.sub("", model).lower())


def _laid_out_alike(pairs: Sequence[tuple[Cell, Cell]]) -> bool:
    """Whether cells have the same row and column in two tables, which differ in what their titles say."""
    a, b = pairs[0]
    words = [{*re.findall(r"[^\W\d_]+", one.figure.system)} for one in (a, b)]
    alike = all((a.figure.row, a.figure.column) == (b.figure.row, b.figure.column) for a, b in pairs)
    return alike and bool((words[0] ^ words[1]) - NEUTRAL)


def repeated_digits(subject: Subject) -> Iterator[Finding]:
    """One rate, to four digits or more, for two numbers of devices of one series, or in two systems of a row."""
    for rates in subject.any_batch:
        seen: dict[str, Cell] = {}
        for one in filter(_of_its_own, rates):
            before = seen.setdefault(one.figure.printed, one)
            if before is not one and one.digits >= LEAST_DIGITS + 1:
                expected = f"another rate than on {before.size}"
                yield of(one, ERROR, expected, f"{one.figure.printed} on {one.size}, the same digits")
    for cells in configurations(subject, _loosely).values():
        apart = [one for one in _telling(cells) if not STEPPED.search(subject.labels.get(one.figure.table, ""))]
        yield from _alike(apart, "a rate of its own, of another system or version", subject.plain)
    for table in subject.tables.values():
        rates_ = [one for one in table if one.figure.quantity == "throughput" and one.number]
        times: dict[str, str] = {}
        for one in table:
            if one.figure.quantity == "other" and one.figure.unit in SECONDS:
                times.setdefault(one.figure.row, one.figure.printed)
        apart = _telling(rates_)
        printed = Counter((one.figure.printed, times.get(one.figure.row)) for one in apart)
        apart = [one for one in apart if printed[one.figure.printed, times.get(one.figure.row)] < 2 or not times]
        yield from _alike(apart, "a rate of its own", subject.plain)  # those of equal times are computed of them


def _of_its_own(one: Cell) -> bool:
    """Whether a rate is another in each row: not that of a device, of steps, or a median, which is one of its runs."""
    what = counted(one.figure.unit)
    told = f"{one.figure.row} | {one.figure.column}".replace("_", " ")
    return not what.startswith("steps") and " per " not in what and not CHOSEN.search(told)


#: of a table whose rows are parts of one run
STEPPED = re.compile(r"\b(windows?|steps?|iterations?|iter|epochs?|intervals?)\b", re.IGNORECASE)
#: of a row or column that has one of the others' figures, or may well have it
CHOSEN = re.compile(r"\b(median|mean|average|avg|min(imum)?|max(imum)?|best|worst|p\d\d)\b", re.IGNORECASE)


def _telling(cells: Sequence[Cell]) -> list[Cell]:
    """Those with so many digits that hardly a pair of so many cells has the same ones by chance."""
    cells = [one for one in cells if not one.of_log and _of_its_own(one)]
    pairs = len(cells) * (len(cells) - 1) / 2
    numbers = sorted(one.number for one in cells)
    few = len(cells) // 10  # at either end, left out
    span = numbers[-1 - few] - numbers[few] if len(cells) >= MANY else math.inf
    return [one for one in cells if pairs / min(9 * 10.0 ** max(0, one.digits - 1), max(1.0, span / one.ulp)) < RARE]


def _alike(cells: Sequence[Cell], expected: str, plain: bool) -> Iterator[Finding]:
    """The same digits in cells that are not of the same configuration, nor of one series. plain: of a file, whose
    tables print figures again."""
    seen: dict[str, Cell] = {}
    for one in cells:
        before = seen.setdefault(one.figure.printed, one)
        if before is one or one.digits <= LEAST_DIGITS or configuration(one) == configuration(before):
            continue
        if one.figure.table == before.figure.table and one.figure.model != before.figure.model:
            continue
        devices = {headings.card(each.figure.device) for each in (one, before)} - {""}
        other = one.figure.table != before.figure.table and len(devices) < 2
        again = plain and other and one.size == before.size and may_be_of(one, before, one.source != before.source)
        if not again and (one.setting != before.setting or one.size == before.size):
            place = before.figure
            at = f"{place.table} / {place.row} / {place.column} ({before.where})"
            yield of(one, WARNING, expected, f"{one.figure.printed}, the same digits as {at}")


def _loosely(one: Cell) -> Hashable:
    """Whatever the system and its version."""
    figure = one.figure
    told = figure.options.get("sequence", ""), figure.options.get("data", "")
    model = figure.model or figure.table
    return model, figure.precision, counted(figure.unit), told, one.batch, one.size, figure.framework


RULES = (
    Rule(
        "one table under two models",
        "Two models, or two configurations, do not have the same digits.",
        ERROR,
        "four cells or more of three digits or more, or three of four digits, of which 80 % are the same: by chance "
        "less than once in 10^9",
        two_models,
    ),
    Rule(
        "repeated digits",
        "Two numbers of devices do not have one rate to four digits, nor two systems or rows.",
        ERROR,
        "by chance one pair of cells in 9,000, and less than 0.05 pairs in a table of its size",
        repeated_digits,
    ),
)
