"""The report: golden files, escaping, intervals with known truth, charts, and what the machine says of itself."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from statistics import median

import places
import pytest
from colours import contrast
from jinja2 import Environment, nodes

from dlperf import machine, markdown, report
from dlperf.adapters import gpu
from dlperf.figures import dlperf2020, ranking, rates, rows, speedup, statistics
from dlperf.figures import summaries as summaries_
from dlperf.figures.statistics import Estimate
from dlperf.report import caveats, charts, sampled, text
from dlperf.report.index import index
from dlperf.report.shape import Scaling
from dlperf.report.view import machine as machine_table
from dlperf.report.view import view
from dlperf.schema import Bound, Certificate, Comparison, Difference, Failure, Job, Record, Skip, Trajectory, Window
from dlperf.sources import dlperf_v1
from dlperf.stored import comparison_from

GOLDEN = places.GOLDEN / "report"
PUBLISHED = sorted((places.ROOT / "report" / "published").glob("*/results.json"))
HOSTILE = "<script>alert(1)</script> | ``` ` [x](http://example.invalid) $x$ \x1b[31mred\x1b[0m\n# heading"
TITLES = {
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
    "mxnet": "MXNet",
    "jax": "JAX",
    "paddle": "PaddlePaddle",
    "oneflow": "OneFlow",
}
PROTOCOL = {"name": "quick", "warmup_steps": 2, "windows": 3, "steps_per_window": 2, "repeats": 3}
FAMILIES = {"resnet50": "resnet", "bert_base": "bert", "gpt2_256": "gpt"}


# A comparison made by hand


def job(system: str, model: str, asked: str, precision: str, batch: int, **changes: object) -> Job:
    adapter = re.split(r"[+ ]", system)[0]
    made = Job(
        id=text.slug(f"{system}-{model}-{asked}-{batch}"),
        system=system,
        adapter=adapter,
        title=TITLES[adapter],
        model=model,
        family=FAMILIES[model],
        device="cpu",
        precision_asked=asked,
        precision=precision,
        batch_size=batch,
        input="synthetic",
        data_dir=None,
        options={"compile": "on" if "+compile" in system else "off"},
        environment="cpu",
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def run(of: Job, repeat: int, rate: float, **changes: object) -> Record:
    """A run whose three windows give this rate in total, the middle one 1 % slower than the first."""
    samples = 2 * of.global_batch_size
    windows = tuple(
        Window(index, 2, samples, seconds=samples / rate * share, cpu_seconds=1.9 * samples / rate * share, loss=6.9)
        for index, share in enumerate((0.995, 1.005, 1.0))
    )
    made = Record(
        job=of,
        repeat=repeat,
        started=f"2026-11-20T10:{repeat:02}:00Z",
        seconds=20.0 + repeat,
        command=f"#!/bin/sh\n# {of.id}, repeat {repeat + 1} of 3\nexport OMP_NUM_THREADS=2\n"
        f"python -m dlperf.adapters.worker runs/{of.id}/{repeat}/job.json",
        folder=f"runs/{of.id}/{repeat}",
        environment={"kind": "venv", "python": "3.11.7", "digest": "0123456789abcdef" + of.adapter},
        versions={of.adapter: "1.2.3", "numpy": "2.0.0"},
        parameter_count=25_557_032 if of.family == "resnet" else 110_106_428,
        effective=effective(of),
        windows=windows,
        start_seconds=3.5,
        first_step_seconds=1.25 + repeat,
        peak_memory_bytes=3 * 2**30,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def effective(of: Job) -> dict[str, str]:
    common = {"precision": of.precision, "compute_dtype": "bfloat16" if "bf16" in of.precision else "float32"}
    more = {"layout": "NHWC"} if of.family == "resnet" else {"clip_norm": of.options.get("clip_norm", "1.0")}
    compile_ = {"tensorflow": "tf.function", "pytorch": "inductor" if "+compile" in of.system else "none"}
    return {**common, "compile": compile_.get(of.adapter, "jit"), "threads": "2", **more}


def failed(of: Job, repeat: int, failure: Failure) -> Record:
    nothing: dict[str, object] = {"windows": (), "first_step_seconds": None, "peak_memory_bytes": None}
    return run(of, repeat, 1.0, failure=failure, parameter_count=None, effective={}, versions={}, **nothing)


def runs(of: Job, rates: Iterable[float]) -> list[Record]:
    return [run(of, repeat, rate) for repeat, rate in enumerate(rates)]


def certificate(of: Job, precision: str, **changes: object) -> Certificate:
    """Proof that a system did the same work, as far as a report shows it."""
    low = precision.startswith("amp")
    trajectory = Trajectory(
        system=of.system,
        adapter=of.adapter,
        title=of.title,
        of=of.model,
        model=of.model + ("" if precision == "fp32" else "_check"),
        family=of.family,
        device=of.device,
        precision=precision,
        batch_size=4,
        steps=10,
        seed=1,
        options=of.options,
        definition="0123",
        seconds=12.3,
        peak_memory_bytes=2**31,
        losses=(7.0,) * 10,
    )
    tensors = (1e-14, "logits", 2e-12, "bn1.bias", 4e-11, "fc.weight", 5e-15, "bn1.running_var")
    found = Difference("reference", (0.0, 3e-13), 2e-13, *tensors, None, 3e-13, 5e-12)
    bounds = (Bound("logits", 2e-7, 4e-3, least=5e-5, most=1.3e-2),) if low else ()
    made = Certificate(trajectory, "same", size=3e-13, differences=(found,), bounds=bounds)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def proven(jobs: Iterable[Job]) -> dict[str, tuple[Certificate, ...]]:
    return {job.id: (certificate(job, "fp64"), certificate(job, job.precision)) for job in jobs}


def skip(system: str, model: str, asked: str, precision: str, status: str, why: str) -> Skip:
    return Skip(system, system, TITLES[system], model, FAMILIES[model], "cpu", asked, precision, status, why)


def comparison() -> Comparison:
    """Two models: rows with n=3, a tie, 1 of 3 failed, all failed with hostile text, skips, untested, n=1."""
    resnet = ("resnet50", "amp", "amp_bf16", 16)
    bert = ("bert_base", "fp32", "fp32", 4)
    torch, tensorflow, mxnet, jax = (job(name, *resnet) for name in ("pytorch", "tensorflow", "mxnet", "jax"))
    compiled = job("pytorch+compile", *resnet, untested=True)
    bert_torch = job("pytorch", *bert)
    bert_free = job("pytorch clip_norm=off", *bert, options={"compile": "off", "clip_norm": "off"})
    bert_oneflow = job("oneflow", *bert)
    killed = Failure("killed", "the process was ended by signal 9", ("step 3", "Killed"))
    hostile = Failure("crash", HOSTILE, ("Traceback:", HOSTILE, "````", "</pre>"))
    records = [
        *runs(torch, (19.9, 20.4, 20.1)),
        *runs(tensorflow, (19.0, 20.3, 19.8)),
        *(run(mxnet, 0, 9.6), failed(mxnet, 1, killed), run(mxnet, 2, 9.9)),
        *(failed(jax, repeat, hostile) for repeat in range(3)),
        run(compiled, 0, 14.2),
        *runs(bert_torch, (1.61, 1.59, 1.62)),
        *runs(bert_free, (1.66, 1.64, 1.65)),
        *runs(bert_oneflow, (0.341, 0.338, 0.344)),
    ]
    jobs = (torch, tensorflow, mxnet, jax, compiled, bert_torch, bert_free, bert_oneflow)
    parted = "against the reference, its losses part at step 3, by 2e-04 at most"
    exception = "running variances of BatchNorm: biased; up to 2e-02 off, taken out before comparing"
    proofs = proven(jobs)
    proofs[mxnet.id] = (certificate(mxnet, "fp64", exceptions=(exception,)), certificate(mxnet, "amp_bf16"))
    proofs[jax.id] = (certificate(jax, "fp64", verdict="unproven", why=HOSTILE, size=None, differences=()),)
    altered = certificate(bert_oneflow, "fp64", verdict="different", why=parted, size=2e-4)
    proofs[bert_oneflow.id] = (altered, certificate(bert_oneflow, "fp32"))
    return Comparison(
        spec={"models": ["resnet50", "bert_base"], "threads": 2, "seed": 1, "protocol": PROTOCOL},
        machine={
            "cpu": "Example CPU @ 2.00GHz",
            "architecture": "x86_64",
            "sockets": 1,
            "cores": 2,
            "threads": 2,
            "usable_threads": 2,
            "instruction_sets": ["avx2", "avx512_bf16"],
            "memory_bytes": 16 * 2**30,
            "kernel": "Linux 6.1.0",
            "os": "Example OS 12",
            "virtual": "yes",
            "load_average": [0.75, 0.5, 0.25],
        },
        created="2026-11-20T10:00:00Z",
        version="0.1.0",
        planned=24,
        jobs=jobs,
        records=tuple(records),
        skips=(
            skip("paddle", *resnet[:3], "unavailable", "PaddlePaddle 3.3 has no bfloat16 kernels on CPU"),
            skip("oneflow", *resnet[:3], "unavailable", "autocast on CPU does nothing"),
            skip("mxnet", *bert[:3], "environment", "no Python 3.10 was found"),
        ),
        commands={"pytorch cpu": "python3.11 -m venv ENV\nENV/bin/pip install -r requirements.cpu.txt"},
        proofs=proofs,
    )


def placed(name: str, nnodes: int, nproc: int, rates: Iterable[float], **changes: object) -> list[Record]:
    """Runs of a row on nnodes nodes, whose probe ran at 2 GB/s within a node and 0.5 GB/s between nodes."""
    of = job(name, "resnet50", "fp32", "fp32", 16, nnodes=nnodes, nproc_per_node=nproc)
    of = dataclasses.replace(of, **{"id": f"{of.id}-{nnodes}x{nproc}", **changes})  # type: ignore[arg-type]
    made = runs(of, rates)
    if of.world_size == 1:
        return made
    seconds = 2 * (of.world_size - 1) / of.world_size * 1e7 / (2e9 if nnodes == 1 else 0.5e9)
    communication = {"gradient_bytes": 4.0 * 25_557_032, "all_reduce_bytes": 1e7, "all_reduce_seconds": seconds}
    hosts = tuple(f"host{rank // nproc}" for rank in range(of.world_size))
    return [
        dataclasses.replace(
            record,
            hosts=hosts,
            communication=communication,
            windows=tuple(dataclasses.replace(w, skew_seconds=0.02 * w.seconds) for w in record.windows),
        )
        for record in made
    ]


def grid(predict: tuple[int, ...] = (), **changes: object) -> Comparison:
    """DLPerf's rows: 1x1, 1x8, 2x8 and 4x8 of three systems; one without figures at 4x8, one without its 1x1."""
    mpi = {"launcher": "mpi"}
    records = [
        *placed("pytorch", 1, 1, (10.0, 10.1, 9.9), **mpi),
        *placed("pytorch", 1, 8, (76.0, 75.2, 76.9), **mpi),
        *placed("pytorch", 2, 8, (143.0, 142.1, 144.2), **mpi),
        *placed("pytorch", 4, 8, (281.0, 279.1, 282.2), **mpi),
        *placed("tensorflow", 1, 1, (9.0, 9.3, 9.1), **mpi),
        *placed("tensorflow", 1, 8, (60.0, 61.2, 60.9), **mpi),
        *placed("tensorflow", 2, 8, (101.0, 103.1, 102.2), **mpi),
        *placed("jax", 1, 8, (70.0, 71.0, 70.4), **mpi),
    ]
    lost = job("tensorflow", "resnet50", "fp32", "fp32", 16, nnodes=4, nproc_per_node=8, id="lost", **mpi)
    records.append(failed(lost, 0, Failure("timeout", "rank 9 on host1 did not start")))
    jobs = tuple({record.job.id: record.job for record in records}.values())
    spec = {"threads": 2, "protocol": PROTOCOL, **({"predict": list(predict)} if predict else {})}
    made = dataclasses.replace(comparison(), jobs=jobs, records=tuple(records), skips=(), spec=spec, planned=27)
    return dataclasses.replace(made, proofs=proven(jobs), **changes)  # type: ignore[arg-type]


