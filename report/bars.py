"""The chart of a section: a bar for each row, a panel for each size. Pure."""

from __future__ import annotations

from dlperf.figures.standings import Standing
from dlperf.figures.summaries import Summary, rates_of
from dlperf.report import finding, names, text
from dlperf.report.shape import Bar, Chart, Panel
from dlperf.schema import Skip

#: rows that a chart has room for
MOST_ROWS = 60


def chart(
    title: str, anchor: str, standings: list[list[Standing]], groups: list[list[Summary]], skips: list[Skip]
) -> Chart | None:
    """None where no row has a figure. title, anchor: the section's. standings: by size; none where no row is ranked."""
    rates = [one.throughput for group in groups for one in group if one.throughput]
    if not rates:
        return None
    several, places = len(groups) > 1, text.decimals(rates)
    panels = [
        Panel(
            title=_titled(names.size(group[0].job), ranked) if several else title,
            bars=tuple(_bar(summary, kind, places) for summary, kind in _best_first(ranked, group)),
            missing=tuple((names.system(s.job), finding.failures(s) or "not run yet") for s in group if not s.done),
        )
        for ranked, group in zip(standings or [[] for _ in groups], groups, strict=True)
    ]
    others = ["other rows: " if names.has_figures(skip, groups) else "" for skip in skips]
    skipped = tuple(
        (names.system(skip), other + names.status(skip.status)) for skip, other in zip(skips, others, strict=True)
    )
    if several and skipped:
        panels.append(Panel("Not run", (), skipped))
    elif skipped:
        panels[0] = Panel(title, panels[0].bars, panels[0].missing + skipped)
    rows = sum(len(panel.bars) + len(panel.missing) for panel in panels)
    shown = f", the first {MOST_ROWS} of {rows:,} rows" if rows > MOST_ROWS else ""
    unit = names.rate_unit(groups[0][0].job.family)
    return Chart(
        file=f"charts/{anchor}.svg",
        title=(title if several or not standings else finding.headline(standings[0])) + shown,
        unit=unit,
        alt=f"Bars of {unit}: " + "; ".join(_said(panel, several) for panel in panels if panel.bars),
        panels=tuple(_first(panels, MOST_ROWS)),
    )


def _titled(size: str, ranked: list[Standing]) -> str:
    return text.capital(f"{size}: {finding.headline(ranked)}" if len(ranked) > 1 else size)


def _said(panel: Panel, several: bool) -> str:
    bars = "; ".join(f"{bar.label} {bar.text}" for bar in panel.bars)
    return f"{panel.title.partition(':')[0]}: {bars}" if several else bars


def _first(panels: list[Panel], rows: int) -> list[Panel]:
    """As many as have so many rows together, the last one cut."""
    found = []
    for panel in panels:
        bars = panel.bars[:rows]
        rows -= len(bars)
        missing = panel.missing[:rows]
        rows -= len(missing)
        if bars or missing:
            found.append(Panel(panel.title, bars, missing))
    return found


def _best_first(ranked: list[Standing], group: list[Summary]) -> list[tuple[Summary, str]]:
    """Rows with figures, each with its kind."""
    if ranked:
        return [(standing.summary, finding.kind(standing)) for standing in ranked]
    known = [(one.throughput.centre, one) for one in group if one.throughput]
    return [(one, "") for _, one in sorted(known, key=lambda pair: -pair[0])]


def _bar(summary: Summary, kind: str, places: int) -> Bar:
    estimate = summary.throughput
    assert estimate is not None
    word = {"tie": ", tie", "incomparable": ", not comparable"}.get(kind, "")
    said = f"{text.number(estimate.centre, places)} (n={estimate.n}{word})"
    return Bar(
        names.system(summary.job), estimate.centre, estimate.low, estimate.high, said, tuple(rates_of(summary).values())
    )
