"""Stands between the core and what it runs, so that nothing of it outlives either:
`python keeper.py DESCRIPTORS GRACE COMMAND...`

The command runs in a session of its own. When it ends, all that it has started and left ends, too, daemons with
sessions of their own included: they become children of this process, which is their subreaper. The first of
DESCRIPTORS is a pipe from the core: a byte in it asks for the end, its own end says that the core is gone. Then the
command's group has GRACE seconds, or GONE, to end by itself. The others are held until all is over, such as a lock.
The exit status is the command's. Standard library only: it starts in some 20 ms, and must run without dlperf's
environment.
"""

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
#: seconds without the core
GONE = 1.0
#: that killed processes take to end; one of another user never does
MOST = 10.0


class Stop(Exception):
    """SIGTERM came."""


def main(argv: list[str]) -> int:
    held, grace, command = [int(one) for one in argv[0].split(",")], float(argv[1]), argv[2:]
    for descriptor in held:
        os.set_inheritable(descriptor, False)
    libc = adopt()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    child = _start(command, libc)
    status = _watch(child, held[0], grace)
    return _end_as(_collect(child, status))


def adopt() -> ctypes.CDLL:
    """Be the parent of all processes below this one whose own parent is gone."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    return libc


def _stop(number: int, frame: object) -> None:
    raise Stop


def _start(command: list[str], libc: ctypes.CDLL) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    finally:
        os._exit(127)


def _watch(child: int, pipe: int, grace: float) -> int | None:
    """Until the command has ended, or has had its time to. Its status, if it was collected meanwhile."""
    ended, status = os.pidfd_open(child), None
    patience: float | None = None
    try:
        while patience is None:
            ready = select.select([pipe, ended], [], [], 1.0)[0]
            if ended in ready:
                return status
            status = _reap(child, status)  # of orphans
            if pipe in ready:
                patience = grace if os.read(pipe, 1) else GONE
    except Stop:
        patience = grace
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGTERM)
    select.select([ended], [], [], patience)
    return status


def _collect(child: int, status: int | None) -> int | None:
    """End all that is left. The command's status."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + MOST
    while True:
        status = _reap(child, status)
        left = descendants()
        if not (left or _has_children()) or time.monotonic() > deadline:
            return _reap(child, status)
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def end_orphans(known: Collection[int]) -> None:
    """End what a keeper that was killed has left to this process, whose children it became. known: those that are not
    such."""
    deadline = time.monotonic() + MOST
    while (left := descendants(known)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        _collect_children(known)
    _collect_children(known)


def _collect_children(known: Collection[int]) -> None:
    """Those that have ended and are not known."""
    for pid, (parent, ended) in _parents().items():
        if ended and parent == os.getpid() and pid not in known:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _reap(child: int, status: int | None) -> int | None:
    """Collect all that have ended. The command's status, as soon as it is one of them."""
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if not pid:
            return status
        status = found if pid == child else status


def _has_children() -> bool:
    """One that forks and ends all the time may be in no list of /proc, but is always a child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants(known: Collection[int] = ()) -> list[int]:
    """Processes below this one that run; a zombie is its parent's to collect, or becomes ours. known: those that are
    left out, with all below them."""
    parents = _parents()
    found: set[int] = set()
    more = {os.getpid()}
    while more:
        more = {pid for pid, (parent, _) in parents.items() if parent in more} - found - {*known}
        found |= more
    return [pid for pid in found if not parents[pid][1]]


def _parents() -> dict[int, tuple[int, bool]]:
    """Of each process its parent, and whether it has ended and waits to be collected."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            parents[int(name)] = (int(parent), state in (b"Z", b"X"))
    return parents


def _end_as(status: int | None) -> int:
    """Exit as the command did."""
    if status is None:
        return 127
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    number = os.WTERMSIG(status)
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