# Golden files


@pytest.fixture
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No chart is drawn for files that are compared without them: it takes longer than all the rest."""
    if not request.config.getoption("--update-golden"):
        monkeypatch.setattr(charts, "svg", lambda chart, name: "<svg></svg>\n")


def without_charts(page: str) -> str:
    """matplotlib's versions draw with other digits."""
    return re.sub(r"<svg.*?</svg>", "<svg></svg>", page, flags=re.DOTALL)


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("name", ["report.md", "report.html", "results.csv"])
def test_the_report_of_a_grid_is_as_its_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    made = without_charts(report.render(grid((64, 128)))[name])
    golden = GOLDEN.parent / "report-scaling" / name
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(made, encoding="utf-8")
    assert made == golden.read_text(encoding="utf-8"), "`pytest --update-golden` rewrites the golden files"


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("name", ["report.md", "report.html", "results.csv", "results.json"])
def test_the_report_is_as_its_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    made = without_charts(report.render(comparison())[name])
    golden = GOLDEN / name
    if request.config.getoption("--update-golden"):
        golden.write_text(made, encoding="utf-8")
    assert made == golden.read_text(encoding="utf-8"), "`pytest --update-golden` rewrites the golden files"


@pytest.mark.usefixtures("_undrawn")
def test_the_published_grid_of_dlperf_is_a_report_that_begins_with_its_tables(request: pytest.FixtureRequest) -> None:
    folder = places.ROOT / "report" / "published"
    tables = dlperf2020.read_published(dlperf_v1().figures)
    made = report.render(dlperf2020.comparison(tables))
    if request.config.getoption("--update-golden"):
        report.place(made, folder / "2020-10-dlperf")
    assert made["results.json"] == (folder / "2020-10-dlperf" / "results.json").read_text(encoding="utf-8")
    first = made["report.md"].partition("## ResNet-50 v1.5, fp32, CUDA")[2].partition("![")[0]
    assert "| 4n32d | 12,412 | 11,332 | 9,515 | 10,917 | 9,580 | 9,418 | 10,021 | 9,348 |" in first
    assert "| 4n32d | 31.21 | 28.89 | 26.25 | 29.72 | 24.93 | 29.27 | 28.75 | 26.50 |" in first


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("results", PUBLISHED, ids=lambda results: results.parent.name)
def test_a_published_report_is_what_its_results_give(results: Path, request: pytest.FixtureRequest) -> None:
    """With every Python. results.json itself stays as its run wrote it: later versions of dlperf add keys to it."""
    made = report.render(comparison_from(json.loads(results.read_text(encoding="utf-8"))))
    del made["results.json"]
    if request.config.getoption("--update-golden"):
        for name, content in made.items():
            (results.parent / name).write_text(content, encoding="utf-8")
    for name in ("report.md", "report.html", "results.csv"):
        held = (results.parent / name).read_text(encoding="utf-8")
        assert without_charts(made[name]) == without_charts(held), f"`pytest --update-golden` renders {name} again"


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize(
    "held", sorted(PUBLISHED[0].parent.parent.glob("*/why.json")), ids=lambda held: held.parent.name
)
def test_a_published_explanation_is_what_its_file_gives(held: Path, request: pytest.FixtureRequest) -> None:
    made = report.render_why(report.read_why(held))
    if request.config.getoption("--update-golden"):
        for name, content in made.items():
            (held.parent / name).write_text(content, encoding="utf-8")
    for name in ("why.json", "why.md", "why.html"):
        page = (held.parent / name).read_text(encoding="utf-8")
        assert without_charts(made[name]) == without_charts(page), f"`pytest --update-golden` renders {name} again"


def published(name: str) -> Comparison:
    path = places.ROOT / "report" / "published" / name / "results.json"
    return comparison_from(json.loads(path.read_text(encoding="utf-8")))


def test_of_rows_that_tie_behind_the_fastest_none_is_said_to_come_next() -> None:
    one = view(published("2026-11-27-cpu-fp32")).sections[0]
    assert one.summary == (
        "On this machine Apache MXNet was fastest: 14.19 img/s [13.47, 14.51], n=7. PyTorch and TensorFlow came next, "
        "not told apart, at 0.951 [0.935, 0.967] and 0.946 [0.918, 0.975] of the rate of Apache MXNet. Rows stand by "
        "their ratios, of runs in the same block: by medians TensorFlow is before PyTorch."
    )
    assert one.chart is not None
    assert one.chart.title == "Apache MXNet was fastest, 1.05 times PyTorch and 1.06 times TensorFlow"


def test_a_row_has_the_runs_of_its_rate_and_its_environment() -> None:
    report_ = view(published("2026-11-27-cpu-fp32"))
    one = next(command for command in report_.commands if command.anchor == "row-resnet50-fp32-mxnet-b16")
    assert one.runs is not None
    assert [column.title for column in one.runs.columns] == ["run", "img/s", "img", "seconds", "windows"]
    assert len(one.runs.rows) == 7
    for row in one.runs.rows:
        rate, images, seconds = map(float, row.cells[1:4])
        assert rate == pytest.approx(images / seconds, rel=1e-3)
    assert f"{median(float(row.cells[1]) for row in one.runs.rows):.2f}" == "14.19"
    assert one.environment == "environment-mxnet-cpu"
    assert one.environment in [command.anchor for command in report_.environment_commands]


