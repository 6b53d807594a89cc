"""`dlperf audit`: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from places import ROOT

from dlperf import sources
from dlperf.audit import __main__ as command
from dlperf.audit import reading
from dlperf.audit.rules import RULES

PUBLISHED = ROOT / "report" / "published"

SOUND = "GPUs,img/s\n1,400\n8,3100\n"
WRONG = "GPUs,img/s\n1,400\n8,3400\n"


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_source_a_file_and_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(SOUND)
    run = ROOT / "report" / "published" / "2026-11-27-cpu-amp"
    sources = ["mlperf-training-v5.0", str(tmp_path / "t.csv"), str(run), str(run / "results.json")]
    assert command.main([*sources, "2026-11-27-cpu-amp"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"t.csv: 0 errors, 0 warnings and 0 last digits, by {len(RULES)} rules" in lines
    assert sum(line.startswith(("2026-11-27-cpu-amp", str(run))) for line in lines) == 3


def test_an_error_is_told_with_cell_expected_and_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(WRONG)
    assert command.main([str(tmp_path / "t.csv")]) == 1
    assert capsys.readouterr().out.splitlines()[0] == (
        "error: t.csv: t / 8 / img/s (t.csv:3): super-linear: expected at most 3,200: 8 times 400 img/s on 1 device; "
        "found 3400 img/s on 8 devices: 8.5 times, 6.2 % beyond"
    )


def test_as_json_and_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(WRONG)
    assert command.main([str(tmp_path / "t.csv"), "--json", "-o", str(tmp_path / "out")]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "out" / "audit.json").read_text())
    [one] = told["findings"]
    assert (one["rule"], one["severity"], one["row"], one["where"]) == ("super-linear", "error", "8", "t.csv:3")
    assert one["basis"].startswith("with the same work per device")
    assert [rule["name"] for rule in told["rules"]] == [rule.name for rule in RULES]
    page = (tmp_path / "out" / "AUDIT.md").read_text()
    assert "| error | super-linear | t / 8 / img/s | t.csv:3 | at most 3,200: " in page


def test_the_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--rules"]) == 0
    told = capsys.readouterr().out
    assert told.count("    Source: ") == len(RULES)


def test_the_page_of_all_sources_is_what_they_give() -> None:
    """`python -m dlperf.audit --write` renews it."""
    from dlperf.audit import page
    from dlperf.audit.rules import audit_all

    found = audit_all([reading.folder(PUBLISHED / name) for name in sources.names()])
    told = {name: sources.read_source(PUBLISHED / name).told for name in sources.names()}
    written = (PUBLISHED / command.PAGE).read_text(encoding="utf-8")
    assert written == page.markdown(found, told)
    assert "README.md:854](https://github.com/NVIDIA/DeepLearningExamples/blob/" in written


def test_what_is_hostile_is_shown_cleaned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("GPUs,\x1b[31mimg/s | <b>*x*</b>\n1,400\n8,3400\n")
    assert command.main([str(tmp_path / "t.csv"), "-o", str(tmp_path / "out")]) == 1
    assert "\x1b" not in capsys.readouterr().out
    page = (tmp_path / "out" / "AUDIT.md").read_text()
    assert "\x1b" not in page
    assert "<b>" not in page.partition("## t.csv")[2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name what to audit, or --write"),
        (["dlperf-v1.0", "--write"], "name what to audit, or --write"),
        (["dlperf-v1"], "Did you mean 'dlperf-v1.0'?"),
        (["nowhere"], "no such source, and no folder with figures.csv. Sources: dlperf-v1.0, lambda, "),
        (["tests/arm"], "FILE|RUN|SOURCE tests/arm: no table is in it, and no log that is known."),
        (["setup.cfg"], "no table is in it"),
        (["LICENSE"], "no table is in it"),
        (["tests/golden/report/../../bench/results/none.json"], "no such source"),
        (["pyproject.toml/x"], "no such source"),
    ],
)
def test_a_wrong_request_is_one_message(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert says in told.err
    assert len(told.err.splitlines()) == 1


def test_a_folder_of_logs_that_cannot_be_read_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("Epoch: [0][  0/100]\tTime  0.710 ( 0.720)\tLoss 7.0 (7.0)\n", encoding="utf-8")
    (tmp_path / "b.log").write_text("nothing\n", encoding="utf-8")
    assert command.main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "2 logs could not be read: a.log: " in told
    assert "1 warning" in told


@pytest.mark.parametrize(
    ("name", "held", "says"),
    [
        ("wide.csv", f"{','.join(['img/s'] * 1001)}\n{','.join(['1'] * 1001)}\n".encode(), "1,001 columns"),
        ("wide.md", b"|" * 4000 + b"\n" + b"|-" * 2000 + b"|\n" + b"|1" * 2000 + b"|\n", "4,000 columns"),
        ("utf16.csv", "GPUs,img/s\n1,100\n".encode("utf-16"), "it is UTF-16. Convert it to UTF-8"),
        ("digits.json", b'[{"gpus": ' + b"9" * 6000 + b', "img/s": 1}]', "a number in it has too many digits."),
    ],
)
def test_what_is_not_read_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, held: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(held)
    assert command.main([str(tmp_path / name)]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "sys." not in told


def test_rows_that_are_left_out_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "long.csv").write_text("step,loss\n" + "".join(f"{n},1\n" for n in range(20_007)), encoding="utf-8")
    assert command.main([str(tmp_path / "long.csv")]) == 0
    assert "7 rows not read" in capsys.readouterr().out


def test_of_a_progress_bar_the_last_updates_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bar = "\r".join(f"step: {n}, loss: 6.9, 3.3 it/s" for n in range(1005))
    (tmp_path / "bar.log").write_bytes(f"{bar}\n".encode())
    assert command.main([str(tmp_path / "bar.log")]) == 0
    assert "5 rows not read" in capsys.readouterr().out
