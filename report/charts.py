"""Charts as SVG: the same bytes for the same figures. They are light or dark as their reader's other pages are."""

from __future__ import annotations

import io
import math
import os
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from dlperf.errors import clean
from dlperf.report import text
from dlperf.report.shape import Bar, Chart, Line, LineChart, Panel, Point, Waterfall

BAR, INK, QUIET, PAPER, GRID = "#767676", "#1a1a1a", "#6b6b6b", "#ffffff", "#ececec"
#: of what makes a row slower, and faster
MORE, LESS = "#d5541a", "#0f8f6a"
#: in every chart and report; of a contrast with white and with black paper of at least 3.7
FRAMEWORKS = {
    "pytorch": "#d5541a",
    "tensorflow": "#a87900",
    "jax": "#7d5fc4",
    "mxnet": "#1f78b4",
    "paddle": "#0f8f6a",
    "oneflow": "#c2508c",
}
#: what stands for a colour where a reader prefers dark pages; GitHub shows a drawing's own style sheet too
DARK = {INK: "#e4e4e4", QUIET: "#a3a3a3", PAPER: "#161616", GRID: "#333333"}
#: what is as wide as DejaVu Sans, by which matplotlib places letters
FONTS = "'DejaVu Sans', Verdana, sans-serif"
WIDTH_INCHES = 7.6
ROW_INCHES = 0.34
LINES_INCHES = 4.2
#: between a pair of bars and the next, in rows
PAIRS_APART = 0.5
#: of an interval that is longer than its chart
BEYOND = "; an arrow: the interval goes on"
#: characters of a title's line
LINE = 88
#: and of the name of a row; with names that are longer than the second, titles have less room
LABEL, SHORT = 48, 8
#: of a chart of lines, the least height between two names, as a share of the axis
APART = 0.055
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: Any = {
    "svg.hashsalt": "dlperf",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign is a dollar sign
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "xtick.color": QUIET,
    "ytick.color": INK,
}


def svg(chart: Chart | LineChart | Waterfall, name: str) -> str:
    """The chart as one <svg> element, or a line that says why there is none. `name` prefixes every id, so that several
    charts fit in one page."""
    try:
        return _element(_drawn(chart), name, chart.alt)
    except Exception as error:  # of matplotlib, of its fonts, of its cache: no reason to withhold a report
        from markupsafe import escape

        said = text.line(f"This chart could not be drawn: {type(error).__name__}: {error}", 300)
        return (
            f'<svg role="img" aria-label="{escape(chart.alt)}" width="1000" height="30" '
            f'xmlns="http://www.w3.org/2000/svg"><text x="4" y="20">{escape(said)}</text></svg>\n'
        )


def _drawn(chart: Chart | LineChart | Waterfall) -> str:
    """With matplotlib's own settings, whatever the user's are."""
    os.environ.pop("MPLBACKEND", None)  # a wrong one ends the import
    import matplotlib
    from matplotlib.figure import Figure

    buffer, own = io.StringIO(), {**matplotlib.rcParamsDefault, **STYLE}
    own.pop("backend")
    with matplotlib.rc_context(own), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # an empty box is good enough for a rare letter
        figure = Figure(figsize=(WIDTH_INCHES, _height(chart)), layout="constrained")
        title = textwrap.fill(chart.title, LINE)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold", parse_math=False)
        if isinstance(chart, Chart):
            _draw_bars(figure, chart)
        elif isinstance(chart, Waterfall):
            _draw_waterfall(figure.add_subplot(), chart)
        else:
            _draw_lines(figure.add_subplot(), chart)
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return buffer.getvalue()


def colour(system: str) -> str:
    """Of a system's framework, which its name has in it."""
    return next((found for name, found in FRAMEWORKS.items() if name in system.lower()), BAR)


def _height(chart: Chart | LineChart | Waterfall) -> float:
    if isinstance(chart, Waterfall):
        return 1.2 + ROW_INCHES * (len(chart.steps) + 2)
    if isinstance(chart, LineChart):
        return LINES_INCHES
    return 0.6 + sum(0.8 + ROW_INCHES * _rows(panel) for panel in chart.panels)