def test_the_list_of_published_reports_is_what_they_give(request: pytest.FixtureRequest) -> None:
    results = {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in PUBLISHED}
    folder = PUBLISHED[0].parent.parent
    explained = {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*/why.json")}
    made = index({name: comparison_from(data) for name, data in results.items()}, explained)
    page = folder / "README.md"
    if request.config.getoption("--update-golden"):
        page.write_text(made, encoding="utf-8")
    assert made == page.read_text(encoding="utf-8"), "`pytest --update-golden` writes the list again"


def test_files_are_written_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    report.write(comparison(), tmp_path / "new")
    report.write(comparison(), tmp_path / "new")
    found = sorted(str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*") if path.is_file())
    pictures = ["charts/bert_base-fp32-cpu.svg", "charts/resnet50-amp-cpu.svg"]
    assert found == [*pictures, "report.html", "report.md", "results.csv", "results.json"]
    assert not list((tmp_path / "new").glob(".report-*"))


def test_an_unwritable_place_leaves_the_old_report(tmp_path: Path) -> None:
    (tmp_path / "charts").write_text("in the way")
    (tmp_path / "report.md").write_text("old")
    with pytest.raises(OSError, match="charts"):
        report.write(comparison(), tmp_path)
    assert (tmp_path / "report.md").read_text() == "old"


def test_results_json_gives_the_comparison_back() -> None:
    data = json.loads(report.results_json(comparison()))
    assert data["schema"] == 1
    assert comparison_from(data) == comparison()


def test_the_kind_of_a_system_is_found_in_older_files_too() -> None:
    data = json.loads(report.results_json(comparison()))
    for row in (*data["jobs"], *data["skips"]):
        del row["kind"]
    told = {"script": "theirs at 0123456", "image": "cpu"}
    data["jobs"][0]["upstream"] = data["skips"][0]["upstream"] = told
    del data["jobs"][0]["about"]
    found = comparison_from(data)
    assert [job.kind for job in found.jobs] == ["upstream"] + ["native"] * (len(found.jobs) - 1)
    assert found.jobs[0].about == told
    assert [skip.kind for skip in found.skips] == ["upstream", "native", "native"]
    data["jobs"][0]["kind"] = "borrowed"
    with pytest.raises(ValueError, match="kind is 'borrowed', not one of native, upstream"):
        comparison_from(data)


def test_results_csv_has_one_line_per_run() -> None:
    made = report.results_csv(comparison())
    rows = list(csv.DictReader(io.StringIO(made)))
    assert len(rows) == len(comparison().records) == len(made.splitlines()) - 1
    assert float(rows[0]["throughput_samples_per_second"]) == pytest.approx(19.9)
    assert rows[0]["option.compile"] == "off"
    assert rows[0]["effective.layout"] == "NHWC"
    assert {row["failure_kind"] for row in rows} == {"", "killed", "crash"}


@pytest.mark.parametrize("told", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1"])
def test_a_spreadsheet_computes_no_text_of_a_run(told: str) -> None:
    (one, *_) = comparison().records
    made = report.results_csv(few([dataclasses.replace(one, effective={"layout": told})]))
    (row,) = csv.DictReader(io.StringIO(made))
    assert row["effective.layout"] == f"'{told.strip()}"


# Comparisons with little in them


def few(records: Sequence[Record] = (), **changes: object) -> Comparison:
    made = dataclasses.replace(comparison(), records=tuple(records), **changes)  # type: ignore[arg-type]
    return dataclasses.replace(made, proofs=proven(made.jobs))


def test_without_any_run_the_report_says_how_to_go_on() -> None:
    files = report.render(few())
    assert "0 of 24 planned runs took place" in files["report.md"]
    assert "python -m dlperf.compare --resume DIR" in files["report.md"]
    assert "not run yet" in files["report.md"]
    assert not any(name.endswith(".svg") for name in files)


def test_with_nothing_planned_there_is_still_a_report() -> None:
    empty = few(jobs=(), skips=(), planned=0, machine={}, spec={}, commands={})
    assert "Nothing was run." in report.render(empty)["report.md"]


def test_with_only_failures_there_is_no_winner() -> None:
    only = few([record for record in comparison().records if not record.done], planned=4)
    made = view(only)
    assert {section.summary for section in made.sections} == {"No system has a figure; the table says why."}
    assert report.render(only)["report.html"]


def test_rows_that_are_given_up_are_not_missing() -> None:
    """After two failures without a success, or without an environment, there is nothing to resume."""
    torch, jax = (job(name, "resnet50", "fp32", "fp32", 16) for name in ("pytorch", "jax"))
    crash, no_python = Failure("crash", "it broke."), Failure("environment", "no Python 3.11")
    twice = [failed(torch, 0, crash), failed(torch, 1, crash)]
    never = [failed(jax, 0, no_python)]
    made = view(few([*twice, *never], jobs=(torch, jax), skips=(), planned=6))
    assert made.progress == "0 runs succeeded, 3 failed; 3 runs of rows that only failed were not tried."
    assert not made.resume
    assert [row.note for row in made.sections[0].throughput.rows] == [
        "2 of 3 runs failed: crashed (it broke); the others were not tried",
        "1 of 3 runs failed: environment could not be made (no Python 3.11); the others were not tried",
    ]
    assert view(few(twice[:1], jobs=(torch,), skips=(), planned=3)).resume


def test_one_repeat_has_no_interval_and_no_tie() -> None:
    records = [record for record in comparison().records if record.repeat == 0 and record.done]
    single = few(records, planned=len(records), spec={"protocol": {**PROTOCOL, "repeats": 1}})
    summary = view(single).sections[0].summary
    assert "PyTorch had the highest rate: 19.90 img/s, n=1" in summary.replace("19.9 ", "19.90 ")
    assert "Too few repeats to tell whether TensorFlow, PyTorch+compile and MXNet differ from it." in summary
    assert "tie" not in summary


def test_a_tie_is_called_a_tie() -> None:
    made = view(comparison()).sections[0]
    assert "n=3) and TensorFlow (19.80 img/s [18.12, 21.40], n=3) were fastest; these runs do not" in made.summary
    assert [row.kind for row in made.throughput.rows[:4]] == ["fastest", "tie", "unresolved", ""]


def test_rows_of_one_system_say_how_far_apart_they_came_out() -> None:
    one = job("pytorch", "resnet50", "fp32", "fp32", 16)
    other = job("jax", "resnet50", "fp32", "fp32", 16)
    same, apart = (
        dataclasses.replace(one, id=f"{one.id}-{n}", system=f"pytorch#{n}", duplicate_of=one.id) for n in (2, 3)
    )
    noise = {one.id: (1.0, 1.01, 0.99, 1.0, 1.01), same.id: (1.01, 1.0, 1.0, 0.99, 1.0)}
    jobs = (one, other, same, apart)
    rates = zip(jobs, (10.0, 8.0, 10.01, 9.0), strict=True)
    records = [
        record
        for of, rate in rates
        for record in runs(of, [rate * factor for factor in noise.get(of.id, (1.0, 1.0, 1.01, 1.0, 1.0))])
    ]
    section = view(few(records, jobs=jobs, skips=(), planned=20, proofs=proven(jobs))).sections[0]
    power, duplicates = section.power
    assert power.startswith("With 5 repeats, a difference of ")
    assert duplicates.startswith("Equal rows called different: 1 of 2 pairs. PyTorch#2 ran at 0.999 [")


def test_rows_of_a_gpu_have_a_share_of_its_peak_and_none_more_than_it_can() -> None:
    sound, fake = (job(name, "resnet50", "amp", "amp_fp16", 256, device="cuda") for name in ("pytorch", "jax"))
    records = [*runs(sound, (4000.0, 4010.0, 4020.0)), *runs(fake, (60_000.0, 60_010.0, 60_020.0))]
    gpus = {"gpus": [{"name": "NVIDIA H200", "memory_bytes": None}]}
    made = few(records, jobs=(sound, fake), skips=(), planned=6, machine=gpus, proofs=proven((sound, fake)))
    section = view(made).sections[0]
    place = [column.title for column in section.throughput.columns].index("TFLOP/s per device")
    assert section.throughput.rows[0].cells[place : place + 2] == ("98.4", "9.9 %")
    assert [row.kind for row in section.throughput.rows] == ["fastest", "incomparable"]
    assert "impossible: 1473 TFLOP/s" in section.brief.rows[1].note


def of_models() -> Comparison:
    """Three models, of which one system trains the last otherwise."""
    jobs = tuple(
        job(system, model, "fp32", "fp32", 4)
        for model in ("resnet50", "bert_base", "gpt2_256")
        for system in ("pytorch", "jax")
    )
    rates = ((9.01, 9.02), (7.01, 7.02), (2.1, 2.3), (2.0, 2.42), (400, 402), (500, 502))
    records = [record for of, each in zip(jobs, rates, strict=True) for record in runs(of, each)]
    other = {jobs[-1].id: (certificate(jobs[-1], "fp32", verdict="different", why="gradients differ"),)}
    made = few(records, jobs=jobs, skips=(), planned=18)
    return dataclasses.replace(made, proofs={**made.proofs, **other})


def test_several_models_have_an_overview_and_a_page_each() -> None:
    files = report.render(of_models())
    pages = ("resnet50.md", "bert_base.md", "gpt2_256.md")
    assert set(pages) < set(files)
    first, links = files["report.md"], re.findall(r"^- \[.*\]\((.*)\)$", files["report.md"], re.MULTILINE)
    assert tuple(links[:3]) == pages
    table = [line.split(" | ") for line in first.splitlines() if line.startswith("| ") and "fp32, CPU" in line]
    assert [[cell.strip("| ") for cell in line] for line in table] == [
        ["ResNet-50 v1.5, fp32, CPU", "9.015", "7.015", "img/s", "PyTorch"],
        ["BERT-base pretraining, fp32, CPU", "2.2", "2.2", "sentences/s", "JAX and PyTorch"],
        ["GPT-2 124M pretraining, 256 tokens, fp32, CPU", "401", r"(501)", "tokens/s", "PyTorch"],
    ]
    assert "## Machine" in first
    assert "### Proof:" not in first
    for page, title in zip(pages, ("ResNet-50", "BERT-base", "GPT-2"), strict=True):
        assert files[page].startswith(f"# {title}")
        assert f"](charts/{page.removesuffix('.md')}-fp32-cpu.svg)" in files[page]
        assert "### Proof: " in files[page]
        assert files[page].count("python -m dlperf.adapters.worker") == 2
    assert files["report.html"].count('<details class="model">') == 3


def test_two_models_are_on_one_page() -> None:
    made = of_models()
    two = dataclasses.replace(made, jobs=made.jobs[:4], records=made.records[:8])
    files = report.render(two)
    assert not [name for name in files if name.endswith(".md") and name != "report.md"]
    assert view(two).overview is None


def test_a_thousand_systems_have_a_table_without_ranks_and_a_chart_of_the_first() -> None:
    count = ranking.MOST_RANKED + 1
    jobs = tuple(job(f"pytorch x={n}", "resnet50", "fp32", "fp32", 16) for n in range(count))
    records = [record for n, of in enumerate(jobs) for record in runs(of, (20 - n / count, 20.1 - n / count))]
    made = few(records, jobs=jobs, skips=(), planned=2 * count, proofs=proven(jobs))
    section = view(made).sections[0]
    assert len(section.throughput.rows) == count
    assert "1,000 rows are not compared with each other, so they have no ranks." in section.summary
    assert sum(len(panel.bars) for panel in section.chart.panels) == 60
    assert section.chart.title.endswith(f", the first 60 of {count:,} rows")


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf"), -1.0])
def test_a_record_of_no_time_is_a_failed_run_and_the_table_stands(seconds: float) -> None:
    data = json.loads(report.render(comparison())["results.json"])
    of_row = [record for record in data["records"] if record["job"]["system"] == "tensorflow" and record["windows"]]
    of_row[0]["windows"][0]["seconds"] = seconds
    section = view(comparison_from(data)).sections[0]
    (note,) = [row.note for row in section.brief.rows if row.label == "TensorFlow"]
    assert "1 of 3 runs failed: no figures in its log" in note


def test_missing_rows_say_why() -> None:
    made = view(comparison()).sections[0]
    why = {row.cells[0]: row.note for row in made.throughput.rows if row.kind == "missing"}
    assert why["PaddlePaddle"].startswith("not supported by the framework: PaddlePaddle 3.3")
    assert why["JAX"].startswith("3 of 3 runs failed: crashed (<script>")
    notes = {row.label: row.note for row in made.brief.rows}
    assert notes["MXNet"] == "1 of 3 runs failed: killed"
    assert notes["PyTorch+compile"] == "one run: no interval; 2 runs not made yet; untested combination"


def test_rows_of_different_sizes_are_not_compared() -> None:
    """Two devices are not called faster than one: each size has its own fastest."""
    one, two = (job("pytorch", "resnet50", "fp32", "fp32", 16, nproc_per_node=n, id=f"n{n}") for n in (1, 2))
    records = [*runs(one, (10.0, 10.1, 10.2)), *runs(two, (19.0, 19.1, 19.2))]
    section = view(few(records, jobs=(one, two), skips=(), planned=6)).sections[0]
    assert [row.kind for row in section.throughput.rows] == ["fastest", "fastest"]
    assert [row.cells[1:5] for row in section.throughput.rows] == [("1", "1", "16", "16"), ("1", "2", "16", "32")]
    assert section.summary == "PyTorch alone has a rate on 1n1d and 1n2d."


def test_several_sizes_are_a_table_of_systems_by_sizes() -> None:
    made = grid()
    of = next(job for job in made.jobs if job.nnodes == 4 and job.adapter == "pytorch")
    section = view(dataclasses.replace(made, proofs={k: v for k, v in made.proofs.items() if k != of.id})).sections[0]
    assert section.brief is None
    assert section.pivot is not None
    assert [column.title for column in section.pivot.rates.columns] == ["devices", "PyTorch", "TensorFlow", "JAX"]
    assert [row.cells for row in section.pivot.rates.rows] == [
        ("1n1d", "10.00", "9.10", text.NONE),
        ("1n8d", "76.00", "60.90", "70.40"),
        ("2n16d", "143.00", "102.20", text.NONE),
        ("4n32d", "(281.00) [1]", f"{text.NONE} [2]", text.NONE),
    ]
    assert [row.strong for row in section.pivot.rates.rows] == [(1,), (1,), (1,), ()], "the fastest that are comparable"
    assert section.pivot.notes[0].startswith("[1] not comparable: no proof")
    assert section.pivot.speedups is not None
    assert section.pivot.speedups.rows[-1].cells == ("4n32d", "28.08", text.NONE, text.NONE)
    assert section.summary.startswith("PyTorch was fastest on 1n1d, 1n8d and 2n16d; no row is proven to have done the")


def test_gpus_have_their_memory_and_topology() -> None:
    on_gpu = job("pytorch", "resnet50", "amp", "amp_fp16", 256, device="cuda")
    records = [run(on_gpu, repeat, 1400.0 + repeat, peak_device_memory_bytes=12 * 2**30) for repeat in range(3)]
    gpus = [{"name": "Example GPU", "memory_bytes": 16 * 2**30, **more} for more in ({}, {"shared_bytes": 3 * 2**30})]
    topo = "      GPU0  GPU1\nGPU0   X    NV1\nGPU1  NV1    X"
    made = few(records, jobs=(on_gpu,), skips=(), planned=3, machine={"gpus": gpus, "topo": topo, "driver": "1.2"})
    page = report.render(made)["report.md"]
    assert "2 × Example GPU (16.0 GiB)" in page
    assert page.count("Example GPU was in use when the comparison started: others held 3.0 GiB of its memory") == 1
    assert f"```text\n{topo}\n```" in page
    assert "peak device memory (GiB)" in page
    assert "On a CPU" not in page


def on_gpu(*conditions: dict[str, float], **changes: object) -> Record:
    """A run whose windows had these conditions."""
    made = run(job("pytorch", "resnet50", "amp", "amp_fp16", 256, device="cuda"), 0, 1400.0)
    windows = (
        dataclasses.replace(window, conditions=found) for window, found in zip(made.windows, conditions, strict=False)
    )
    return dataclasses.replace(made, windows=tuple(windows), **changes)  # type: ignore[arg-type]


def test_energy_is_a_column_where_gpus_were_sampled() -> None:
    record = on_gpu({"gpu_joules": 60.0, "gpu_mhz_min": 1500.0}, {"gpu_joules": 68.0, "gpu_mhz_min": 1400.0})
    made = few([record], jobs=(record.job,), skips=(), planned=1)
    table = view(made).sections[0].throughput
    assert table is not None
    column = [column.title for column in table.columns].index("energy (J per image)")
    assert table.rows[0].cells[column] == "0.125"
    (row,) = rows.rows(made)
    assert row["joules_per_sample"] == 0.125
    assert row["condition.gpu_mhz_min"] == 1400
    assert rates.joules_per_sample(on_gpu({"gpu_joules": 60.0}, {})) is None, "it was not sampled in each window"


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        (({"gpu_mhz_median": 2000}, {"gpu_mhz_median": 1901}), ""),
        (
            ({"gpu_mhz_median": 2000}, {"gpu_mhz_median": 1880}),
            "The GPU's clock fell by more than 5 % between windows of a run (by up to 6 %) in 1 run of PyTorch (amp)",
        ),
        (({"gpu_mhz_median": 1880}, {"gpu_mhz_median": 2000}), ""),
        (
            (
                {"gpu_throttle_reasons": 0, "gpu_throttled_share": 0},
                {"gpu_throttle_reasons": 36, "gpu_throttled_share": 0.25},
            ),
            "held down by the power limit and its temperature in 1 run of PyTorch (amp), in up to 25 % of",
        ),
        (({"gpu_others": 0}, {"gpu_others": 2}), "Others' processes computed on the GPU (2 at once, at most) in 1 run"),
        (({"gpu_ecc_errors": 1}, {"gpu_ecc_errors": 2}), "The GPU's memory had errors (ECC, 3 in a run, at most)"),
        (({"cpu_others_share": 0.04}, {"cpu_others_share": 0.05}), ""),
        (
            ({"cpu_others_share": 0.5}, {"cpu_others_share": -0.1}),
            "Other processes took more than 5 % of the CPUs' time (up to 20 %) in 1 run of PyTorch (amp).",
        ),
        (({"cpu_steal_share": 0.3}, {"cpu_steal_share": 0.3}), "took more than 2 % of the CPUs' time (up to 30 %)"),
        (({"cpu_mhz": 3600}, {"cpu_mhz": 3300}), "The CPU's clock fell by more than 5 % between windows of a run (by "),
        (
            ({"cpu_throttles": 0}, {"cpu_throttles": 7}),
            "CPUs were slowed for their temperature (7 times, at most) in 1",
        ),
        (({"cpu_quota_seconds": 2}, {"cpu_quota_seconds": 3}), "limit held processes back (5 s of threads, at most)"),
    ],
)
def test_what_hosts_and_gpus_did_is_a_caveat_where_it_makes_figures_doubtful(
    conditions: tuple[dict[str, float], ...], says: str
) -> None:
    found = "\n".join(sampled.caveats([on_gpu(*conditions)]))
    assert says in found
    assert bool(says) == bool(found)


def test_a_report_says_why_gpus_were_not_sampled() -> None:
    record = on_gpu({}, not_sampled="pynvml is not installed in /usr/bin/python3")
    page = report.render(few([record], jobs=(record.job,), skips=(), planned=1))["report.md"]
    assert "not sampled in 1 run of PyTorch (amp): pynvml is not installed in /usr/bin/python3 (package nvidia" in page


# Scaling


def scaled(made: Comparison) -> Scaling:
    found = view(made).sections[0].scaling
    assert found is not None
    return found


def with_rows(records: Sequence[Record], **spec: object) -> Comparison:
    jobs = tuple({record.job.id: record.job for record in records}.values())
    asked = {"protocol": PROTOCOL, **spec}
    return dataclasses.replace(grid(), jobs=jobs, records=tuple(records), spec=asked, proofs=proven(jobs))


def test_rows_of_one_device_have_no_scaling() -> None:
    assert [section.scaling for section in view(comparison()).sections] == [None, None]


def test_a_speedup_is_the_ratio_to_the_row_of_one_device() -> None:
    one, eight = [10.0, 10.1, 9.9], [76.0, 75.2, 76.9]
    records = [*placed("pytorch", 1, 1, one), *placed("pytorch", 1, 8, eight)]
    summaries = [
        summaries_.summarize(one.job, [run for run in records if run.job == one.job])
        for one in (records[0], records[-1])
    ]
    alone, beside = speedup.speedups(summaries)
    assert (alone.base, alone.speedup) == (summaries[0], None)
    expected = statistics.ratio(dict(enumerate(eight)), dict(enumerate(one)))
    found, share = beside.speedup, beside.efficiency
    assert found is not None
    assert share is not None
    mean = (7.6 * (75.2 / 10.1) * (76.9 / 9.9)) ** (1 / 3)
    assert (found.centre, found.low, found.high) == pytest.approx((mean, expected.low, expected.high))
    assert (share.centre, share.low, share.n) == pytest.approx((mean / 8, found.low and found.low / 8, 3))
    assert beside.kind == "weak"


def test_the_same_global_batch_is_strong_scaling() -> None:
    records = [
        *placed("pytorch", 1, 1, (10.0, 10.1), batch_size=32),
        *placed("pytorch", 1, 2, (18.0, 18.1), batch_size=16),
    ]
    found = scaled(with_rows(records, predict=[4]))
    assert [row.cells[9] for row in found.table.rows] == ["1", "1.796"]
    assert found.table.rows[1].note == "strong scaling"
    assert found.predictions == (
        "PyTorch: no prediction: its rows share a global batch, and the model is of one batch per device.",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"system": "pytorch+compile"},
        {"precision": "tf32"},
        {"input": "native"},
        {"options": {"compile": "on"}},
        {"batch_size": 8},
    ],
)
def test_a_row_of_other_work_is_no_partner(change: dict[str, object]) -> None:
    records = [*placed("pytorch", 1, 1, (10.0, 10.1), **change), *placed("pytorch", 1, 2, (18.0, 18.1))]
    summaries = [
        summaries_.summarize(one.job, [run for run in records if run.job == one.job])
        for one in (records[0], records[-1])
    ]
    _, found = speedup.speedups(summaries)
    assert found.speedup is None
    assert found.why == "no speedup: there is no row of 1 device with batch 16 per device or 32 in all"


