"""Runs in containers: scripts as golden files, what the engines' errors mean, and the whole path with a stand-in."""

import json
import os
import signal
import subprocess
from pathlib import Path

import places
import pytest
import standin
from commands import FAKE, call, records

from dlperf import launchers
from dlperf.catalog import reader
from dlperf.docker import engine
from dlperf.errors import RunError
from dlperf.launchers import Launch
from dlperf.launchers.containers import Container
from dlperf.runs import failures
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit

GOLDEN = places.GOLDEN / "containers"
OURS = "dlperf/mxnet:cpu-0123456789ab"
NGC = "nvcr.io/nvidia/pytorch:25.12-py3"
ON = {"nnodes": 2, "nproc_per_node": 2, "hosts": ("10.77.0.1", "10.77.0.2")}
CUDA = {"device": "cuda"}


def script(launcher, engine="docker", image=OURS, data="", arguments=None, **changes):
    device = changes.pop("device", "cpu")
    fields = {"title": "bert_base-fp32-mxnet-b4, repeat 1 of 3", "name": "bert_base-fp32-mxnet-b4-r1", "threads": 2}
    fields |= {"python": Path("python"), "code": Path("../../../code"), "variables": {}, "device": device, **changes}
    launch = Launch(**fields, container=Container(engine, image, device, data, arguments or {}))
    return launchers.find(launcher).script(launch)


