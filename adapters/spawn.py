"""Starts the ranks of one node: `python -m dlperf.adapters.spawn COUNT[+SERVERS] COMMAND...`, each with torchrun's
variables. Parameter servers run the same command, with DLPERF_ROLE=server and ranks of their own.

NODE_RANK and NNODES say which node of how many this is; one of one where they are not set. Standard library only. When
a process fails, the others have GRACE seconds to say what they saw of it, and are ended; the exit code is that of the
first. What ended it is the last line of standard error: "rank 1 on HOST was ended by signal 9 (SIGKILL)". Servers have
as long to end once all workers have; some never end by themselves.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

GRACE = 3.0
#: of Linux, see setns(2)
CLONE_NEWNET = 0x40000000


class Process(NamedTuple):
    role: str
    rank: int


class Node(NamedTuple):
    """Which node this is, of how many; network: a descriptor of the namespace that it is, None for this process's."""

    number: int
    nnodes: int
    network: Optional[int] = None


def main(argv: List[str]) -> int:
    die_with_parent()
    return start([Node(int(os.environ.get("NODE_RANK", "0")), int(os.environ.get("NNODES", "1")))], argv[0], argv[1:])


def start(nodes: Sequence[Node], counts_of_each: str, command: List[str]) -> int:
    """Start the ranks of these nodes, and wait for them. counts_of_each: COUNT[+SERVERS] of a node."""
    counts = dict(zip(("worker", "server"), map(int, counts_of_each.split("+"))))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    pids: Dict[int, Process] = {}
    try:
        for node in nodes:
            for role, count in counts.items():
                for local_rank in range(count):
                    rank = node.number * count + local_rank
                    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
                    places = dict(zip(names, map(str, (rank, node.nnodes * count, local_rank, count))))
                    if len(counts) > 1:
                        of_all = {f"DLPERF_{one.upper()}_COUNT": str(node.nnodes * of) for one, of in counts.items()}
                        places.update(of_all, DLPERF_ROLE=role)
                    pids[_start(command, dict(os.environ, **places), node.network)] = Process(role, rank)
        return _wait(pids)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _start(command: List[str], environ: Mapping[str, str], network: Optional[int]) -> int:
    """The new process's id. It ends with this one from its first moment on, not only when Python runs in it."""
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        die_with_parent()
        if network is not None:
            enter(network)
        if os.getppid() == parent:
            os.execvpe(command[0], command, environ)
    finally:
        os._exit(127)


def enter(network: int) -> None:
    """Move this process into a network namespace. OSError where it may not."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(network, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


#: how processes end that did not choose to
VIOLENT = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


def _wait(pids: Dict[int, Process]) -> int:
    """Until all have succeeded, or one has not or servers alone are left, and the others had their time. Returns the
    exit code."""
    failed: List[Tuple[Process, int]] = []
    deadline: Optional[float] = None
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG if deadline else 0)
        if pid == 0:
            if time.monotonic() > deadline:  # type: ignore[operator]
                break
            time.sleep(0.02)
            continue
        ended = pids.pop(pid, None)
        if ended is None:
            continue
        left = any(one.role == "worker" for one in pids.values())
        if status and (left or ended.role == "worker"):  # however a server ends that nobody needs
            failed.append((ended, status))
        if status or not left:
            deadline = deadline or time.monotonic() + GRACE
    # On a busy machine the ranks that lost one may be seen to end before it
    killed = [(one, status) for one, status in failed if os.WIFSIGNALED(status) and os.WTERMSIG(status) in VIOLENT]
    return _tell(*(killed or failed)[0]) if failed else 0


def _tell(process: Process, status: int) -> int:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        how, code = f"was ended by signal {number} ({signal.Signals(number).name})", 128 + number
    else:
        code = os.WEXITSTATUS(status)
        how = f"ended with exit code {code}"
    name = "rank" if process.role == "worker" else process.role
    print(f"{name} {process.rank} on {socket.gethostname()} {how}", file=sys.stderr, flush=True)
    return code


def die_with_parent() -> None:
    """Linux ends this process when its parent is killed, so that no orphan disturbs later measurements."""
    PR_SET_PDEATHSIG = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
