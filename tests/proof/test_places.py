"""Where dropout stands, by the gradients that are zero where it drops nearly all."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from trajectories import asked

from dlperf import models
from dlperf.proof import places
from dlperf.proof.measured import Marks
from dlperf.proof.references import decayed, places_dropout, recipe

VGG = asked("pytorch", "vgg_tiny", 1, precision="fp32").job
TRANSFORMER = asked("pytorch", "transformer_tiny", 1, precision="fp32").job


def test_half_of_the_channels_are_dropped_in_all_rows_and_a_quarter_where_rows_are_tokens() -> None:
    rate = models.config(VGG.model).dropout * places.share(VGG)
    assert rate**VGG.batch_size == pytest.approx(0.5)
    config = models.config(TRANSFORMER.model)
    assert (config.dropout * places.share(TRANSFORMER)) ** (TRANSFORMER.batch_size * config.tokens) == pytest.approx(
        0.25
    )


def test_of_sgd_decay_alone_is_no_gradient() -> None:
    optimizer, random = recipe(VGG), numpy.random.default_rng(1)
    start = {name: random.standard_normal(64).astype("float32").astype("float64") for name in decayed(VGG)}
    after = {}
    for name, decays in decayed(VGG).items():
        gradient = random.uniform(1.0, 2.0, 64) * (numpy.arange(64) < 16)
        step = gradient + (optimizer.weight_decay * start[name] if decays else 0.0)
        after[name] = (start[name] - optimizer.learning_rate * step).astype("float32").astype("float64")
    found = places.zeros(Marks({}, {0: start, 1: after}), decayed(VGG), optimizer)
    assert set(found.values()) == {0.75}


def test_of_adam_means_tell() -> None:
    mean = {name: numpy.array([0.0, 1e-30, 0.0, -1.0]) for name in decayed(TRANSFORMER)}
    run = Marks({}, {}, moments={1: {"mean": mean}})
    assert set(places.zeros(run, decayed(TRANSFORMER), recipe(TRANSFORMER)).values()) == {0.5}


FIRST, SECOND = {"a": 0.5, "b": 0.72, "c": 0.0, "d": 1.0}, {"a": 0.54, "b": 0.66, "c": 0.0, "d": 1.0}


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        (FIRST, ""),
        ({**FIRST, "a": 0.65}, ""),
        ({**FIRST, "a": 0.0, "b": 0.9}, "0% of a where it is 50% in the reference, and 2 tensors are off by 0.37"),
        ({**FIRST, "c": 0.9}, "90% of c where it is 0% in the reference, and 3 tensors are off by 0.32"),
        ({**FIRST, "c": 1.0, "d": 0.0}, ""),  # as where all of a tensor has none by chance
    ],
)
def test_zeros_elsewhere_are_told(ours: dict[str, float], says: str) -> None:
    found = places.fault(ours, FIRST, SECOND)
    assert says in found
    assert bool(says) == bool(found)


def test_where_the_reference_tells_nothing_nothing_is_told() -> None:
    certain = {"c": 0.0, "d": 1.0}
    assert places.fault({"c": 0.5, "d": 0.5}, certain, certain) == ""


def test_it_is_looked_at_where_gradients_tell() -> None:
    assert places_dropout(VGG)
    assert places_dropout(TRANSFORMER)
    assert not places_dropout(replace(TRANSFORMER, model="transformer_post_tiny"))
    assert not places_dropout(replace(TRANSFORMER, precision="amp_fp16"))
    for model in ("resnet_tiny", "gpt_tiny", "bert_tiny"):
        assert not places_dropout(asked("pytorch", model, 1, precision="fp32").job)
