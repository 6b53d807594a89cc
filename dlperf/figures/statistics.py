"""Estimates from a few repeats: medians, intervals, ratios, ties."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev, variance

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """The median of n runs, and the 95 % interval of the median that the runs come from (None when n < 2)."""

    median: float
    low: float | None
    high: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate:
    """Median with a 95 % interval: Student's t on the logarithms of the n values.

    Run times are positive and skewed to the right, so the runs are taken as log-normal; then exp(mean of logarithms)
    is the median of the population, and this interval is exact for it. The replicate is the process.
    """
    if len(values) < 2:
        return Estimate(median(values), None, None, len(values))
    logs = [math.log(value) for value in values]
    half = _t(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    centre = fmean(logs)
    return Estimate(median(values), math.exp(centre - half), math.exp(centre + half), len(values))


def ratio(values: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Median of `values` over median of `reference`, with Welch's 95 % interval of the ratio (on logarithms).

    An interval that contains 1 is a tie. n is the smaller of the two. Bounds are None when either has one value.
    """
    middle = median(values) / median(reference)
    n = min(len(values), len(reference))
    if n < 2:
        return Estimate(middle, None, None, n)
    ours, theirs = _logs(values), _logs(reference)
    half = _welch(variance(ours) / len(ours), len(ours) - 1, variance(theirs) / len(theirs), len(theirs) - 1)
    centre = fmean(ours) - fmean(theirs)
    return Estimate(middle, math.exp(centre - half), math.exp(centre + half), n)


def _welch(a: float, freedom_a: int, b: float, freedom_b: int) -> float:
    """Half width of the interval of a difference of means, whose squared standard errors are a and b.

    Degrees of freedom by Welch (1947) and Satterthwaite (1946). 0 when nothing varies.
    """
    if a + b == 0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / freedom_a + b**2 / freedom_b)
    return _t(freedom) * math.sqrt(a + b)


def tie(relative: Estimate) -> bool:
    """Whether a ratio's interval contains 1. False too when there is no interval: see `unresolved`."""
    return relative.low is not None and relative.high is not None and relative.low <= 1 <= relative.high


def unresolved(relative: Estimate) -> bool:
    """Whether a ratio has no interval, as one run gives none: nobody knows whether the two differ."""
    return relative.low is None


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _t(freedom: float) -> float:
    from scipy import stats  # a slow import that only a report needs

    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))


def median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def divided(value: Estimate, by: int) -> Estimate:
    low, high = (bound / by if bound is not None else None for bound in (value.low, value.high))
    return Estimate(value.median / by, low, high, value.n)
