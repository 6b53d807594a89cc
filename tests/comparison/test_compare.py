"""The command, end to end, on the framework that sleeps: figures, faults, interruption and resumption."""

import errno
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from commands import FAKE, call, command, records, run
from places import ROOT
from processes import alive, wait_for, working_in

import dlperf
from dlperf import library, stored
from dlperf.catalog import reader
from dlperf.comparison import store
from dlperf.comparison.progress import Progress
from dlperf.comparison.runner import Runner
from dlperf.envs import kinds
from dlperf.envs.target import MARKER
from dlperf.figures import rates, standings
from dlperf.planning import plan
from dlperf.planning.spec import Protocol, Spec
from dlperf.runs import bundle, events
from dlperf.schema import Failure

compare = partial(call, "compare")


def worker_pids(folder):
    streams = [events.read(path) for path in Path(folder).glob("runs/*/*/events.rank0.jsonl")]
    return [stream.start["pid"] for stream in streams if stream.start]


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["virtual", pytest.param("real", marks=pytest.mark.slow)])
def test_a_framework_of_known_speed_has_that_speed(tmp_path, clock):
    """A step of 0.25 s and batch 8 is 32 sentences/s. A busy machine ends a real sleep late, never early."""
    words = ["--set", "step_seconds=0.25", "--set", f"clock={clock}", "-b", 8, "-r", 1, "-o", tmp_path / "out"]
    ended = compare(*FAKE, *words)
    assert ended.returncode == 0, ended.stderr
    (record,) = records(tmp_path / "out")
    assert rates.throughput(record) <= 32 * (1 + 1e-9)
    assert clock == "real" or rates.throughput(record) == pytest.approx(32, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "blocks", "says"),
    [
        ((), 7, "was within 1 %; they were."),
        (("--max-time", 1e-9), 1, "when the runs had taken as long as --max-time allows they were not."),
    ],
)
def test_blocks_are_added_until_ratios_are_known(tmp_path, limits, blocks, says):
    out = tmp_path / "out"
    ended = run("compare", *FAKE, "--set", "clock=virtual", "--aa", 1, "--until", "1%", *limits, "-o", out)
    assert len(records(out)) == 2 * blocks
    report = (out / "report.md").read_text()
    assert f"Each row is run {blocks} time" in report
    assert says in report
    assert "not finished" not in report
    again = run("compare", "--resume", out)
    assert len(records(out)) == 2 * blocks
    assert ended.stdout.splitlines()[-3:] == again.stdout.splitlines()[-3:]


def test_with_strict_what_cannot_be_compared_is_exit_code_3(tmp_path):
    out = tmp_path / "out"
    ended = compare(*FAKE, "--set", "clock=virtual", "-r", 1, "--strict", "-o", out)
    assert (ended.returncode, "not comparable" in ended.stdout) == (3, True), ended.stderr
    assert (compare("--resume", out).returncode, compare("--resume", out, "--strict").returncode) == (0, 3)


def test_strict_is_content_with_proven_rows_unless_a_run_failed():
    path = ROOT / "report" / "published" / "2026-11-21-cpu-fp32" / "results.json"
    found = stored.comparison_from(json.loads(path.read_text(encoding="utf-8")))
    rows = {one.job.id for one in found.records if one.failure} | set(standings.obstacles(found))
    sound = replace(
        found,
        jobs=tuple(job for job in found.jobs if job.id not in rows),
        records=tuple(one for one in found.records if one.job.id not in rows),
    )
    assert sound.jobs
    assert not library.wanting(sound)
    first, *others = sound.records
    assert library.wanting(replace(sound, records=(replace(first, failure=Failure("crash", "it did")), *others)))


#: of a user's shell, each of which changes how Python or a terminal behaves
SHELL = {
    **{"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONIOENCODING": "ascii"},
    **{"PYTHONSTARTUP": "/nowhere", "PYTHONPATH": "/nowhere", "PYTHONUTF8": "0", "PYTHONINTMAXSTRDIGITS": "640"},
    **{"LC_ALL": "C", "TERM": "dumb", "COLUMNS": "none", "TZ": "nowhere", "TMPDIR": "/nowhere", "HOME": ""},
    **{"XDG_CACHE_HOME": "relative", "MPLBACKEND": "nonsense", "DLPERF_ADAPTERS": "/nowhere"},
}


