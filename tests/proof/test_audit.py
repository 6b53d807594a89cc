"""What is said of the steps after a run's last window, on a toy that trains with momentum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

from dlperf.adapters import trace
from dlperf.proof import audit, measured
from dlperf.proof.measured import Marks, Reference
from dlperf.runs import messages

SIZE, RATE, MOMENTUM = 1000, 0.01, 0.875
NAMES = ("a", "b")


def reference(noise: float, seed: int) -> Marks:
    """One step without momentum, of a pull towards ones; `noise` stands for rounding."""
    source, weights = numpy.random.default_rng(seed), between()
    pulls = {name: 1 - value + noise * source.standard_normal(SIZE) for name, value in weights.items()}
    after = {name: weights[name] + RATE * pulls[name] for name in NAMES}
    return Marks({11: 2.0 * (1 + noise * source.normal())}, {0: weights, 1: after})


def between() -> dict[str, Any]:
    source = numpy.random.default_rng(7)
    return {name: source.standard_normal(SIZE) for name in NAMES}


def run(noise: float = 1e-5, rate: float = RATE, momentum: float = MOMENTUM, loss: float = 2.0) -> Marks:
    """Three states around two steps, which come with a velocity of their own."""
    source, weights = numpy.random.default_rng(3), between()
    velocity = {name: source.standard_normal(SIZE) for name in NAMES}
    pulls = {name: 1 - value + noise * source.standard_normal(SIZE) for name, value in weights.items()}
    before = {name: weights[name] - rate * velocity[name] for name in NAMES}
    after = {name: weights[name] + rate * (momentum * velocity[name] + pulls[name]) for name in NAMES}
    return Marks({11: loss * (1 + noise)}, {0: before, 1: weights, 2: after})


EXACT = Reference(reference(0.0, 0), reference(1e-5, 1))


def fault(one: Marks, momentum: float | None = MOMENTUM) -> str:
    return next(measured.audited(one, NAMES, EXACT, momentum, 1e-3, 2e-6), "")


def test_a_right_step_has_no_fault() -> None:
    assert fault(run()) == ""
    assert fault(run(), None) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rate": 1.01 * RATE}, "its next update is off by"),
        ({"momentum": 0.9}, "its next update is off by"),
        ({"noise": 0.1, "loss": 2.0 / 1.1}, "its next update is off by"),
        ({"loss": 2.001}, "its loss at step 11"),
        ({"loss": float("nan")}, "its loss at step 11"),
        ({"rate": 0.0}, "its next step changed no parameter"),
    ],
)
def test_a_step_that_did_otherwise(change: dict[str, Any], says: str) -> None:
    assert says in fault(run(**change))


def test_a_loss_of_low_precision_may_be_right_by_chance_in_the_reference() -> None:
    near = Reference(EXACT.first, EXACT.first)
    assert [*measured.audited(run(loss=2.0001), NAMES, near, MOMENTUM, 1e-3, 2e-6)]
    assert not [*measured.audited(run(loss=2.0001), NAMES, near, MOMENTUM, 1e-3, 2.0**-8 / 10)]


def test_what_rounding_hides_is_no_fault() -> None:
    """A weight of 1000 in float32 is stored to 6e-5, and its update may be as small."""
    made, large = run(noise=0.0), {name: numpy.full(SIZE, 1000.0) for name in NAMES}
    moved = {
        n: {name: (large[name] + array[name] - made.states[1][name]) for name in NAMES}
        for n, array in made.states.items()
    }
    stored = {
        n: {name: array.astype("float32").astype("float64") for name, array in one.items()} for n, one in moved.items()
    }
    exact = Reference(
        *(
            Marks(one.losses, {n: {k: large[k] + v[k] - one.states[0][k] for k in v} for n, v in one.states.items()})
            for one in (EXACT.first, EXACT.second)
        ),
    )
    assert not [*measured.audited(Marks(made.losses, stored), NAMES, exact, MOMENTUM, 0.0, 2e-6)]


class Told:
    """What `verdict` needs of References."""

    folder: Path
    spec = type("Spec", (), {"threads": 2})


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({}, "it wrote nothing down"),
        ({"why": "its weights could not be written: No space left on device"}, "No space left"),
        ({"steps": 9, "loss": 1.0}, "cannot be read"),
    ],
)
def test_a_run_that_wrote_nothing_is_not_audited(event: dict[str, Any], says: str, tmp_path: Path) -> None:
    from trajectories import asked

    told = {"event": "audit", **event}
    messages.event(json.dumps(told).encode())
    (tmp_path / "events.rank0.jsonl").write_text(json.dumps(told) + "\n")
    (tmp_path / trace.AUDIT).write_bytes(b"PK\3\4 damaged")
    found = audit.verdict(Told(), asked("jax", "resnet_tiny", 1, precision="fp32").job, tmp_path, 0.0)  # type: ignore[arg-type]
    assert says in found["unaudited"]


def test_what_takes_too_long_is_not_audited(tmp_path: Path) -> None:
    from trajectories import asked

    job = asked("jax", "resnet50", 1, precision="fp32").job
    large = type(job)(**{**job.__dict__, "batch_size": 512})
    found = audit.verdict(Told(), large, tmp_path, 0.0)  # type: ignore[arg-type]
    assert "a step of the reference takes" in found["unaudited"]


def test_worker_and_core_mean_the_same_file() -> None:
    assert (audit.AUDIT, audit.WEIGHTS) == (trace.AUDIT, trace.WEIGHTS)
