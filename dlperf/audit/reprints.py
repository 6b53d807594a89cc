"""Rules on figures that a source prints twice: a column again in another table, a cell again in the prose. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from dlperf.audit import headings
from dlperf.audit.agreement import estimators_differ
from dlperf.audit.beside import may_be_of
from dlperf.audit.cells import SECONDS, Cell, Subject, counted, series
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.neutral import NEUTRAL
from dlperf.audit.scaling import NOISE
from dlperf.figures.published import number

#: digits of a cell by which it is known again; one cell of 9,000 has those of another by chance
SHARP = 4
#: by which figures differ that were measured again, in the tables of NVIDIA's and PaddlePaddle's READMEs
AGAIN = 0.10
#: of a source, columns that are held against each other
MOST = 2000

#: figures of a column that is known by its digits, columns that are compared, and digits that they have in all
LEAST, WIDE, TOGETHER = 2, 300, 6
#: cells of one column, or row, by number of devices, or by what else tells rows apart
Line = Mapping[Hashable, Cell]


def differs(subject: Subject) -> Iterator[Finding]:
    """A column that stands in two tables: most of its cells with the same digits, one or two with others."""
    if not subject.plain:
        return
    lines: list[Line] = [
        {one.devices: one for one in several}
        for batch in (lambda one: one.batch, lambda one: one.global_batch)
        for several in series([one for one in subject.rates if not one.of_log], (batch,))
    ]
    lines = [*lines[:MOST], *_labelled(subject)][:MOST]
    holders: dict[Hashable, list[int]] = {}
    for at, line in enumerate(lines):
        for size, one in line.items():
            if one.digits >= SHARP - 1:
                holders.setdefault((size, one.number), []).append(at)
    pairs = Counter((a, b) for several in holders.values() for n, a in enumerate(several) for b in several[n + 1 :])
    told: set[int] = set()
    for (a, b), count in pairs.items():
        for one, other in _odd(lines[a], lines[b], count):
            known = one.figure.table != other.figure.table and _told_apart(one, other)
            if id(one) not in told and known:
                told |= {id(one), id(other)}
                yield _finding(one, other, count)


def _labelled(subject: Subject) -> Iterator[Line]:
    """Columns of rates by framework, or by the names of rows, where these and the number of devices tell all apart."""
    columns: dict[Hashable, list[Cell]] = {}
    for one in subject.rates:
        if not one.of_log:
            columns.setdefault((one.figure.table, one.figure.column), []).append(one)
    for cells in columns.values():
        frameworks = all(one.figure.framework for one in cells)
        keys = [(_name(one.figure.row, frameworks, one), one.size) for one in cells]
        if len(cells) > 2 and len({*keys}) == len(cells) and all(name for name, _ in keys):
            yield dict(zip(keys, cells, strict=True))


def _name(row: str, frameworks: bool, one: Cell) -> str:
    """Of a row: its framework, or the first part of its label, which has a letter."""
    name = one.figure.framework if frameworks else row.split(" | ")[0].strip().lower()
    return name if re.search("[a-z]", name) else ""


def _odd(first: Line, second: Line, count: int) -> list[tuple[Cell, Cell]]:
    """Cells of the second that are not the first's; none where the two are not known to be one column."""
    shared = [(second[size], first[size]) for size in first if size in second]
    odd = [(one, other) for one, other in shared if _apart(one, other)]
    same = [one for one, other in shared if one.number == other.number]
    if not odd or not same or not all(_may_be(one, other) for one, other in shared):
        return []
    sharp = sum(one.digits >= SHARP for one in same)
    if len(same) > 1 and sharp and len(odd) <= max(1, len(shared) // 3):
        return odd
    certain = sharp and odd[0][0].number and abs(odd[0][1].number / odd[0][0].number - 1) > NOISE
    if len(same) == 1 and sharp > 0 and same[0].digits > SHARP + 1 and _of_two_documents(*odd[0]) and len(odd) == 1:
        return odd
    certain = certain and len(odd) == 1 and len(shared) == 2 and _mistyped(*(one.figure.printed for one in odd[0]))
    return odd if certain and may_be_of(*odd[0]) else []


def _of_two_documents(one: Cell, other: Cell) -> bool:
    """Whether they stand in two documents, of which each has its own tables, and are of one thing by what both tell."""
    return one.source != other.source and may_be_of(one, other, alone=True)


def _mistyped(a: str, b: str) -> bool:
    """Whether numbers of five digits or more differ by two that are put in, left out or another."""
    first, second = (re.sub(r"\D", "", one) for one in (a, b))
    before = list(range(len(second) + 1))
    for at, digit in enumerate(first, 1):
        line = [at]
        for n, other in enumerate(second, 1):
            line.append(min(before[n] + 1, line[-1] + 1, before[n - 1] + (digit != other)))
        before = line
    return slipped(a, b) or (len(first) == len(second) > SHARP and before[-1] <= 2)


def _may_be(a: Cell, b: Cell) -> bool:
    """Whether nothing that both tell differs, but for words that no field has."""
    one, other = a.figure, b.figure
    told = [(getattr(one, key).lower(), getattr(other, key).lower()) for key in ("model", "precision", "framework")]
    told += [(counted(one.unit), counted(other.unit)), (one.options.get("sequence"), other.options.get("sequence"))]
    batches = a.batch == b.batch or not (a.batch[1] and b.batch[1])
    return batches and all(x == y or not x or not y for x, y in told) and not estimators_differ(a, b)


def _apart(a: Cell, b: Cell) -> bool:
    return a.low > b.high or b.low > a.high


def _told_apart(one: Cell, other: Cell) -> bool:
    """Whether it is a mistake in typing, or so near that it was measured again, and not a change that is shown."""
    near = abs(one.number / other.number - 1) < AGAIN
    return near or slipped(one.figure.printed, other.figure.printed)


def _finding(one: Cell, other: Cell, count: int) -> Finding:
    """The one that stands in the later table. A warning where it may be of another network between hosts."""
    apart = max(one.number, other.number) / min(one.number, other.number) - 1
    slip = slipped(one.figure.printed, other.figure.printed)
    expected = f"{other.figure.printed}, as in {other.figure.table} ({other.where}), with which {count} more agree"
    found = f"{one.figure.printed}, {100 * apart:.1f} % apart"
    return of(one, ERROR if slip and apart > NOISE else WARNING, expected, found)


def slipped(a: str, b: str) -> bool:
    """Whether two numbers of as many digits differ in one of them, or in the order of two or more."""
    digits = [re.sub(r"\D", "", one) for one in (a, b)]
    if len(digits[0]) != len(digits[1]) or digits[0] == digits[1] or len(digits[0]) < SHARP:
        return False
    wrong = [n for n in range(len(digits[0])) if digits[0][n] != digits[1][n]]
    moved = sorted(digits[0]) == sorted(digits[1]) and wrong[-1] - wrong[0] < SHARP
    return len(wrong) == 1 or moved


#: of prose, a rate with its unit
_RATE = re.compile(
    rf"(?<![\d.,])(\d[\d,]*(?:\.\d+)?) ?\**_* ?(?:k|thousand)?(?={headings.UNITS.pattern})", re.IGNORECASE
)


def in_prose(subject: Subject) -> Iterator[Finding]:
    """Rates of a sentence that names a number of devices, against the cells on as many."""
    cells: dict[int, list[Cell]] = {}
    for one in subject.rates:
        if not one.of_log and one.size:
            cells.setdefault(one.size, []).append(one)
    for line, sentence in _sentences(subject.notes):
        size = headings.size(sentence)[1]
        rates = [found for found in _RATE.finditer(sentence)]
        mine = [one for one in cells.get(size or 0, ()) if _speaks_of(sentence, one)]
        if len(rates) != 1 or not mine:
            continue
        printed = rates[0][1].rstrip(",")
        told = number(printed)
        if told is None or any(abs(one.number - told[0]) <= max(one.ulp, told[1]) for one in mine):
            continue
        near = [one for one in mine if one.digits >= SHARP - 1 and slipped(printed, one.figure.printed)]
        if len(near) == 1 and abs(told[0] / near[0].number - 1) > NOISE:
            expected = f"{printed}, as its text says: “{line[:80]}”"
            yield of(near[0], ERROR, expected, near[0].figure.printed)


def _sentences(prose: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each with its line, without stars."""
    for line in prose:
        plain = re.sub(r"[*_`]{1,3}", "", line)
        yield from ((plain, one) for one in re.split(r"(?<=[.;!?])\s+(?=[A-Z])", plain))


def _speaks_of(sentence: str, one: Cell) -> bool:
    """Whether a sentence names no other precision, framework or model, and counts the same."""
    figure = one.figure
    unit = headings.unit(sentence, True)
    pairs = (
        (headings.precision(sentence), figure.precision),
        (headings.framework(sentence), figure.framework),
        (counted(unit) if unit else "", counted(figure.unit) if figure.unit else ""),
    )
    return all(a == b or not a or not b for a, b in pairs)


def slips(subject: Subject) -> Iterator[Finding]:
    """A figure that two tables have of one thing, as far as both tell, but for one digit or the order of two."""
    if not subject.plain or len(subject.tables) < 2:
        return
    cells = [
        one
        for one in subject.rates
        if not one.of_log
        and one.size
        and one.digits >= SHARP - 1
        and len(re.sub(r"\D", "", one.figure.printed)) >= SHARP
    ]
    printed: dict[str, set[str]] = {}
    groups: dict[Hashable, list[Cell]] = {}
    for one in cells:
        printed.setdefault(one.figure.table, set()).add(one.figure.printed)
        for key in _nearly(re.sub(r"\D", "", one.figure.printed)):
            groups.setdefault((key, one.size, counted(one.figure.unit), headings.card(one.figure.device)), []).append(
                one
            )
    told: set[int] = set()
    for several in groups.values():
        if len(several) != 2:
            continue  # more are chance
        one, other = several
        tables = one.figure.table, other.figure.table
        again = other.figure.printed in printed[tables[0]] or one.figure.printed in printed[tables[1]]
        if tables[0] == tables[1] or id(other) in told or again or not _is_one(one, other):
            continue
        apart = max(one.number, other.number) / min(one.number, other.number) - 1
        moved = len({"".join(sorted(re.sub(r"\D", "", each.figure.printed))) for each in several}) == 1
        plain = "." not in one.figure.printed  # of so few digits one may be another by chance
        sure = moved and printed[tables[0]] & printed[tables[1]]
        if (sure or (apart > NOISE and (moved or not plain))) and slipped(one.figure.printed, other.figure.printed):
            told.add(id(other))
            expected = f"{one.figure.printed}, as in {one.figure.table} ({one.where})"
            yield of(other, WARNING, expected, f"{other.figure.printed}, {100 * apart:.1f} % apart")


def odd_of_three(subject: Subject) -> Iterator[Finding]:
    """Of tables that tell all of a figure's setting, two have one figure, and another has another near it."""
    groups: dict[Hashable, list[Cell]] = {}
    for one in subject.rates if subject.plain and len(subject.tables) > 2 else ():
        figure = one.figure
        if figure.model and figure.framework and one.size and not one.of_log and one.digits > SHARP:
            key = figure.model, figure.framework, figure.precision, one.size, one.batch, counted(figure.unit)
            groups.setdefault(key, []).append(one)
    for cells in groups.values():
        tables: dict[str, set[str]] = {}
        for one in cells:
            tables.setdefault(one.figure.printed, set()).add(one.figure.table)
        usual = [printed for printed, names in tables.items() if len(names) > 1]
        for one in (one for one in cells if one.figure.printed not in usual):
            other = (each for each in cells if each.figure.printed in usual)
            like = min(other, key=lambda each: abs(each.number - one.number), default=one)
            near = NOISE / 4 < abs(one.number / like.number - 1) < AGAIN
            names = tables[like.figure.printed]
            if near and one.figure.table not in names:
                expected = f"{like.figure.printed}, as in {len(names)} other tables ({like.where})"
                yield of(one, WARNING, expected, one.figure.printed)


def rescaled(subject: Subject) -> Iterator[Finding]:
    """A column of another file with the same digits, which counts something else or is of another unit."""
    columns: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for one in subject.cells:
        timed = one.figure.quantity == "other" and one.figure.unit in SECONDS
        digits = re.sub(r"\D", "", one.figure.printed).strip("0")
        if (one.figure.quantity == "throughput" or timed) and len(digits) > 1 and not one.of_log:
            columns.setdefault((one.source, one.figure.table, one.figure.column), {})[digits] = one
    lines = [(key, line) for key, line in columns.items() if len(line) >= LEAST][:WIDE]
    for n, ((source, *_), line) in enumerate(lines):
        for (other, *_), beside in lines[n + 1 :]:
            both = line.keys() & beside.keys()
            if source == other or len(both) < min(len(line), len(beside)) or sum(map(len, both)) < TOGETHER:
                continue
            digits = min(both)
            a, b = line[digits], beside[digits]
            times = b.number / a.number
            units = counted(a.figure.unit), counted(b.figure.unit)
            scale = SECONDS.get(b.figure.unit, 1.0) / SECONDS.get(a.figure.unit, 1.0)
            same = abs(times * scale - 1) < NOISE and (units[0] == units[1] or scale != 1)
            if a.figure.quantity == b.figure.quantity and not same:
                expected = f"{a.figure.printed} {a.figure.unit}, as in {a.figure.table} ({a.where})"
                yield of(b, WARNING, expected, f"{b.figure.printed} {b.figure.unit}", len(both) - 1)


def _nearly(digits: str) -> Iterator[str]:
    """What numbers have in common that differ in one digit, or in the order of some."""
    yield "".join(sorted(digits))
    yield from (f"{digits[:at]}_{digits[at + 1 :]}" for at in range(len(digits)))


def _is_one(a: Cell, b: Cell) -> bool:
    """Whether both tell of one thing by a name, and one of them of no other."""
    one, other = a.figure, b.figure
    named = (one.model and one.model == other.model) or (one.framework and one.framework == other.framework)
    words = [{*re.findall(r"[a-z0-9.+]+", each.system.lower())} - NEUTRAL for each in (one, other)]
    inside = words[0] <= words[1] or words[1] <= words[0]
    return inside and bool(named or (words[0] & words[1])) and _may_be(a, b)


RULES = (
    Rule(
        "odd one of three tables",
        "A figure whose setting three tables tell is the same in all.",
        WARNING,
        "two agree to five digits, the third is up to 10 % off",
        odd_of_three,
    ),
    Rule(
        "unit of a copy",
        "A column that stands in two files, digit for digit, has one unit in both.",
        WARNING,
        "three figures of three digits or more",
        rescaled,
    ),
    Rule(
        "slip between tables",
        "What two tables have of one model, size and device has the same digits.",
        WARNING,
        "one digit of four or more is another, or digits changed places, by more than 2 %",
        slips,
    ),
    Rule(
        "reprint that differs",
        "A column that stands in two tables has the same figures in both.",
        ERROR,
        "two cells that agree, one of four digits, for each that does not: by chance less than once in 10^6; an error "
        "where one digit is another or digits changed places, by more than 2 %; else up to 10 % a warning",
        differs,
    ),
    Rule(
        "prose and table",
        "A rate in the prose of a source is that of the cell which it speaks of.",
        ERROR,
        "one digit of four or more is another, or digits changed places, and no cell on as many devices has the figure",
        in_prose,
    ),
)
