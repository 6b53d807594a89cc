"""Rules on single rates that a text tells, or a row for all steps, beside the table that they are of. Pure."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from dlperf.audit import estimators, headings
from dlperf.audit.cells import Cell, Subject, counted
from dlperf.audit.excerpts import NUMBER, UNIT
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.headings import normal
from dlperf.audit.logged import AVERAGE, STEPPED
from dlperf.audit.scaling import NOISE
from dlperf.figures.published import number

RATE = re.compile(
    rf"(?<![\w.,-])(?P<number>{NUMBER})\s*(?P<unit>{UNIT}(?:\s*(?:/|per)\s*(?:gpu|device|card)\b)?)", re.I
)
TIME = re.compile(r"((step|iter\w*|batch) )?(time|seconds|duration|latency)( \(?(s|sec|ms)\)?)?|s|sec|ms", re.I)
#: rows of steps that a total is judged by, first ones that it may leave out, and what their batches may differ by
LEAST, WARM, ALIKE = 5, 5, 0.01
#: of a row, that it is of all steps
WHOLE = re.compile(r"(all|total|overall)\b", re.IGNORECASE)
#: share that a mean of rates is above the total, from which on digits tell which of them it is
TELLING = 0.005
#: of a sentence, that its rate may be of something else than a table's, or is no exact one
ELSE = re.compile(
    r"\b(about|approx\w*|around|roughly|nearly|almost|some|over|up to|more than|less than|at least|at most|between|"
    r"from|reports?|reported by|published|previous\w*|earlier|before|baseline|other|others|their|compared|versus|vs|"
    r"instead|target|peak|theoretical|ideal|linear|without|with|paper|mlperf|nvidia|old|new|if|would|could|should|expect\w*|"
    r"was|were|had|inference|paid|after|on top|faster|slower)\b|[~≈<>]",
    re.IGNORECASE,
)
#: of a sentence, each number of devices
SIZED = re.compile(r"\d[ -]*(?:gpus?|devices?|cards?)\b|\d ?[x×]? ?[A-Z]\d00s?\b", re.IGNORECASE)
#: share that an inexact copy of a figure may be off it
COPY = 0.05


def of_all_steps(subject: Subject) -> Iterator[Finding]:
    """Of a table with time and rate of each step, of one batch: what is said of all is samples over seconds."""
    claimed = estimators.estimator(subject.prose) == "samples_over_seconds"
    for cells in subject.tables.values():
        if not STEPPED.search(subject.labels.get(cells[0].figure.table, "")):
            continue
        rows: dict[str, list[Cell]] = {}
        for one in cells:
            rows.setdefault(one.figure.row, []).append(one)
        told = [(row, pair) for row, several in rows.items() if (pair := _pair(several))]
        steps = [pair for row, pair in told if not AVERAGE.match(row)]
        made = [rate.number * time.number for rate, time in steps]
        if (
            len(steps) < LEAST
            or max(made) > (1 + ALIKE) * statistics.median(made)
            or min(made) < (1 - ALIKE) * max(made)
        ):
            continue
        seconds, batch = [time.number for _, time in steps], statistics.median(made)
        totals = [batch * (len(seconds) - skip) / sum(seconds[skip:]) for skip in range(min(WARM, len(seconds) - 2))]
        mean = statistics.mean(rate.number for rate, _ in steps)
        for row, (rate, time) in told:
            right = abs(time.number / sum(seconds) - 1) < TELLING
            if AVERAGE.match(row):
                whole = bool(WHOLE.match(row))
                yield from _judged(rate, rate.figure.printed, totals, mean, whole, whole and right)
        if len(subject.tables) == 1:
            units = {counted(rate.figure.unit) for rate, _ in steps}
            for found in RATE.finditer(subject.prose):
                if counted(found["unit"]) in units:
                    yield from _judged(steps[0][0], found["number"], totals, mean, claimed, False)


def _pair(row: Sequence[Cell]) -> tuple[Cell, Cell] | None:
    """The one rate of a row, and its one time."""
    rates = [one for one in row if one.figure.quantity == "throughput" and one.number]
    times = [one for one in row if one.figure.quantity == "other" and TIME.fullmatch(normal(one.figure.column))]
    return (rates[0], times[0]) if len(rates) == len(times) == 1 and times[0].number else None


def _judged(
    one: Cell, printed: str, totals: Sequence[float], mean: float, total: bool, sure: bool
) -> Iterator[Finding]:
    """total: whether it is said to be samples over seconds. sure: whether it is of just these steps."""
    value, ulp = number(printed) or (0.0, 1.0)
    if not value or any(abs(value - each) <= ulp / 2 + TELLING * each for each in totals):
        return
    apart = value / totals[0] - 1
    expected = f"{totals[0]:,.5g}: samples over seconds of all steps"
    if abs(value - mean) <= ulp / 2 + mean / 1e4:
        severity = ERROR if total and apart > NOISE else WARNING
        yield of(one, severity, expected, f"{printed}, the mean of their rates, {100 * apart:+.1f} %")
    elif sure and abs(apart) > NOISE:
        yield of(one, ERROR, expected, f"{printed}, {100 * apart:+.1f} %")


def in_the_text(subject: Subject) -> Iterator[Finding]:
    """A sentence with one rate and one number of devices, of which a document has one figure."""
    if not subject.prose:
        return
    sizes: dict[int, list[Cell]] = {}
    for one in subject.rates:
        sizes.setdefault(one.devices, []).append(one)
    known = sorted(one.number for one in subject.rates)
    for sentence in re.split(r"[.;!?]\s|\n", subject.prose):
        found = list(RATE.finditer(sentence))
        size = headings.size(sentence)[1]
        if len(found) != 1 or not size or len(SIZED.findall(sentence)) != 1:
            continue
        printed, unit = found[0]["number"], counted(found[0]["unit"])
        value, ulp = number(printed) or (0.0, 1.0)
        if "." not in printed and "," in printed:
            ulp = 10.0 ** (len(printed.replace(",", "")) - len(printed.replace(",", "").rstrip("0")))
        cells = sizes.get(size, ())
        if len(cells) != 1 or not value or _near(cells[0].ulp + ulp, value, known):
            continue
        one, apart = cells[0], value / cells[0].number - 1
        figure = one.figure
        alike = (
            counted(figure.unit) in (unit, ""),
            headings.precision(sentence) in (figure.precision, "") or not figure.precision,
            headings.framework(sentence) in (figure.framework, "") or not figure.framework,
        )
        swapped = sorted(printed) == sorted(figure.printed) and len(printed) > 3
        if all(alike) and (swapped or (abs(apart) < COPY and not ELSE.search(sentence))):
            expected = f"{figure.printed} on {size}, as the table has"
            yield of(one, ERROR if swapped else WARNING, expected, f"{printed} in the text, {100 * apart:+.1f} %")


def _near(off: float, value: float, known: Sequence[float]) -> bool:
    """Whether a figure is printed somewhere, and rounded in a text."""
    at = bisect_left(known, value)
    return any(abs(one - value) <= off for one in known[max(0, at - 1) : at + 1])


RULES = (
    Rule(
        "rate of all steps",
        "What a table of steps has for all of them, or the text beside it, is their samples over their seconds.",
        ERROR,
        "arithmetic, within 0.5 % of all steps or all but the first few; 2 % as super-linear",
        of_all_steps,
    ),
    Rule(
        "rate in the text",
        "A sentence that names a rate and its number of devices has the figure of the one cell that is of them.",
        ERROR,
        "digits in another order: an error; up to 5 % off: a warning, as far as the sentence speaks of nothing else",
        in_the_text,
    ),
)
