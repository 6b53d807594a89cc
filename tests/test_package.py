"""The package: what is in its distributions, that what is built runs anywhere, and what the Makefile installs."""

import email
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from commands import FAKE
from places import ROOT

from dlperf import __version__
from dlperf.cli import COMMANDS

#: folder of the tree -> of the package
PACKAGE = {
    "dlperf": "dlperf",
    **{name: f"dlperf/{name}" for name in ("adapters", "docker", "models", "launchers", "report")},
}
H200 = ROOT / "report" / "published" / "2026-11-27-h200-fp16-bert" / "results.json"
BUILD = "import setuptools.build_meta as made, sys; print(getattr(made, sys.argv[1])(sys.argv[2]))"


def built(kind, tree, folder):
    """By the build's own functions, with the setuptools that is here: no package index is asked."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)]
    made = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    return folder / made.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The source distribution of a copy of the tree, and the wheel that is built of it alone."""
    left_out = runpy.run_path(str(ROOT / "tests" / "pythons.py"))["left_out"]
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "tree", ignore=left_out)
    shutil.copytree(ROOT / ".ci", folder / "tree" / ".ci")
    shutil.copy(ROOT / ".gitignore", folder / "tree")
    sdist = built("sdist", folder / "tree", folder)
    (folder / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", sdist, "-C", folder / "unpacked"], check=True, timeout=600)
    (unpacked,) = (folder / "unpacked").iterdir()
    return folder / "tree", sdist, built("wheel", unpacked, folder)


@pytest.mark.slow
def test_the_source_distribution_has_all_that_builds_and_tests_it(distributions):
    tree, sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        found = {Path(*Path(one.name).parts[1:]) for one in archive if one.isfile()}
    lacking = {path.relative_to(tree) for path in tree.rglob("*") if path.is_file()} - found
    assert {path for path in lacking if not path.parts[0].endswith(".egg-info")} == set()


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(distributions):
    tree, _, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
        told = email.message_from_bytes(archive.read(f"dlperf-{__version__}.dist-info/METADATA"))
    assert {name.split("/")[0] for name in found} == {"dlperf", f"dlperf-{__version__}.dist-info"}
    assert {"dlperf/py.typed", "dlperf/report/templates/tables.html.j2", "dlperf/adapters/jax/adapter.toml"} <= found
    for folder, package in PACKAGE.items():
        for path in (tree / folder).rglob("*"):
            name = f"{package}/{path.relative_to(tree / folder)}"
            if path.is_file() and "published" not in name and path.suffix != ".md" and "/schemas/" not in name:
                assert name in found
    assert told["Version"] == __version__
    assert re.findall(r"\]\((?!https?://)[^)]*\)|(?:src|href)=", told.get_payload()) == [], "an index has no such files"
    assert "dlperf compare" in told.get_payload()


@pytest.mark.slow
def test_an_installed_wheel_runs_without_the_tree(distributions, tmp_path):
    """In a fresh environment, outside of the tree; what dlperf needs is seen where it is installed already."""
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=600)
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")  # whose own .pth, of the tree, are not read
    pip = [sys.executable, "-m", "pip", "--python", environment, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", distributions[2]], check=True, timeout=600)

    def dlperf(*words):
        command = [environment / "bin" / "dlperf", *map(str, words)]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    where = [environment / "bin" / "python", "-c", "import dlperf; print(dlperf.__file__)"]
    assert subprocess.check_output(where, cwd=tmp_path, text=True).startswith(str(site))
    assert dlperf("--version") == f"dlperf {__version__}\n"
    assert all(f"  {name} " in dlperf("--help") for name in COMMANDS)
    assert "\npytorch " in dlperf("list", "frameworks")
    assert "\ndlperf compare --model bert --precision auto (BERT-base" in dlperf("doctor"), "there is no Makefile"
    assert "| JAX | 2 | 3,841.4 |" in dlperf("table", H200)
    assert "Report: " in dlperf("report", "--published", "paddle-parameter-server-2020", "-o", tmp_path / "published")
    assert (
        (tmp_path / "published" / "report.md")
        .read_text()
        .startswith("# Distributed Training Benchmark For PaddlePaddle")
    )
    command = [environment / "bin" / "dlperf", "report", "--published", "dlperf-v1.0"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    says = "--published dlperf-v1.0: its folder belongs to the installed package. Add -o DIR.\n"
    assert (ended.returncode, ended.stderr) == (2, says)
    assert "Report: " in dlperf("compare", *FAKE, "--set", "clock=virtual", "-r", 1, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "report.html").is_file()
    assert "Fake" in dlperf("show", tmp_path / "out")


@pytest.mark.parametrize(
    ("target", "tools"), [("setup", False), ("compare", False), ("doctor", False), ("test", True), ("check", True)]
)
def test_only_tests_and_checks_install_developers_tools(tmp_path, target, tools):
    planned = subprocess.run(
        ["make", "-n", target, f"VENV={tmp_path / 'none'}"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert planned.returncode == 0, planned.stderr
    assert ("[dev]" in planned.stdout) == tools
    assert "--editable" in planned.stdout
