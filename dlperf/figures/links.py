"""What a link's bandwidth does to a step: of rows that differ in that alone. Pure.

A step takes `fixed + gigabits / bandwidth` seconds: what does not depend on the link, and what it carries that nothing
hides. Both are fitted to the medians of rows, by least squares of relative errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlperf.figures.summaries import Summary


@dataclass(frozen=True)
class Fit:
    """fixed: seconds of a step. gigabits: that a step waits for, as one node's link carries them."""

    fixed: float
    gigabits: float

    def seconds(self, bandwidth: float) -> float:
        return self.fixed + self.gigabits / bandwidth

    def share(self, bandwidth: float) -> float:
        """Of a step, that waits for the link."""
        return 1 - self.fixed / self.seconds(bandwidth)


def step_seconds(summary: Summary) -> float | None:
    """Of the median rate; None where there is none."""
    return summary.job.global_batch_size / summary.throughput.centre if summary.throughput else None


def fit(points: Sequence[tuple[float, float]]) -> Fit | None:
    """points: bandwidths in Gb/s, and seconds of a step. None of fewer than two bandwidths. Neither part is below 0."""
    if len({bandwidth for bandwidth, _ in points}) < 2:
        return None
    rows = [(1 / seconds, 1 / (bandwidth * seconds)) for bandwidth, seconds in points]  # to be 1, relatively
    aa, ab, bb = (math.fsum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (math.fsum(row[i] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    fixed, gigabits = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if gigabits < 0:
        return Fit(a / aa, 0.0)
    return Fit(0.0, b / bb) if fixed < 0 else Fit(fixed, gigabits)


def crossing(plain: Fit, compressed: Fit) -> float | None:
    """The bandwidth below which steps with compression are shorter: 0 where they never are, None where they always
    are."""
    less, more = plain.gigabits - compressed.gigabits, compressed.fixed - plain.fixed
    if more <= 0:
        return None if less >= 0 else 0.0
    return max(0.0, less / more)
