"""Rules on what a device can do: its peak, the share of it that is credible, and rates that are none. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dlperf import models
from dlperf.audit import networks
from dlperf.audit.cells import Cell, Subject, counted
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, merged, of
from dlperf.figures import peaks

#: share of the peak of tensor cores that nothing published reaches. Convolutional networks: ResNet-50 is at 27 to 29 %
#: on V100 (DLPerf 2020), 27 % on A100, 18 % on H100, 20 % on H200 (MLPerf 2.0 and 4.0); of products: BERT-base is at
#: 41 % on V100 (DLPerf)
CREDIBLE, CREDIBLE_PRODUCTS = 0.35, 0.70
#: that is of cards whose products are far ahead of their memory; below so many FLOP/s convolutions reach more of them
WIDE = 100e12
#: likewise without tensor cores, where convolutions of 3 x 3 by Winograd multiply less than the definition says
WITHOUT, WITHOUT_PRODUCTS = 2.0, 1.1
#: and where all are of 3 x 3, as in VGG: F(2 x 2, 3 x 3) multiplies 2.25 times less (Lavin and Gray 2016)
OF_THREES = 2.25
#: of convolutional networks that nobody's best is known of here
CREDIBLE_OTHERS = 0.50
#: and below which the unit is more likely wrong than the system that slow
SLOW = 1e-4
#: figures with precision unknown, or that a table calls FP32 where the card has TF32, which it uses by itself
BY_ITSELF = {"fp32": "tf32"}
MODES = {"amp": "amp_fp16", "fp16": "amp_fp16", "bf16": "amp_bf16", "fp32": "fp32", "tf32": "tf32"}


def above_peak(subject: Subject) -> Iterator[Finding]:
    for one in _judged(subject):
        needed, peak, mode = _of(one)
        if needed and peak and needed > _most(one, peak, mode):
            severity = ERROR if one.size or one.of_each else WARNING
            yield of(one, severity, *_told(one, needed, peak, peaks.OVERCLOCK, mode))


def share(subject: Subject) -> Iterator[Finding]:
    for one in _judged(subject):
        needed, peak, mode = _of(one)
        if not needed or not peak or needed > _most(one, peak, mode):
            continue
        credible = _credible(one, mode, peak)
        if needed > credible * peak:
            # what a row of text is counted with is its longest length: padding that is left out does not compute
            padded = networks.of_products(one) and _sequence(one) >= 256
            doubtful = padded or mode == "fp32" or not (one.size or one.of_each) or _is_rounded(one)
            yield of(one, WARNING if doubtful else ERROR, *_told(one, needed, peak, credible, mode))
        elif 0 < needed < SLOW * peak:
            yield of(one, WARNING, *_told(one, needed, peak, SLOW, mode, "at least"))


def unlike_others(subject: Subject) -> Iterator[Finding]:
    """Of a table whose rows are of several networks, a row that takes a hundredth or less of what all others do."""
    for cells in subject.tables.values():
        held = [
            (one, needed / peak) for one in _judged(subject, cells) for needed, peak, _ in [_of(one)] if needed and peak
        ]
        shares = sorted(share for _, share in held)
        if len(shares) < FEWEST or shares[0] * FAR > shares[1] or shares[1] * SPAN < shares[-1]:
            continue
        one, share = min(held, key=lambda each: each[1])
        if share > SLOW:  # else it is told already
            expected = f"{100 * shares[1]:.2g} to {100 * shares[-1]:.2g} % of the peak of its device, as the other rows"
            yield of(one, WARNING, expected, f"{one.figure.printed}, which is {100 * share:.2g} %")


#: rows by which one is known to be off, by how many times, and times that the others may be apart
FEWEST, FAR, SPAN = 4, 100.0, 20.0


def _most(one: Cell, peak: float, mode: str) -> float:
    """FLOP/s that nothing reaches."""
    return peaks.OVERCLOCK * peak * winograd(one, mode) * (networks.ROUNDED if _is_rounded(one) else 1.0)


def _is_rounded(one: Cell) -> bool:
    size, exact = networks.parameters(one)
    return bool(size) and not exact and networks.known(one.figure.model) not in models.FAMILY_OF


def _judged(subject: Subject, table: Sequence[Cell] = ()) -> Iterator[Cell]:
    """Rates of a known number of devices; those of none where another of the table can be of one. table: the only one
    that is looked at, if so."""
    for cells in [table] if table else subject.tables.values():
        rates = [one for one in cells if one.figure.quantity == "throughput" and one.value is not None]
        yield from (one for one in rates if one.size or one.of_each)
        unsized = [one for one in rates if not one.size and not one.of_each]
        if len(unsized) == len(rates) and any(map(_of_one, unsized)):
            yield from unsized


def _of_one(one: Cell) -> bool:
    """Whether a rate is what one device may do: not next to nothing, nor incredible."""
    needed, peak, mode = _of(one)
    return bool(needed and peak) and 0.01 < (needed or 0) / (peak or 1) < _credible(one, mode, peak or 1)


def labelled_fp32(subject: Subject) -> Iterator[Finding]:
    """Rows of float32 that only TF32 explains."""
    found: dict[str, list[Cell]] = {}
    for one in subject.rates:
        peak = peaks.of(one.figure.device, "fp32")
        needed = _needed(one)
        known = one.size and one.figure.precision == "fp32" and peaks.of(one.figure.device, "tf32")
        if known and peak and needed and needed > peaks.OVERCLOCK * peak * winograd(one, "fp32"):
            found.setdefault(one.figure.table, []).append(one)
    for cells in found.values():
        peak, needed = peaks.of(cells[0].figure.device, "fp32") or 0.0, _needed(cells[0]) or 0.0
        expected = f"at most {peak / 1e12:.3g} TFLOP/s in float32, or the name TF32"
        yield from merged(cells, WARNING, expected, f"{needed / 1e12:.3g} TFLOP/s")


def no_rate(subject: Subject) -> Iterator[Finding]:
    """Not a whole 0 beside another rate of its row: less than 1 may have been cut."""
    above = {(one.figure.table, one.figure.row) for one in subject.rates}
    found: dict[str, list[Cell]] = {}
    for one in subject.cells:
        cut = one.ulp >= 1 and (one.figure.table, one.figure.row) in above
        if one.figure.quantity == "throughput" and one.value is not None and one.number <= 0 and not cut:
            found.setdefault(one.figure.table, []).append(one)
    for cells in found.values():
        yield from merged(cells, WARNING, "a rate above 0, or a blank where none was measured", cells[0].figure.printed)


def _of(one: Cell) -> tuple[float | None, float | None, str]:
    """FLOP/s that a rate takes of each device, the device's peak, and in which mode; None where one is not known."""
    needed = _needed(one)
    if needed is None:
        return None, None, ""
    asked = one.figure.precision
    names = [MODES[asked]] if asked in MODES else ["amp_fp16", "tf32", "fp32"]
    if asked in BY_ITSELF:
        names.insert(0, BY_ITSELF[asked])
    for mode in names:
        if peak := peaks.of(one.figure.device, mode):
            return needed, peak, mode
    return needed, None, ""


