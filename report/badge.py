"""What a badge on a page says: of a row, or of the fastest of a section. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dlperf.figures import ranking, standings
from dlperf.figures.summaries import Summary, summarized
from dlperf.report import finding, gate, names, public, text
from dlperf.schema import Comparison

#: of rows that are compared with others, in a report that meets all conditions of publishing; and of all else
SOUND, ELSE = "blue", "lightgrey"
Badge = dict[str, int | str]


def badges(comparison: Comparison) -> dict[str, Badge]:
    """As shields.io's endpoint badge takes them: by the anchors of sections whose rows have one size, and by the rows'
    ids."""
    comparison = public.cleaned(comparison)
    sections: dict[str, list[Summary]] = {}
    for summary in summarized(comparison).values():
        if summary.throughput:
            sections.setdefault(names.anchor(summary.job), []).append(summary)
    found: dict[str, Badge] = {}
    for anchor, rows in sections.items():
        places = text.decimals(row.throughput for row in rows if row.throughput)
        if fastest := _fastest(rows, places, comparison):
            found[anchor] = fastest
        found |= {row.job.id: _badge([row], places, comparison) for row in rows}
    return found


def _fastest(rows: Sequence[Summary], places: int, comparison: Comparison) -> Badge | None:
    """None where rows have several sizes, or no row is compared with others."""
    ranked = [row for row in rows if row.job.traits.ranked]
    if len({row.job.work for row in ranked}) != 1:
        return None
    found = standings.standings(ranked, standings.obstacles(comparison), ranking.level(comparison.spec))
    first = [one.summary for one in found if finding.may_be_first(one)]
    return _badge(first, places, comparison) if first else None


def _badge(rows: Sequence[Summary], places: int, comparison: Comparison) -> Badge:
    """rows: of those that these runs do not tell apart, the first one's rate is told."""
    job, estimate = rows[0].job, rows[0].throughput
    assert estimate is not None
    interval = f" {text.interval(estimate, places)}" if estimate.low is not None else ""
    rate = f"{text.number(estimate.centre, places)} {names.rate_unit(job.family)}{interval}"
    others = [names.system(row.job) for row in rows[1:]]
    tie = text.listing(others) if len(others) < finding.MOST_TIED else text.count(len(others), "other")
    message = f"{names.system(job)} {rate}" + (f" (tie with {tie})" if others else "")
    label = names.section(job) + (f", {job.size}" if job.world_size > 1 else "")
    apart = not job.traits.ranked or job.id in standings.obstacles(comparison) or gate.of_published(comparison)
    return {"schemaVersion": 1, "label": label, "message": message, "color": ELSE if apart else SOUND}
