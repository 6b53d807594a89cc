"""Lines of records.jsonl that were edited, removed or moved by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlperf.catalog import reader
from dlperf.comparison import store
from dlperf.comparison.store import LAST, RECORDS, Store
from dlperf.planning import plan
from dlperf.planning.spec import Protocol, Spec
from dlperf.report import caveats
from dlperf.schema import Failure, Record, Window, run_folder

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
    bare = {key: value for key, value in json.loads(lines[1]).items() if key not in ("digest", "previous")}
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
