"""The rules over tables, each by a small table; and sound tables that are changed in one place."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT

from dlperf.audit import reading
from dlperf.audit.cells import Cell, Subject, cell, counted, model_of
from dlperf.audit.findings import ERROR, LAST_DIGIT, SEVERITIES, WARNING, Finding
from dlperf.audit.rules import RULES, audit, audit_all
from dlperf.figures.published import Figure

PUBLISHED = ROOT / "report" / "published"


def table(tmp_path: Path, text: str, name: str = "t.csv") -> Subject:
    path = tmp_path / name
    path.write_text(text)
    return reading.file(path)


def told(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.rule, one.severity) for one in findings]


def figure(printed: str, devices: int = 1, **fields: object) -> Figure:
    names = ("t", f"{devices}", "OneFlow", printed, "throughput", "img/s", "", "resnet50", "OneFlow", "oneflow", "", "")
    made = Figure(*names, {}, None, devices, "V100", "128", "device", "", "table", "README.md", devices, "")
    return replace(made, **fields)  # type: ignore[arg-type]


def of(*figures: Figure, labels: str = "") -> list[Finding]:
    cells = [cell(one, "s", f"{one.path}:{one.line}") for one in figures]
    return audit(Subject("s", cells, labels={"t": labels}))


def test_each_rule_says_what_it_checks_and_where_its_threshold_is_from() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.checks.endswith(".")
        assert rule.severity in SEVERITIES
        assert rule.basis


def test_digits_leave_half_of_the_last_one_open() -> None:
    one = cell(figure("1,234.50"), "s", "")
    assert (one.value, one.decimals, one.low, one.high) == (1234.5, 2, 1234.495, 1234.505)
    assert cell(figure("OOM"), "s", "").value is None
    assert cell(figure("400", origin="chart"), "s", "").value is None


@pytest.mark.parametrize(
    ("eight", "rule", "severity"),
    [
        ("3200", None, None),  # eight times 400.4, which 400 may be, is more
        ("3203", None, None),
        ("3260", None, None),  # two medians of a handful of runs are as far apart
        ("3270", "super-linear", ERROR),
        ("395", "more devices slower", WARNING),
        ("375", "more devices slower", ERROR),
        ("400", "super-linear", None),
    ],
)
def test_scaling(eight: str, rule: str | None, severity: str | None) -> None:
    found = told(of(figure("400"), figure(eight, 8)))
    assert found == ([(rule, severity)] if severity else [])


def test_a_rate_of_one_line_varies_more() -> None:
    last = {"estimator": "last_printed"}
    assert ("super-linear", WARNING) in told(of(figure("400", **last), figure("3300", 8, **last)))
    assert ("super-linear", ERROR) in told(of(figure("400", **last), figure("3600", 8, **last)))


def test_other_batches_and_systems_are_no_series() -> None:
    assert of(figure("400"), figure("3600", 8, batch="256")) == []
    assert of(figure("400"), figure("3600", 8, system="MXNet", column="MXNet")) == []
    strong = figure("400", batch="1024"), figure("3600", 8)
    assert told(of(*strong)) == [("super-linear", ERROR)]


def test_a_step_may_be_uneven() -> None:
    up = figure("400"), figure("2800", 8), figure("6100", 16)
    assert told(of(*up)) == [("step beyond proportional", WARNING)]
    assert told(of(*up[:2], figure("6300", 16))) == [("step beyond proportional", ERROR)]


def test_times_to_train_may_need_fewer_epochs() -> None:
    def times(*minutes: str) -> list[tuple[str, str]]:
        return told(of(*(figure(one, 8 * 2**n, quantity="time_to_train", unit="min") for n, one in enumerate(minutes))))

    assert times("30.0", "14.5") == []
    assert times("30.0", "12.5") == [("super-linear", WARNING)]
    assert times("30.0", "9.5") == [("super-linear", ERROR)]
    assert times("30.0", "31.0") == [("more devices slower", WARNING)]
    assert times("30.0", "50.0") == [("more devices slower", ERROR)]


@pytest.mark.parametrize(
    ("printed", "fields", "rule", "severity"),
    [
        ("1400", {"precision": "amp"}, "", ""),
        ("1900", {"precision": "amp"}, "implausible share of the peak", ERROR),
        ("6000", {"precision": "amp"}, "above the peak", ERROR),
        ("420", {"precision": "fp32"}, "", ""),
        ("2000", {"precision": "fp32"}, "above the peak", ERROR),
        ("1800", {"precision": "fp32", "device": "A100"}, "FP32 beyond FP32", WARNING),
        ("0.4", {"precision": "amp"}, "implausible share of the peak", WARNING),
        ("0.0", {}, "no rate", WARNING),
        ("600", {"model": "bert_base", "unit": "sentences/s", "precision": "amp"}, "", ""),
        ("2100", {"model": "bert_base", "unit": "sentences/s", "precision": "amp"}, "above the peak", ERROR),
        ("600", {"model": "bert_base", "precision": "amp", "options": {"sequence": "512"}}, "above the peak", ERROR),
        ("9000", {"precision": "amp", "device": "TPU v9"}, "", ""),
    ],
)
def test_what_a_device_can_do(printed: str, fields: dict[str, object], rule: str, severity: str) -> None:
    found = told(of(figure(printed, **fields)))
    assert found[:1] == ([(rule, severity)] if rule else [])


SPEEDUPS = """\
GPUs,throughput,speedup,efficiency
1,400.0,1.00,100 %
8,2900.0,7.25,90.6 %
16,5500.0,13.75,85.9 %
"""


@pytest.mark.parametrize(
    ("old", "new", "rule", "severity"),
    [
        ("", "", "", ""),
        ("7.25,", "7.52,", "not the ratio of its cells", ERROR),
        ("7.25,", "7.24,", "last digit", LAST_DIGIT),
        ("85.9 %", "95.9 %", "not the ratio of its cells", ERROR),
        ("90.6 %", "90.5 %", "last digit", LAST_DIGIT),
        ("13.75", "18.2", "not the ratio of its cells", ERROR),
    ],
)
def test_derived_columns(tmp_path: Path, old: str, new: str, rule: str, severity: str) -> None:
    found = told(audit(table(tmp_path, SPEEDUPS.replace(old, new) if old else SPEEDUPS)))
    assert found == ([(rule, severity)] if rule else [])


def test_cut_and_swapped_ratios_are_told(tmp_path: Path) -> None:
    cut = SPEEDUPS.replace("5500.0,13.75", "5503.9,13.75")
    [one] = [one for one in audit(table(tmp_path, cut)) if one.column == "speedup"]
    assert one.found == "13.75: cut instead of rounded"
    swapped = SPEEDUPS.replace("7.25", "x").replace("13.75", "7.25").replace("x", "13.75")
    found = [one for one in audit(table(tmp_path, swapped)) if one.column == "speedup"]
    assert [one.found for one in found] == [
        "13.75, swapped with row “16” of the same column",
        "7.25, swapped with row “8” of the same column",
    ]


def test_ratios_of_two_precisions_and_swapped_columns(tmp_path: Path) -> None:
    text = """\
