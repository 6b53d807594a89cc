"""`dlperf.compare` of Python: a function and a module, silent, in any thread, and what it gives."""

import inspect
import json
import pydoc
import signal
import subprocess
import sys
import threading

import pytest
from commands import call
from places import ROOT

import dlperf
from dlperf import given
from dlperf.comparison import store
from dlperf.errors import ENDING, RunError, UsageError
from dlperf.figures import ranked
from dlperf.flags import FLAGS

PUBLISHED = ROOT / "report" / "published"
#: one row of the framework that sleeps, without a proof
FAKE = {"frameworks": "fake", "env": "current", "model": "bert_tiny", "device": "cpu", "no_verify": True, "repeats": 2}
CLOCK = {"clock": "virtual", "step_seconds": 0.25}


def handlers():
    return [signal.getsignal(number) for number in ENDING]


@pytest.mark.parametrize(
    "first",
    [
        "import dlperf",
        "import dlperf.compare",
        "from dlperf.compare import main",
        "import dlperf; dlperf.compare; from dlperf import compare; import dlperf.compare",
    ],
)
def test_it_is_a_module_and_a_function_however_it_was_imported(first):
    lines = (
        f"import sys; {first}",
        "import dlperf as named",
        "assert 'pandas' not in sys.modules and 'numpy' not in sys.modules",
        "print(callable(named.compare), named.compare.main.__module__, named.compare.parser().prog)",
        "try: named.compare(modle='bert')",
        "except Exception as error: print(error)",
    )
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=600)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "True dlperf.compare python -m dlperf.compare",
        "modle: there is no such option. Did you mean 'model'?",
    ]


