"""What derived cells are computed of: the rates of their row, of a series, or of a row that the others are held
against. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dlperf.audit.cells import SECONDS, Cell, Subject
from dlperf.figures.published import PRECISIONS

NARROW = re.compile(r"fp32|tf32|fp16|bf16|amp|mixed", re.IGNORECASE)
#: of a heading, that its cells are held against something else than fewer devices; and that they are shares of a change
COMPARED = re.compile(r"\bvs\b|\bover\b|relative|normali[sz]ed|\bratio\b|compared|baseline", re.IGNORECASE)
GAINS = re.compile(r"\bgain\b|improvement|uplift|\bfaster\b|overhead|\bdelta\b|\bdiff(erence)?\b", re.IGNORECASE)


@dataclass(frozen=True)
class Ratio:
    """A printed cell that is one rate over another. scale: 100 of per cent, over the devices of an efficiency."""

    cell: Cell
    above: Cell
    below: Cell
    scale: float
    less: float = 0.0  # subtracted before scaling: 1 of an overhead

    @property
    def number(self) -> float:
        return (self.above.number / self.below.number - self.less) * self.scale

    @property
    def span(self) -> tuple[float, float]:
        """What it may be before its rates were rounded."""
        if self.above is self.below:
            return self.number, self.number
        low = (self.above.low / self.below.high - self.less) * self.scale
        return low, (self.above.high / max(self.below.low, 1e-12) - self.less) * self.scale

    @property
    def rounds(self) -> bool:
        return self.off <= self.cell.ulp / 2 * (1 + 1e-9)

    @property
    def cut(self) -> bool:
        return 0 <= self.number - self.cell.number < self.cell.ulp * (1 - 1e-9)

    @property
    def off(self) -> float:
        return abs(self.number - self.cell.number)

    @property
    def told_by(self) -> bool:
        """Whether it gives the cell, by two digits at least, as 3.0 has."""
        return (self.cell.digits > 1 or (self.cell.decimals > 0 and self.cell.number >= 1)) and (
            self.rounds or self.cut or self.near
        )

    @property
    def near(self) -> bool:
        """Off by one in the last digit; by two, where its rates may have had more digits."""
        return self.off < (2.5 if self.possible else 1.5) * self.cell.ulp

    @property
    def possible(self) -> bool:
        """Whether rates that round to what is printed give it."""
        low, high = self.span
        value, half = self.cell.number or 0, self.cell.ulp / 2
        return low <= value + half and value - half <= high

    @property
    def possible_if_cut(self) -> bool:
        """The same of a ratio that is cut instead of rounded."""
        low, high = self.span
        return low < self.cell.number + self.cell.ulp and self.cell.number <= high

    @property
    def told(self) -> str:
        number = f"{self.number:,.{self.cell.decimals + 1}f}"
        over = f"{self.above.figure.printed} over {self.below.figure.printed}"
        shares = f", of {self.above.size} devices" if self.scale not in (1.0, 100.0) else ""
        return f"{number}: {over}{shares}"


Row = tuple[Cell, Sequence[Cell]]


@lru_cache(maxsize=1)  # several rules ask for those of one subject
def ratios(subject: Subject) -> list[list[Ratio]]:
    """Of each derived cell, the ratios of the source's own cells that it may be, the likeliest first."""
    loose = {
        id(one): several for kind in (subject.any_batch, subject.same_batch) for several in kind for one in several
    }
    alone: dict[Hashable, list[Cell]] = {}
    for rate in subject.rates:
        if rate.figure.devices == 1 and rate.value:
            alone.setdefault(_kind(rate), []).append(rate)
    found: list[list[Ratio]] = []
    for cells in subject.tables.values():
        rows: dict[str, list[Cell]] = {}
        for one in cells:
            rows.setdefault(one.figure.row, []).append(one)
        scaled: dict[Hashable, list[tuple[Cell, Cell]]] = {}
        others: dict[str, list[Row]] = {}
        sized = _of_sizes(cells)
        mine = [(one, rows[one.figure.row]) for one in cells if one.value is not None and derived(one)]
        owned = [(one, row, _of_its_row(one, row, sized)) for one, row in mine]
        ones = _ones(owned)
        for one, row, own in owned:
            column = one.figure.column
            rates = [other for other in row if other.figure.quantity == "throughput" and other.number]
            if made := _named(one, rates) or _over_one(one, own, loose, [*_alone(own, alone), *ones.get(column, ())]):
                found.append(made)
            elif own and len(loose.get(id(own), ())) > 1:
                series = loose[id(own)]
                down = series[0].figure.column == series[-1].figure.column
                scaled.setdefault((id(series[0]), one.figure.quantity, column if down else ""), []).append((one, own))
            else:
                others.setdefault(column, []).append((one, row))
        found += [made for several in scaled.values() for made in _over_several(several)]
        found += [made for several_ in others.values() for made in _inferred(several_)]
    return found


