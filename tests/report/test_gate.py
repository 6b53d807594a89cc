"""The conditions of publishing: each is met by a comparison that is fit for it, and each failure names its row."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from places import ROOT

from dlperf import report
from dlperf.comparison import store
from dlperf.report import gate
from dlperf.report.index import HEAD, head
from dlperf.schema import Comparison, Failure, Record

PUBLISHED = ROOT / "report" / "published"


@pytest.fixture(scope="module")
def fit() -> Comparison:
    """One of 168 runs that was published, as it would be if its machine had been idle and it knew its commit."""
    made = store.open_results(PUBLISHED / "2026-11-23-cpu-aa" / "results.json")
    records = tuple(
        dataclasses.replace(
            record,
            windows=tuple(dataclasses.replace(one, conditions=quiet(one.conditions)) for one in record.windows),
        )
        for record in made.records
    )
    machine = {**made.machine, "load_average": [0.1, 0.1, 0.1]}
    return dataclasses.replace(made, records=records, machine=machine, revision="1234567")


def quiet(conditions: Any) -> dict[str, float]:
    return {name: 0.0 if name.startswith(("cpu_others", "cpu_steal")) else value for name, value in conditions.items()}


def with_runs(comparison: Comparison, change: Any) -> Comparison:
    """With each run of the first row as `change` makes it; those without are left out."""
    row = comparison.jobs[0].id
    made = [change(record) if record.job.id == row else record for record in comparison.records]
    return dataclasses.replace(comparison, records=tuple(record for record in made if record))


def conditions(comparison: Comparison, *changed: str) -> list[str]:
    return [one.condition for one in gate.unmet(comparison, changed)]


def test_a_comparison_that_is_fit_meets_all(fit: Comparison) -> None:
    assert gate.unmet(fit) == []
    assert gate.told([]) == ()


@pytest.mark.parametrize(("steps", "runs", "met"), [(19, 6, False), (20, 6, True), (19, 7, True)])
def test_few_steps_need_many_runs(fit: Comparison, steps: int, runs: int, met: bool) -> None:
    few = {**fit.spec, "protocol": {**fit.spec["protocol"], "windows": 1, "steps_per_window": steps, "repeats": runs}}
    records = tuple(record for record in fit.records if record.repeat < runs)
    made = dataclasses.replace(fit, spec=few, records=records, planned=len(records))
    assert conditions(made) == ([] if met else ["protocol"])


def test_a_ranked_row_has_three_runs(fit: Comparison) -> None:
    asked = {**fit.spec, "protocol": {**fit.spec["protocol"], "repeats": 2}}
    few = dataclasses.replace(fit, spec=asked, records=tuple(one for one in fit.records if one.repeat < 2))
    assert set(conditions(few)) == {"runs"}
    assert len(conditions(few)) == len(fit.jobs)
    says = gate.unmet(few)[0].says
    assert says.endswith(
        ": 2 runs. Make 3 or more: with --repeats, or where some failed with --resume RUN --retry-failed."
    )
    asked["protocol"]["repeats"] = 3
    enough = dataclasses.replace(fit, spec=asked, records=tuple(one for one in fit.records if one.repeat < 3))
    assert conditions(enough) == []


def test_the_machine_was_idle_when_it_began(fit: Comparison) -> None:
    busy = dataclasses.replace(fit, machine={**fit.machine, "load_average": [1.5, 0.0, 0.0]})
    [told] = gate.unmet(busy)
    assert told == (
        "load",
        "The machine was busy when the comparison started (load average 1.50). Measure again when it is idle.",
    )


def test_others_took_no_time_from_its_runs(fit: Comparison) -> None:
    for name, says in (("cpu_others_share", "Other processes took"), ("cpu_steal_share", "Other guests of this")):

        def taken(record: Record, name: str = name) -> Record:
            windows = [dataclasses.replace(one, conditions={name: 0.3}) for one in record.windows]
            return dataclasses.replace(record, windows=tuple(windows))

        [told] = gate.unmet(with_runs(fit, taken))
        assert told.condition == "contention"
        assert told.says.startswith(says)

        def once(record: Record, name: str = name) -> Record:
            """In one run of several, which is a caveat: it hardly moves the row's rate."""
            share = 0.0 if record.repeat else 0.06
            windows = [dataclasses.replace(one, conditions={name: share}) for one in record.windows]
            return dataclasses.replace(record, windows=tuple(windows))

        assert conditions(with_runs(fit, once)) == []

    def shared(record: Record) -> Record:
        windows = [dataclasses.replace(one, conditions={"gpu_others": 1.0}) for one in record.windows]
        return dataclasses.replace(record, windows=tuple(windows))

    assert conditions(with_runs(fit, shared)) == ["contention"]


