"""Finished runs made again: `dlperf repeat` of one, `dlperf diff --rerun` of all rows of two comparisons. With the
framework that sleeps, whose rates are exact by its own clock."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import FAKE, call, records
from places import ROOT

from dlperf.comparison import store
from dlperf.figures import rates

#: what a step of that framework takes
OF_STEP = "self._seconds = "


def made(folder: Path, *words: object, times: int = 1) -> Path:
    """A comparison of one row with two runs. times: longer that a step takes, by the adapter's code."""
    toy = folder.parent / "adapters" / "toy"
    shutil.copytree(ROOT / "adapters" / "fake", toy)
    for name, old, new in (
        ("bert.py", "adapters.fake", "adapters.toy"),
        ("resnet.py", OF_STEP, f"{OF_STEP}{times} * "),
    ):
        code = (toy / name).read_text()
        assert old in code
        (toy / name).write_text(code.replace(old, new))
    fixed = ("-f", "toy", *FAKE[2:], "--set", "clock=virtual", "--set", "step_seconds=0.25", "-r", 2, "-q")
    ended = call("compare", *fixed, *words, "-o", folder, DLPERF_ADAPTERS=str(toy.parent))
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One row at 16 sentences/s; tests only read it, as b."""
    return made(tmp_path_factory.mktemp("a") / "a", "-b", 4)


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same row, of code that is half as fast."""
    return made(tmp_path_factory.mktemp("b") / "b", "-b", 4, times=2)


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
    adapters = str(a.parent / "adapters")
    assert call("compare", "--resume", out, "-q", DLPERF_ADAPTERS=adapters).returncode == 0
    assert len(records(out)) == 1, "nothing of it is missing"
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


def test_rows_of_two_comparisons_take_turns_and_need_no_control(a: Path, b: Path, tmp_path: Path) -> None:
    before, out = {**files(a), **files(b)}, tmp_path / "runs"
    stored = call("diff", a, b)
    assert (stored.returncode, stored.stdout.splitlines()[-1]) == (3, "undecided: 1 row.")
    words = ("diff", a, b, "--rerun", "--repeats", 3, "--runs", out, "--format", "json")
    ended = call(*words)
    assert all(store.open_folder(out / side).comparison.revision for side in "ab")
    assert ended.returncode == 1, ended.stderr
    told = json.loads(ended.stdout)
    (row,) = told["rows"]
    assert (told["turns"], row["verdict"], row["ratio"]["centre"]) == (True, "slower", pytest.approx(0.5))
    assert [fact["what"] for fact in row["changed"]] == ["code"]
    assert {**files(a), **files(b)} == before
    of_a, of_b = records(out / "a"), records(out / "b")
    assert [one.block for one in of_a] == [one.block for one in of_b] == [0, 1, 2]
    assert {one.code for one in of_a} == {records(a)[0].code} != {one.code for one in of_b}
    lines = ended.stderr.splitlines()
    assert lines[0].startswith("6 runs; as many of the finished ones took ")
    assert lines[-1] == f"Runs: {out}"
    assert {line.rpartition(": ")[2] for line in lines[1:-1] if ", A, " in line} == {"16 sentences/s"}
    assert {line.rpartition(": ")[2] for line in lines[1:-1] if ", B, " in line} == {"8 sentences/s"}
    quiet = call(*words[:-3], tmp_path / "quiet", "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "slower: 1 row.\n", f"Runs: {tmp_path / 'quiet'}\n")
    again = call("diff", out / "a", out / "b", "--format", "json")
    assert (again.returncode, again.stdout) == (1, ended.stdout), "what was stored tells the same"
    assert "is not empty" in call(*words).stderr
    assert store.open_folder(out / "a").warnings == []


@pytest.mark.slow
def test_a_row_that_fails_again_is_told_and_given_up(a: Path, b: Path, tmp_path: Path) -> None:
    broken, out = copied(b, tmp_path / "broken"), tmp_path / "runs"
    for path in broken.glob("runs/*/*/job.json"):
        path.write_text(path.read_text().replace('"behave": "well"', '"behave": "crash"'))
    ended = call("diff", a, broken, "--rerun", "--runs", out)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1].startswith(
        f"{out / 'b'}: no run of it has a rate; the last one failed: crash: "
    )
    assert len(records(out / "b")) == 2


@pytest.mark.slow
def test_what_cannot_be_run_in_turns_is_one_message(a: Path, b: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", "-b", 8)
    for words, says in (
        ((a, b / "results.json", "--rerun"), "a published report or a results.json has neither. Name that folder."),
        ((a, f"{b},{other}", "--rerun"), "it runs one comparison of each side. Name one."),
        ((a, other, "--rerun"), "no row of B does the work of one of A"),
        ((a, b, "--repeats", 3), "--repeats 3: it is of --rerun, which is not given. Leave it out."),
        ((a, b, "--runs", tmp_path / "x"), "it is of --rerun, which is not given"),
        ((a, b, "--rerun", "--repeats", 1), "--repeats: '1' is not usable; allowed: 2 to 1000."),
    ):
        ended = call("diff", *words)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
        assert says in ended.stderr
