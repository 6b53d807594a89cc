"""Scripts are text, so they have golden files."""

import subprocess
from pathlib import Path

import pytest

from dlperf.launchers import local
from dlperf.shell import quote

GOLDEN = Path(__file__).parent / "golden" / "launchers"


def launch(**changes):
    fields = {
        "title": "bert_base-fp32-oneflow-b4, repeat 1 of 3",
        "python": Path("/cache/envs/oneflow-cpu-0123/bin/python"),
        "code": Path("../../../code"),
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
    (folder / "launch.sh").write_text(local.script(launch(python=tmp_path / "python", code=Path("code"))))
    subprocess.run(["sh", str(folder / "launch.sh")], check=True)
    assert (folder / "result").read_text() == f"{folder}|{folder}/code|-m dlperf.adapters.worker job.json .\n"
    assert not (folder / "hacked").exists()


def test_scripts_name_nobody_s_home(monkeypatch, tmp_path):
    home = tmp_path / "my home"
    monkeypatch.setenv("HOME", str(home))
    words = [home / "a b" / "python", f"{home}/x:{home}/y", "plain", "", home]
    line = " ".join(map(quote, words))
    assert line == f"\"$HOME\"/'a b/python' \"$HOME\"/x:\"$HOME\"/y plain '' '{home}'"
    seen = subprocess.run(["sh", "-c", f"printf '%s|' {line}"], capture_output=True, text=True, check=True).stdout
    assert seen == "|".join(map(str, words)) + "|"
