"""A new family of models is one module in models/ and one in each adapter: plan, proof, run, report and the conformance
suite take it, and no line elsewhere names it."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module

import pytest
from places import ROOT

from dlperf.comparison import store

pytestmark = pytest.mark.slow

MODEL = '''\
"""A linear regression of signs, on rows of numbers. Loss: the mean square of what is missing. Optimizer: SGD."""

from typing import NamedTuple

from dlperf.models.parameters import Parameter, random_state


class Config(NamedTuple):
    features: int = 24


class Optimizer(NamedTuple):
    """w -= learning_rate * g."""

    learning_rate: float = 0.05


SIZES = {"toy": Config(), "toy_tiny": Config(features=8)}
SIZES.update({name + "_check": config for name, config in SIZES.items()})
TITLES = {"toy": "Toy regression"}
ALIASES = {"line": "toy"}
DEFAULT = ""
SAMPLE = "rows"
RATE_UNIT = "rows/s"
BATCH_SIZE = {"cuda": {"fp32": 64, "tf32": 64, "amp": 64}, "cpu": 4}
INPUT = ""
EFFECTIVE = ("solver",)
WORK = ()
SMOOTH = True
MEANINGS = {"solver": "What multiplies rows by weights."}
TOTALS = {}
COUNTED = ""


def parameters(config):
    return [Parameter("weight", (1, config.features), "dense", "zeros"), Parameter("bias", (1,), "bias", "zeros")]


def revealing(config):
    return [one._replace(init=1.0) for one in parameters(config)]


def optimizer(global_batch_size):
    return Optimizer()


def batch(config, batch_size, seed, index):
    random = random_state(seed, "toy batch %d" % index)
    rows = random.standard_normal((batch_size, config.features)).astype("float32")
    return {"rows": rows, "signs": (1 - 2 * (rows[:, 0] < 0)).astype("float32")}


def logits(config):
    return {"prediction": ()}


def samples(config):
    return "%d numbers" % config.features


def units(config):
    return 1


def first_loss(config):
    return 1.0, 1e-6


def shapes(config):
    return logits(config)


def observed(shapes):
    return {}


def flops(config):
    return {"product": 3 * 2 * config.features}


def activations(config):
    return 1


def normalised(config):
    return {}
'''
ADAPTER = '''\
"""The one family that the fake framework really trains, in NumPy."""

import numpy

from dlperf import models
from dlperf.adapters import base
from dlperf.adapters.fake.resnet import Star, product, versions
from dlperf.models.parameters import count, initial

__all__ = ["build", "product", "versions"]


def build(job, ranks):
    return Trainer(job, ranks)


class Feed(base.Feed):
    def __init__(self, job, ranks):
        self._dtype = job.weights_dtype
        super().__init__(job, ranks)

    def _tensor(self, array):
        return array.astype(self._dtype)


class Trainer(base.Trainer):
    def __init__(self, job, ranks):
        told = {"compile": "none", "threads": str(job.threads), "optimizer": "NumPy", "solver": "numpy.matmul"}
        super().__init__(job, Feed(job, ranks), told)
        listed = base.parameters(job)
        self._weights = {one.name: initial(one, job.seed, job.weights_dtype) for one in listed}
        self._rate = models.family(job.model).optimizer(0).learning_rate
        self._world_size = ranks.world_size
        self._star = Star(ranks) if ranks.world_size > 1 else None
        if self._star:
            self.effective["communication"] = "sockets"
        self.parameter_count = count(listed)
        self.gradient_bytes = 4 * self.parameter_count

    def _step(self, batch):
        rows, weights = batch["rows"], self._weights
        self._prediction = (rows @ weights["weight"].T + weights["bias"])[:, 0]
        missing = self._prediction - batch["signs"]
        slope = 2 * missing / len(rows)
        gradients = {"weight": (slope @ rows)[None, :], "bias": slope.sum(keepdims=True)}
        self._gradients = {name: self._mean(gradient) for name, gradient in gradients.items()}
        for name, gradient in self._gradients.items():
            weights[name] -= self._rate * gradient
        return float((missing**2).mean())

    def _mean(self, gradient):
        if not self._star:
            return gradient
        totals = [self._star.total(float(one)) / self._world_size for one in gradient.ravel()]
        return numpy.array(totals, gradient.dtype).reshape(gradient.shape)

    def _observe(self, batch):
        self.effective["compute_dtype"] = str(self._prediction.dtype)
        self.shapes["prediction"] = self._prediction.shape[1:]

    def wait(self):
        pass

    def read(self, loss):
        return loss

    def all_reduce(self, count):
        return lambda: self._star.total(1.0)

    def parameters(self):
        return self._weights.items()

    def logits(self):
        return [("prediction", self._prediction)]

    def gradients(self):
        return self._gradients.items()

    def peak_memory(self):
        return None

    def close(self):
        pass
'''
#: in place of tests/conformance/conftest.py: the fake adapter in this interpreter, as if it were a real framework
CONFTEST = """\
from dataclasses import replace

