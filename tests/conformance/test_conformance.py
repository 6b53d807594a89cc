"""The same promises for every real framework, on CPU: tiny models, plus the full-size counts and shapes.

Each framework's environment is made as `dlperf.envs` makes it, and driver.py observes the adapter inside it. A
framework whose Python is there and that can't be tested fails; it is not skipped.
"""

import json
import math
import os
import re
import statistics
import subprocess

import gpus
import pytest

from dlperf import models
from dlperf.adapters import probe
from dlperf.adapters.api import EFFECTIVE, PRECISIONS
from dlperf.catalog import reader
from dlperf.models.parameters import count
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

ADAPTERS = reader.adapters()
REAL = [name for name, adapter in ADAPTERS.items() if adapter.default]
#: families of which `make test-long` has this file: others have a table and dense layers, too
LONGER = ("simnet_bow",)


def marked(value, family):
    return pytest.param(value, marks=pytest.mark.long if family in LONGER else [])


#: the model that a family is known by
FULL = {name: next(iter(family.SIZES)) for name, family in models.FAMILIES.items()}


@pytest.fixture(scope="session")
def seen(environment, tmp_path_factory):
    """(adapter, family) -> what driver.py observed."""
    results = {}

    def observe(name, family):
        if (name, family) not in results:
            folder = tmp_path_factory.mktemp(f"{name}-{family}")
            results[name, family] = _drive(environment(name), ADAPTERS[name], family, folder)
        return Observations(name, family, results[name, family])

    return observe


def _drive(environment, adapter, family, folder):
    bundle.copy_code(folder / "code", [adapter])
    options = {name: option.default("cpu") for name, option in adapter.options_of(family).items()}
    driver = os.path.join(os.path.dirname(__file__), "driver.py")
    threads = str(probe.machine_cpus())
    command = [environment.python, driver, adapter.name, family, json.dumps(options), threads, folder / "seen.json"]
    variables = {"PYTHONPATH": str(folder / "code"), "OMP_NUM_THREADS": threads, **environment.variables}
    with open(folder / "log", "wb") as log:
        ended = subprocess.run(command, env={**os.environ, **variables}, stdout=log, stderr=log, timeout=900)
    log_end = (folder / "log").read_text(errors="replace")[-3000:]
    assert ended.returncode == 0, f"the driver ended with {ended.returncode}:\n{log_end}"
    return json.loads((folder / "seen.json").read_text())


class Observations:
    """What was seen; an observation that raised fails the test that asks for it."""

    def __init__(self, adapter, family, results):
        self.adapter, self.family, self._results = ADAPTERS[adapter], family, results

    def __getitem__(self, name):
        result = self._results[name]
        assert "error" not in result, result["error"]
        return result["value"]


@pytest.fixture(
    params=[marked((name, family), family) for name in REAL for family in ADAPTERS[name].families], ids="-".join
)
def subject(request, seen):
    return seen(*request.param)


def parameters(model):
    return models.family(model).parameters(models.config(model))


def expected_parameters(subject):
    return parameters(f"{subject.family}_tiny")


def test_the_full_size_parameter_count_is_exact(subject):
    """What it is for ResNet-50 and BERT-base is published: see tests/planning/test_models.py."""
    assert subject["full"]["parameter_count"] == count(parameters(FULL[subject.family]))


def test_the_tiny_parameter_count_is_exact(subject):
    assert subject["tiny"]["parameter_count"] == count(expected_parameters(subject))


def test_the_versions_name_the_framework(subject):
    names = {name.lower().replace("_", "-") for name in subject["versions"]}
    assert names & set(subject.adapter.distribution), subject["versions"]


def test_parameters_start_from_the_common_weights(subject):
    """The round trip: canonical names, shapes and values, to the last bit."""
    built = subject["tiny"]["built"]
    assert set(built) == {parameter.name for parameter in expected_parameters(subject)}
    for parameter in expected_parameters(subject):
        found = built[parameter.name]
        assert tuple(found["shape"]) == parameter.shape, parameter.name
        assert found["dtype"] == "float32", parameter.name
        assert found["difference"] == 0.0, parameter.name


def test_training_changes_what_it_should(subject):
    """All weights, and BatchNorm's statistics, move; scales may move by less than float32 shows beside 1."""
    trained = subject["tiny"]["trained"]
    still = [p.name for p in expected_parameters(subject) if trained[p.name]["difference"] == 0.0 and p.kind != "scale"]
    assert not still


def test_shapes_tell_v1_5_and_the_gathered_head(subject):
    model = FULL[subject.family]
    expected = models.family(model).shapes(models.config(model))
    assert {name: tuple(subject["full"]["shapes"][name]) for name in expected} == expected


