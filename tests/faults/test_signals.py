"""Signals to core, keeper and worker, at random and at chosen moments, with children that will not die: nothing is left
of a run, no record is lost, and there is a report."""

import contextlib
import os
import signal
import subprocess
import time

import pytest
import stubborn
from commands import call, command, records
from forked import Forked

from dlperf.comparison import store

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
REPEATS = 2
#: one row of a framework, some 0.4 s of windows in each run
WORDS = ("--model", "bert_tiny", "--device", "cpu", "--env", "current", "--no-verify", "--repeats", REPEATS)
MORE = ("--set", "step_seconds=0.05", "--steps-per-window", 2, "--quiet")


def events(out):
    return b"".join(path.read_bytes() for path in out.glob("runs/*/*/events.rank0.jsonl"))


def stored(out):
    path = out / store.RECORDS
    return path.read_bytes() if path.exists() else b""


#: when a signal is sent: as soon as it holds
MOMENTS = {
    "before the first event": lambda out: any(out.glob("runs/*/*/launch.sh")),
    "during import": lambda out: b'"start"' in events(out),
    "in a window": lambda out: b'"warm"' in events(out),
    "between runs": lambda out: stored(out).count(b"\n") > 0,
    "while the report is written": lambda out: stored(out).count(b"\n") == REPEATS,
    "at random": lambda out: False,
}


def victims(target, core, out):
    """The processes that a signal goes to; the core where the others are not there."""
    part = {"keeper": "keeper.py", "worker": "dlperf.adapters.worker"}.get(target, "")
    found = [pid for pid, words in stubborn.of_comparison(out).items() if part and part in words and pid != core.pid]
    return found or [core.pid]


def reach(moment, out, core, source):
    """Wait for a moment, or the end."""
    longest = time.monotonic() + (source.uniform(0, 6) if moment == "at random" else 300)
    while core.poll() is None and not MOMENTS[moment](out) and time.monotonic() < longest:
        time.sleep(0.001)


def interrupted(folder, environ, framework, moment, target, signals, source):
    """A comparison that gets signals, to its end: its folder, its process, what was stored before."""
    out = folder / "out"
    words = ("--frameworks", framework, *WORDS, *MORE, "-o", out)
    core = Forked("compare", *words, printed=folder / "printed", environ=environ)
    reach(moment, out, core, source)
    before, chosen = stored(out), victims(target, core, out)
    send(core, chosen, signals, source)
    core.wait()
    return out, core, before


def send(core, chosen, signals, source):
    """Signals to processes, as long as the core is there."""
    for number in signals:
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                if core.poll() is None:
                    os.kill(pid, number)
        time.sleep(source.choice((0, 0.05, 0.3)))


def check(folder, environ, out, core, before):
    alive = stubborn.left(out)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert not alive, f"alive: {sorted(alive.values())}"
    printed = (folder / "printed").read_text()
    assert "Traceback" not in printed, printed
    assert stored(out).startswith(before), "records were changed"
    if not (out / store.MANIFEST).exists():
        return
    assert core.returncode == -signal.SIGKILL or (out / "report.md").exists(), "no report"
    after = stored(out)
    again = call("compare", "--resume", out, "--quiet", **environ)
    assert again.returncode in (0, 1), again.stderr
    assert "Traceback" not in again.stdout + again.stderr, again.stderr
    assert stored(out).startswith(after), "resuming changed records"
    assert (out / "report.md").exists()
    assert any(record.done for record in records(out)) == (again.returncode == 0)
    alive = stubborn.left(out)
    assert not alive, f"alive after resuming: {sorted(alive.values())}"


@pytest.mark.parametrize("target", ["core", "keeper", "worker"])
def test_signals(campaign, tmp_path, target):
    source, environ = campaign.source, {"DLPERF_ADAPTERS": str(stubborn.adapter(tmp_path / "adapters"))}
    for number in range(2 * campaign.times):
        signals = source.choices(SIGNALS, k=source.choice((1, 2)))
        moment, framework = source.choice(tuple(MOMENTS)), source.choice(("fake", "stubborn", "stubborn"))
        about = f"{number}: {'+'.join(one.name for one in signals)} to {target} {moment}, {framework}"
        folder = tmp_path / str(number)
        folder.mkdir()
        with campaign.fault(f"signals to the {target}", about):
            check(folder, environ, *interrupted(folder, environ, framework, moment, target, signals, source))


def heeds_hangups():
    """Also where the tests are run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_signals_while_it_starts(campaign, tmp_path):
    """Python's own start, before a line of ours, has a traceback of its own for Ctrl-C."""
    for number in range(5 * campaign.times):
        signals = campaign.source.choices(SIGNALS[:3], k=campaign.source.choice((1, 2)))
        after = campaign.source.uniform(0, 2)
        printed, out = tmp_path / "printed", tmp_path / str(number)
        with campaign.fault("signals while it starts", f"{'+'.join(one.name for one in signals)} after {after:.3f} s"):
            with open(printed, "wb") as file:
                words = command("compare", "--frameworks", "fake", *WORDS, *MORE, "-o", out)
                core = subprocess.Popen(words, stdout=file, stderr=file, preexec_fn=heeds_hangups)
            with contextlib.suppress(subprocess.TimeoutExpired):
                core.wait(after)
            send(core, [core.pid], signals, campaign.source)
            core.wait(300)
            said = printed.read_text()
            assert "Traceback" not in said or "dlperf" not in said, said
            assert core.returncode in {sign * one + (128 if sign > 0 else 0) for one in signals for sign in (1, -1)}
            assert not stubborn.left(out)
            assert not (out / store.MANIFEST).exists() or (out / "report.md").exists(), "no report"
