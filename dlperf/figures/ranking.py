"""Which rows of a table can be told apart, so that the error of all its comparisons together is held.

Rates are compared on their logarithms, by blocks: repeat by repeat, each made within a short time in random order, so
that what slows the whole machine down for a while slows all rows alike.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING

from dlperf.figures.statistics import contrast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: of all comparisons of a table together: the chance that at least one of two equal rows is called slower
ERROR = 0.05
#: that the tests are made at. The rest is for what they approximate, as that runs one after the other do not resemble
#: each other. `make bench-statistics` counts what comes of it
LEVEL = 0.0435
#: the same of a table that was looked at several times before its last block, see dlperf.figures.until
LEVEL_OF_LOOKS = 0.033
#: rows up to which the comparisons of a table are judged by their joint distribution; above, by Holm's method
MOST_JOINT = 12
#: rows up to which all pairs of a table are compared at all
MOST_RANKED = 1000
#: tables of equal rows that are drawn for it; shuffles of a table's own blocks
DRAWS, SHUFFLES = 20_000, 999
#: the standard deviation of the noisiest row over that of the quietest, in half of the tables that are drawn
SPREAD = 10.0
#: fits of the variances; two rows' variance is at least this share of what their differences show
FITS, LEAST_SHARE = 4, 0.05
#: of a p-value: of few blocks, a shuffled table is often the table itself, whose p-values differ by how a CPU adds up
ROUNDING = 1e-9


def level(spec: Mapping[str, object]) -> float:
    """That of a comparison, by its request as it is stored."""
    return LEVEL_OF_LOOKS if spec.get("until") else LEVEL


def ranks(rows: Sequence[Mapping[int, float]], level: float = LEVEL) -> list[tuple[int, int] | None]:
    """The first and the last rank that each row may have: 1 and 3 for each of three rows that are the fastest together.
    None for a row with fewer than two runs, of which nobody knows, and where more than `MOST_RANKED` would be compared,
    since their pairs are too many.

    rows: rate by block.
    """
    known = [index for index, row in enumerate(rows) if len(row) >= 2]
    if len(known) > MOST_RANKED:
        return [None] * len(rows)
    faster = told_apart([rows[index] for index in known], level)
    found: list[tuple[int, int] | None] = [None] * len(rows)
    for place, index in enumerate(known):
        found[index] = 1 + int(faster[:, place].sum()), len(known) - int(faster[place].sum())
    return found


def told_apart(rows: Sequence[Mapping[int, float]], level: float = LEVEL) -> NDArray[np.bool_]:
    """[i, j]: whether row i is faster than row j. Each row has two runs or more.

    Where all rows have the same blocks: min-p of Westfall and Young (1993), stepping down, of all pairs. A pair must be
    found twice: beside tables of equal, normal rows, and beside this table with the rows of each block shuffled,
    which needs no more than that equal rows could have changed places. Else, and of two rows or of more than
    `MOST_JOINT`: Holm (1979) over Student's t of each pair. level: that the tests are made at.
    """
    import numpy as np

    count = len(rows)
    faster = np.zeros((count, count), bool)
    if count < 2:
        return faster
    first, second = np.triu_indices(count, 1)
    if complete(rows) and 2 < count <= MOST_JOINT:
        logs = np.log([[row[block] for row in rows] for block in sorted(rows[0])])
        apart, sign = _stepped_down(logs, level), np.sign(_differences(logs)[0])
    else:
        centres, p_values = _pairs(rows)
        apart, sign = holm(p_values[first, second], level), np.sign(centres[first, second])
    faster[first, second] = apart & (sign > 0)
    faster[second, first] = apart & (sign < 0)
    return faster


#: share of comparisons in which a difference that is said to be found would be found
POWER = 0.95
#: blocks that nobody makes
TOO_MANY = 1000


@dataclass(frozen=True)
class Noise:
    """Of the differences of a table's rows: blocks that there are at most, and in a typical pair; the standard
    deviation of a typical pair's, and degrees of freedom that a block adds to it. comparisons: of all rows."""

    most_blocks: int
    blocks: int
    deviation: float
    freedom: float
    comparisons: float
    level: float

    def smallest(self, blocks: int) -> float:
        """Of the logarithms of two rates: the least difference that so many blocks would find in 95 % of comparisons
        of these rows, if they vary as they do here."""
        from scipy import special

        freedom = max(1.0, self.freedom * (blocks - 1))
        quantiles = special.stdtrit(freedom, [1 - self.level / self.comparisons / 2, POWER])
        return float(quantiles.sum() * self.deviation / blocks**0.5)

    def blocks_for(self, difference: float) -> int | None:
        """How many blocks, more than there are, would find such a difference of logarithms; None where a thousand
        would not."""
        more = self.most_blocks + 1
        found = bisect.bisect_left(range(more, TOO_MANY), True, key=lambda n: self.smallest(n) <= abs(difference))
        return more + found if more + found < TOO_MANY else None