def test_the_first_loss_is_that_of_a_guess(subject):
    model = FULL[subject.family]
    guess, share = models.family(model).first_loss(models.config(model))
    assert subject["full"]["loss"] == pytest.approx(guess, rel=share)


def test_the_loss_falls_on_one_batch(subject):
    losses = subject["one_batch"]
    assert all(math.isfinite(loss) for loss in losses)
    assert statistics.fmean(losses[-5:]) < statistics.fmean(losses[:5])


def test_float32_follows_float64(subject):
    """The same ten losses to float32's accuracy: 1e-4, as rounding of 6e-8 grows over ten steps of training."""
    if "losses" not in subject["float64"]:
        pytest.fail(str(subject["float64"]))
    assert subject["tiny"]["losses"] == pytest.approx(subject["float64"]["losses"], rel=1e-4)


def test_float64_is_float64(subject):
    assert subject["float64"]["dtypes"] == ["float64"]
    assert subject["float64"]["effective"]["compute_dtype"] == "float64"


@pytest.mark.parametrize("family", [marked(family, family) for family in models.FAMILIES])
def test_all_frameworks_have_the_same_float64_losses(family, seen):
    """Ten steps without dropout agree with the first one's to 1e-9; the next step is a proof per tensor."""
    mine = [name for name in REAL if family in ADAPTERS[name].families]
    reference = seen(mine[0], family)["float64"]["losses"]
    worst = {}
    for name in mine:
        losses = seen(name, family)["float64"]["losses"]
        # of a loss that is a hinge's a step may have 0
        worst[name] = max(abs(ours - theirs) / (theirs or 1) for ours, theirs in zip(losses, reference, strict=True))
    assert max(worst.values()) < 1e-9, worst


def test_wait_waits(subject):
    """A read right after `wait` has nothing left to wait for. The shortest one tells: a `wait` that returns before
    the last step has ended delays every read by a step or more, hence the half of one; on a busy machine OneFlow's
    threads spin while a loss passes through them, a quarter of a step was seen."""
    times = subject["time"]
    assert min(times["read_after_wait"]) < 0.5 * statistics.median(times["waited"]) / times["steps"], times


def test_effective_says_what_ran(subject):
    effective = subject["full"]["effective"]
    assert {*EFFECTIVE, *models.FAMILIES[subject.family].EFFECTIVE} <= set(effective)
    assert effective["precision"] in PRECISIONS
    assert effective["compute_dtype"] == "float32"
    assert all(isinstance(value, str) and value for value in effective.values())


def test_threads_are_all_that_were_given(subject):
    assert subject["full"]["effective"]["threads"] == str(probe.machine_cpus())


@pytest.mark.parametrize("name", REAL)
def test_a_build_for_the_cpu_says_so_beside_a_gpu(environment, name, tmp_path, monkeypatch):
    """OneFlow's has CUDA, and finds nothing."""
    gpus.install(tmp_path / "bin", monkeypatch, gpus.H200)
    options = {name: option.default("cuda") for name, option in ADAPTERS[name].options.items()}
    job = {"model": "bert_tiny", "device": "cuda", "precision": "fp32", "batch_size": 2, "options": options}
    bundle.copy_code(tmp_path / "code", [ADAPTERS[name]])
    (tmp_path / "job.json").write_text(json.dumps({"adapter": name, "job": job}))
    command = [environment(name).python, "-m", "dlperf.adapters.worker", tmp_path / "job.json", tmp_path]
    variables = {"PYTHONPATH": str(tmp_path / "code"), **environment(name).variables}
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **variables}, stderr=subprocess.DEVNULL, timeout=300)
    last = json.loads((tmp_path / "events.rank0.jsonl").read_text().splitlines()[-1])
    assert last["kind"] == "unsupported", last
    assert re.search(r" \d\S* (has no CUDA|finds no GPU)", last["message"]), last["message"]
    assert "nvidia-smi: NVIDIA H200, compute capability 9.0" in last["message"]


def test_pytorch_clips_as_many_values_as_a_token_table_has(environment, tmp_path):
    """PyTorch's own norm of them is 0.27 % too small on a CPU, and the clipped gradients as much too large."""
    code = """
import torch
from dlperf.adapters.pytorch import optimizers
gradient = torch.randn(50257, 768)
optimizers.clip([gradient], 1.0)
print(gradient.double().norm().item())
"""
    bundle.copy_code(tmp_path, [ADAPTERS["pytorch"]])
    variables = {"PYTHONPATH": str(tmp_path), **environment("pytorch").variables}
    command = [environment("pytorch").python, "-c", code]
    ended = subprocess.run(command, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) == pytest.approx(1, abs=1e-6)
