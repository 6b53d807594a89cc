"""Whether rows of B are slower than the same rows of A. Pure.

Runs of one session share what the machine had for all of them then, so how much they vary does not say how much two
sessions do. A ratio B/A is judged

- by pairs of the same blocks, where A and B took turns in one session;
- else, if some rows did not change between A and B, as a ratio to these: each rate is divided by the geometric mean of
  theirs in the same block, which takes away what slows a whole session. That is right as far as it slows all rows
  alike: where two of these rows can be told apart, none is used;
- over sessions, each of which is one value, if both sides have two or more;
- and not at all without one of these: then the verdict is undecided, and the interval is of the runs alone.

All of it on the logarithms of rates, by Student's t on pairs, or by Welch (1947) with the degrees of freedom of
Satterthwaite (1946), as `statistics.contrast` has them.

A row is "slower" or "faster" if its 95 % interval lies beyond 1 - P or 1 + P, which is a one-sided test at 2.5 %, and
"same" if it lies between them, which is two of these (Schuirmann 1987). At most one of the three can be found, twice
its p-value is the row's, and Holm (1979) holds the error of all rows of a table together at 5 %. The intervals that are
shown are of each ratio alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from dlperf.figures.ranking import holm
from dlperf.figures.statistics import CONFIDENCE, Contrast, Estimate, contrast, interval, mean_logarithm

SAME, SLOWER, FASTER, UNDECIDED, CONTROL = "same", "slower", "faster", "undecided", "control"
#: why a row is undecided
SESSION = "cannot tell the session from the change"
APART = "the rows that did not change differ by themselves, so none is a control"
WIDE, ONE = "the interval holds more than one answer", "one run on a side has no interval"

Rates = Mapping[int, float]
#: empty of one that lacks the row
Sessions = Sequence[Rates]
#: of A and of B; each has a run
Row = tuple[Sessions, Sessions]


@dataclass(frozen=True)
class Verdict:
    """word: one of those above. ratio: B/A, over that of the rows that did not change where `controlled`; an interval
    of runs alone where nothing tells the session from the change. why: of an undecided row."""

    word: str
    ratio: Estimate
    why: str = ""
    controlled: bool = False


def verdicts(rows: Sequence[Row], unchanged: Sequence[bool], share: float, turns: bool) -> list[Verdict]:
    """Of each row. unchanged: rows of which nothing that is known changed. share: P, between 0 and 1. turns: whether A
    and B are one session each in which their blocks took turns."""
    controls = [number for number, one in enumerate(unchanged) if one]
    if turns or len(controls) == len(rows):  # of rows that are all unchanged none is measured by another
        controls = []
    use = controls if _alike([rows[number] for number in controls]) else []
    beside = [rows[number] for number in use]
    found = [_seen(row, [] if number in use else beside, turns) for number, row in enumerate(rows)]
    judged = [number for number, one in enumerate(found) if one.judged and number not in use]
    claims = {number: _claim(found[number].contrast, share) for number in judged}
    held = dict(zip(judged, _held([p_value for _, p_value in claims.values()]), strict=True))
    made = []
    for number, one in enumerate(found):
        ratio = interval(one.contrast)
        if number in use:
            made.append(Verdict(CONTROL, ratio))
        elif held.get(number):
            made.append(Verdict(claims[number][0], ratio, "", one.divided))
        else:
            why = ONE if ratio.n < 2 else WIDE if number in held else APART if controls and not use else SESSION
            made.append(Verdict(UNDECIDED, ratio, why, one.divided))
    return made


class _Seen(NamedTuple):
    """Of a row. divided: by rows that did not change. judged: whether its session is told from the change."""

    contrast: Contrast
    divided: bool
    judged: bool


def _seen(row: Row, controls: Sequence[Row], turns: bool) -> _Seen:
    several = min(sum(map(bool, side)) for side in row) >= 2
    divided = _divided(row, controls) if controls else None
    if divided and all(map(any, divided)):  # there are blocks in which all of them ran
        return _Seen(_contrast(divided, turns), True, True)
    return _Seen(_contrast(row, turns), False, turns or several)


def _held(p_values: Sequence[float]) -> list[bool]:
    import numpy as np

    return [bool(one) for one in holm(np.array(p_values), 1 - CONFIDENCE)] if p_values else []


def _contrast(row: Row, turns: bool) -> Contrast:
    a, b = row
    if turns:
        return contrast(b[0], a[0])
    several = min(sum(map(bool, side)) for side in row) >= 2
    replicates = _of_sessions if several else _of_runs
    # keys of their own, so that none is taken for a pair
    return contrast(dict(enumerate(replicates(b))), {-1 - key: one for key, one in enumerate(replicates(a))})


def _of_sessions(sessions: Sessions) -> list[float]:
    return [math.exp(mean_logarithm(rates)) for rates in sessions if rates]


def _of_runs(sessions: Sessions) -> list[float]:
    return [rate for rates in sessions for rate in rates.values()]


def _divided(row: Row, by: Sequence[Row]) -> Row:
    """Rates over the geometric mean of the others' in the same block."""
    a, b = (
        [_over(mine, others) for mine, *others in zip(row[side], *(one[side] for one in by), strict=True)]
        for side in (0, 1)
    )
    return a, b


def _over(rates: Rates, by: Sequence[Rates]) -> Rates:
    blocks = sorted(set(rates).intersection(*by))
    return {block: rates[block] / math.exp(fmean(math.log(one[block]) for one in by)) for block in blocks}


def _alike(controls: Sequence[Row]) -> bool:
    """Whether rows that did not change have the same ratio B/A, as far as can be told."""
    pairs = [_divided(one, [other]) for one, other in combinations(controls, 2)]
    return not any(_held([_contrast(pair, turns=False).p_value for pair in pairs if all(map(any, pair))]))


def _claim(found: Contrast, share: float) -> tuple[str, float]:
    """What a ratio may be called, and twice the p-value of that."""
    low, high = math.log1p(-share), math.log1p(share)
    word = SLOWER if found.centre < low else FASTER if found.centre > high else SAME
    far = {
        SLOWER: low - found.centre,
        FASTER: found.centre - high,
        SAME: min(found.centre - low, high - found.centre),
    }[word]
    if found.n < 2:
        return word, 1.0
    if not found.error:
        return word, 0.0
    from scipy import special

    return word, float(2 * special.stdtr(found.freedom, -far / found.error))
