"""What others published, in a report: cell for cell as their own documents have it, and harmless whatever they hold."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path

import pytest
from places import GOLDEN, ROOT

from dlperf import report, sources
from dlperf.comparison import store
from dlperf.figures import closest
from dlperf.figures.published import COLUMNS, Figure
from dlperf.report import __main__ as command
from dlperf.report import against, charts
from dlperf.report.shape import Chart, LineChart
from dlperf.report.source import CHART, source_report

PUBLISHED = ROOT / "report" / "published"
NAMES = sorted(path.parent.name for path in PUBLISHED.glob("*/figures.csv"))
DLPERF, ONEFLOW, VGG = "dlperf-v1.0", "oneflow-v0.3-dynamic-loss-scaling", "paddle-vgg16-cpu-ps"
#: published pages of our rows beside those of others
AGAINST = {
    "2026-11-27-cpu-fp32": [DLPERF],
    "2026-11-27-h200-fp16-resnet50": [DLPERF, "nvidia-pytorch-resnet50"],
}


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts take most of the time, and are tested apart."""
    monkeypatch.setattr(charts, "svg", lambda chart, name: "<svg></svg>\n")


def without_charts(page: str) -> str:
    return re.sub(r"<svg.*?</svg>\n", "", page, flags=re.DOTALL)


def rendered(name: str) -> dict[str, str]:
    return report.render_source(sources.read_source(PUBLISHED / name))


def markdown_tables(page: str) -> list[list[list[str]]]:
    """The cells of each table, heads first, without what marks notes, links and escapes."""
    found: list[list[list[str]]] = [[]]
    for line in page.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            found[-1] += [[re.sub(r"\\(.)", r"\1", plain(cell)) for cell in cells]]
        elif found[-1]:
            found.append([])
    return [[table[0], *table[2:]] for table in found if table]


def plain(cell: str) -> str:
    cell = re.sub(r"\s*<sup>[^<]*</sup>", "", cell)
    cell = re.sub(r"<br\s*/?>", " ", cell)
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).strip()


def printed(text: str) -> list[list[list[str]]]:
    """The cells of each table of a document, in Markdown or HTML, without layout and links."""
    text = re.sub(r"<sup>(.*?)</sup>", r"\1", text)
    if "<table>" not in text:
        return markdown_tables(re.sub(r"<br\s*/?>", " ", text))
    tables = re.findall(r"<table>(.*?)</table>", text, re.DOTALL)
    rows = [re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL) for table in tables]
    return [[[cell.strip() for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)] for row in table] for table in rows]


def documents() -> list[Path]:
    """Their tables, cut out: what stands around them is not ours to copy."""
    return sorted((Path(__file__).parent / "printed").iterdir())


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.stem)
def test_every_cell_is_as_its_document_has_it(document: Path) -> None:
    page = rendered(document.stem)["report.md"]
    made = {json.dumps([row[:-1] for row in table[1:]]): table[0][:-1] for table in markdown_tables(page)}
    expected = printed(document.read_text(encoding="utf-8"))
    assert len(expected) == {DLPERF: 8, ONEFLOW: 1, VGG: 4}[document.stem]
    for head, *rows in expected:
        found = made[json.dumps(rows)]
        if document.suffix == ".md":
            assert found == head
        else:  # what labels the columns stands in its corner
            assert found[1:] == head[1:]
            assert f"Columns: {head[0]}." in page
    for url in re.findall(r"\]\((https://[^)]+)\)", document.read_text(encoding="utf-8").partition("## Benchmark")[0]):
        if f"[OneFlow]({url})" not in document.read_text(encoding="utf-8") and "/tree/" in url and len(url) > 80:
            assert f"]({url})" in page


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.stem)
def test_the_cut_out_tables_are_those_of_the_documents(document: Path) -> None:
    """Where the documents themselves are beside the clone."""
    seeds = [path.read_text(encoding="utf-8") for path in sorted((ROOT.parent / "shared" / "seeds").glob("*.txt"))]
    if not seeds:
        pytest.skip("no ../shared/seeds here")
    assert printed(document.read_text(encoding="utf-8")) in map(printed, seeds)


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_every_source_is_in_its_pages_and_nothing_is_lost(name: str) -> None:
    source = sources.read_source(PUBLISHED / name)
    made = report.render_source(source)
    page = source_report(source)
    shown = [cell.text for table in page.tables for row in table.rows for cell in row[:-1]]
    for one in source.figures:
        if not one.printed.startswith("["):
            assert any(one.printed.strip() in cell for cell in shown), one
    assert made["figures.csv"] == (PUBLISHED / name / "figures.csv").read_text(encoding="utf-8")
    held = json.loads(made["figures.json"])
    assert [one["printed"] for one in held["figures"] if "printed" in one] == [
        one.printed for one in source.figures if one.printed
    ]
    assert {note for one in source.figures if (note := " ".join(one.doubt.split()))} <= {
        note for table in page.tables for note in table.notes
    }


