"""Charts as SVG: the same bytes for the same figures. Letters are drawn as paths, so that no font is needed."""

from __future__ import annotations

import io
import os
import re
import warnings
from typing import Any

from dlperf.report import text
from dlperf.report.shape import Bar, Chart, Line, LineChart, Point, Waterfall

BAR, INK, QUIET = "#86a7cd", "#1a1a1a", "#6b6b6b"
#: of what makes a row slower, and faster
MORE, LESS = "#d98b5f", "#7fb69a"
WIDTH_INCHES = 7.6
ROW_INCHES = 0.34
LINES_INCHES = 4.2
#: colours that most colour-blind people tell apart (Okabe and Ito 2008), with markers for those who do not
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1a1a1a", "#8a6d00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: Any = {
    "svg.hashsalt": "dlperf",
    "svg.fonttype": "path",
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
        _draw(figure.add_subplot(), chart)
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return buffer.getvalue()


def _height(chart: Chart | LineChart | Waterfall) -> float:
    if isinstance(chart, Waterfall):
        return 1.0 + ROW_INCHES * (len(chart.steps) + 2)
    return LINES_INCHES if isinstance(chart, LineChart) else 1.0 + ROW_INCHES * (len(chart.bars) + len(chart.missing))


def _draw(axes: Any, chart: Chart | LineChart | Waterfall) -> None:
    if isinstance(chart, Waterfall):
        _draw_waterfall(axes, chart)
    elif isinstance(chart, LineChart):
        _draw_lines(axes, chart)
    else:
        _draw_bars(axes, chart)
    axes.set_title(chart.title, loc="left", fontsize=10, pad=8)


def _draw_bars(axes: Any, chart: Chart) -> None:
    bars, missing = chart.bars, chart.missing
    right = max((bar.high or bar.value) if _fits(bar, bars) else bar.value for bar in bars)
    axes.barh(range(len(bars)), [bar.value for bar in bars], height=0.62, color=BAR)
    for row, bar in enumerate(bars):
        end = _whisker(axes, row, bar, right)
        axes.annotate(bar.text, (end, row), (5, 0), textcoords="offset points", va="center")
    for row, (_, reason) in enumerate(missing, start=len(bars)):
        axes.barh(row, right * 0.02, height=0.62, color="white", edgecolor=QUIET, hatch="////", linewidth=0.6)
        axes.annotate(reason, (right * 0.02, row), (5, 0), textcoords="offset points", va="center", color=QUIET)
    axes.set_yticks(range(len(bars) + len(missing)), [*(bar.label for bar in bars), *(label for label, _ in missing)])
    axes.set_ylim(len(bars) + len(missing) - 0.4, -0.6)
    axes.set_xlim(0, right * 1.3)
    axes.set_xlabel(f"{chart.unit}, median of n runs and 95 % interval")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_waterfall(axes: Any, chart: Waterfall) -> None:
    """Each step begins where the one above has ended."""
    rows, at = len(chart.steps) + 2, chart.begin[1]
    for row, (_, seconds) in ((0, chart.begin), (rows - 1, chart.end)):
        axes.barh(row, seconds, height=0.62, color=BAR)
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


def _fits(bar: Bar, bars: tuple[Bar, ...]) -> bool:
    """Two runs may give an interval many times as long as the bars: it is then cut at the chart's edge."""
    return bar.high is not None and bar.high <= 2 * max(other.value for other in bars)


def _whisker(axes: Any, row: int, bar: Bar, right: float) -> float:
    """Draw the interval; returns where the label may begin."""
    if bar.low is None or bar.high is None:
        return bar.value
    high = min(bar.high, right)
    axes.plot([bar.low, high], [row, row], color=INK, linewidth=1.2, solid_capstyle="butt")
    ends = [bar.low] if high < bar.high else [bar.low, high]
    axes.plot(ends, [row] * len(ends), color=INK, marker="|", markersize=7, linestyle="none")
    return max(high, bar.value)


def _draw_lines(axes: Any, chart: LineChart) -> None:
    points = [point for line in chart.lines for point in line.points]
    devices = sorted({point.devices for point in points})
    ideal = [1.0 if chart.percent else float(n) for n in (1, devices[-1])]
    axes.plot((1, devices[-1]), ideal, color=QUIET, linewidth=1, linestyle=(0, (5, 4)), label="ideal", zorder=1)
    systems = list(dict.fromkeys(line.system for line in chart.lines))
    for number, line in enumerate(chart.lines):
        colour = COLOURS[systems.index(line.system) % len(COLOURS)]
        _draw_line(axes, line, colour, MARKERS[number % len(MARKERS)])
    if any(point.predicted for point in points):
        hollow = {"marker": "o", "markerfacecolor": "white", "linestyle": (0, (1.5, 1.5))}
        axes.plot([], [], color=QUIET, label="predicted, not measured", **hollow)
    _frame_lines(axes, chart, devices, max(*ideal, *(point.value for point in points)))


def _draw_line(axes: Any, line: Line, colour: str, marker: str) -> None:
    """Measured points full, on a full line; predicted ones hollow, on a dotted line from the last measured one."""
    measured = [point for point in line.points if not point.predicted]
    predicted = [point for point in line.points if point.predicted]
    style = {"color": colour, "marker": marker, "markersize": 5.5}
    for point in line.points:
        if point.low is not None:
            _bar(axes, point, colour)
    if predicted:
        _plot(axes, [*measured[-1:], *predicted], linestyle=(0, (1.5, 1.5)), markerfacecolor="white", **style)
    _plot(axes, measured, linewidth=1.3, label=line.label, **style)


def _plot(axes: Any, points: list[Point], **style: Any) -> None:
    axes.plot([point.devices for point in points], [point.value for point in points], **style)


def _bar(axes: Any, point: Point, colour: str) -> None:
    ends = [point.low, point.high]
    axes.plot([point.devices] * 2, ends, color=colour, marker="_", markersize=7, linewidth=1, alpha=0.8)


def _frame_lines(axes: Any, chart: LineChart, devices: list[int], top: float) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_xticks(devices)
    axes.set_xlim(0, devices[-1] * 1.04)
    axes.set_ylim(0, top * 1.08)  # an interval that goes beyond is cut at the edge
    if chart.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("devices")
    axes.set_ylabel(f"{chart.unit}, median and 95 % interval")
    axes.grid(axis="y", color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.figure.legend(loc="outside right upper", frameon=False)  # beside the axes, where no line runs
    axes.spines[["top", "right"]].set_visible(False)


def _element(document: str, name: str, alt: str) -> str:
    """Without the XML prolog and comments, with a title for those who hear the page."""
    from markupsafe import escape

    element = re.sub(r"<!--.*?-->\n?", "", document[document.index("<svg") :], flags=re.DOTALL)
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", element)
    head = f'<svg role="img" aria-label="{escape(alt)}"'
    return element.replace("<svg", head, 1).strip() + "\n"
