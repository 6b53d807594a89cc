"""Estimates from a few repeats: medians, intervals, ratios by block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

CONFIDENCE = 0.95
#: runs from which on an interval of the median assumes nothing about their distribution
FREE = 5


@dataclass(frozen=True)
class Estimate:
    """What n runs, or pairs of runs, say: a centre, and its 95 % interval, which holds the centre (None when n < 2).

    paired: of a ratio, whether it is one of runs of the same blocks.
    """

    centre: float
    low: float | None
    high: float | None
    n: int
    paired: bool = False


def estimate(values: Sequence[float]) -> Estimate:
    """The median of a row's runs, with an interval of the median of the distribution that they come from.

    From five runs on it lies between two of the runs, whatever the distribution: the k-th smallest and the k-th largest
    hold the median unless fewer than k runs fall on one side, which a fair coin decides (with five runs 93.75 %, with
    more at least 95 %). Fewer runs take Student's t on the logarithms, which assumes that they are normal.
    """
    n, centre = len(values), median(values)
    if n < 2:
        return Estimate(centre, None, None, n)
    if n < FREE:
        logs = _logs(values)
        middle, half = fmean(logs), _t(n - 1) * stdev(logs) / math.sqrt(n)
        return Estimate(centre, min(math.exp(middle - half), centre), max(math.exp(middle + half), centre), n)
    ordered, outside = sorted(values), _outside(n)
    return Estimate(centre, ordered[outside], ordered[-1 - outside], n)


def _outside(n: int) -> int:
    """How many of n runs may lie below the interval, and as many above."""
    missed, outside = 0.0, -1
    while missed <= 1 - CONFIDENCE:
        outside += 1
        missed += 2 * math.comb(n, outside) / 2**n
    return max(outside - 1, 0)


#: runs from which on two groups can be seen; the gap between them over what a group varies by; the least difference.
#: Of 7 normal runs 1.4 % look like two groups, of 10 or more 0.1 %; of 7 runs at two speeds 6 % apart, each varying by
#: 0.5 %, 83 % are seen
SEEN, GAP, LEAST = 7, 6.0, 0.01


def two_speeds(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """The slower and the faster runs, two or more of each, where a gap parts them: a machine that changes between two
    speeds, or a framework that chooses between two kernels. None where there is no such gap."""
    ordered = sorted(values)
    if len(ordered) < SEEN:
        return None
    logs = _logs(ordered)
    cut = max(range(2, len(logs) - 1), key=lambda place: logs[place] - logs[place - 1])
    gap, groups = logs[cut] - logs[cut - 1], (logs[:cut], logs[cut:])
    within = math.sqrt(sum(variance(one) * (len(one) - 1) for one in groups) / (len(logs) - 2))
    apart = gap > GAP * within and median(groups[1]) - median(groups[0]) > LEAST
    return (ordered[:cut], ordered[cut:]) if apart else None


@dataclass(frozen=True)
class Contrast:
    """Of the logarithms of two rows' rates: mean, its standard error, degrees of freedom; n pairs of runs, or the runs
    of the row that has fewer. Without two of them error and freedom are 0."""

    centre: float
    error: float
    freedom: float
    n: int
    paired: bool

    @property
    def p_value(self) -> float:
        """Two-sided. 1 where nothing is known; 0 where different rates never vary."""
        if not self.error:
            return 1.0 if self.n < 2 or not self.centre else 0.0
        from scipy import special

        return float(2 * special.stdtr(self.freedom, -abs(self.centre) / self.error))


def variance(values: Sequence[float]) -> float:
    """Of a sample. `statistics.variance` adds up fractions, which takes most of a large report's time."""
    centre = fmean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def stdev(values: Sequence[float]) -> float:
    return math.sqrt(variance(values))


def contrast(values: Mapping[int, float], reference: Mapping[int, float]) -> Contrast:
    """Of two rows, as rates by block: in pairs, over the blocks in which both have a run, if these are half of the
    runs of the row that has fewer; else of all runs, by Welch (1947) with the degrees of freedom of Satterthwaite
    (1946)."""
    fewer = min(len(values), len(reference))
    common = sorted(values.keys() & reference.keys())
    if len(common) >= min(2, fewer) and 2 * len(common) >= fewer:
        logs = [math.log(values[block] / reference[block]) for block in common]
        n = len(logs)
        error = stdev(logs) / math.sqrt(n) if n > 1 else 0.0
        return Contrast(fmean(logs), error, n - 1, n, True)
    ours, theirs = _logs(values.values()), _logs(reference.values())
    centre = fmean(ours) - fmean(theirs)
    if fewer < 2:
        return Contrast(centre, 0.0, 0, fewer, False)
    a, b = variance(ours) / len(ours), variance(theirs) / len(theirs)
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1)) if a + b else 1.0
    return Contrast(centre, math.sqrt(a + b), freedom, fewer, False)


def ratio(values: Mapping[int, float], reference: Mapping[int, float]) -> Estimate:
    """Rates of one row over those of another, both by block: the mean of the ratio's logarithms, with the 95 % interval
    of this ratio alone, by Student's t. See `contrast`."""
    return interval(contrast(values, reference))


def interval(found: Contrast) -> Estimate:
    """Of a contrast, as a ratio, with the 95 % interval of this ratio alone, by Student's t."""
    if found.n < 2:
        return Estimate(math.exp(found.centre), None, None, found.n, found.paired)
    half = _t(found.freedom) * found.error
    return Estimate(
        math.exp(found.centre), math.exp(found.centre - half), math.exp(found.centre + half), found.n, found.paired
    )


def mean_logarithm(values: Mapping[int, float]) -> float:
    """By which rows are put in order, since their ratios are compared on logarithms."""
    return fmean(_logs(values.values()))


def unresolved(relative: Estimate) -> bool:
    """Whether a ratio has no interval, as one run gives none: nobody knows whether the two differ."""
    return relative.low is None


def _logs(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]


def _t(freedom: float) -> float:
    from scipy import special  # a slow import that only a report needs

    return float(special.stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def divided(value: Estimate, by: int) -> Estimate:
    low, high = (bound / by if bound is not None else None for bound in (value.low, value.high))
    return Estimate(value.centre / by, low, high, value.n, value.paired)
