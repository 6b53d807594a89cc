"""What all commands have in common."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlperf import __version__
from dlperf.__main__ import COMMANDS
from dlperf.flags import FLAGS


def run(*words, **given):
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=60, **given)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_its_version(name):
    helped, version = run(f"dlperf.{name}", "--help"), run(f"dlperf.{name}", "--version")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith(f"usage: python -m dlperf.{name} ")
    assert (version.returncode, version.stdout) == (0, f"dlperf {__version__}\n")
    assert run("dlperf", name, "--help").stdout == helped.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_flag_that_does_not_exist_is_one_line(name):
    verb = {"data": ["photos", "--output", "x"], "envs": ["list"], "images": ["list"]}.get(name, [])
    ended = run(f"dlperf.{name}", *verb, "--bogus")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"python -m dlperf.{name}: unrecognized arguments: --bogus.\n", "nothing is like it"


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.key)
def test_every_flag_is_in_the_manual(flag):
    manual = (Path(__file__).parent.parent / "dlperf" / "README.md").read_text(encoding="utf-8")
    assert f"`--{flag.key.replace('_', '-')}" in manual


def test_the_manual_names_no_flag_that_does_not_exist():
    """But for those of other commands, which stand in examples."""
    manual = (Path(__file__).parent.parent / "dlperf" / "README.md").read_text(encoding="utf-8")
    known = {name for flag in FLAGS for name in flag.names.split()} | {"--help", "--version"}
    assert {name for name in re.findall(r"--[a-z][a-z-]*", manual)} <= known


def test_dlperf_lists_its_commands():
    ended = run("dlperf", "--help")
    assert ended.returncode == 0
    assert all(f"  {name} " in ended.stdout for name in COMMANDS)
    assert run("dlperf", "--version").stdout == f"dlperf {__version__}\n"


def test_a_command_that_does_not_exist():
    ended = run("dlperf", "comparre")
    assert ended.returncode == 2
    assert "Did you mean 'compare'?" in ended.stderr


@pytest.mark.parametrize("words", [["dlperf.doctor", "--table"], ["dlperf.scaling"], ["dlperf.envs", "list"]])
def test_a_reader_that_goes_away_is_no_error(words):
    """As in `python -m dlperf.scaling | head -1`."""
    with subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
