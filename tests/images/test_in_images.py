"""Images are really built, and comparisons really run in them, on a Docker engine of our own.

`make test-images` builds all six; `-m "images and not every_image"` those of PAIR, which are the smallest, and runs all
else. Nothing here has a GPU, and no public base image is pulled.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from processes import wait_for

from dlperf.catalog import reader
from dlperf.comparison import store
from dlperf.docker import dockerfile
from dlperf.envs import wheels
from dlperf.proof.bars import BARS

pytestmark = pytest.mark.images

ADAPTERS = reader.adapters()
PAIR = ("jax", "mxnet")
#: --tuned: on some CPUs PyTorch would have a second row
TINY = ["--model", "bert_tiny", "--device", "cpu", "--threads", "1", "--repeats", "1", "--tuned", "off"]
FAKE = ["--frameworks", "fake", *TINY, "--no-verify", "--env", "docker"]


@pytest.fixture
def dlperf(bed):
    """Runs a module of dlperf on the bed's engine: exit code and what it printed."""

    def run(module, *words, timeout=900):
        command = [sys.executable, "-m", f"dlperf.{module}", *map(str, words)]
        environ = {**os.environ, **bed.environment}
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environ)
        return ended.returncode, ended.stdout + ended.stderr

    return run


@pytest.fixture
def built(bed, dlperf):
    """Builds an adapter's image unless it is there; its name."""

    def build(name):
        adapter = ADAPTERS[name]
        reference = dockerfile.name(adapter, "cpu")
        if not bed.docker("images", "--quiet", reference).strip():
            base = bed.base(adapter.environments["cpu"].python[0])
            code, printed = dlperf("images", "build", name, "--base-image", base)
            assert code == 0, printed
        return reference

    return build


def records(folder):
    return list(store.open_folder(folder).records.values())


def left(bed):
    return bed.docker("ps", "--all", "--quiet").split()


# --- building ---------------------------------------------------------------------------------------------------------


def chosen(name):
    return name if name in PAIR else pytest.param(name, marks=pytest.mark.every_image)


@pytest.mark.parametrize("name", [chosen(name) for name, one in ADAPTERS.items() if one.default])
def test_an_image_is_built_from_its_lock_and_imports_its_framework(bed, dlperf, built, name):
    reference = built(name)
    told = json.loads(bed.docker("image", "inspect", reference))[0]
    assert told["Config"]["User"] == "65534:65534"
    assert told["Config"]["Labels"]["dlperf.versions"]
    code, printed = dlperf("images", "list", name, "--device", "cpu")
    assert code == 0
    assert re.search(rf"{name} +cpu +built .*{reference}", printed)
    module = {"pytorch": "torch"}.get(name, name)
    script = f"import {module}, os; print({module}.__version__, os.getuid()); import dlperf"
    code, printed = dlperf("images", "run", name, "--", "python", "-I", "-c", script)
    version = told["Config"]["Labels"]["dlperf.versions"].split()[1]
    assert f"{version} {os.getuid()}" in printed
    assert "No module named 'dlperf'" in printed, "dlperf is not inside"
    if name not in PAIR:  # gigabytes
        bed.docker("image", "rm", reference)
        bed.docker("builder", "prune", "--all", "--force")
        shutil.rmtree(wheels.folder(ADAPTERS[name], "cpu"))


def test_building_again_changes_nothing(bed, dlperf, built):
    found = []
    for _ in range(2):
        code, printed = dlperf("images", "build", "fake", "--base-image", bed.base("3.11"))
        assert code == 0, printed
        found.append(bed.docker("image", "inspect", "--format", "{{.Id}} {{.RootFS.Layers}}", built("fake")))
    assert found[0] == found[1]


def test_a_base_without_the_right_python_is_named(bed, dlperf):
    code, printed = dlperf("images", "build", "mxnet", "--base-image", bed.base("3.11"))
    assert code == 1
    last = printed.splitlines()[-1]
    assert last == "mxnet cpu: the base image has no python3.10. Name one with --base-image"


def test_a_base_that_cannot_be_pulled_is_named(dlperf, built):
    built("fake")  # the wheels
    code, printed = dlperf("images", "build", "fake", "--base-image", "registry.invalid/python:3.11")
    assert code == 1
    assert "registry.invalid/python:3.11 cannot be pulled" in printed.splitlines()[-1]


# --- running ----------------------------------------------------------------------------------------------------------


def losses(folder):
    """Of each float64 trajectory of one rank, by system."""
    proofs = store.open_folder(folder).proofs.values()
    found = [one.trajectory for several in proofs for one in several if one.trajectory.precision == "fp64"]
    return {one.system: one.losses for one in found if one.ranks == 1}


