"""Finished runs made again: `dlperf repeat` of one, `dlperf diff --rerun` of all rows of two comparisons. With the
framework that sleeps, whose rates are exact by its own clock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import FAKE, call, records

from dlperf.figures import rates


def made(folder: Path, *words: object, step: float = 0.25) -> Path:
    ended = call(
        "compare", *FAKE, "--set", "clock=virtual", "--set", f"step_seconds={step}", "-q", *words, "-o", folder
    )
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of one row with two runs at 16 sentences/s; tests only read it."""
    return made(tmp_path_factory.mktemp("a") / "a", "-b", 4, "-r", 2)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_of(folder: Path, repeat: int = 0) -> Path:
    return next(folder.glob(f"runs/*/{repeat}"))


def test_a_run_is_made_again_in_a_new_folder_and_nothing_else_is_touched(a: Path, tmp_path: Path) -> None:
    before, out = files(a), tmp_path / "again"
    ended = call("repeat", run_of(a, 1), "-o", out)
    assert (ended.returncode, ended.stderr) == (0, "")
    job = run_of(a).parent.name
    told = f"{job}: 16 sentences/s (the finished run: 16 sentences/s)\nIts files: {out / 'runs' / job / '0'}\n"
    assert ended.stdout == told
    assert files(a) == before
    for name in ("job.json", "launch.sh"):
        assert (run_of(out) / name).read_bytes() == (run_of(a, 1) / name).read_bytes()
    (new,), old = records(out), records(a)[1]
    assert rates.throughput(new) == pytest.approx(16)
    assert (new.code, new.environment, new.versions) == (old.code, old.environment, old.versions)
    assert call("report", out).returncode == 0, "it is the folder of a comparison"
    assert call("compare", "--resume", out, "-q").returncode == 0
    assert call("repeat", run_of(out), "-o", tmp_path / "third").returncode == 0


def test_a_run_that_fails_again_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call("compare", *FAKE, "--set", "behave=crash", "-r", 1, "-q", "-o", out).returncode == 1
    ended = call("repeat", run_of(out), "-o", tmp_path / "again")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "crash: " in ended.stderr.splitlines()[-1]
    assert [one.failure.kind for one in records(tmp_path / "again") if one.failure] == ["crash"]


def copied(a: Path, folder: Path) -> Path:
    shutil.copytree(a, folder)
    return folder


def test_what_cannot_be_made_again_is_one_message(a: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited, published = copied(a, tmp_path / "edited"), tmp_path / "published"
    (edited / "code" / "dlperf" / "adapters" / "worker.py").write_text("")
    linked = copied(a, tmp_path / "linked")
    (linked / "source").symlink_to(a)
    shutil.copytree(run_of(a), published / "runs" / run_of(a).parent.name / "0")
    shutil.copy(a / "results.json", published)
    bare = copied(a, tmp_path / "bare")
    (run_of(bare) / "job.json").unlink()
    for run, says in (
        (a, "this is no run's folder. Name DIR/runs/JOB/N."),
        ("/", "this is no run's folder"),
        (run_of(a).parent / "7", f"no such run was made. Those that were: {run_of(a).parent.name}/0, "),
        (run_of(a).parent / "x", "no such run was made"),
        (run_of(published), "a published report or a results.json has neither. Name that folder."),
        (run_of(edited), "the code of its runs was changed since: "),
        (run_of(linked), "is a symbolic link"),
    ):
        ended = call("repeat", run, "-o", tmp_path / "out")
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
        assert says in ended.stderr
    assert not (tmp_path / "out").exists()
    used = call("repeat", run_of(a), "-o", a)
    assert (used.returncode, "this folder is not empty" in used.stderr) == (2, True)
    ended = call("repeat", run_of(bare), "-o", tmp_path / "out")
    assert (ended.returncode, "job.json: No such file" in ended.stderr) == (1, True)


def test_another_environment_than_the_run_had_is_refused(
    a: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlperf.envs.current.digest", lambda: "another")
    ended = call("repeat", run_of(a), "-o", tmp_path / "out")
    assert (ended.returncode, "packages of this Python have changed since" in ended.stderr) == (2, True)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    ended = call("repeat", run_of(a), "-o", tmp_path / "out")
    assert (ended.returncode, "it ran in another Python" in ended.stderr) == (2, True)
    assert not (tmp_path / "out").exists()
