"""Rules on steps, batch, samples, seconds and rates of one row, of which some are products of others. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from dlperf.audit import headings
from dlperf.audit.cells import SECONDS, Cell, Subject, counted, stated
from dlperf.audit.findings import ERROR, Finding, Rule, of
from dlperf.audit.headings import normal
from dlperf.audit.logged import SAMPLES
from dlperf.audit.scaling import NOISE

#: by what rows may differ that agree: digits that are printed
EXACT = 0.005
Row = Sequence[Cell]
TIMED = re.compile(rf"{headings.CLOCK}|^(measured|timed|benchmark) ?(seconds|time|duration)")


def products(subject: Subject) -> Iterator[Finding]:
    """Steps, batch, samples, seconds and rates of a row, where most rows agree."""
    for cells in subject.tables.values():
        rows: dict[str, list[Cell]] = {}
        for one in cells:
            rows.setdefault(one.figure.row, []).append(one)
        for what, left, right in FORMULAS:
            found: list[tuple[Cell, float, float]] = []
            for row in rows.values():
                (product, number), other = left(row), right(row)
                if product and number and other:
                    found.append((product, number, other))
            yield from _unlike(what, found)


def _unlike(what: str, found: Sequence[tuple[Cell, float, float]]) -> Iterator[Finding]:
    """Rows that are off by more than noise, where as many or more are right, or have one factor in common."""
    ratios = [number / other for _, number, other in found]
    right = sum(abs(each - 1) <= EXACT for each in ratios)
    factor = 1.0
    if right * 2 < len(ratios):
        factor = max(ratios, key=lambda one: sum(abs(each / one - 1) <= EXACT for each in ratios), default=1.0)
        if sum(abs(each / factor - 1) <= EXACT for each in ratios) * 3 < 2 * len(ratios) or len(ratios) < 3:
            return
    for (one, number, other), ratio in zip(found, ratios, strict=True):
        if abs(ratio / factor - 1) > NOISE:
            expected = f"{other * factor:,.6g}: {what}"
            yield of(one, ERROR, expected, f"{number:,.6g}, {100 * (ratio / factor - 1):+.1f} %")


def _samples(row: Row) -> tuple[Cell | None, float]:
    found = [one for one in row if one.figure.quantity == "other" and SAMPLES.fullmatch(normal(one.figure.column))]
    return (found[0], found[0].number) if len(found) == 1 else (None, 0.0)


def _of_rate(row: Row) -> tuple[Cell | None, float]:
    """The samples of a rate and its seconds."""
    one = _rate(row, steps=False)
    clocks = [each for each in row if each.figure.quantity == "other" and TIMED.search(normal(each.figure.column))]
    if one is None or len(clocks) != 1:
        return None, 0.0
    return one, one.number * clocks[0].number * SECONDS.get(clocks[0].figure.unit, 1.0)


def _per_second(row: Row) -> tuple[Cell | None, float]:
    one = _rate(row, steps=False)
    return one, one.number if one else 0.0


def _rate(row: Row, steps: bool) -> Cell | None:
    """The one rate of a row that counts steps, or samples."""
    rates = [one for one in row if one.figure.quantity == "throughput" and one.number]
    found = [one for one in rates if (counted(one.figure.unit) == "steps") == steps]
    return found[0] if len(found) == 1 and "per device" not in counted(found[0].figure.unit) else None


def _batch(row: Row) -> float:
    batches = {one.global_batch for one in row if one.global_batch[1]}
    kind, number = batches.pop() if len(batches) == 1 else ("", None)
    return number or 0.0 if kind in ("global", "device") else 0.0


def _in_steps(row: Row) -> float:
    steps = {stated(one.figure.steps) for one in row if one.figure.steps}
    return (steps.pop() or 0.0) * _batch(row) if len(steps) == 1 else 0.0


def _in_a_second(row: Row) -> float:
    one = _rate(row, steps=True)
    return one.number * _batch(row) if one else 0.0


#: of a heading, that devices times time stand below it, and which part of an hour
OF_ALL = re.compile(r"\b(gpu|device|accelerator|chip|card|tpu)s?[ -]?(?P<unit>hours?|hrs?|days|minutes)\b")
UNITS = {"h": 3600.0, "d": 86400.0, "m": 60.0}


def _device_hours(row: Row) -> tuple[Cell | None, float]:
    found = [one for one in row if OF_ALL.search(normal(one.figure.column)) and one.number]
    return (found[0], found[0].number) if len(found) == 1 else (None, 0.0)


def _devices_by_time(row: Row) -> float:
    """In the unit of what is told in `_device_hours`."""
    one, _ = _device_hours(row)
    unit = OF_ALL.search(normal(one.figure.column)) if one else None
    times = [one for one in row if one.figure.quantity == "time_to_train" and one.figure.unit in SECONDS and one.number]
    if not unit or len(times) != 1:
        return 0.0
    return times[0].number * SECONDS[times[0].figure.unit] * times[0].devices / UNITS[unit["unit"][0]]


#: in words, the cell that is a product, and the product
FORMULAS: Sequence[tuple[str, Callable[[Row], tuple[Cell | None, float]], Callable[[Row], float]]] = (
    ("steps times the global batch", _samples, _in_steps),
    ("steps a second times the global batch", _per_second, _in_a_second),
    ("steps times the global batch, over the seconds", _of_rate, _in_steps),
    ("devices times the time to train", _device_hours, _devices_by_time),
)

RULES = (
    Rule(
        "product of its row",
        "Samples are steps times the global batch, and so are rates of samples and of steps, in all rows of a table.",
        ERROR,
        "arithmetic: half of the rows or more within 0.5 %, or two of three with one factor; 2 % as super-linear",
        products,
    ),
)
