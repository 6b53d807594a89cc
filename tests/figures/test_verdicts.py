"""Whether B is slower than A: what each case is called, and how often equal truth is called different."""

import math

import numpy as np
import pytest

from dlperf.figures.verdicts import APART, CONTROL, FASTER, ONE, SAME, SESSION, SLOWER, UNDECIDED, WIDE, verdicts

#: what runs vary by that differ by little
STEPS = (0.999, 1.001, 1.0, 1.002, 0.998)


def session(rate, steps=STEPS):
    return {block: rate * step for block, step in enumerate(steps)}


def words(rows, unchanged=None, share=0.03, turns=False):
    return [one.word for one in verdicts(rows, unchanged or [False] * len(rows), share, turns)]


def two(rate_a, rate_b):
    """Two sessions on each side that differ by 0.2 %."""
    return [session(rate_a), session(1.002 * rate_a)], [session(rate_b), session(1.002 * rate_b)]


@pytest.mark.parametrize(
    ("b", "word"), [(100, SAME), (80, SLOWER), (125, FASTER), (97.1, UNDECIDED), (96.9, UNDECIDED), (103, UNDECIDED)]
)
def test_two_sessions_of_each_side_tell_a_change(b, word):
    assert words([two(100, b)]) == [word]


def test_one_session_of_each_side_tells_nothing_however_far_they_are_apart():
    (one,) = verdicts([([session(100)], [session(50)])], [False], 0.03, False)
    assert (one.word, one.why, one.controlled) == (UNDECIDED, SESSION, False)
    assert one.ratio.centre == pytest.approx(0.5)
    (one,) = verdicts([([session(100), session(100)], [session(50)])], [False], 0.03, False)
    assert (one.word, one.why) == (UNDECIDED, SESSION)


@pytest.mark.parametrize(("b", "word"), [(90, SAME), (80, SLOWER), (100, FASTER), (87.3, UNDECIDED)])
def test_a_row_that_did_not_change_measures_the_session(b, word):
    """The machine was 10 % slower for B, whatever ran."""
    control = [session(50, STEPS[::-1])], [session(45, STEPS[1:] + STEPS[:1])]
    changed, beside = verdicts([([session(100)], [session(b)]), control], [False, True], 0.03, False)
    assert (changed.word, changed.controlled, beside.word) == (word, True, CONTROL)
    assert changed.ratio.centre == pytest.approx(b / 90, rel=1e-3)
    assert beside.ratio.centre == pytest.approx(0.9, rel=1e-3)


def test_rows_that_did_not_change_and_differ_are_no_control():
    rows = [([session(100)], [session(rate)]) for rate in (80, 100, 90)]
    found = verdicts(rows, [False, True, True], 0.03, False)
    assert [(one.word, one.why, one.controlled) for one in found] == [(UNDECIDED, APART, False)] * 3


def test_rows_of_which_none_changed_are_not_measured_by_each_other():
    rows = [([session(100)], [session(100)])] * 2
    assert words(rows, [True, True]) == [UNDECIDED, UNDECIDED]
    assert words([two(100, 100)] * 2, [True, True]) == [SAME, SAME]


def test_a_row_with_the_rates_of_a_control_is_none():
    rows = [([session(100)], [session(100)])] * 2
    assert words(rows, [False, True]) == [SAME, CONTROL]


def test_a_control_without_a_block_in_common_is_none():
    control = [{0: 1.0, 1: 1.0}], [{7: 1.0}]
    found, _ = verdicts([([session(100)], [session(80)]), control], [False, True], 0.03, False)
    assert (found.word, found.why) == (UNDECIDED, SESSION)


def test_blocks_that_took_turns_need_no_control():
    """The machine is half as fast in some blocks, which both have."""
    blocks = (1, 0.5, 0.6, 1, 0.9)
    a = session(100, blocks)
    for b, word in ((100, SAME), (90, SLOWER), (110, FASTER)):
        rates = {block: rate * step * b / 100 for (block, rate), step in zip(a.items(), STEPS, strict=True)}
        assert words([([a], [rates])], turns=True) == [word]


def test_one_run_has_no_interval():
    (one,) = verdicts([([{0: 1.0}], [{0: 2.0}])], [False], 0.03, True)
    assert (one.word, one.why, one.ratio.low) == (UNDECIDED, ONE, None)


def test_rates_that_never_vary_are_told_by_their_ratio():
    exact = [1.0] * 3
    rows = [([session(100, exact)], [session(rate, exact)]) for rate in (97.1, 96.9, 102.9, 103.1)]
    assert words(rows, turns=True) == [SAME, SLOWER, SAME, FASTER]


def test_an_interval_that_is_wide_is_undecided():
    (one,) = verdicts([([session(100, (1, 1.3, 0.7))], [session(90, (1.2, 1, 0.8))])], [False], 0.03, True)
    assert (one.word, one.why) == (UNDECIDED, WIDE)


def test_of_many_rows_a_difference_must_be_clearer_than_of_one():
    a, b = session(1, (1, 1, 1, 1, 1)), session(0.9, (1, 1.06, 0.95, 1.04, 0.96))
    noisy = session(1, (0.5, 1.5, 1.6, 0.6, 0.9))
    assert words([([a], [b])], turns=True) == [SLOWER]
    assert words([([a], [b]), *[([a], [noisy])] * 9], turns=True)[0] == UNDECIDED


ROWS, BLOCKS, DRAWS = 3, 5, 400


def drawn(source, sessions):
    """Sessions of rows that are all equally fast: 2 % between sessions, 1 % between runs."""
    one = 0.02 * source.standard_normal((sessions, 1, 1)) + 0.01 * source.standard_normal((sessions, ROWS + 1, BLOCKS))
    return [[dict(enumerate(np.exp(row).tolist())) for row in rows] for rows in one]


@pytest.mark.parametrize(
    ("sessions", "control", "turns"), [(1, True, False), (2, False, False), (2, True, False), (1, False, True)]
)
def test_equal_rows_are_seldom_called_different(sessions, control, turns):
    """With P = 0, where each claim is one of a difference; with 3 % it is hardly ever one. 5 % of 400 draws are 20,
    give or take 9 (two standard deviations)."""
    source = np.random.default_rng([20261127, sessions, control, turns])
    wrong = wrong_of_three = 0
    for _ in range(DRAWS):
        a, b = drawn(source, sessions), drawn(source, sessions)
        if turns:  # of one session
            b = [[dict(zip(row, np.exp(0.01 * source.standard_normal(BLOCKS)).tolist(), strict=True)) for row in a[0]]]
            a = [[dict(zip(row, np.exp(0.01 * source.standard_normal(BLOCKS)).tolist(), strict=True)) for row in a[0]]]
        rows = [([one[row] for one in a], [one[row] for one in b]) for row in range(ROWS + control)]
        unchanged = [False] * ROWS + [True] * control
        wrong += bool({SLOWER, FASTER} & set(words(rows, unchanged, 1e-12, turns)))
        wrong_of_three += bool({SLOWER, FASTER} & set(words(rows, unchanged, 0.03, turns)))
    assert wrong <= 29
    assert wrong_of_three <= 1


def test_a_change_of_five_percent_is_mostly_found_beside_a_control():
    source = np.random.default_rng(20261127)
    found = 0
    for _ in range(100):
        a, b = drawn(source, 1), drawn(source, 1)
        b[0][0] = {block: rate * math.exp(-0.06) for block, rate in b[0][0].items()}
        rows = [([a[0][row]], [b[0][row]]) for row in (0, 3)]
        found += words(rows, [False, True]) == [SLOWER, CONTROL]
    assert found >= 60
