"""Losses of workers whose pushes are applied as they come: where they may be."""

from __future__ import annotations

import dataclasses
import json

import pytest
from trajectories import asked as job_of

from dlperf.proof import asked, band, consistent, judge
from dlperf.proof.band import Band
from dlperf.proof.certificates import definition
from dlperf.proof.judge import Evidence
from dlperf.proof.published import published
from dlperf.schema import Failure

BAND = Band((1.0, 0.8), (1.2, 1.0), 1000)


def made(*losses: float, **changes: object) -> Evidence:
    """Two workers' trajectory of so many steps."""
    one = published("word2vec_check")
    fields = {"losses": losses, "steps": len(losses), "ranks": 2, "options": {"ps_mode": "async"}, **changes}
    fields = {"step_seconds": (), "read_seconds": (), **fields}
    return Evidence(dataclasses.replace(one, **fields), {})


@pytest.mark.parametrize(
    ("losses", "share", "step"), [((1.1, 0.9), 0, 2), ((1.15, 0.9), 0.5, 1), ((1.1, 1.0), 1, 2), ((1.1, 1.2), 3, 2)]
)
def test_the_step_that_is_farthest_from_the_middle_counts(losses: tuple[float, ...], share: float, step: int) -> None:
    found, at = BAND.share(losses, 0.0)
    assert found == pytest.approx(share)
    assert at == step or share == 0


def test_losses_within_the_band_are_of_the_same_work() -> None:
    inside, outside = band.judge(made(1.1, 0.85), BAND), band.judge(made(1.1, 0.75), BAND)
    assert (inside.verdict, inside.why, inside.size) == ("same", "", None)
    assert judge.verdict([inside]) == ("same", "same work: 0.45 of its bound (fp64, 2 ranks)")
    assert list(consistent.contradictions(inside)) == []
    assert outside.verdict == "different"
    assert outside.why.startswith("the mean of its workers' losses at step 2, 0.75, is not from 0.8 to 1, as in 1000")
    (said,) = consistent.contradictions(dataclasses.replace(outside, verdict="same"))
    assert said == "its verdict is same, and losses are outside of their bound"


def test_servers_that_keep_float32_have_its_bar_besides() -> None:
    narrow = Band((1.0,), (1.0 + 1e-9,), 1000)
    assert band.judge(made(1.00005), narrow).verdict == "different"
    effective = {**published("word2vec_check").effective, "server_dtype": "float32"}
    assert band.judge(made(1.00005, effective=effective), narrow).verdict == "same"


def test_ranks_that_part_and_a_model_without_a_band_are_told() -> None:
    parted = made(1.1, 0.9, failure=Failure("ranks_differ", "rank 1 has not the weights of rank 0"))
    assert band.judge(parted, BAND).verdict == "different"
    assert band.judge(made(1.1, 0.9, failure=Failure("crash", "it fell over")), BAND).verdict == "unproven"
    assert band.judge(made(1.1, 0.9), None).why == "there is no band of losses for its model as it is"


def test_a_band_is_of_one_model_as_it_is() -> None:
    one = made(*range(10)).trajectory
    known = dataclasses.replace(one, definition=definition("word2vec_check"), steps=10)
    assert len(band.of(known).low) == 10  # type: ignore[union-attr]
    assert band.of(dataclasses.replace(known, definition="another")) is None
    assert band.of(dataclasses.replace(known, model="word2vec_tiny")) is None
    for model, entry in json.loads(band.BANDS.read_text(encoding="utf-8")).items():
        assert entry["definition"] == definition(model), f"make the band of {model} again, by oracle_async.py"
        assert len(entry["low"]) == len(entry["high"]) == asked.steps(model)


def test_a_row_of_several_workers_is_held_to_it() -> None:
    row = dataclasses.replace(job_of("pytorch", "word2vec", 2, servers=2, mode="async").job, precision="fp32")
    assert [(one.model, one.ranks, one.in_band) for one in asked.trajectories(row)] == [
        ("word2vec_check", 1, False),
        ("word2vec", 1, False),
        ("word2vec_check", 2, True),
    ]
    geo = dataclasses.replace(row, ps_mode="geo")
    assert [one.ranks for one in asked.trajectories(geo)] == [1, 1]
