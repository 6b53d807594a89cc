"""Rules on FLOP/s that a table prints, and on their shares of a peak. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from dlperf.audit import headings
from dlperf.audit.cells import Cell, Subject
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.peak import MODES, winograd
from dlperf.figures import peaks

#: of a heading: FLOP/s, their share of the peak, and what of these words is of something else
FLOPS = re.compile(r"\b(?P<scale>tera|t|peta|p|giga|g)[ -]?flops?(?:/s|ps)?\b", re.IGNORECASE)
SHARE = re.compile(
    r"\b[mh]fu\b|flops? util|(%|percent|pct|share|fraction) of (the )?([\w-]+ ){0,3}peak|"
    r"\bpeak (%|percent|pct|share|fraction|util)",
    re.IGNORECASE,
)
NONE = re.compile(r"\bpeak\b|theoretical|\bspec|datasheet|\bmem|bandwidth|power|hfu", re.IGNORECASE)
SCALES = {"g": 1e9, "t": 1e12, "p": 1e15}
#: rows by which two columns are known to be in proportion, all but one: where that is arithmetic, and where FLOPs of a
#: step may differ in what the table does not tell
FEWEST, FEWEST_RATES = 3, 4
#: by which a rate may be off for such a reason, and where only two others tell the proportion
LOOSE, LOOSER = 0.03, 0.10
#: what a number of parameters and of layers may leave open where a source computes FLOPs of them
ROUGH = 0.01
#: share of a peak above which training of no network is known: at most 70 % of products as in dlperf.audit.peak, and a
#: tenth more for what is computed twice
HIGH = 0.80
#: precisions that have peaks of their own, and devices that have such
EIGHT = re.compile(r"fp8|fp4|int8|8-?bit|4-?bit", re.IGNORECASE)
HAS_EIGHT = re.compile(r"H[128]00|H20|B[23]00|L40|L4\b|RTX ?(40|50)|MI3|Gaudi ?[23]", re.IGNORECASE)
#: by which FLOP/s are higher where activations are computed twice, which a row may do and others not
AGAIN = 4 / 3


@dataclass(frozen=True)
class Does:
    """What a row prints of one device: FLOP/s, a share of a peak, or a rate. low, high: what its digits leave open."""

    cell: Cell
    low: float
    high: float


def beyond(subject: Subject) -> Iterator[Finding]:
    """FLOP/s of each device above its peak, and shares above 1."""
    for one in subject.cells:
        if one.figure.quantity != "other" or not one.number:
            continue
        if does := _share(one):
            most = 100.0 if _percent(one) else 1.0
            if does.low > 1:
                yield of(one, ERROR, f"at most {most:g}: the share of a peak", one.figure.printed)
            elif does.low > HIGH:
                expected = f"at most {HIGH * most:g}: the share of a peak that nothing published reaches"
                yield of(one, WARNING, expected, one.figure.printed)
        elif does := _flops(one):
            mode = MODES.get(one.figure.precision, "amp_fp16")
            peak = (peaks.of(one.figure.device, mode) or 0.0) * winograd(one, mode)
            if EIGHT.search(f"{one.figure.row} {one.figure.column} {one.figure.system}"):
                continue
            peak *= 2 if not one.figure.precision and HAS_EIGHT.search(one.figure.device) else 1
            share = peaks.OVERCLOCK if mode == "fp32" or does.low > peaks.OVERCLOCK * peak else HIGH
            measured = share > 1 or one.size  # else a table of peaks
            if peak and measured and does.low > share * peak:
                limit = f"{share * peak / 1e12:.3g} TFLOP/s"
                what = f"at most {limit}, {100 * share:.3g} % of a {one.figure.device}'s peak ({mode})"
                yield of(one, ERROR if share > 1 else WARNING, what, one.figure.printed)


def out_of_proportion(subject: Subject) -> Iterator[Finding]:
    """A row whose FLOP/s, share and rate are not those of the rows beside it: the shares of one device have one peak,
    and FLOP/s and rates of one network one number of FLOPs."""
    for cells in subject.tables.values():
        rows: dict[tuple[str, str], list[Cell]] = {}
        for one in cells:
            if one.number > 0:
                rows.setdefault((one.figure.row, one.figure.precision), []).append(one)
        told: set[int] = set()
        for above, below, same in PAIRS:
            groups: dict[Hashable, list[tuple[Does, Does]]] = {}
            for row in rows.values():
                a, b = ([does for one in row if (does := kind(one))] for kind in (above, below))
                if len(b) > 1 and len(each := [does for does in b if does.cell.of_each]) == 1:
                    b = each  # beside the same of all devices
                if len(a) == len(b) == 1:
                    groups.setdefault(same(b[0].cell), []).append((a[0], b[0]))
            for several in groups.values():
                for found, cell in _odd(several, below is _rate):
                    if id(cell) not in told:
                        told.add(id(cell))
                        yield found


def _odd(several: Sequence[tuple[Does, Does]], rates: bool) -> Iterator[tuple[Finding, Cell]]:
    """The one pair that is not in the proportion of all others. rates: whether these are of rates."""
    spans = [(a.low / b.high * (1 - ROUGH), a.high / max(b.low, 1e-12) * (1 + ROUGH)) for a, b in several]
    agree = [[x[0] <= y[1] and y[0] <= x[1] for x in spans] for y in spans]
    counts = [sum(row) for row in agree]
    if len(several) < FEWEST or sorted(counts) != [1, *[len(several) - 1] * (len(several) - 1)]:
        return
    at = counts.index(1)
    (a, b), other = several[at], several[1 if at == 0 else 0]
    times = (a.low + a.high) / (b.low + b.high) / ((other[0].low + other[0].high) / (other[1].low + other[1].high))
    if any(abs(times / again - 1) < 0.05 for again in (AGAIN, 1 / AGAIN)) or (
        rates and abs(times - 1) < (LOOSE if len(several) >= FEWEST_RATES else LOOSER)
    ):
        return
    expected = f"{a.cell.number / times:.4g}, in proportion to “{b.cell.figure.column}” ({b.cell.figure.printed})"
    found = f"{a.cell.figure.printed}, {times:.3g} times, unlike all of {len(several) - 1} other rows"
    yield of(a.cell, ERROR, expected, found), a.cell


def _flops(one: Cell) -> Does | None:
    """Of each device."""
    if one.figure.quantity != "other" or not (found := _of_flops(one.figure.column)):
        return None
    column = headings.normal(one.figure.column)
    whole = re.search(r"aggregate|total|overall|cluster|system", column)
    alone = one.size == 1 or (not one.size and not whole and one.figure.device)
    if not (headings.EACH.search(column) or alone or (whole and one.size)):
        return None
    scale = SCALES[found["scale"][0].lower()] / (
        one.devices if whole and one.size and not headings.EACH.search(column) else 1
    )
    return Does(one, one.low * scale, one.high * scale)


@headings.cache
def _of_flops(column: str) -> re.Match[str] | None:
    """Whether a heading is of FLOP/s."""
    told = headings.normal(column)
    return None if SHARE.search(told) or NONE.search(told) else FLOPS.search(told)


@headings.cache
def _of_peak(column: str) -> bool:
    """Whether a heading is of a share of the peak."""
    told = headings.normal(column)
    return bool(SHARE.search(told)) and not re.search(r"\bmem|bandwidth|power", told)


def _share(one: Cell) -> Does | None:
    if one.figure.quantity != "other" or not _of_peak(one.figure.column):
        return None
    scale = 0.01 if _percent(one) else 1.0
    return Does(one, one.low * scale, one.high * scale)


def _percent(one: Cell) -> bool:
    return bool(re.search(r"%|\bpct\b|percent", f"{headings.normal(one.figure.column)} {one.figure.printed}")) or (
        one.number > 2
    )


def _of_model(one: Cell) -> Does | None:
    """A share that counts no FLOPs twice."""
    return None if re.search(r"\bhfu\b", headings.normal(one.figure.column)) else _share(one)


def _rate(one: Cell) -> Does | None:
    """Of each device."""
    if one.figure.quantity != "throughput" or not one.size or not one.parts:
        return None
    scale = one.parts / one.devices
    return Does(one, one.low * scale, one.high * scale)


def _device(one: Cell) -> Hashable:
    return one.figure.device, one.figure.precision


def _network(one: Cell) -> Hashable:
    options = one.figure.options
    sizes = tuple(options.get(key, "") for key in ("sequence", "params", "image_size"))
    return _device(one), one.figure.model, one.figure.unit, sizes


#: what is in proportion to what, in rows that have the same of these
PAIRS: tuple[tuple[Callable[[Cell], Does | None], Callable[[Cell], Does | None], Callable[[Cell], Hashable]], ...] = (
    (_share, _flops, _device),
    (_flops, _rate, _network),
    (_of_model, _rate, _network),
)

RULES = (
    Rule(
        "printed share of the peak",
        "FLOP/s of a device are at most its peak, and a share of the peak is at most 1.",
        ERROR,
        "datasheets, as for above the peak",
        beyond,
    ),
    Rule(
        "FLOP/s, share and rate",
        "FLOP/s, their share of the peak and the rate of a device are in one proportion in the rows of one network.",
        ERROR,
        "arithmetic, within the printed digits and 1 %, of rates 3 %; all of three rows or more but one, with rates of "
        "four; not where it is 4/3, as where activations are computed twice",
        out_of_proportion,
    ),
)
