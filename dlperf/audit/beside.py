"""Rules on figures and the logs beside them. Pure."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from dlperf.audit.agreement import TWO, configuration, estimators_differ, is_log
from dlperf.audit.cells import SECONDS, Cell, Subject, counted
from dlperf.audit.claims import WINDOW
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.scaling import NOISE

#: by how much a figure may be off that of its log, which is then no other's
SAME = 0.005
#: what other steps of a log may give
WINDOWS, STATED = 0.015, 0.05


def named_logs(subject: Subject) -> Iterator[Finding]:
    """Times whose row or column names the log that they are of, by its file's name; those without a unit in minutes, as
    logs have them, where they are near."""
    logs: dict[str, list[Cell]] = {}
    for one in subject.cells:
        stem = re.sub(r"\.\w{1,5}$", "", one.figure.path.rpartition("/")[2]).lower()
        if one.of_log and one.number and len(stem) >= STEM and one.figure.quantity == "time_to_train":
            logs.setdefault(stem, []).append(one)
    folders: dict[str, list[Cell]] = {}
    for several in logs.values():
        for log in several:
            folders.setdefault(log.figure.path.rpartition("/")[0].lower(), []).append(log)
    for one in (each for each in subject.cells if logs and each.number and not is_log(each)):
        words = {*re.split(r"[ |,;()]+", f"{one.figure.row} {one.figure.column}".lower())}
        mine = [log for name in words & logs.keys() for log in logs[name]]
        mine = mine or [log for several in logs.values() for log in several if _is_file(log, words)]
        if one.figure.quantity == "time_to_train" and not mine:
            yield from _of_folder(one, folders)
        timed = one.figure.quantity == "time_to_train" or (one.figure.quantity == "other" and not one.figure.unit)
        if len(mine) == 1 and timed:
            log = _in_unit(mine[0], one.figure.unit)
            if 1 / NEAR < one.number / log.number < NEAR:
                yield from _against(one, [log])


def _is_file(log: Cell, words: Collection[str]) -> bool:
    """Whether a row names a log by its path, or the end of it."""
    path = log.figure.path.lower()
    return any("." in word and f"/{path}".endswith(f"/{word}") for word in words)


def _of_folder(one: Cell, folders: Mapping[str, Sequence[Cell]]) -> Iterator[Finding]:
    """A time whose row names the folders that its logs are in: between the least and the greatest of them."""
    words = {word for word in f"{one.figure.row} | {one.figure.column}".lower().split(" | ") if len(word) > 3}
    found = [logs for folder, logs in folders.items() if {*folder.split("/")[-2:]} <= words and "/" in folder]
    if len(found) == 1:
        times = [_in_unit(log, one.figure.unit) for log in found[0]]
        low, high = min(log.low for log in times), max(log.high for log in times)
        if not low <= one.high or not one.low <= high:
            expected = f"{low:.4g} to {high:.4g}, as {len(times)} logs give ({found[0][0].where} and beside)"
            yield of(one, ERROR, expected, one.figure.printed)


#: times that a time may be off one of a log, where only a name says that it is of it
NEAR = 3.0
#: letters of a file's name by which a log is known
STEM = 6


def _in_unit(log: Cell, unit: str) -> Cell:
    """A time in another unit."""
    times = SECONDS.get(log.figure.unit, 1.0) / SECONDS.get(unit, SECONDS.get(log.figure.unit, 1.0))
    return replace(log, value=log.number * times, low=log.low * times, high=log.high * times) if times != 1 else log


def not_in_the_log(subject: Subject) -> Iterator[Finding]:
    """A log may tell less than a table, and its system may go by another name."""
    yield from named_logs(subject)
    logs: dict[int | None, list[Cell]] = {}
    for one in subject.rates:
        if is_log(one) and one.number:
            logs.setdefault(one.size, []).append(one)
    if not logs:
        return
    told = [one for one in subject.rates if not is_log(one) and one.number]
    alone = len({log.figure.framework for several in logs.values() for log in several}) == 1
    mine = {id(one): [log for log in logs_of(one, logs) if may_be_of(log, one, alone)] for one in told}
    claims: dict[int, set[Hashable]] = {}
    for one in told:
        for log in mine[id(one)]:
            claims.setdefault(id(log), set()).add(configuration(one))
    numbers = sorted(one.number for one in told)
    for one in told:
        own = [log for log in mine[id(one)] if len(claims[id(log)]) == 1]
        inside = {log.figure.path for log in own if _stands(log.number, numbers)}  # which are another cell's
        if (odd := _mean_of_runs(one, own)) and re.search(r"\bmedian\b", subject.prose, re.IGNORECASE):
            yield odd
        if own := [log for log in own if log.figure.path not in inside]:
            yield from _against(one, own, bool(WINDOW.search(f"{subject.prose} {one.figure.row}")))
        elif not mine[id(one)]:
            yield from _of_another_batch(one, [log for log in logs_of(one, logs) if _but_batch(log, one, alone)])


def _mean_of_runs(one: Cell, logs: Sequence[Cell]) -> Finding | None:
    """A figure that is the mean of the logs of its runs, by one estimator, and not their median."""
    groups: dict[str, list[float]] = {}
    for log in logs:
        groups.setdefault(log.figure.estimator, []).append(log.number)
    for several in groups.values():
        mean, median = statistics.fmean(several), statistics.median(several)
        if len(several) > 2 and abs(one.number / mean - 1) < SAME / 5 and abs(median / mean - 1) > SAME:
            return of(
                one, WARNING, f"{median:,.6g}, the median of {len(several)} logs", f"{one.figure.printed}, their mean"
            )
    return None


def _stands(number: float, numbers: Sequence[float]) -> bool:
    """Whether one of these, which ascend, is a log's figure."""
    at = bisect_left(numbers, number * (1 - SAME))
    return at < len(numbers) and numbers[at] <= number * (1 + SAME)