def test_a_partner_without_a_figure_gives_no_speedup() -> None:
    lost = placed("pytorch", 1, 1, (10.0,))[0].job
    found = scaled(with_rows([failed(lost, 0, Failure("crash", "x")), *placed("pytorch", 1, 2, (18.0, 18.1))]))
    notes = [row.note for row in found.table.rows]
    assert notes == ["failed; see the table above", "no speedup: its row of 1 device has no figure"]
    assert not found.charts


@pytest.mark.usefixtures("_undrawn")
def test_the_report_says_where_dali_loads_less_than_the_framework_itself() -> None:
    def loads(name: str, input: str, samples: int, nproc: int = 1) -> list[Record]:
        rows = placed(name, 1, nproc, (10.0, 10.1), input=input)
        of = dataclasses.replace(rows[0].job, id=f"{name}-{input}-{samples}")
        return [dataclasses.replace(row, job=of, input={"samples": samples, "seconds": 2.0}) for row in rows]

    records = [
        *(loads("pytorch", "native", 800) + loads("pytorch", "native", 1000) + loads("pytorch", "dali", 1500)),
        *(loads("jax", "native", 2000) + loads("jax", "dali", 1000)),
        *loads("oneflow", "native", 100),
        *(loads("mxnet", "native", 300, nproc=2) + loads("mxnet", "dali", 300)),
    ]
    made = with_rows(records)
    (section,) = view(made).sections
    assert section.input_about.endswith(" DALI's over the framework's own: JAX 0.50 (slower) and PyTorch 1.50.")
    pages = report.render(made)
    for name in ("report.md", "report.html"):
        assert pages[name].count("JAX 0.50 (slower) and PyTorch 1.50") == 1