def _rows(panel: Panel) -> float:
    """How high it is, in rows."""
    return len(panel.bars) + len(panel.missing) + PAIRS_APART * sum(bar.hollow for bar in panel.bars[:-1])


def _at(panel: Panel) -> list[float]:
    """Where each bar stands, then each row without one: a bar and the hollow one beside it are a pair."""
    found, at = [], 0.0
    for bar in panel.bars:
        found.append(at)
        at += 1 + PAIRS_APART * bar.hollow
    at -= PAIRS_APART * bool(panel.bars and panel.bars[-1].hollow)
    return [*found, *(at + row for row in range(len(panel.missing)))]


def _draw_bars(figure: Any, chart: Chart) -> None:
    heights = [_rows(panel) for panel in chart.panels]
    axes = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for each, panel in zip(axes, chart.panels, strict=True):
        _draw_panel(each, panel)
        _title(each, panel.title, max((len(label) for label in _labels(chart)), default=0))
    drawn = [each for each, panel in zip(axes, chart.panels, strict=True) if panel.bars]
    drawn[-1].set_xlabel(caption(chart))


def caption(chart: Chart) -> str:
    """What its bars are."""
    beyond = any(cut(bar, reach(panel.bars)) for panel in chart.panels for bar in panel.bars)
    axis = chart.axis or "median of n runs, its 95 % interval, and each run as a dot"
    return f"{chart.unit}: {axis}{BEYOND if beyond else ''}"


def _title(axes: Any, title: str, beside: int = 0) -> None:
    """beside: characters of the names on its left."""
    axes.set_title(textwrap.fill(title, LINE - max(0, beside - SHORT)), loc="left", fontsize=9.5, pad=6)


def _labels(chart: Chart) -> list[str]:
    told = [name for panel in chart.panels for name in (*(bar.label for bar in panel.bars), *dict(panel.missing))]
    return [text.line(name, LABEL) for name in told]


def _draw_panel(axes: Any, panel: Panel) -> None:
    bars, missing, right = panel.bars, panel.missing, reach(panel.bars)
    places = _at(panel)
    for row, bar in zip(places, bars, strict=False):
        hue = colour(bar.system or bar.label)
        look = (
            {"facecolor": "none", "edgecolor": hue, "hatch": "////", "linewidth": 1.2} if bar.hollow else {"color": hue}
        )
        axes.barh(row, bar.value, height=0.62, **look)
        if len(bar.runs) > 1:
            dots = {"color": INK, "markeredgecolor": PAPER, "markeredgewidth": 0.6}
            axes.plot(bar.runs, [row + 0.2] * len(bar.runs), "o", markersize=4, **dots)
        end = _whisker(axes, row, bar, right)
        axes.annotate(bar.text, (end, row), (5, 0), textcoords="offset points", va="center")
    for row, (_, reason) in zip(places[len(bars) :], missing, strict=True):
        axes.barh(row, right * 0.02, height=0.62, facecolor="none", edgecolor=QUIET, hatch="////", linewidth=0.6)
        axes.annotate(reason, (right * 0.02, row), (5, 0), textcoords="offset points", va="center", color=QUIET)
    labels = [*(bar.label for bar in bars), *(label for label, _ in missing)]
    axes.set_yticks(places, [text.line(label, LABEL) for label in labels])
    axes.set_ylim(_rows(panel) - 0.4, -0.6)
    axes.set_xlim(0, right * 1.3)
    axes.xaxis.set_visible(bool(bars))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"] if bars else ["top", "right", "left", "bottom"]].set_visible(False)


