"""Bar charts as SVG: the same bytes for the same figures. Letters are drawn as paths, so that no font is needed."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

from dlperf.report.shape import Bar, Chart

BAR, INK, QUIET = "#86a7cd", "#1a1a1a", "#6b6b6b"
WIDTH_INCHES = 7.6
ROW_INCHES = 0.34
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


def svg(chart: Chart, name: str) -> str:
    """The chart as one <svg> element. `name` prefixes every id, so that several charts fit in one page."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = len(chart.bars) + len(chart.missing)
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # an empty box is good enough for a rare letter
        figure = Figure(figsize=(WIDTH_INCHES, 1.0 + ROW_INCHES * rows), layout="constrained")
        _draw(figure.add_subplot(), chart)
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _element(buffer.getvalue(), name, chart.alt)


def _draw(axes: Any, chart: Chart) -> None:
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
    axes.set_title(chart.title, loc="left", fontsize=10, pad=8)
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


def _element(document: str, name: str, alt: str) -> str:
    """Without the XML prolog and comments, with a title for those who hear the page."""
    from markupsafe import escape

    element = re.sub(r"<!--.*?-->\n?", "", document[document.index("<svg") :], flags=re.DOTALL)
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", element)
    head = f'<svg role="img" aria-label="{escape(alt)}"'
    return element.replace("<svg", head, 1).strip() + "\n"