def _needed(one: Cell) -> float | None:
    figure = one.figure
    if figure.options.get("task") == "inference":
        return None
    what, _, part = counted(figure.unit).partition(" per ")
    per_device = figure.devices
    if part == "device" or not one.size:  # if no number is told, it may be of one
        per_device = 1
    elif part == "node":
        per_device = figure.devices // figure.nodes if figure.devices and figure.nodes else None
    flops = networks.flops(one, what, _sequence(one))
    return None if flops is None or not per_device or one.value is None else one.number / per_device * flops


def _sequence(one: Cell) -> int:
    told = one.figure.options.get("sequence") or one.figure.options.get("sequence_length") or ""
    return int(told) if re.fullmatch(r"\d{1,6}", told) else 0


def winograd(one: Cell, mode: str) -> float:
    if mode != "fp32" or networks.of_products(one):
        return 1.0
    return OF_THREES if networks.of_threes(one) else WITHOUT


def _credible(one: Cell, mode: str, peak: float) -> float:
    if networks.of_products(one):
        return WITHOUT_PRODUCTS if mode == "fp32" else CREDIBLE_PRODUCTS
    if mode == "fp32":
        return OF_THREES if networks.of_threes(one) else 1.0
    if networks.known(one.figure.model) not in models.FAMILY_OF or networks.of_threes(one):
        return CREDIBLE_OTHERS if not networks.of_threes(one) else CREDIBLE_PRODUCTS
    return CREDIBLE if peak >= WIDE else CREDIBLE_PRODUCTS


def _told(one: Cell, needed: float, peak: float, limit: float, mode: str, most: str = "at most") -> tuple[str, str]:
    device = one.figure.device
    expected = (
        f"{most} {limit * peak / 1e12:.3g} TFLOP/s on each {device}, {100 * limit:.3g} % of its peak "
        f"({peak / 1e12:.4g}, {mode})"
    )
    length = f", {_sequence(one)} tokens each" if _sequence(one) else ""
    on = one.size or ("one" if one.of_each else "one, if it is of one,")
    found = f"{one.figure.printed} on {on} takes {needed / 1e12:.3g} TFLOP/s on each{length}"
    return expected, f"{found}: {100 * needed / peak:.3g} %"


RULES = (
    Rule(
        "above the peak",
        "A rate takes no more FLOP/s than its device has, by the model's definition and the vendor's datasheet.",
        ERROR,
        "datasheets, as dlperf/figures/peaks.py cites them, and 10 % for clocks above their base; FLOPs of "
        "dlperf.models, else three times torchvision's of a forward pass, or 6 times the parameters for a token "
        "(Kaplan 2020), and 10 % where these are rounded in a name",
        above_peak,
    ),
    Rule(
        "implausible share of the peak",
        "ResNet-50 stays below 35 % of the peak of tensor cores of 100 TFLOP/s or more, other convolutional networks "
        "below 50 %, others below 70 %, and a GPU is not 10,000 times slower than it could be.",
        ERROR,
        "the best published ResNet-50: 27 to 29 % on V100 (DLPerf 2020), 27 % on A100, 18 % on H100, 20 % on H200 "
        "(MLPerf Training 2.0 and 4.0); BERT-base: 41 % on V100 (DLPerf 2020)",
        share,
    ),
    Rule(
        "share unlike all others",
        "No row takes a hundredth of the share of its device's peak that all others of its table take.",
        WARNING,
        "100 times below all of three others or more, which are 20 times apart at most",
        unlike_others,
    ),
    Rule(
        "FP32 beyond FP32",
        "What is called FP32 is within the peak of FP32, where the device has TF32 as well.",
        WARNING,
        "datasheets, as for above the peak; NVIDIA's libraries take TF32 for float32 unless they are told otherwise",
        labelled_fp32,
    ),
    Rule(
        "no rate",
        "A rate that is printed as a number is above zero.",
        WARNING,
        "a system that trains nothing has no rate; scripts write 0 where there is no log, as Lambda's does",
        no_rate,
    ),
)