def _draw_waterfall(axes: Any, chart: Waterfall) -> None:
    """Each step begins where the one above has ended."""
    rows, at = len(chart.steps) + 2, chart.begin[1]
    for row, (name, seconds) in ((0, chart.begin), (rows - 1, chart.end)):
        axes.barh(row, seconds, height=0.62, color=colour(name))
        axes.annotate(f"{seconds:.3g}", (seconds, row), (5, 0), textcoords="offset points", va="center")
    for row, (_, change) in enumerate(chart.steps, start=1):
        axes.barh(row, change, left=at, height=0.62, color=MORE if change > 0 else LESS)
        axes.plot([at, at], [row - 1, row], color=QUIET, linewidth=0.8, zorder=0)
        right = max(at, at + change)
        axes.annotate(
            f"{change:+.2g}".replace("-", "\u2212"), (right, row), (5, 0), textcoords="offset points", va="center"
        )
        at += change
    axes.plot([at, at], [rows - 2, rows - 1], color=QUIET, linewidth=0.8, zorder=0)
    axes.set_yticks(range(rows), [chart.begin[0], *(label for label, _ in chart.steps), chart.end[0]])
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.1)
    axes.set_xlabel(chart.unit)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def reach(marks: Sequence[Bar | Point]) -> float:
    """Where bars, or points, and their intervals end. Two runs may give an interval many times as long as the bars: it
    is then cut."""
    most = 2 * max((mark.value for mark in marks), default=0.5)
    ends = [mark.high if mark.high is not None and mark.high <= most else mark.value for mark in marks]
    return max(ends, default=1.0)


def cut(bar: Bar, right: float) -> bool:
    """Whether its interval goes on beyond its chart. right: see reach."""
    return bar.low is not None and bar.high is not None and bar.high > right


def _whisker(axes: Any, row: float, bar: Bar, right: float) -> float:
    """Draw the interval, with an arrow where it goes on; returns where the label may begin."""
    if bar.low is None or bar.high is None:
        return bar.value
    high = min(bar.high, right)
    axes.plot([bar.low, high], [row, row], color=INK, linewidth=1.2, solid_capstyle="butt")
    ends = [bar.low] if cut(bar, right) else [bar.low, high]
    axes.plot(ends, [row] * len(ends), color=INK, marker="|", markersize=7, linestyle="none")
    if cut(bar, right):
        axes.plot([high], [row], color=INK, marker=">", markersize=5, linestyle="none")
    return max(high, bar.value)


def _draw_lines(axes: Any, chart: LineChart) -> None:
    points = [point for line in chart.lines for point in line.points]
    devices = sorted({point.at for point in points})
    if chart.links:
        _draw_links(axes, chart, devices)
        return
    ideal = [1.0 if chart.percent else float(n) for n in (1, devices[-1])]
    axes.plot((1, devices[-1]), ideal, color=QUIET, linewidth=1, linestyle=(0, (5, 4)), zorder=1)
    top = 1.08 * max(*ideal, *(point.value for point in points))
    for number, line in enumerate(chart.lines):
        _draw_line(axes, line, colour(line.system), MARKERS[number % len(MARKERS)], top)
    if any(point.predicted for point in points):
        hollow = {"marker": "o", "markerfacecolor": PAPER, "linestyle": (0, (1.5, 1.5))}
        axes.plot([], [], color=QUIET, label="predicted, not measured", **hollow)
        axes.legend(loc="upper left", frameon=False)
    _frame_lines(axes, chart, devices, top)
    ends = [(line.label, colour(line.system), line.points[-1]) for line in chart.lines]
    ends.append(("ideal", QUIET, Point(devices[-1], ideal[-1], None, None, "")))
    _name_lines(axes, ends)


