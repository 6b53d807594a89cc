"""What deep gradient compression starts at in a proof."""

from __future__ import annotations

import numpy

from dlperf.adapters.compression import FAINT, first


def test_no_two_values_of_a_tensor_start_alike() -> None:
    values = numpy.sort(first((512, 2048, 1, 1)).ravel())
    assert numpy.diff(values).min() > 0
    assert 0 <= values[0] < values[-1] < FAINT


def test_a_value_starts_alike_wherever_a_framework_puts_it() -> None:
    shape = (4, 3, 2, 5)
    moved = first((2, 5, 3, 4), (2, 3, 1, 0))
    assert (moved == first(shape).transpose(2, 3, 1, 0)).all()
    assert (first((7, 6), (1, 0)) == first((6, 7)).T).all()
