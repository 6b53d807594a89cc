"""What all commands have in common."""

import re
import subprocess
import sys

import pytest
from commands import FAKE, call, run
from places import ROOT

from dlperf import __version__
from dlperf.__main__ import COMMANDS
from dlperf.flags import FLAGS


def dlperf(*words):
    return subprocess.run([sys.executable, "-m", "dlperf", *words], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_its_version(name):
    helped, version = run(name, "--help"), call(name, "--version")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.split()[:4] == ["usage:", "python", "-m", f"dlperf.{name}"]
    assert (version.returncode, version.stdout) == (0, f"dlperf {__version__}\n")
    assert dlperf(name, "--help").stdout == helped.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_flag_that_does_not_exist_is_one_line(name):
    verb = {"data": ["photos", "--output", "x"], "envs": ["list"], "images": ["list"]}.get(name, [])
    ended = call(name, *verb, "--bogus")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"python -m dlperf.{name}: unrecognized arguments: --bogus.\n", "nothing is like it"


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.key)
def test_every_flag_is_in_the_manual(flag):
    manual = (ROOT / "dlperf" / "README.md").read_text(encoding="utf-8")
    assert f"`--{flag.key.replace('_', '-')}" in manual


def test_the_manual_names_no_flag_that_does_not_exist():
    """But for those of other commands, which stand in examples."""
    manual = (ROOT / "dlperf" / "README.md").read_text(encoding="utf-8")
    known = {name for flag in FLAGS for name in flag.names.split()} | {"--help", "--version"}
    assert {name for name in re.findall(r"--[a-z][a-z-]*", manual)} <= known


def test_dlperf_lists_its_commands():
    ended = dlperf("--help")
    assert ended.returncode == 0
    assert all(f"  {name} " in ended.stdout for name in COMMANDS)
    assert dlperf("--version").stdout == f"dlperf {__version__}\n"


def test_a_command_that_does_not_exist():
    ended = dlperf("comparre")
    assert ended.returncode == 2
    assert "Did you mean 'compare'?" in ended.stderr


PRINTS = [
    ["dlperf.doctor", "--table"],
    pytest.param(["dlperf.scaling"], marks=pytest.mark.slow),
    ["dlperf.envs", "list"],
    ["dlperf", "--help"],
]


@pytest.mark.parametrize("words", PRINTS)
def test_a_reader_that_goes_away_is_no_error(words):
    """As in `python -m dlperf.scaling | head -1`."""
    with subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("output", "why"),
    [("out\nput", "has a line break"), ("out\udcff", "is not UTF-8"), (" ", "is empty")],
)
def test_a_folder_that_no_comparison_would_read_is_not_made(tmp_path, output, why):
    """The words of a subcommand are looked at too, and those that are read as paths."""
    said = call("data", "photos", "--output", tmp_path / output if output.strip() else output)
    assert (said.returncode, why in said.stderr, said.stderr.count("\n")) == (2, True, 1), said.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_begins_with_a_dash_is_told_how_to_be_written():
    said = call("compare", "--output", "-x").stderr
    assert said.endswith("expected one argument. Where it begins with a dash, write --flag=VALUE.\n")


def test_retrying_failed_runs_needs_the_folder_that_they_are_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call("compare", *FAKE, "--retry-failed", "--repeats", 0, "--output", "a:b")
    assert said.returncode == 2
    assert [line.partition(": ")[0].split()[0] for line in said.stderr.splitlines()] == [
        *("--repeats", "--retry-failed", "--output")
    ]
    assert list(tmp_path.iterdir()) == []
