"""Which dlperf a comparison was made by: a commit, or the digest of its files."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from commands import FAKE, call
from places import ROOT

import dlperf
from dlperf import revision
from dlperf.comparison import store

COMMIT = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "--quiet", "--message", "x"]


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two files in a folder that is no checkout, in place of dlperf's own; nothing is beside it."""
    folder = tmp_path / "checkout" / "dlperf"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "more.py").write_text("a = 1\n")
    monkeypatch.setattr(dlperf, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(revision, "BESIDE", ())
    return folder


def test_of_a_checkout_it_is_the_commit_and_whether_tracked_files_differ(package):
    git(package.parent, "init", "--quiet")
    git(package.parent, "add", ".")
    git(package.parent, *COMMIT)
    head = git(package.parent, "rev-parse", "HEAD")
    assert revision.revision() == head[:7]
    (package.parent / "notes").write_text("not tracked")
    assert revision.revision() == head[:7]
    (package / "more.py").write_text("a = 2\n")
    assert revision.revision() == f"{head[:7]} with changes"


def test_elsewhere_it_is_the_digest_of_the_files(package, monkeypatch):
    first = revision.revision()
    assert re.fullmatch("sha256:[0-9a-f]{12}", first)
    for name in ("__pycache__", "published"):
        (package / name).mkdir()
        (package / name / "x").write_text("made later")
    assert revision.revision() == first
    (package / "more.py").write_text("a = 2\n")
    assert revision.revision() != first
    monkeypatch.setenv("PATH", os.devnull)  # no git
    assert revision.revision().startswith("sha256:")


def test_what_a_wheel_installed_is_held_to_its_record(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    (site / "dlperf").mkdir(parents=True)
    (site / "dlperf-1.0.dist-info").mkdir()
    (site / "dlperf" / "a.py").write_text("a = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"a = 1\n").digest()).rstrip(b"=").decode()
    (site / "dlperf-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: dlperf\nVersion: 1.0\n")
    (site / "dlperf-1.0.dist-info" / "RECORD").write_text(f"dlperf/a.py,sha256={digest},6\n")
    monkeypatch.setattr(sys, "path", [str(site)])
    assert revision._as_installed()
    (site / "dlperf" / "a.py").write_text("a = 2\n")
    assert not revision._as_installed()
    (site / "dlperf" / "a.py").unlink()
    assert not revision._as_installed()


def test_a_project_that_does_not_track_dlperf_is_not_its_checkout(package):
    """As where it is installed in a project's .venv."""
    (package.parent / ".gitignore").write_text("dlperf\n")
    git(package.parent, "init", "--quiet")
    git(package.parent, "add", ".")
    git(package.parent, *COMMIT)
    assert revision.revision().startswith("sha256:")


def test_installed_or_unpacked_the_digest_is_the_same(tmp_path, monkeypatch):
    """A checkout without .git has folders beside dlperf/ that are in it where it is installed."""
    of_folders = [(".", ROOT / "dlperf"), *((name, ROOT / name) for name in revision.BESIDE)]
    installed = tmp_path / "dlperf"
    ignored = shutil.ignore_patterns("__pycache__", "published")
    for name, folder in of_folders:
        shutil.copytree(folder, installed / name, ignore=ignored, dirs_exist_ok=True)
    assert [*revision._beside()] == of_folders[1:]
    assert revision._digest(of_folders) == revision._digest([(".", installed)])


def test_a_comparison_and_its_report_tell_it(tmp_path, monkeypatch):
    monkeypatch.setattr(revision, "revision", lambda: "1234567")
    monkeypatch.setattr("dlperf.comparison.runner.revision", lambda: "1234567")
    out = tmp_path / "out"
    assert call("compare", *FAKE, "--repeats", 1, "-o", out).returncode == 0
    for name in ("comparison.json", "results.json"):
        assert json.loads((out / name).read_text())["revision"] == "1234567"
    assert f"Measured with dlperf {dlperf.__version__} (1234567) on " in (out / "report.md").read_text()
    opened = store.open_folder(out)
    for _ in range(2):  # another dlperf goes on
        opened.note_revision("89abcde with changes")
    assert store.open_folder(out).comparison.revision == "1234567 and 89abcde with changes"


def test_an_older_comparison_that_is_continued_tells_none(tmp_path):
    out = tmp_path / "out"
    assert call("compare", *FAKE, "--repeats", 1, "-o", out).returncode == 0
    told = json.loads((out / "comparison.json").read_text())
    del told["revision"]
    (out / "comparison.json").write_text(json.dumps(told))
    opened = store.open_folder(out)
    opened.note_revision("89abcde")
    assert opened.comparison.revision == store.open_folder(out).comparison.revision == ""
