"""`dlperf report` and `dlperf table`: reports again, and their small tables in a page."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dlperf import table
from dlperf.comparison import store
from dlperf.report import __main__ as report
from dlperf.report import results_json

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "report" / "published"
BERT, RESNET = (PUBLISHED / f"2026-11-27-h200-fp16-{name}" for name in ("bert", "resnet50"))
MARK = "<!-- dlperf table {} {} -->\nold\n<!-- end of the table -->\n"


def test_a_report_is_rendered_again_from_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(BERT / "results.json"), "-o", str(tmp_path / "again")]) == 0
    for name in ("report.md", "results.csv", "results.json"):
        assert (tmp_path / "again" / name).read_bytes() == (BERT / name).read_bytes()
    assert capsys.readouterr().out.startswith(f"Report: {tmp_path}/again/report.md and ")


def test_an_explanation_is_rendered_again_from_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held, again = PUBLISHED / "2026-11-25-why-bert-pytorch-jax", tmp_path / "again"
    shutil.copytree(held, tmp_path / "held")
    (tmp_path / "held" / "why.md").unlink()
    for _ in range(2):  # the second time in place of the first
        assert report.main([str(tmp_path / "held" / "why.json"), "-o", str(again)]) == 0
    assert report.main([str(tmp_path / "held")]) == 0
    for folder in (again, tmp_path / "held"):
        assert (folder / "why.md").read_bytes() == (held / "why.md").read_bytes()
    assert capsys.readouterr().out.startswith(f"Report: {again}/why.md and {again}/why.html\n")
    (tmp_path / "held" / "why.json").write_text('{"a": 1}')
    assert report.main([str(tmp_path / "held")]) == 2
    assert "not what this dlperf.why writes" in capsys.readouterr().err


def test_several_have_folders_and_a_list(tmp_path: Path) -> None:
    sources = [str(BERT), str(RESNET / "results.json"), str(BERT)]
    for _ in range(2):  # the second time in place of the first
        assert report.main([*sources, "--output", str(tmp_path / "all")]) == 0
    listed = (tmp_path / "all" / "README.md").read_text()
    for name in (BERT.name, RESNET.name, f"{BERT.name}-2"):
        assert (tmp_path / "all" / name / "report.html").exists()
        assert f"## [{name}]({name}/report.md)" in listed


def test_what_is_no_run_or_has_other_files_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    for words, says in (
        ([str(BERT), "-o", str(tmp_path)], "holds something else than a report"),
        ([str(BERT), str(RESNET), "-o", str(tmp_path / "mine")], "this is a file"),
        ([str(tmp_path)], "no folder with comparison.json or results.json"),
        ([str(tmp_path / "nowhere"), str(BERT)], "no folder with comparison.json or results.json"),
        ([str(ROOT / "setup.cfg")], "not what dlperf wrote"),
    ):
        assert report.main(words) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert says in told.err
        assert len(told.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_badge_is_what_shields_io_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys: https://shields.io/badges/endpoint-badge."""
    run = PUBLISHED / "2026-11-27-cpu-fp32"
    page = (run / "report.md").read_text(encoding="utf-8")

    def badge(*words: object) -> dict[str, object]:
        assert table.main([*map(str, words), "--badge"]) == 0
        told: dict[str, object] = json.loads(capsys.readouterr().out)
        assert told.keys() == {"schemaVersion", "label", "message", "color"}
        assert told["schemaVersion"] == 1
        return told

    fastest = badge(run, "bert_base-fp32-cpu")
    assert fastest["label"] == "BERT-base pretraining, fp32, CPU"
    assert fastest["message"] == "PyTorch+onednn-linear 4.423 sentences/s [4.236, 4.508]"
    assert fastest["color"] == "blue"
    rate, interval = str(fastest["message"]).split()[1], str(fastest["message"]).partition("/s ")[2]
    assert f"| {rate} | {interval} |" in page
    assert str(badge(run, "bert_base-fp32-jax-b4")["message"]).startswith("JAX 3.722 sentences/s [3.356, 3.818]")
    comparison = replace(store.read(run)[0], unmet=("the machine was busy when it began",))
    (tmp_path / "results.json").write_text(results_json(comparison), encoding="utf-8")
    assert badge(tmp_path, "bert_base-fp32-cpu") == {**fastest, "color": "lightgrey"}
    few = badge("2026-11-21-cpu-amp", "bert_base-amp-cpu")
    assert few["color"] == "lightgrey", "of few runs"
    assert str(few["message"]).endswith("[2.46, 4.23] (tie with 3 others)")
    two = badge("2026-11-21-cpu-fp32-two-hosts-mpi", "bert_base-fp32-pytorch-2n1d-b2")
    assert two["label"] == "BERT-base pretraining, fp32, CPU, 2n2d"
    for words, says in (
        ([run], "SECTION: a badge is of one section or row. Name one of "),
        ([run, "bert_base-fp32-cpu", "x"], "a badge is of one section or row"),
        ([run, "bert_base-fp32-cpx"], "Did you mean 'bert_base-fp32-cpu'?"),
        (["--write", tmp_path / "page.md"], "--badge: it is printed"),
    ):
        assert table.main([*map(str, words), "--badge"]) == 2
        told = capsys.readouterr()
        assert (told.out, says in told.err) == ("", True), told.err