def compared(column: str) -> bool:
    """Whether its cells are not over fewer devices: over another system, or precision."""
    other = NARROW.search(column) and not re.search(r"scaling|efficien", column, re.IGNORECASE)
    return bool(other or COMPARED.search(column))


def _of_sizes(cells: Sequence[Cell]) -> set[str]:
    """Columns of speedups that are named for a precision each, and all begin with 1: each over its own fewest devices,
    since over another precision one of them at most would."""
    first: dict[str, Cell] = {}
    for one in cells:
        if one.figure.quantity == "speedup" and one.value is not None and not COMPARED.search(one.figure.column):
            first.setdefault(one.figure.column, one)
    named = {column: one for column, one in first.items() if len(NARROW.findall(column)) == 1 and one.size}
    alike = len({one.figure.row for one in named.values()}) == 1 and all(one.number == 1 for one in named.values())
    return set(named) if alike and len({one.figure.precision for one in named.values()}) > 1 else set()


def derived(one: Cell) -> bool:
    """Whether a cell is computed of others, by its heading."""
    figure = one.figure
    return figure.quantity in ("speedup", "efficiency") or (figure.quantity == "other" and _gains(one))


def _gains(one: Cell) -> bool:
    return bool(GAINS.search(one.figure.column.replace("_", " ")))


def _named(one: Cell, rates: Sequence[Cell]) -> list[Ratio]:
    """An overhead, or a speedup over another precision."""
    if one.figure.quantity == "other":
        overhead = len(rates) > 1 and re.search("overhead", one.figure.column, re.IGNORECASE)
        return [Ratio(one, rates[0], rates[1], percent(one), 1.0)] if overhead else []
    return _over_precision(one, rates) if one.figure.quantity == "speedup" and _of_precision(one) else []


def _of_its_row(one: Cell, row: Sequence[Cell], sized: Collection[str]) -> Cell | None:
    """The rate that a derived cell is of, where that is over fewer devices."""
    column = one.figure.column
    rates = [other for other in row if other.figure.quantity == "throughput" and other.number]
    return None if compared(column) and column not in sized else _own(one, rates)


def _ones(owned: Sequence[tuple[Cell, Sequence[Cell], Cell | None]]) -> dict[str, list[Cell]]:
    """By column the rates of cells that are 1, on the fewest devices of these: each may be what others are over."""
    found: dict[str, list[Cell]] = {}
    for one, _, own in owned:
        if own is not None and own.size and one.number == percent(one):
            found.setdefault(one.figure.column, []).append(own)
    least = {column: min(own.devices for own in several) for column, several in found.items()}
    return {column: [own for own in several if own.size == least[column]] for column, several in found.items()}


def _over_one(
    one: Cell, own: Cell | None, loose: Mapping[int, Sequence[Cell]], others: Sequence[Cell]
) -> list[Ratio]:
    """Over one device, or one node where that is said. others: rates that it may be over as well."""
    if own is None:
        return []
    series = loose.get(id(own), ())
    first = [base for base in series[:1] if base.size == 1 or one.figure.options.get("over") == "1_node"]
    here = [base for base in others if base.figure.table == own.figure.table]
    first += [base for base in others if base not in here]
    same = [base for base in here if first and base.setting == own.setting]  # else its series begins with several
    bases = {id(base): base for base in (*first, *same)}
    return [Ratio(one, own, base, _scale(one, own, base)) for base in bases.values()]


def _over_several(several: Sequence[tuple[Cell, Cell]]) -> Iterator[list[Ratio]]:
    """Of a series that begins with several devices: over these, if it says so; else over what most cells imply."""
    first, base = several[0]
    if abs(first.number / percent(first) - 1) <= first.ulp / percent(first) and len(several) > 1:
        yield from ([Ratio(one, own, base, _scale(one, own, base))] for one, own in several)
        return
    implied = [_implied(one, own) for one, own in several]
    agree = [[a[0] <= b[1] and b[0] <= a[1] for a in implied] for b in implied]
    at = max(range(len(agree)), key=lambda n: sum(agree[n]))
    if sum(agree[at]) > 1 and sum(agree[at]) * 3 >= 2 * len(agree):
        one, own = several[at]
        for (other, rate), same in zip(several, agree[at], strict=True):
            if not same:
                yield [Ratio(other, rate, own, one.number * _scale(other, rate, own) / percent(one))]


