"""What is submitted to Slurm, as text, and what a site's file says; two hosts run it in tests/cluster."""

import json
import re
import sys
import types

import places
import pytest
from commands import call

import dlperf
from dlperf import submission
from dlperf.errors import UsageError
from dlperf.launchers import slurm

GRID = places.GOLDEN / "dlperf-grid.txt"
SYSTEMS = "pytorch,tensorflow,mxnet,paddle,oneflow,jax,ngc-pytorch,ngc-tensorflow1,ngc-mxnet"
SIZES = "1n1d,1n8d,2n16d,4n32d"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A folder without a site's file, on a machine that is no node."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SLURM_JOB_ID", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)


def test_dlperfs_grid_is_one_command(tmp_path, request):
    """Of eight systems over four sizes: the job, and the rows."""
    words = ["-m", "resnet50,bert", "-p", "fp32,amp", "--size", SIZES, "-f", SYSTEMS, "--threads", 8]
    ended = call("compare", *words, "--launcher", "slurm", "--dry-run", "-o", "/grid")
    text = (
        ended.stdout.partition("\n# /grid/runs/")[0].replace(sys.executable, "python").replace(str(tmp_path), "/here")
    )
    text = re.sub(r"(?m)^# In .*\n", "", text) + "\n"
    if request.config.getoption("--update-golden"):
        GRID.write_text(text)
    assert text == GRID.read_text()


SITE = """\
launcher = "slurm"
[slurm]
partition = "gpu"
exclusive = false
setup = ["module load cuda/12", "ulimit -l unlimited"]
"""


def planned(*words):
    return call("compare", "-f", "pytorch", "-m", "bert_tiny", "--dry-run", *words)


def test_a_sites_file_has_what_all_comparisons_need(tmp_path):
    (tmp_path / "dlperf.toml").write_text(SITE)
    printed = planned("--size", "1n1d,2n4d", "--launcher-arg", "partition=debug").stdout
    assert "#SBATCH --partition=debug\n" in printed  # what is given wins
    assert "--exclusive" not in printed
    assert "\nmodule load cuda/12\nulimit -l unlimited\ncd " in printed
    assert "# from dlperf.toml: partition='gpu' " in printed


def test_that_of_the_folder_is_above_that_of_the_user(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "dlperf.toml").write_text(SITE + 'account = "mine"\n')
    (tmp_path / "dlperf.toml").write_text('[slurm]\npartition = "big"\n')
    printed = planned().stdout
    assert "#SBATCH --partition=big\n" in printed
    assert "#SBATCH --account=mine\n" in printed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[slurm]\npartitoin = 'gpu'", "dlperf.toml: slurm.partitoin: 'gpu' is not usable; allowed: partition, "),
        ("slurm = 'gpu'", "dlperf.toml: slurm: 'gpu' is not usable; allowed: a table: [slurm]"),
        ("[slurm", "dlperf.toml: cannot be read as TOML"),
        ("modle = 'bert'", "dlperf.toml, line 1: modle: there is no such option. Did you mean 'model'?"),
    ],
)
def test_a_sites_file_that_is_wrong_is_named(tmp_path, text, says):
    (tmp_path / "dlperf.toml").write_text(text)
    ended = planned("--launcher", "slurm")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--size", "2n3d"], "--size: '2n3d' is not usable; allowed: 1n8d for 8 devices on one node"),
        (["--size", "1n1d", "--nnodes", 2], "--nnodes 2: --size is given too. Leave out one of them."),
        (["--allocation", "row", "--launcher", "local"], "--allocation row: local has no jobs."),
        (["--allocation", "rows", "--launcher", "slurm"], "Did you mean 'row'?"),
        (["--detach", "--launcher", "local"], "--detach: local has no jobs."),
        (["--only", "x", "--launcher", "slurm"], "--only: 'x' is not usable; allowed: bert_tiny-"),
        (["--max-node-hours", "0.01", "--launcher", "slurm"], "--max-node-hours 0.01: "),
        (["--max-node-hours", "many", "--launcher", "slurm"], "--max-node-hours: 'many' is not usable"),
    ],
)
def test_what_is_asked_wrong(words, says):
    ended = planned(*words)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_node_hours_limit_the_job():
    assert "#SBATCH --time=15\n" in planned("--launcher", "slurm", "--size", "4n8d", "--max-node-hours", 1).stdout


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Slurm's, each of which prints its words."""
    (tmp_path / "bin").mkdir()
    for name in (*slurm.LAUNCHER.programs, "srun"):
        (tmp_path / "bin" / name).write_text('#!/bin/sh\necho "$0" "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")


def test_python_leaves_jobs_to_the_command(tmp_path, programs):
    with pytest.raises(UsageError, match=r'slurm: .*followed by the command.*allocation="run"'):
        dlperf.compare(frameworks="fake", env="current", model="bert_tiny", launcher="slurm", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_failed_is_tried_again_in_the_allocation_of_salloc(tmp_path, programs, monkeypatch, capfd):
    (tmp_path / "out" / "allocation").mkdir(parents=True)
    (tmp_path / "out" / "allocation" / "job.sh").touch()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert call("compare", "--resume", tmp_path / "out", "--retry-failed").returncode == 0
    assert capfd.readouterr().out.endswith(f"sh {tmp_path}/out/allocation/job.sh --retry-failed\n")


def test_the_share_of_measured_steps_is_told_of_jobs_that_have_ended(tmp_path):
    (tmp_path / "allocation").mkdir()
    told = [("1", "began", 100), ("1", "began", 200), ("1", "ended", 300), ("2", "began", 400), ("2", "ended", 500)]
    lines = [json.dumps({"event": event, "job": job, "at": at}) for job, event, at in told]
    windows = [types.SimpleNamespace(seconds=20.0)] * 3
    records = [types.SimpleNamespace(windows=windows)] * 2
    (tmp_path / "allocation" / "jobs.jsonl").write_text("\n".join(lines))
    assert submission.used(tmp_path, records) == "Its jobs ran for 5 min 00 s, 40 % of it in measured steps."
    (tmp_path / "allocation" / "jobs.jsonl").write_text("\n".join(lines[:-1]))
    assert submission.used(tmp_path, records) == ""


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("job.sh", "--resume .*: sbatch, scontrol, squeue, scancel are not on PATH. Install them"),
        ("job.yaml", "--resume .*: kubectl is not on PATH. Install it"),
        ("jobs.jsonl", "allocation: what was submitted is gone. Start a new comparison."),
    ],
)
def test_what_is_needed_to_go_on_is_told(tmp_path, monkeypatch, file, says):
    (tmp_path / "out" / "allocation").mkdir(parents=True)
    (tmp_path / "out" / "allocation" / file).touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = call("compare", "--resume", tmp_path / "out")
    assert ended.returncode == 2
    assert re.search(says, ended.stderr), ended.stderr
