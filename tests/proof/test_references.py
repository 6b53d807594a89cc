"""Which runs of the reference a comparison makes, and what it says where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlperf.catalog import reader
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import from_spec
from dlperf.planning.spec import PROTOCOLS, Spec
from dlperf.proof import references
from dlperf.schema import Job

ADAPTERS = reader.adapters()
QUICK = PROTOCOLS["quick"]


def planned(model: str, precision: str = "fp32", **more: object) -> tuple[Spec, Job]:
    words = {"model": model, "precision": precision, "frameworks": "jax", "device": "cpu", "env": "venv", **more}
    rest = dict.fromkeys(["protocol", "compile", "timeout", "seed", "threads"])
    spec = from_arguments({**rest, "data": "synthetic", "dry_run": False, **words}, ADAPTERS)
    return spec, from_spec(spec, ADAPTERS).jobs[0]


@pytest.mark.parametrize(
    ("model", "precision", "runs"),
    [
        ("resnet_tiny", "fp32", [("fp64", 1_000_001), ("fp32", 1_000_001)]),
        ("resnet_tiny", "bf16", [("fp64", 1_000_001), ("amp_bf16", 1_000_001)]),
        ("bert_tiny", "bf16", [("fp32", 1_000_001), ("fp32", 1_000_002)]),
    ],
)
def test_two_runs_tell_how_far_apart_right_ones_are(model: str, precision: str, runs: list[tuple[str, int]]) -> None:
    job = planned(model, precision)[1]
    assert [(one.precision, one.dropout_seed) for one in references.pair(job, QUICK)] == runs


def test_as_much_of_the_protocol_as_there_is_time_for() -> None:
    job = planned("resnet50")[1]
    whole = sum(references.seconds(one, 2) for one in references.pair(job, QUICK))
    assert references.affordable(job, QUICK, 2, whole) == QUICK
    assert references.affordable(job, QUICK, 2, 0.9 * whole) == replace(QUICK, windows=1)
    assert references.affordable(job, QUICK, 2, 0.3 * whole) == replace(QUICK, windows=0)
    long = PROTOCOLS["dlperf"]
    assert references.affordable(job, long, 2, 0.3 * whole) == replace(long, windows=0, warmup_steps=2)
    assert references.affordable(job, QUICK, 2, 0.1 * whole) is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"nproc_per_node": "2"}, "several ranks"),
        ({"no_verify": True}, "--no-verify"),
        ({}, ""),
    ],
)
def test_what_the_reference_does_not_train(more: dict[str, object], says: str) -> None:
    spec, job = planned("bert_tiny", **more)
    found = references.obstacle(job, replace(spec, verify="no_verify" not in more))
    assert says in found if says else not found


def test_a_run_without_samples_has_no_proof(tmp_path: Path) -> None:
    spec, job = planned("bert_tiny")
    made = references.References(tmp_path, spec, ADAPTERS["numpy"], 60.0, print, lambda what: None)
    found = made.verdict(job, tmp_path)
    assert found["verdict"] == "unproven"
    assert "cannot be read" in found["why"]
