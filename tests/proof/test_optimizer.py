"""Which constant of its optimizer a run has otherwise, told under rounding that is larger than what it does."""

from __future__ import annotations

import numpy
import pytest

from dlperf.proof import optimizer

SIZE, STEPS, NOISE = 4000, 2, 1e-2
WRONG = {"rate": 0.05, "decay": 5e-3}


def state(seed: int, noise: float = NOISE, **wrong: float) -> dict[str, numpy.ndarray]:
    """A weight after an update: a gradient's share of it, which rounds, and decay."""
    start = numpy.random.default_rng(0).standard_normal(SIZE)
    pull = numpy.random.default_rng(1).standard_normal(SIZE)
    rounded = numpy.random.default_rng(seed).standard_normal(SIZE) * noise
    update = pull + rounded
    update[:20] *= -1 if noise else 1  # gradients that round to their other side
    return {"w": start + (1 + wrong.get("rate", 0)) * update - wrong.get("decay", 0) * start, "zero": numpy.zeros(3)}


OTHERS = {STEPS: {name: state(0, 0, **{name: size}) for name, size in WRONG.items()}}


def faults(run: dict[str, numpy.ndarray], most: float = 0.7) -> list[str]:
    states = [{STEPS: one} for one in (run, state(0, 0), state(2))]
    return list(optimizer.faults(*states, OTHERS, ("w", "zero"), most))


@pytest.mark.parametrize("seed", range(3, 9))
def test_rounding_is_no_other_optimizer(seed: int) -> None:
    assert faults(state(seed)) == []


@pytest.mark.parametrize("name", WRONG)
def test_the_constant_is_named(name: str) -> None:
    (fault,) = faults(state(3, **{name: WRONG[name]}))
    assert fault.startswith(f"after 2 steps its {name} is another: ")


def test_the_share_is_read() -> None:
    half = state(3, decay=WRONG["decay"] / 2)
    found = optimizer.explained(half, state(0, 0), state(2), OTHERS[STEPS], ("w", "zero"))
    assert found == {"rate": pytest.approx(0, abs=0.1), "decay": pytest.approx(0.5, abs=0.2)}


def test_the_first_step_tells_nothing() -> None:
    states = [{1: one} for one in (state(3, rate=1.0), state(0, 0), state(2))]
    assert not list(optimizer.faults(*states, {1: OTHERS[STEPS]}, ("w", "zero"), 0.1))