def test_what_was_read_off_a_chart_is_marked_and_in_no_chart_and_no_speedup() -> None:
    page = source_report(sources.read_source(PUBLISHED / "paddle-collective-2020"))
    assert all(table.notes[0] == CHART for table in page.tables)
    assert all(1 in cell.notes for table in page.tables for row in table.rows for cell in row[1:-1] if cell.text)
    assert not any(table.charts or table.speedups for table in page.tables)


@pytest.mark.usefixtures("_undrawn")
def test_bars_are_as_printed_and_lines_are_computed_from_them() -> None:
    first, *others = source_report(sources.read_source(PUBLISHED / DLPERF)).tables
    bars, lines = first.charts
    assert isinstance(bars, Chart)
    assert isinstance(lines, LineChart)
    assert [panel.title for panel in bars.panels] == ["1 device", "8 devices", "16 devices", "32 devices"]
    assert [bar.text for bar in bars.panels[3].bars][:2] == ["12411.97", "11331.93"]
    assert bars.panels[3].bars[0].value == 12411.97
    assert lines.lines[0].points[3].value == 12411.97 / 397.64
    assert (bars.axis, lines.axis) == ("as printed", "computed from the printed rates")
    assert sum(len(table.charts) for table in (first, *others)) == 12
    speedups = first.speedups
    assert speedups is not None
    assert speedups.rows[0].cells == ("OneFlow", "1", "7.87", "15.74", "31.21")


def test_a_place_is_linked_only_where_the_source_names_repository_and_commit() -> None:
    told = sources.read_source(PUBLISHED / ONEFLOW).told
    url = "https://github.com/Oneflow-Inc/DLPerf/blob/"
    assert sources.link(told, "a b.md", [5, 3]) == f"{url}{told.commit}/a%20b.md?plain=1#L3-L5"
    assert sources.link(told, "x/y@0123abc:z.py", [7]) == "https://github.com/x/y/blob/0123abc/z.py#L7"
    for path in ("x/y@branch:z", "javascript:alert(1)@0123abc:z"):
        assert sources.link(told, path, []).startswith(url)
    assert sources.link(sources.Told(repository="a/b", commit="main"), "z", []) == ""


# As golden files


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_a_small_source_is_as_its_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    golden = GOLDEN / "source" / name
    made = rendered(ONEFLOW)[name]
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(made, encoding="utf-8")
    assert made == golden.read_text(encoding="utf-8"), "`pytest --update-golden` rewrites the golden files"


