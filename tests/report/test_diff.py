"""`dlperf diff`: which rows are the same, what changed, what is said of it, and what is refused. With records of a
published report whose rates are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import call

from dlperf import report
from dlperf.comparison import store
from dlperf.schema import Failure, Record

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "report" / "published"
#: with digests of code; two of its rows are kept
COMPARED = store.read(PUBLISHED / "2026-11-27-cpu-fp32-vgg16-cifar")[0]
JOBS = tuple(job for job in COMPARED.jobs if job.system in ("pytorch", "jax"))
ROWS = {system: f"vgg16_cifar fp32 {system}, CPU, batch {JOBS[0].batch_size}" for system in ("pytorch", "jax")}
#: what runs of a row vary by
STEPS = (1.0, 1.002, 0.999)

Change = Callable[[Record], Record]


def same(record: Record) -> Record:
    return record


def newer(record: Record) -> Record:
    """PyTorch as another version."""
    if record.job.system != "pytorch":
        return record
    environment = {**record.environment, "digest": "f" * 64}
    return replace(record, environment=environment, versions={**record.versions, "torch": "9.9"})


def session(folder: Path, rates: dict[str, float], change: Change = same, day: int = 1, **more: Any) -> Path:
    """A published report of two rows, PyTorch's and JAX's. rates: by system. more: fields of Comparison."""

    def run(record: Record) -> Record:
        rate = rates[record.job.system] * STEPS[(record.repeat + len(record.job.system)) % len(STEPS)]
        windows = tuple(replace(window, seconds=window.samples / rate) for window in record.windows)
        return change(replace(record, windows=windows, started=f"2026-12-0{day}T00:00:00+00:00"))

    records = tuple(run(one) for one in COMPARED.records if one.job.id in {job.id for job in JOBS})
    jobs = tuple(next(one.job for one in records if one.job.id == job.id) for job in JOBS)
    made = replace(COMPARED, created=f"2026-12-0{day}T00:00:00+00:00", jobs=jobs, records=records, proofs={})
    folder.mkdir()
    (folder / "results.json").write_text(report.results_json(replace(made, **more)), encoding="utf-8")
    return folder


def diff(*words: object) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """Exit code, rows by system, and all that --format json prints."""
    ended = call("diff", *words, "--format", "json")
    assert ended.stderr == ""
    told = json.loads(ended.stdout)
    return ended.returncode, {row["system"]: row for row in told["rows"]}, told


@pytest.mark.parametrize(
    ("rate", "verdict", "code"), [(90, "same", 0), (80, "slower", 1), (110, "faster", 0), (87.3, "undecided", 3)]
)
def test_a_row_that_did_not_change_takes_the_session_away(tmp_path: Path, rate: float, verdict: str, code: int) -> None:
    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50})
    b = session(tmp_path / "b", {"pytorch": rate, "jax": 45}, newer, day=2)
    ended, rows, _ = diff(a, b)
    assert (ended, rows["pytorch"]["verdict"], rows["jax"]["verdict"]) == (code, verdict, "control")
    assert rows["pytorch"]["ratio"]["centre"] == pytest.approx(rate / 90)
    changed = {fact["what"]: (fact["a"], fact["b"]) for fact in rows["pytorch"]["changed"]}
    assert changed.keys() == {"environment digest", "version torch"}
    assert changed["version torch"][1] == "9.9"
    assert rows["jax"]["changed"] == []


@pytest.mark.parametrize(
    "more",
    [
        {"machine": {**COMPARED.machine, "kernel": "Linux 99"}},
        {"spec": {**COMPARED.spec, "threads": 1}},
        {"spec": {**COMPARED.spec, "protocol": {**COMPARED.spec["protocol"], "warmup_steps": 9}}},
    ],
)
def test_where_all_rows_changed_there_is_no_control(tmp_path: Path, more: Any) -> None:
    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50})
    b = session(tmp_path / "b", {"pytorch": 50, "jax": 50}, newer, day=2, **more)
    ended, rows, told = diff(a, b)
    assert (ended, rows["pytorch"]["verdict"], rows["jax"]["verdict"]) == (3, "undecided", "undecided")
    assert rows["pytorch"]["why"] == "cannot tell the session from the change"
    assert len(told["changed"]) == 1


def test_records_without_digests_of_code_are_no_control(tmp_path: Path) -> None:
    def older(record: Record) -> Record:
        return replace(record, code="")

    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50}, older)
    b = session(tmp_path / "b", {"pytorch": 50, "jax": 50}, lambda one: older(newer(one)), day=2)
    assert [row["verdict"] for row in diff(a, b)[1].values()] == ["undecided", "undecided"]


def test_two_sessions_of_each_side_need_no_control(tmp_path: Path) -> None:
    a, a2, b, b2 = (
        session(tmp_path / name, {"pytorch": rate, "jax": rate}, day=day)
        for day, (name, rate) in enumerate([("a", 100), ("a2", 100.3), ("b", 80), ("b2", 80.2)], 1)
    )
    ended, rows, told = diff(f"{a},{a2 / 'results.json'}", f"{b},{b2}")
    assert (ended, {row["verdict"] for row in rows.values()}) == (1, {"slower"})
    assert told["a"].startswith("a (2026-12-01")
    assert ", a2 (2026-12-02" in told["a"]
    assert diff(a, f"{b},{b2}")[0] == 3


def test_a_folder_with_a_comma_is_one(tmp_path: Path) -> None:
    a = session(tmp_path / "a,b", {"pytorch": 100, "jax": 50})
    assert diff(a, session(tmp_path / "c", {"pytorch": 100, "jax": 50}, day=2))[2]["a"].startswith("a,b (")


def of_pytorch(**changes: Any) -> Change:
    def change(record: Record) -> Record:
        return replace(record, job=replace(record.job, **changes)) if record.job.system == "pytorch" else record

    return change


def test_other_batches_and_precisions_are_not_the_same_work(tmp_path: Path) -> None:
    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50})
    for day, (changes, why) in enumerate(
        [
            ({"batch_size": 7}, f"batch is {JOBS[0].batch_size} in A and 7 in B"),
            ({"precision": "bf16"}, "precision is fp32 in A and bf16 in B"),
        ],
        2,
    ):
        b = session(tmp_path / f"b{day}", {"pytorch": 20, "jax": 50}, of_pytorch(**changes), day=day)
        ended, rows, _ = diff(a, b)
        assert (ended, rows["pytorch"]["verdict"], rows["pytorch"]["why"]) == (3, "not the same work", why)
        assert rows["pytorch"]["ratio"] is None


def test_a_setting_that_changes_the_work_is_not_the_same_work(tmp_path: Path) -> None:
    def doubled(record: Record) -> Record:
        return replace(record, effective={**record.effective, "compute_dtype": "bfloat16", "threads": "9"})

    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50})
    rows = diff(a, session(tmp_path / "b", {"pytorch": 20, "jax": 50}, doubled, day=2))[1]
    assert {row["verdict"] for row in rows.values()} == {"not the same work"}
    assert rows["jax"]["why"].startswith("effective compute_dtype is ")
    assert "threads" not in rows["jax"]["why"], "which is how, not what"


def test_rows_of_one_side_and_rows_without_a_run_are_named(tmp_path: Path) -> None:
    def crashed(record: Record) -> Record:
        if record.job.system == "jax":
            return replace(record, windows=(), failure=Failure("crash", "it did"))
        return of_pytorch(system="pytorch+inductor")(record)

    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50})
    b = session(tmp_path / "b", {"pytorch": 100, "jax": 50}, crashed, day=2)
    ended, rows, _ = diff(a, b)
    assert ended == 3
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "pytorch": "only in A",
        "pytorch+inductor": "only in B",
        "jax": "no run",
    }
    assert rows["jax"]["sentence"] == f"{ROWS['jax']}: no run (B has none: crash: it did)."


def test_a_table_and_sentences_are_for_people(tmp_path: Path) -> None:
    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50})
    b = session(tmp_path / "b", {"pytorch": 80, "jax": 50}, newer, day=2, version="0.2.0")
    ended = call("diff", a, b, "--fail-above", "2.5%")
    assert (ended.returncode, ended.stderr) == (1, "")
    lines = ended.stdout.splitlines()
    assert next(line for line in lines if line.startswith(ROWS["pytorch"])).split()[-2:] == ["0.805]", "slower"]
    said = f"{ROWS['pytorch']}: B is slower by more than 2.5 %: 0.800 times A's rate (95 % interval 0.79"
    assert any(line.startswith(said) for line in lines)
    assert [line.partition(":")[0] for line in lines if line.endswith(" → 9.9")] == ["    version torch"]
    assert "    dlperf: 0.1.0 → 0.2.0" in lines
    assert lines[-1] == "slower: 1 row; control: 1 row."
    written = call("diff", a, b, "--format", "markdown", "-o", tmp_path / "diff.md")
    assert (written.returncode, written.stdout) == (1, "slower: 1 row; control: 1 row.\n")
    page = (tmp_path / "diff.md").read_text(encoding="utf-8")
    assert f"| {ROWS['pytorch']} | 100" in page
    assert f"\n- {ROWS['pytorch']}: B is slower by more than 3 %: 0.800 times A's rate (95 % interval" in page
    assert str(tmp_path) not in page


def nothing_done(record: Record) -> Record:
    return replace(record, windows=(), failure=Failure("crash", "it did"))


def test_what_cannot_be_compared_is_one_message(tmp_path: Path) -> None:
    a = session(tmp_path / "a", {"pytorch": 100, "jax": 50})
    b = session(tmp_path / "b", {"pytorch": 100, "jax": 50}, day=2)
    failed = session(tmp_path / "failed", {"pytorch": 100, "jax": 50}, nothing_done, day=3)
    (tmp_path / "copy.json").write_bytes((a / "results.json").read_bytes())
    data = json.loads((b / "results.json").read_text())
    (tmp_path / "newer.json").write_text(json.dumps({**data, "schema": 99}))
    before = sorted(tmp_path.rglob("*"))
    for words, says in (
        ((a, a), f"B {a}: this is the same comparison as {a}. Name another one."),
        ((a, tmp_path / "copy.json"), f"this is the same comparison as {a}"),
        ((f"{a},{b}", a), "this is the same comparison"),
        ((a, tmp_path / "nowhere"), "this is no comparison's folder and no results.json"),
        ((a, f"{b},"), "this is no comparison's folder and no results.json"),
        ((a, tmp_path / "newer.json"), "it has schema 99; this version of dlperf reads schema 1"),
        ((a, ROOT / "setup.cfg"), "not what dlperf wrote"),
        ((failed, b), "no run of it has a rate; the last one failed: crash: it did."),
        (
            (a, PUBLISHED / "2026-11-21-cpu-amp"),
            f"no row of it is in A. A has: {ROWS['jax']}; {ROWS['pytorch']}. B has:",
        ),
        ((a, b, "--fail-above", "3"), "--fail-above: '3' is not usable; allowed: a share of A's rate"),
        ((a, b, "--fail-above", "0%"), "--fail-above"),
        ((a, b, "--fail-above", "100%"), "--fail-above"),
        ((a, b, "--fail-above", "-3%"), "--fail-above"),
        ((a, b, "--format", "html"), "--format: 'html' is not usable; allowed: text, markdown, json."),
        ((a, b, "-o", tmp_path), "this is a folder"),
        ((a, b, "-o", ROOT / "setup.cfg"), "this file exists"),
        ((a, b, "-o", tmp_path / "no" / "x"), "its folder does not exist"),
    ):
        ended = call("diff", *words)
        assert (ended.returncode, ended.stdout) == (2, ""), words
        assert says in ended.stderr, (says, ended.stderr)
        assert len(ended.stderr.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_published_reports_are_compared_as_they_are() -> None:
    """Two sessions of one machine with another link between two hosts: nothing tells the session from the change."""
    ended, rows, told = diff(*(PUBLISHED / f"2026-11-21-cpu-fp32-two-hosts-mpi{link}" for link in ("", "-1gbit")))
    assert (ended, {row["verdict"] for row in rows.values()}) == (3, {"undecided"})
    assert [fact["what"] for fact in told["changed"]] == ["load average at the start"]
    names = [f"2026-11-21-cpu-fp32-two-hosts-mpi{link}" for link in ("", "-1gbit")]
    assert diff(*names) == (ended, rows, told), "by their names"
    assert call("diff", names[0], f"{names[1]}/").returncode == 2, "that is a path"