import pytest

from dlperf.catalog import reader
from dlperf.envs import kinds

FAKE = replace(reader.adapters()["fake"], default=True)
reader.adapters = lambda: {"fake": FAKE}


@pytest.fixture(scope="session")
def environment():
    return lambda name: kinds.ensure(FAKE, "cpu", "current")
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """A copy of dlperf with the two modules, for PYTHONPATH."""
    root = tmp_path_factory.mktemp("code")
    ignored = shutil.ignore_patterns("__pycache__", "published")
    for name in ("dlperf", *(f"dlperf.{part}" for part in ("adapters", "docker", "launchers", "models", "report"))):
        folder = import_module(name).__path__[0]
        shutil.copytree(folder, root / name.replace(".", "/"), ignore=ignored, dirs_exist_ok=True)
    (root / "dlperf" / "models" / "toy.py").write_text(MODEL)
    (root / "dlperf" / "adapters" / "fake" / "toy.py").write_text(ADAPTER)
    return root


@pytest.fixture(scope="module")
def run(code, tmp_path_factory):
    """A command on this CPU, in this interpreter, with that copy."""
    cache = tmp_path_factory.mktemp("cache")
    environ = {**os.environ, "PYTHONPATH": str(code), "DLPERF_CACHE": str(cache)}

    def run(module, *words):
        command = [sys.executable, "-m", module, *map(str, words)]
        return subprocess.run(command, env=environ, cwd=cache, capture_output=True, text=True, timeout=600)

    return run


WHERE = ("--model", "line", "--env", "current", "--device", "cpu", "--threads", "1")


@pytest.fixture(scope="module")
def compared(run, tmp_path_factory):
    """The folder of a comparison on one and two ranks, against trajectories that were published before."""
    out = tmp_path_factory.mktemp("compared") / "out"
    for more in ((), ("--full-size",)):
        ended = run("dlperf.verify", "-f", "fake", *WHERE, "--publish", *more)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    ended = run("dlperf.compare", "-f", "fake,pytorch", *WHERE, "--nproc-per-node", "1,2", "-r", 2, "-o", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out


def test_it_runs_and_is_proven_on_one_and_two_ranks(compared):
    opened = store.open_folder(compared)
    assert {record.job.world_size: record.failure for record in opened.records.values()} == {1: None, 2: None}
    proofs = json.loads((compared / "proofs.json").read_text())[
        "certificates"
    ]  # opened, they need a dlperf that knows the model
    verdicts = [one["verdict"] for each in proofs.values() for one in each]
    assert verdicts == ["same"] * 5, verdicts
    (skip,) = opened.plan.skips
    assert (skip.adapter, skip.why) == ("pytorch", "not implemented in this adapter yet")


def test_the_report_has_its_words(compared):
    report = (compared / "report.md").read_text()
    for words in ("Toy regression", "rows/s", "24 numbers", "not implemented in this adapter yet"):
        assert words in report, words


def test_it_reads_no_data_folder(run, tmp_path):
    ended = run("dlperf.compare", "-f", "fake", *WHERE, "--data", tmp_path, "--dry-run")
    assert ended.returncode == 2
    assert "toy reads no folder. Leave out --data, or compare other models." in ended.stderr


def test_the_conformance_suite_finds_it(run, tmp_path):
    """But for what is told by clocks."""
    for name in ("test_conformance.py", "driver.py"):
        shutil.copy(ROOT / "tests" / "conformance" / name, tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    words = ["-p", "no:cacheprovider", "-o", f"pythonpath={ROOT / 'tests' / 'helpers'}"]
    ended = run("pytest", *words, "-W", "ignore", "-k", "toy and not wait_waits", "-q", tmp_path)
    assert "13 passed" in ended.stdout, ended.stdout + ended.stderr
