"""Rules on the number of devices: what more of them can do, and what they cannot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from dlperf.audit.cells import Cell, Subject, counted, series
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.headings import normal

#: of a rate, what two medians of a handful of runs differ by without a cause. In the lists of logs of DLPerf's READMEs
#: the runs of a cell have a standard deviation of 0.4 % in the median and below 1.5 % in nine of ten, so that a ratio
#: of two medians of six has one of 1 % at most; MLPerf's runs of one system spread by 0.1 to 0.2 % (results of v4.0)
NOISE = 0.02
#: likewise of a rate that is the last line of one log, or of one run: steps vary more than medians do. In Lambda's
#: table, which has such, 2 to 8 GPUs of one kind do up to 9.9 % more than their share in five columns of ten
SINGLE = 0.10
#: of one step of several, where the smaller size may be the slow one: in DLPerf's READMEs 4 GPUs do up to 6 % more than
#: twice what 2 do, and 8 up to 7.5 % more than twice 4, all less than their share of one
UNEVEN = 0.10
#: what more devices may do less where something else is the limit, as a loader: 2.3 % in DLPerf's README of ArcFace
PLATEAU = 0.05
#: share of its devices' that a step may lose before it is told: the input, the network or the smaller size is at fault
COLLAPSE = 0.5
#: of a table, that a batch is shared by more devices, so that each has less to do
STRONG = re.compile(r"\bstrong\b", re.IGNORECASE)
#: a time to train has its own batch and number of epochs at each size, so that more devices may need fewer: MLPerf's
#: rules let each system choose its batch, and references converge in up to twice the epochs at larger batches
CONVERGENCE, FAR_CONVERGENCE = 0.10, 0.50
AMDAHL = (
    "with the same work per device n devices do at most n times as much (Amdahl 1967; Gustafson 1988); up to 2 % is "
    "noise and not told: runs of a cell have standard deviations below 1.5 % in nine of ten lists of DLPerf's READMEs"
)


def super_linear(subject: Subject) -> Iterator[Finding]:
    for rates in _series(subject):
        for one in (one for one in rates[1:] if _split_alike(subject, rates[0], one)):
            single = {rates[0].figure.estimator, one.figure.estimator} & {"last_printed", "one_run"}
            yield from _beyond(rates[0], one, SINGLE if single else NOISE)
    for times in _times(subject):
        for one in times[1:]:
            yield from _too_soon(times[0], one)


def _split_alike(subject: Subject, a: Cell, b: Cell) -> bool:
    """Whether both split a model in the same way, as far as columns tell: another has other waits."""
    splits = _splits(subject)
    return not splits or splits.get((a.figure.table, a.figure.row)) == splits.get((b.figure.table, b.figure.row))


@lru_cache(maxsize=1)  # several rules ask for those of one subject
def _splits(subject: Subject) -> dict[tuple[str, str], list[str]]:
    """Of rows what columns of such a split have."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in subject.cells:
        if one.figure.quantity == "other" and PARALLEL.search(normal(one.figure.column)):
            found.setdefault((one.figure.table, one.figure.row), []).append(one.figure.printed)
    return found


#: of a heading, over how many devices a layer, or layers, are split
PARALLEL = re.compile(r"^(tp|pp|mp|ep|cp)$|\b(tensor|pipeline|model|expert|context)\b.*\bparallel", re.IGNORECASE)


def step(subject: Subject) -> Iterator[Finding]:
    for rates in _series(subject):
        for before, one in pairwise(rates[1:]):
            if _split_alike(subject, before, one):
                yield from _beyond(before, one, UNEVEN)


def collapse(subject: Subject) -> Iterator[Finding]:
    """Of two sizes that follow each other; else of the ends, where each device has as much to do on both."""
    for rates in _series(subject):
        ends, pairs = (rates[0], rates[-1]), list(pairwise(rates))
        found = [pair for pair in pairs if _collapses(*pair)]
        share = COLLAPSE
        if not found and len(pairs) > 1 and ends[0].batch == ends[1].batch and ends[0].batch[1]:
            share = COLLAPSE / 2
            found = [ends] if _collapses(*ends, share) else []
        for before, one in found:
            gain, most = one.number / before.number, one.devices / before.devices
            expected = f"more than {share * most:g} times {_shown(before)} on {_devices(before)}"
            yield of(one, WARNING, expected, f"{_shown(one)} on {_devices(one)}: {gain:.3g} times")


def _collapses(before: Cell, one: Cell, share: float = COLLAPSE) -> bool:
    gain, most = one.number / before.number, one.devices / before.devices
    return 1 < gain < share * most and not STRONG.search(f"{one.figure.system} {one.figure.column}")


