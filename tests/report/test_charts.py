"""What a chart shows of an interval that is longer than its axis."""

from __future__ import annotations

import re
import textwrap

import pytest

from dlperf.report import charts, templates
from dlperf.report.narrow import narrow
from dlperf.report.shape import Bar, Chart, Line, LineChart, Panel, Point


def bars(high: float) -> Chart:
    each = (Bar("A", 10.0, 9.0, 11.0, "10"), Bar("B", 5.0, 1.0, high, "5"))
    return Chart("charts/x.svg", "A was fastest", "img/s", "bars", (Panel("", each),))


def lines(high: float) -> LineChart:
    each = (Point(1, 1.0, None, None, "1"), Point(2, 1.9, 1.5, high, "1.9"))
    return LineChart(
        "charts/x.svg", "Speedup", "ResNet", "speedup", "lines", (Line("jax", "JAX", each),), percent=False
    )


def arrows(drawn: str) -> int:
    """Triangles, which are filled: a marker's path that is closed after three points."""
    found = re.findall(r'<path id="[^"]+" d="M [^"]+"', drawn)
    return sum(len(re.findall(r"L ", path)) == 2 and "z" in path for path in found)


@pytest.mark.parametrize(("made", "inside", "beyond"), [(bars, 19.0, 21.0), (lines, 2.1, 2.2)])
def test_an_interval_that_is_cut_ends_in_an_arrow_and_the_axis_says_so(made, inside, beyond) -> None:  # type: ignore[no-untyped-def]
    whole, cut = (charts.svg(made(high), "x") for high in (inside, beyond))
    assert (arrows(whole), arrows(cut)) == (0, 1)
    assert [charts.BEYOND in drawn for drawn in (whole, cut)] == [False, True]


def test_a_telephone_has_each_bar_under_its_name_with_its_interval() -> None:
    whole, cut = (narrow(bars(high)) for high in (19.0, 21.0))
    assert [word.said for word in whole.words] == ["", "A: 10", "B: 5", *said(charts.caption(bars(19.0)))]
    assert [word.said for word in cut.words][3:] == said(charts.caption(bars(21.0)))
    (a, b), (_, beyond) = whole.boxes, cut.boxes
    assert float(a.x) == pytest.approx(2 * float(b.x), abs=0.1)
    low, high = re.findall(r"M([\d.]+) |H([\d.]+)", a.interval)
    assert [float(low[0]), float(high[1])] == pytest.approx([0.9 * float(a.x), 1.1 * float(a.x)], abs=0.1)
    assert [box.interval.endswith("l-5-4m5 4-5 4") for box in (b, beyond)] == [False, True], "an arrow"
    drawn = templates(autoescape=True).get_template("narrow.svg.j2").render(chart=whole)
    assert (drawn.count("<rect "), drawn.count("<path ")) == (2, 2)


def said(caption: str) -> list[str]:
    return textwrap.wrap(caption, 48)