def _implied(one: Cell, own: Cell) -> tuple[float, float]:
    """Between what the rate that it is of lies, by what is printed."""
    share = own.devices / percent(one) if one.figure.quantity == "efficiency" else 1.0
    return own.low / max(one.high * share, 1e-12), own.high / max(one.low * share, 1e-12)


#: rows by which a formula is looked for
SAMPLE = 200
#: of a formula, the column that is held against another, or against the row that has 1 where there is none; see Ratio
Formula = tuple[str, str, float, float]


def _inferred(several: Sequence[Row]) -> Iterator[list[Ratio]]:
    """Of a column whose heading does not tell: the formula by which most of its cells, and two at least, are ratios of
    others; or that of the two columns which it names."""
    if sized := _of_two_sizes(several):
        yield from ([one] for one in sized)
        return
    tried = [(formula, _made(formula, several[:SAMPLE])) for formula in _formulas(several)]
    formula, made = max(tried, key=lambda one: _score(one[1]), default=(("", "", 1.0, 0.0), []))
    score = _score(made)
    wrong = len(made) - score
    if score and len(made) > 1 and wrong <= max(1, len(made) // 3) and (score > 1 or len(made) == 2):
        yield from ([one] for one in (made if len(several) <= SAMPLE else _made(formula, several)))
    elif not score and (named := list(_both(several))):
        yield from ([one] for one in named)


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
        made.append(Ratio(one, above, below, _scale(one, above, below)))
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
    timed = figure.quantity in ("other", "time_to_train") and figure.unit in SECONDS and not _gains(one)
    return bool(one.number) and (figure.quantity == "throughput" or timed)


def _scales(one: Cell) -> Sequence[tuple[float, float]]:
    scale = percent(one)
    plain = (scale, 0.0)
    return [plain, (scale, 1.0)] if scale > 1 or _gains(one) else [plain]


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


def _of_precision(one: Cell) -> bool:
    over = one.figure.options.get("over", "")
    return over in PRECISIONS if over else len(NARROW.findall(one.figure.column)) > 1


def _over_precision(one: Cell, rates: Sequence[Cell]) -> list[Ratio]:
    over = one.figure.options.get("over", "")
    wide = ("fp32", "tf32")
    below = [rate for rate in rates if (rate.figure.precision == over if over else rate.figure.precision in wide)]
    mine = one.figure.precision if one.figure.precision not in ("", over) else ""
    above = [
        rate
        for rate in rates
        if rate not in below and (rate.figure.precision == mine if mine else rate.figure.precision not in wide)
    ]
    if not above or not below:
        return []
    return [Ratio(one, above[0], below[0], 1.0)]


def _own(one: Cell, rates: Sequence[Cell]) -> Cell | None:
    """The rate of its row that a derived cell is of: of the same setting, else of the same precision, or system; of
    several the last before it."""
    found = list(rates)
    for same in (
        lambda rate: rate.figure.column == one.figure.column,
        lambda rate: rate.figure.precision == one.figure.precision,
        lambda rate: rate.figure.system == one.figure.system,
        lambda rate: rate.figure.framework == one.figure.framework and rate.figure.model == one.figure.model,
        lambda rate: not one.figure.system or one.figure.system in rate.figure.column,
    ):
        found = [rate for rate in found if same(rate)] or found
    return found[-1] if len(found) == 1 else _before(one, found)


def _before(one: Cell, found: Sequence[Cell]) -> Cell | None:
    named = [rate for rate in found if rate.figure.column and rate.figure.column in one.figure.column]
    return named[0] if len(named) == 1 else None


def _alone(own: Cell | None, alone: Mapping[Hashable, Sequence[Cell]]) -> Iterator[Cell]:
    """The same setting on one device, in another table; what serves several devices is not part of it there."""
    if own is not None:
        yield from (rate for rate in alone.get(_kind(own), ()) if rate.figure.table != own.figure.table)


def _kind(rate: Cell) -> Hashable:
    one = rate.figure
    return one.model, one.framework, one.precision, one.device, one.unit, rate.batch


def _scale(one: Cell, own: Cell, base: Cell) -> float:
    if one.figure.quantity == "speedup":
        return 1.0
    return percent(one) * max(base.devices, 1) / max(own.devices, 1)


def percent(one: Cell) -> float:
    """100 of per cent; of an efficiency also where it is not said, as 97."""
    bare = one.figure.quantity == "efficiency" and one.number > 3
    return 100.0 if "%" in one.figure.printed + one.figure.unit or bare else 1.0
