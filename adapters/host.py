"""What a worker reads of its host before and after a window, outside of the clock: Linux's /proc and /sys. Elsewhere,
and for what a host does not tell, nothing. Python >= 3.7, standard library only."""

import contextlib
import glob
import os
from typing import Dict, Iterable, Iterator, Set

#: CPUs whose clocks and counters are read: enough to see that they moved, and read in a millisecond
MOST = 16
#: columns of /proc/stat, see proc(5); `guest` is in `user` already
COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
BUSY = ("user", "nice", "system", "irq", "softirq")
#: numbers of processes below this one that are not part of its work
APART: Set[str] = set()
#: interfaces whose traffic is counted
NETWORKS: Set[str] = set()


def readings() -> Dict[str, float]:
    """Counters since the host started, and its clock now: cpus; busy_seconds and steal_seconds of all of them;
    throttles, times that a CPU was slowed for its temperature; quota_seconds that the control group was held back;
    mhz, the highest of a CPU that this process may use; sent_bytes of NETWORKS."""
    cpus = sorted(os.sched_getaffinity(0))[:MOST] if hasattr(os, "sched_getaffinity") else []
    found = {}  # type: Dict[str, float]
    for read in (_times, lambda: _throttles(cpus), _quota, lambda: _clock(cpus), _sent):
        with contextlib.suppress(ValueError, KeyError, IndexError):  # of a kernel that writes something else
            found.update(read())
    return found


def between(before: Dict[str, float], after: Dict[str, float]) -> Dict[str, float]:
    """What the counters counted; the number of CPUs and their clock as they are afterwards."""
    now = ("cpus", "mhz")
    return {name: after[name] - (0 if name in now else before[name]) for name in after if name in before}


def _times() -> Dict[str, float]:
    lines = [line.split() for line in _lines("/proc/stat") if line.startswith("cpu")]
    if len(lines) < 2:
        return {}
    tick = os.sysconf("SC_CLK_TCK")
    seconds = {name: int(count) / tick for name, count in zip(COLUMNS, lines[0][1:])}
    busy = sum(seconds[name] for name in BUSY)
    return {"cpus": len(lines) - 1, "busy_seconds": busy, "steal_seconds": seconds["steal"]}


def _throttles(cpus: Iterable[int]) -> Dict[str, float]:
    counts = list(_numbers(f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count" for cpu in cpus))
    return {"throttles": sum(counts)} if counts else {}


def _quota() -> Dict[str, float]:
    lines = [line.split() for line in _lines("/sys/fs/cgroup/cpu.stat") if line.startswith("throttled_usec ")]
    return {"quota_seconds": int(lines[0][1]) / 1e6} if lines else {}


def _sent() -> Dict[str, float]:
    if not NETWORKS:
        return {}
    lines = [line.partition(":") for line in _lines("/proc/self/net/dev")]
    return {"sent_bytes": sum(int(told.split()[8]) for name, _, told in lines if name.strip() in NETWORKS)}


def _clock(cpus: Iterable[int]) -> Dict[str, float]:
    places = (f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in cpus)
    clocks = [khz / 1e3 for khz in _numbers(places)] or [
        float(line.partition(":")[2]) for line in _lines("/proc/cpuinfo") if line.startswith("cpu MHz")
    ]
    return {"mhz": max(clocks)} if clocks else {}


def cpu_seconds_of_children() -> float:
    """CPU time of the processes that this one started, and they, as loaders are: of those that are alive and those that
    have ended and were waited for."""
    ended = os.times()
    total = ended.children_user + ended.children_system
    tick = os.sysconf("SC_CLK_TCK")
    for pid in children():
        for line in _lines(f"/proc/{pid}/stat"):
            fields = line.rpartition(")")[2].split()  # the name before it may have spaces
            total += sum(int(count) for count in fields[11:15] if count.isdigit()) / tick
    return total


def memory_of_children() -> int:
    """Bytes of the processes below this one, by their share of what several have (Pss)."""
    found = [line.split() for pid in children() for line in _lines(f"/proc/{pid}/smaps_rollup")]
    return sum(1024 * int(words[1]) for words in found if words[0] == "Pss:")


def children(pid: str = "self") -> Iterator[str]:
    """The living processes below one, by number, without those that are APART."""
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        for line in _lines(path):
            for child in line.split():
                if child.isdigit() and child not in APART:
                    yield child
                    yield from children(child)


def _numbers(paths: Iterable[str]) -> Iterator[int]:
    for path in paths:
        for line in _lines(path):
            yield int(line)


def _lines(path: str) -> Iterator[str]:
    """None of a file that is not there, or of a process that has ended."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return
    yield from lines