def test_a_comparison_is_silent_and_leaves_no_handler(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    before = handlers()
    made = dlperf.compare(**FAKE, set=CLOCK, batch_size=8, output="out")
    assert capfd.readouterr() == ("", "")
    assert handlers() == before
    assert made.folder == tmp_path / "out"
    assert made.report.is_file()
    (row,) = made.rows.to_dict("records")
    assert (row["system"], row["n"], row["failed"], row["batch_size_per_device"]) == (
        "fake step_seconds=0.25 clock=virtual",
        2,
        0,
        8,
    )
    assert row["median"] == pytest.approx(32, rel=1e-9)
    assert (row["why"].partition(":")[0], row["unit"]) == ("no proof", "sentences/s")
    assert {name: str(made.rows.dtypes[name]) for name in ranked.TYPES} == ranked.TYPES, "also without any figure"
    assert list(made.runs["throughput_samples_per_second"]) == pytest.approx([32, 32], rel=1e-9)
    assert list(made.runs.columns) == list(dlperf.load(made.folder).columns)
    assert "Fake" in made._repr_html_()
    assert made._repr_markdown_().startswith("**bert_tiny, fp32, CPU**\n\n| system | n | ")
    assert repr(made).endswith(f"Report: {made.report}")
    assert "Fake" in repr(made)


def test_a_thread_that_is_not_the_main_one_compares(tmp_path, capfd):
    found, before = [], handlers()
    thread = threading.Thread(target=lambda: found.append(dlperf.compare(**FAKE, set=CLOCK, output=tmp_path / "out")))
    thread.start()
    thread.join()
    assert list(found[0].rows["n"]) == [2]
    assert handlers() == before
    assert capfd.readouterr() == ("", "")


def test_it_prints_what_the_command_prints_if_asked(tmp_path, capfd):
    dlperf.compare(**FAKE, set=CLOCK, output=tmp_path / "out", quiet=False)
    printed = capfd.readouterr().out
    assert "[2/2] bert_tiny fp32 fake step_seconds=0.25 clock=virtual, run 2: " in printed
    assert printed.splitlines()[-1].startswith(f"Report: {tmp_path}/out/report.md and ")


def test_a_plan_is_a_text(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    plan = dlperf.compare(**FAKE, dry_run=True, output=tmp_path / "out")
    assert "-m dlperf.adapters.worker" in plan
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
import dlperf
from dlperf import given
out = Path(sys.argv[1])

def interrupt():
    while not list(out.glob("runs/*/0/events.rank0.jsonl")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    dlperf.compare(frameworks="fake", env="current", model="bert_tiny", device="cpu", no_verify=True,
                   set={"behave": "hang"}, output=out)
except KeyboardInterrupt as stopped:
    print(stopped.__notes__, signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(15) == 0)
"""


def test_ctrl_c_ends_it_with_its_report(tmp_path):
    out = tmp_path / "out"
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED, out], capture_output=True, text=True, timeout=600)
    assert ended.stderr == ""
    assert ended.stdout == f"[\"Go on with dlperf.compare(resume='{out}').\"] True True\n"
    assert (out / "report.html").is_file()


def test_a_comparison_goes_on_in_its_folder_and_may_be_strict(tmp_path):
    out = tmp_path / "out"
    made = dlperf.compare(**{**FAKE, "repeats": 1}, set=["behave=crash", "clock=virtual"], output=out)
    (row,) = made.rows.to_dict("records")
    assert (row["n"], row["failed"]) == (0, 1)
    assert row["why"].startswith("crash: ")
    assert "crashed" in made._repr_html_()
    with pytest.raises(RunError, match=r"a row failed or is not comparable: .*out/report.html says which"):
        dlperf.compare(resume=out, strict=True)
    with pytest.raises(UsageError, match=r"resume \(--resume\) .*Leave out --model"):
        dlperf.compare(resume=out, model="bert")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"model": "brt"}, "model (--model): 'brt' is not usable; allowed: "),
        ({"model": ["bert_tiny", 3.5]}, "model (--model): '3.5' is not usable; allowed: "),
        ({"model": {"bert"}}, "model (--model): \"{'bert'}\" is not usable; allowed: a text, a number or a path, or "),
        ({"model": []}, "model (--model): '[]' is not usable; allowed: a text, a number or a path, or a list of them."),
        ({"batch_size": [1, 2]}, "batch_size (--batch-size): '[1, 2]' is not usable; allowed: a text, a number or a "),
        ({"batch_size": True}, "batch_size (--batch-size): 'True' is not usable; allowed: a text, a number or a path."),
        ({"batch_size_per_device": 0}, "batch_size (--batch-size): '0' is not usable; allowed: a whole number from 1"),
        ({"no_verify": "yes"}, "no_verify (--no-verify): 'yes' is not usable; allowed: True, False."),
        ({"output": ""}, "output (--output) '': is empty."),
        ({"output": "a\nb"}, "output (--output) 'a\\nb': has a line break or another control character."),
        ({"set": {"clock": None}}, "set (--set): 'None' is not usable; allowed: a text"),
        ({"set": "clock"}, "set (--set): 'clock' is not usable; allowed: OPTION=VALUE"),
        ({"device": "cpuu"}, "device (--device): 'cpuu' is not usable; allowed: auto, cpu, cuda. Did you mean 'cpu'?"),
        ({"publish": True}, "publish: there is no such option."),
        ({"zzz": 1}, "zzz: there is no such option. There are model, "),
    ],
)
def test_what_cannot_be_asked_is_named_by_its_keyword(tmp_path, monkeypatch, wrong, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        dlperf.compare(**{**FAKE, **wrong})
    assert str(raised.value).startswith(says)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_all_that_is_wrong_comes_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        dlperf.compare(modle="bert", strict=1, seed=2)
    assert [one.field for one in raised.value.problems] == ["modle", "strict (--strict)"]


def test_none_is_as_if_it_were_not_given():
    assert given.arguments({**FAKE, "seed": None, "strict": None}) == given.arguments(FAKE)


def test_an_adapter_that_is_left_out_is_a_warning(tmp_path, monkeypatch, capfd):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "adapter.toml").write_text("title = 3")
    monkeypatch.setenv("DLPERF_ADAPTERS", str(tmp_path))
    with pytest.warns(UserWarning, match="'broken' is left out"):
        dlperf.compare(**FAKE, dry_run=True)
    assert capfd.readouterr() == ("", "")


def test_rows_are_those_of_the_report():
    comparison = store.read(PUBLISHED / "2026-11-27-h200-fp16-bert")[0]
    first, second = (row for row in ranked.rows(comparison) if row["median"])
    assert (first["system"], first["relative"], first["rank_first"], first["rank_last"]) == (
        "pytorch+inductor",
        1,
        1,
        1,
    )
    assert [f"{first[key]:.1f}" for key in ("median", "low", "high")] == ["4233.6", "4227.6", "4239.6"]
    assert [f"{second[key]:.3f}" for key in ("relative", "relative_low", "relative_high")] == [
        "0.907",
        "0.842",
        "0.977",
    ]
    assert first["proof"].startswith("same work: 6e-16 (fp64 of another kernel)")


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in PUBLISHED.glob("*/results.json")), ids=lambda one: one.name
)
def test_each_row_of_a_published_report_is_there_once(folder):
    comparison = store.read(folder)[0]
    rows = ranked.rows(comparison)
    assert sorted(row["job"] for row in rows if row["job"]) == sorted(job.id for job in comparison.jobs)
    assert len(rows) == len(comparison.jobs) + len(comparison.skips)
    json.dumps(rows)


def test_rows_that_are_not_run_say_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = {**FAKE, "frameworks": ["fake", "numpy"], "precision": "tf32", "repeats": 1}
    made = dlperf.compare(**asked, set={"clock": "virtual"})
    assert made.folder.parent == tmp_path / "runs"
    ran, skipped = made.rows.to_dict("records")
    assert (ran["n"], skipped["system"], skipped["n"]) == (1, "numpy", 0)
    assert skipped["why"].startswith("never: ")
    assert "does not apply: its products" in made._repr_html_()


def test_help_shows_the_options():
    options = {flag.key for flag in FLAGS if flag.compare} - {"attach", "detach"}
    assert set(inspect.signature(dlperf.compare).parameters) == options
    shown = pydoc.plain(pydoc.render_doc(dlperf.compare))
    for flag in FLAGS:
        assert (f"        {flag.key}=" in shown) == (flag.key in options)
    assert "batch_size=N: per device; default: DLPerf's on CUDA" in shown
    assert "such as 2%\n" in shown
    assert "no_verify=True: make no proofs" in shown
    assert "Train the same models" in call("compare", "--help").stdout


def test_what_is_the_commands_own_is_refused(tmp_path):
    for words in ({"attach": tmp_path}, {"detach": True}):
        with pytest.raises(UsageError, match="only the command takes it: python"):
            dlperf.compare(**FAKE, **words, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
