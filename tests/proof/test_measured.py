"""What is said of a measured run by what it wrote down, on a toy that trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest

from dlperf.proof import measured, rounding
from dlperf.proof.measured import OF_ADAM, Marks, Reference

STEPS, SIZE = 12, 1000
LOOKED_AT = (0, 4, 12)


def train(noise: float = 0.0, seed: int = 0, rate: float = 0.1, skip: int = STEPS + 1) -> Marks:
    """Two tensors that are pulled towards ones; `noise` stands for rounding, or for masks of dropout."""
    source, starts = numpy.random.default_rng(seed), numpy.random.default_rng(7)
    tensors = {name: starts.standard_normal(SIZE) for name in ("a", "b")}
    losses, states = {}, {0: dict(tensors)}
    for step in range(1, STEPS + 1):
        shares = {name: 1 - value for name, value in tensors.items()}
        losses[step] = float(sum((share**2).mean() for share in shares.values()) * (1 + noise * source.normal()))
        if step % skip:
            pulls = {name: share + noise * 2 * source.standard_normal(SIZE) for name, share in shares.items()}
            tensors = {name: value + rate * pulls[name] for name, value in tensors.items()}
        if step in LOOKED_AT:
            states[step] = dict(tensors)
    return Marks(losses, states, ((0.5, 0.001), (0.5, 0.002)))


ROUNDED = Reference(train(), train(1e-5, 1))
MASKED = Reference(train(0.05, 1), train(0.05, 2), masks=OF_ADAM)


def fault(run: Marks, reference: Reference | None = ROUNDED) -> str:
    return (measured.faults(run, ("a", "b"), reference) or [""])[0]


@pytest.mark.parametrize("seed", range(3, 23))
def test_a_right_run_has_no_fault(seed: int) -> None:
    assert fault(train(1e-5, seed)) == ""
    assert fault(train(0.05, seed), MASKED) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"noise": 1e-3}, "off by"),
        ({"rate": 0.1002}, "off by"),
        ({"skip": 2}, "its loss at step 3"),
        ({"skip": 5}, "off by"),
    ],
)
def test_a_run_that_trains_otherwise(change: dict[str, Any], says: str) -> None:
    assert says in fault(train(**{"noise": 1e-5, "seed": 3, **change}))


def test_where_a_relu_decides_changes_are_as_far_off_as_one_value_moves_them() -> None:
    """A thousandth; two hundredths are another learning rate."""
    kinked = replace(ROUNDED, bars=rounding.kinked(rounding.CHANGES, revealing=False))
    off = replace(train(1e-3, 3), losses={})
    assert "off by" in fault(off)
    assert fault(off, kinked) == ""
    assert "off by" in fault(replace(train(1e-5, 3, rate=0.102), losses={}), kinked)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rate": 0.11}, "from step 0 to 4 its parameters have changed otherwise"),
        ({"noise": 0.0}, "dropout is off, or less"),
        ({"noise": 0.1}, "from step 0 to 4 its parameters have changed otherwise"),
        ({"rate": 0.13}, "from step 0 to 4 its parameters have moved 1.2"),
    ],
)
def test_a_run_with_other_dropout(change: dict[str, Any], says: str) -> None:
    assert says in fault(train(**{"noise": 0.05, "seed": 3, **change}), MASKED)


def beside(run: Marks, share: float) -> Marks:
    """With a small third tensor, which moves as a part of the first does, times `share`."""

    def small(found: Any) -> Any:
        return 0.1 * share * (found["a"] - run.states[0]["a"])[:50]

    return replace(run, states={step: {**found, "c": small(found)} for step, found in run.states.items()})


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (1.0, ""),
        (0.0, "the change of c is 0 times"),
        (0.5, "the change of c is 0.5"),
        (-1.0, "from step 0 to 4 c has changed otherwise"),
    ],
)
def test_with_dropout_a_small_tensor_that_moved_otherwise_is_named(share: float, says: str) -> None:
    reference = Reference(beside(MASKED.first, 1.0), beside(MASKED.second, 1.0), masks=OF_ADAM)
    found = (measured.faults(beside(train(0.05, 3), share), ("a", "b", "c"), reference) or [""])[0]
    assert says in found
    assert bool(found) == bool(says)


def test_what_was_right_before_hides_nothing_of_a_later_change() -> None:
    """A fifth too far after step 4 is a hundredth of all that changed."""
    right = train(0.05, 3)
    late = {name: value + 0.2 * (value - right.states[4][name]) for name, value in right.states[12].items()}
    assert fault(right, MASKED) == ""
    assert "from step 4 to 12" in fault(replace(right, states={**right.states, 12: late}), MASKED)


def test_several_changes_tell_more_of_dropout_than_each() -> None:
    """Each a sixth further than right ones, where a quarter is explained."""
    found = fault(train(0.066, 3), MASKED)
    assert "in 2 parts its parameters have changed otherwise: 1.1" in found


def test_in_low_precision_a_length_tells_what_rounding_hides_from_a_distance() -> None:
    reference = Reference(train(), train(0.05, 1))
    assert fault(replace(train(0.05, 3), losses={}), reference) == ""
    assert "times as large as the reference's" in fault(replace(train(0.05, 3, rate=0.104), losses={}), reference)


def test_without_dropout_a_small_tensor_that_stood_still_is_named() -> None:
    reference = Reference(beside(train(), 1.0), beside(train(0.15, 1), 1.0))
    right = replace(train(0.15, 3), losses={})
    assert measured.faults(beside(right, 1.0), ("a", "b", "c"), reference) == []
    assert "the change of c is 0 times as large" in measured.faults(beside(right, 0.0), ("a", "b", "c"), reference)[0]


def first_update(seed: int, rate: float = 0.1, eps: float = 1e-3) -> Marks:
    """Adam's first step with dropout: masks change gradients, and the signs of small ones."""
    source, starts = numpy.random.default_rng(seed), numpy.random.default_rng(7)
    before = {name: starts.standard_normal(SIZE) for name in ("a", "b")}
    gradients = {name: value + 0.3 * source.standard_normal(SIZE) for name, value in before.items()}
    after = {name: before[name] - rate * g / (abs(g) + eps) for name, g in gradients.items()}
    return Marks({1: 1.0 + 0.01 * source.normal()}, {0: before, 1: after})


