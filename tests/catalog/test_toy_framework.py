"""A new framework is one folder: plan, run and report take it with several ranks, and no line elsewhere names it."""

import os
import subprocess
import sys

import pytest
from places import GOLDEN

from dlperf.comparison import store
from dlperf.shell import quote

SCRIPTS = GOLDEN / "toy"
TOML = """\
title = "Toy"
distribution = "numpy"
default = false
launchers = ["torchrun"]

[environment.cpu]
python = ["3.11"]

[[support]]
family = ["resnet"]
device = ["cpu"]
precision = ["fp32"]
input = ["synthetic"]
status = "yes"

[[support]]
family = ["resnet"]
device = ["cpu"]
precision = ["amp_bf16"]
input = ["synthetic"]
status = "never"
why = "a toy has one precision"

[[distributed]]
device = ["cpu"]
status = "yes"

[options.communication]
about = "what adds up over the ranks"
values = ["pipes", "horovod"]
launcher = { horovod = "horovod" }
"""
MODULE = '''\
"""A network of nothing but sleep."""

import time
from multiprocessing.connection import Client, Listener

import numpy

from dlperf import models
from dlperf.models.parameters import count, initial


def versions():
    return {"numpy": numpy.__version__}


def build(job, ranks):
    return Trainer(job, ranks)


def connect(ranks):
    """Rank 0 to all others, each other rank to rank 0."""
    place = (ranks.addresses[0], ranks.ports[0])
    if ranks.rank == 0:
        with Listener(place, backlog=ranks.world_size) as listener:
            return [listener.accept() for _ in range(ranks.world_size - 1)]
    while True:  # until rank 0 listens
        try:
            return [Client(place)]
        except ConnectionRefusedError:
            time.sleep(0.01)


class Trainer:
    input_seconds = None

    def __init__(self, job, ranks):
        self._job, self._rank, self._done_at = job, ranks.rank, time.perf_counter()
        self._listed = models.family(job.model).parameters(models.config(job.model))
        self._others = connect(ranks) if ranks.world_size > 1 else []
        self.parameter_count = count(self._listed)
        self.gradient_bytes = 4 * self.parameter_count
        told = ["compile", "threads", "optimizer", "loss_scale", "data", "layout", "label_smoothing", "communication"]
        self.effective = {"precision": job.precision, "compute_dtype": "float32", **dict.fromkeys(told, "none")}
        self.shapes = {}

    def step(self):
        self._done_at = max(self._done_at, time.perf_counter()) + 0.002
        return numpy.float32(1.0)

    def wait(self):
        time.sleep(max(0.0, self._done_at - time.perf_counter()))

    def read(self, loss):
        return float(loss)

    def all_reduce(self, count):
        return self._total

    def _total(self):
        if self._rank:
            self._others[0].send(1.0)
            return self._others[0].recv()
        total = 1.0 + sum(other.recv() for other in self._others)
        for other in self._others:
            other.send(total)
        return total

    def parameters(self):
        return ((one.name, initial(one, self._job.seed)) for one in self._listed)

    def moments(self):
        return {}

    def peak_memory(self):
        return None

    def close(self):
        for other in self._others:
            other.close()
'''


@pytest.fixture
def compare(tmp_path):
    folder = tmp_path / "adapters" / "toy"
    folder.mkdir(parents=True)
    (folder / "adapter.toml").write_text(TOML)
    (folder / "resnet.py").write_text(MODULE)
    environ = {**os.environ, "DLPERF_ADAPTERS": str(folder.parent), "DLPERF_CACHE": str(tmp_path / "cache")}
    words = ["-f", "toy", "--env", "current", "-m", "resnet_tiny", "--device", "cpu", "--no-verify", "--threads", "1"]
    command = [sys.executable, "-m", "dlperf.compare", *words, "-r", "1", "-o", str(tmp_path / "out")]

    def run(*more):
        return subprocess.run([*command, *more], env=environ, capture_output=True, text=True, timeout=600)

    return run


@pytest.mark.slow
def test_one_two_and_three_ranks_run_and_are_reported(compare, tmp_path):
    ended = compare("--nproc-per-node", "1,2,3", "-p", "fp32,amp")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    opened = store.open_folder(tmp_path / "out")
    assert {record.job.world_size: record.failure for record in opened.records.values()} == {1: None, 2: None, 3: None}
    assert [(skip.precision, skip.why) for skip in opened.plan.skips] == [("amp_bf16", "a toy has one precision")]
    report = (tmp_path / "out" / "report.md").read_text()
    assert all(text in report for text in ("Toy", "2 devices", "3 devices", "a toy has one precision")), report


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "words"), [
    ("torchrun", ()),
    ("horovod", ("--set", "communication=horovod")),
])  # fmt: skip
def test_launchers_that_come_with_a_framework_start_it(compare, tmp_path, request, launcher, words):
    """Neither is installed here, so only their script is looked at."""
    ended = compare("--nproc-per-node", "2", "--launcher", launcher, *words, "--dry-run")
    assert ended.returncode == 0, ended.stderr
    script = "# " + ended.stdout.partition("\n\n# ")[2].partition("\n\n# --dry-run=full")[0] + "\n"
    script = script.replace(str(tmp_path), "TMP").replace(quote(sys.executable), "python")
    path = SCRIPTS / f"{launcher}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(script)
    assert script == path.read_text()


def test_horovodrun_does_not_start_it_without_horovod(compare):
    ended = compare("--nproc-per-node", "2", "--launcher", "horovod", "--dry-run")
    assert "not have the launcher horovod; --set communication=horovod brings it" in ended.stderr
