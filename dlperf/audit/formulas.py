"""What a column is computed by, where its heading does not tell: the formula that most of its cells are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dlperf.audit.cells import SECONDS, Cell
from dlperf.audit.fields import pair
from dlperf.audit.ratio import NARROW, Ratio, compared, gains, percent, scale_of

Row = tuple[Cell, Sequence[Cell]]

#: rows by which a formula is looked for
SAMPLE = 200
#: of a formula, the column that is held against another, or against the row that has 1 where there is none; see Ratio
Formula = tuple[str, str, float, float]


def inferred(several: Sequence[Row]) -> Iterator[list[Ratio]]:
    """Of a column whose heading does not tell: the formula by which most of its cells, and two at least, are ratios of
    others; or that of the two columns which it names."""
    if made := _of_two_columns(several):
        yield from ([one] for one in made)
        return
    if sized := _of_two_sizes(several):
        yield from ([one] for one in sized)
        return
    tried = [(formula, _made(formula, several[:SAMPLE])) for formula in _formulas(several)]
    formula, made = max(tried, key=lambda one: _score(one[1]), default=(("", "", 1.0, 0.0), []))
    score = _score(made)
    wrong = len(made) - score
    if score and len(made) > 1 and wrong <= max(1, len(made) // 3) and (score > 1 or len(made) == 2):
        yield from ([one] for one in (made if len(several) <= SAMPLE else _made(formula, several)))
    elif moved := next((made_ for _, made_ in tried if _moved(made_)), None):
        yield from ([one] for one in moved)
    elif not score and (named := list(_both(several))):
        yield from ([one] for one in named)
    elif not score:
        yield from ([one] for one in _over_the_row_with_1(several))


def _told(made: Sequence[Ratio]) -> bool:
    """Whether it is what a column is: its cells but for one, or for a third."""
    return _score(made) > 0 and len(made) - _score(made) <= max(1, len(made) // 3) and len(made) > 1


def _of_two_columns(several: Sequence[Row]) -> list[Ratio]:
    """Of the two columns that its heading names, in the order, and as a ratio or a gain, that most of its cells are."""
    heads = tuple(dict.fromkeys(one.figure.column for _, row in several for one in row))
    named = pair(several[0][0].figure.column, heads)
    if not named:
        return []
    slots = [(one, {other.figure.column: other for other in row if other.number > 0}) for one, row in several]
    whole = [(one, row[named[0]], row[named[1]]) for one, row in slots if set(named) <= row.keys()]
    tried = [
        [Ratio(one, *((a, b) if straight else (b, a)), scale, less) for one, a, b in whole]
        for straight in (True, False)
        for scale, less in _scales(several[0][0])
    ]
    best = max(tried, key=_score)
    return best if _told(best) else next(filter(_moved, tried), [])


def _moved(made: Sequence[Ratio]) -> bool:
    """Whether cells are just the ratios of a formula, some of them in another row: of three digits or more each."""
    if not 2 < len(made) <= SAMPLE or any(one.cell.number < SHARP * one.cell.ulp for one in made):
        return False
    pairs = zip(sorted(one.number for one in made), sorted(made, key=lambda one: one.cell.number), strict=True)
    alike = all(abs(number - one.cell.number) < one.cell.ulp for number, one in pairs)
    return alike and _score(made) > 0


#: of its last digit, what a cell has at least that may stand in another row: three digits
SHARP = 100


def _over_the_row_with_1(several: Sequence[Row]) -> list[Ratio]:
    """Of two rows: a speedup with one other column that it can be of, where one row has 1."""
    ones = [one for one, _ in several if one.number == percent(one)]
    slots = [[other for other in row if _slot(other) and other.figure.unit] for _, row in several]
    columns = {other.figure.column for row in slots for other in row}
    if (
        len(ones) != 1
        or len(several) != 2
        or len(columns) != 1
        or several[0][0].figure.quantity != "speedup"
        or not all(slots)
    ):
        return []
    return list(_over_rows([one for one, _ in several], [slot[0] for slot in slots], percent(ones[0]), 0.0))


def by_value(several: Sequence[Row]) -> list[Ratio]:
    """Of a column whose heading says nothing: where it begins with 1, or 100, on the fewest devices, and all of its
    cells but one are speedups or efficiencies of a column beside it."""
    sizes = [one.size for one, _ in several]
    first, row = several[0]
    if len(several) < FEWEST or None in sizes or len(set(sizes)) < len(sizes) or first.number not in (1.0, 100.0):
        return []
    least, tried = min(one.devices for one, _ in several), []
    for base in (other for other in row if _slot(other) and other.figure.column != first.figure.column):
        own = [[other for other in line if other.figure.column == base.figure.column] for _, line in several]
        if first.size != least or not all(len(one) == 1 and one[0].number > 0 for one in own):
            continue
        for shared in (True, False):
            scales = [first.number * (least / one.devices if shared else 1.0) for one, _ in several]
            pairs = zip(several[1:], own[1:], scales[1:], strict=True)
            tried.append([_ratio(one, of[0], base, scale, 0.0) for (one, _), of, scale in pairs])
    best = max(tried, key=_score, default=[])
    return best if _score(best) > 1 and len(best) - _score(best) < 2 else []


#: rows of which a column is known by its values: two that fit and one that does not, besides the first
FEWEST = 4


def _of_two_sizes(several: Sequence[Row]) -> list[Ratio]:
    """Of rows with two rates, on two numbers of devices: the larger over the smaller, where some cell is that."""
    made: list[Ratio] = []
    for one, row in several:
        rates = [other for other in row if other.figure.quantity == "throughput" and other.number]
        if len(rates) != 2 or not all(rate.size for rate in rates) or one.figure.quantity == "other":
            return []
        below, above = sorted(rates, key=lambda rate: rate.devices)
        if below.size == above.size or compared(one.figure.column):
            return []
        made.append(Ratio(one, above, below, scale_of(one, above, below)))
    return made if _score(made) else []


def _score(made: Sequence[Ratio]) -> int:
    return sum(one.told_by for one in made)


def _formulas(several: Sequence[Row]) -> Iterator[Formula]:
    rows = [{one.figure.column for one in row if _slot(one)} for _, row in several]
    columns = [
        name for name in dict.fromkeys(one.figure.column for one in several[0][1]) if all(name in row for row in rows)
    ]
    for scale, less in _scales(several[0][0]):
        for above in columns[:8]:
            yield above, "", scale, less
            yield from ((above, below, scale, less) for below in columns[:8] if above != below)


def _made(formula: Formula, several: Sequence[Row]) -> list[Ratio]:
    """Without cells that are 1 by themselves."""
    above, below, scale, less = formula
    slots = [{one.figure.column: one for one in row if _slot(one)} for _, row in several]
    cells = [one for one, _ in several]
    if not below:
        return list(_over_rows(cells, [row[above] for row in slots], scale, less))
    return [_ratio(one, row[above], row[below], scale, less) for one, row in zip(cells, slots, strict=True)]


def _slot(one: Cell) -> bool:
    figure = one.figure
    timed = figure.quantity in ("other", "time_to_train") and figure.unit in SECONDS and not gains(one)
    bare = figure.quantity == "other" and not figure.unit and NARROW.fullmatch(figure.column.strip())
    return bool(one.number) and (figure.quantity == "throughput" or timed or bool(bare))


def _scales(one: Cell) -> Sequence[tuple[float, float]]:
    scale = percent(one)
    plain = (scale, 0.0)
    return [plain, (scale, 1.0)] if scale > 1 or gains(one) else [plain]


def _over_rows(cells: Sequence[Cell], slots: Sequence[Cell], scale: float, less: float) -> Iterator[Ratio]:
    """Over the nearest row above, or else below, that has 1."""
    bases = [slot for one, slot in zip(cells, slots, strict=True) if abs(one.number / scale - (1 - less)) < 1e-9]
    ones = {id(slot) for slot in bases}
    base = bases[0] if bases else None
    for one, slot in zip(cells, slots, strict=True):
        if id(slot) in ones:
            base = slot
        elif base is not None:
            yield _ratio(one, slot, base, scale, less)


def _ratio(one: Cell, above: Cell, below: Cell, scale: float, less: float) -> Ratio:
    timed = above.figure.quantity != "throughput"
    return Ratio(one, below, above, scale, less) if timed else Ratio(one, above, below, scale, less)


def _both(several: Sequence[Row]) -> Iterator[Ratio]:
    """Of the two columns that a heading names: `A vs B`."""
    for one, row in several:
        rates = [other for other in row if other.figure.quantity == "throughput" and other.number]
        first, _, second = re.sub(r"\b(vs\.?|over|/|relative to)(?=\s)", "\0", one.figure.column.lower()).partition(
            "\0"
        )
        named = [[rate for rate in rates if _names(part, rate, rates)] for part in (first, second)]
        if len(named[0]) == len(named[1]) == 1 and named[0] != named[1]:
            yield min(
                (Ratio(one, named[0][0], named[1][0], scale, less) for scale, less in _scales(one)),
                key=lambda made: made.off,
            )


def _names(part: str, rate: Cell, rates: Sequence[Cell]) -> bool:
    """Whether a word of a heading is of this column's, and of no other's."""
    words = {id(one): set(re.findall(r"[a-z0-9.]+", one.figure.column.lower())) for one in rates}
    mine = words[id(rate)].difference(*(told for key, told in words.items() if key != id(rate)))
    return bool(mine & set(re.findall(r"[a-z0-9.]+", part)))