def test_each_row_with_figures_is_proven(fit: Comparison) -> None:
    row = fit.jobs[0]
    without = dataclasses.replace(fit, proofs={job: one for job, one in fit.proofs.items() if job != row.id})
    [told] = gate.unmet(without)
    assert told.condition == "proof"
    assert "no proof" in told.says
    certificates = fit.proofs[row.id]
    other = (dataclasses.replace(certificates[0], verdict="different", why="gradients differ"), *certificates[1:])
    assert conditions(dataclasses.replace(fit, proofs={**fit.proofs, row.id: other})) == ["proof"]


def test_a_row_lacks_no_runs_without_a_reason(fit: Comparison) -> None:
    def failed(message: str, least: int = 0) -> Comparison:
        failure = Failure("crash", message)

        def fails(record: Record) -> Record:
            return dataclasses.replace(record, windows=(), failure=failure) if record.repeat >= least else record

        return with_runs(fit, fails)

    assert conditions(failed("out of luck")) == []  # of which the report tells
    [told] = gate.unmet(failed(" "))
    assert told.condition == "failures"
    assert "nothing says why it failed (runs/" in told.says
    assert conditions(failed("", least=3)) == ["failures"]
    [told] = gate.unmet(with_runs(fit, lambda record: record if record.repeat < 4 else None))
    assert told.condition == "failures"
    assert "of 7 were not made. Make them with --resume RUN." in told.says


@pytest.mark.parametrize("revision", ["", "1234567 with changes", "1234567 and 89abcde with changes"])
def test_a_commit_says_what_made_it(fit: Comparison, revision: str) -> None:
    assert conditions(dataclasses.replace(fit, revision=revision)) == ["commit"]
    assert conditions(dataclasses.replace(fit, revision="1234567 and 89abcde")) == []
    assert conditions(dataclasses.replace(fit, revision="sha256:0123456789ab")) == []


def test_its_records_are_as_they_were_written(fit: Comparison) -> None:
    assert conditions(dataclasses.replace(fit, caveats=("Records were removed",))) == ["records"]
    assert conditions(fit, "line 3 was edited") == ["records"]


def test_each_condition_is_told_once_at_the_top_of_a_report(fit: Comparison) -> None:
    unmet = gate.told(["commit", "load", "commit", "runs"])
    made = report.render(dataclasses.replace(fit, unmet=unmet))
    says = (
        "Published although no commit of dlperf says what made it, the machine was busy when it began and a ranked row "
        "has fewer than 3 runs."
    )
    assert f"**{says}**" in "\n".join(made["report.md"].splitlines()[:6])
    assert f"<p><strong>{says}</strong></p>" in made["report.html"]
    assert report.render(store.results(made["results.json"].encode(), "")) == made


def test_a_list_keeps_what_stands_above_its_entries() -> None:
    page = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    assert head(page) == HEAD
    assert head("# Mine\n\n## Part\n\ntext\n\n\n") == "# Mine\n\n## Part\n\ntext\n"
    assert head("# Mine\n\n## Why steps differ\n\n- x\n") == "# Mine\n"