def test_tables_of_the_readme_are_what_their_results_give() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [found[1] for found in table.MARKED.findall(page)] == ["table", "chart", "table"]
    assert table.renewed(page, ROOT) == page, "`python -m dlperf.table --write README.md` renews them"


def test_a_table_is_printed_or_renewed_between_its_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n" + MARK.format(BERT, "bert_base-amp-cuda") + "b\n" + MARK.format(RESNET, "resnet50-amp-cuda"))
    assert table.main(["--write", str(page)]) == 0
    told = page.read_text()
    assert "old" not in told
    assert told.startswith("a\n<!-- dlperf table ")
    assert table.main([str(BERT), "bert_base-amp-cuda"]) == 0
    printed = capsys.readouterr().out
    assert printed in told
    assert "| PyTorch+inductor | 2 | 4,233.6 | [4,227.6, 4,239.6] | 1 | – | 1 | same work: " in printed


def test_a_chart_is_shown_as_seen_from_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(BERT, tmp_path / "bert")
    page, mark = tmp_path / "page.md", "<!-- dlperf chart {} bert_base-amp-cuda -->\n<!-- end of the chart -->\n"
    page.write_text(mark.format("bert/results.json") + mark.format("bert"))
    for _ in range(2):  # the second time in place of the first
        assert table.main(["--write", str(page)]) == 0
    shown = [line for line in page.read_text().splitlines() if line.startswith("!")]
    (own,) = (line for line in (BERT / "report.md").read_text().splitlines() if line.startswith("!"))
    assert shown == 2 * [own.replace("(charts/", "(bert/charts/")]
    (tmp_path / "bert" / "charts" / "bert_base-amp-cuda.svg").unlink()
    assert table.main(["--write", str(page)]) == 2
    said = "RUN bert/results.json: it has no charts/bert_base-amp-cuda.svg beside it. Render its report"
    assert said in capsys.readouterr().err


def test_a_page_whose_marks_are_not_whole_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, whole = tmp_path / "page.md", MARK.format(BERT, "bert_base-amp-cuda")
    for text, says in (
        (
            b"a\n" + whole.replace("<!-- end", "<!-- and").encode() + b"mine\n" + whole.encode(),
            "line 2: no <!-- end of",
        ),
        (b"nothing", "the page has no <!-- dlperf table RUN SECTION -->"),
        (b"a\xff", "is not UTF-8 (byte 1)"),
    ):
        page.write_bytes(text)
        assert table.main(["--write", str(page)]) == 2
        assert says in capsys.readouterr().err
        assert page.read_bytes() == text


def test_a_section_that_is_not_there_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(MARK.format(BERT, "bert_base-amp-cud"))
    for words in ([str(BERT), "bert_base-amp-cud"], ["--write", str(page)]):
        assert table.main(words) == 2
        said = "SECTION: 'bert_base-amp-cud' is not usable; allowed: bert_base-amp-cuda. Did you mean "
        assert capsys.readouterr().err.strip() == said + "'bert_base-amp-cuda'?"
    assert "old" in page.read_text()
    assert table.main([]) == 2
    assert table.main(["--write", str(tmp_path / "nowhere.md")]) == 2
