"""Estimates and ranks: known truth, other people's figures, rows that lack runs. `make bench-statistics` has more."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy
import pytest
from places import ROOT
from scipy import stats

from dlperf.figures import ranking, statistics, until
from dlperf.figures.statistics import CONFIDENCE, Estimate

_found = importlib.util.spec_from_file_location("false_calls", ROOT / "tests" / "bench" / "false_calls.py")
assert _found
assert _found.loader
bench = importlib.util.module_from_spec(_found)
_found.loader.exec_module(bench)


def by_block(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def at_most(share: float, happened: Iterable[bool]) -> None:
    """Not more often than a share would give but for one time in a million."""
    counted = list(happened)
    most = stats.binom.isf(1e-6, len(counted), share)
    assert sum(counted) <= most, f"{sum(counted)} of {len(counted)}; expected at most {most}"


def holds(found: Estimate, truth: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


# Estimates


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 30])
def test_intervals_of_the_median_contain_it(n: int) -> None:
    random, truth = numpy.random.default_rng(n), 20.0
    samples = truth * numpy.exp(random.normal(0, 0.05, (2000, n)))
    estimates = [statistics.estimate(row) for row in samples.tolist()]
    at_most(1 / 16 if n == 5 else 1 - CONFIDENCE, (not holds(one, truth) for one in estimates))
    assert all(holds(one, one.centre) for one in estimates)


@pytest.mark.parametrize(("n", "left_out"), [(5, 0), (6, 0), (8, 0), (9, 1), (15, 3), (30, 9)])
def test_an_interval_of_many_runs_lies_between_two_of_them(n: int, left_out: int) -> None:
    """The ranks that tables of the sign test give for 95 %; the smallest five have no better than 93.75 %."""
    found = statistics.estimate([math.exp(index) for index in range(n)])
    assert (found.low, found.high) == (math.exp(left_out), math.exp(n - 1 - left_out))


def test_two_speeds_are_seen_where_a_gap_parts_the_runs() -> None:
    slow, fast = [9.8, 9.81, 9.82, 9.79], [10.4, 10.41, 10.39]
    assert statistics.two_speeds([*fast, *slow]) == (sorted(slow), sorted(fast))
    assert statistics.two_speeds([*slow, 10.4]) is None, "one run is an outlier"
    assert statistics.two_speeds([1.0] * 7) is None
    random = numpy.random.default_rng(7)
    at_most(
        0.02, (statistics.two_speeds(row) is not None for row in numpy.exp(random.normal(0, 0.02, (500, 7))).tolist())
    )


def test_a_ratio_by_block_is_scipys_paired_t_on_logarithms() -> None:
    a, b = [19.0, 20.3, 19.8, 21.0], [19.9, 20.4, 20.1, 20.2]
    expected = stats.ttest_rel(numpy.log(a), numpy.log(b)).confidence_interval(0.95)
    made = statistics.ratio(by_block(*a), by_block(*b))
    assert (made.low, made.high) == pytest.approx((numpy.exp(expected.low), numpy.exp(expected.high)))
    assert (made.n, made.paired) == (4, True)


def test_a_missing_run_shifts_no_pair() -> None:
    row = by_block(10.0, 20.0, 40.0, 80.0)
    lacking = {block: 2 * rate for block, rate in row.items() if block != 1}
    assert statistics.ratio(lacking, row) == Estimate(pytest.approx(2), pytest.approx(2), pytest.approx(2), 3, True)


def test_rows_that_share_few_blocks_are_compared_by_scipys_welch() -> None:
    a, b = {0: 19.0, 1: 20.3, 2: 19.8}, {2: 19.9, 3: 20.4, 4: 20.1, 5: 20.2}
    logs = (numpy.log(list(row.values())) for row in (a, b))
    expected = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    made = statistics.ratio(a, b)
    assert (made.low, made.high) == pytest.approx((numpy.exp(expected.low), numpy.exp(expected.high)))
    assert (made.n, made.paired) == (3, False)


def test_ratios_without_spread_or_with_one_run() -> None:
    half = pytest.approx(0.5)
    assert statistics.ratio(by_block(2.0, 2.0), by_block(4.0, 4.0)) == Estimate(half, half, half, 2, True)
    alone = statistics.ratio(by_block(2.0), by_block(4.0, 4.1))
    assert (alone.low, alone.n) == (None, 1)
    assert statistics.unresolved(alone)


# Ranks


@pytest.mark.parametrize("name", bench.NOISES)
@pytest.mark.parametrize(("rows", "blocks"), [(2, 5), (6, 7)])
def test_equal_rows_are_seldom_told_apart(name: str, rows: int, blocks: int) -> None:
    random = numpy.random.default_rng([rows, blocks])
    draws = (bench.rows_of(bench.NOISES[name](random, blocks, rows)) for _ in range(100))
    at_most(ranking.ERROR, (bool(ranking.told_apart(rows).any()) for rows in draws))


def test_what_slows_a_whole_block_hides_no_difference() -> None:
    shock = [0.0, 0.5, -0.3, 0.2, -0.6, 0.1, 0.4]
    noise = [0.001, -0.002, 0.0, 0.002, -0.001, 0.001, -0.001]
    fast = by_block(*(math.exp(one) for one in shock))
    slow = by_block(*(math.exp(one + other - 0.01) for one, other in zip(shock, noise, strict=True)))
    assert ranking.ranks([slow, fast]) == [(2, 2), (1, 1)]
    unpaired = [dict(enumerate(row.values(), start)) for start, row in ((0, slow), (100, fast))]
    assert ranking.ranks(unpaired) == [(1, 2), (1, 2)]


def test_ranks_are_ranges_where_rows_tie() -> None:
    noise = [0.01, -0.01, 0.005, 0.0, -0.005]
    rows = [
        by_block(*(rate * math.exp(one) for one in noise[shift:] + noise[:shift]))
        for shift, rate in enumerate((9, 9.02, 5))
    ]
    assert ranking.ranks(rows) == [(1, 2), (1, 2), (3, 3)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([{0: 2.0}], [None]),
        ([{0: 2.0}, {0: 3.0}], [None, None]),
        ([by_block(2.0, 2.1, 2.2)], [(1, 1)]),
        ([by_block(2.0, 2.1, 2.2), {0: 3.0}, by_block(9.0, 9.1, 9.2)], [(2, 2), None, (1, 1)]),
        ([by_block(2.0, 2.0), by_block(4.0, 4.0)], [(2, 2), (1, 1)]),
        ([by_block(2.0, 2.0, 2.0)] * 3, [(1, 3)] * 3),
        ([by_block(2.0, 2.1), {5: 3.0, 6: 3.1}], [(2, 2), (1, 1)]),
    ],
)
def test_rows_with_few_runs(rows: list[Mapping[int, float]], expected: list[tuple[int, int] | None]) -> None:
    assert ranking.ranks(rows) == expected


def test_ranks_of_few_blocks_do_not_hang_on_rounding() -> None:
    """Of three blocks, shuffled tables are often the table itself; other units make other roundings of it."""
    random = numpy.random.default_rng(5)
    for _ in range(20):
        rates = numpy.exp(random.normal([0, 0.1, 0.3], 0.05, (3, 3)))
        found = [ranking.ranks([by_block(*row) for row in (rates.T * unit).tolist()]) for unit in (1, 1.1, 3, 60, 7e5)]
        assert found == [found[0]] * 5


def test_all_pairs_at_once_are_as_one_by_one() -> None:
    random = numpy.random.default_rng(3)
    rows = [{b: math.exp(random.normal(3, 0.02)) for b in range(9) if random.random() < 0.6} for _ in range(8)]
    centres, p_values = ranking._pairs(rows)
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            expected = statistics.contrast(one, other)
            assert centres[i, j] == pytest.approx(expected.centre, abs=1e-12)
            if i != j:
                assert p_values[i, j] == pytest.approx(expected.p_value, rel=1e-6)


def test_a_thousand_rows_have_ranks() -> None:
    random = numpy.random.default_rng(4)
    rows: list[Any] = [by_block(*(speed * numpy.exp(random.normal(0, 1e-6, 3)))) for speed in range(1, 1001)]
    assert ranking.ranks(rows) == [(1001 - speed, 1001 - speed) for speed in range(1, 1001)]


def test_more_blocks_find_less() -> None:
    random = numpy.random.default_rng(5)
    rows = bench.rows_of(bench.independent(random, 7, 6))
    noise = ranking.noise(rows)
    assert noise is not None
    assert noise.blocks == 7
    found = [noise.smallest(blocks) for blocks in (3, 7, 15, 100)]
    assert found == sorted(found, reverse=True)
    assert noise.blocks_for(found[2]) == 15
    assert noise.blocks_for(1.0) == 8  # it was not found with 7
    assert noise.blocks_for(1e-9) is None
    assert ranking.noise([{0: 1.0}]) is None


def test_a_table_is_looked_at_after_few_numbers_of_blocks_and_at_the_end() -> None:
    assert [blocks for blocks in range(1, 40) if until.looked_at(blocks, 33)] == [7, 10, 14, 20, 28, *range(33, 40)]


def test_the_width_is_that_of_the_ratio_that_is_known_least() -> None:
    steady = {0: 2.0, 1: 2.0, 2: 2.0}
    assert until.widest([steady]) == 0
    assert until.widest([steady, {0: 1.0, 1: 1.0, 2: 1.0}]) == 0
    noisy = {0: 1.0, 1: 1.1, 2: 0.9}
    spread = numpy.std(numpy.log(list(noisy.values())), ddof=1) / math.sqrt(3) * 4.302653
    assert until.widest([steady, noisy, {0: 1.0, 1: 1.0, 2: 1.0}]) == pytest.approx(math.sinh(spread), rel=1e-4)
    assert until.widest([steady, {0: 1.0}]) == math.inf


def test_looks_at_the_width_do_not_make_equal_systems_different() -> None:
    """The whole of it is in `make bench-statistics`. Of 400 trials 20 may be false, and by chance 29."""
    for noise in (bench.independent, bench.drift):
        assert bench.false_calls_until(noise, 2, 0.02, 400)[0] <= 29 / 400


def test_the_level_is_lower_than_that_of_one_look() -> None:
    assert ranking.LEVEL_OF_LOOKS < ranking.LEVEL
    noise = ranking.noise([{0: 1.0, 1: 1.1}, {0: 1.0, 1: 1.0}])
    assert noise is not None
    assert dataclasses.replace(noise, level=ranking.LEVEL_OF_LOOKS).smallest(7) > noise.smallest(7)
