"""What stands in for GPUs: a program for nvidia-smi, a module for pynvml, a framework that sleeps on them."""

import json
import os
import shutil
import sys

from places import ROOT

#: what trains there: each step takes until the GPU was sampled again, however busy the machine is
SLEPT = """\
import time
from pathlib import Path
from dlperf.adapters.slept import resnet
from dlperf.adapters.slept.resnet import product, versions

def lines():
    return [line for file in Path().glob("gpu.rank*.jsonl") for line in file.read_text().splitlines(True)]

def wait(condition):
    while not condition():
        time.sleep(0.01)

class Trainer(resnet.Trainer):
    def step(self):
        before = len(lines())
        wait(lambda: "not_sampled" in lines()[0] or len(lines()) > before)
        return super().step()

def build(job, ranks):
    wait(lambda: job.trace_steps or "\\n" in "".join(lines()))
    return Trainer(job, ranks)
"""
FAKE_NVML = ROOT / "tests" / "helpers" / "fake_nvml"

#: name, MiB, driver, compute capability, UUID, MIG, MiB in use
H200 = "NVIDIA H200, 143771, 580.159.04, 9.0, GPU-11, Disabled, 4"
A100 = "NVIDIA A100-SXM4-80GB, 81920, 470.82.01, 8.0, GPU-22, Disabled"


def install(folder, monkeypatch, *rows, listed="", code=0):
    """Put it in front of PATH. rows: what it answers, a line for each GPU. listed: by -L. code: how it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("rows", "\n".join(rows)), ("listed", listed)):
        (folder / name).write_text(f"{text}\n" if text else "")
    script = f'case "$1" in -L) cat "{folder}/listed";; --query*) cat "{folder}/rows"; exit {code};; esac'
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def card(uuid="GPU-11", **changes):
    """Of the fake pynvml."""
    usual = {"name": "NVIDIA H200", "clocks": [1980], "watts": 500, "joules": True, "throttle": 1, "pids": []}
    return {"uuid": uuid, **usual, **changes}


def with_nvml(folder, monkeypatch, *cards, installed=True):
    """This interpreter, for runs and for the core, with a fake pynvml on its path, or without one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cards.json").write_text(json.dumps(cards))
    monkeypatch.setenv("DLPERF_TEST_CARDS", str(folder / "cards.json"))
    (folder / "pynvml.py").write_text("raise ModuleNotFoundError(name='pynvml')")
    path = FAKE_NVML if installed else folder
    (folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{path}" exec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def adapter(folder, monkeypatch, sampled=True):
    """The framework that sleeps, as one for GPUs: its name is `slept`. sampled: whether it waits for that."""
    made = shutil.copytree(ROOT / "adapters" / "fake", folder / "slept")
    text = (made / "adapter.toml").read_text()
    for_gpus = text.replace('status = "never"\nwhy = "a framework that sleeps needs no GPU"', 'status = "yes"')
    (made / "adapter.toml").write_text(for_gpus)
    plain = (made / "bert.py").read_text().replace("adapters.fake", "adapters.slept")
    (made / "bert.py").write_text(SLEPT if sampled else plain)
    monkeypatch.setenv("DLPERF_ADAPTERS", str(folder))
