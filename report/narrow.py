"""A chart of bars as a telephone has room for it: each bar under its name. Drawn by its template. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from dlperf.report import charts
from dlperf.report.shape import Bar, Chart, Panel

#: of the drawing, in px; of it what is left for an arrow
WIDTH, ARROW = 340, 10
#: of a line, by its class: a title is bold
LETTERS = {"title": 42, "name": 48, "quiet": 48}
#: from one line of text to the next, of a bar, and from one bar to the next; between the lines of a hatched bar
LINE, BAR, APART, HATCH = 17, 14, 10, 7


@dataclass(frozen=True)
class Words:
    """A line of text. kind: its class: title, name, quiet."""

    y: int
    kind: str
    said: str


@dataclass(frozen=True)
class Box:
    """A bar from 0 to x. y: its upper end. hatch, interval: paths; hatch of a bar that is not full, else empty, and
    interval where it has one. dots: how high those of its runs are, which stand at `runs`."""

    y: int
    x: str
    colour: str
    hatch: str
    interval: str
    dots: int
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Narrow:
    alt: str
    height: int
    words: tuple[Words, ...]
    boxes: tuple[Box, ...]


def narrow(chart: Chart) -> Narrow:
    y, words, boxes = 0, list[Words](), list[Box]()

    def say(kind: str, text: str) -> None:
        nonlocal y
        for line in textwrap.wrap(text, LETTERS[kind]) or [""]:
            y += LINE
            words.append(Words(y, kind, line))

    for panel in chart.panels:
        say("title", panel.title)
        for bar in panel.bars:
            say("name", f"{bar.label}: {bar.text}")
            boxes.append(_box(bar, panel, y + LINE // 3))
            y += LINE // 3 + BAR + APART * (2 if bar.hollow else 1)
        for label, reason in panel.missing:
            say("quiet", f"{label}: {reason}")
        y += APART
    say("quiet", charts.caption(chart))
    return Narrow(chart.alt, y + LINE // 2, tuple(words), tuple(boxes))


def _box(bar: Bar, panel: Panel, y: int) -> Box:
    right = charts.reach(panel.bars)

    def at(value: float) -> str:
        return f"{(WIDTH - ARROW) * min(value, right) / right:.1f}"

    lines = (f"M{x} {y + BAR}l{HATCH}-{BAR}" for x in range(0, int(float(at(bar.value))) - HATCH, HATCH))
    hatch, interval = "".join(lines) if bar.hollow else "", ""
    if bar.low is not None and bar.high is not None:
        middle = y + BAR // 2
        end = "l-5-4m5 4-5 4" if charts.cut(bar, right) else "m0-4v8"
        interval = f"M{at(bar.low)} {middle - 4}v8m0-4H{at(bar.high)}{end}"
    runs = tuple(map(at, bar.runs)) if len(bar.runs) > 1 else ()
    return Box(y, at(bar.value), charts.colour(bar.system or bar.label), hatch, interval, y + BAR - 3, runs)
