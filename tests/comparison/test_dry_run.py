"""What --dry-run prints, and the question before what takes long."""

import contextlib
import io
import os
import re
import subprocess
import sys
from functools import partial

import pytest
from commands import FAKE, call

from dlperf import compare as compare_
from dlperf.comparison import store
from dlperf.envs import indexes
from dlperf.runs import events
from dlperf.shell import quote

compare = partial(call, "compare")


def test_a_dry_run_prints_the_plan_and_a_command_of_each_row_and_does_nothing(tmp_path, bfloat16):
    ended = compare("--dry-run", "--device", "cpu", "-m", "bert", "-p", "amp", "-r", 2, "-o", tmp_path / "out")
    assert ended.returncode == 0
    assert not (tmp_path / "out").exists()
    assert ended.stdout.count("dlperf.adapters.worker job.json .") == 4
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["#", "row", "devices", "batch", "steps", "runs", "environment", "about"]
    assert any(line.startswith("# 4 rows, 2 repeats each") for line in lines)
    (row,) = [line.split() for line in lines if line.startswith("# bert_base-amp_bf16-pytorch-b4 ")]
    assert row[2:9] == ["1n1d", "4", "2", "+", "3", "x", "2"]
    assert "not run: bert_base amp paddle: unavailable" in ended.stdout


def test_the_plan_alone_has_no_command_and_rows_with_the_same_share_one(tmp_path, bfloat16):
    words = ["--device", "cpu", "-m", "bert,resnet50", "-f", "pytorch,jax", "--tuned", "off", "-o", tmp_path / "out"]
    told = (compare(f"--dry-run={form}", *words).stdout for form in ("plan", "rows"))
    plan, rows = (re.sub(r"[\d.]+ GB available", "GB available", one) for one in told)  # others take memory meanwhile
    assert all(line.startswith("#") or not line for line in plan.splitlines())
    shared = plan.partition("\n\n")[0]
    assert rows.startswith(shared)
    assert "4 rows" in shared
    assert rows.count("dlperf.adapters.worker job.json .") == 2
    assert [line for line in rows.splitlines() if line.startswith("# the same: ")] == [
        "# the same: resnet50-fp32-pytorch-b16",
        "# the same: resnet50-fp32-jax-b16",
    ] or rows.count("# the same: ") == 2


def test_an_environment_to_make_has_its_size(tmp_path):
    words = ["--device", "cpu", "-m", "bert", "-f", "jax", "-o", tmp_path / "out"]
    printed = compare("--dry-run=plan", *words, DLPERF_CACHE=str(tmp_path / "cache")).stdout
    assert "jax cpu (to make: 0.8 GB)" in printed
    assert "GB free)" in printed
    printed = compare("--dry-run=plan", *words, "--device", "cuda", DLPERF_CACHE=str(tmp_path / "cache")).stdout
    assert "jax cuda (to make: of unknown size)" in printed
    assert "of unknown size (" in printed


def test_a_plan_without_a_row_says_why_each_is_not_there(tmp_path):
    words = ["-m", "bert,resnet50", "-f", "oneflow", "-p", "amp", "--device", "cpu", "-o", tmp_path / "out"]
    for form in ("plan", "rows", "full"):
        ended = compare(*words, f"--dry-run={form}")
        assert (ended.returncode, ended.stdout) == (2, "")
        first, *each = ended.stderr.splitlines()
        assert first.startswith("--frameworks oneflow: no row can be run")
        assert [line.partition(": ")[0] for line in each] == ["bert_base amp oneflow", "resnet50 amp oneflow"]
        assert all(": unavailable: OneFlow has no mixed precision on CPU" in line for line in each)
    assert not (tmp_path / "out").exists()


def test_a_full_dry_run_prints_every_command(tmp_path, bfloat16):
    words = ["--device", "cpu", "-m", "bert", "-p", "amp", "-r", 2, "-o", tmp_path / "out"]
    ended = compare("--dry-run=full", *words)
    assert ended.stdout.count("dlperf.adapters.worker job.json .") == 2 * 4 + 3 * 4  # runs, and three for each proof
    assert "pip install" in ended.stdout


def test_a_full_dry_run_is_a_script_that_does_what_the_comparison_would(tmp_path):
    printed = compare(*FAKE, "-r", 2, "--dry-run", "full", "-o", tmp_path / "with 'quotes").stdout
    ended = subprocess.run(["sh", "-e"], input=printed, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    request = tmp_path / "with 'quotes" / "request.json"
    again = compare("--spec", request, "-r", 3, "--dry-run=plan", "-o", tmp_path / "new")
    assert (again.returncode, again.stderr) == (0, "")
    assert "1 row, 3 repeats each" in again.stdout
    streams = [events.read(path) for path in (tmp_path / "with 'quotes").glob("runs/*/*/events.rank0.jsonl")]
    assert [len(stream.windows) for stream in streams] == [3, 3]


def test_a_script_gives_uv_what_pip_is_told(tmp_path):
    told = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_EXTRA_INDEX_URL": "http://b.invalid http://c.invalid"}
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://a.invalid/simple\nfind-links = /x\n  /y\n")
    script = (
        indexes.IN_SHELL.format(python=quote(sys.executable)) + '\necho "$UV_DEFAULT_INDEX|$UV_INDEX|$UV_FIND_LINKS"'
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **told}
    ended = subprocess.run(["sh", "-e", "-c", script], env=environ, capture_output=True, text=True, timeout=300)
    assert ended.stdout == "http://a.invalid/simple|http://b.invalid http://c.invalid|/x,/y\n", ended.stderr
    ended = subprocess.run(
        ["sh", "-e", "-c", script], env={**environ, "UV_INDEX_URL": "u"}, capture_output=True, text=True
    )
    assert ended.stdout.startswith("|http://b.invalid "), "the user's own comes first"


def test_a_word_that_dry_run_does_not_know_is_one_line(tmp_path):
    ended = compare(*FAKE, "--dry-run=all")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "--dry-run: 'all' is not usable; allowed: plan, rows, full.\n"


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
    assert "1 row, 1,000 repeats" in shown.getvalue()
    assert "Begin? [y/N]" in shown.getvalue()


@pytest.mark.parametrize("words", [["--yes"], ["-r", "1"]], ids=["yes", "short"])
def test_what_is_wanted_or_short_begins_without_a_question(tmp_path, monkeypatch, words):
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(store, "create", lambda *_: sys.exit(42))
    with pytest.raises(SystemExit):
        compare_.main([*LONG, *words, "-o", str(tmp_path / "out")])
