"""The rules over comparisons: published ones, changed in one place; and that our own pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from places import ROOT

from dlperf.audit.cells import subject
from dlperf.audit.findings import ERROR, WARNING, Finding
from dlperf.audit.rules import audit
from dlperf.comparison import store
from dlperf.schema import Comparison, Record, Window

PUBLISHED = ROOT / "report" / "published"
OWN = sorted(path.parent.name for path in PUBLISHED.glob("20*/results.json") if path.parent.name[:4] != "2020")


@cache
def opened(name: str) -> Comparison:
    return store.read(PUBLISHED / name)[0]


def told(comparison: Comparison) -> set[tuple[str, str]]:
    return {(one.rule, one.severity) for one in audit(subject(comparison, "own"))}


def with_first(comparison: Comparison, **fields: Any) -> Comparison:
    """With other fields of its first run; those of Window are of that run's last window."""
    first, *others = comparison.records
    of_window = {key: fields.pop(key) for key in list(fields) if key in Window.__dataclass_fields__}
    if of_window:
        *windows, last = first.windows
        first = replace(first, windows=(*windows, replace(last, **of_window)))
    return replace(comparison, records=(replace(first, **fields), *others))


@pytest.mark.parametrize("name", OWN)
def test_our_own_reports_have_no_error(name: str) -> None:
    assert [one for one in audit(subject(opened(name), name)) if one.severity == ERROR] == []


def test_a_report_has_its_warnings() -> None:
    found = audit(subject(opened("2026-11-27-h200-fp16-resnet50"), "h200"))
    assert {(one.rule, one.found) for one in found} >= {
        ("few runs or steps", "2"),
        ("throttling and foreign load", "the power limit"),
    }
    assert all(one.cell.startswith("h200: ") and one.where for one in found)


CALM = "2026-11-27-cpu-amp"


def test_a_calm_comparison_has_none() -> None:
    assert told(opened(CALM)) == set()


@pytest.mark.parametrize(
    ("fields", "rule", "severity"),
    [
        ({"steps": 1, "samples": 4}, "steps of the protocol", ERROR),
        ({"samples": 32}, "samples of a window", ERROR),
        ({"seconds": 400.0}, "clocks", ERROR),
        ({"seconds": -1.0}, "clocks", ERROR),
        ({"started": "2020-01-01T00:00:00+00:00"}, "clocks", ERROR),
        ({"loss": float("nan")}, "loss", ERROR),
        ({"loss": 200.0}, "loss", ERROR),
        ({"loss": None}, "loss", WARNING),
        ({"loss": 15.0}, "loss", WARNING),
        ({"conditions": {"cpu_others_share": 0.9}}, "throttling and foreign load", WARNING),
        ({"conditions": {"cpu_steal_share": 0.9}}, "throttling and foreign load", WARNING),
        ({"conditions": {"cpu_throttles": 3.0}}, "throttling and foreign load", WARNING),
        ({"conditions": {"gpu_others": 1.0}}, "throttling and foreign load", WARNING),
        ({"parameter_count": 7}, "same work", ERROR),
    ],
)
def test_a_run_that_is_changed_is_found(fields: Mapping[str, Any], rule: str, severity: str) -> None:
    assert (rule, severity) in told(with_first(opened(CALM), **fields))


def test_runs_at_one_time_windows_that_differ_and_few_runs() -> None:
    calm = opened(CALM)
    first = min(calm.records, key=lambda one: one.started)
    twice = [replace(one, started=first.started) if one is not first else one for one in calm.records[:9]]
    assert ("clocks", WARNING) in told(replace(calm, records=tuple(twice)))
    slow = with_first(calm, seconds=calm.records[0].windows[-1].seconds * 1.5, stages={})
    assert ("windows alike", WARNING) in told(slow)
    two = replace(calm, records=tuple(one for one in calm.records if one.repeat < 2))
    assert ("few runs or steps", WARNING) in told(two)


