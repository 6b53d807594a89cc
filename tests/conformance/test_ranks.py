"""Several ranks do the work of one: in float64, for every real framework, by the proof that rows of several ranks need.

BERT's ranks must compute what one rank does with the whole batch; ResNet's what one process does that normalises each
part by itself (oracle_ranks.py, which confirms the published trajectory of two ranks too).
"""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from dlperf.catalog import reader
from dlperf.envs import kinds, pythons
from dlperf.errors import RunError
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import make
from dlperf.precision import ASKED
from dlperf.proof import asked as asked_
from dlperf.proof import certificates, judge
from dlperf.proof import published as published_
from dlperf.proof.asked import BATCH_SIZE, SEED
from dlperf.proof.certify import Certifier
from dlperf.proof.judge import REFERENCE
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

ADAPTERS = reader.adapters()
REAL = [name for name, adapter in ADAPTERS.items() if adapter.default]
#: ranks: 2 as in every proof; 4 finds what two hide, such as a mean of means
CASES = [("bert_tiny", 2), ("bert_tiny", 4), ("resnet_tiny", 2)]


def asked(framework, model, ranks, *settings, precision="fp64"):
    words = {"model": model, "precision": precision, "frameworks": framework, "device": "cpu", "env": "venv"}
    rest = dict.fromkeys(["protocol", "compile", "timeout", "seed", "threads"])
    places = {"nproc_per_node": str(ranks), "set": list(settings) or None}
    arguments = {**words, **rest, **places, "data": "synthetic", "dry_run": False}
    (job,) = make(from_arguments(arguments, ADAPTERS, ("fp64", *ASKED)), ADAPTERS).jobs
    return replace(asked_.shown(job)[0], ranks=ranks)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """framework, model, ranks -> evidence, each made once."""
    made = {}
    root = tmp_path_factory.mktemp("ranks")
    bundle.make(root / "code", [ADAPTERS[name] for name in REAL])
    certifier = Certifier(root, threads=1, timeout=300, note=print)

    def evidence(framework, model, ranks, *settings, precision="fp64"):
        key = framework, model, ranks, settings, precision
        if key not in made:
            one = asked(framework, model, ranks, *settings, precision=precision)
            made[key] = certifier.run(one, environment(framework), threads=1)
        return made[key]

    return evidence


def environment(framework):
    try:
        pythons.find(ADAPTERS[framework].environments["cpu"].python)
    except RunError as error:
        pytest.skip(f"{framework} was not tested: {error}")
    return kinds.ensure(ADAPTERS[framework], "cpu", progress=print)


def as_reference(evidence):
    return replace(evidence, trajectory=replace(evidence.trajectory, system=REFERENCE))


@pytest.mark.parametrize(("model", "ranks"), CASES)
@pytest.mark.parametrize("framework", REAL)
def test_ranks_together_do_the_work_of_one(framework, model, ranks, run):
    """In BERT against the framework's own single rank, in ResNet against PyTorch's two, which the oracle confirms."""
    together = run(framework, model, ranks)
    assert together.trajectory.failure is None, together.trajectory.failure
    other = run(framework, model, 1) if model == "bert_tiny" else run("pytorch", model, ranks)
    assert other.trajectory.failure is None, other.trajectory.failure
    (certificate,) = judge.judge([together], as_reference(other))
    assert certificate.verdict == "same", certificate.why
    assert "communication" in together.trajectory.effective


@pytest.mark.parametrize("framework", REAL)
def test_gradients_are_clipped_after_the_mean_or_not_at_all(framework, run):
    """Without clipping, the size of the gradients counts: a mean that is taken twice, or not, shows in the weights."""
    together, alone = (run(framework, "bert_tiny", ranks, "clip_norm=off") for ranks in (2, 1))
    (certificate,) = judge.judge([together], as_reference(alone))
    assert certificate.verdict == "same", certificate.why


@pytest.mark.parametrize("framework", REAL)
def test_ranks_are_right_in_the_precision_that_is_measured_too(framework, run):
    """Some frameworks take other means in float32: OneFlow a Graph, MXNet its servers' sums."""
    together, alone = (run(framework, "bert_tiny", ranks, precision="fp32") for ranks in (2, 1))
    assert together.trajectory.failure is None, together.trajectory.failure
    (certificate,) = judge.judge([together], as_reference(alone))
    assert certificate.verdict == "same", certificate.why


@pytest.mark.parametrize("model", ["resnet_tiny", "resnet50"])
def test_one_process_without_data_parallelism_computes_the_same_as_two_ranks(model, run, tmp_path):
    bundle.make(tmp_path / "code", [ADAPTERS["pytorch"]])
    out, size = tmp_path / "oracle.npz", model + "_check"
    script = Path(__file__).with_name("oracle_ranks.py")
    words = [environment("pytorch").python, script, size, BATCH_SIZE, SEED, 2, out]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
    ended = subprocess.run([str(word) for word in words], env=environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    with numpy.load(out) as arrays:
        theirs = {name: arrays[name] for name in arrays.files}
    if model == "resnet50":
        found = published_.reference(replace(run("pytorch", "resnet_tiny", 2).trajectory, **published(size)))
    else:
        found = run("pytorch", model, 2)
    assert theirs["losses"] == pytest.approx(found.trajectory.losses, rel=1e-9)
    for prefix in ("gradient/", "change/"):
        error, worst = judge.worst_tensor(found.sketches, theirs, prefix)
        assert error is not None
        assert error < 1e-7, (prefix, worst)


def published(size):
    """What `certify.reference` looks for."""
    return {"model": size, "definition": certificates.definition(size), "options": {}, "ranks": 2}
