"""Horovod built from source for each framework: the environment is made, and two ranks train in it.

Building takes minutes, so these tests have a target of their own: `make test-horovod`.
"""

import json

import pytest
from commands import records, run

from dlperf.catalog import reader
from dlperf.envs import kinds

pytestmark = [pytest.mark.framework, pytest.mark.horovod]

#: whose work is compared with that of an adapter in its Horovod environment
OTHER = {"mxnet": "pytorch", "pytorch": "mxnet", "tensorflow": "pytorch"}


@pytest.fixture(scope="module", params=OTHER)
def built(request):
    """Name of the adapter, and its environment."""
    return request.param, kinds.ensure(reader.adapters()[request.param], "cpu-horovod", progress=print)


def test_the_adapter_does_the_same_work_there(built, tmp_path):
    """Alone, since the code of the adapter must fit other versions, TensorFlow's; and as two ranks, with Horovod."""
    name, _ = built
    words = ["--frameworks", f"{OTHER[name]},{name}", "--model", "resnet_tiny,bert_tiny", "--device", "cpu"]
    words += ["--set", f"{name}.communication=horovod", "--nproc-per-node", "2", "-o", tmp_path / "out"]
    ended = run("verify", *words, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trajectories = [one["trajectory"] for one in certificates(tmp_path / "out")]
    assert {one["system"] for one in trajectories} == {OTHER[name], f"{name}+horovod"}
    assert {one["ranks"] for one in trajectories} == {1, 2}
    with_horovod = [one for one in trajectories if one["system"] == f"{name}+horovod" and one["ranks"] == 2]
    assert all(one["effective"]["communication"].startswith("horovod.") for one in with_horovod)


@pytest.mark.parametrize("model", ["resnet_tiny", pytest.param("resnet50", marks=pytest.mark.long)])
def test_deep_gradient_compression_in_mxnet_is_pytorchs(model, tmp_path):
    kinds.ensure(reader.adapters()["mxnet"], "cpu-horovod", progress=print)
    words = ["--frameworks", "pytorch,mxnet", "--model", model, "--device", "cpu", "-p", "fp64"]
    words += ["--gradient-compression", "dgc", "--nproc-per-node", "2"]
    ended = run("verify", *words, "-o", tmp_path / "out", timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = [one for one in certificates(tmp_path / "out") if one["trajectory"]["ranks"] == 2]
    assert {one["trajectory"]["system"] for one in found} == {"pytorch+dgc", "mxnet+dgc"}
    assert {one["verdict"] for one in found} == {"same"}


@pytest.mark.parametrize("launcher", ["local", "horovod"])
def test_rows_of_two_ranks_by_horovodrun_and_without(built, launcher, tmp_path):
    name, _ = built
    words = ["--frameworks", name, "--model", "resnet_tiny,bert_tiny", "-p", "fp32", "--device", "cpu", "-r", "1"]
    words += ["--set", "communication=horovod", "--nproc-per-node", "2", "--launcher", launcher, "--no-verify"]
    ended = run("compare", *words, "-o", tmp_path / "out")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = records(tmp_path / "out")
    assert [record.failure for record in found] == [None, None]
    assert all(record.effective["communication"].startswith("horovod.") for record in found)
    assert {record.versions["horovod"] for record in found} == {"0.28.1"}


def certificates(folder):
    stored = json.loads((folder / "certificates.json").read_text())["certificates"]
    return [one for each in stored.values() for one in each]
