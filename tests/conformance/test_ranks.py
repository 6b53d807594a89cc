"""Several ranks do the work of one: in float64, for every real framework, by the proof that rows of several ranks need.

BERT's ranks must compute what one rank does with the whole batch; ResNet's what one process does that normalises each
part by itself (oracle_ranks.py, which confirms the published trajectory of two ranks too).
"""

import functools
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from trajectories import ADAPTERS, as_reference

from dlperf.catalog.adapter import Option
from dlperf.proof import certificates, judge
from dlperf.proof import published as published_
from dlperf.proof.asked import BATCH_SIZE, SEED
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

NONE = Option("compression", "", ("none",))
REAL = [name for name, adapter in ADAPTERS.items() if adapter.default]
#: ranks: 2 as in every proof; 4 finds what two hide, such as a mean of means
CASES = [("bert_tiny", 2), ("bert_tiny", 4), ("resnet_tiny", 2)]
#: of each framework: model, ranks, settings
ASKED = [("bert_tiny", 1), *CASES, *(("bert_tiny", ranks, "clip_norm=off") for ranks in (1, 2))]


def longer(*case):
    """One that `make test` leaves to `make test-long`: others show what it shows in part."""
    return pytest.param(*case, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def run(environment, evidence):
    """As `evidence`. All of a framework's trajectories are made at once, two at a time: much of each is start-up."""

    @functools.cache
    def prepare(framework):
        environment(framework)
        with ThreadPoolExecutor(2) as pool:
            made = [pool.submit(evidence, framework, *one) for one in ASKED]
            made += [pool.submit(evidence, framework, "bert_tiny", ranks, precision="fp32") for ranks in (1, 2)]
        [one.result() for one in made]

    def run(framework, *which, **more):
        prepare(framework)
        return evidence(framework, *which, **more)

    return run


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


@pytest.mark.parametrize("model", ["ctr_dnn_tiny", longer("simnet_bow_tiny")])
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax"])
def test_ranks_with_tables_do_the_work_of_one(framework, model, evidence):
    """PyTorch's and TensorFlow's ranks have all rows, and JAX's some each."""
    alone, *together = (evidence(framework, model, ranks) for ranks in (1, 2, 4))
    for one in together:
        assert one.trajectory.failure is None, one.trajectory.failure
        (certificate,) = judge.judge([one], as_reference(alone))
        assert certificate.verdict == "same", certificate.why


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


#: rank 1 leaves at once, rank 0 when each of OneFlow's ranks has looked for the others: every 7 to 13 seconds
LEAVING = """
import os, time
from dlperf.adapters import ranks
place = ranks.meet(ranks.from_environment(), ".", "this host", 300)
from dlperf.adapters.oneflow import communication
communication.close()
time.sleep(0 if place.rank else 14)
os._exit(0)
"""


def test_a_rank_of_oneflow_may_leave_before_another(environment, tmp_path):
    bundle.copy_code(tmp_path / "code", [ADAPTERS["oneflow"]])
    made = environment("oneflow")
    environ = {**os.environ, **made.variables, "PYTHONPATH": str(tmp_path / "code"), "DLPERF_LAUNCHER": "env"}
    words = [str(made.python), "-m", "dlperf.adapters.spawn", "2", str(made.python), "-c", LEAVING]
    ended = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.parametrize(
    ("model", "compression"),
    [
        ("resnet_tiny", "none"),
        longer("resnet50", "none"),
        *(("resnet_tiny", kind) for kind in ("fp16", "powersgd", "2bit", "dgc")),
        *(longer(model, kind) for model in ("vgg_tiny", "resnet50") for kind in ("fp16", "powersgd", "2bit", "dgc")),
    ],
)
def test_one_process_without_data_parallelism_computes_the_same_as_two_ranks(
    model, compression, environment, run, tmp_path
):
    bundle.copy_code(tmp_path / "code", [ADAPTERS["pytorch"]])
    out, size = tmp_path / "oracle.npz", model + "_check"
    script = Path(__file__).with_name("oracle_ranks.py")
    words = [environment("pytorch").python, script, size, BATCH_SIZE, SEED, 2, out, compression]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
    ended = subprocess.run([str(word) for word in words], env=environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    with numpy.load(out) as arrays:
        theirs = {name: arrays[name] for name in arrays.files}
    if model == "resnet50":
        told = {"options": {} if compression == "none" else {"compression": compression}, **published(size)}
        found = published_.reference(replace(run("pytorch", "resnet_tiny", 2).trajectory, **told))
    else:
        settings = [] if compression == "none" else [f"compression={compression}"]
        found = run("mxnet" if compression == "2bit" else "pytorch", model, 2, *settings)
    assert found.trajectory.failure is None, found.trajectory.failure
    assert theirs["losses"] == pytest.approx(found.trajectory.losses, rel=1e-9)
    for prefix in ("gradient/", "change/"):
        error, worst = judge.worst_tensor(found.sketches, theirs, prefix)
        assert error is not None
        assert error < 1e-7, (prefix, worst)


COMPRESSED = [name for name in REAL if "dgc" in ADAPTERS[name].options_of("resnet").get("compression", NONE).values]


@pytest.mark.parametrize(
    ("framework", "model"),
    [
        (name, model) if (name, model) == ("jax", "resnet_tiny") else longer(name, model)
        for name in COMPRESSED
        if name not in ("pytorch", "mxnet")
        for model in ("resnet_tiny", "resnet50")
    ],
)
def test_deep_gradient_compression_is_the_same_in_all_frameworks(framework, model, run):
    """PyTorch's is what NumPy computes, see above; MXNet's needs Horovod, see test_horovod.py. In ResNet-50 some values
    would be equal but for what they start at."""
    ours, pytorchs = (run(name, model, 2, "compression=dgc") for name in (framework, "pytorch"))
    assert ours.trajectory.failure is None, ours.trajectory.failure
    (certificate,) = judge.judge([ours], as_reference(pytorchs))
    assert certificate.verdict == "same", certificate.why
    assert "compression" in ours.trajectory.effective


@pytest.mark.parametrize(
    ("model", "ranks"), [longer("word2vec_tiny", 1), ("word2vec_tiny", 2), longer("simnet_bow_tiny", 2)]
)
def test_tables_in_torchrec_do_the_work_of_one(model, ranks, evidence):
    ours, alone = evidence("pytorch", model, ranks, "tables=torchrec"), evidence("jax", model, 1)
    assert ours.trajectory.failure is None, ours.trajectory.failure
    (certificate,) = judge.judge([ours], as_reference(alone))
    assert certificate.verdict == "same", certificate.why
    assert "exact_sgd" in ours.trajectory.effective["optimizer"]


def published(size):
    """What `certify.reference` looks for."""
    return {"model": size, "definition": certificates.definition(size), "ranks": 2}