def noise(rows: Sequence[Mapping[int, float]], level: float = LEVEL) -> Noise | None:
    """None where no two rows have two runs."""
    known = [row for row in rows if len(row) >= 2]
    pairs = [contrast(*pair) for pair in combinations(known[:MOST_JOINT], 2)]
    if not pairs:
        return None
    return Noise(
        most_blocks=max(map(len, known)),
        blocks=int(median(pair.n for pair in pairs)),
        deviation=median(pair.error * pair.n**0.5 for pair in pairs),
        freedom=median(pair.freedom / max(pair.n - 1, 1) for pair in pairs),
        comparisons=len(known) * (len(known) - 1) / 2,
        level=level,
    )


def complete(rows: Sequence[Mapping[int, float]]) -> bool:
    """Whether all rows have a run in the same blocks."""
    return all(row.keys() == rows[0].keys() for row in rows)


def _pairs(rows: Sequence[Mapping[int, float]]) -> tuple[Floats, Floats]:
    """Of all pairs, rows x rows: the mean difference and its p-value, as `statistics.contrast` has them."""
    import numpy as np
    from scipy import special

    place = {block: index for index, block in enumerate(sorted(set().union(*rows)))}
    logs, there = np.zeros((len(place), len(rows))), np.zeros((len(place), len(rows)))
    for column, row in enumerate(rows):
        found = [place[block] for block in row]
        logs[found, column] = np.log(list(row.values()))
        there[found, column] = 1
    logs -= logs.sum() / there.sum() * there  # so that squares lose few digits
    runs, sums, squares = there.sum(0), logs.T @ there, logs.T**2 @ there
    common = there.T @ there
    with np.errstate(divide="ignore", invalid="ignore"):
        centres = (sums - sums.T) / common
        left = squares + squares.T - 2 * logs.T @ logs - common * centres**2
        errors, freedom = np.maximum(left, 0) / (common - 1) / common, common - 1
        means = logs.sum(0) / runs
        own = np.maximum((logs**2).sum(0) - runs * means**2, 0) / (runs - 1) / runs
        welch = own[:, None] + own
        of_welch = welch**2 / (own[:, None] ** 2 / (runs[:, None] - 1) + own**2 / (runs - 1))
        paired = (common >= 2) & (2 * common >= np.minimum(runs[:, None], runs))
        centres = np.where(paired, centres, means[:, None] - means)
        freedom = np.where(paired, freedom, np.where(welch > 0, of_welch, 1))
        ratios = np.abs(centres) / np.sqrt(np.where(paired, errors, welch))
        p_values = 2 * special.stdtr(freedom, -ratios)
    return centres, np.where(centres == 0, 1.0, p_values)


def holm(p_values: Floats, level: float) -> NDArray[np.bool_]:
    """Which of several tests find something, so that the chance that one of them does by error is at most `level`
    (Holm 1979), however they depend on each other."""
    import numpy as np

    order = np.argsort(p_values)
    left = np.arange(len(p_values), 0, -1)
    held = np.logical_and.accumulate(p_values[order] <= level / left)
    apart = np.zeros(len(p_values), bool)
    apart[order] = held
    return apart


def _stepped_down(logs: Floats, level: float) -> NDArray[np.bool_]:
    """Of each pair. logs: blocks x rows."""
    import numpy as np

    p_values = _p_values(logs)
    apart = np.zeros(len(p_values), bool)
    shuffled: tuple[Floats, Floats] | None = None
    while not apart.all():
        left = np.flatnonzero(~apart)
        found = left[p_values[left] <= _of_equal_rows(*logs.shape, tuple(left), level)]
        if len(found):
            shuffled = shuffled or _statistics(_shuffled(logs))
            of_pairs, freedom = shuffled
            highest = _quantile_of(of_pairs[:, left], freedom[:, left], level)
            found = found[p_values[found] <= highest * (1 + ROUNDING)]
        if not len(found):
            break
        apart[found] = True
    return apart


def _quantile_of(statistics: Floats, freedom: Floats, level: float) -> float:
    """What the smallest p-value of a table has to be at most. Both are tables x pairs; only those p-values are computed
    that may matter, which takes the longest: a table's smallest one is that of its largest statistic, but for the
    degrees of freedom."""
    import numpy as np
    from scipy import special

    place, largest = int(level * (len(statistics) + 1)) - 1, -statistics.max(1)
    least, most = (2 * special.stdtr(one, largest) for one in (freedom.max(), freedom.min()))
    matter = least <= np.partition(most, place)[place]
    p_values = 2 * special.stdtr(freedom[matter], -statistics[matter])
    return float(np.partition(p_values.min(1), place)[place])


