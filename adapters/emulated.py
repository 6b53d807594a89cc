"""Starts ranks on nodes that it emulates:

    python -m dlperf.adapters.emulated NODES GIGABITS COUNT[+SERVERS] COMMAND...

It runs in a network namespace of its own, which is the switch, with the right to make more. Each node is a namespace
with one link to the switch, whose both ends are shaped to GIGABITS Gb/s (0: not at all) by a token bucket; ranks share
everything else. Before they start, each node sends to the next for a moment, and what arrives must be what was asked
for: DLPERF_LINK tells the ranks how much it was. Standard library only, and iproute2's `ip` and `tc`.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, List

from dlperf.adapters.spawn import CLONE_NEWNET, Node, die_with_parent, enter, start

NETWORK = "10.77.0"
#: seconds for which a node sends, of which the first are not counted: a connection begins slowly
SENT, UNCOUNTED = 0.6, 0.2
#: of the bandwidth that was asked for, by how much less or more a link may have
OFF, TRIES = 0.1, 3
#: seconds for which a bucket fills at most, and its bytes at least: small enough to leave no mark on what is measured,
#: and several packets of 64 KiB, as virtual links have them
FILLS, LEAST = 0.001, 250_000


class Wrong(Exception):
    """The nodes could not be made, or their links are not what was asked for."""


def main(argv: List[str]) -> int:
    die_with_parent()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    count, gigabits = int(argv[0]), float(argv[1])
    try:
        networks = made(count, gigabits)
        found = min(best(networks, node, gigabits) for node in range(count))
        if wrong(found, gigabits):
            raise Wrong(
                f"a link gives {found:.3g} Gb/s where {gigabits:g} were asked for; this machine may be too busy"
            )
    except (Wrong, OSError) as error:
        print(f"emulated: {error}", file=sys.stderr, flush=True)
        return 1
    os.environ.update(DLPERF_HOSTS=",".join(map(address, range(count))), DLPERF_LINK=f"{found:.6g}")
    return start([Node(node, count, network) for node, network in enumerate(networks)], argv[2], argv[3:])


def address(node: int) -> str:
    return f"{NETWORK}.{node + 1}"


def made(count: int, gigabits: float) -> List[int]:
    """Descriptors of the nodes' namespaces, with their links up."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "switch", "type", "bridge")
    run("ip", "link", "set", "switch", "up")
    networks = []
    for node in range(count):
        pid, network = _namespace()
        networks.append(network)
        run("ip", "link", "add", f"link{node}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        run("ip", "link", "set", f"link{node}", "master", "switch", "up")
        shape(f"link{node}", gigabits)
        inside(network, lambda node=node: _set_up(node, gigabits))  # type: ignore[misc]
        os.kill(pid, signal.SIGKILL)  # the descriptor holds the namespace
        os.waitpid(pid, 0)
    return networks


def _namespace() -> "tuple[int, int]":
    """A process in a new namespace, and a descriptor of that, which this process's children inherit."""
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:
        die_with_parent()
        failed = ctypes.CDLL(None).unshare(CLONE_NEWNET)
        os.write(tell, b"no" if failed else b"ok")
        signal.pause()
        os._exit(0)
    os.close(tell)
    answer = os.read(told, 2)
    os.close(told)
    if answer != b"ok":
        raise Wrong("no network namespace could be made")
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    os.set_inheritable(network, True)
    return pid, network


def _set_up(node: int, gigabits: float) -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{address(node)}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    shape("eth0", gigabits)


def shape(device: str, gigabits: float) -> None:
    """Limit what a device sends."""
    if gigabits:
        rate = f"{round(gigabits * 1e9)}bit"
        burst = str(max(LEAST, round(gigabits * 1e9 / 8 * FILLS)))
        run("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms")


def run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        said = " ".join(done.stdout.split())
        raise Wrong(f"`{' '.join(command)}` failed: {said or f'exit code {done.returncode}'}")


def inside(network: int, do: Callable[[], None]) -> None:
    """Do something in a namespace, in a process of its own. Wrong where it fails, as it has said."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            die_with_parent()
            enter(network)
            do()
            code = 0
        except (Wrong, OSError) as error:
            print(f"emulated: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise Wrong("a node could not be made")


def wrong(found: float, gigabits: float) -> bool:
    return bool(gigabits) and abs(found / gigabits - 1) > OFF


def best(networks: List[int], node: int, gigabits: float) -> float:
    """Gb/s from a node to the one before, at most, of some tries: something else may have taken the CPU."""
    found = 0.0
    for _ in range(TRIES):
        found = max(found, measured(networks[node], networks[node - 1], address((node - 1) % len(networks))))
        if not wrong(found, gigabits):
            break
    return found


def measured(sender: int, receiver: int, at: str) -> float:
    """Gb/s from one node to another."""
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            die_with_parent()
            enter(receiver)
            _receive(at, tell)
        finally:
            os._exit(0)
    os.close(tell)
    answers = os.fdopen(told)
    port = answers.readline()
    inside(sender, lambda: _send(at, int(port)))
    answer = answers.readline()
    os.waitpid(pid, 0)
    answers.close()
    if not answer:
        raise Wrong("nothing arrived over a link")
    return float(answer)


def _receive(at: str, tell: int) -> None:
    with socket.socket() as listener:
        listener.bind((at, 0))
        listener.listen(1)
        os.write(tell, f"{listener.getsockname()[1]}\n".encode())
        if not select.select([listener], [], [], 10)[0]:
            return
        connection, _ = listener.accept()
    began, counted, since = time.monotonic(), 0, 0.0
    with connection:
        while True:
            got = len(connection.recv(2**20))
            now = time.monotonic()
            if not got:
                break
            if since:
                counted, last = counted + got, now
            elif now - began > UNCOUNTED:
                since = last = now
    if since and last > since:
        os.write(tell, f"{8e-9 * counted / (last - since)}\n".encode())


def _send(at: str, port: int) -> None:
    block, until = bytes(2**17), time.monotonic() + SENT
    with socket.create_connection((at, port), timeout=10) as connection:
        while time.monotonic() < until:
            connection.sendall(block)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
