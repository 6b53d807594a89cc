"""The worker side on the oldest Python that it promises, with numpy alone."""

import json
import os
import subprocess
import sys

import pytest

from dlperf.adapters import gpu, worker
from dlperf.adapters.api import Job
from dlperf.catalog import reader
from dlperf.envs import pythons
from dlperf.errors import RunError
from dlperf.runs import bundle, events, messages


@pytest.fixture(scope="module")
def old_python(tmp_path_factory):
    """A Python 3.7 with the fake framework's lock (numpy)."""
    try:
        python = pythons.find(["3.7"]).path
    except RunError as error:
        pytest.skip(f"the worker side was not tested on Python 3.7: {error}")
    folder = tmp_path_factory.mktemp("python3.7")
    lock = reader.adapters()["fake"].environments["cpu"].lock
    subprocess.run([python, "-m", "venv", folder], check=True)
    install = ["-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", lock]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
    subprocess.run([folder / "bin" / "python", *install], check=True)
    return folder / "bin" / "python"


def test_warm_up_and_windows_take_the_seconds_that_are_asked_for(tmp_path):
    """With steps of 10 ms, 20 + 2 x 20 of them would be over after 0.6 s."""
    options = {"clock": "virtual", "step_seconds": "0.01"}
    job = {"model": "bert_tiny", "device": "cpu", "precision": "fp32", "batch_size": 2, "options": options}
    job.update(warmup_steps=20, windows=2, steps_per_window=20, warmup_seconds=5.0, window_seconds=2.0)
    (tmp_path / "job.json").write_text(json.dumps({"adapter": "fake", "job": job}))
    bundle.copy_code(tmp_path / "code", [reader.adapters()["fake"]])
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
    command = [sys.executable, "-m", "dlperf.adapters.worker", "job.json", "."]
    assert subprocess.run(command, env=environ, cwd=tmp_path, timeout=300).returncode == 0
    stream = events.read(tmp_path / "events.rank0.jsonl")
    assert stream.warm["steps"] * 0.01 == pytest.approx(5.6, abs=0.6)
    assert stream.warm["steps_per_window"] == pytest.approx(200, abs=1)
    assert [window.steps for window in stream.windows] == [stream.warm["steps_per_window"]] * 2
    assert [window.seconds for window in stream.windows] == pytest.approx([2.0, 2.0], abs=0.02)


@pytest.mark.framework
def test_the_worker_runs_on_python_3_7_with_numpy_alone(old_python, tmp_path):
    bundle.copy_code(tmp_path / "code", [reader.adapters()["fake"]])
    for model in ("bert_tiny", "resnet_tiny"):
        job = {"model": model, "device": "cpu", "precision": "fp32", "batch_size": 2, "options": {}}
        (tmp_path / "job.json").write_text(json.dumps({"adapter": "fake", "job": job}))
        command = [old_python, "-W", "error", "-m", "dlperf.adapters.worker", tmp_path / "job.json", tmp_path]
        environ = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
        ended = subprocess.run(command, env=environ, cwd=tmp_path, timeout=300)
        stream = events.read(tmp_path / "events.rank0.jsonl")
        assert (ended.returncode, stream.failure) == (0, None)
        assert stream.start["machine"]["python"].startswith("3.7.")


@pytest.mark.framework
def test_every_adapter_is_valid_syntax_on_python_3_7(old_python, tmp_path):
    """Frameworks bring newer Pythons, but upstream's older ones still run 3.7."""
    bundle.copy_code(tmp_path / "code", reader.adapters().values())
    ended = subprocess.run([old_python, "-m", "compileall", "-q", tmp_path / "code"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(("precision", "override"), [("fp32", "0"), ("amp_fp16", "0"), ("tf32", None)])
def test_tf32_is_settled_before_a_framework_is_imported(monkeypatch, precision, override):
    """Whatever the user's own shell says."""
    monkeypatch.setenv(gpu.TF32_OVERRIDE, "1" if override else "0")
    monkeypatch.setattr(gpu, "look", lambda: gpu.Look(()))
    worker._kernels({}, Job("bert_tiny", "cuda", precision, 2))
    assert os.environ.get(gpu.TF32_OVERRIDE) == override
    assert gpu.tf32_allowed() == (override is None)


class OfGpu:
    """What a family's module offers, where each call is over at once."""

    def __init__(self, copy):
        self.made, self.copy = [], copy

    def product(self, job, size):
        self.made.append(size)
        return lambda: None


def told(module, tmp_path):
    with open(tmp_path / "events", "w+", encoding="utf-8") as file:
        worker._product(module, Job("bert_tiny", "cuda", "fp32", 2), worker.Events(file))
        file.seek(0)
        return [json.loads(line) for line in file]


def test_on_a_gpu_a_large_product_and_a_copy_are_timed(tmp_path):
    copied = []
    module = OfGpu(lambda job, count: copied.append(count) or (lambda: None))
    (event,) = told(module, tmp_path)
    assert module.made[-1] == event["large_size"] == worker.LARGEST_ON_GPU
    assert event["copy_bytes"] == 8 * copied[0], "four of each value are read, and as many written"
    assert {"large_seconds", "copy_seconds"} <= event.keys()
    assert messages.event(json.dumps(event).encode())


def test_a_gpu_without_room_for_a_product_fails_no_run(tmp_path, capsys):
    def none_left(job, count):
        raise MemoryError("out of memory")

    assert told(OfGpu(none_left), tmp_path) == []
    assert "out of memory" in capsys.readouterr().err
