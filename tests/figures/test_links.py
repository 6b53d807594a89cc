"""What a link does to a step, by hand."""

import pytest

from dlperf.figures.links import Fit, crossing, fit

#: a step of two seconds, and half a gigabit that it waits for
POINTS = [(0.1, 7.0), (0.5, 3.0), (1.0, 2.5), (10.0, 2.05)]


def test_a_fit_finds_what_made_its_points():
    found = fit(POINTS)
    assert (found.fixed, found.gigabits) == pytest.approx((2.0, 0.5))
    assert found.share(0.1) == pytest.approx(5 / 7)
    assert found.share(10.0) == pytest.approx(0.05 / 2.05)


def test_one_bandwidth_tells_nothing():
    assert fit([(1.0, 2.0), (1.0, 2.1)]) is None


@pytest.mark.parametrize(
    ("points", "expected"),
    [([(0.1, 2.0), (1.0, 2.0)], Fit(2.0, 0.0)), ([(0.1, 1.0), (1.0, 1.1)], None), ([(0.1, 10.0), (1.0, 0.5)], None)],
)
def test_neither_part_of_a_step_is_below_zero(points, expected):
    found = fit(points)
    assert found.fixed >= 0
    assert found.gigabits >= 0
    if expected:
        assert (found.fixed, found.gigabits) == pytest.approx((expected.fixed, expected.gigabits), abs=1e-12)


@pytest.mark.parametrize(
    ("plain", "compressed", "expected"),
    [
        (Fit(2.0, 0.8), Fit(3.0, 0.1), 0.7),
        (Fit(2.0, 0.8), Fit(1.9, 0.1), None),
        (Fit(2.0, 0.1), Fit(3.0, 0.2), 0.0),
    ],
)
def test_where_compression_begins_to_pay(plain, compressed, expected):
    found = crossing(plain, compressed)
    assert found == (None if expected is None else pytest.approx(expected))
