"""A small chart of rates over time, with their intervals: what its template draws. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dlperf.report import text
from dlperf.report.history import Entry

#: of the drawing; of its axes within it; between two lines of the legend, and between two dates
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 640, 64, 420, 26, 190
LEGEND, APART = 20, 72
#: around 0, one for each system; what lines are dashed by when there are more of them
SHAPES = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-4-4h8v8h-8z", "M0-5 5 4h-10z", "M0-5.5 5.5 0 0 5.5-5.5 0z")
DASHES = ("none", "6 3", "2 3")
#: lines that a chart has room for; letters of a label
MOST, LETTERS = 12, 28


@dataclass(frozen=True)
class Mark:
    """A figure at x, y; its interval from low to high. hollow: it is not comparable."""

    x: str
    y: str
    low: str
    high: str
    hollow: bool
    said: str


@dataclass(frozen=True)
class Trace:
    """Of one system. at: of its line in the legend."""

    label: str
    shape: str
    dash: str
    points: str
    marks: tuple[Mark, ...]
    at: int


@dataclass(frozen=True)
class Timeline:
    """alt: the chart in words. dates, rates: of the ticks, with their places."""

    title: str
    unit: str
    alt: str
    colour: str
    traces: tuple[Trace, ...]
    dates: tuple[tuple[str, str], ...]
    rates: tuple[tuple[str, str], ...]
    height: int


def timeline(title: str, entries: Sequence[Entry], colour: str) -> Timeline | None:
    """Of one model on one machine in one size: None where no system was measured on two days."""
    systems: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda one: (one.moment, one.system)):
        if entry.moment:
            systems.setdefault(entry.system, []).append(entry)
    systems = {name: each for name, each in systems.items() if len({one.date for one in each}) > 1}
    systems = dict(sorted(systems.items())[:MOST])
    drawn = [one for each in systems.values() for one in each]
    if not drawn:
        return None
    first, last = (_seconds(end(drawn, key=lambda one: one.moment)) for end in (min, max))
    highest = max(_high(one) for one in drawn)
    ticks = _ticks(highest)
    top = max(highest, ticks[-1])
    places = text.decimals(one.estimate for one in drawn)

    def across(entry: Entry) -> float:
        return LEFT + 12 + (RIGHT - LEFT - 24) * (_seconds(entry) - first) / (last - first)

    def up(rate: float) -> str:
        return f"{BOTTOM - (BOTTOM - TOP) * rate / top:.1f}"

    def mark(one: Entry) -> Mark:
        low = one.estimate.centre if one.estimate.low is None else one.estimate.low
        said = f"{one.system} {one.version}, {one.date}: {_said(one, places)}"
        return Mark(f"{across(one):.1f}", up(one.estimate.centre), up(low), up(_high(one)), not one.comparable, said)

    traces = []
    for number, (name, each) in enumerate(systems.items()):
        marks = tuple(map(mark, each))
        points = " ".join(f"{one.x},{one.y}" for one in marks)
        shape, dash = SHAPES[number % len(SHAPES)], DASHES[number // len(SHAPES) % len(DASHES)]
        traces.append(Trace(text.line(name, LETTERS), shape, dash, points, marks, TOP + 8 + LEGEND * number))
    unit = drawn[0].unit
    return Timeline(
        title=title,
        unit=unit,
        alt=f"{title}, {unit} by date: " + "; ".join(one.said for trace in traces for one in trace.marks),
        colour=colour,
        traces=tuple(traces),
        dates=tuple(_dates({one.date: across(one) for one in sorted(drawn, key=_seconds, reverse=True)})),
        rates=tuple((up(tick), f"{tick:,g}") for tick in ticks),
        height=max(BOTTOM + 30, TOP + LEGEND * len(traces) + 10),
    )


def _seconds(entry: Entry) -> float:
    return datetime.fromisoformat(entry.moment).replace(tzinfo=UTC).timestamp()


def _high(entry: Entry) -> float:
    return entry.estimate.centre if entry.estimate.high is None else entry.estimate.high


def _said(entry: Entry, places: int) -> str:
    interval = f" {text.interval(entry.estimate, places)}" if entry.estimate.low is not None else ""
    return f"{text.number(entry.estimate.centre, places)}{interval}, n={entry.estimate.n}"


def _ticks(highest: float) -> list[float]:
    """From 0 to what is not far below the highest, at most six, of 1, 2 or 5 times a power of ten."""
    rough = highest / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(math.floor(highest / step * 1.001) + 1)]


def _dates(places: Mapping[str, float]) -> Iterable[tuple[str, str]]:
    """As many as have room, the last one first. places: x by date, from the last date to the first."""
    left = math.inf
    for date, x in places.items():
        if left - x >= APART:
            left = x
            yield f"{x:.1f}", date