@functools.lru_cache(1024)
def _of_equal_rows(blocks: int, rows: int, left: tuple[int, ...], level: float) -> float:
    """`_quantile_of` tables of normal rows that are equally fast, for so many of their pairs: the lower one of tables
    whose rows vary alike, and of tables whose rows vary up to `SPREAD` times as much as others."""
    drawn = (_drawn(blocks, rows, spread) for spread in (1.0, SPREAD))
    return min(_quantile_of(statistics[:, left], freedom[:, left], level) for statistics, freedom in drawn)


@functools.lru_cache(8)
def _drawn(blocks: int, rows: int, spread: float) -> tuple[Floats, Floats]:
    import numpy as np

    source = np.random.Generator(np.random.Philox(rows))
    size = max(1, 2**21 // (blocks * rows))  # tables at a time, of 16 MB
    found = []
    for begun in range(0, DRAWS, size):
        shape = (min(size, DRAWS - begun), blocks, rows)
        scales = source.permuted(np.broadcast_to(np.geomspace(1, spread, rows), shape[::2]), axis=1)
        found.append(_statistics(source.standard_normal(shape) * scales[:, None, :]))
    statistics, freedom = map(np.concatenate, zip(*found, strict=True))
    return statistics, freedom


def _shuffled(logs: Floats) -> Floats:
    """Tables whose rows have changed places, in each block anew."""
    import numpy as np

    source = np.random.Generator(np.random.Philox(1))
    order = source.random((SHUFFLES, *logs.shape)).argsort(-1)
    return np.take_along_axis(np.broadcast_to(logs, order.shape), order, -1)


def _differences(logs: Floats) -> tuple[Floats, Floats]:
    """Of each pair, in the order of `triu_indices`: mean and variance over blocks. logs: ... x blocks x rows."""
    import numpy as np

    first, second = np.triu_indices(logs.shape[-1], 1)
    means = logs.mean(-2)
    centred = logs - means[..., None, :]
    covariances = np.swapaxes(centred, -1, -2) @ centred / (logs.shape[-2] - 1)
    own = np.diagonal(covariances, axis1=-2, axis2=-1)
    variances = own[..., first] + own[..., second] - 2 * covariances[..., first, second]
    # what is left of equal numbers is rounding
    least = np.finfo(float).eps ** 2 * np.square(logs).sum((-1, -2))[..., None]
    return means[..., first] - means[..., second], np.maximum(variances, least)


def _p_values(logs: Floats) -> Floats:
    """Two-sided, of each pair: Student's t of the mean difference. logs: ... x blocks x rows."""
    import numpy as np
    from scipy import special

    found, freedom = _statistics(logs)
    return np.asarray(2 * special.stdtr(freedom, -found))


def _statistics(logs: Floats) -> tuple[Floats, Floats]:
    """Of each pair: Student's t of the mean difference, without its sign, and its degrees of freedom.

    A pair's variance is that of its differences, as far as it is the sum of two rows' own, as it is where only blocks
    are common to them: least squares over all pairs find these, weighted by 1 / variance^2. The degrees of freedom
    follow from the two by Welch (1947) and Satterthwaite (1946), between those of pairs and twice that.
    """
    import numpy as np

    blocks, rows = logs.shape[-2:]
    means, seen = _differences(logs)
    first, second = np.triu_indices(rows, 1)
    design = np.zeros((len(first), rows))
    design[np.arange(len(first)), first] = design[np.arange(len(first)), second] = 1
    fitted, diagonal = seen, np.arange(rows)
    normal = np.zeros((*seen.shape[:-1], rows, rows))  # design' weights design
    for _ in range(FITS):
        weights = fitted**-2
        weights /= weights.max(-1, keepdims=True)
        normal[..., first, second] = normal[..., second, first] = weights
        normal[..., diagonal, diagonal] = weights @ design + 1e-12
        own = np.maximum(np.linalg.solve(normal, ((weights * seen) @ design)[..., None])[..., 0], 0)
        fitted = np.maximum(own[..., first] + own[..., second], LEAST_SHARE * seen)
    squares = np.maximum(own[..., first] ** 2 + own[..., second] ** 2, np.finfo(float).tiny)
    freedom = (blocks - 1) * np.clip((own[..., first] + own[..., second]) ** 2 / squares, 1, 2)
    return np.abs(means) / np.sqrt(fitted / blocks), freedom
