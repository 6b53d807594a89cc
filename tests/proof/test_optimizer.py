"""Which constant of its Adam a run has otherwise, told from its own moments, whatever its gradients are."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from dlperf.models.bert import Optimizer
from dlperf.models.resnet import Optimizer as Sgd
from dlperf.proof import optimizer

RIGHT, STEPS, SIZE = Optimizer(), 4, 127
DECAYED = {"dense": True, "scale": False, "rows": True}


def adam(
    states: list[Any], step: int, r: Optimizer, decayed: dict[str, bool] = DECAYED, skip: str = "", still: int = SIZE
) -> None:
    """A step in float32, on gradients that no loss has. still: of "rows", values from which on lazy Adam changes
    nothing."""
    source, (weights, moments) = numpy.random.default_rng(step), states[-1]
    after: dict[str, Any] = {}
    means, squares = {}, {}
    for name, w in weights.items():
        g = (1e-3 * source.standard_normal(SIZE)).astype("float32")
        if name == "rows":
            g[10:] = 0  # no sample has these
        means[name] = numpy.float32(r.beta1) * moments["mean"][name] + numpy.float32(1 - r.beta1) * g
        squares[name] = numpy.float32(r.beta2) * moments["square"][name] + numpy.float32(1 - r.beta2) * g * g
        root = numpy.sqrt(squares[name] / numpy.float32(1 - r.beta2**step)) + numpy.float32(r.eps)
        change = (
            means[name] / numpy.float32(1 - r.beta1**step) / root + decayed[name] * numpy.float32(r.weight_decay) * w
        )
        after[name] = w - numpy.float32(r.learning_rate) * change * (name != skip)
        if name == "rows":
            for new, old in ((after, weights), (means, moments["mean"]), (squares, moments["square"])):
                new[name][still:] = old[name][still:]
    states.append((after, {"mean": means, "square": squares}))


def faults(since: int = 0, shown: int = STEPS + 1, tables: tuple[str, ...] = (), **other: Any) -> list[str]:
    recipe, rest = RIGHT, {}
    for name, value in other.items():
        rest |= {name: value} if name in ("decayed", "skip", "still") else {}
        recipe = recipe if name in rest else recipe._replace(**{name: value})
    start = numpy.random.default_rng(0)
    weights = {name: (0.02 * start.standard_normal(SIZE)).astype("float32") for name in DECAYED}
    weights["scale"] = numpy.ones(SIZE, "float32")
    zeros = {name: numpy.zeros(SIZE, "float32") for name in DECAYED}
    states: list[Any] = [(weights, {"mean": zeros, "square": zeros})]
    for step in range(1, since + shown):
        adam(states, step, recipe, **rest)
    wide = [[{n: v.astype("float64") for n, v in one.items()} for one in (w, *m.values())] for w, m in states[since:]]
    found = {step: {"mean": mean, "square": square} for step, (_, mean, square) in enumerate(wide)}
    return list(optimizer.faults(dict(enumerate(w for w, *_ in wide)), found, DECAYED, RIGHT, since, tables))


@pytest.mark.parametrize("since", [0, 1, 130])
def test_adam_of_any_gradients_is_right(since: int) -> None:
    assert faults(since) == []


@pytest.mark.parametrize("since", [1, 130])
def test_rows_that_a_step_leaves_as_they_are_take_no_part_in_it(since: int) -> None:
    """Of tables alone; and what is left as it is keeps its moments, too. The step leaves half of the rows that have a
    gradient, and all others."""
    assert faults(since, tables=("rows",), still=5) == []
    assert faults(since, tables=("rows",)) == []
    assert len(faults(since, still=5)) == 1
    assert len(faults(since, tables=("rows",), skip="rows", still=5)) == 1


@pytest.mark.parametrize("since", [0, 130])
@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"learning_rate": 1.002e-4}, "its learning rate was 1.002 times what it must be"),
        ({"weight_decay": 0.005}, "its decay of weights was 0.5 times what it must be"),
        ({"weight_decay": 0.0}, "its decay of weights was "),
        ({"decayed": dict.fromkeys(DECAYED, True)}, "what must not decay did, by 1 of what decays"),
        ({"beta1": 0.899}, "has moments that no gradient gives with beta1 0.9 and beta2 0.999"),
        ({"beta2": 0.99}, "has moments that no gradient gives"),
        ({"skip": "scale"}, ""),
        ({"eps": 1e-5}, ""),
    ],
)
def test_another_constant_is_named(since: int, other: dict[str, Any], says: str) -> None:
    (fault,) = faults(since, **other)
    assert fault.startswith(f"from step {since} to {since + 1} ")
    assert says in fault


def test_steps_that_were_left_out_show_in_the_correction_of_bias() -> None:
    """As an optimizer that ran 65 of 130 steps: its moments are right, and its update is not."""
    rates = [1 - RIGHT.beta2**steps for steps in (131, 66)]
    (fault,) = faults(130, learning_rate=RIGHT.learning_rate * (rates[0] / rates[1]) ** -0.5)
    assert "its learning rate was 0.7" in fault


def test_states_that_are_far_apart_tell_nothing() -> None:
    states = {steps: {"dense": numpy.full(SIZE, float(steps))} for steps in (0, 4, 9)}
    assert list(optimizer.faults(states, {}, {"dense": True}, RIGHT)) == []


def test_moments_that_are_not_there_are_a_fault() -> None:
    states = {steps: {"dense": numpy.full(SIZE, float(steps))} for steps in (0, 1)}
    assert list(optimizer.faults(states, {}, {"dense": True}, RIGHT)) == ["it hands out no moments of its optimizer"]


MOMENTUM = Sgd(learning_rate=0.008, momentum=0.875, weight_decay=3e-4)


def sgd(noise: float, seed: int, rate: float = 1.0, **other: Any) -> dict[int, dict[str, Any]]:
    """States of two steps, on gradients that round."""
    source, recipe = numpy.random.default_rng(seed), MOMENTUM._replace(**other)
    common = numpy.random.default_rng(0)
    weights = {name: 0.05 * common.standard_normal(4000) for name in DECAYED}
    velocity, states = dict.fromkeys(DECAYED, 0.0), {0: weights}
    for step in (1, 2):
        weights = dict(weights)
        for name, decays in DECAYED.items():
            g = 1e-3 * common.standard_normal(4000) * (1 + noise * source.standard_normal(4000))
            g[:20] *= -1 if noise else 1  # rounded to their other side
            velocity[name] = recipe.momentum * velocity[name] + g + decays * recipe.weight_decay * weights[name]
            weights[name] = weights[name] - rate * recipe.learning_rate * velocity[name]
        states[step] = weights
    return states


def sgd_faults(run: dict[int, dict[str, Any]], most: tuple[float, float, float] = optimizer.SGD_OF_HALVES) -> list[str]:
    return list(optimizer.faults_of_sgd(run, sgd(0, 0), sgd(0.03, 1), DECAYED, MOMENTUM, most))


@pytest.mark.parametrize("seed", range(2, 8))
def test_rounding_is_no_other_sgd(seed: int) -> None:
    assert sgd_faults(sgd(0.03, seed)) == []


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"rate": 1.02}, "the learning rate was 1.02 times what it must be"),
        ({"momentum": 0.9}, "momentum was 0.9, must be 0.875"),
        ({"weight_decay": 1.5e-4}, "decay of weights was 0."),
    ],
)
def test_another_constant_of_sgd_shows_under_rounding(other: dict[str, float], says: str) -> None:
    (fault,) = sgd_faults(sgd(0.03, 2, **other))
    assert f"in its first two updates {says}" in fault


def test_a_run_of_one_step_tells_nothing_of_sgd() -> None:
    run = {steps: state for steps, state in sgd(0, 2, rate=2.0).items() if steps < 2}
    assert sgd_faults(run) == []
