"""What all commands have in common."""

import errno
import os
import re
import signal
import subprocess
import sys

import pytest
from commands import FAKE, call, command, run
from places import ROOT

from dlperf import __version__, diff, words
from dlperf.__main__ import COMMANDS
from dlperf.cli import exit_code
from dlperf.errors import ENDING, hold_signals, ignore_signals, release_signals
from dlperf.flags import FLAGS


def dlperf(*words):
    return subprocess.run([sys.executable, "-m", "dlperf", *words], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        *((1, "proof", "1 proof"), (0, "run", "0 runs"), (1234, "batch", "1,234 batches"), (2, "class", "2 classes")),
        *((1.0, "core", "1 core"), (1.5, "CPU core", "1.5 CPU cores")),
    ],
)
def test_how_many_of_something(number, noun, said):
    assert words.count(number, noun) == said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_its_version(name):
    helped, version = run(name, "--help"), call(name, "--version")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.split()[:4] == ["usage:", "python", "-m", f"dlperf.{name}"]
    assert (version.returncode, version.stdout) == (0, f"dlperf {__version__}\n")
    assert dlperf(name, "--help").stdout == helped.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_flag_that_does_not_exist_is_one_line(name):
    verbs = {
        "archive": ["verify", "x"],
        "completion": ["bash"],
        "data": ["photos", "--output", "x"],
        "diff": ["a", "b"],
        "envs": ["list"],
        "images": ["list"],
        "importlogs": ["a"],
        "publish": ["a", "b"],
        "repeat": ["a"],
        "report": ["a"],
        "site": ["a"],
        "show": ["a"],
        "why": ["a", "b"],
    }
    verb = verbs.get(name, [])
    ended = call(name, *verb, "--bogus")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"python -m dlperf.{name}: unrecognized arguments: --bogus.\n", "nothing is like it"


def test_a_word_that_is_nearly_one_that_is_allowed_is_suggested():
    said = call("list", "modls").stderr
    assert said.startswith("python -m dlperf.list: argument WHAT: invalid choice: 'modls' (choose from ")
    assert said.endswith("). Did you mean 'models'?\n")


def test_a_working_folder_that_is_gone_is_one_line(tmp_path):
    (tmp_path / "gone").mkdir()
    words = f"cd gone && rmdir ../gone && exec {sys.executable} -m dlperf.compare --dry-run=plan -m bert --device cpu"
    ended = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "the working folder, which was removed: No such file or directory.\n"


def test_a_folder_of_adapters_that_is_not_there_is_a_warning(tmp_path):
    said = call("list", "frameworks", DLPERF_ADAPTERS=str(tmp_path / "nowhere"))
    assert said.returncode == 0
    assert said.stderr == f"DLPERF_ADAPTERS: there is no folder {tmp_path}/nowhere, so none of its adapters is here.\n"


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.key)
def test_every_flag_is_in_the_manual(flag):
    manual = (ROOT / "dlperf" / "README.md").read_text(encoding="utf-8")
    assert f"`--{flag.key.replace('_', '-')}" in manual


def test_the_manual_names_no_flag_that_does_not_exist():
    """But for those of other commands, which stand in examples."""
    manual = (ROOT / "dlperf" / "README.md").read_text(encoding="utf-8")
    known = {name for flag in FLAGS for name in flag.names.split()} | {"--help", "--version"}
    known |= {name for action in diff.parser()._actions for name in action.option_strings}
    others = {"--against", "--published", "--write", "--allowed-signers", "--identity", "--anyway", "--name", "--json"}
    others |= {"--rules", "--all", "--badge"}
    assert {name for name in re.findall(r"--[a-z][a-z-]*", manual)} <= known | others


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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_of_that_name_does_not_hide_the_package_without_a_word(tmp_path, name):
    """A clone that is called dlperf, seen from one folder above it."""
    (tmp_path / "dlperf" / "dlperf").mkdir(parents=True)
    ended = run(name, "--version", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1), ended.stderr
    assert ended.stderr.startswith(f"{tmp_path / 'dlperf'}: Python takes this folder for the package dlperf.")


def test_a_python_without_dlperf_is_told_what_to_do():
    """As in a fresh clone, before `make setup`."""
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "dlperf.compare"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert "is not installed for" in ended.stderr
    assert "make setup" in ended.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>/dev/full"])
def test_streams_that_are_closed_or_full_are_no_traceback(tmp_path, closed):
    words = " ".join(command("envs", "list"))
    ended = subprocess.run(["sh", "-c", f"{words} {closed}"], capture_output=True, text=True, timeout=600)
    assert ended.returncode == (1 if "full" in closed else 0)
    assert ended.stderr == ("output: No space left on device.\n" if closed == ">/dev/full" else "")


def test_a_default_that_is_empty_is_no_empty_value():
    assert call("images", "list").returncode in (0, 1)


def test_a_copy_that_a_full_disk_stops_is_named_by_where_it_goes(capsys):
    def copy():
        raise OSError(errno.ENOSPC, "No space left on device", "from", None, "to")

    assert exit_code(copy) == 1
    assert capsys.readouterr().err == "to: No space left on device.\n"


@pytest.mark.parametrize("number", ENDING)
def test_signals_wait_while_they_are_held_and_end_a_command_once(number):
    def work():
        hold_signals()
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            release_signals()
        signal.raise_signal(number)  # another does not stop what cleans up
        ignore_signals()
        signal.raise_signal(number)
        return 7

    before = signal.getsignal(number)
    try:
        assert exit_code(work) == 7
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", ENDING)
def test_the_exit_code_tells_the_signal(number):
    before = signal.signal(number, signal.SIG_DFL)  # nohup has one of them ignored
    try:
        assert exit_code(lambda: signal.raise_signal(number)) == 128 + number
    finally:
        signal.signal(number, before)


def test_an_interruption_of_an_import_that_python_wraps_is_one(capsys):
    class Named:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    assert exit_code(lambda: type("Made", (), {"name": Named()})) == 130
    assert capsys.readouterr().err == ""


def test_a_cache_of_another_user_holds_nothing_for_us(tmp_path, monkeypatch):
    theirs, stat = str(tmp_path / "theirs"), os.stat

    def refuse(path, *rest, **given):
        if str(path).startswith(theirs):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *rest, **given)

    monkeypatch.setattr(os, "stat", refuse)
    listed = call("envs", "list", "fake", DLPERF_CACHE=theirs)
    assert (listed.returncode, listed.stderr, "not made" in listed.stdout) == (0, "", True)
    for env in ("current", "venv"):
        said = call("compare", *FAKE, "--env", env, "--dry-run", DLPERF_CACHE=theirs)
        assert (said.returncode, said.stderr) == (0, "")