def test_a_first_update_tells_the_learning_rate_whatever_the_masks() -> None:
    reference = Reference(first_update(1), first_update(2), masks=OF_ADAM)
    for seed in range(3, 23):
        assert fault(first_update(seed), reference) == ""
        assert "half of the values of its first update are off by 0.0" in fault(first_update(seed, 0.103), reference)
        assert "of its first update" in fault(first_update(seed, eps=0.1), reference)


def signs(noise: float = 0.0, seed: int = 0, turned: int = 0) -> Marks:
    """Two updates by the signs of gradients, as Adam makes them. noise: of gradients, where they are 1. turned: of how
    many the largest are updated the other way."""
    source, starts = numpy.random.default_rng(seed), numpy.random.default_rng(7)
    before = {name: starts.standard_normal(SIZE) for name in ("a", "b")}
    gradients = {name: starts.standard_normal(SIZE) + noise * source.standard_normal(SIZE) for name in before}
    updates = {name: -1e-4 * numpy.sign(gradient) for name, gradient in gradients.items()}
    updates["a"][numpy.argsort(-abs(gradients["a"]))[:turned]] *= -1
    states = {steps: {name: value + steps * updates[name] for name, value in before.items()} for steps in (0, 1, 2)}
    moments = {steps: {"mean": {name: (1 - 0.9**steps) * one for name, one in gradients.items()}} for steps in (1, 2)}
    return Marks({}, states, moments=moments)


