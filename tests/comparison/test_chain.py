"""What was edited, removed or moved by hand in a comparison's folder or a report's."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from commands import call
from places import ROOT

import dlperf
from dlperf.archive import tar
from dlperf.catalog import reader
from dlperf.comparison import store
from dlperf.comparison.store import LAST, RECORDS, RESULTS, Store
from dlperf.errors import UsageError
from dlperf.planning import plan
from dlperf.planning.spec import Protocol, Spec
from dlperf.report import caveats
from dlperf.schema import Certificate, Failure, Record, Trajectory, Window, run_folder

REPEATS = 4
SPEC = Spec(("bert_tiny",), ("fp32",), ("fake",), "cpu", "current", Protocol("quick", 1, 1, 1, REPEATS), verify=False)


def run(opened: Store, repeat: int) -> Record:
    job = opened.plan.jobs[0]
    window = Window(0, 1, 4, 0.5, 0.1 + repeat, 1.0)
    return Record(job, repeat, "2026-11-24", 1.0, "true", str(run_folder(job, repeat)), {}, windows=(window,))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    opened = store.create(tmp_path / "out", SPEC, plan.from_spec(SPEC, reader.adapters()), {}, {}, "2026-11-24", "0")
    for repeat in range(REPEATS):
        opened.append(run(opened, repeat))
    return tmp_path / "out"


def edited(lines: list[str]) -> list[str]:
    return [lines[0], lines[1].replace('"seconds": 0.5', '"seconds": 0.4'), *lines[2:]]


def unsigned(lines: list[str]) -> list[str]:
    bare = {
        key: value for key, value in json.loads(lines[1]).items() if key not in ("digest", "previous", "comparison")
    }
    return [lines[0], json.dumps(bare), *lines[2:]]


FOLLOW = "not follow the one before: records were removed, added or moved by hand."
CHANGED = f"{RECORDS}: line 2 was changed after it was written, and is not used."
CUT = f"{RECORDS}: records at its end were removed by hand."
DAMAGED = f"{RECORDS}: line 2 is damaged and was passed over; its run counts as missing."


@pytest.mark.parametrize(
    ("change", "left", "says"),
    [
        (lambda lines: lines, [0, 1, 2, 3], []),
        (edited, [0, 2, 3], [CHANGED]),
        (unsigned, [0, 2, 3], [CHANGED]),
        (lambda lines: [unsigned([line, line])[1] for line in lines], [], None),
        (lambda lines: [lines[0], *lines[2:]], [0, 2, 3], [f"{RECORDS}: line 2 does {FOLLOW}"]),
        (lambda lines: lines[1:], [1, 2, 3], [f"{RECORDS}: line 1 does {FOLLOW}"]),
        (
            lambda lines: [lines[0], lines[2], lines[1], lines[3]],
            [0, 2, 1, 3],
            [f"{RECORDS}: lines 2, 3, 4 do {FOLLOW}"],
        ),
        (lambda lines: [*lines, lines[1]], [0, 1, 2, 3], [f"{RECORDS}: line 5 does {FOLLOW}"]),
        (lambda lines: lines[:2], [0, 1], [CUT]),
        (lambda lines: [], [], [CUT]),
        (lambda lines: [lines[0], lines[1][:99], *lines[2:]], [0, 2, 3], [DAMAGED]),
        (lambda lines: [lines[0], lines[1][:99]], [0], [DAMAGED]),
    ],
)
def test_what_was_changed_by_hand_is_told(
    made: Path, change: Callable[[list[str]], list[str]], left: list[int], says: list[str] | None
) -> None:
    lines = (made / RECORDS).read_text().splitlines()
    (made / RECORDS).write_text("\n".join(change(lines)))
    opened = store.open_folder(made)
    assert [record.repeat for record in opened.records.values()] == left
    assert says is None or opened.warnings == says
    shown = list(caveats.caveats(opened.comparison))
    assert all((warning in shown) == (warning != DAMAGED) for warning in opened.warnings)
    # what is made again follows, and what was told stays so
    for repeat in set(range(REPEATS)) - set(left):
        opened.append(run(opened, repeat))
    again = store.open_folder(made)
    assert len(again.records) == REPEATS
    gap = [f"{RECORDS}: line {len(left) + 1} does {FOLLOW}"]
    assert says is None or again.warnings == (gap if says == [CUT] else says)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("machine", {"load_average": [0.0]}),
        ("machine", {"cpu": "x"}),
        ("revision", "89abcde"),
        ("created", "2026-11-25"),
        ("code", "x"),
    ],
)
def test_what_was_stored_at_the_start_is_held_by_each_record(made: Path, field: str, value: object) -> None:
    assert store.open_folder(made).warnings == []
    manifest = json.loads((made / store.MANIFEST).read_text())
    (made / store.MANIFEST).write_text(json.dumps({**manifest, field: value}))
    opened = store.open_folder(made)
    says = f"{store.MANIFEST} was changed by hand after runs were made."
    assert opened.warnings == [says]
    assert says in caveats.caveats(opened.comparison)
    opened.append(run(opened, 0))  # and it stays told
    assert store.open_folder(made).warnings == [says]


def test_a_revision_that_is_noted_later_is_no_change_by_hand(made: Path) -> None:
    path = made / store.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "revision": "1234567"}))
    (made / RECORDS).unlink()
    (made / LAST).unlink()
    opened = store.open_folder(made)
    opened.append(run(opened, 0))
    opened.note_revision("89abcde with changes")
    assert store.open_folder(made).warnings == []  # killed before its first run
    opened.append(run(opened, 1))
    assert store.open_folder(made).warnings == []
    path.write_text(path.read_text().replace(" and 89abcde with changes", ""))
    assert store.open_folder(made).warnings == [f"{store.MANIFEST} was changed by hand after runs were made."]


def test_two_that_begin_in_the_same_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(store, "datetime", FixedTime)
        made = [store.dated("why"), store.dated("why"), store.dated()]
    assert [str(one) for one in made] == [
        *("runs/why-20261128-010203", "runs/why-20261128-010203-2"),
        "runs/20261128-010203",
    ]
    store.claim(made[0])
    with pytest.raises(UsageError, match="this folder is not empty"):
        store.claim(made[0])


class FixedTime(datetime):
    @classmethod
    def now(cls, tz: object = None) -> FixedTime:  # type: ignore[override]
        return cls(2026, 11, 28, 1, 2, 3)


def test_a_run_made_again_and_a_core_that_is_killed_leave_a_whole_chain(made: Path) -> None:
    opened = store.open_folder(made)
    opened.append(replace(run(opened, 1), failure=Failure("crash", "")))
    (made / LAST).rename(made / "aside")
    opened.append(run(opened, 1))
    (made / "aside").rename(made / LAST)  # killed between the two writes
    again = store.open_folder(made)
    assert (len(again.records), again.warnings) == (REPEATS, [])
    again.append(run(again, 1))
    (made / LAST).write_bytes(b"")  # the machine lost power
    assert store.open_folder(made).warnings == []


def test_an_older_comparison_has_no_digests_and_gets_them(made: Path) -> None:
    lines = (made / RECORDS).read_text().splitlines()
    bare = [unsigned([line, line])[1] for line in lines]
    (made / RECORDS).write_text("\n".join(bare) + "\n")
    (made / LAST).unlink()
    manifest = json.loads((made / store.MANIFEST).read_text())
    del manifest["code"]
    (made / store.MANIFEST).write_text(json.dumps(manifest))
    opened = store.open_folder(made)
    assert (len(opened.records), opened.warnings) == (REPEATS, [])
    opened.append(run(opened, 0))
    opened.append(run(opened, 1))
    assert store.open_folder(made).warnings == []
    with (made / RECORDS).open("a") as file:
        file.write(bare[2] + "\n")
    assert store.open_folder(made).warnings == [CHANGED.replace("2", "7")]


@pytest.mark.parametrize("folder", ["../../x", "/tmp", "runs/other/0"])
def test_a_record_is_in_its_own_folder(made: Path, folder: str) -> None:
    opened = store.open_folder(made)
    opened.append(replace(run(opened, 0), folder=folder))
    again = store.open_folder(made)
    assert again.warnings == [f"{RECORDS}: line 5 is damaged and was passed over; its run counts as missing."]
    assert again.records[opened.plan.jobs[0].id, 0].folder.startswith("runs/")


def test_a_copy_is_read_where_the_last_digest_is_missing(made: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(made, tmp_path / "copy", ignore=shutil.ignore_patterns(LAST))
    assert store.open_folder(copy).warnings == []


# --- what else is edited by hand --------------------------------------------------------------------------------------


def certificate(opened: Store, **more: str) -> Certificate:
    job = opened.plan.jobs[0]
    asked = (job.system, job.adapter, job.title, job.model, "bert_tiny_check", job.family, job.device, "fp64", 4, 10, 1)
    told = {"definition": "d", "code": "c", "environment": {"digest": "e"}, **more}
    return Certificate(Trajectory(*asked, {}, **told), "same", size=1e-16)


@pytest.mark.parametrize(
    ("more", "edit", "says"),
    [
        ({}, None, []),
        ({}, ('"verdict": "same"', '"verdict": "different"'), ["proofs.json is not used: checksum mismatch"]),
        ({}, ('"checksum"', '"other"'), ["proofs.json is not used: it has no checksum"]),
        ({"code": "x"}, None, ["is of other code, or another environment"]),
        ({"environment": {"digest": "x"}}, None, ["is of other code, or another environment"]),
    ],
)
def test_certificates_are_of_what_ran_and_as_they_were_written(
    made: Path, more: dict[str, str], edit: tuple[str, str] | None, says: list[str]
) -> None:
    opened = store.open_folder(made)
    opened.append(replace(run(opened, 0), code="c", environment={"digest": "e"}))
    opened.prove({opened.plan.jobs[0].id: (certificate(opened, **more),)})
    path = made / store.PROOFS
    path.write_text(path.read_text().replace(*edit or ("", "")))
    again = store.open_folder(made)
    assert bool(again.proofs) == (not says)
    assert len(again.warnings) == len(says)
    assert all(part in warning for part, warning in zip(says, again.warnings, strict=True))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("id", "../../x", "jobs[0]: id is '../../x', not the name of a folder"),
        ("id", "x", "id is 'x', not 'bert_tiny-fp32-fake-b4'"),
        ("environment", "../x", "environment of bert_tiny-fp32-fake-b4 is '../x', which is no key"),
        ("batch_size", 8, "id is 'bert_tiny-fp32-fake-b4', not 'bert_tiny-fp32-fake-b8'"),
        ("batch_size", "four", "jobs[0]: Expected `int`, got `str` - at `$.batch_size`"),
        ("device", None, "jobs[0]: it lacks 'device'"),
    ],
)
def test_a_row_that_points_elsewhere_is_one_message(made: Path, field: str, value: object, says: str) -> None:
    manifest = json.loads((made / store.MANIFEST).read_text())
    manifest["jobs"][0] |= {field: value}
    if value is None:
        del manifest["jobs"][0][field]
    (made / store.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UsageError) as told:
        store.open_folder(made)
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("where", "change", "says"),
    [
        ("jobs", {"launcher": "x"}, "launcher 'x'"),
        ("spec", {"launcher": "x"}, "launcher 'x'"),
        ("spec", {"env": "x"}, "env 'x'"),
        ("jobs", {"family": "resnet"}, "family 'resnet' of bert_tiny"),
        ("jobs", {"model": "x", "id": "x-fp32-fake-b4"}, "model 'x'"),
        ("jobs", {"adapter": "x"}, "no such adapter is here"),
    ],
)
def test_what_this_dlperf_does_not_know_is_not_resumed(
    made: Path, where: str, change: dict[str, str], says: str
) -> None:
    manifest = json.loads((made / store.MANIFEST).read_text())
    (manifest["spec"] if where == "spec" else manifest["jobs"][0]).update(change)
    (made / store.MANIFEST).write_text(json.dumps(manifest))
    ended = call("compare", "--resume", made)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert says in ended.stderr


@pytest.mark.parametrize("settings", [{}, {"step_seconds": "0.1,0.2"}])
@pytest.mark.parametrize("more", [{}, {"aa": 1, "nproc_per_node": (1, 2)}, {"largest_batch": True}])
def test_the_plan_gives_each_row_its_id(settings: dict[str, str], more: dict[str, object]) -> None:
    spec = replace(SPEC, frameworks=("fake", "fake"), settings=settings, **more)  # type: ignore[arg-type]
    jobs = plan.from_spec(spec, reader.adapters()).jobs
    assert len(jobs) > 1
    assert [job.id for job in jobs] == [plan.id_of(job, spec) for job in jobs]


@pytest.mark.parametrize("name", [RECORDS, "runs", "code", "runs/x", "runs/x/0", "proofs/x/run", "source/x"])
def test_symbolic_links_in_a_folder_are_one_message(made: Path, tmp_path: Path, name: str) -> None:
    store.no_links(made)
    path = made / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path)
    with pytest.raises(UsageError, match="is a symbolic link, and dlperf follows none there"):
        store.no_links(made)


# --- results.json and `load` ------------------------------------------------------------------------------------------

PUBLISHED = sorted((ROOT / "report" / "published").glob("*/results.json"))


def test_a_published_report_is_loaded_from_its_results() -> None:
    path = min(PUBLISHED, key=lambda one: one.stat().st_size)
    runs = dlperf.load(path.parent)
    assert len(runs) == len(json.loads(path.read_text())["records"])


def test_an_archive_is_loaded_as_the_report_beside_it(tmp_path: Path) -> None:
    archive = min(PUBLISHED[0].parent.parent.glob(f"*/*{tar.SUFFIX}"), key=lambda one: one.stat().st_size)
    assert dlperf.load(archive).equals(dlperf.load(archive.parent))
    files = tar.unpacked(archive)
    results = files[RESULTS]
    for changed, says in (
        ({**files, RESULTS: results.replace(b'"planned"', b'"planned" ', 1)}, "results.json is not as MANIFEST.sha256"),
        ({name: data for name, data in files.items() if name != RESULTS}, "results.json is missing"),
    ):
        made = io.BytesIO()
        with gzip.GzipFile("", "wb", fileobj=made, mtime=0) as zipped:
            tar._write("a", changed, zipped)
        (tmp_path / f"a{tar.SUFFIX}").write_bytes(made.getvalue())
        with pytest.raises(UsageError, match=says):
            dlperf.load(tmp_path / f"a{tar.SUFFIX}")
    (tmp_path / f"a{tar.SUFFIX}").write_bytes(results)
    with pytest.raises(UsageError, match="no archive of dlperf's"):
        dlperf.load(tmp_path / f"a{tar.SUFFIX}")
    (tmp_path / f"a{tar.SUFFIX}").write_bytes(tar.packed("a", {"b": b""}))
    with pytest.raises(UsageError, match="it has no results"):
        dlperf.load(tmp_path / f"a{tar.SUFFIX}")


def test_of_a_csv_file_what_is_taken_is_said() -> None:
    with pytest.raises(UsageError, match=r"Name its folder, its results.json or its archive \(NAME.dlperf.tar.gz\)"):
        dlperf.load(PUBLISHED[0].parent / "results.csv")


def test_of_several_comparisons_each_run_says_whose_it_is() -> None:
    paths = sorted(PUBLISHED, key=lambda one: one.stat().st_size)[:2]
    both = dlperf.load(*paths)
    assert list(both["comparison"]) == [str(path) for path in paths for _ in range(len(dlperf.load(path)))]
    assert set(both.columns) == {"comparison", *dlperf.load(paths[0]).columns, *dlperf.load(paths[1]).columns}
    with pytest.raises(UsageError, match="RUN: names no comparison"):
        dlperf.load()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data["records"][3]["windows"][0].update(seconds="x"), "records[3]: Expected `float`, got `str`"),
        (lambda data: data["records"][3].pop("job"), "records[3]: it lacks 'job'"),
        (lambda data: data["records"][2].update(folder="../x"), "records[2]: folder is '../x', not that of its run"),
        (lambda data: data.pop("machine"), "it lacks 'machine'"),
        (lambda data: data.update(planned=-1.5), "at `$.planned`"),
        (lambda data: data.update(records={}), "Expected `array`, got `object`"),
        (lambda data: data.update(schema=7), "it has schema 7; this version of dlperf reads schema 1."),
        (lambda data: data.clear(), "it has schema None"),
    ],
)
def test_results_that_are_something_else_are_one_message(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    data = json.loads(min(PUBLISHED, key=lambda one: one.stat().st_size).read_text())
    change(data)
    path = tmp_path / "results.json"
    for text, message in ((json.dumps(data), says), ("[]", "Expected `object`"), ("{", "not what dlperf wrote")):
        path.write_text(text)
        with pytest.raises(UsageError) as told:
            dlperf.load(tmp_path)
        assert message in str(told.value)
        assert str(path) in str(told.value)


def test_a_folder_that_is_neither_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder with comparison"):
        dlperf.load(tmp_path)


def test_load_warns_of_what_was_changed_by_hand(made: Path) -> None:
    lines = (made / RECORDS).read_text().splitlines()
    (made / RECORDS).write_text("\n".join(edited(lines)))
    with pytest.warns(UserWarning, match="line 2 was changed after it was written"):
        assert len(dlperf.load(made)) == REPEATS - 1
