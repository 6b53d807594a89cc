"""What derived cells are computed of: the rates of their row, of a series, or of a row that the others are held
against. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from dlperf.audit.cells import Cell, Subject
from dlperf.audit.formulas import Row, by_value, inferred
from dlperf.audit.ratio import COMPARED, NARROW, Ratio, compared, gains, percent, scale_of
from dlperf.figures.published import PRECISIONS


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
            made = _named(one, rates) or _over_one(one, own, loose, _alone(own, alone), ones.get(column, {}))
            if made:
                made += [
                    ratio for other in _whole_or_part(own, rates) for ratio in _over_one(one, other, loose, (), {})
                ]
                found.append(made)
            elif own and len(loose.get(id(own), ())) > 1:
                series = loose[id(own)]
                down = series[0].figure.column == series[-1].figure.column
                scaled.setdefault((id(series[0]), one.figure.quantity, column if down else ""), []).append((one, own))
            else:
                others.setdefault(column, []).append((one, row))
        found += [made for several in scaled.values() for made in _over_several(several)]
        found += [made for several_ in others.values() for made in inferred(several_)]
        silent: dict[str, list[Row]] = {}
        for one in cells:
            if one.value is not None and not derived(one) and one.figure.unit in ("", "%", "x"):
                silent.setdefault(one.figure.column, []).append((one, rows[one.figure.row]))
        found += [[made_] for several_ in silent.values() for made_ in by_value(several_)]
    return found


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
    return figure.quantity in ("speedup", "efficiency") or (figure.quantity == "other" and gains(one))


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
    other = compared(column) or one.figure.options.get("over") == "column"
    return None if other and column not in sized else _own(one, rates)


def _ones(owned: Sequence[tuple[Cell, Sequence[Cell], Cell | None]]) -> dict[str, dict[Hashable, list[Cell]]]:
    """By column and setting the rates of cells that are 1, on the fewest devices of these: each may be what others are
    over."""
    found: dict[str, list[Cell]] = {}
    for one, _, own in owned:
        if own is not None and own.size and one.number == percent(one):
            found.setdefault(one.figure.column, []).append(own)
    least = {column: min(own.devices for own in several) for column, several in found.items()}
    made: dict[str, dict[Hashable, list[Cell]]] = {column: {} for column in found}
    for column, several in found.items():
        for own in several:
            if own.size == least[column]:
                made[column].setdefault(own.setting, []).append(own)
    return made


def _over_one(
    one: Cell,
    own: Cell | None,
    loose: Mapping[int, Sequence[Cell]],
    alone: Iterable[Cell],
    ones: Mapping[Hashable, Sequence[Cell]],
) -> list[Ratio]:
    """Over one device, or one node where that is said. alone, ones: rates that it may be over as well, the latter of
    its table, by setting."""
    if own is None:
        return []
    series = loose.get(id(own), ())
    first = [base for base in series[:1] if base.size == 1 or one.figure.options.get("over") == "1_node"]
    first += alone
    same = ones.get(own.setting, ()) if first else ()  # else its series begins with several
    bases = {id(base): base for base in (*first, *same)}
    return [Ratio(one, own, base, scale_of(one, own, base)) for base in bases.values()]


def _over_several(several: Sequence[tuple[Cell, Cell]]) -> Iterator[list[Ratio]]:
    """Of a series that begins with several devices: over these, if it says so; else over what most cells imply."""
    first, base = several[0]
    if abs(first.number / percent(first) - 1) <= first.ulp / percent(first) and len(several) > 1:
        yield from ([Ratio(one, own, base, scale_of(one, own, base))] for one, own in several)
        return
    implied = [_implied(one, own) for one, own in several]
    agree = [[a[0] <= b[1] and b[0] <= a[1] for a in implied] for b in implied]
    at = max(range(len(agree)), key=lambda n: sum(agree[n]))
    if sum(agree[at]) > 1 and sum(agree[at]) * 3 >= 2 * len(agree):
        one, own = several[at]
        for (other, rate), same in zip(several, agree[at], strict=True):
            if not same:
                yield [Ratio(other, rate, own, one.number * scale_of(other, rate, own) / percent(one))]


def _implied(one: Cell, own: Cell) -> tuple[float, float]:
    """Between what the rate that it is of lies, by what is printed."""
    share = own.devices / percent(one) if one.figure.quantity == "efficiency" else 1.0
    return own.low / max(one.high * share, 1e-12), own.high / max(one.low * share, 1e-12)


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
    return [Ratio(one, above[0], below[0], percent(one))]


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
        lambda rate: not rate.of_each,
    ):
        found = [rate for rate in found if same(rate)] or found
    return found[-1] if len(found) == 1 else _before(one, found)


def _whole_or_part(own: Cell | None, rates: Sequence[Cell]) -> list[Cell]:
    """The rate of all devices beside that of each, or the other way round: a ratio may be of either."""
    if own is None:
        return []
    mine = own.figure
    return [
        rate
        for rate in rates
        if rate.of_each != own.of_each
        and (rate.figure.model, rate.figure.framework, rate.figure.precision)
        == (mine.model, mine.framework, mine.precision)
    ]


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