def slower(subject: Subject) -> Iterator[Finding]:
    for rates in _series(subject):
        best = rates[0]
        for one in rates[1:]:
            if one.high < best.low:
                loss = 1 - one.number / best.number
                told = one.figure.unit and one.runs is None  # else it may be a time, or the network's
                severity = ERROR if loss > PLATEAU and told else WARNING
                yield of(
                    one,
                    severity,
                    f"more than {_shown(best)} on {_devices(best)}",
                    f"{_shown(one)} on {_devices(one)}, {100 * loss:.1f} % less",
                )
            elif one.number > best.number:
                best = one
    for times in _times(subject):
        for before, one in pairwise(times):
            more = one.number / before.number - 1
            if one.low > before.high and more > NOISE:
                alike = one.figure.batch == before.figure.batch  # smaller ones may be slow
                severity = ERROR if more > FAR_CONVERGENCE and alike else WARNING
                yield of(
                    one,
                    severity,
                    f"less than {_shown(before)} on {_devices(before)}",
                    f"{_shown(one)} on {_devices(one)}, {100 * more:.1f} % more",
                )


def _beyond(base: Cell, one: Cell, noise: float) -> Iterator[Finding]:
    """A rate that is more than its share of the devices, further than digits and two runs leave open."""
    times, most = one.number / base.number, one.devices / base.devices
    excess = times / most - 1
    if base.low > 0 and one.low / base.high > most and excess > NOISE:
        yield of(
            one,
            ERROR if excess > noise and not _on_cpus(one) else WARNING,
            f"at most {most * base.number:,.6g}: {most:g} times {_shown(base)} on {_devices(base)}",
            f"{_shown(one)} on {_devices(one)}: {times:.4g} times, {100 * excess:.1f} % beyond",
        )


def _on_cpus(one: Cell) -> bool:
    """Ranks that share the CPUs of a host are no devices of their own."""
    return one.figure.device == "cpu"


def _too_soon(base: Cell, one: Cell) -> Iterator[Finding]:
    times, most = base.number / one.number, one.devices / base.devices
    if base.low / one.high > most and times / most - 1 > CONVERGENCE:
        severity = ERROR if times / most - 1 > FAR_CONVERGENCE else WARNING
        yield of(
            one,
            severity,
            f"at least {base.number / most:,.6g}: {_shown(base)} on {_devices(base)} over {most:g}",
            f"{_shown(one)} on {_devices(one)}: {times:.4g} times as fast",
        )


def _series(subject: Subject) -> list[list[Cell]]:
    """Rates of all devices; one that is of each, or of each node, times their number. On more devices a step is of
    more samples."""
    return [
        [_of_all(one) for one in rates]
        for rates in subject.same_batch
        if all(one.parts and not counted(one.figure.unit).startswith("steps") for one in rates)
    ]


def _of_all(one: Cell) -> Cell:
    times = one.parts or 1
    return one if times < 2 else replace(one, value=one.number * times, low=one.low * times, high=one.high * times)


def _times(subject: Subject) -> list[Sequence[Cell]]:
    chosen = [one for one in subject.cells if one.figure.quantity == "time_to_train" and one.number]
    return series(chosen, (lambda one: one.figure.options.get("epochs"),))


def _shown(one: Cell) -> str:
    printed, unit = one.figure.printed, one.figure.unit
    told = printed if unit in printed else f"{printed} {unit}"
    return f"{told}, {one.number:,.6g} in all," if (one.parts or 1) > 1 else told


def _devices(one: Cell) -> str:
    what = "device" if one.figure.devices else "node"
    return f"{one.size} {what}" + ("s" if one.devices > 1 else "")


RULES = (
    Rule(
        "super-linear",
        "A rate is at most the number of devices times that of the smallest number with the same batch; a time to "
        "train, at whatever batch, not far below its share.",
        ERROR,
        f"{AMDAHL}; up to 10 % of what is the last line of a log a warning; of times to train 10 and 50 %, since batch "
        "and epochs may change (MLPerf training rules)",
        super_linear,
    ),
    Rule(
        "step beyond proportional",
        "From one number of devices to the next, a rate grows at most as they do.",
        ERROR,
        f"{AMDAHL}; up to 10 % the smaller size may be slow, a warning: steps of 6 to 7.5 % beyond are in DLPerf's "
        "READMEs",
        step,
    ),
    Rule(
        "step far below proportional",
        "From one number of devices to the next, a rate gains half of what they do or more; from the first to the last "
        "a quarter, with as much to do on each.",
        WARNING,
        "of DLPerf's 42 columns (2020) one is below half, and its loader was behind",
        collapse,
    ),
    Rule(
        "more devices slower",
        "More devices with the same batch do not do less.",
        ERROR,
        "the devices that are added could stand idle; up to 5 % they may wait for the input (2.3 % in DLPerf's README "
        "of ArcFace); what was measured in several runs here is a warning, since it may be the network's",
        slower,
    ),
)