def _draw_links(axes: Any, chart: LineChart, links: list[float]) -> None:
    """Rates over bandwidths. Lines of gradients that are compressed are dotted."""
    from matplotlib.ticker import NullFormatter, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    points = [point for line in chart.lines for point in line.points]
    low, high = 0.8 * min(point.value for point in points), 1.25 * reach(points)
    for number, line in enumerate(chart.lines):
        hue = colour(line.system)
        for point in line.points:
            if point.low is not None:
                _bar(axes, point, hue, high)
        dashes = (0, (4, 2)) if line.dashed else "-"
        _plot(
            axes, list(line.points), color=hue, marker=MARKERS[number % len(MARKERS)], markersize=5.5, linestyle=dashes
        )
    axes.set_xticks(links, [f"{link:g}" for link in links])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)
    ticks = [value for value in _round_values(low, high) if low <= value <= high]
    axes.set_yticks(ticks, [f"{value:g}" for value in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("bandwidth of each node's link (Gb/s)")
    axes.set_ylabel(f"{chart.unit}, {chart.axis or 'median and 95 % interval'}")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    _title(axes, chart.about)
    axes.spines[["top", "right"]].set_visible(False)
    _name_lines(axes, [(line.label, colour(line.system), line.points[-1]) for line in chart.lines])


def _round_values(low: float, high: float) -> Iterator[float]:
    """1, 2 and 5 of each power of ten between two values."""
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        yield from (digit * 10.0**power for digit in (1, 2, 5))


def _name_lines(axes: Any, ends: list[tuple[str, str, Point]]) -> None:
    """Each beside its last point, or as near as others leave it. ends: what is to be written, its colour, the point."""
    on, off = (math.log10, lambda place: 10.0**place) if axes.get_yscale() == "log" else (float, float)
    low, high = map(on, axes.get_ylim())
    right, step, at = axes.get_xlim()[1], (high - low) * APART, low
    for name, hue, point in sorted(ends, key=lambda end: end[2].value):
        at = max(at, on(point.value))
        end = (point.at, point.value)
        leader = {"arrowstyle": "-", "color": hue, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(name, end, (right, off(at)), va="center", annotation_clip=False, arrowprops=leader)
        at += step


def _draw_line(axes: Any, line: Line, colour: str, marker: str, top: float) -> None:
    """Measured points full, on a full line; predicted ones hollow, on a dotted line from the last measured one. top: of
    the axis."""
    measured = [point for point in line.points if not point.predicted]
    predicted = [point for point in line.points if point.predicted]
    style = {"color": colour, "marker": marker, "markersize": 5.5}
    for point in line.points:
        if point.low is not None:
            _bar(axes, point, colour, top)
    if predicted:
        _plot(axes, [*measured[-1:], *predicted], linestyle=(0, (1.5, 1.5)), markerfacecolor=PAPER, **style)
    _plot(axes, measured, linewidth=1.3, **style)


def _plot(axes: Any, points: list[Point], **style: Any) -> None:
    axes.plot([point.at for point in points], [point.value for point in points], **style)


def _bar(axes: Any, point: Point, colour: str, top: float) -> None:
    """An interval, with an arrow where the axis ends before it."""
    ends = [point.low, point.high]
    axes.plot([point.at] * 2, ends, color=colour, marker="_", markersize=7, linewidth=1, alpha=0.8)
    if _beyond(point, top):
        axes.plot([point.at], [top], color=colour, marker="^", markersize=5, clip_on=False)


def _beyond(point: Point, top: float) -> bool:
    return point.high is not None and point.high > top


def _frame_lines(axes: Any, chart: LineChart, devices: list[float], top: float) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_xticks(devices)
    margin = 0.04 * max(1, devices[-1] - 1)
    axes.set_xlim(1 - margin, devices[-1] + margin)
    axes.set_ylim(0, top)  # an interval that goes beyond is cut at the edge
    if chart.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("devices")
    cut = any(_beyond(point, top) for line in chart.lines for point in line.points)
    axes.set_ylabel(f"{chart.unit}, {chart.axis or 'median and 95 % interval'}{BEYOND if cut else ''}")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    _title(axes, chart.about)
    axes.spines[["top", "right"]].set_visible(False)


def _element(document: str, name: str, alt: str) -> str:
    """Without the XML prolog and comments, with a title for those who hear the page."""
    from markupsafe import escape

    element = re.sub(r"<!--.*?-->\n?", "", clean(document[document.index("<svg") :]), flags=re.DOTALL)
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", element).replace("'DejaVu Sans'", FONTS)
    element = element.replace(">", f">\n <style>{_dark()}</style>", 1)
    head = f'<svg role="img" aria-label="{escape(alt)}"'
    return element.replace("<svg", head, 1).strip() + "\n"


def _dark() -> str:
    """A drawing's colours are in attributes, over which a style sheet has its way alone where they are named."""
    rules = (
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    )
    return f"@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}"
