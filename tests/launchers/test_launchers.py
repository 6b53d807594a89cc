"""Scripts are text, so they have golden files; what engines print of a rank that died is read."""

import os
import subprocess
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest import mock

import places
import pytest

from dlperf import cache, launchers
from dlperf.launchers import Launch, Launcher
from dlperf.runs import failures
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.shell import quote

GOLDEN = places.GOLDEN / "launchers"


def launch(**changes):
    fields = {
        "title": "bert_base-fp32-oneflow-b4, repeat 1 of 3",
        "name": "bert_base-fp32-oneflow-b4-r1",
        "python": Path("/cache/envs/oneflow-cpu-0123/bin/python"),
        "code": Path("../../../code"),
        "device": "cpu",
        "threads": 2,
        "variables": {"LD_LIBRARY_PATH": "/cache/envs/oneflow-cpu-0123/nvidia/cudnn/lib"},
    }
    return Launch(**{**fields, **changes})


def script(name, **changes):
    return launchers.find(name).script(launch(**changes))


TWO = {"nnodes": 2, "nproc_per_node": 2}
HOSTS = {**TWO, "hosts": ("10.77.0.1", "10.77.0.2")}
SCRIPTS = {
    "local": ("local", {}),
    "local-2": ("local", {"nproc_per_node": 2}),
    "emulated-2n2d": ("emulated", {**TWO, "servers": 2, "bandwidth": 0.1, "latency": 2.5}),
    "torchrun-2": ("torchrun", {"nproc_per_node": 2}),
    "torchrun-2n2d": ("torchrun", {**HOSTS, "arguments": {"rsh": "/bed/rsh"}}),
    "mpi-2": ("mpi", {"nproc_per_node": 2}),
    "mpi-2n2d": ("mpi", {**HOSTS, "arguments": {"rsh": "/bed/rsh", "network": "10.77.0.0/24", "extra": "-x A=1"}}),
    "horovod-2n2d": ("horovod", {**HOSTS, "arguments": {"network": "eth0", "identity": "/bed/id"}}),
    "slurm-2n2d": ("slurm", {**TWO, "arguments": {"partition": "gpu", "extra": "--comment 'two words'"}}),
    "mpi-2n2d+2s": ("mpi", {**HOSTS, "servers": 2}),
    "slurm-2n2d+2s": ("slurm", {**TWO, "servers": 2}),
    "slurm-step+2s": ("slurm", {**TWO, "servers": 2, "step": True}),
    "kubernetes-2n2d+2s": ("kubernetes", {**TWO, "servers": 2, "step": True}),
    "slurm-step": ("slurm", {**TWO, "device": "cuda", "step": True}),
    "slurm-pyxis": ("slurm", {**TWO, "arguments": {"container-image": "nvcr.io#nvidia/pytorch:24.01-py3"}}),
    "kubernetes-2": ("kubernetes", {"nproc_per_node": 2, "step": True}),
    "kubernetes-2n2d": ("kubernetes", {**TWO, "device": "cuda", "step": True}),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script(name, request):
    launcher, changes = SCRIPTS[name]
    path = GOLDEN / f"{name}.sh"
    if request.config.getoption("--update-golden"):
        path.write_text(script(launcher, **changes))
    assert script(launcher, **changes) == path.read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_is_valid_for_a_posix_shell(name):
    launcher, changes = SCRIPTS[name]
    ended = subprocess.run(["sh", "-n"], input=script(launcher, **changes), text=True, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["with space", "it's", "$(touch hacked)", "a;b", 'quote"', "-dash"])
def test_folders_with_odd_names_reach_the_worker_as_they_are(tmp_path, name, ranks):
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "python").write_text(
        '#!/bin/sh\necho "$PWD|$PYTHONPATH|$*" >> result\n'
        '[ "$2" != dlperf.adapters.spawn ] || { shift 3; exec "$@"; }\n'
    )
    (tmp_path / "python").chmod(0o755)
    text = script("local", python=tmp_path / "python", code=Path("code"), nproc_per_node=ranks)
    (folder / "launch.sh").write_text(text)
    subprocess.run(["sh", str(folder / "launch.sh")], check=True)
    lines = (folder / "result").read_text().splitlines()
    assert lines[-1] == f"{folder}|{folder}/code|-m dlperf.adapters.worker job.json ."
    assert len(lines) == ranks
    assert not (folder / "hacked").exists()