def test_loaders_of_the_same_images_are_compared() -> None:
    def reads(input: str, rates: tuple[float, float], **effective: str) -> list[Record]:
        rows = placed("pytorch", 1, 1, rates, input=input)
        of = dataclasses.replace(rows[0].job, id=input)
        return [dataclasses.replace(row, job=of, effective={**row.effective, **effective}) for row in rows]

    ours = reads("native", (10.0, 10.1), data="images of D", loader="DataLoader")
    dali = reads("dali", (12.0, 12.1), data="images of D", loader="DALI")
    (section,) = view(with_rows([*ours, *dali])).sections
    assert [row.cells[8] for row in section.throughput.rows] == ["1", "0.834"]
    assert section.work is None


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """8 ranks that all-reduce 1 GB in 0.1 s: 10 GB/s of algorithm, 17.5 GB/s of each link."""
    assert rates.bus_bandwidth(1e9, 0.1, 8) == pytest.approx(17.5e9)
    assert rates.bus_bandwidth(1e9, 0.1, 2) == pytest.approx(10e9)


def test_runs_say_hosts_skew_and_communication() -> None:
    row = next(row for row in rows.rows(grid()) if row["nnodes"] == 2)
    assert (row["hosts"], row["launcher"]) == ("host0 host1", "mpi")
    assert row["skew_seconds"] == pytest.approx(0.02 * float(str(row["window_seconds"])))
    assert row["gradient_bytes"] == 4 * 25_557_032
    assert row["all_reduce_bus_bytes_per_second"] == pytest.approx(0.5e9)