def test_the_published_reproduction_is_what_the_command_gives(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not request.config.getoption("--update-golden"):
        monkeypatch.setattr(charts, "svg", lambda chart, name: "<svg></svg>\n")
    made, folder = rendered(DLPERF), PUBLISHED / DLPERF
    if request.config.getoption("--update-golden"):
        report.place(made, folder)
    for name, content in made.items():
        held = (folder / name).read_text(encoding="utf-8")
        if not name.endswith(".svg"):
            assert without_charts(content) == without_charts(held), "`pytest --update-golden` renders it again"
    assert sorted(f"charts/{path.name}" for path in (folder / "charts").iterdir()) == sorted(
        name for name in made if name.endswith(".svg")
    )


@pytest.mark.parametrize(("folder", "names"), AGAINST.items())
def test_a_published_page_beside_others_is_what_the_command_gives(
    folder: str, names: list[str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not request.config.getoption("--update-golden"):
        monkeypatch.setattr(charts, "svg", lambda chart, name: "<svg></svg>\n")
    comparison, _ = store.read(PUBLISHED / folder)
    made = report.render_against(comparison, [sources.read_source(PUBLISHED / name) for name in names])
    if request.config.getoption("--update-golden"):
        report.place(made, PUBLISHED / folder)
    for name, content in made.items():
        held = (PUBLISHED / folder / name).read_text(encoding="utf-8")
        assert without_charts(content) == without_charts(held), "`pytest --update-golden` renders it again"
    assert {f"charts/{path.name}" for path in (PUBLISHED / folder / "charts").glob("against-*")} == {
        name for name in made if name.endswith(".svg")
    }


# Hostile and incomplete ones


HEAD = ",".join(COLUMNS) + "\n"


def line(**values: str) -> str:
    """One of figures.csv."""
    of = {"table": "t", "row": "r", "column": "c", "printed": "1.50", "quantity": "throughput", "origin": "table"}
    return ",".join('"' + ({**of, **values}.get(name, "")).replace('"', '""') + '"' for name in COLUMNS) + "\n"


EVIL = "<script>alert(1)</script> | `x` [a](javascript:b) ** \x1b[31m\u202e\x00"


def folder(place: Path, figures: str, told: str = "") -> Path:
    place.mkdir()
    (place / "figures.csv").write_text(figures, encoding="utf-8")
    if told:
        (place / "source.toml").write_text(told, encoding="utf-8")
    return place


def test_a_hostile_source_is_harmless(tmp_path: Path) -> None:
    evil = EVIL.replace("\x00", "")
    of = {"unit": evil, "model": evil, "system": evil, "device": evil, "doubt": evil, "path": "x\x1b](y)", "line": "3"}
    cells = [line(table=evil, row=f"{evil}{n}", column=evil, devices=str(n + 1), **of) for n in range(3)]
    told = f'title = {json.dumps(evil)}\nurl = "javascript:alert(1)"\nrepository = "a/b)[x"\ncommit = "abcdef0"\n'
    told += f'[[table]]\nid = "unused"\nfootnotes = ["x"]\n[[hardware]]\nname = {json.dumps(evil)}\n'
    made = report.render_source(sources.read_source(folder(tmp_path / "evil", HEAD + "".join(cells), told)))
    page, plain_ = made["report.html"], made["report.md"]
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    assert "](javascript" not in plain_.replace("\\]", "").replace("\\[", "")
    assert "<script>" not in plain_.replace("\\<", "")
    for name, text in made.items():
        if name not in ("figures.csv", "source.toml", "figures.json"):
            assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
    rows = [row for row in plain_.splitlines() if row.startswith("|")]
    heads = len(re.findall(r"(?<!\\)\|", rows[0]))
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows[:5]] == [heads] * 5
    assert all(re.fullmatch(r"charts/[a-z0-9._-]+\.svg", name) for name in made if name.endswith(".svg"))


def test_a_folder_without_source_toml_is_titled_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = line(devices="1") + line(row="s", printed="") + line(row="s", quantity="efficiency", printed="90%")
    assert command.main([str(folder(tmp_path / "mine", HEAD + cells))]) == 0
    page = (tmp_path / "mine" / "report.md").read_text(encoding="utf-8")
    assert page.startswith("# mine\n")
    assert "| r | 1.50 | – |" in page
    assert "| s | (90%) | – |" in page
    assert capsys.readouterr().out.startswith(f"Report: {tmp_path / 'mine' / 'report.md'} and ")
    assert (tmp_path / "mine" / "figures.csv").read_text() == HEAD + cells
    assert command.main([str(tmp_path / "mine" / "figures.csv"), "-o", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "report.md").read_text(encoding="utf-8") == page


# The command


def test_sources_and_runs_have_folders_and_a_list(tmp_path: Path) -> None:
    run = PUBLISHED / "2026-11-27-h200-fp16-resnet50"
    for _ in range(2):  # the second time in place of the first
        words = [str(run), "--published", f"{ONEFLOW},{VGG}", "-o", str(tmp_path / "all")]
        assert command.main(words) == 0
    listed = (tmp_path / "all" / "README.md").read_text(encoding="utf-8")
    assert f"## [{run.name}]({run.name}/report.md)" in listed
    assert f"- [{ONEFLOW}]({ONEFLOW}/report.md): OneFlow" in listed
    assert (tmp_path / "all" / VGG / "figures.csv").read_bytes() == (PUBLISHED / VGG / "figures.csv").read_bytes()
    assert command.main([str(tmp_path / "all" / VGG), "-o", str(tmp_path / "third")]) == 0
    assert (tmp_path / "third" / "report.md").read_bytes() == (tmp_path / "all" / VGG / "report.md").read_bytes()


def test_what_cannot_be_rendered_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = folder(tmp_path / "twice", HEAD + line() + line())
    control = folder(tmp_path / "control", HEAD + line(printed="1").replace(',"1",', ',"1\x00,'))
    toml = folder(tmp_path / "toml", HEAD + line(), "title = 3\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    other = str(folder(tmp_path / "other", HEAD + line()))
    run = str(PUBLISHED / "2026-11-27-h200-fp16-resnet50")
    for words, says in (
        (["--published", "dlperf-v1"], "Did you mean 'dlperf-v1.0'? Sources: dlperf-v1.0, lambda, "),
        (["--published", ","], "--published: names none. Sources: dlperf-v1.0, "),
        ([], "nothing to report: name a run"),
        ([run, "--against", "dlperf-v2.0"], "--against dlperf-v2.0: no such source"),
        ([other, "--against", DLPERF], "goes with runs alone"),
        ([str(twice)], "figures.csv: line 3: t / r / c / throughput stands there twice."),
        ([str(control)], "figures.csv: "),
        (
            [str(toml)],
            "source.toml: not as a source has it (ValidationError: Expected `str`, got `int` - at `$.title`)",
        ),
        (["--published", ONEFLOW, "-o", str(tmp_path / "full")], "holds something else than a report of this"),
        (["--published", ONEFLOW, "-o", other], "holds something else than a report of this"),
    ):
        assert command.main(words) == 2, words
        told = capsys.readouterr()
        assert (told.out, len(told.err.splitlines())) == ("", 1)
        assert says in told.err
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        *["figures.csv"] * 4,
        "mine",
        "source.toml",
    ]


# Beside ours


def figure(**values: object) -> Figure:
    of: dict[str, object] = dict.fromkeys(COLUMNS, "") | {"nodes": 1, "devices": 1, "line": None, "options": {}}
    told = {"printed": "100", "quantity": "throughput", "unit": "img/s", "model": "resnet50", "origin": "table"}
    return Figure(**{**of, **told, "batch": "256", "batch_of": "device", **values})  # type: ignore[arg-type]


def test_the_closest_row_is_chosen_in_the_order_that_is_told() -> None:
    comparison, _ = store.read(PUBLISHED / "2026-11-27-h200-fp16-resnet50")
    job = next(job for job in comparison.jobs if job.adapter == "pytorch")
    order = [
        figure(precision="amp", framework="pytorch", estimator="samples_over_seconds"),
        figure(precision="amp", framework="pytorch", estimator="samples_over_seconds", doubt="x"),
        figure(precision="amp", framework="pytorch", estimator="mean_of_rates"),
        figure(precision="amp", framework="pytorch", origin="chart"),
        figure(precision="amp", framework="pytorch", batch="128"),
        figure(precision="amp", framework="pytorch", batch="1024", batch_of="global", devices=2),
        figure(precision="amp", framework="pytorch", devices=8),
        figure(precision="amp", framework="mxnet"),
        figure(precision="bf16", framework="pytorch"),
        figure(precision="", framework="pytorch"),
        figure(precision="fp32", framework="pytorch"),
        figure(precision="amp", framework="pytorch", options={"task": "finetune"}),
        figure(precision="amp", framework="pytorch", model="se_resnet50"),
    ]
    for number, one in enumerate(order):
        assert closest.closest(job, order[number:][::-1]) is one
    for none in (figure(model="resnet152"), figure(quantity="speedup"), figure(printed="-"), figure(printed="0")):
        assert closest.closest(job, [none]) is None


def test_no_ratio_stands_where_it_would_say_nothing() -> None:
    comparison, _ = store.read(PUBLISHED / "2026-11-27-h200-fp16-resnet50")
    job = comparison.jobs[0]
    for one, why in (
        (figure(precision="amp"), ""),
        (figure(precision="amp", device="V100"), ""),
        (figure(precision="amp", unit="samples/s"), "another unit"),
        (figure(precision="amp", model="se_resnet50", devices=8), "another model, number of devices"),
        (figure(precision="amp", devices=None), "number of devices not stated"),
        (figure(precision="", devices=4, batch="\u00b2"), "another number of devices; precision not stated"),
        (figure(precision="fp32"), "another precision"),
        (figure(precision="amp", origin="chart"), "read off a chart"),
    ):
        assert closest.no_ratio(job, "img/s", one) == why


def test_rows_stand_beside_others_and_the_report_stays_as_it_is(tmp_path: Path) -> None:
    run, out = PUBLISHED / "2026-11-27-cpu-fp32", tmp_path / "out"
    assert command.main([str(run), "-o", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert command.main([str(run), "--against", f"{DLPERF},{ONEFLOW}", "-o", str(out)]) == 0
    assert {name: (out / name).read_bytes() for name in before} == before
    assert {path.name for path in out.iterdir() if path.is_file()} - set(before) == set(report.AGAINST)
    rows = list(csv.DictReader((out / "against.csv").open(encoding="utf-8")))
    assert len(rows) == 2 * 17
    assert json.loads((out / "against.json").read_text(encoding="utf-8"))["rows"][0]["source"] == DLPERF
    by = {(row["job"], row["source"]): row for row in rows}
    torch = by["resnet50-fp32-pytorch-b16", DLPERF]
    assert (torch["printed"], torch["ours_over_published"], torch["line"]) == ("367.29", "0.0363", "89")
    assert "hardware: ours AMD EPYC, 2 threads, published V100-SXM2-16GB" in torch["differs"]
    assert "batch: ours 16 per device, published 128 per device" in torch["differs"]
    none = by["bert_base-fp32-pytorch-b4", ONEFLOW]
    assert (none["printed"], none["ours_over_published"]) == ("", "")
    assert none["no_ratio"] == "it has no rate of BERT-base pretraining or its family"
    other = by["resnet50-fp32-pytorch-b16", ONEFLOW]
    assert (other["ours_over_published"], other["no_ratio"]) == ("", "another precision")
    assert "none: it has no rate of BERT-base pretraining or its family" in (out / "against.md").read_text(
        encoding="utf-8"
    )


def test_a_chart_has_each_row_beside_what_was_published_in_the_comparisons_order() -> None:
    comparison, _ = store.read(PUBLISHED / "2026-11-27-cpu-fp32")
    made = against.against(comparison, [sources.read_source(PUBLISHED / DLPERF)])
    chart = made.tables[0].chart
    assert chart is not None
    assert chart.title == "Ours is 0.0075 to 0.0369 times the closest published rate, on other hardware"
    assert chart.unit == "img/s per device"
    (panel,) = chart.panels
    assert panel.title.endswith(
        "Full bars: ours on AMD EPYC, 2 threads. Hatched: DLPerf Benchmark Test Report V1.0 on V100-SXM2-16GB"
    )
    assert [bar.hollow for bar in panel.bars] == [False, True] * 8
    assert [(bar.label, bar.text) for bar in panel.bars[:4]] == [
        ("JAX", "6.84 (n=7)"),
        ("OneFlow 0.2.0", "397.64 img/s"),
        ("Apache MXNet", "14.19 (n=7)"),
        ("NGC MXNet 1.6.0", "392.24 img/s"),
    ]
    assert 'fill="#ffffff"' not in charts.svg(chart, "x"), "which would be white on a dark page, too"
    assert charts.svg(chart, "x").count("<pattern") == len({bar.system for bar in panel.bars if bar.hollow})


def test_a_chart_of_several_devices_is_of_one() -> None:
    comparison, _ = store.read(PUBLISHED / "2026-11-21-cpu-fp32-ranks")
    two = figure(model="bert_base", devices=2, printed="80.0", unit="sentences/s", precision="fp32")
    read = dataclasses.replace(sources.read_source(PUBLISHED / DLPERF), figures=(two,))
    chart = against.against(comparison, [read]).tables[0].chart
    assert chart is not None
    ours, theirs = (bar for bar in chart.panels[0].bars[:2])
    assert theirs.text == "40.0 (80.0 sentences/s on 2 devices)"
    assert ours.text.endswith("(n=3 on 2 devices)")
    assert theirs.value == 40.0


def test_without_a_ratio_there_is_no_chart() -> None:
    comparison, _ = store.read(PUBLISHED / "2026-11-27-cpu-fp32")
    made = against.against(comparison, [sources.read_source(PUBLISHED / ONEFLOW)])
    assert {table.chart for table in made.tables} == {None}
