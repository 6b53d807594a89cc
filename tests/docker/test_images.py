"""Dockerfiles and the command that builds images of them. Real builds are in tests/images."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import standin
from places import ROOT

from dlperf import images
from dlperf.catalog import locks, reader
from dlperf.docker import build, dockerfile
from dlperf.docker.dockerfile import BASES
from dlperf.envs import wheels as wheels_

ADAPTERS = reader.adapters()
OURS = [(name, device) for name, one in ADAPTERS.items() if one.default for device in ("cpu", "cuda")]
HADOLINT = Path(sys.executable).parent / "hadolint"


def text(name, device):
    return ROOT / "docker" / f"{name}.{device}.Dockerfile"


@pytest.mark.parametrize(("name", "device"), OURS)
def test_the_dockerfile_is_what_the_template_gives(name, device, request):
    made = dockerfile.text(ADAPTERS[name], device)
    if request.config.getoption("--update-golden"):
        text(name, device).write_text(made)
    assert text(name, device).read_text() == made


@pytest.mark.parametrize(("name", "device"), OURS)
def test_the_dockerfile_is_one_for_every_builder(name, device):
    lines = text(name, device).read_text().splitlines()
    assert not [line for line in lines if line.startswith("# syntax") or "<<" in line or "--link" in line]
    assert lines[-1] == "USER 65534:65534"
    base = next(line for line in lines if line.startswith("ARG BASE="))
    assert "@sha256:" in base, "the base is pinned"


def test_there_is_no_other_dockerfile():
    assert {path.name for path in (ROOT / "docker").glob("*.Dockerfile")} == {text(*one).name for one in OURS}


def test_hadolint_has_nothing_to_say():
    files = [str(text(*one)) for one in OURS]
    ended = subprocess.run([str(HADOLINT), *files], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr


def test_the_name_changes_with_the_lock_and_with_the_dockerfile(monkeypatch):
    first = dockerfile.name(ADAPTERS["jax"], "cpu")
    assert first.startswith("dlperf/jax:cpu-")
    monkeypatch.setattr(locks, "RECIPE", 999)
    second = dockerfile.name(ADAPTERS["jax"], "cpu")
    monkeypatch.setitem(BASES, "3.11", "python:3.11@sha256:0")
    assert len({first, second, dockerfile.name(ADAPTERS["jax"], "cpu")}) == 3


def test_labels_name_lock_versions_and_revision():
    found = build.labels(ADAPTERS["mxnet"], "cpu", "debian:12")
    assert found["dlperf.lock"].startswith("sha256:")
    assert found["dlperf.versions"] == "mxnet 1.9.1"
    assert build.labels(ADAPTERS["tensorflow"], "cpu", "debian:12")["dlperf.versions"] in (
        "tensorflow-cpu 2.21.0",
        "tensorflow 2.21.0",  # on Arm
    )
    assert found["dlperf.base"] == "debian:12"
    assert found["org.opencontainers.image.revision"]


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def bin(tmp_path, monkeypatch):
    """The whole of PATH: nothing but what a test puts there. And a cache of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def wheels(monkeypatch, tmp_path):
    """No download: the folder of wheels is there."""
    monkeypatch.setattr(wheels_, "fetch", lambda adapter, key, progress: tmp_path)


def test_list_needs_no_engine(bin, capsys):
    assert images.main(["list"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("no engine") == 12
    assert "docker is not on PATH" in shown.err


def test_list_names_what_is_built(bin, capsys, monkeypatch):
    standin.install(bin)
    monkeypatch.setattr(dockerfile, "name", lambda adapter, key: f"dlperf/{adapter.name}:{key}-0")
    assert images.main(["list", "fake", "jax", "--device", "cpu"]) == 0
    fake, jax = capsys.readouterr().out.splitlines()[1:]
    assert fake.split()[:4] == ["fake", "cpu", "built", "5MB"]
    assert jax.split()[:4] == ["jax", "cpu", "not", "built"]


@pytest.mark.parametrize("builder", ["docker", "podman", "buildah"])
def test_dry_run_prints_commands_that_a_shell_takes(bin, capsys, builder):
    assert images.main(["build", "mxnet", "fake", "--builder", builder, "--base-image", "my base", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "pip download --require-hashes" in shown
    assert "--build-arg 'BASE=my base'" in shown
    assert f"{builder} build --file - --tag dlperf/mxnet:cpu-" in shown
    assert shown.count("--network none") == 1, "of the two only MXNet's may ask for packages of Debian"
    checked = subprocess.run(["/bin/sh", "-n"], input=shown, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_build_hands_the_dockerfile_over(bin, wheels, capsys):
    standin.install(bin)
    (bin / "buildx").touch()
    assert images.main(["build", "mxnet"]) == 0, capsys.readouterr().err
    assert (bin / "built").read_text() == text("mxnet", "cpu").read_text()


def test_a_docker_without_buildkit_is_passed_over_for_one_that_has_it(bin, wheels, tmp_path, monkeypatch, capsys):
    standin.install(bin)
    assert images.main(["build", "mxnet"]) == 1
    assert "its plug-in buildx is missing" in capsys.readouterr().err
    old = standin.install(tmp_path / "old")
    old.write_text(old.read_text().replace("28.0.0", "20.10.24+dfsg1"))
    monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{tmp_path / 'old'}")
    assert images.main(["build", "mxnet"]) == 0, capsys.readouterr().err
    assert (tmp_path / "old" / "built").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "verb", "found"),
    [
        ("Cannot connect to the Docker daemon at unix:///x.", "images", "docker's daemon does not answer"),
        ("#5 0.3 /bin/sh: 1: python3.10: not found", "build", "has no python3.10. Name one with --base-image"),
        ("failed to solve: write /x: no space left on device", "build", "the disk is full where docker keeps"),
        ("failed to do request: dial tcp: lookup registry-1.docker.io: no such host", "build", "cannot be reached"),
    ],
)
def test_a_build_that_fails_says_why(bin, wheels, monkeypatch, capsys, said, verb, found):
    standin.install(bin)
    (bin / "buildx").touch()
    monkeypatch.setenv("DOCKER_SAYS", said)
    monkeypatch.setenv("DOCKER_FAILS", verb)
    assert images.main(["build", "mxnet"]) == 1
    assert found in capsys.readouterr().err.splitlines()[-1]


def test_a_builder_that_is_missing_is_named(bin, capsys):
    for builder in ("docker", "podman", "buildah"):
        assert images.main(["build", "mxnet", "--builder", builder]) == 1
        assert f"{builder} is not on PATH. Install it" in capsys.readouterr().err


def test_a_wrong_name_is_a_usage_error(bin, capsys):
    assert images.main(["build", "mxnt"]) == 2
    assert "Did you mean 'mxnet'?" in capsys.readouterr().err
    assert images.main(["build", "fake", "--device", "cuda"]) == 1
    assert "fake has no environment cuda" in capsys.readouterr().err


def test_run_and_inspect_say_how_to_build_what_is_not_built(bin, capsys):
    standin.install(bin)
    for verb in ("run", "inspect"):
        assert images.main([verb, "mxnet"]) == 1
        assert "is not built: python -m dlperf.images build mxnet --device cpu" in capsys.readouterr().err
    assert images.main(["run", "mxnet", "--dry-run", "--", "python", "-c", "print('a b')"]) == 0
    shown = capsys.readouterr().out
    assert "docker run" in shown
    assert """python -c 'print('"'"'a b'"'"')\'""" in shown
