"""What a worker reads of its host, and what windows make of it."""

import contextlib
import os
import subprocess
import sys

import pytest
from processes import wait_for

from dlperf.adapters import host
from dlperf.runs import conditions, events
from dlperf.schema import Window

#: it starts one that computes, and both end with their input
PARENT = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE): sys.stdin.read()
"""
CHILD = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
held = b"1" * 2**25
while True: pass
"""


@contextlib.contextmanager
def computing():
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE) as parent:
        yield parent
        parent.stdin.close()


@pytest.fixture
def others():
    """What tests have running besides."""
    return set(host.children())


def test_children_and_theirs_are_counted_while_they_live_and_afterwards(others):
    began, bytes_before = host.cpu_seconds_of_children(), host.memory_of_children()
    with computing():
        wait_for(lambda: len(set(host.children()) - others) == 2)
        wait_for(lambda: host.cpu_seconds_of_children() > began + 0.2)
        wait_for(lambda: host.memory_of_children() > bytes_before + 2**25)
    assert not set(host.children()) - others
    assert host.memory_of_children() < bytes_before + 2**25
    assert host.cpu_seconds_of_children() > began + 0.2


def test_what_a_host_counts_of_a_time():
    before = host.readings()
    with computing():
        wait_for(lambda: host.readings()["busy_seconds"] > before["busy_seconds"] + 0.2)
    found = host.between(before, host.readings())
    assert found["cpus"] >= 1
    assert found["busy_seconds"] > 0.2
    assert found["steal_seconds"] >= 0


def test_a_host_that_tells_nothing(monkeypatch):
    monkeypatch.setattr(host, "_lines", lambda path: iter(()))
    assert host.readings() == {}
    assert host.between({}, {}) == {}
    assert host.memory_of_children() == 0


def test_clocks_and_counters_of_other_machines(monkeypatch):
    files = {
        "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": ["3\n"],
        "/sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count": ["4\n"],
        "/sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq": ["3600000\n"],
        "/sys/fs/cgroup/cpu.stat": ["usage_usec 7\n", "throttled_usec 2500000\n"],
    }
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2}, raising=False)
    monkeypatch.setattr(host, "_lines", lambda path: iter(files.get(path, ())))
    assert host.readings() == {"throttles": 7, "quota_seconds": 2.5, "mhz": 3600}


def test_what_a_kernel_writes_otherwise_costs_nothing_else(monkeypatch):
    files = {
        "/proc/stat": ["cpu 10 0 0\n", "cpu0 10 0 0\n"],
        "/sys/fs/cgroup/cpu.stat": ["throttled_usec\n"],
        "/proc/cpuinfo": ["cpu MHz : unknown\n"],
    }
    monkeypatch.setattr(host, "_lines", lambda path: iter(files.get(path, ["?\n"])))
    assert host.readings() == {}
    assert host.memory_of_children() == 0


def test_a_process_that_is_apart_is_not_counted(monkeypatch, others):
    with computing() as parent:
        wait_for(lambda: len(set(host.children()) - others) == 2)
        monkeypatch.setattr(host, "APART", {str(parent.pid)})
        assert not set(host.children()) - others


def window(cpu_seconds, **read):
    return Window(0, 1, 8, 2.0, cpu_seconds, 1.0, conditions=read)


def test_what_is_left_of_a_host_without_the_ranks_that_it_has_is_of_others():
    quiet = {"cpus": 4, "busy_seconds": 6.0, "steal_seconds": 0.0, "mhz": 3000.0}
    loud = {"cpus": 2, "busy_seconds": 3.0, "steal_seconds": 0.4, "mhz": 2000.0, "throttles": 1}
    ranks = [window(2.5, **quiet), window(3.5, **{**quiet, "busy_seconds": 5.9}), window(1.0, **loud)]
    assert conditions.of_window(["a", "a", "b"], ranks) == {
        "cpu_busy_share": pytest.approx(0.75),
        "cpu_others_share": pytest.approx(0.5),
        "cpu_steal_share": pytest.approx(0.1),
        "cpu_mhz": 2000,
        "cpu_throttles": 1,
    }
    assert conditions.of_window(["a"], [window(None, **quiet)]) == {"cpu_mhz": 3000}
    assert conditions.of_window(["a"], [window(1.0)]) == {}


def test_the_windows_of_one_rank_have_it(tmp_path):
    (tmp_path / "events.rank0.jsonl").write_text(
        '{"event": "start", "time": 1, "machine": {"host": "a"}}\n'
        '{"event": "window", "time": 9, "index": 0, "steps": 1, "samples": 8, "seconds": 2.0, "cpu_seconds": 1.0, '
        '"loss": 1.0, "host": {"cpus": 2, "busy_seconds": 3.0, "steal_seconds": 0.0}}\n'
    )
    (found,) = events.read_job(tmp_path, 1).windows
    assert found.conditions == {"cpu_busy_share": 0.75, "cpu_others_share": 0.5, "cpu_steal_share": 0.0}
