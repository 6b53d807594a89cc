"""What --dry-run prints, and the question before what takes long."""

import contextlib
import io
import subprocess
import sys
from functools import partial

import pytest
from commands import FAKE, call

from dlperf import compare as compare_
from dlperf.comparison import store
from dlperf.runs import events

compare = partial(call, "compare")


def test_a_dry_run_prints_the_plan_and_a_command_of_each_row_and_does_nothing(tmp_path, bfloat16):
    ended = compare("--dry-run", "--device", "cpu", "-m", "bert", "-p", "amp", "-r", 2, "-o", tmp_path / "out")
    assert ended.returncode == 0
    assert not (tmp_path / "out").exists()
    assert ended.stdout.count("dlperf.adapters.worker job.json .") == 4
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("# 4 rows, 2 repeats each")
    assert lines[3].split() == ["#", "row", "devices", "batch", "steps", "runs", "environment", "about"]
    (row,) = [line.split() for line in lines if line.startswith("# bert_base-amp_bf16-pytorch-b4 ")]
    assert row[2:9] == ["1n1d", "4", "2", "+", "3", "x", "2"]
    assert "not run: bert_base amp paddle: unavailable" in ended.stdout


def test_a_full_dry_run_prints_every_command(tmp_path, bfloat16):
    words = ["--device", "cpu", "-m", "bert", "-p", "amp", "-r", 2, "-o", tmp_path / "out"]
    ended = compare("--dry-run=full", *words)
    assert ended.stdout.count("dlperf.adapters.worker job.json .") == 2 * 4 + 3 * 4  # runs, and three for each proof
    assert "pip install" in ended.stdout


def test_a_full_dry_run_is_a_script_that_does_what_the_comparison_would(tmp_path):
    printed = compare(*FAKE, "-r", 2, "--dry-run", "full", "-o", tmp_path / "with 'quotes").stdout
    ended = subprocess.run(["sh", "-e"], input=printed, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    streams = [events.read(path) for path in (tmp_path / "with 'quotes").glob("runs/*/*/events.rank0.jsonl")]
    assert [len(stream.windows) for stream in streams] == [3, 3]


def test_a_word_that_dry_run_does_not_know_is_one_line(tmp_path):
    ended = compare(*FAKE, "--dry-run=all")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "--dry-run: 'all' is not usable; allowed: rows, full.\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


LONG = ["-m", "bert", "-f", "numpy", "--device", "cpu", "-r", "1000", "--no-verify"]


@pytest.mark.parametrize(
    ("answer", "begins"), [("y\n", True), ("Yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_on_a_terminal_what_takes_long_begins_when_it_is_wanted(tmp_path, monkeypatch, answer, begins):
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(store, "create", lambda *_: pytest.fail("begun") if not begins else sys.exit(42))
    words = [*LONG, "-o", str(tmp_path / "out")]
    with pytest.raises(SystemExit) if begins else contextlib.nullcontext():
        assert compare_.main(words) == 1
    assert "1 row, 1000 repeats" in shown.getvalue()
    assert "Begin? [y/N]" in shown.getvalue()


@pytest.mark.parametrize("words", [["--yes"], ["-r", "1"]], ids=["yes", "short"])
def test_what_is_wanted_or_short_begins_without_a_question(tmp_path, monkeypatch, words):
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(store, "create", lambda *_: sys.exit(42))
    with pytest.raises(SystemExit):
        compare_.main([*LONG, *words, "-o", str(tmp_path / "out")])