@pytest.mark.slow
def test_what_a_users_shell_sets_stops_no_comparison(tmp_path):
    words = ["--set", "clock=virtual", "-r", 1, "-o", tmp_path / "out"]
    ended = run("compare", *FAKE, *words, env={**os.environ, **SHELL}, cwd=tmp_path)
    says = "DLPERF_ADAPTERS: there is no folder /nowhere, so none of its adapters is here.\n"
    assert (ended.returncode, ended.stderr) == (0, says)
    assert not (tmp_path / "relative" / "dlperf").exists(), "matplotlib makes that folder, dlperf none in it"
    assert records(tmp_path / "out")[0].done


@pytest.mark.parametrize("name", ["compare", "verify"])
def test_an_adapter_without_a_lock_is_a_row_of_the_plan(tmp_path, name):
    shutil.copytree(ROOT / "adapters" / "fake", tmp_path / "nolock", ignore=shutil.ignore_patterns("requirements*"))
    words = ["-f", "nolock,fake", "-m", "bert_tiny", "--device", "cpu", "--dry-run"]
    ended = call(name, *words, DLPERF_ADAPTERS=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "not run: nolock cpu: it has no lock for " in ended.stdout
    assert "-m dlperf.adapters.worker" in ended.stdout, "the other's"


def test_a_folder_may_begin_with_a_dash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = compare(*FAKE, "--set", "clock=virtual", "-r", 1, "--output=-out")
    assert ended.returncode == 0, ended.stdout


def test_the_folder_has_the_report_the_records_and_the_code_that_ran(tmp_path):
    out = tmp_path / "out"
    ended = run("compare", *FAKE, "-r", 2, "-o", out)
    (row,) = [line for line in ended.stdout.splitlines() if line.startswith("Fake")]
    assert re.fullmatch(r"Fake +2 +[\d.,]+ +\[.*\] +–.* not comparable: no proof", row)
    for name in ("report.md", "report.html", "results.csv", "results.json", "records.jsonl", "comparison.json"):
        assert (out / name).stat().st_size
    assert list(out.glob("charts/*.svg"))
    assert (out / "code/dlperf/adapters/fake/resnet.py").read_text() == (ROOT / "adapters/fake/resnet.py").read_text()
    frame = dlperf.load(out)
    assert len(frame) == 2
    assert (frame["throughput_samples_per_second"] > 0).all()


@pytest.mark.slow
def test_a_system_beside_itself_is_two_rows(tmp_path):
    run("compare", *FAKE, "--set", "clock=virtual", "-r", 2, "--aa", 1, "-o", tmp_path / "out")
    made = records(tmp_path / "out")
    first, again = sorted({one.job.id for one in made}, key=len)
    assert again == f"{first}-again2"
    assert sorted((one.job.id, one.block) for one in made) == [(id_, n) for id_ in (first, again) for n in range(2)]


@pytest.mark.slow
def test_runs_after_an_interruption_are_in_blocks_of_their_own(tmp_path):
    out = tmp_path / "out"
    run("compare", *FAKE, "-r", 2, "-o", out)
    kept = (out / "records.jsonl").read_text().splitlines()[:1]
    (out / "records.jsonl").write_text(kept[0] + "\n")
    run("compare", "--resume", out)
    assert [(one.repeat, one.block) for one in records(out)] == [(0, 0), (1, 2)]


@pytest.mark.slow
def test_the_launch_script_makes_a_run_and_one_that_was_made_in_a_new_folder(tmp_path):
    compare(*FAKE, "-r", 1, "-o", tmp_path / "out")
    (script,) = tmp_path.glob("out/runs/*/0/launch.sh")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    asked = ["sh", str(script.relative_to(tmp_path))]

    def sh(path: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        return subprocess.run(asked, timeout=300, cwd=tmp_path, capture_output=True, text=True, env=environ)

    refused = sh("/usr/bin:/bin")
    said = f"This run was made. Again, in a new folder: python -m dlperf.repeat '{script.parent.relative_to(tmp_path)}'"
    assert (refused.returncode, refused.stderr) == (1, said + "\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "dlperf").write_text(f'#!/bin/sh\nexec {sys.executable} -m dlperf "$@"\n')
    (tmp_path / "bin" / "dlperf").chmod(0o755)
    again = sh(f"{tmp_path}/bin:/usr/bin:/bin")
    assert (again.returncode, again.stderr) == (0, "")
    assert " sentences/s (the finished run: " in again.stdout
    assert len(list(tmp_path.glob("runs/repeat-*/runs/*/0/events.rank0.jsonl"))) == 1
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    (script.parent / "events.rank0.jsonl").unlink()
    assert sh("/usr/bin:/bin").returncode == 0
    assert events.read(script.parent / "events.rank0.jsonl").end


@pytest.mark.slow
def test_a_seventh_framework_needs_one_folder_and_no_line_of_the_core(tmp_path):
    shutil.copytree(ROOT / "adapters" / "fake", tmp_path / "adapters" / "toy")
    toml = tmp_path / "adapters" / "toy" / "adapter.toml"
    toml.write_text(toml.read_text().replace('title = "Fake"', 'title = "Toy"').replace("default = false", ""))
    code = (tmp_path / "adapters" / "toy" / "bert.py").read_text().replace("adapters.fake", "adapters.toy")
    (tmp_path / "adapters" / "toy" / "bert.py").write_text(code)
    environ = {"DLPERF_ADAPTERS": str(tmp_path / "adapters"), "DLPERF_CACHE": str(tmp_path / "cache")}
    words = ["--frameworks", "toy", "--env", "current", "-m", "bert_tiny", "-r", 1, "-o", tmp_path / "out"]
    ended = compare(*words, **environ)
    assert ended.returncode == 0, ended.stderr
    assert "Toy" in (tmp_path / "out" / "report.md").read_text()
    proofs = [events.read(path) for path in tmp_path.glob("out/proofs/*/run/events.rank0.jsonl")]
    assert [stream.traced for stream in proofs] == [10, 10], "each step of a proof is told"
    assert "toy" in compare("--dry-run", "--device", "cpu", "--env", "current", **environ).stdout


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behave", "kind", "says"),
    [
        ("crash", "crash", "the fake framework crashed, as asked"),
        ("nan", "nan", "the loss is nan after"),
        ("out_of_memory", "out_of_memory", "ran out of memory, as asked"),
        ("killed", "killed", "signal 9 (SIGKILL)"),
        pytest.param("hang", "timeout", "timed out after 2 s (--timeout)", marks=pytest.mark.slow),
    ],
)
def test_a_fault_is_a_row_with_its_kind(tmp_path, behave, kind, says):
    out = tmp_path / "out"
    words = ["--set", f"behave={behave}", "--timeout", 2 if behave == "hang" else 60, "-r", 1, "-o", out]
    ended = compare(*FAKE, *words)
    assert ended.returncode == 1, "nothing could run"
    (record,) = records(out)
    assert record.failure.kind == kind
    assert says in record.failure.message
    assert kind in (out / "report.md").read_text()
    assert not any(alive(pid) for pid in worker_pids(out))
    assert "Traceback" not in ended.stderr


def test_a_full_disk_is_named_with_how_to_go_on(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.Store, "append", full)
    out = tmp_path / "out of room"
    ended = compare(*FAKE, "-r", 1, "-o", out)
    assert ended.returncode == 1
    says = f"{out}: No space left on device. Finished runs are kept. Free some space there, then go on with: "
    assert ended.stderr == f"{says}python -m dlperf.compare --resume '{out}'\n"


@pytest.mark.slow
def test_a_hanging_worker_is_ended_with_its_children(tmp_path):
    """Its child is `sleep 1000`."""
    out = tmp_path / "out"
    words = command("compare", *FAKE, "--set", "behave=hang", "-r", 1, "-o", out)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: "sleep 1000 " in working_in(out))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert working_in(out) == []


@pytest.mark.slow
def test_a_failing_system_does_not_end_the_comparison(tmp_path):
    shutil.copytree(ROOT / "adapters" / "fake", tmp_path / "adapters" / "broken")
    module = tmp_path / "adapters" / "broken" / "bert.py"
    module.write_text("raise ImportError('libfast.so.3: cannot open shared object file')\n")
    words = ["-f", "fake,broken", "--env", "current", "-m", "bert_tiny", "-r", 3, "--no-verify", "-o", tmp_path / "out"]
    ended = compare(*words, DLPERF_ADAPTERS=str(tmp_path / "adapters"))
    assert ended.returncode == 0
    by_system = {}
    for record in records(tmp_path / "out"):
        by_system.setdefault(record.job.system, []).append(record)
    assert len(by_system["fake"]) == 3
    assert all(record.done for record in by_system["fake"])
    assert len(by_system["broken"]) == 2, "after two failures without a success the third is not tried"
    assert "libfast.so.3" in by_system["broken"][0].failure.message


@pytest.mark.slow
def test_an_environment_that_is_not_there_is_a_row(tmp_path):
    ended = compare(*FAKE, "-f", "fake,mxnet", "-r", 1, "-o", tmp_path / "out")
    assert ended.returncode == 0
    (failed,) = [record for record in records(tmp_path / "out") if record.job.adapter == "mxnet"]
    assert failed.failure.kind == "environment"
    assert "mxnet" in failed.failure.message


def ready_environment(cache, monkeypatch):
    """A venv that passes for the fake framework's: numpy is this interpreter's."""
    monkeypatch.setenv("DLPERF_CACHE", str(cache))
    adapter = reader.adapters()["fake"]
    environment = kinds.planned(adapter, "cpu", "venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment.folder], check=True)
    import numpy

    packages = next(environment.folder.glob("lib/python*/site-packages"))
    (packages / "numpy.pth").write_text(str(Path(numpy.__file__).parent.parent))
    (environment.folder / MARKER).write_text("{}")
    (environment.folder / MARKER).write_text(json.dumps({"python": "3.11"}))
    return environment


class DeletesEnvironment(Progress):
    """Removes the environment once two runs have ended."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def _finished(self, record):
        if self._ended == 2:
            shutil.rmtree(self.folder)


@pytest.mark.slow
def test_an_environment_deleted_while_running_costs_its_rows_and_nothing_else(tmp_path, monkeypatch):
    environment = ready_environment(tmp_path / "cache", monkeypatch)
    protocol = Protocol("quick", 1, 1, 1, 4)
    spec = Spec(("bert_tiny",), ("fp32",), ("fake",), "cpu", "venv", protocol, timeout=300, verify=False)
    adapters = reader.adapters()
    opened = store.create(tmp_path / "out", spec, plan.from_spec(spec, adapters), {}, {}, "2026-01-01", "0")
    Runner(opened, adapters, DeletesEnvironment(environment.folder)).run()
    outcome = [(record.repeat, record.failure and record.failure.kind) for record in records(tmp_path / "out")]
    assert outcome == [(0, None), (1, None), (2, "environment"), (3, "environment")]
    ready_environment(tmp_path / "cache", monkeypatch)
    Runner(store.open_folder(tmp_path / "out"), adapters, Progress()).run()
    assert all(record.done for record in records(tmp_path / "out")), "resuming runs what never ran"


# --- interruption -----------------------------------------------------------------------------------------------------


#: under nohup, as tests are run too, a comparison outlives its terminal
HEEDS_HANGUPS = ("env", "--default-signal=HUP")


def started(out):
    """A comparison of 3 runs of about 1 s, caught in its second run."""
    words = [*HEEDS_HANGUPS, *command("compare", *FAKE, "--set", "step_seconds=0.1", "-r", 3, "-o", out)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (out / "records.jsonl").exists() and len(worker_pids(out)) == 2)
    return process


def resumed(out, kept):
    ended = compare("--resume", out)
    assert ended.returncode == 0, ended.stderr
    after = {(record.job.id, record.repeat): record for record in records(out)}
    assert len(after) == 3
    assert all(record.done for record in after.values())
    assert all(after[record.job.id, record.repeat] == record for record in kept), "finished runs are kept as they were"
    assert "3 of 3" in (out / "report.md").read_text() or "n=3" in (out / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("signals", [["SIGINT"], ["SIGHUP"], ["SIGTERM", "SIGINT", "SIGINT"]], ids="-".join)
def test_a_signal_ends_every_child_and_the_report_is_written(tmp_path, signals):
    out = tmp_path / "out"
    process = started(out)
    for name in signals:
        process.send_signal(signal.Signals[name])
        time.sleep(0.1)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.Signals[signals[0]]
    assert "--resume" in stdout
    assert "Traceback" not in stderr
    wait_for(lambda: not any(alive(pid) for pid in worker_pids(out)))
    kept = records(out)
    assert kept
    assert "--resume" in (out / "report.md").read_text()
    resumed(out, kept)


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_it_with_a_report(tmp_path):
    """As when a window is closed, or a connection ends: whatever is printed then is an error."""
    out = tmp_path / "out"
    ours, theirs = pty.openpty()
    words = [*HEEDS_HANGUPS, *command("compare", *FAKE, "--set", "step_seconds=0.1", "-r", 3, "-o", out)]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(["setsid", "--ctty", *words], **streams)
    os.close(theirs)
    wait_for(lambda: os.read(ours, 10_000) and (out / "records.jsonl").exists())
    os.close(ours)
    assert process.wait(300) in (1, 129, 141)
    assert working_in(out) == []
    assert "--resume" in (out / "report.md").read_text()


@pytest.mark.slow
def test_it_goes_on_where_nothing_can_be_printed(tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command("compare", *FAKE, "-r", 1, "-o", tmp_path / "out"), stdout=full, stderr=full)
    assert ended.returncode == 0
    assert "n=1" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.slow
def test_finished_runs_survive_kill_9_of_the_core(tmp_path):
    out = tmp_path / "out"
    process = started(out)
    process.kill()
    process.communicate(timeout=300)
    wait_for(lambda: not any(alive(pid) for pid in worker_pids(out)))
    kept = records(out)
    assert kept
    resumed(out, kept)


@pytest.mark.slow
def test_a_half_written_record_is_passed_over_and_run_again(tmp_path):
    out = tmp_path / "out"
    compare(*FAKE, "-r", 2, "-o", out)
    lines = (out / "records.jsonl").read_text().splitlines()
    (out / "records.jsonl").write_text(lines[0] + "\n" + lines[1][:100])
    ended = compare("--resume", out)
    assert ended.returncode == 0
    assert "line 2 is damaged" in ended.stdout
    assert [record.repeat for record in records(out)] == [0, 1]
    assert (out / "records.jsonl").read_text().splitlines()[:2] == [lines[0], lines[1][:100]], "nothing is lost"


def test_half_written_events_are_a_failed_run(tmp_path):
    path = tmp_path / "events.rank0.jsonl"
    path.write_text('{"event": "start", "rank": 0}\n{"event": "window", "ind')
    failure = events.read(path).failure
    assert (failure.kind, failure.message) == ("crash", "the worker exited without reporting an error")
    assert events.read(tmp_path / "nowhere").failure.kind == "crash"


@pytest.mark.slow
def test_failed_runs_stay_failed_unless_asked(tmp_path):
    out = tmp_path / "out"
    compare(*FAKE, "--set", "behave=crash", "-r", 1, "-o", out)
    before = (out / "records.jsonl").read_text()
    assert compare("--resume", out).returncode == 1
    assert (out / "records.jsonl").read_text() == before
    compare("--resume", out, "--retry-failed")
    assert len((out / "records.jsonl").read_text().splitlines()) == 2


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--modell", "bert"], "Did you mean '--model'?"),
        (["--model", "bertt"], "Did you mean 'bert'?"),
        (["--resume", "/nowhere"], "the folder of a comparison"),
        (["--resume", "x", "--model", "bert"], "Leave out --model"),
        (["--output", "/proc/nothing/here", *FAKE], "--output"),
    ],
)
def test_wrong_requests_exit_with_2_and_no_traceback(words, says):
    ended = compare(*words)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_used_output_folder_is_refused_and_untouched(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    ended = compare(*FAKE, "-o", tmp_path)
    assert ended.returncode == 2
    assert "this folder is not empty. Continue with --resume" in ended.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"precious.txt", "lock"}


@pytest.mark.parametrize("change", ["edited", "new", "gone", "list", "edited and listed", "all but records", "beside"])
def test_a_comparison_whose_code_was_changed_does_not_go_on(tmp_path, change):
    out = tmp_path / "out"
    compare(*FAKE, "-r", 1, "-o", out)
    code, module = out / "code", "adapters/fake/resnet.py"
    names = {"new": "dlperf/adapters/fake/other.py", "gone": "dlperf/adapters/probe.py", "beside": "numpy.py"}
    names |= {"list": bundle.LIST, "edited": f"dlperf/{module}"}
    path = code / names.get(change, f"dlperf/{module}")
    path.unlink() if change == "gone" else path.write_text("# nothing\n")
    if change in ("edited and listed", "all but records"):
        listed = json.loads((code / bundle.LIST).read_text())
        listed[module] = hashlib.sha256(path.read_bytes()).hexdigest()
        (code / bundle.LIST).write_text(json.dumps(listed))
        path = code / bundle.LIST
    if change == "all but records":
        manifest = json.loads((out / "comparison.json").read_text())
        (out / "comparison.json").write_text(json.dumps({**manifest, "code": bundle.listed(code)}))
        path = code / "dlperf/adapters/fake"
    kept = (out / "records.jsonl").read_text()
    ended = compare("--resume", out)
    assert ended.returncode == 2
    assert f"the code of its runs was changed since: {path}. Put it back, or start anew." in ended.stderr
    assert (out / "records.jsonl").read_text() == kept


@pytest.mark.slow
def test_one_folder_is_run_by_one_process(tmp_path):
    compare(*FAKE, "-r", 1, "-o", tmp_path / "out")
    with store.locked(tmp_path / "out"):
        ended = run("compare", "--resume", tmp_path / "out")
    assert ended.returncode == 2
    assert "another process is running this comparison" in ended.stderr


def test_what_a_machine_refuses_is_the_rows_trouble(tmp_path, monkeypatch):
    """And is tried again by --resume."""
    spec = Spec(
        ("bert_tiny",), ("fp32",), ("fake",), "cpu", "current", Protocol("quick", 1, 1, 1, 2), timeout=300, verify=False
    )
    adapters = reader.adapters()
    opened = store.create(tmp_path / "out", spec, plan.from_spec(spec, adapters), {}, {}, "2026-01-01", "0")

    def refused(folder, *rest):
        raise OSError(36, "File name too long", str(folder))

    monkeypatch.setattr("dlperf.comparison.runner.execute", refused)
    Runner(opened, adapters, Progress()).run()
    first, second = records(tmp_path / "out")
    assert (first.failure.kind, second.failure.kind) == ("machine", "machine")
    assert first.failure.message.endswith("/0: File name too long")
    monkeypatch.undo()
    Runner(store.open_folder(tmp_path / "out"), adapters, Progress()).run()
    assert all(record.done for record in store.open_folder(tmp_path / "out").records.values())


def test_quiet_and_help():
    assert compare("--help").returncode == 0
    assert "--precision" in compare("--help").stdout


@pytest.mark.slow
def test_the_core_does_not_compute_while_a_worker_measures(tmp_path):
    """CPU time of this process, not wall-clock: a worker that sleeps for 4 s leaves the core next to nothing to do."""
    protocol = Protocol("quick", 1, 1, 7, 1)
    settings = {"step_seconds": "0.5"}
    spec = Spec(
        ("bert_tiny",), ("fp32",), ("fake",), "cpu", "current", protocol, settings=settings, timeout=300, verify=False
    )
    adapters = reader.adapters()
    opened = store.create(tmp_path / "out", spec, plan.from_spec(spec, adapters), {}, {}, "2026-01-01", "0")
    work = Runner(opened, adapters, Progress())
    before = time.process_time()
    work.run()
    used = time.process_time() - before
    (record,) = records(tmp_path / "out")
    assert record.seconds > 4
    assert used < 0.1 * record.seconds


NOT_LINUX = (
    "dlperf needs Linux; on macOS or Windows run it in a Linux container or virtual machine (on Windows: WSL 2)\n"
)


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_another_system_than_linux_is_told_so_before_anything_is_imported(system):
    """Windows has neither fcntl nor pwd."""
    code = f"""
import platform, runpy, sys
platform.system = lambda: {system!r}
sys.modules.update(fcntl=None, pwd=None)
runpy.run_module("dlperf.compare", run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", NOT_LINUX)


def test_setup_says_first_that_it_needs_linux(tmp_path):
    for name in ("Makefile", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    uname = tmp_path / "bin" / "uname"
    uname.parent.mkdir()
    uname.write_text("#!/bin/sh\necho Darwin\n")
    uname.chmod(0o755)
    environ = {**os.environ, "PATH": f"{uname.parent}:{os.environ['PATH']}", "MAKEFLAGS": ""}
    ended = subprocess.run(
        ["make", "-C", tmp_path, "compare"], capture_output=True, text=True, env=environ, timeout=300
    )
    assert ended.returncode == 2
    assert NOT_LINUX in ended.stdout
    assert not (tmp_path / ".venv").exists()