def test_a_loader_s_rate_and_what_steps_waited_for_it_stand_beside_the_training_rate() -> None:
    of = job("pytorch+dali", "resnet50", "fp32", "fp32", 16, input="dali", format="tfrecord", data_dir="/data")
    made = run(of, 0, 8.0, input={"samples": 320, "seconds": 10.0})
    waited = tuple(dataclasses.replace(one, input_seconds=one.seconds / 4) for one in made.windows)
    (section,) = view(with_rows([dataclasses.replace(made, windows=waited)])).sections
    assert section.input is not None
    (row,) = section.input.rows
    assert row.cells == ("PyTorch+dali", "1", "1", "tfrecord", "8.00", "32.0", "4.00", "25.0%")
    assert view(with_rows([run(job("pytorch", "resnet50", "fp32", "fp32", 16), 0, 8.0)])).sections[0].input is None


def test_rows_with_as_many_devices_are_on_lines_of_their_own() -> None:
    sizes = ((1, 1), (1, 2), (2, 1), (2, 2))
    records = [record for m, k in sizes for record in placed("pytorch", m, k, (10.0 * m * k, 10.1 * m * k))]
    lines = scaled(with_rows(records)).charts[0].lines
    assert {line.label: [point.at for point in line.points] for line in lines} == {
        "PyTorch, 1 node": [1, 2],
        "PyTorch, 2 nodes": [1, 2, 4],
    }


def test_predictions_are_drawn_and_written_as_predictions() -> None:
    asked, unasked = grid((64, 48)), grid()
    found = scaled(asked)
    predicted = [row for row in found.table.rows if row.kind == "predicted"]
    assert [row.cells[:3] for row in predicted] == [
        ("6", "48", "PyTorch, predicted"),
        ("6", "48", "TensorFlow, predicted"),
        ("8", "64", "PyTorch, predicted"),
        ("8", "64", "TensorFlow, predicted"),
    ]
    assert all("predicted, not measured" in row.note and row.cells[6] == text.NONE for row in predicted)
    assert all("predicted at 64" in chart.alt for chart in found.charts)
    points = [point for line in found.charts[0].lines for point in line.points]
    assert {point.at for point in points if point.predicted} == {48, 64}
    assert all(point.low is None for point in points if point.predicted)
    pages = [report.render(made) for made in (asked, unasked)]
    drawn = [page["charts/resnet50-fp32-cpu-speedup.svg"] for page in pages]
    dashed = [picture.count("stroke-dasharray") for picture in drawn]
    assert dashed == [1 + 3, 1], "the ideal line; a line of each system, and the legend"
    assert "redicted" not in pages[1]["report.md"]


def test_measured_figures_are_the_same_with_and_without_predictions() -> None:
    asked, unasked = (scaled(grid(predict)).table.rows for predict in ((64,), ()))
    assert [row for row in asked if row.kind != "predicted"] == list(unasked)


def predictions(records: Sequence[Record], *devices: int) -> list[str]:
    return list(scaled(with_rows(records, predict=list(devices))).predictions)


def test_what_cannot_be_predicted_says_why() -> None:
    one, two, four = (placed("pytorch", *at, rates) for at, rates in _AT)
    assert predictions([*one, *two], 4) == [
        "PyTorch: no prediction: no row has several nodes, so the network between them is not known."
    ]
    shared = placed("pytorch", 2, 2, (12.0, 12.1))  # four devices slower than two, beyond what its probe explains
    assert "the model misses a measured row by" in predictions([*one, *two, *shared], 8)[0]
    silent = [dataclasses.replace(record, communication={}) for record in two]
    assert "says how many bytes it all-reduces" in predictions([*one, *silent], 4)[0]
    fitted, refused = predictions([*one, *two, *four], 4, 7, 8)
    assert fitted.startswith("PyTorch: ring all-reduce. Fitted to 3 sizes")
    assert "4 devices are not more than the 4 that were measured; 7 devices do not fill nodes of 2" in refused


_AT = (((1, 1), (10.0, 10.1)), ((1, 2), (19.0, 19.1)), ((2, 2), (36.0, 36.1)))


def test_line_charts_are_valid_xml_and_always_the_same() -> None:
    for chart in scaled(grid((64,))).charts:
        drawn = charts.svg(chart, "x")
        assert drawn == charts.svg(chart, "x")
        assert xml.etree.ElementTree.fromstring(drawn).attrib["aria-label"] == chart.alt
        assert f">{chart.title}</text>" in drawn


def test_a_scaling_row_without_proof_is_not_comparable() -> None:
    made = grid()
    of = next(job for job in made.jobs if job.nnodes == 4 and job.adapter == "pytorch")
    found = scaled(dataclasses.replace(made, proofs={k: v for k, v in made.proofs.items() if k != of.id}))
    assert [row.label for row in found.table.rows if row.kind == "incomparable"] == ["PyTorch, 4×8, batch 16"]
    assert found.charts[0].lines[0].label == "PyTorch (not comparable)"


# Links


def linked(bandwidth: float, seconds: float, kind: str = "none", latency: float = 0.0) -> list[Record]:
    """A row of two emulated nodes whose steps take so long; each sends 102 MB, or next to none."""
    system = "pytorch" if kind == "none" else f"pytorch+{kind}"
    changes = {
        "system": system,
        "bandwidth": bandwidth,
        "latency": latency,
        "options": {"compression": kind},
        "id": f"{system}-{bandwidth}-{latency}",
    }
    made = placed("pytorch", 2, 1, [32 / seconds * part for part in (0.99, 1.0, 1.01)], **changes)
    sent = {"network_sent_bytes": 1.02e8 if kind == "none" else 2e5}
    return [
        dataclasses.replace(
            record,
            communication={
                **record.communication,
                "link_gigabits": 0.96 * bandwidth,
                "link_milliseconds": latency + 0.03,
            },
            windows=tuple(
                dataclasses.replace(w, conditions={**w.conditions, **{k: v * w.steps for k, v in sent.items()}})
                for w in record.windows
            ),
        )
        for record in made
    ]


def test_rows_over_links_say_what_waits_for_them_and_below_which_compression_pays() -> None:
    steps = [(0.1, 10.0, "none"), (1.0, 2.8, "none"), (10.0, 2.08, "none"), (0.1, 2.51, "dgc"), (10.0, 2.5001, "dgc")]
    made = with_rows([record for step in steps for record in linked(*step)])
    (section,) = view(made).sections
    found = section.links
    assert found is not None
    assert found.chart is not None
    assert section.scaling is None
    assert found.findings == ("PyTorch+dgc is faster than PyTorch below about 1.6 Gb/s",)
    assert "PyTorch alone has a rate on 2n2d at 0.1 Gb/s, 2n2d at 1 Gb/s and 2n2d at 10 Gb/s" in section.summary
    assert "PyTorch+dgc alone has a rate on 2n2d at 0.1 Gb/s with dgc and 2n2d at 10 Gb/s with dgc" in section.summary
    cells = [row.cells for row in found.table.rows]
    assert [row[:4] for row in cells][:2] == [("PyTorch", "0.1", "0.0960", "3"), ("PyTorch", "1", "0.960", "3")]
    assert [row[-2:] for row in cells][:3] == [("102", "80"), ("102", "29"), ("102", "4")]
    assert [row[-2:] for row in cells][3:] == [("0.200", "0"), ("0.200", "0")]
    assert [(line.label, line.dashed) for line in found.chart.lines] == [("PyTorch", False), ("PyTorch+dgc", True)]
    assert "bandwidth of each node" in charts.svg(found.chart, "links")


def test_rows_of_other_servers_or_links_are_told_apart_and_scale_to_nothing() -> None:
    of = [{"servers": 2, "ps_mode": mode, "id": mode} for mode in ("sync", "async")]
    modes = with_rows([record for one in of for record in placed("pytorch", 1, 2, (10.0, 10.1, 10.2), **one)])
    (section,) = view(modes).sections
    assert [column.title for column in section.throughput.columns][:5] == [
        "system",
        "nodes",
        "devices",
        "servers",
        "batch per device",
    ]
    assert [row.cells[3] for row in section.throughput.rows] == ["2 async", "2 sync"]
    assert section.scaling is None
    (section,) = view(with_rows(linked(0.1, 10.0))).sections
    assert [row.cells[3] for row in section.throughput.rows] == ["0.1 Gb/s"]


