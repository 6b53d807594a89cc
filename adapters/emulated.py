"""Starts ranks on nodes that it emulates:

    python -m dlperf.adapters.emulated NODES GIGABITS MILLISECONDS COUNT[+SERVERS] COMMAND...

It runs in a network namespace of its own, which is the switch, with the right to make more. Each node is a namespace
with one link to the switch, whose both ends are shaped to GIGABITS Gb/s (0: not at all) by a token bucket; netem holds
back what a node sends for MILLISECONDS (0: not at all). Ranks share everything else. Before they start, each node sends
to the next for a moment, and what arrives must be what was asked for: DLPERF_LINK and DLPERF_LATENCY tell the ranks how
much it was, in Gb/s and in milliseconds. Standard library only, and iproute2's `ip` and `tc`.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from statistics import median
from typing import Callable, List

from dlperf.adapters.spawn import CLONE_NEWNET, Node, die_with_parent, enter, start

NETWORK = "10.77.0"
#: seconds for which a node sends before what arrives is counted, since a connection begins slowly; and afterwards
UNCOUNTED, COUNTED = 0.2, 0.4
#: of the bandwidth that was asked for, by how much less or more a link may have
OFF, TRIES = 0.1, 3
#: ms that a message takes without netem, and a process to wake up, at most; and how often it is sent
WAKES, PINGS = 0.1, 9
#: packets of 64 KiB that netem holds back at most: what 10 Gb/s send in 5 s
HELD = 100_000
#: seconds for which a bucket fills at most, and its bytes at least: small enough to leave no mark on what is measured,
#: and several packets of 64 KiB, as virtual links have them
FILLS, LEAST = 0.001, 250_000


class Wrong(Exception):
    """The nodes could not be made, or their links are not what was asked for."""


def main(argv: List[str]) -> int:
    die_with_parent()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    count, gigabits, ms = int(argv[0]), float(argv[1]), float(argv[2])
    try:
        networks = made(count, gigabits, ms)
        found = min(best(networks, node, gigabits, ms) for node in range(count))
        if wrong(found, gigabits):
            raise Wrong(
                f"a link gives {found:.3g} Gb/s where {gigabits:g} were asked for; this machine may be too busy"
                + (f", or TCP's buffers too small for {ms:g} ms" if ms else "")
            )
        late = max(measured(networks, node, ping, echo) for node in range(count))
        if ms and abs(late - ms) > OFF * ms + WAKES:
            raise Wrong(f"a message takes {late:.3g} ms where {ms:g} were asked for; this machine may be too busy")
    except (Wrong, OSError) as error:
        print(f"emulated: {error}", file=sys.stderr, flush=True)
        return 1
    hosts = ",".join(map(address, range(count)))
    os.environ.update(DLPERF_HOSTS=hosts, DLPERF_LINK=f"{found:.6g}", DLPERF_LATENCY=f"{late:.4g}")
    return start([Node(node, count, network) for node, network in enumerate(networks)], argv[3], argv[4:])


def address(node: int) -> str:
    return f"{NETWORK}.{node + 1}"


def made(count: int, gigabits: float, ms: float) -> List[int]:
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
        shape(f"link{node}", "root", gigabits)
        inside(network, lambda node=node: _set_up(node, gigabits, ms))  # type: ignore[misc]
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


def _set_up(node: int, gigabits: float, ms: float) -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{address(node)}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    if ms:
        delay = f"{ms:g}ms"
        try:
            run(
                "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "netem", "delay", delay, "limit", str(HELD)
            )
        except Wrong as error:
            raise Wrong(f"{error}. A latency needs the kernel's sch_netem") from error
    shape("eth0", "parent 1:1" if ms else "root", gigabits)


def shape(device: str, place: str, gigabits: float) -> None:
    """Limit what a device sends. place: of the bucket, among what the device's packets pass."""
    if gigabits:
        rate = f"{round(gigabits * 1e9)}bit"
        burst = str(max(LEAST, round(gigabits * 1e9 / 8 * FILLS)))
        run("tc", "qdisc", "add", "dev", device, *place.split(), "tbf", "rate", rate, "burst", burst, "latency", "50ms")


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


def best(networks: List[int], node: int, gigabits: float, ms: float) -> float:
    """Gb/s from a node to the one before, at most, of some tries: something else may have taken the CPU."""
    begins = UNCOUNTED + 0.02 * ms  # some round trips
    found = 0.0
    for _ in range(TRIES):
        rate = measured(networks, node, lambda one: receive(one, begins), lambda one: send(one, begins + COUNTED))
        found = max(found, rate)
        if not wrong(found, gigabits):
            break
    return found


def measured(
    networks: List[int], node: int, hear: Callable[[socket.socket], float], say: Callable[[socket.socket], None]
) -> float:
    """What `hear` finds of a connection from a node, which does `say` there, to the one before."""
    there, here, at = networks[node], networks[node - 1], address((node - 1) % len(networks))
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            die_with_parent()
            enter(here)
            _listen(at, tell, hear)
        finally:
            os._exit(0)
    os.close(tell)
    answers = os.fdopen(told)
    port = answers.readline()
    inside(there, lambda: _connect(at, int(port), say))
    answer = answers.readline()
    os.waitpid(pid, 0)
    answers.close()
    if not answer:
        raise Wrong("nothing arrived over a link")
    return float(answer)


def _listen(at: str, tell: int, hear: Callable[[socket.socket], float]) -> None:
    with socket.socket() as listener:
        listener.bind((at, 0))
        listener.listen(1)
        os.write(tell, f"{listener.getsockname()[1]}\n".encode())
        if not select.select([listener], [], [], 10)[0]:
            return
        connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = hear(connection)
    if found > 0:
        os.write(tell, f"{found}\n".encode())


def _connect(at: str, port: int, say: Callable[[socket.socket], None]) -> None:
    with socket.create_connection((at, port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        say(connection)


def receive(connection: socket.socket, begins: float) -> float:
    """Gb/s, after that many seconds."""
    began, counted, since, last = time.monotonic(), 0, 0.0, 0.0
    while True:
        got = len(connection.recv(2**20))
        now = time.monotonic()
        if not got:
            return 8e-9 * counted / (last - since) if last > since else 0.0
        if since:
            counted, last = counted + got, now
        elif now - began > begins:
            since = last = now


def send(connection: socket.socket, seconds: float) -> None:
    block, until = bytes(2**17), time.monotonic() + seconds
    while time.monotonic() < until:
        connection.sendall(block)


def ping(connection: socket.socket) -> float:
    """Milliseconds that a byte takes one way, as half of its way there and back, in the middle of several."""
    found = []
    for _ in range(PINGS):
        began = time.monotonic()
        connection.sendall(b".")
        connection.recv(1)
        found.append(500 * (time.monotonic() - began))
    return median(found)


def echo(connection: socket.socket) -> None:
    while connection.recv(1):
        connection.sendall(b".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
