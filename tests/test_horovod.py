"""Horovod built from source for each framework: the environment is made, and two processes all-reduce in it.

Building takes minutes, so these tests have a target of their own: `make test-horovod`.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dlperf import catalog, envs, store

pytestmark = [pytest.mark.framework, pytest.mark.horovod]

RANK = Path(__file__).parent / "horovod" / "all_reduce.py"
MODULES = {"mxnet": "mxnet", "pytorch": "torch", "tensorflow": "tensorflow"}
#: whose work is compared with that of an adapter in its Horovod environment
OTHER = {"mxnet": "pytorch", "pytorch": "mxnet", "tensorflow": "pytorch"}


@pytest.fixture(scope="module", params=MODULES)
def built(request):
    """Name of the adapter, and its environment."""
    return request.param, envs.ensure(catalog.adapters()[request.param], "cpu-horovod", progress=print)


def variables(environment, **more):
    """For a rank: the worker's variables, one thread, and none of an outer launcher."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    return {**kept, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **environment.variables, **more}


def results(text):
    """What the ranks printed, by rank; horovodrun puts "[0]<stdout>:" before it."""
    lines = [line[line.index("{") :] for line in text.splitlines() if '{"rank":' in line]
    return sorted((json.loads(line) for line in lines), key=lambda one: one["rank"])


EXPECTED = [{"rank": rank, "size": 2, "dtype": "float64", "mean": [1.5 + 1e-12] * 3} for rank in (0, 1)]


def test_two_processes_all_reduce_under_horovodrun(built):
    name, environment = built
    python = str(environment.python)
    command = [python, "-m", "horovod.runner.launch", "-np", "2", "--gloo", python, str(RANK), MODULES[name]]
    ended = subprocess.run(command, env=variables(environment), capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert results(ended.stdout) == EXPECTED


def test_two_processes_all_reduce_without_horovodrun(built):
    """As under mpirun or srun: whoever starts the ranks sets HOROVOD_*, and rank 0 serves the rendezvous."""
    name, environment = built
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = []
    for rank in ("0", "1"):
        place = {"RANK": rank, "SIZE": "2", "LOCAL_RANK": rank, "LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "1"}
        set_ = {"CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo", "HOSTNAME": "localhost", **place}
        env = variables(environment, **{f"HOROVOD_{key}": value for key, value in set_.items()})
        command = [environment.python, RANK, MODULES[name], port]
        ranks.append(subprocess.Popen(command, env=env, stdout=-1, stderr=subprocess.STDOUT, text=True))
    try:
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert results("\n".join(said)) == EXPECTED


def test_the_adapter_does_the_same_work_there(built, tmp_path):
    """Alone, since the code of the adapter must fit other versions, TensorFlow's; and as two ranks, with Horovod."""
    name, _ = built
    words = ["--frameworks", f"{OTHER[name]},{name}", "--model", "resnet_tiny,bert_tiny", "--device", "cpu"]
    words += ["--set", f"{name}.communication=horovod", "--nproc-per-node", "2", "-o", tmp_path / "out"]
    ended = subprocess.run(
        [sys.executable, "-m", "dlperf.verify", *map(str, words)], capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trajectories = [one["trajectory"] for one in certificates(tmp_path / "out")]
    assert {one["system"] for one in trajectories} == {OTHER[name], f"{name}+horovod"}
    assert {one["ranks"] for one in trajectories} == {1, 2}
    with_horovod = [one for one in trajectories if one["system"] == f"{name}+horovod" and one["ranks"] == 2]
    assert all(one["effective"]["communication"].startswith("horovod.") for one in with_horovod)


@pytest.mark.parametrize("launcher", ["local", "horovod"])
def test_rows_of_two_ranks_by_horovodrun_and_without(built, launcher, tmp_path):
    name, _ = built
    words = ["--frameworks", name, "--model", "resnet_tiny,bert_tiny", "-p", "fp32", "--device", "cpu", "-r", "1"]
    words += ["--set", "communication=horovod", "--nproc-per-node", "2", "--launcher", launcher, "--no-verify"]
    command = [sys.executable, "-m", "dlperf.compare", *words, "-o", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = list(store.open_folder(tmp_path / "out").records.values())
    assert [record.failure for record in found] == [None, None]
    assert all(record.effective["communication"].startswith("horovod.") for record in found)
    assert {record.versions["horovod"] for record in found} == {"0.28.1"}


def certificates(folder):
    stored = json.loads((folder / "certificates.json").read_text())["certificates"]
    return [one for each in stored.values() for one in each]
