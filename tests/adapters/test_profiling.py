"""Where the time of a step went, of spans on several threads."""

import pytest

from dlperf.adapters.profiling import KINDS, Span, attributed


def seconds(*spans):
    took, _ = attributed([Span(*one) for one in spans])
    return {f"{kind} {name}": round(value, 9) for (kind, name), value in took.items()}


def test_the_innermost_operation_counts():
    found = seconds(
        ("main", 0, 10, "linear", "product"), ("main", 2, 5, "copy", "layout"), ("main", 5, 6, "mm", "product")
    )
    assert found == {"product linear": 6, "layout copy": 3, "product mm": 1}


def test_operations_side_by_side_share_each_moment():
    found = seconds(("a", 0, 4, "x", "product"), ("b", 2, 6, "y", "dropout"))
    assert found == {"product x": 3, "dropout y": 3}


def test_the_host_counts_where_nothing_else_runs():
    found = seconds(("a", 0, 10, "Python", "host"), ("b", 2, 6, "y", "dropout"), ("c", 3, 4, "scheduler", "host"))
    assert found == {"host Python": 6, "dropout y": 4}


def test_gaps_belong_to_nothing():
    found = seconds(("a", 0, 1, "x", "product"), ("a", 3, 4, "x", "product"))
    assert found == {"product x": 2}


@pytest.mark.parametrize("count", [1, 7])
def test_all_that_ran_is_counted_once(count):
    spans = [Span(number % 3, number, number + 2.5, str(number), "loss") for number in range(0, 9 * count, 3)]
    took, calls = attributed(spans)
    assert sum(took.values()) == pytest.approx(2.5 * len(spans) - 0.0)
    assert sum(calls.values()) == len(spans)


def test_kinds_are_explained():
    assert all(KINDS.values())