SCRIPTS = {
    "docker-local": ("local", {}),
    "docker-local-2": ("local", {"nproc_per_node": 2, "data": "/data/rows of text"}),
    "docker-local-cuda": ("local", {**CUDA, "image": NGC}),
    "docker-torchrun-2": ("torchrun", {"nproc_per_node": 2, **CUDA, "arguments": {"gpus": "0+1", "shm-size": "64g"}}),
    "docker-torchrun-2n2d": ("torchrun", {**ON, **CUDA, "image": NGC, "arguments": {"infiniband": "on"}}),
    "docker-mpi-2n2d": ("mpi", {**ON, "arguments": {"network": "bench", "extra": "--env NCCL_DEBUG=INFO"}}),
    "docker-slurm-2n2d": ("slurm", {"nnodes": 2, "nproc_per_node": 2}),
    "podman-local-cuda": ("local", {"engine": "podman", **CUDA, "arguments": {"gpus": "0+1"}}),
    "podman-mpi-2": ("mpi", {"engine": "podman", "nproc_per_node": 2, "arguments": {"infiniband": "on"}}),
    "apptainer-local-2": ("local", {"engine": "apptainer", "image": "/images/mxnet.sif", "nproc_per_node": 2}),
    "apptainer-mpi-cuda": (
        "mpi",
        {"engine": "apptainer", "image": "/images/a b.sif", **ON, **CUDA, "data": "/data", "arguments": {"gpus": "1"}},
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script(name, request):
    launcher, changes = SCRIPTS[name]
    text = script(launcher, **changes)
    path = GOLDEN / f"{name}.sh"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text()
    checked = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


# --- what engines print -----------------------------------------------------------------------------------------------

SAID = {
    "permission denied while trying to connect to the Docker daemon socket at unix:///x/docker.sock": "group docker",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?": "Start it",
    "failed to connect to the docker API at unix:///x/docker.sock; check if the path is correct": "Start it",
    "Error response from daemon: pull access denied for dlperf/x, repository does not exist": "docker login nvcr.io",
    "Error response from daemon: unauthorized: authentication required": "docker login nvcr.io",
    'Get "https://nvcr.io/v2/": dial tcp: lookup nvcr.io on 127.0.0.53:53: no such host': "docker save and docker load",
    "Error response from daemon: manifest for nvcr.io/nvidia/pytorch:1 not found: manifest unknown": "Look up its tags",
    "write /var/lib/docker/tmp/x: no space left on device": "docker system df",
    "ERROR: BuildKit is enabled but the buildx component is missing or broken.": "docker-buildx",
    "W: Failed to fetch http://debian.example/x  Temporary failure resolving 'debian.example'": "lacks a library",
    "#7 0.210 /bin/sh: 1: python3.11: not found": "has no python3.11. Name one with --base-image",
    "The virtual environment was not created successfully because ensurepip is not available": "venv or ensurepip",
    'could not select device driver "" with capabilities: [[gpu]]': "NVIDIA Container Toolkit",
    "docker: invalid mount config for type bind: bind source path does not exist: /out.": "/out",
    "docker: Error response from daemon: No such image: nvcr.io/nvidia/pytorch:25.12-py3.": "Pull or build it there",
    "sh: 1: exec: python: not found": f"{NGC} has no python on its PATH",
    "something that nobody foresaw": f"docker failed with {NGC}: something that nobody foresaw",
}


@pytest.mark.parametrize("text", SAID)
def test_an_engine_s_error_is_one_sentence_with_the_next_step(text):
    error = engine.explained("docker", NGC, f"noise\n{text}\n")
    assert error.kind == "environment"
    assert SAID[text] in str(error)
    assert text in error.lines


def test_an_engine_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    for name in ("docker", "podman", "apptainer"):
        with pytest.raises(RunError, match=f"{name} is not on PATH. Install it"):
            engine.call(name, "version")


MPI = """\
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[23420,1],1]
  Exit code:    137
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("launcher", "text", "host"),
    [("mpi", MPI, ""), ("slurm", "srun: error: node2: task 1: Exited with exit code 137\n", "node2")],
)
def test_a_killed_container_of_a_rank_is_a_killed_rank(launcher, text, host):
    found = launchers.find(launcher).first_ended(text)
    assert found == (1, host, "its container was ended by signal 9 (SIGKILL)", "rank")
    assert launchers.find(launcher).first_ended(text.replace("137", "1")) is None


@pytest.mark.parametrize(
    ("code", "memory", "kind"),
    [(137, False, "killed"), (137, True, "out_of_memory"), (139, False, "killed"), (1, False, "crash")],
)
def test_the_exit_code_of_a_container_tells_how_its_rank_ended(tmp_path, code, memory, kind):
    ended = Exit(code, False, 60, memory, "docker")
    found = failures.failure(ended, Stream(start={"pid": 1}), tmp_path)
    assert found.kind == kind
    assert Exit(code, False, 60, memory).signal == 0, "outside of a container it is only a code"


# --- the whole path, with a stand-in ----------------------------------------------------------------------------------


@pytest.fixture
def bin(tmp_path, monkeypatch):
    """A folder at the front of PATH with a stand-in for docker and podman."""
    folder = tmp_path / "bin"
    for name in ("docker", "podman"):
        standin.install(folder, name)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def compare(folder, *words, **environ):
    return call("compare", *FAKE, "-r", 1, "-o", folder / "out", *words, **environ)


def calls(bin):
    return [json.loads(line) for line in (bin / "calls").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["docker", pytest.param("podman", marks=pytest.mark.slow)])
def test_a_comparison_in_containers_has_image_and_digest_in_its_records_and_report(tmp_path, bin, kind):
    ended = compare(tmp_path, "--env", kind, "--image", standin.IMAGE, "--nproc-per-node", "1,2")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    for record in records(tmp_path / "out"):
        assert record.failure is None
        assert record.environment["kind"] == kind
        assert record.environment["image"] == standin.IMAGE
        assert record.environment["digest"] == standin.DIGEST
        assert f"{kind} run" in record.command
    report = (tmp_path / "out" / "report.md").read_text()
    assert standin.IMAGE in report
    assert standin.DIGEST[:12] in report
    runs = [words for words in calls(bin) if words[1] == "run" and "--workdir" in words]
    assert len(runs) == 2, "two ranks of one node are in one container"
    root = tmp_path / "out"
    assert all(f"type=bind,src={root},dst={root}" in words for words in runs)
    assert all("--user" in words and f"{os.getuid()}:{os.getgid()}" in words for words in runs)


@pytest.mark.slow
def test_ranks_that_an_engine_starts_have_a_container_each(tmp_path, bin):
    mpirun = bin / "mpirun"
    mpirun.write_text(
        f"{standin.START}import os, subprocess, sys\n"
        "words, names = sys.argv[1:], ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE')\n"
        "places = [dict(zip(names, map(str, (rank, 2, rank, 2)))) for rank in (0, 1)]\n"
        "ranks = [subprocess.Popen(words[words.index('sh'):], env={**os.environ, **{'OMPI_COMM_WORLD_' + name: value "
        "for name, value in place.items()}}) for place in places]\n"
        "sys.exit(max(rank.wait() for rank in ranks))\n"
    )
    mpirun.chmod(0o755)
    words = ["--env", "docker", "--image", standin.IMAGE, "--nproc-per-node", 2, "--launcher", "mpi"]
    ended = compare(tmp_path, *words)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    runs = [words for words in calls(bin) if words[1] == "run" and "--workdir" in words]
    assert len(runs) == 2
    for words in runs:
        assert words[words.index("--network") + 1] == "host"
        assert words[words.index("--ipc") + 1] == "host"
        assert "OMPI_COMM_WORLD_RANK" in words


@pytest.mark.slow
def test_the_launch_script_repeats_a_run_in_its_container(tmp_path, bin):
    compare(tmp_path, "--env", "docker", "--image", standin.IMAGE)
    (path,) = tmp_path.glob("out/runs/*/0/launch.sh")
    (path.parent / "events.rank0.jsonl").unlink()
    assert subprocess.run(["sh", str(path)], timeout=300).returncode == 0
    assert (path.parent / "events.rank0.jsonl").stat().st_size


@pytest.mark.slow
def test_what_a_run_leaves_is_removed_by_its_folder(tmp_path, bin):
    ended = compare(tmp_path, "--env", "docker", "--image", standin.IMAGE)
    assert ended.returncode == 0
    asked = [words for words in calls(bin) if words[1] == "ps"]
    assert any(word.startswith(f"label=dlperf.run={tmp_path}/out/runs/") for words in asked for word in words)


def test_an_image_that_is_not_here_is_pulled_and_ours_is_not(tmp_path, bin):
    ended = compare(tmp_path, "--env", "docker", "--image", "fake=registry.example/fake:2")
    assert ["docker", "pull", "--quiet", "registry.example/fake:2"] in calls(bin)
    assert "pulling registry.example/fake:2" in ended.stdout
    (bin / "pulled").unlink()
    ended = compare(tmp_path / "ours", "--env", "docker")
    assert ended.returncode == 1
    assert "is not built: python -m dlperf.images build fake --device cpu" in ended.stdout
    assert [words for words in calls(bin) if words[1] == "pull"] == [
        ["docker", "pull", "--quiet", "registry.example/fake:2"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "verb", "found"),
    [
        ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "image", "Start it"),
        ("dial unix /var/run/docker.sock: connect: permission denied", "image", "group docker"),
        ("pull access denied for registry.example/fake", "pull", "docker login registry.example"),
        ("dial tcp: lookup registry.example: no such host", "pull", "cannot be reached"),
    ],
)
def test_an_image_that_cannot_be_had_is_a_row_that_says_why(tmp_path, bin, said, verb, found):
    words = ["--env", "docker", "--image", "registry.example/fake:2"]
    ended = compare(tmp_path, *words, DOCKER_SAYS=said, DOCKER_FAILS=verb)
    assert ended.returncode == 1
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "environment"
    assert found in record.failure.message
    assert "Traceback" not in ended.stderr


def test_an_engine_that_refuses_a_run_is_a_row_that_says_why(tmp_path, bin):
    standin.install(bin, code=125)
    words = ["--env", "docker", "--image", standin.IMAGE]
    said = "docker: Error response from daemon: no space left on device."
    # only what runs a job fails: the question for the image's Python comes first, and is answered
    text = (bin / "docker").read_text().replace("verb = words[0]", "verb = 'job' if '--workdir' in words else words[0]")
    (bin / "docker").write_text(text)
    compare(tmp_path, *words, DOCKER_SAYS=said, DOCKER_FAILS="job")
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "environment"
    assert "the disk is full where docker keeps its images" in record.failure.message


def test_an_image_without_numpy_or_framework_says_what_it_lacks(bin):
    with pytest.raises(RunError, match=r"lacks no-such-package or nosuch\. Name another with --image"):
        engine.ask("docker", standin.IMAGE, ["no-such-package", "nosuch"])
    (bin / "python").write_text('#!/bin/sh\necho \'dlperf:{"python": "3.6.9", "numpy": false, "found": ["x"]}\'\n')
    with pytest.raises(RunError, match=r"lacks Python 3.7 or newer \(its python is 3.6.9\) and numpy"):
        engine.ask("docker", standin.IMAGE, ["x"])


def test_a_signal_ends_the_client_and_so_the_container(tmp_path, bin):
    """The stand-in is the container here: what is sent to launch.sh reaches it, as dockerd's client hands it on."""
    folder = tmp_path / "out" / "runs" / "job" / "0"
    folder.mkdir(parents=True)
    text = script("local", image=standin.IMAGE, code=Path("../../../code"), instead="exec sleep 1000")
    (folder / "launch.sh").write_text(text)
    with subprocess.Popen(["sh", str(folder / "launch.sh")], start_new_session=True) as running:
        os.killpg(running.pid, signal.SIGTERM)
        assert running.wait(60) == -signal.SIGTERM


# --- the command line -------------------------------------------------------------------------------------------------


def test_every_image_of_nvidia_s_is_of_its_registry():
    named = {name: one.images["cuda"].ngc for name, one in reader.adapters().items() if one.images and not one.scripts}
    assert set(named) == {"jax", "mxnet", "paddle", "pytorch", "tensorflow"}
    assert all(reference.startswith("nvcr.io/nvidia/") and ":" in reference for reference in named.values())


def dry(*words):
    return call("compare", "--dry-run=full", "-m", "bert", "-r", 1, "--no-verify", *words, PATH="/usr/bin:/bin")


def test_dry_run_prints_the_commands_without_an_engine():
    ended = dry("--env", "docker", "--image", "ngc", "--device", "cuda", "-p", "amp")
    assert ended.returncode == 0, ended.stderr
    assert "docker pull nvcr.io/nvidia/pytorch:25.12-py3" in ended.stdout
    assert "--gpus all" in ended.stdout
    assert "not run: bert_base amp oneflow: not_yet: NVIDIA's registry has no image of OneFlow" in ended.stdout
    ours = dry("--env", "docker", "--device", "cpu", "-f", "mxnet").stdout
    assert "python -m dlperf.images build mxnet --device cpu" in ours
    assert "docker run" in ours
    sif = dry("--env", "apptainer", "--device", "cpu", "-f", "mxnet").stdout
    assert "apptainer build" in sif
    assert "docker-daemon:dlperf/mxnet:cpu-" in sif