| GPUs | Throughput - FP32 | Throughput - mixed precision | Speedup (FP32 - mixed) | Scaling FP32 | Scaling mixed |
|---|---|---|---|---|---|
| 1 | 360.0 | 1200.0 | 3.33 | 1.00 | 1.00 |
| 8 | 2700.0 | 8400.0 | 3.11 | {} | {} |
"""
    assert audit(table(tmp_path, text.format("7.50", "7.00"), "t.md")) == []
    found = audit(table(tmp_path, text.format("7.00", "7.50"), "t.md"))
    assert [one.found for one in found] == [
        "7.00, swapped with “Scaling mixed” of the same row",
        "7.50, swapped with “Scaling FP32” of the same row",
    ]


def test_hours_of_epochs(tmp_path: Path) -> None:
    text = "GPUs,precision,ResNet-50 img/s,Training time (90E) (hours)\n8,amp,10000,{}\n"
    for hours, severity in (("3.2", None), ("2.0", ERROR), ("5.0", WARNING)):
        found = told(audit(table(tmp_path, text.format(hours))))
        assert found == ([("epochs at the printed rate", severity)] if severity else [])


def test_tables_of_one_source() -> None:
    other = {"table": "u", "row": "one GPU"}
    assert told(of(figure("400.0"), figure("420.0", **other))) == [("tables disagree", ERROR)]
    assert told(of(figure("400.0"), figure("404.0", **other))) == [("tables disagree", WARNING)]
    assert of(figure("400.0"), figure("400.0", **other)) == []
    assert of(figure("400.0"), figure("420.0", **other, batch="64")) == []
    [one] = of(figure("400.0", 8), figure("3200.0", 8, **other))
    assert one.found == "3200.0, 700.0 % apart, 8 times"


def test_a_figure_that_its_logs_do_not_give() -> None:
    logs = [figure(one, origin="log", path=f"{n}.log", row=one) for n, one in enumerate(("390.1", "394.7", "401.2"))]
    assert of(figure("400.0"), *logs) == []
    [one] = of(figure("480.0"), *logs)
    assert (one.rule, one.severity) == ("not in its log", ERROR)
    assert one.expected == "401.2, the nearest of 3 logs (2.log:1)"
    assert one.found == "480.0, 19.6 % above"


def test_files_are_held_against_each_other(tmp_path: Path) -> None:
    head = "row,column,printed,model,batch,steps,origin\n"
    claimed = table(tmp_path, head + "8,OneFlow,3089.74,resnet50,48,100,\n", "claimed.csv")
    logged = table(tmp_path, head + "8,OneFlow,2478.59,resnet50,48,30,log\n", "logged.csv")
    found = audit_all([claimed, logged])
    assert [told(several) for several in found.values()] == [
        [],
        [],
        [("not in its log", ERROR), ("steps that never ran", ERROR)],
    ]


def test_means_of_rates() -> None:
    total = figure("400.0", estimator="samples_over_seconds")
    mean = figure("438.8", estimator="mean_of_rates", row="mean", column="mean")
    found = of(total, mean)
    assert told(found) == [
        ("mean of rates beside the total", ERROR),
        ("mean of rates", WARNING),
        ("estimators mixed", WARNING),
    ]
    assert found[0].found == "438.8: a mean of rates, +9.7 %"


def test_one_table_under_two_models() -> None:
    rates = ["3700", "3860", "4113", "5023", "5080"]
    ctr = [figure(one, n + 1, model="ctr_dnn", batch="") for n, one in enumerate(rates)]
    bow = [replace(one, table="u", model="simnet_bow") for one in ctr]
    assert ("one table under two models", ERROR) in told(of(*ctr, *bow))
    own = [replace(one, printed=f"{int(one.printed) + 7}") for one in bow]
    assert of(*ctr, *own) == of(*ctr)


def test_repeated_digits() -> None:
    found = of(figure("1234.5", 8), figure("1234.5", 16))
    assert ("repeated digits", ERROR) in told(found)
    assert of(figure("1234", 8)) == []


def test_units() -> None:
    text = {"model": "bert_large", "device": "", "row": "x"}
    words = figure("14.4", unit="words/s", **text)
    assert told(of(figure("15.4", unit="steps/s", **text, table="u"), words)) == [("unit changes", WARNING)]
    assert told(of(figure("15.4", unit="steps/s", **text, column="y"), words)) == [("unit changes", ERROR)]
    assert of(figure("15.4", unit="sequences/s", **text, column="y"), replace(words, unit="sentences/s", row="z")) == []
    assert [
        counted(one) for one in ("img/s", "images/sec", "samples per second", "seq/s/GPU", "img/min", "furlongs")
    ] == [*("rows", "rows", "rows", "rows per device", "rows a minute", "furlongs")]
    assert [model_of(one) for one in ("ResNet-50 v1.5", "BERT-Large", "bert_base", "Q")] == [
        *("resnet50", "bert_large", "bert_base", "Q")
    ]


def test_batches() -> None:
    heads = "GPUs | Batch size / GPU | Accumulation | Global Batch Size"
    row = {"options": {"accumulation": "16"}, "batch": "64"}
    assert of(figure("400", 8, **row, row="8 | 64 | 16 | 8192"), labels=heads) == []
    [one] = of(figure("400", 8, **row, row="8 | 64 | 16 | 32768"), labels=heads)
    assert (one.rule, one.expected) == ("batch and global batch", "64 x 16 x 8 devices = 8192")
    stated = {"options": {"global_batch": "4096"}}
    assert told(of(figure("400", 8, **stated))) == [("batch and global batch", ERROR)]
    mixed = figure("400"), figure("300", column="MXNet", system="MXNet", batch="96")
    assert told(of(*mixed)) == [("batches mixed", WARNING)]


def test_a_batch_four_times_the_stated_one(tmp_path: Path) -> None:
    text = "GPUs,batch,img/s,ms/step\n1,32,400.0,{}\n"
    assert audit(table(tmp_path, text.format("80.0"))) == []
    [one] = audit(table(tmp_path, text.format("320.0")))
    assert (one.rule, one.severity, one.found) == ("samples in a step", ERROR, "128: 400.0 times 320.0 ms, 4 times")


def test_steps_windows_and_runs() -> None:
    assert told(of(figure("400", steps="100", options={"ran": "30"}))) == [("steps that never ran", ERROR)]
    assert of(figure("400", steps="100", options={"ran": "120"})) == []
    assert told(of(figure("400", steps="100", options={"epoch_steps": "13"}))) == [("warm-up or epoch end", WARNING)]
    assert told(of(figure("400", options={"warmup": "0"}))) == [("warm-up or epoch end", WARNING)]
    assert told(of(figure("400", options={"runs": "1"}))) == [("few runs", WARNING)]
    assert of(figure("400", options={"runs": "7"})) == []


def test_work_that_differs() -> None:
    clipped, free = ({"options": {"clip": one}, "column": one, "system": one} for one in ("on", "off"))
    [one] = of(figure("400", **clipped), figure("420", **free))
    assert (one.rule, one.severity, one.found) == ("work differs", WARNING, "on in on; off in off")


def test_a_cell_stands_once() -> None:
    [one] = of(figure("400"), figure("410"))
    assert (one.rule, one.severity, one.expected) == ("cell twice", ERROR, "one cell; README.md:1 has 400")


# Sound tables, changed in one place


def sound() -> dict[tuple[str, str], list[Cell]]:
    """Tables of published sources with series and without an error."""
    found = {}
    for source in ("dlperf-v1.0", "tf-benchmarks-2017", "nvidia-mxnet-resnet50", "oneflow-v0.3-dynamic-loss-scaling"):
        subject = reading.folder(PUBLISHED / source)
        for name, cells in subject.tables.items():
            findings = audit(Subject(source, cells))
            if any(one.value for one in cells) and not any(one.severity == ERROR for one in findings):
                found[source, name] = list(cells)
    return found


def changed(cells: Sequence[Cell], at: Cell, printed: str) -> list[Finding]:
    """What is found besides, where a cell is printed otherwise."""
    source = cells[0].source
    before = {(one.rule, one.where, one.column) for one in audit(Subject(source, cells))}
    other = [cell(replace(at.figure, printed=printed), source, at.where) if one is at else one for one in cells]
    return [one for one in audit(Subject(source, other)) if (one.rule, one.where, one.column) not in before]


def rates(cells: Sequence[Cell]) -> list[Cell]:
    series = {id(one) for several in Subject("s", cells).same_batch for one in several}
    return [one for one in cells if id(one) in series]


def ratios(cells: Sequence[Cell]) -> list[Cell]:
    return [one for one in cells if one.figure.quantity == "speedup" and one.number > 1]


@pytest.mark.parametrize(
    ("kind", "change", "least"),
    [
        (rates, lambda one: f"{one.number * 3:.2f}", 1.0),
        (rates, lambda one: f"{one.number / 10:.3f}", 1.0),
        (rates, lambda one: f"{one.number * 1.6:.2f}", 0.7),
        (ratios, lambda one: f"{one.number * 1.1:.2f}", 1.0),
        (ratios, lambda one: f"{one.number - 0.05:.2f}", 1.0),
        (ratios, lambda one: f"{one.number + 0.01:.2f}", 0.5),
    ],
    ids=["three times", "a tenth", "1.6 times", "a ratio more", "a ratio less", "a last digit"],
)
def test_a_change_of_a_sound_table_is_found(
    kind: Callable[[Sequence[Cell]], list[Cell]], change: Callable[[Cell], str], least: float
) -> None:
    """least: share of cells; the others may be so, by all that their table tells."""
    tried = [(cells, one) for cells in sound().values() for one in kind(cells)]
    assert len(tried) >= 3
    missed = [(one.figure.table, one.figure.row) for cells, one in tried if not changed(cells, one, change(one))]
    assert len(missed) <= (1 - least) * len(tried), missed


def test_swapped_and_copied_cells_of_a_series_are_found() -> None:
    generator, missed, tried = random.Random(17), [], 0
    for cells in sound().values():
        for series in Subject("s", cells).same_batch:
            a, b = generator.sample(list(series), 2)
            if a.digits < 4 or b.digits < 4:
                continue
            tried += 2
            twice = changed(cells, a, b.figure.printed)
            other = [
                cell(replace(b.figure, printed=a.figure.printed), b.source, b.where) if x is b else x for x in cells
            ]
            swapped = changed(other, next(one for one in other if one is a), b.figure.printed)
            missed += [(a.figure.table, a.figure.column)] if not twice else []
            missed += [(a.figure.table, a.figure.column)] if not swapped else []
    assert tried > 70
    assert missed == []


# What stands beside a rate, and logs as tables


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "GPUs,batch,img/s (samples over seconds),img/s (mean of rates)\n1,64,400.0,438.8\n",
            [("mean of rates beside the total", ERROR), ("mean of rates", WARNING), ("estimators mixed", WARNING)],
        ),
        ("GPUs,samples,seconds,img/s\n1,6400,16.0,400.0\n", []),
        ("GPUs,samples,seconds,img/s\n1,6400,16.0,403.0\n", [("samples over seconds", WARNING)]),
        ("GPUs,samples,seconds,img/s\n1,6400,16.0,438.8\n", [("samples over seconds", ERROR)]),
        (
            "GPUs,steps,steps run,published img/s,img/s of its log\n8,100,30,3089.74,2478.59\n",
            [("not in its log", ERROR), ("steps that never ran", ERROR)],
        ),
        ("step,loss,time (s),img/s\n20,7.1,10.0,400\n40,6.9,19.0,410\n60,6.6,30.0,405\n", []),
        ("step,loss,time (s),img/s\n20,7.1,10.0,400\n40,6.9,9.0,410\n", [("clock of a log", ERROR)]),
        ("step,loss,img/s\n20,7.1,400\n40,nan,410\n", [("losses of a log", ERROR)]),
        ("step,loss,img/s\n20,7.1,400\n40,7.2,410\n60,7.3,410\n", [("losses of a log", WARNING)]),
    ],
)
def test_what_stands_beside_a_rate(tmp_path: Path, text: str, found: list[tuple[str, str]]) -> None:
    assert told(audit(table(tmp_path, text))) == found
