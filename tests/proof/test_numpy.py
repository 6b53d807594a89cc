"""The networks written out in NumPy: their gradients are the derivatives of their losses, and what they train is what
was published."""

from __future__ import annotations

import importlib
from typing import Any

import numpy
import pytest

from dlperf import models, verify
from dlperf.adapters.api import Job
from dlperf.adapters.ranks import Ranks


def trainer(model: str, **changes: Any) -> Any:
    job = Job(model=model, device="cpu", precision="fp64", batch_size=2, options={"clip_norm": "off"}, trace_steps=1)
    module = importlib.import_module(f"dlperf.adapters.numpy.{models.FAMILY_OF[model]}")
    return module.build(job._replace(**changes), Ranks())


@pytest.mark.parametrize(
    ("model", "dropout"), [("bert_tiny", False), ("bert_tiny", True), ("resnet_tiny", False), ("gpt_tiny", False)]
)
def test_gradients_are_the_derivatives_of_the_loss(model: str, dropout: bool) -> None:
    """Along a random direction, and by central differences: so near that hardly a ReLU turns between."""
    source = numpy.random.default_rng(1)
    made = trainer(model, dropout=dropout)
    starts = {name: value.copy() for name, value in made.parameters()}
    # the last scale of a block starts at zero, behind which there is nothing to derive
    weights = {name: value + 0.05 * source.standard_normal(value.shape) for name, value in starts.items()}
    away = {name: source.standard_normal(value.shape) for name, value in starts.items()}

    def loss(by: float) -> tuple[float, dict[str, Any]]:
        one = trainer(model, dropout=dropout)  # with the same masks
        for name, value in one.parameters():
            if "running" not in name:
                value[...] = weights[name] + by * away[name]
        return one.read(one.step()), dict(one.gradients())

    gradients = loss(0.0)[1]
    slope = sum(float((gradient * away[name]).sum()) for name, gradient in gradients.items())
    step = 1e-8
    assert (loss(step)[0] - loss(-step)[0]) / (2 * step) == pytest.approx(slope, rel=1e-6)


def test_dropout_draws_other_masks_with_another_seed() -> None:
    losses = [made.read(made.step()) for made in (trainer("bert_tiny", dropout_seed=seed) for seed in (1, 1, 2))]
    assert losses[0] == losses[1] != losses[2]


def test_bfloat16_is_rounded_to_nearest_even() -> None:
    from dlperf.adapters.numpy.runtime import rounded

    given = numpy.float32([1.0, 1.00390625, 1.01171875, 1.0040, -1.0040, 3e38, 0.0])
    expected = [1.0, 1.0, 1.015625, 1.0078125, -1.0078125, 3.00405527e38, 0.0]
    assert rounded(given, "bfloat16").tolist() == numpy.float32(expected).tolist()


def test_float16_is_rounded_like_numpys_but_for_its_range() -> None:
    from dlperf.adapters.numpy.runtime import rounded

    given = numpy.random.default_rng(1).uniform(2.0**-14, 65504, 1000).astype("float32")
    assert (rounded(given, "float16") == given.astype("float16").astype("float32")).all()
    assert rounded(numpy.float32([1e6, -1e-9, 0.0]), "float16") == pytest.approx([1e6, -1e-9, 0.0], rel=2.0**-11)


@pytest.mark.framework
def test_it_trains_what_was_published(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--frameworks", "numpy", "--env", "current", "--device", "cpu", "--precision", "fp64"]) == 0
    told = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("NumPy  ")]
    assert [words[1:3] for words in told] == [["same", "work"]] * 2
    assert all(float(words[3]) < 1e-13 for words in told)
