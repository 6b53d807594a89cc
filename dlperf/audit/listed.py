"""The times of steps that stand in a list beside a rate, as benchmarks write them into a JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dlperf.audit.cells import Cell, Subject, counted
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.objects import PAUSE
from dlperf.audit.scaling import NOISE


def rates(subject: Subject) -> Iterator[Finding]:
    """A rate beside the times of its steps is samples over seconds, of all or all but the first ones."""
    for one, (number, mean, *_, totals) in _listed(subject):
        batch = _batch(one)
        if not batch:
            continue
        known = [batch * (number - skip) / total for skip, total in enumerate(totals)]
        if any(one.low * (1 - NOISE / 4) <= each <= one.high * (1 + NOISE / 4) for each in known):
            continue
        expected = f"{known[0]:,.5g}: samples over seconds of the {number:g} steps that are listed"
        apart = 100 * (one.number / known[0] - 1)
        if one.low * (1 - 1e-3) <= batch * mean <= one.high * (1 + 1e-3):
            yield of(one, ERROR, expected, f"{one.figure.printed}, the mean of their rates, {apart:+.1f} %")
        elif abs(apart) > 100 * NOISE:
            yield of(one, WARNING, expected, f"{one.figure.printed}, {apart:+.1f} %")


def pauses(subject: Subject) -> Iterator[Finding]:
    for one, (_, _, at, times, _) in _listed(subject):
        if at:
            expected = f"steps of at most {PAUSE:g} times their median, after the first"
            yield of(one, WARNING, expected, f"step {at:g} of the list takes {times:.3g} times as long")


def _listed(subject: Subject) -> Iterator[tuple[Cell, tuple[float, float, float, float, list[float]]]]:
    """Rates with times of their steps, once for each row."""
    rows: set[tuple[str, str]] = set()
    for one in subject.rates:
        told, row = one.figure.options.get("listed"), (one.figure.table, one.figure.row)
        if told and row not in rows and one.number:
            rows.add(row)
            number, mean, at, times, *totals = map(float, told.split())
            yield one, (number, mean, at, times, totals)


def _batch(one: Cell) -> float | None:
    """Samples of a step that a rate counts: of all devices, or of one where there is no more."""
    what = counted(one.figure.unit)
    kind, number = one.global_batch
    if not number or what not in ("rows", "rows per device", "steps"):
        return 1.0 if what == "steps" else None
    if what == "rows per device":
        return number / one.devices if kind == "global" and one.devices else number
    return number if kind == "global" or not one.size else None


RULES = (
    Rule(
        "rate of listed steps",
        "A rate is samples over seconds of the steps whose times are listed with it.",
        ERROR,
        "arithmetic, within 0.5 %, of all steps or all but the first five; a mean of their rates within 0.1 %: an "
        "error; else more than 2 % as super-linear: a warning",
        rates,
    ),
    Rule(
        "long step in a list",
        "No step after the first takes three times the median: an epoch does not end among them, nor does a warm-up.",
        WARNING,
        "as for pauses in a log",
        pauses,
    ),
)