def logs_of(one: Cell, logs: Mapping[int | None, Sequence[Cell]]) -> Sequence[Cell]:
    """Of logs by size those of a cell's, and those that tell none."""
    if not one.size:  # nor does the row of the only log
        every = [log for several in logs.values() for log in several]
        return every if len({log.figure.path for log in every}) == 1 else logs.get(None, ())
    return [*logs.get(one.size, ()), *logs.get(None, ())]


def _of_another_batch(one: Cell, logs: Sequence[Cell]) -> Iterator[Finding]:
    """A figure that is that of a log in all but its batch."""
    near = [log for log in logs if abs(one.number / log.number - 1) < NOISE and log.batch[0] == one.batch[0]]
    if near and one.figure.batch and len({log.batch for log in logs}) == 1:
        expected = f"a batch of {near[0].figure.batch}, as its log tells ({near[0].where})"
        yield of(one, ERROR, expected, f"{one.figure.batch}; {near[0].figure.printed} there, {one.figure.printed} here")


def may_be_of(log: Cell, one: Cell, alone: bool = False) -> bool:
    """Whether nothing that both tell differs; one of them may have samples in a second for images. alone: whether there
    is no log of another framework, so that a table need not name it."""
    batches = log.batch == one.batch or not (log.batch[1] and one.batch[1])
    return batches and _but_batch(log, one, alone)


def _but_batch(log: Cell, one: Cell, alone: bool) -> bool:
    a, b = log.figure, one.figure
    pairs = (
        *((getattr(a, name), getattr(b, name)) for name in ("model", "framework")),
        (HALF.get(a.precision, a.precision), HALF.get(b.precision, b.precision)),
        (a.options.get("sequence"), b.options.get("sequence")),
        (counted(a.unit) if a.unit else "", counted(b.unit) if b.unit else ""),
    )
    systems = _system(log), _system(one)
    named = alone or (a.framework and b.framework)
    alike = named or systems[0] <= systems[1] or systems[1] <= systems[0]
    return bool(alike) and all(x == y or not x or not y for x, y in pairs)


#: what tables call mixed precision
HALF = {"fp16": "amp"}


def _against(one: Cell, logs: Sequence[Cell], windowed: bool = False) -> Iterator[Finding]:
    """windowed: whether a figure may be of other steps than are counted here, as a text states."""
    nearest = min(logs, key=lambda log: abs(log.number - one.number))
    totals = [log for log in logs if log.figure.estimator == "samples_over_seconds"]
    if nearest.figure.estimator == "mean_of_rates" and totals and not one.figure.estimator:
        total = min(totals, key=lambda log: abs(log.number - one.number))
        apart = one.number / total.number - 1
        if abs(one.number - nearest.number) <= one.ulp + nearest.ulp and abs(apart) > NOISE:
            expected = f"{total.figure.printed}: samples over seconds of its log ({total.where})"
            yield of(one, ERROR, expected, f"{one.figure.printed}: a mean of rates, {100 * apart:+.1f} %")
            return
    inside = min(log.low for log in logs) <= one.high and one.low <= max(log.high for log in logs)
    if inside or estimators_differ(one, nearest):
        return
    apart = abs(one.number / nearest.number - 1)
    if apart < (STATED if windowed else WINDOWS):
        return
    above = "above" if one.number > nearest.number else "below"
    count = f"the nearest of {len(logs)} logs" if len(logs) > 1 else "as its log gives"
    expected = f"{nearest.figure.printed}, {count} ({nearest.where})"
    sure = apart > NOISE and nearest.size  # else it may be of another number of devices
    yield of(one, ERROR if sure else WARNING, expected, f"{one.figure.printed}, {100 * apart:.1f} % {above}")


def _system(one: Cell) -> set[str]:
    """Its words: a heading may leave out those that say its framework."""
    return set(re.findall("[a-z0-9]+", (one.figure.system or one.figure.framework).lower()))


RULES = (
    Rule(
        "not in its log",
        "A figure lies among those of its own logs.",
        ERROR,
        TWO,
        not_in_the_log,
    ),
)