def test_blocks_of_runs_follow_each_other_but_for_what_is_run_again() -> None:
    calm = opened(CALM)
    early, late = sorted((one for one in calm.records if one.job.id == calm.jobs[0].id), key=lambda one: one.repeat)[:2]
    moved = {id(early): replace(early, started=late.started), id(late): replace(late, started=early.started)}
    swapped = replace(calm, records=tuple(moved.get(id(one), one) for one in calm.records))
    assert [one.severity for one in only(audit(subject(swapped, "own")), "clocks") if "block" in one.expected] == [
        ERROR
    ]
    again = replace(early, started="2099-01-01T00:00:00+00:00", block=max(one.block or 0 for one in calm.records) + 1)
    resumed = replace(calm, records=tuple(again if one is early else one for one in calm.records))
    assert told(resumed) == set()


def test_a_run_whose_clock_is_below_its_sisters() -> None:
    calm = opened(CALM)

    def at(record: Record, mhz: float) -> Record:
        windows = [replace(one, conditions={**one.conditions, "cpu_mhz": mhz}) for one in record.windows]
        return replace(record, windows=tuple(windows))

    records = [at(one, 2596.0) for one in calm.records]
    assert told(replace(calm, records=tuple(records))) == set()
    records[0] = at(records[0], 1490.0)
    found = audit(subject(replace(calm, records=tuple(records)), "own"))
    assert [(one.rule, one.severity, one.found) for one in found] == [
        ("throttling and foreign load", WARNING, "1,490 MHz")
    ]


def test_rows_without_a_proof_or_of_other_work() -> None:
    calm = opened(CALM)
    assert ("same work", WARNING) in told(replace(calm, proofs={}))
    job = calm.records[0].job.id
    odd = [
        replace(one, work={"verdict": "different", "why": "x"}) if one.job.id == job else one for one in calm.records
    ]
    assert ("same work", ERROR) in told(replace(calm, records=tuple(odd)))


def test_rows_are_cells_to_the_rules_of_tables() -> None:
    """8 devices that do more than 8 times one; and one that is beyond its peak."""
    h200 = opened("2026-11-27-h200-fp16-resnet50")

    def on(record: Record, devices: int, times: float) -> Record:
        name = f"{record.job.id}-{devices}"
        job = replace(record.job, id=name, nproc_per_node=devices)
        windows = [
            replace(one, samples=round(one.samples * devices), seconds=one.seconds * devices / times)
            for one in record.windows
        ]
        return replace(record, job=job, windows=tuple(windows))

    more = [on(one, 8, 8.5) for one in h200.records]
    jobs = {one.job.id: one.job for one in more}
    found = audit(subject(replace(h200, records=(*h200.records, *more), jobs=(*h200.jobs, *jobs.values())), "own"))
    assert ("super-linear", ERROR) in {(one.rule, one.severity) for one in found}
    fast = [on(one, 1, 9) for one in h200.records]
    jobs = {one.job.id: one.job for one in fast}
    found = audit(subject(replace(h200, records=tuple(fast), jobs=tuple(jobs.values())), "own"))
    assert {"above the peak", "same work"} <= {one.rule for one in found if one.severity == ERROR}


def test_the_mean_of_a_logs_rates() -> None:
    calm = opened(CALM)
    about = {"estimator": "mean of the rates of each step"}
    records = [replace(one, job=replace(one.job, about=about)) for one in calm.records]
    first, second, third = records[0].windows
    records[0] = replace(records[0], windows=(first, replace(second, seconds=3 * second.seconds), third))
    found = [one for one in audit(subject(replace(calm, records=tuple(records)), "own")) if "log" in one.rule]
    assert [one.severity for one in found].count(ERROR) == 1
    assert all("as a mean of rates" in one.found for one in found)


def only(findings: list[Finding], rule: str) -> list[Finding]:
    return [one for one in findings if one.rule == rule]


def test_imported_figures_are_held_to_the_rules_of_tables() -> None:
    found = audit(subject(opened("2020-10-dlperf"), "dlperf"))
    assert [one.severity for one in only(found, "more devices slower")] == [ERROR]
    assert len(only(found, "step beyond proportional")) == 1
