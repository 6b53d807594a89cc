"""Rules on columns that are computed from others: speedups, efficiencies, overheads, and hours from rates. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from dlperf.audit.cells import SECONDS, Cell, Subject, counted, model_of
from dlperf.audit.findings import ERROR, LAST_DIGIT, WARNING, Finding, Rule, merged, of
from dlperf.audit.ratio import Ratio, compared, percent, scale_of
from dlperf.audit.ratios import ratios
from dlperf.audit.scaling import NOISE, STRONG
from dlperf.figures.published import PRECISIONS

#: training images of ImageNet (ILSVRC 2012)
IMAGENET = 1_281_167
#: rows within which a swapped cell is looked for
NEAR = 5
#: below which an efficiency in whole per cent is none
FEW = 20
#: above what its epochs take at the printed rate a time has something else in it; below it cannot be
LONGER = 0.25


def not_the_ratio(subject: Subject) -> Iterator[Finding]:
    every = ratios(subject)
    rows, columns = _lines(every)
    fits = Counter(
        _column(several[0]) for several in every if any(one.rounds or one.cut or one.near for one in several)
    )
    for several in every:
        if any(one.rounds for one in several):
            continue
        best = min(several, key=lambda one: abs(one.number - one.cell.number))
        if not (best.near or best.cut):
            why = _moved(best, [*rows[_row(best)], *_beside(best, columns[_column(best)])])
            known = fits[_column(best)] * 2 >= len(columns[_column(best)])  # else it is computed of something else
            known = known or why.startswith(", swapped")
            severity = ERROR if known and not best.possible and (why or not best.possible_if_cut) else WARNING
            may = " (rates before rounding may give it)" if best.possible else ""
            may = may or (" (rates before rounding may give it, if it is cut)" if best.possible_if_cut else "")
            yield of(best.cell, severity, f"{several[0].told if not why else best.told}{may}", _printed(best.cell, why))


def last_digit(subject: Subject) -> Iterator[Finding]:
    """One finding for all of a table, of each kind."""
    found: dict[tuple[str, str], list[Ratio]] = {}
    for several in ratios(subject):
        if any(one.rounds for one in several):
            continue
        best = min(several, key=lambda one: abs(one.number - one.cell.number))
        if best.cut or best.near:
            kind = "cut instead of rounded" if best.cut else "one more or less in the last digit"
            found.setdefault((best.cell.figure.table, kind), []).append(best)
    for (_, kind), several_ in found.items():
        for one in several_:
            may = ", or computed of rates before rounding" if one.possible else ""
            yield of(one.cell, LAST_DIGIT, one.told, f"{one.cell.figure.printed}: {kind}{may}")


def _lines(every: Sequence[Sequence[Ratio]]) -> tuple[dict[Hashable, list[Ratio]], dict[Hashable, list[Ratio]]]:
    """The likeliest ratios by row and by column."""
    rows: dict[Hashable, list[Ratio]] = {}
    columns: dict[Hashable, list[Ratio]] = {}
    for one, *_ in every:
        rows.setdefault(_row(one), []).append(one)
        columns.setdefault(_column(one), []).append(one)
    return rows, columns


def _row(one: Ratio) -> Hashable:
    return one.cell.figure.table, one.cell.figure.row


def _column(one: Ratio) -> Hashable:
    return one.cell.figure.table, one.cell.figure.column


def _beside(one: Ratio, column: Sequence[Ratio]) -> Sequence[Ratio]:
    """Of its column those at most NEAR rows away."""
    at = next(number for number, other in enumerate(column) if other.cell is one.cell)
    return column[max(0, at - NEAR) : at + NEAR + 1]


def _moved(wrong: Ratio, lines: Sequence[Ratio]) -> str:
    """Where a wrong cell's digits belong: to another of its row or column with which it is swapped, or whose it
    repeats."""
    mine = wrong.cell
    near = [other for other in lines if other.cell is not mine]
    for other in near:
        if _fits(mine, other) and _fits(other.cell, wrong) and mine.figure.printed != other.cell.figure.printed:
            return f", swapped with {_place(other.cell, mine)}"
    for other in near:
        if mine.figure.printed == other.cell.figure.printed and (other.rounds or other.cut or other.near):
            return f", which repeats {_place(other.cell, mine)}"
    for other in near:
        if _fits(mine, other) and mine.digits > 2:
            return f", which is that of {_place(other.cell, mine)}"
    return ""


def _fits(cell: Cell, ratio: Ratio) -> bool:
    return abs(ratio.number - cell.number) < 1.5 * cell.ulp


def _place(other: Cell, mine: Cell) -> str:
    if other.figure.row == mine.figure.row:
        return f"“{other.figure.column}” of the same row"
    return f"row “{other.figure.row}” of the same column"


def _printed(one: Cell, why: str) -> str:
    return f"{one.figure.printed}{why}"


def not_alike(subject: Subject) -> Iterator[Finding]:
    """Ratios of rates with other batches: one finding for each column."""
    found: dict[tuple[str, str], list[Ratio]] = {}
    for several in ratios(subject):
        one = several[0]
        known = one.above.batch[1] and one.below.batch[1] and not STRONG.search(one.cell.figure.column)
        alike = (one.above.batch, one.above.accumulated), (one.below.batch, one.below.accumulated)
        if known and all(a != b for a, b in zip(*alike, strict=True)):
            found.setdefault((one.cell.figure.table, one.cell.figure.column), []).append(one)
    for ratios_ in found.values():
        above, below = ratios_[0].above, ratios_[0].below
        yield from merged(
            [one.cell for one in ratios_],
            WARNING,
            f"one batch size on each device, or in all; {below.figure.printed} has {below.figure.batch}",
            f"{above.figure.printed} has {above.figure.batch}",
        )


def other_work(subject: Subject) -> Iterator[Finding]:
    """Speedups and efficiencies over fewer devices whose row has another length, or precision, than the row that they
    are held against: the one with 1, on the fewest devices."""
    rates: dict[Hashable, list[Cell]] = {}
    for rate in subject.rates:
        rates.setdefault((rate.figure.table, rate.figure.row), []).append(rate)
    for cells in subject.columns.values():
        made = [one for one in cells if one.figure.quantity in ("speedup", "efficiency") and one.number and one.size]
        own = {id(one): several[0] for one in made if len(several := rates.get(_place_of(one), [])) == 1}
        least = min(made, key=lambda one: one.devices, default=None)
        if not least or id(least) not in own or least.number != percent(least) or compared(least.figure.column):
            continue
        for one in made:
            ratio = Ratio(one, own.get(id(one), one), own[id(least)], scale_of(one, one, least))
            for what, told in OTHER_WORK if ratio.told_by and one.devices > least.devices else ():
                above, below = told(ratio.above), told(ratio.below)
                if above and below and above != below:
                    yield of(one, WARNING, f"{below} as {what}, as {ratio.below.figure.printed} has", above)


def _place_of(one: Cell) -> Hashable:
    return one.figure.table, one.figure.row


#: what is computed is another with
OTHER_WORK: Sequence[tuple[str, Callable[[Cell], str]]] = (
    ("length of rows", lambda rate: rate.figure.options.get("sequence", "")),
    ("image size", lambda rate: rate.figure.options.get("image_size", "")),
    ("precision", lambda rate: rate.figure.precision),
)


def efficiency(subject: Subject) -> Iterator[Finding]:
    """Speedups and efficiencies beyond the number of devices, where no rates stand beside them."""
    known = {id(several[0].cell) for several in ratios(subject)}
    batches: dict[Hashable, set[str]] = {}
    for one in subject.cells:
        batches.setdefault((one.figure.table, one.figure.column), set()).add(one.figure.batch)
    for one in subject.cells:
        figure = one.figure
        if id(one) in known or one.value is None or figure.options.get("over", "1_device") in (*PRECISIONS, "column"):
            continue
        whole = "%" not in figure.printed + figure.unit and not one.decimals and one.number < FEW
        if figure.quantity == "efficiency" and whole:
            continue  # neither a share nor per cent: another column's heading
        if figure.quantity == "efficiency":
            most, value = percent(one), one.low
        elif figure.quantity == "speedup" and one.devices > 1 and not compared(figure.column):
            most, value = float(one.devices), one.low
        else:
            continue
        if value > most and one.number / most - 1 > NOISE:
            alike = len(batches[figure.table, figure.column]) == 1  # a smaller batch may be slow
            yield of(one, ERROR if alike else WARNING, f"at most {most:g}", figure.printed)


def of_each(subject: Subject) -> Iterator[Finding]:
    """Where a row has a rate of each device, or of each node, beside that of all."""
    for cells in subject.tables.values():
        rows: dict[Hashable, list[Cell]] = {}
        for one in cells:
            if one.figure.quantity == "throughput" and one.number:
                key = one.figure.row, one.figure.precision, one.figure.framework, one.figure.model
                rows.setdefault(key, []).append(one)
        for row in rows.values():
            parted = {one.figure.column: PART.search(counted(one.figure.unit)) for one in row}
            whole = [one for one in row if not parted[one.figure.column]]
            for part in ("device", "node"):
                each = [one for one in row if (found := parted[one.figure.column]) and found[1] == part]
                if len(each) == len(whole) == 1 and each[0].parts and (part == "node" or each[0].figure.devices):
                    yield from _times(each[0], whole[0], each[0].parts, part)


PART = re.compile(r" per (device|node)$")


def _times(each: Cell, whole: Cell, parts: int, part: str) -> Iterator[Finding]:
    if not each.low * parts <= whole.high or not whole.low <= each.high * parts:
        apart = each.number * parts / whole.number - 1
        expected = f"{whole.number / parts:,.6g}: {whole.figure.printed} over {parts} {part}s"
        cut = 0 <= whole.number / parts - each.number < each.ulp
        severity = ERROR if abs(apart) > NOISE else LAST_DIGIT if cut else WARNING
        found = ": cut instead of rounded" if severity == LAST_DIGIT else f", {100 * apart:+.1f} %"
        yield of(each, severity, expected, f"{each.figure.printed}{found}")


def of_steps(subject: Subject) -> Iterator[Finding]:
    """Where a row has its steps in a second beside its rate: by the batch of all devices, which most rows bear out."""
    for cells in subject.tables.values():
        rows: dict[Hashable, list[Cell]] = {}
        for one in cells:
            if one.figure.quantity == "throughput" and one.number:
                rows.setdefault((one.figure.row, one.figure.precision, one.figure.framework), []).append(one)
        fits, wrong = 0, list[tuple[Cell, float, Cell]]()
        for row in rows.values():
            steps = [one for one in row if counted(one.figure.unit) == "steps"]
            whole = [one for one in row if counted(one.figure.unit) == "rows"]
            batch = whole[0].global_batch if len(steps) == len(whole) == 1 else ("", None)
            if batch[0] != "global" or not batch[1]:
                continue
            expected = whole[0].number / batch[1]
            if steps[0].low * (1 - NOISE) <= expected <= steps[0].high * (1 + NOISE):
                fits += 1
            else:
                wrong.append((steps[0], expected, whole[0]))
        for one, expected, rate in wrong if fits > len(wrong) else ():
            told = f"{expected:,.4g}: {rate.figure.printed} over a batch of {rate.global_batch[1]:g}"
            yield of(one, ERROR, told, f"{one.figure.printed}, {100 * (one.number / expected - 1):+.1f} %")


def hours(subject: Subject) -> Iterator[Finding]:
    """Times that are said to be of so many epochs, against the rate of the same row."""
    rates = {(one.figure.table, one.figure.row, one.figure.precision): one for one in subject.rates}
    loose: dict[tuple[object, ...], list[Cell]] = {}
    for rate in subject.rates:
        loose.setdefault((rate.figure.device, rate.figure.system, rate.size, rate.figure.precision), []).append(rate)
    for one in subject.cells:
        figure = one.figure
        epochs = figure.options.get("epochs", "") or "".join(re.findall(r"([0-9]+) ?(?:E\b|epochs)", figure.column)[:1])
        if figure.quantity != "time_to_train" or not one.number or not re.fullmatch("[0-9]{1,6}", epochs):
            continue
        beside = loose.get((figure.device, figure.system, one.size, figure.precision), [])
        rate_ = rates.get((figure.table, figure.row, figure.precision)) or (beside[0] if len(beside) == 1 else None)
        unit = SECONDS.get(figure.unit)
        if (
            rate_ is None
            or not rate_.number
            or unit is None
            or model_of(figure.model or rate_.figure.model) != "resnet50"
        ):
            continue
        least = int(epochs) * IMAGENET / rate_.number / unit
        told = f"{least:.3g} {figure.unit}: {epochs} epochs of ImageNet at {rate_.figure.printed}"
        if one.high < least * 0.98:
            yield of(one, ERROR, f"at least {told}", figure.printed)
        elif one.low > least * (1 + LONGER):
            yield of(one, WARNING, f"about {told}", figure.printed)


RULES = (
    Rule(
        "not the ratio of its cells",
        "A speedup, an efficiency or an overhead is the ratio of the rates that it is of, and not that of a "
        "neighbouring column or row.",
        ERROR,
        "arithmetic: rates that round to what is printed give a range of ratios; a warning where it reaches the "
        "printed one",
        not_the_ratio,
    ),
    Rule(
        "last digit",
        "A ratio is rounded, not cut, and of the cells that are printed.",
        LAST_DIGIT,
        "arithmetic: one unit of the last digit",
        last_digit,
    ),
    Rule(
        "rate of each device",
        "The rate of a device, or of a node, times their number is the rate of all that stands beside it.",
        ERROR,
        "arithmetic, within the printed digits; 2 % as super-linear: a warning",
        of_each,
    ),
    Rule(
        "steps in a second",
        "The steps in a second times the batch of all devices are the rate that stands beside them.",
        ERROR,
        "arithmetic, within the printed digits and 2 %, where most rows of the table are so",
        of_steps,
    ),
    Rule(
        "beyond its devices",
        "A speedup without rates is at most the number of devices, an efficiency at most 100 %.",
        ERROR,
        "as super-linear: up to 2 % is noise and is not told",
        efficiency,
    ),
    Rule(
        "ratio of unlike batches",
        "A speedup compares rates with the same batch on each device, or in all.",
        WARNING,
        "DLPerf's rule for speedups, README of Oneflow-Inc/DLPerf: of the same batch size and data type",
        not_alike,
    ),
    Rule(
        "ratio of unlike work",
        "A speedup over fewer devices compares rows of one length, in one precision.",
        WARNING,
        "as for ratio of unlike batches",
        other_work,
    ),
    Rule(
        "epochs at the printed rate",
        "A time for so many epochs is what they take at the rate of the same row: not less, nor a quarter more.",
        ERROR,
        "ILSVRC 2012 has 1,281,167 images for training; 2 % as for super-linear, 25 % for evaluation and start",
        hours,
    ),
)
