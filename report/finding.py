"""Who was fastest, who came next, and how sure that is, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from dlperf.figures import ranking, statistics, summaries
from dlperf.figures.standings import Standing
from dlperf.figures.summaries import Summary
from dlperf.report import names, text
from dlperf.report.shape import Others
from dlperf.schema import Skip


def summary(
    standings: list[list[Standing]],
    groups: list[list[Summary]],
    skips: list[Skip],
    apart: tuple[Others, ...],
    level: float,
) -> str:
    """Of a section. standings, groups: by size. level: that rows were told apart at."""
    parts = [_over_sizes(standings, groups)] if len(groups) > 1 else []
    parts += [f"On this machine {_winner(ranked, level)}" for ranked in standings if len(groups) == 1]
    if not groups and not skips:
        return f"{text.listing(one.title for one in apart)} only, in a table of their own and in no ranking."
    missing = [names.system(s.job) for group in groups for s in group if not s.done]
    missing += ["other rows of " * names.has_figures(skip, groups) + names.system(skip) for skip in skips]
    if missing and any(standings):
        parts.append(f"No figure for {text.listing(missing)}; the table says why.")
    return " ".join(parts) if any(standings) else "No system has a figure; the table says why."


#: the note of a row of kind "tie"
TIE = "tie with the fastest"
#: systems that a headline names together
MOST_TIED = 3


def headline(ranked: list[Standing]) -> str:
    """Who was fastest, in a few words, for the title of a chart."""
    return text.capital(_headline(ranked))


def _headline(ranked: list[Standing]) -> str:
    known = [standing for standing in ranked if not standing.obstacle]
    if len(known) == 1:
        return f"{_name(known[0])} reached {_rate(known[0], decimals(known))}"
    behind = next((s for s in known[1:] if s.relative), None)
    if len(_first(known)) > 1 or behind is None or _unknown(known):
        return _leader(known)
    after = _next([s for s in known[1:] if s.relative])
    times = [f"{text.number(1 / s.relative.centre, 2)} times {_name(s)}" for s in after if s.relative]
    return f"{_leader(known)}, {text.listing(times)}" if len(after) <= MOST_TIED else _leader(known)


def _leader(known: list[Standing]) -> str:
    """known: those that nothing stands in the way of."""
    if not known:
        return "no row is proven to have done the same work"
    first = _first(known)
    if len(first) > 1:
        named = text.listing(map(_name, first)) if len(first) <= MOST_TIED else f"{len(first)} of {len(known)} systems"
        return f"{named} tie for the first place"
    if len(known) == 1:
        return f"{_name(known[0])} alone has a rate"
    return f"{_name(known[0])} {'had the highest rate of too few runs' if _unknown(known) else 'was fastest'}"


def _over_sizes(standings: list[list[Standing]], groups: list[list[Summary]]) -> str:
    """`PyTorch was fastest on 1n1d and 1n8d; JAX alone has a rate on 4n32d.`"""
    found: dict[str, list[str]] = {}
    for ranked, size in zip(standings, names.short_sizes([group[0].job for group in groups]), strict=True):
        said = _leader([s for s in ranked if not s.obstacle]) if ranked else "no system has a figure"
        found.setdefault(said, []).append(size)
    return text.capital("; ".join(f"{said} on {text.listing(sizes)}" for said, sizes in found.items())) + "."


def _first(known: list[Standing]) -> list[Standing]:
    """Those that may be fastest."""
    return [*known[:1], *(s for s in known[1:] if s.may_be_fastest)]


def _next(rest: list[Standing]) -> list[Standing]:
    """Those that may come next, of rows behind the first, the best of them first."""
    return [s for s in rest if s is rest[0] or (s.ranks and rest[0].ranks and s.ranks[0] <= rest[0].ranks[0])]


def _unknown(known: list[Standing]) -> list[Standing]:
    """Those of which too few runs tell nothing."""
    return [s for s in known[1:] if s.ranks is None or known[0].ranks is None]


def _winner(ranked: list[Standing], level: float) -> str:
    """Who was fastest, or may have been; who came next; and who is in no ranking."""
    if not ranked:
        return "no system has a figure."
    aside = text.listing(_name(standing) for standing in ranked if standing.obstacle)
    ranked = [standing for standing in ranked if not standing.obstacle]
    if not ranked:
        return f"no row has proof that it did the same work: {aside}. None is called fastest."
    best = ranked[0]
    places = decimals(ranked)
    first, unknown = _first(ranked), _unknown(ranked)
    rest = [s for s in ranked[1:] if s.ranks and best.ranks and not s.may_be_fastest]
    if len(first) > 1:
        group = text.listing(f"{_name(s)} ({_rate(s, places)})" for s in first)
        parts = [f"{group} were fastest; these runs do not tell them apart. {_wanted(first, level)}".rstrip()]
    else:
        verb = "reached" if len(ranked) == 1 else "had the highest rate" if unknown else "was fastest"
        parts = [f"{_name(best)} {verb}: {_rate(best, places)}."]
    if len(ranked) > ranking.MOST_RANKED:
        parts.append(f"More than {ranking.MOST_RANKED:,} rows are not compared with each other, so they have no ranks.")
    elif unknown:
        others = text.listing(map(_name, unknown))
        parts.append(f"Too few repeats to tell whether {others} {_differ(unknown)} from it.")
    if rest:
        after = _next(rest)
        tied = ", not told apart" if len(after) > 1 else ""
        at = text.listing(map(_relative, after))
        parts.append(f"{text.listing(map(_name, after))} came next{tied}, at {at} of the rate of {_name(best)}.")
    parts += _order(ranked, places)
    if aside:
        parts.append(f"Not comparable: {aside}; the table says why.")
    return " ".join(parts)


def _order(ranked: list[Standing], places: int) -> list[str]:
    """Why a row stands above one with a higher median, where one does."""
    for above, below in pairwise(ranked):
        a, b = (s.summary.throughput for s in (above, below))
        if above.ranks and a and b and float(f"{a.centre:.{places}f}") < float(f"{b.centre:.{places}f}"):
            before = f"{_name(below)} is before {_name(above)}"
            return [f"Rows stand by their ratios, of runs in the same block: by medians {before}."]
    return []


def _wanted(first: list[Standing], level: float) -> str:
    """How many blocks it would take to tell the first from the one that is most behind it, if it is."""
    rates = [summaries.rates_of(standing.summary) for standing in first]
    furthest = min((s for s in first[1:] if s.relative), key=lambda s: s.relative.centre if s.relative else 1.0)
    apart = statistics.contrast(rates[0], summaries.rates_of(furthest.summary)).centre
    noise = ranking.noise(rates, level)
    blocks = noise.blocks_for(apart) if noise else None
    if blocks is None:
        return ""
    behind = text.number(100 * (1 - furthest.relative.centre), 1) if furthest.relative else ""
    return f"If {_name(furthest)} is {behind} % behind, as it looks, about {blocks} repeats would show it."


def _differ(standings: list[Standing]) -> str:
    return "differs" if len(standings) == 1 else "differ"


def _name(standing: Standing) -> str:
    return names.system(standing.summary.job)


def decimals(ranked: Iterable[Standing]) -> int:
    return text.decimals(s.summary.throughput for s in ranked if s.summary.throughput)


def _rate(standing: Standing, places: int) -> str:
    """`9.83 img/s [9.41, 10.27], n=3`."""
    estimate = standing.summary.throughput
    assert estimate is not None
    rate = f"{text.number(estimate.centre, places)} {names.rate_unit(standing.summary.job.family)}"
    spread = f" {text.interval(estimate, places)}" if estimate.low is not None else ""
    return f"{rate}{spread}, n={estimate.n}"


def _relative(standing: Standing) -> str:
    assert standing.relative is not None
    return f"{text.number(standing.relative.centre, 3)} {text.interval(standing.relative, 3)}"


def kind(standing: Standing) -> str:
    if standing.obstacle:
        return "incomparable"
    if standing.relative is None:
        return "fastest"
    if standing.may_be_fastest:
        return "tie"
    return "unresolved" if statistics.unresolved(standing.relative) else ""


def may_be_first(standing: Standing) -> bool:
    """Whether it is the fastest, or these runs do not tell it from that."""
    return kind(standing) in ("fastest", "tie")


def rate(summary: Summary, standing: Standing | None, places: int) -> str:
    """A cell of a table of many systems: in brackets where the row is in no ranking. standing: None of a row whose kind
    is never ranked, or that has no figure."""
    shown = text.number(summary.throughput.centre if summary.throughput else None, places)
    return f"({shown})" if standing and standing.obstacle else shown


def failures(summary: Summary) -> str:
    """The kinds of a row's failures; empty without any."""
    return text.listing(names.status(record.failure.kind) for record in summary.failed if record.failure)