def test_a_sign_that_rounding_decides_is_left_out_where_an_update_is_one() -> None:
    reference = Reference(signs(), signs(1e-3, 1), bars=rounding.SIGNS, eps=1e-9)
    right = [signs(1e-3, seed) for seed in range(2, 22)]
    assert [fault(run, reference) for run in right] == [""] * 20
    assert "the change of its parameters is another: off by" in fault(signs(1e-3, 2, turned=1), reference)
    told = [fault(replace(run, moments={}), replace(reference, first=replace(signs(), moments={}))) for run in right]
    assert any("the change of its parameters is another: off by" in one for one in told)


def test_what_a_run_tells_without_a_reference() -> None:
    right = train()
    assert fault(right, None) == ""
    again = replace(right, losses={**right.losses, 9: right.losses[7]})
    assert fault(again, None) == "its losses of steps 7 and 9 are the same to the last bit"
    still = replace(right, states={**right.states, 12: right.states[4]})
    assert fault(still, None) == "no parameter changed between steps 4 and 12"
    early = replace(right, windows=((0.01, 0.4), (0.01, 0.3)))
    assert "its windows end before their work does" in fault(early, None)
    assert fault(replace(right, windows=((0.01, 0.4), (0.01, 0.001))), None) == ""  # the machine was busy once


def test_one_tensor_that_changed_otherwise_is_named() -> None:
    right = train()
    other = {**right.states[4], "b": right.states[4]["b"] + 0.0004}
    found = fault(replace(right, states={**right.states, 4: other, 12: right.states[12]}))
    assert "after 4 steps" in found


def test_running_means_are_held_to_the_references() -> None:
    def kept(run: Marks, share: float) -> Marks:
        states = {step: {**found, "m": share * (found["a"] - run.states[0]["a"])} for step, found in run.states.items()}
        return replace(run, states=states)

    reference = Reference(kept(ROUNDED.first, 1.0), kept(ROUNDED.second, 1.0))
    assert fault(kept(train(1e-5, 3), 1.0), reference) == ""
    assert (
        fault(kept(train(1e-5, 3), 0.9), reference) == "after 4 steps its running means are off by 0.1 of their change"
    )


def test_what_is_not_a_number_is_a_fault() -> None:
    right = train()
    assert fault(replace(right, losses={**right.losses, 3: float("nan")})) != ""
    broken = {name: value * float("nan") for name, value in right.states[12].items()}
    assert fault(replace(right, states={**right.states, 12: broken})) != ""


def audited_adam(seed: int, part: float = 1.0, silent: bool = False) -> Marks:
    """Adam's means around an audited step, whose gradient masks change. part: share of it that other work makes."""
    source, common = numpy.random.default_rng(seed), numpy.random.default_rng(7)
    gradients = {name: common.standard_normal(SIZE) for name in ("a", "b")}
    gradients = {name: part * g + (1 - part) * common.standard_normal(SIZE) for name, g in gradients.items()}
    gradients = {name: g + 0.4 * source.standard_normal(SIZE) for name, g in gradients.items()}
    gradients["b"] = gradients["b"] * (not silent)
    earlier = {name: source.standard_normal(SIZE) for name in gradients}
    means = {1: earlier, 2: {name: 0.9 * earlier[name] + 0.1 * g for name, g in gradients.items()}}
    return Marks({}, {}, moments={steps: {"mean": mean} for steps, mean in means.items()})


def of_reference(seed: int) -> Marks:
    run = audited_adam(seed).moments
    gradient = {name: run[2]["mean"][name] - 0.9 * run[1]["mean"][name] for name in ("a", "b")}
    return Marks({}, {}, moments={1: {"mean": gradient}})


def test_an_audited_gradient_is_the_reference_s_but_for_masks() -> None:
    reference = Reference(of_reference(1), of_reference(2), masks=OF_ADAM)
    for seed in range(3, 23):
        assert list(measured.audited_gradient(audited_adam(seed), reference, 0.9)) == []
        (fault, *_) = measured.audited_gradient(audited_adam(seed, part=0.0), reference, 0.9)
        assert "its next gradient is another" in fault
        assert (
            "the next gradient of b is 0 times"
            in list(measured.audited_gradient(audited_adam(seed, silent=True), reference, 0.9))[-1]
        )