def test_servers_are_told_with_what_all_processes_took_of_the_cpus() -> None:
    used = {"host": "a", "seconds": 10.0, "cpu_seconds": 2.0, "peak_memory_bytes": 2**30, "pushes": 9}
    stale = {"stale_median": 1, "stale_95": 3}
    servers = ({**used, **stale}, {**used, **stale, "cpu_seconds": 4.0})
    runs_ = placed("pytorch", 1, 2, (10.0, 10.1, 10.2), servers=2, ps_mode="async")
    made = [
        dataclasses.replace(
            record,
            servers=servers,
            windows=tuple(dataclasses.replace(w, conditions={"cpu_busy_share": busy}) for w in record.windows),
        )
        for record, busy in zip(runs_, (0.8, 0.9, 0.7), strict=True)
    ]
    (section,) = view(with_rows(made)).sections
    assert section.servers is not None
    (row,) = section.servers.rows
    assert row.cells == ("PyTorch", "async", "2", "2", "80 %", "4.00", "0.40", "1.00", "–", "–", "1", "3")


def test_memory_of_a_server_is_held_against_its_share_of_the_tensors_and_of_what_the_optimizer_keeps() -> None:
    kept = 4 * 10_431_212 * 3 / 2  # CTR-DNN: Adam's two moments of each weight, on two servers
    before = {"seconds": 1.0, "cpu_seconds": 1.0, "imported_memory_bytes": 2**28}
    servers = ({**before, "peak_memory_bytes": 2**28 + round(1.25 * kept)}, {**before, "peak_memory_bytes": 2**28})
    runs_ = placed("pytorch", 1, 2, (10.0, 10.1), servers=2, ps_mode="async", model="ctr_dnn", family="ctr_dnn")
    (section,) = view(with_rows([dataclasses.replace(record, servers=servers) for record in runs_])).sections
    assert section.servers is not None
    assert section.servers.rows[0].cells[7:10] == ("0.32", "0.07", "1.25")


def test_rows_over_links_of_a_latency_are_fitted_apart() -> None:
    steps = [(0.1, 10.0, "none", 0.0), (1.0, 2.8, "none", 0.0), (0.1, 11.0, "none", 5.0), (1.0, 3.8, "none", 5.0)]
    made = with_rows([record for step in [*steps, (0.0, 3.0, "none", 5.0)] for record in linked(*step)])
    found = view(made).sections[0].links
    assert found is not None
    assert found.chart is not None
    assert [column.title for column in found.table.columns][1:5] == [
        "asked (Gb/s)",
        "found (Gb/s)",
        "asked (ms)",
        "found (ms)",
    ]
    assert [(row.cells[1], *row.cells[3:5], row.cells[-1]) for row in found.table.rows] == [
        ("0.1", "–", "0.0300", "80"),
        ("1", "–", "0.0300", "29"),
        ("–", "5", "5.03", "–"),
        ("0.1", "5", "5.03", "73"),
        ("1", "5", "5.03", "21"),
    ]
    assert [(line.label, len(line.points)) for line in found.chart.lines] == [("PyTorch", 2), ("PyTorch at 5 ms", 2)]


# Text from outside


