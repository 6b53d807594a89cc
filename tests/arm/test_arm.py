"""Real workers on Arm: from our locks, in an arm64 Debian under qemu, and their losses beside this machine's."""

import json
import os
import subprocess

import pytest

from dlperf.catalog import reader
from dlperf.envs import kinds
from dlperf.runs import bundle, events

pytestmark = [pytest.mark.arm, pytest.mark.framework]

ADAPTERS = reader.adapters()
#: PyTorch's +cpu wheel for Arm is on PyTorch's own index alone, and was not tried.
NAMES = ("jax", "tensorflow")
MODELS = {"bert": "bert_tiny", "resnet": "resnet_tiny"}
#: Between losses, relative. float32: as in the conformance suite. bfloat16 has 8 bits: each side rounds by up to 2**-8.
BARS = {"fp32": 1e-4, "amp_bf16": 2 * 2**-8}
#: seconds for a worker; alone on two cores qemu takes one to three minutes
PATIENCE = 3600


@pytest.mark.parametrize("precision", BARS)
@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_model_trains_as_on_this_machine(debian, tmp_path, name, family, precision):
    adapter = ADAPTERS[name]
    bundle.copy_code(tmp_path / "code", [adapter])
    packages = debian.packages(name, adapter.environments["cpu"].lock)
    arm = Worker(debian.python, [tmp_path / "code", packages]).losses(tmp_path / "arm", adapter, family, precision)
    environment = kinds.ensure(adapter, "cpu", progress=print)
    here = Worker([environment.python], [tmp_path / "code"]).losses(tmp_path / "here", adapter, family, precision)
    print(f"\n{name} {MODELS[family]} {precision}: losses {arm} on Arm, {here} here")
    assert arm == pytest.approx(here, rel=BARS[precision])


class Worker:
    """A Python and its path, where dlperf's worker runs."""

    def __init__(self, python, path):
        self.command = [*python, "-m", "dlperf.adapters.worker", "job.json", "."]
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONNOUSERSITE": "1"}

    def losses(self, folder, adapter, family, precision):
        """Of three steps, without dropout, whose bits a processor may draw in its own way."""
        folder.mkdir()
        options = {name: option.default("cpu") for name, option in adapter.options_of(family).items()}
        steps = {"warmup_steps": 1, "windows": 2, "steps_per_window": 1}
        job = {"model": MODELS[family], "device": "cpu", "precision": precision, "batch_size": 4, "dropout": 0.0}
        (folder / "job.json").write_text(
            json.dumps({"adapter": adapter.name, "job": {**job, **steps, "options": options}})
        )
        with open(folder / "log", "wb") as log:
            subprocess.run(self.command, cwd=folder, env=self.environ, stdout=log, stderr=log, timeout=PATIENCE)
        found = events.read_job(folder, 1)
        assert found.failure is None, (found.failure, (folder / "log").read_text(errors="replace")[-3000:])
        return [found.warm["loss"], *(window.loss for window in found.windows)]
