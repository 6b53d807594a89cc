"""Scripts are text, so they have golden files."""

import subprocess
from pathlib import Path

import pytest

from dlperf.launchers import local

GOLDEN = Path(__file__).parent / "golden" / "launchers"


def launch(**changes):
    fields = {
        "title": "bert_base-fp32-oneflow-b4, repeat 1 of 3",
        "python": Path("/cache/envs/oneflow-cpu-0123/bin/python"),
        "code": Path("/out/code"),
        "folder": Path("/out/runs/bert_base-fp32-oneflow-b4/0"),
        "device": "cpu",
        "threads": 2,
        "variables": {"LD_LIBRARY_PATH": "/cache/envs/oneflow-cpu-0123/nvidia/cudnn/lib"},
    }
    return local.Launch(**{**fields, **changes})


def test_the_local_script(request):
    path = GOLDEN / "local.sh"
    if request.config.getoption("--update-golden"):
        path.write_text(local.script(launch()))
    assert local.script(launch()) == path.read_text()


@pytest.mark.parametrize("name", ["with space", "it's", "$(touch hacked)", "a;b", 'quote"', "-dash"])
def test_folders_with_odd_names_reach_the_worker_as_they_are(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "python").write_text('#!/bin/sh\necho "$PWD|$PYTHONPATH|$*" > result\n')
    (tmp_path / "python").chmod(0o755)
    made = launch(python=tmp_path / "python", code=folder / "code", folder=folder)
    (folder / "launch.sh").write_text(local.script(made))
    subprocess.run(["sh", str(folder / "launch.sh")], check=True)
    assert (folder / "result").read_text() == f"{folder}|{folder}/code|-m dlperf.adapters.worker job.json .\n"
    assert not (folder / "hacked").exists()
