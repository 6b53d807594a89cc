"""A row's trouble is the row's; what the machine or a terminal refuses ends no comparison."""

import json
import subprocess
import sys
from unittest import mock

import pytest
from commands import FAKE, call, records

from dlperf.comparison import runner, store
from dlperf.comparison.progress import Lines
from dlperf.errors import Problem
from dlperf.runs import bundle, execute


@pytest.mark.parametrize("error", [ValueError("of nobody's\x1b[31m"), OSError(36, "File name too long", "x")])
def test_whatever_a_run_raises_is_that_run_s_failure(error, tmp_path, monkeypatch):
    whole, raised = runner.execute, []

    def first_raises(*given):
        if not raised:
            raised.append(error)
            raise error
        return whole(*given)

    monkeypatch.setattr(runner, "execute", first_raises)
    ended = call("compare", *FAKE, "--set", "clock=virtual", "-r", 2, "-o", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    failed, done = records(tmp_path / "out")
    assert failed.failure.kind == "machine"
    assert str(error.args[-1])[:9] in failed.failure.message
    assert done.done
    assert "\x1b" not in ended.stdout
    assert "this machine could not run it" in (tmp_path / "out" / "report.md").read_text()


def test_environments_that_the_disk_refuses_are_failed_rows(tmp_path, monkeypatch):
    def refused(*given):
        raise OSError(13, "Permission denied", "/x/envs")

    for system in set(map(type, runner.systems.SYSTEMS.values())):
        monkeypatch.setattr(system, "environments", refused)
    ended = call("compare", *FAKE, "-r", 2, "-o", tmp_path / "out")
    assert ended.returncode == 1
    assert "environment: /x/envs: Permission denied" in ended.stdout
    assert (tmp_path / "out" / "report.md").exists()


def test_seconds_that_cannot_be_written_cost_no_run(tmp_path):
    out = tmp_path / "out"
    (out / "seconds.json.writing").mkdir(parents=True)
    made = mock.Mock(spec=store.Store, folder=out, seconds={})
    made._write_json.side_effect = lambda *given: store.Store._write_json(made, *given)
    with store.Store.spending(made, "proofs"):
        pass
    assert made.seconds["proofs"] >= 0
    assert not (out / store.SECONDS).exists()


def test_what_an_interrupted_run_left_is_kept_whatever_lies_beside_it(tmp_path):
    for name in ("0", "0.earlier1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").write_text(name)
    (tmp_path / "0.earlier0").symlink_to("nowhere")
    execute._prepare(tmp_path / "0", {}, "")
    assert (tmp_path / "0.earlier1" / "log").read_text() == "0.earlier1"
    assert (tmp_path / "0.earlier2" / "log").read_text() == "0"


def test_digests_of_code_that_cannot_be_read_are_a_change(tmp_path):
    (tmp_path / "dlperf").mkdir()
    assert bundle.changed(tmp_path, None) == []
    (tmp_path / bundle.LIST).write_text(json.dumps([1]))
    assert bundle.changed(tmp_path, None) == [bundle.LIST]
    (tmp_path / bundle.LIST).unlink()
    (tmp_path / bundle.LIST).mkdir()
    assert bundle.changed(tmp_path, None) == [bundle.LIST]


def test_a_terminal_gets_no_control_characters(capsys):
    Lines().note("a\x1b]0;title\x07b\u202ec\x00")
    assert capsys.readouterr().out == "ab\ufffdc\ufffd\n"
    assert str(Problem("--x", "a\x1b[2Jb", says="is wrong.")) == "--x ab: is wrong."


def test_a_terminal_without_a_letter_shows_its_number():
    code = "from dlperf import cli; raise SystemExit(cli.exit_code(lambda: print('1\\u2013 2')))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env={"PYTHONIOENCODING": "ascii"})
    assert (ended.returncode, ended.stdout) == (0, b"1\\u2013 2\n"), ended.stderr
