"""Pods that run commands for the first one: here processes of this machine."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from processes import wait_for

PODS = [sys.executable, "-m", "dlperf.launchers.pods"]


@pytest.fixture
def pods(tmp_path):
    """Two of them, in a folder; their processes."""
    started = [start(tmp_path, index) for index in range(2)]
    yield started
    for one in started:
        one.kill()
        one.wait()


def start(folder, index):
    environ = {**os.environ, "DLPERF_PODS": str(folder / "pods"), "JOB_COMPLETION_INDEX": str(index)}
    return subprocess.Popen([*PODS, "serve"], env=environ)


def call(folder, *words, **given):
    environ = {**os.environ, "DLPERF_PODS": str(folder / "pods")}
    return subprocess.Popen([*PODS, *map(str, words)], env=environ, stderr=subprocess.PIPE, text=True, **given)


def ended(process):
    said = process.communicate(timeout=300)[1]
    return process.returncode, said


def test_a_command_runs_in_each_with_its_number_and_all_addresses(pods, tmp_path):
    assert ended(call(tmp_path, "wait", 2))[0] == 0
    code, said = ended(call(tmp_path, "run", 2, "sh", "-c", 'echo "it\'s $1 of $DLPERF_HOSTS"', "x"))
    address = json.loads((tmp_path / "pods" / "0.json").read_text())["address"]
    assert (code, sorted(said.splitlines())) == (0, [f"it's {index} of {address},{address}" for index in (0, 1)])
    assert ended(call(tmp_path, "end", 2))[0] == 0
    assert [one.wait(timeout=60) for one in pods] == [0, 0]


def test_one_that_fails_ends_the_others(pods, tmp_path):
    script = f'[ $1 = 1 ] || exec sleep 1000; echo "rank 1 ended" >&2; exit 7 # {tmp_path}'
    ended(call(tmp_path, "wait", 2))
    code, said = ended(call(tmp_path, "run", 2, "sh", "-c", script, "x"))
    assert (code, said) == (7, "rank 1 ended\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_command_that_is_ended(pods, tmp_path, number):
    script = f'setsid sh -c "echo \\$\\$ > {tmp_path}/pid.$1; exec sleep 1000" & wait'
    ended(call(tmp_path, "wait", 2))
    running = call(tmp_path, "run", 2, "sh", "-c", script, "x")
    files = [tmp_path / f"pid.{index}" for index in (0, 1)]
    wait_for(lambda: all(path.exists() and path.read_text().strip() for path in files))
    running.send_signal(number)
    assert ended(running)[0] == (143 if number == signal.SIGTERM else -9)
    wait_for(lambda: not any(os.path.exists(f"/proc/{path.read_text().strip()}") for path in files))


def test_a_pod_that_is_gone_is_named(pods, tmp_path):
    ended(call(tmp_path, "wait", 2))
    running = call(tmp_path, "run", 2, "sh", "-c", f"echo > {tmp_path}/runs.$1; exec sleep 1000", "x")
    wait_for(lambda: (tmp_path / "runs.1").exists())
    pods[1].kill()
    code, said = ended(running)
    assert code == 255
    assert said.startswith(f"pod 1 on {socket.gethostname()} was lost: ")


def test_one_that_was_replaced_is_found_where_it_is_now(pods, tmp_path):
    ended(call(tmp_path, "wait", 2))
    pods[1].kill()
    pods[1].wait()
    running = call(tmp_path, "run", 2, "sh", "-c", "echo $1", "x")
    pods[1] = start(tmp_path, 1)
    code, said = ended(running)
    assert (code, sorted(said.split())) == (0, ["0", "1"])


def test_nobody_else_is_obeyed(pods, tmp_path):
    ended(call(tmp_path, "wait", 2))
    path = tmp_path / "pods" / "1.json"
    assert path.stat().st_mode & 0o077 == 0
    told = json.loads(path.read_text())
    for line in (json.dumps({"secret": "x", "command": f"touch {tmp_path}/owned"}), "{", "[]", ""):
        with socket.create_connection((told["address"], told["port"])) as other:
            other.sendall(line.encode() + b"\n")
            other.shutdown(socket.SHUT_WR)
            assert other.recv(1) == b""
    assert not (tmp_path / "owned").exists()
    assert pods[1].poll() is None
