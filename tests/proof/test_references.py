"""Which runs of the reference a comparison makes, and what it says where there is none."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from dlperf import models
from dlperf.catalog import reader
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import from_spec
from dlperf.planning.spec import PROTOCOLS, Protocol, Spec
from dlperf.proof import references
from dlperf.proof.measured import Reference
from dlperf.proof.references import References
from dlperf.runs.events import Stream
from dlperf.runs.execute import Outcome
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


def test_from_revealing_weights_the_reference_has_no_dropout() -> None:
    job = planned("bert_tiny", "bf16")[1]
    runs = references.pair(job, QUICK, revealing=True)
    assert [(one.precision, one.dropout_seed, one.dropout) for one in runs] == [
        ("fp64", 1_000_001, 0.0),
        ("amp_bf16", 1_000_001, 0.0),
    ]
    names = {one.name for one in (*runs, *references.pair(job, QUICK))}
    assert len(names) == 4


def test_from_revealing_weights_some_steps_are_enough() -> None:
    job = planned("bert_tiny")[1]

    def steps(protocol: Protocol, share: float) -> int:
        whole = sum(references.seconds(one, 2) for one in references.pair(job, QUICK, revealing=True))
        found = references.affordable(job, protocol, 2, share * whole, revealing=True)
        assert found is None or found.windows == 0
        return found.warmup_steps if found else 0

    assert [steps(QUICK, share) for share in (1.0, 0.9, 0.5, 0.26, 0.1)] == [6, 6, 4, 2, 2]
    assert steps(PROTOCOLS["dlperf"], 100.0) == references.REVEALING


def test_as_much_of_the_protocol_as_there_is_time_for() -> None:
    job = planned("resnet50")[1]
    whole = sum(references.seconds(one, 2) for one in references.pair(job, QUICK))
    assert references.affordable(job, QUICK, 2, whole) == QUICK
    assert references.affordable(job, QUICK, 2, 0.9 * whole) == replace(QUICK, windows=1)
    assert references.affordable(job, QUICK, 2, 0.3 * whole) == replace(QUICK, windows=0)
    long = PROTOCOLS["dlperf"]
    assert references.affordable(job, long, 2, 0.3 * whole) == replace(long, windows=0, warmup_steps=2)
    assert references.affordable(job, QUICK, 2, 0.1 * whole) == replace(QUICK, windows=0)


def test_the_fewest_steps_may_take_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    job = planned("resnet50")[1]
    monkeypatch.setattr(references, "SECONDS", 0.001)
    assert references.affordable(job, QUICK, 2, 0.0) is None
    assert references.affordable(job, QUICK, 2, 0.0, revealing=True) is None


def test_what_is_to_be_published_pays_a_share() -> None:
    job = planned("bert_base")[1]
    assert references.budget([job], QUICK, 1000.0) == references.SECONDS
    assert references.budget([job], PROTOCOLS["dlperf"], 1000.0) == pytest.approx(25.0)


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


# --- what runs wrote down ---------------------------------------------------------------------------------------------


def wrote(folder: Path, job: Job, *steps: int) -> None:
    """What a run leaves: losses, and samples of all tensors after so many steps."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"event": "first_step", "seconds": 1.0, "loss": 2.0}, {"event": "end", "seconds": 1.0}]
    (folder / "events.rank0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    parameters = models.family(job.model).parameters(models.config(job.model))
    states = {f"{at}/{p.name}": numpy.full(min(p.size, 127), 0.5) for at in steps for p in parameters}
    numpy.savez(folder / "states.npz", **states)  # type: ignore[arg-type]


def test_a_damaged_run_of_the_reference_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, job = planned("bert_tiny")
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "cache"))
    made = []

    def execute(folder: Path, *rest: object) -> Outcome:
        made.append(folder)
        wrote(folder, job, 0, 1)
        return Outcome("", 1.0, Stream(), None)

    monkeypatch.setattr(references, "execute", execute)

    def runs() -> int:
        made.clear()
        pair = References(tmp_path / "out", spec, ADAPTERS["numpy"], 60.0, print, lambda what: None).of(job)
        assert isinstance(pair, Reference)
        return len(made)

    assert runs() == 2
    assert runs() == 0
    source = random.Random(20261124)
    places = sorted((tmp_path / "cache" / "references").iterdir())
    assert len(places) == 2
    for name in ("events.rank0.jsonl", "states.npz", references.CHECKSUMS):
        path = places[0] / name
        whole = path.read_bytes()
        for data in (whole[:-1], source.randbytes(300), None):
            path.unlink() if data is None else path.write_bytes(data)
            assert runs() == 1, (name, data)
    assert runs() == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("0/cls.predictions.bias", None), "cls.predictions.bias is missing"),
        (("0/other", [1.0]), "other is not expected"),
        (("x/other", [1.0]), "invalid literal"),
        (("1/cls.predictions.bias", [1.0]), "cls.predictions.bias has 1 values, not"),
        (("1/cls.predictions.bias", [[1.0]]), "of shape"),
        ((None, None), "is damaged"),
    ],
)
def test_a_measured_run_whose_samples_are_not_whole_has_no_proof(
    tmp_path: Path, change: tuple[str | None, object], says: str
) -> None:
    spec, job = planned("bert_tiny")
    wrote(tmp_path, job, 0, 1)
    name, values = change
    with numpy.load(tmp_path / "states.npz") as found:
        states = {**found, **({name: numpy.array(values)} if name else {})}
    numpy.savez(tmp_path / "states.npz", **{key: one for key, one in states.items() if one.ndim})
    if name is None:
        (tmp_path / "states.npz").write_bytes(b"PK damaged")
    held = References(tmp_path, spec, ADAPTERS["numpy"], 60.0, print, lambda what: None).verdict(job, tmp_path)
    assert held["verdict"] == "unproven"
    assert "cannot be read" in held["why"]
    assert says in held["why"]
