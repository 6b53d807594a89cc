"""Nothing of a run outlives it, or the core: neither daemons, nor what ignores signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import alive, wait_for

from dlperf import launchers
from dlperf.comparison import store
from dlperf.errors import UsageError

#: leaves a child, a daemon in a session of its own that ignores signals, and writes their numbers
STUBBORN = """
sleep 1000 & echo $! >> pids
python3 - <<'END'
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(1000)
    os._exit(0)
END
while [ "$(wc -l < pids)" -lt 2 ]; do sleep 0.01; done
"""
#: of a core that starts launch.sh and says so
CORE = """
import sys, time
from pathlib import Path
from dlperf import launchers
from dlperf.comparison import store
with store.locked(Path(sys.argv[1])):
    launchers.find("local").start(Path(sys.argv[1]))
    print("started", flush=True)
    time.sleep(1000)
"""


def started(folder: Path, script: str):
    (folder / "launch.sh").write_text(f"cd {folder}\n{script}")
    return launchers.find("local").start(folder)


def left(folder: Path):
    path = folder / "pids"
    return [pid for pid in (path.read_text().split() if path.exists() else ()) if alive(pid)]


@pytest.mark.parametrize("how", ["ends", "stopped", "terminated"])
def test_daemons_end_with_their_run(tmp_path, how):
    process = started(tmp_path, STUBBORN + ("" if how == "ends" else "sleep 1000\n"))
    if how == "stopped":
        wait_for(lambda: len(left(tmp_path)) == 2)
        launchers.find("local").stop(process)
    elif how == "terminated":
        wait_for(lambda: len(left(tmp_path)) == 2)
        process.terminate()  # the keeper, by whom it may be
    process.wait(60)
    assert len((tmp_path / "pids").read_text().split()) == 2
    assert left(tmp_path) == []
    launchers.find("local").stop(process)


def test_what_a_killed_keeper_leaves_ends_with_it_and_nothing_else_does(tmp_path):
    other = subprocess.Popen(["sleep", "1000"])
    (tmp_path / "second").mkdir()
    second = started(tmp_path / "second", "sleep 1000\n")
    process = started(tmp_path, STUBBORN + "sleep 1000\n")
    wait_for(lambda: len(left(tmp_path)) == 2)
    process.kill()
    process.wait(60)
    assert len(left(tmp_path)) == 2
    launchers.find("local").stop(process)
    assert left(tmp_path) == []
    assert other.poll() is second.poll() is None
    launchers.find("local").stop(second)
    other.kill()
    other.wait()


def locked_out(folder: Path):
    try:
        with store.locked(folder):
            return False
    except UsageError:
        return True


@pytest.mark.slow
def test_all_ends_when_the_core_is_killed_and_the_lock_is_held_until_then(tmp_path):
    (tmp_path / "launch.sh").write_text(f"cd {tmp_path}\n{STUBBORN}sleep 1000\n")
    core = subprocess.Popen([sys.executable, "-c", CORE, tmp_path], stdout=subprocess.PIPE)
    assert core.stdout is not None
    core.stdout.readline()
    wait_for(lambda: len(left(tmp_path)) == 2)
    assert locked_out(tmp_path)
    core.kill()
    core.communicate()
    with store.locked(tmp_path):  # waits for it
        assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -9 $$", -9), ("kill -11 $$", -11), ("exit 0", 0), ("nonsense", 127)]
)
def test_it_ends_as_its_command(tmp_path, script, code):
    process = started(tmp_path, script)
    assert process.wait(60) == code


def test_a_command_is_asked_to_end_and_has_its_time(tmp_path):
    process = started(tmp_path, "trap 'echo bye; exit 7' TERM; echo ready\nwhile :; do sleep 0.01; done\n")
    wait_for(lambda: "ready" in (tmp_path / "stdout.log").read_text())
    launchers.find("local").stop(process)
    assert (tmp_path / "stdout.log").read_text() == "ready\nbye\n"
    assert process.returncode == 7


def test_what_it_runs_inherits_no_lock(tmp_path):
    with store.locked(tmp_path):
        process = started(tmp_path, "ls -l /proc/self/fd\n")
        process.wait(60)
    assert "lock" not in (tmp_path / "stdout.log").read_text()
    assert "pipe" not in (tmp_path / "stdout.log").read_text()


def test_signals_of_a_terminal_are_not_its(tmp_path):
    process = started(tmp_path, "echo ready; sleep 0.5\n")
    wait_for(lambda: "ready" in (tmp_path / "stdout.log").read_text())
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGHUP)
    assert process.wait(60) == 0
