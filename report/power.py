"""What a table's runs can tell: the difference that they would find, the repeats for smaller ones, and how rows of the
same system came out. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dlperf.figures import ranking, statistics, summaries
from dlperf.figures.standings import Standing
from dlperf.report import names, text

#: differences that people ask for
WANTED = (0.01, 0.02, 0.05)


def sentences(ranked: Sequence[Standing], level: float) -> Iterator[str]:
    """Of the rows of one size, those without rank left out; nothing where no two have several runs."""
    rows = [standing.summary for standing in ranked if standing.ranks]
    rates = [summaries.rates_of(row) for row in rows]
    noise = ranking.noise(rates, level)
    if noise is None:
        return
    least = noise.smallest(noise.blocks)
    yield (
        f"With {text.count(max(map(len, rates)), 'repeat')}, a difference of {_percent(least)} between two rows would "
        f"be found in {100 * ranking.POWER:g} % of such comparisons{_repeats(noise, least)}. At most "
        f"{100 * ranking.ERROR:g} % of tables like this one call equal rows different."
    )
    places = {row.job.id: place for place, row in enumerate(rows)}
    pairs = [(places.get(row.job.duplicate_of), place) for place, row in enumerate(rows) if row.job.duplicate_of]
    equal = [(first, second) for first, second in pairs if first is not None]
    if equal:
        faster = ranking.told_apart(rates, level)
        wrong = sum(bool(faster[pair] or faster[pair[::-1]]) for pair in equal)
        ratios = [statistics.ratio(rates[second], rates[first]) for first, second in equal]
        told = text.listing(
            f"{names.system(rows[pair[1]].job)} ran at {text.number(ratio.centre, 3)} {text.interval(ratio, 3)} of "
            f"{names.system(rows[pair[0]].job)}"
            for pair, ratio in zip(equal, ratios, strict=True)
        )
        yield f"Equal rows called different: {wrong} of {text.count(len(equal), 'pair')}. {told}."


def _repeats(noise: ranking.Noise, least: float) -> str:
    """`, and one of 2 % with about 43 repeats`, of those that the runs would not find."""
    blocks = {wanted: noise.blocks_for(math.log1p(wanted)) for wanted in WANTED if math.log1p(wanted) < least}
    more = [
        f"{100 * wanted:g} % with {f'about {count:,}' if count else f'more than {ranking.TOO_MANY:,}'}"
        for wanted, count in blocks.items()
    ]
    return f"; one of {text.listing(more)}" if more else ""


def _percent(difference: float) -> str:
    """Of logarithms, as the rates' difference."""
    return f"{text.number(100 * math.expm1(difference), 1)} %"
