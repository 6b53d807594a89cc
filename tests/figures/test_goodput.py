"""Where a run's wall time went: from its events to the table, always all of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import call, records

from dlperf import report
from dlperf.figures import goodput
from dlperf.figures.summaries import summarized
from dlperf.report import stages as table
from dlperf.runs import events
from dlperf.runs.stages import STAGES, stages
from dlperf.schema import Comparison, Failure, Record

#: of one rank: seconds since it started, event, fields
RANK: list[tuple[float, str, dict[str, Any]]] = [
    (0.0, "start", {"machine": {"host": "a"}}),
    (2.0, "imported", {"versions": {}}),
    (5.0, "built", {"seconds": 5.0}),
    (5.5, "product", {"size": 1, "seconds": 0.1, "fp32_seconds": 0.1}),
    (9.5, "warm", {"seconds": 4.0, "first_step_seconds": 3.0, "steps": 2}),
    (12.0, "window", {"index": 0, "steps": 1, "samples": 8, "seconds": 2.0, "cpu_seconds": 1.0, "loss": 1.0}),
    (15.0, "end", {"seconds": 15.0}),
]


def write(folder: Path, rank: int, lines: list[tuple[float, str, dict[str, Any]]]) -> None:
    text = "".join(json.dumps({"event": name, "time": 1e9 + at, **fields}) + "\n" for at, name, fields in lines)
    (folder / f"events.rank{rank}.jsonl").write_text(text)


def test_all_seconds_of_a_run_are_in_some_stage(tmp_path: Path) -> None:
    lines = [
        (at, name, {**fields, **({"input_seconds": 0.5} if name == "window" else {})}) for at, name, fields in RANK
    ]
    write(tmp_path, 0, lines)
    assert stages(events.read_job(tmp_path, 1), 18.0) == {
        "processes": 3.0,
        "import": 2.0,
        "meeting": 0.0,
        "build": 3.0,
        "first_step": 3.0,
        "warm_up": 1.0,
        "windows": 1.5,
        "input": 0.5,
        "skew": 0.0,
        "checks": 4.0,
    }


def test_waits_for_other_ranks_are_told(tmp_path: Path) -> None:
    met = [(at + (1.0 if at else 0.0), name, fields) for at, name, fields in RANK]
    met = [met[0], (1.0, "met", {}), met[1], (4.0, "agreed", {}), *met[2:]]
    late = [(at, name, {**fields, "seconds": 2.6} if name == "window" else fields) for at, name, fields in met]
    write(tmp_path, 0, met)
    write(tmp_path, 1, late)
    found = stages(events.read_job(tmp_path, 2), 18.0)
    assert (found["meeting"], found["import"], found["build"]) == (2.0, 2.0, 2.0)
    assert (found["skew"], found["windows"]) == (pytest.approx(0.6), pytest.approx(2.0))
    assert sum(found.values()) == pytest.approx(18.0)


def test_a_run_that_did_not_end_has_none(tmp_path: Path) -> None:
    write(tmp_path, 0, RANK[:-1])
    assert stages(events.read_job(tmp_path, 1), 18.0) == {}


def test_shares_are_of_all_runs_and_add_up(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert call("compare", "-f", "fake", "-m", "bert_tiny", "--env", "current", "-r", 2, "-o", folder).returncode == 0
    one, two = records(folder)
    found = goodput.shares([one, two])
    assert sum(found.values()) == pytest.approx(1.0)
    assert goodput.goodput(found) == pytest.approx(found["warm_up"] + found["windows"])
    lost = replace(two, seconds=one.seconds, stages={}, failure=Failure("timeout", ""))
    assert goodput.shares([one, lost])["failed"] == pytest.approx(0.5)
    assert goodput.shares([one, replace(two, stages={})]) == {}, "an older record"
    assert sum(goodput.rounded(found, 1000).values()) == 1000
    shown = _table(one, two, lost)
    stages_from = [column.title for column in shown.columns].index("goodput") + 1
    for row in shown.rows:
        assert sum(float(cell) for cell in row.cells[stages_from:]) == pytest.approx(100.0)
    assert "Where the time went" in (folder / "report.md").read_text()
    assert {"environments", "proofs"} <= json.loads((folder / "seconds.json").read_text()).keys()


def _table(*several: Record) -> Any:
    made = Comparison({}, {}, "", "", len(several), (several[0].job,), several, ())
    return table.table(list(summarized(made).values()))


def test_what_was_spent_besides_the_runs_is_told() -> None:
    made = Comparison({}, {}, "", "", 0, (), (), (), seconds={"environments": 61.2, "batch sizes": 0.3, "proofs": 9.6})
    told = "The runs took 0 s; before them, environments 61 s and proofs 10 s."
    assert told in report.render(made)["report.md"]


def test_every_stage_has_a_title() -> None:
    assert list(table.TITLES) == [*STAGES, goodput.FAILED]