class Page(HTMLParser):
    """The tags of a page, and where it refers to."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")


def test_the_page_opens_offline_and_runs_nothing_but_its_own_script() -> None:
    text_ = report.render(comparison())["report.html"]
    page = Page(text_)
    assert re.findall(r"<script>\n(.*?)</script>", text_, re.DOTALL) == [(report.TEMPLATES / "report.js").read_text()]
    assert page.tags.count("script") == 1
    assert not {name for name in page.attributes if name.startswith("on")}
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert all(ref.startswith("#") or ref in ("results.csv", "results.json") for ref in page.references)
    assert not re.search(r"url\((?!#)|@import", text_)
    assert len(page.ids) == len(set(page.ids))
    assert {ref[1:] for ref in page.references if ref.startswith("#")} <= set(page.ids)


@pytest.mark.usefixtures("_undrawn")
def test_hostile_text_is_harmless_in_markdown() -> None:
    from markdown_it import MarkdownIt

    page = report.render(comparison())["report.md"]
    shown = MarkdownIt("commonmark").enable("table").render(page)
    assert "<script" not in shown
    assert 'example.invalid">' not in shown
    assert shown.count("<h1>") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt; | ``` ` [x](http://example.invalid) $x$ red # heading" in shown
    tables = re.findall(r"<table>(.*?)</table>", shown, re.DOTALL)
    widths = [{len(re.findall(r"<t[dh]\b", row)) for row in table.split("</tr>")[:-1]} for table in tables]
    assert widths == [
        *[{8}, {8}, {2}, {6}, {16}, {6}, {2}, {16}, {5}, {5}, {2}], *[{10}, {11}, {8}], *[{10}, {11}] * 4, *[{5}] * 8
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["plain", "```", "a ```` b", "`"])
def test_a_fence_cannot_be_closed_by_its_content(content: str) -> None:
    first, *middle, last = markdown.fence(content).split("\n")
    assert first.removesuffix("text") == last
    assert "\n".join(middle) == content
    assert last not in content


def test_control_characters_and_lone_surrogates_do_not_reach_a_file() -> None:
    assert text.clean("a\x1b[1;31mb\x1b[0m\x00\r\nc\rd\ud800") == "ab\ufffd\nc\nd\ufffd"
    assert text.clean("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b(B\u202ec\x9b1m\u2069") == "ab\ufffdc\ufffd1m\ufffd"


def test_templates_do_no_arithmetic() -> None:
    forbidden = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Neg)
    allowed = {"fence", "ready"}
    templates = sorted(report.TEMPLATES.glob("*.j2"))
    assert len(templates) == 30
    for path in templates:
        tree = Environment().parse(path.read_text(encoding="utf-8"))
        assert not list(tree.find_all(forbidden)), path.name
        assert {node.name for node in tree.find_all(nodes.Filter)} <= allowed, path.name


# Charts


@pytest.mark.parametrize("paper", [charts.PAPER, charts.DARK[charts.PAPER]])
def test_colours_of_charts_can_be_seen_on_light_and_dark_paper(paper: str) -> None:
    inks = {charts.DARK.get(ink, ink) if paper != charts.PAPER else ink for ink in (charts.INK, charts.QUIET)}
    for colour, least in [
        *((ink, 4.5) for ink in inks),
        *((bar, 3.7) for bar in (*charts.FRAMEWORKS.values(), charts.BAR)),
    ]:
        assert contrast(colour, paper) >= least, colour


def test_a_framework_has_one_colour_in_all_charts() -> None:
    assert (
        charts.colour("NGC PyTorch") == charts.colour("PyTorch+inductor, 1×8, batch 32") == charts.FRAMEWORKS["pytorch"]
    )
    assert charts.colour("Apache MXNet#2") == charts.FRAMEWORKS["mxnet"]
    assert charts.colour("Toy") == charts.BAR


def test_a_chart_shows_each_run_and_a_panel_for_each_size() -> None:
    chart = view(grid()).sections[0].chart
    assert chart is not None
    assert [panel.title for panel in chart.panels] == [
        "1 node, 1 device, batch 16 per device: PyTorch was fastest, 1.09 times TensorFlow",
        "1 node, 8 devices, batch 16 per device: PyTorch was fastest, 1.08 times JAX",
        "2 nodes, 16 devices, batch 16 per device: PyTorch was fastest, 1.40 times TensorFlow",
        "4 nodes, 32 devices, batch 16 per device",
    ]
    assert chart.panels[0].bars[0].runs == pytest.approx((10.0, 10.1, 9.9))
    assert chart.panels[3].missing == (("TensorFlow", "ran out of time"),)


def test_charts_are_valid_xml_and_always_the_same() -> None:
    chart = view(comparison()).sections[0].chart
    assert chart is not None
    drawn = charts.svg(chart, "resnet50")
    assert drawn == charts.svg(chart, "resnet50")
    root = xml.etree.ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert ">20.10 (n=3)</text>" in drawn, "letters can be searched for, and read aloud"
    assert all(f"{dark}!important" in drawn for dark in charts.DARK.values())
    assert "20.10 (n=3)" in root.attrib["aria-label"] or "20.1 (n=3)" in root.attrib["aria-label"]


def test_charts_are_the_same_whatever_matplotlib_is_told(tmp_path: Path) -> None:
    """A wrong backend ends its import; text.usetex wants LaTeX."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 40\nsvg.fonttype: none\nlines.color: x\n")
    published = places.ROOT / "report" / "published" / "2026-11-23-cpu-aa"
    (tmp_path / "draw.py").write_text(
        "import json, sys\nfrom dlperf import report\nfrom dlperf.stored import comparison_from\n"
        f"found = report.render(comparison_from(json.load(open({str(published / 'results.json')!r}))))\n"
        "json.dump({name: text for name, text in found.items() if name.endswith('svg')}, sys.stdout)\n"
    )
    variables = {**os.environ, "MPLBACKEND": "nonsense"}
    ended = subprocess.run([sys.executable, "draw.py"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    for name, drawn in json.loads(ended.stdout).items():
        assert drawn == (published / name).read_text()


def test_a_chart_that_cannot_be_drawn_says_why_and_the_report_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "_drawn", lambda chart: 1 / 0)
    files = report.render(grid())
    drawn = next(text for name, text in files.items() if name.endswith(".svg"))
    xml.etree.ElementTree.fromstring(drawn)
    assert "This chart could not be drawn: ZeroDivisionError: division by zero" in drawn
    assert drawn in files["report.html"]


@pytest.mark.usefixtures("_undrawn")
def test_a_section_that_cannot_be_made_is_a_caveat_and_the_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["dlperf.report.view"]
    whole = module.section

    def section(summaries: list[summaries_.Summary], *given: object) -> object:
        return whole(summaries, *given) if summaries[0].job.family == "resnet" else 1 / 0  # type: ignore[arg-type]

    monkeypatch.setattr(module, "section", section)
    page = report.render(comparison())["report.md"]
    assert "- The section BERT-base pretraining, fp32, CPU could not be made (ZeroDivisionError: division by" in page
    assert "## ResNet-50" in page
    assert "## BERT" not in page
    assert "## Failures" in page


def test_a_chart_stands_hostile_labels_and_boundless_intervals() -> None:
    bars = (charts.Bar(HOSTILE, 10.0, 0.1, 1e9, "10 $\\frac{"), charts.Bar("-->", 5.0, None, None, "\u2603"))
    panels = (charts.Panel(HOSTILE, bars, (("C", "killed"),)),)
    drawn = charts.svg(charts.Chart("x.svg", HOSTILE, "img/s", HOSTILE.replace("\x1b", ""), panels), "x")
    xml.etree.ElementTree.fromstring(drawn)
    assert "<script" not in drawn


# Figures


def test_sums_of_seconds_are_exact_with_every_python() -> None:
    """0.1 ten times is 1.0; added one after another, as `sum` does before 3.12, it is 0.9999999999999999."""
    of = job("pytorch", "resnet50", "fp32", "fp32", 16)
    windows = tuple(Window(i, 2, 32, 0.1, 0.1, None, skew_seconds=0.1, input_seconds=0.1) for i in range(10))
    (row,) = rows.rows(few([run(of, 0, 1.0, windows=windows)]))
    assert (row["window_seconds"], row["skew_seconds"]) == (1.0, 1.0)
    assert (row["throughput_samples_per_second"], row["cpu_seconds_per_sample"]) == (320.0, 1 / 320)
    assert (row["cpu_cores_busy"], row["input_wait_share"]) == (1.0, 1.0)


def test_a_rate_is_total_samples_over_total_seconds() -> None:
    windows = (Window(0, 1, 10, 1.0, 1.0, 1.0), Window(1, 1, 10, 4.0, 1.0, 1.0))
    record = run(job("pytorch", "resnet50", "fp32", "fp32", 10), 0, 1.0, windows=windows)
    assert rates.throughput(record) == 4.0  # the mean of rates would be 6.25
    assert rates.window_spread(record) == 4.0


@pytest.mark.parametrize(
    ("estimates", "places"),
    [
        ([Estimate(9.83, 9.41, 10.27, 3)], 2),
        ([Estimate(3130.34, 3118.0, 3142.0, 3)], 0),
        ([Estimate(397.64, 396.9, 398.4, 3), Estimate(20.0, 10.0, 40.0, 3)], 2),
        ([Estimate(397.64, None, None, 1)], 0),
        ([Estimate(0.34, 0.1, 0.9, 2)], 2),
        ([], 0),
    ],
)
def test_numbers_have_the_digits_that_their_intervals_deserve(estimates: list[Estimate], places: int) -> None:
    assert text.decimals(estimates) == places


# The machine


def test_the_machine_describes_itself_but_not_its_name() -> None:
    found = machine.describe()
    assert found["threads"] >= found["usable_threads"] >= 1
    assert found["memory_bytes"] > 2**28
    host = socket.gethostname()
    assert len(host) < 4 or host not in json.dumps(found)
    assert not {"host", "hostname"} & set(found)


def fake_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """case "$1" in
    --query*) echo "Example GPU, 16384, 550.1"; echo "Example GPU, [N/A], 550.1";;
    topo) printf '\\033[4m\\tGPU0\\033[0m\\nGPU0\\t X \\n';;
    *) echo "| Driver Version: 550.1  CUDA Version: 12.4 |";;
    esac"""
    fake_smi(tmp_path, monkeypatch, script)
    found = machine.describe()
    assert found["gpus"] == [
        {"name": "Example GPU", "memory_bytes": 2**34},
        {"name": "Example GPU", "memory_bytes": None},
    ]
    assert (found["driver"], found["cuda"], found["topo"]) == ("550.1", "12.4", "\tGPU0\nGPU0\t X ")


def test_a_hanging_nvidia_smi_does_not_hang_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, monkeypatch, f"sleep 30; touch '{tmp_path}/late'")
    monkeypatch.setattr(gpu, "TIMEOUT_SECONDS", 0.2)
    assert "gpus" not in machine.describe()
    assert not (tmp_path / "late").exists()


def test_control_groups_limit_cores_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tightest limit on the way up holds."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000")
    (inner / "cpu.max").write_text("max 100000")
    (inner / "memory.max").write_text("max")
    (tmp_path / "outer" / "memory.max").write_text(str(2**30))
    monkeypatch.setattr(machine, "_cgroup_folders", lambda controller: iter([inner, inner.parent, tmp_path]))
    assert machine._cpu_quota() == 1.5
    assert machine._memory_limit() == 2**30


def test_importing_the_machine_costs_nothing() -> None:
    heavy = "{'numpy', 'pandas', 'scipy', 'matplotlib', 'jinja2', 'dlperf.report'}"
    code = f"import dlperf.machine, dlperf.figures.rows, dlperf.schema, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"input": "native", "format": "folder"}, "each loader crops and mirrors at random"),
        ({"input": "native"}, "gives every system the same rows"),
        ({}, ""),
    ],
)
def test_input_from_files_is_not_proven_and_the_report_says_why(changes, told):
    row = job("pytorch", "resnet50", "fp32", "fp32", 8, **changes)
    said = " ".join(caveats.caveats(Comparison({}, {}, "", "", 0, (row,), (), ())))
    assert ("Input from files is not proven" in said) is bool(told)
    assert told in said


@pytest.mark.parametrize(("shares", "told"), [([0.5, 0.7, 0.95], "node2 was the slowest node of 2 runs"), ([0.95], "")])
def test_a_node_that_is_slow_is_named(shares: list[float], told: str) -> None:
    runs = [
        dataclasses.replace(one, hosts=("node1", "node2"), product={"slowest_rank": 1, "slowest_share": share})
        for one, share in zip(placed("pytorch", 2, 1, [10.0] * len(shares)), shares, strict=True)
    ]
    said = " ".join(caveats.caveats(Comparison({}, {}, "", "", 0, (runs[0].job,), tuple(runs), ())))
    assert told in said
    assert ("slowest node" in said) == bool(told)
    assert ("its own had 60 % of the FLOP/s" in said) == bool(told)


def test_hosts_are_told_with_their_runs_where_there_are_several() -> None:
    made = placed("pytorch", 2, 1, [10.0, 11.0]) + placed("pytorch", 1, 1, [5.0])
    alone = [dataclasses.replace(one, hosts=one.hosts or ("host0",)) for one in made]
    told = dict(row.cells[:2] for row in machine_table(Comparison({}, {}, "", "", 0, (), tuple(alone), ())).rows)
    assert told["runs on"] == "host0: 3, host1: 2; results.csv has the hosts of each run"
    told = dict(row.cells[:2] for row in machine_table(Comparison({}, {}, "", "", 0, (), tuple(alone[2:]), ())).rows)
    assert "runs on" not in told