def test_scripts_name_nobody_s_home(monkeypatch, tmp_path):
    home = tmp_path / "my home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: types.SimpleNamespace(pw_dir=str(home)))
    words = [home / "a b" / "python", f"{home}/x:{home}/y", "plain", "", home]
    line = " ".join(map(quote, words))
    assert line == f"\"$HOME\"/'a b/python' \"$HOME\"/x:\"$HOME\"/y plain '' '{home}'"
    seen = subprocess.run(["sh", "-c", f"printf '%s|' {line}"], capture_output=True, text=True, check=True).stdout
    assert seen == "|".join(map(str, words)) + "|"


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_scripts_name_no_home_where_the_shell_has_none(monkeypatch, tmp_path, home):
    monkeypatch.setattr("pwd.getpwuid", lambda uid: types.SimpleNamespace(pw_dir=str(tmp_path)))
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    for name in ("DLPERF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert quote(tmp_path / "python") == str(tmp_path / "python")
    assert cache.folder() == tmp_path / ".cache" / "dlperf"


def test_a_user_without_a_home_or_a_name_has_a_cache(monkeypatch):
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=KeyError))
    for name in ("HOME", "DLPERF_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == Path(f"/tmp/dlperf-{os.getuid()}/.cache/dlperf")
    assert quote("/a/python") == "/a/python"


def test_scripts_name_a_home_that_other_machines_would_not_find(monkeypatch, tmp_path):
    """sshd sets HOME to what the system has."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert quote(tmp_path / "python") == str(tmp_path / "python")


# What engines print, as they printed it here

PRINTED = {
    "local": ("rank 1 on vm was ended by signal 9 (SIGKILL)\n", (1, "vm", "ended by signal 9 (SIGKILL)")),
    "mpi": (
        "--------\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, "
        "the job has been aborted.\n--------\nmpirun noticed that process rank 1 with PID 4242 on node node2 exited on "
        "signal 9 (Killed).\n--------\n",
        (1, "node2", "exited on signal 9 (Killed)"),
    ),
    "slurm": (
        "srun: error: node2: task 1: Killed\nsrun: launch/slurm: _step_signal: Terminating StepId=12.0\n"
        "srun: error: node1: task 0: Terminated\n",
        (1, "node2", "Killed"),
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_rank_that_a_signal_ended_is_found_in_what_the_engine_printed(name):
    text, expected = PRINTED[name]
    assert launchers.find(name).first_ended("noise\n" + text) == (*expected, "rank")


def test_a_rank_that_ended_by_itself_is_not_taken_for_killed():
    assert launchers.find("local").first_ended("rank 1 on vm ended with exit code 1\n") is None
    assert launchers.find("slurm").first_ended("srun: error: node2: task 1: Exited with exit code 1\n") is None


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        ("srun: error: node2: task 1: Exited with exit code 1\nsrun: error: node1: task 0: Terminated\n", "crash"),
        ("srun: error: node1: task 0: Killed\n", "killed"),
    ],
)
def test_a_rank_that_slurm_ends_because_another_failed_is_not_the_one_that_is_named(printed, kind, tmp_path):
    (tmp_path / "stderr.log").write_text(printed)
    failed = {"kind": "crash", "message": "RuntimeError: it fell", "traceback": "", "time": 1.0}
    stream = Stream(ranks=(Stream(built={"seconds": 1.0}), Stream(failed=failed)))
    found = failures.failure(Exit(1, False, 60.0, False), stream, tmp_path, launchers.find("slurm"))
    assert found.kind == kind


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("srun: error: Node failure on node2\nsrun: error: node1: task 0: Terminated\n", "Node failure on node2"),
        (
            "srun: error: Task launch for StepId=1.4 failed on node node2: Communication connection failure\n"
            "srun: error: node1: task 0: Killed\n",
            "Task launch for StepId=1.4 failed on node node2: Communication connection failure",
        ),
    ],
)
def test_a_node_that_slurm_lost_is_named_before_the_ranks_that_it_ended_for_it(printed, says, tmp_path):
    (tmp_path / "stderr.log").write_text(printed)
    stream = Stream(ranks=(Stream(built={"seconds": 1.0}), Stream()))
    found = failures.failure(Exit(1, False, 60.0, False), stream, tmp_path, launchers.find("slurm"))
    assert (found.kind, found.message.partition("; ")[0]) == ("launcher", f"the launcher lost a node: {says}")


@pytest.mark.parametrize("state", ["CANCELLED (None)", "PREEMPTED (None)", "TIMEOUT (TimeLimit)"])
def test_a_job_that_slurm_took_away_is_why_its_ranks_lost_each_other(state, tmp_path):
    said = f"Slurm job 7 is {state}"
    (tmp_path / "stderr.log").write_text(f"srun: error: node2: task 1: Killed\n{said}\n")
    failed = {"kind": "crash", "message": "ConnectionError: another rank hung up", "traceback": "", "time": 1.0}
    stream = Stream(ranks=(Stream(failed=failed), Stream()))
    found = failures.failure(Exit(1, False, 60.0, False), stream, tmp_path, launchers.find("slurm"))
    assert (found.kind, found.message.partition("; ")[0]) == ("launcher", f"the launcher was stopped: {said}")


class Own(Launcher):
    """A launcher of somebody else's."""

    name = "own"
    grace = 60.0

    def script(self, launch):
        return "#!/bin/sh\n"


def test_an_entry_point_adds_a_launcher(monkeypatch):
    entry = EntryPoint("own", f"{__name__}:OWN", launchers.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Own())
    monkeypatch.setattr(launchers, "entry_points", lambda group, name=None: [entry])
    assert "own" in launchers.names()
    assert launchers.find("own").script(launch()) == "#!/bin/sh\n"