def test_two_frameworks_are_compared_in_images_and_do_what_they_do_in_venvs(bed, dlperf, built, tmp_path):
    references = {name: built(name) for name in PAIR}
    words = ["--frameworks", ",".join(PAIR), *TINY]
    code, printed = dlperf("compare", *words, "--env", "docker", "-o", tmp_path / "docker")
    assert code == 0, printed
    report = (tmp_path / "docker" / "report.md").read_text()
    for record in records(tmp_path / "docker"):
        assert record.failure is None
        digest = bed.docker("image", "inspect", "--format", "{{.Id}}", references[record.job.adapter]).strip()
        assert record.environment["digest"] == digest.removeprefix("sha256:")
        assert record.environment["image"] == references[record.job.adapter]
        assert record.environment["image"] in report
        assert record.environment["digest"][:12] in report
    for several in store.open_folder(tmp_path / "docker").proofs.values():
        assert [one.verdict for one in several] == ["same"] * len(several)
    assert left(bed) == []
    code, printed = dlperf("compare", *words, "-o", tmp_path / "venv")
    assert code == 0, printed
    inside, outside = losses(tmp_path / "docker"), losses(tmp_path / "venv")
    assert set(inside) == set(outside) == set(PAIR)
    for system in PAIR:
        assert inside[system] == pytest.approx(outside[system], rel=BARS["fp64"].loss)


def test_two_ranks_in_one_container(bed, dlperf, built, tmp_path):
    built("mxnet")
    words = ["--frameworks", "mxnet", *TINY, "--no-verify", "--nproc-per-node", 2, "--env", "docker"]
    code, printed = dlperf("compare", *words, "-o", tmp_path / "out")
    assert code == 0, printed
    (record,) = records(tmp_path / "out")
    assert len(set(record.hosts)) == 1
    assert record.command.count("docker run") == 1
    assert left(bed) == []


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed: `make test-cluster` installs it")
def test_two_ranks_in_two_containers(bed, dlperf, built, tmp_path):
    built("mxnet")
    words = ["--frameworks", "mxnet", *TINY, "--no-verify", "--nproc-per-node", 2, "--env", "docker"]
    code, printed = dlperf("compare", *words, "--launcher", "mpi", "-o", tmp_path / "out")
    assert code == 0, printed
    assert left(bed) == []


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behave", "kind"), [("crash", "crash"), ("killed", "killed"), ("hang", "timeout")])
def test_a_fault_in_a_container_is_a_row_and_leaves_nothing(bed, dlperf, built, tmp_path, behave, kind):
    built("fake")
    code, _ = dlperf("compare", *FAKE, "--set", f"behave={behave}", "--timeout", 8, "-o", tmp_path / "out")
    assert code == 1
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == kind, record.failure
    assert left(bed) == []


def test_a_killed_rank_of_two_in_a_container_is_named(bed, dlperf, built, tmp_path):
    built("fake")
    words = ["--set", "behave=killed", "--nproc-per-node", 2]
    dlperf("compare", *FAKE, *words, "-o", tmp_path / "out")
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "killed"
    assert re.match(r"rank \d on \S+: ended by signal 9 \(SIGKILL\)", record.failure.message)
    assert left(bed) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_container_ends_with_the_command(bed, built, tmp_path, number):
    """Also with one that cannot clean up."""
    built("fake")
    command = [sys.executable, "-m", "dlperf.compare", *FAKE, "--set", "behave=hang", "-o", str(tmp_path / "out")]
    with subprocess.Popen(command, env={**os.environ, **bed.environment}, stdout=subprocess.DEVNULL) as running:
        try:
            wait_for(lambda: list(tmp_path.glob("out/runs/*/*/events.rank0.jsonl")))
            assert left(bed)
            running.send_signal(number)
            running.wait(60)
        finally:
            running.kill()
    wait_for(lambda: not left(bed))


def test_a_daemon_that_is_gone_is_a_row_that_says_so(tmp_path, bed):
    environ = {**os.environ, **bed.environment, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    command = [sys.executable, "-m", "dlperf.compare", *FAKE, "-o", str(tmp_path / "out")]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    (record,) = records(tmp_path / "out")
    assert "docker's daemon does not answer" in record.failure.message


def test_an_image_that_is_not_built_is_a_row_that_says_how(dlperf, tmp_path):
    code, _ = dlperf("compare", "-f", "pytorch", *TINY, "--env", "docker", "-o", tmp_path / "out")
    assert code == 1
    (record,) = records(tmp_path / "out")
    assert "is not built: python -m dlperf.images build pytorch --device cpu" in record.failure.message
