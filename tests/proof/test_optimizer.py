"""Which constant of its Adam a run has otherwise, told from its own moments, whatever its gradients are."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from dlperf.models.bert import Optimizer
from dlperf.proof import optimizer

RIGHT, STEPS, SIZE = Optimizer(), 4, 127
DECAYED = {"dense": True, "scale": False, "rows": True}


def adam(states: list[Any], step: int, r: Optimizer, decayed: dict[str, bool] = DECAYED, skip: str = "") -> None:
    """A step in float32, on gradients that no loss has."""
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
    states.append((after, {"mean": means, "square": squares}))


def faults(since: int = 0, shown: int = STEPS + 1, **other: Any) -> list[str]:
    recipe, rest = RIGHT, {}
    for name, value in other.items():
        rest |= {name: value} if name in ("decayed", "skip") else {}
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
    return list(optimizer.faults(dict(enumerate(w for w, *_ in wide)), found, DECAYED, RIGHT, since))


@pytest.mark.parametrize("since", [0, 1, 130])
def test_adam_of_any_gradients_is_right(since: int) -> None:
    assert faults(since) == []


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
