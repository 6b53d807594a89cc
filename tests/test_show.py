"""`dlperf show`: a comparison in the terminal, and one of its rows."""

import dataclasses

import pytest
from commands import FAKE, call
from places import ROOT

from dlperf.comparison import store
from dlperf.report import figures_text, results_json
from dlperf.schema import Failure

PUBLISHED = ROOT / "report" / "published"
H200 = PUBLISHED / "2026-11-27-h200-fp16-bert"


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in PUBLISHED.glob("*/results.json")), ids=lambda one: one.name
)
def test_every_published_report_is_shown(folder):
    comparison = store.read(folder)[0]
    shown = call("show", folder / "results.json")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(figures_text(comparison))
    for job in comparison.jobs:
        (line,) = (one for one in shown.stdout.splitlines() if one.startswith(f"{job.id} "))
        runs = comparison.runs.get(job.id, ())
        assert line.split()[1:3] == [str(sum(run.done for run in runs)), str(sum(not run.done for run in runs))]
        one = call("show", folder, job.id)
        assert (one.returncode, one.stderr) == (0, "")
        assert len([line for line in one.stdout.split("\n\n")[1].splitlines()]) == 1 + len(runs)


def test_what_the_machine_did_and_windows_left_out_are_told_as_in_the_report():
    folder = PUBLISHED / "2026-11-27-cpu-fp32-transformer"
    told = call("show", folder).stdout.partition("\nCaveats\n")[2].partition("\n\n")[0].splitlines()
    assert len(told) == 3
    assert "the first window of every run is in no figure" in told[1]
    report = (folder / "report.md").read_text("utf-8")
    listed = report.partition("## Caveats\n\n")[2].partition("\n\n")[0].splitlines()
    assert set(told[:2]) < set(listed)
    assert told[2] == f"- {len(listed) - 2} more caveats in the report"


def test_a_row_has_its_runs_proof_versions_and_command():
    shown = call("show", H200, "jax").stdout  # by its system, since one row has it
    assert shown == call("show", H200, "bert_base-amp_fp16-jax-b64").stdout
    assert shown == call("show", H200, "JAX").stdout  # as tables have it
    assert shown == call("show", H200.name, "jax").stdout  # in a checkout
    for line in (
        "1    3,819 sentences/s  50.8     -",
        "Proof: same work: 7e-16 (fp64 of another kernel), 0.71 of its bound (fp16).",
        "  jaxlib                  0.11.2",
        "  gelu               erf",
        "Command of run 2:",
        "#!/bin/sh",
    ):
        assert line in shown.splitlines()


def test_logs_and_failures_of_a_folder_are_named(tmp_path):
    out = tmp_path / "out"
    call("compare", *FAKE, "--set", "behave=crash", "--set", "clock=virtual", "-r", 1, "-o", out)
    (job,) = store.read(out)[0].jobs
    assert f"  0  1       crash  {out / 'runs' / job.id}\n" in call("show", out).stdout
    shown = call("show", out, job.id).stdout
    assert f"{out / 'runs' / job.id / '0'}  crash: " in shown
    assert "Proof: no proof" in shown


def test_a_row_or_run_that_is_not_there_is_one_message(tmp_path):
    said = call("show", H200, "bert_base-amp_fp16-jx-b64")
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
    assert said.stderr.endswith("Did you mean 'bert_base-amp_fp16-jax-b64'?\n")
    said = call("show", tmp_path)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)


def test_what_a_run_told_cannot_command_the_terminal(tmp_path):
    comparison = store.read(H200)[0]
    first, *others = comparison.records
    odd = dataclasses.replace(first, failure=Failure("crash", "a\x1b[2Jb\nc"), versions={"x": "\x1b]0;t\x07y"})
    path = tmp_path / "results.json"
    path.write_text(results_json(dataclasses.replace(comparison, records=(odd, *others))))
    for words in ((path,), (path, odd.job.id)):
        shown = call("show", *words).stdout
        assert "\x1b" not in shown
    assert "crash: ab c" in shown
