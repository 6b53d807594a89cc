"""What sshd is on other nodes, in the pods of a job: each runs commands for the first, which reaches them by it.

    python -m dlperf.launchers.pods serve              in each pod, until it is told to end
    python -m dlperf.launchers.pods wait COUNT         in the first, until so many have said where they are
    python -m dlperf.launchers.pods run COUNT WORD...  the command in each of so many, with the pod's number behind it
    python -m dlperf.launchers.pods end COUNT          tells them to end

DLPERF_PODS names a folder that all of them share. There each writes N.json: its address, its port, and a secret without
which it runs nothing. What a command prints is printed by `run`, whose exit code is that of the first that failed; a
connection that ends, for whatever reason, ends the command and all that it started. Standard library only.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlperf.launchers import keeper
from dlperf.launchers.api import Kept

PODS = "DLPERF_PODS"
#: seconds that a pod which was replaced has until it can be reached, and that others have once a command has failed
PATIENCE, GRACE = 60.0, 5.0
#: seconds between a command's being asked to end and its end
KILLED = 5.0
LENGTH = struct.Struct("!i")


def told(place: Path) -> dict[int, dict[str, Any]]:
    """What pods have written, by their numbers."""
    found = {}
    for path in place.glob("[0-9]*.json"):
        with suppress(OSError, ValueError):
            found[int(path.stem)] = json.loads(path.read_text(encoding="utf-8"))
    return dict(sorted(found.items()))


# In each pod


def serve(place: Path, index: int) -> int:
    """Run commands until told to end."""
    host = socket.gethostname()
    with socket.create_server((_address(host), 0)) as listening:
        address, port = listening.getsockname()[:2]
        secret = secrets.token_hex(16)
        _write(place, index, {"address": address, "port": port, "secret": secret, "host": host})
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
        threading.Thread(target=_accept, args=(listening, secret, ended), daemon=True).start()
        while not ended.wait(1.0):
            pass
    return 0


def _address(host: str) -> str:
    """A pod's own, which the kubelet writes into its /etc/hosts."""
    with suppress(OSError):
        return socket.gethostbyname(host)
    return "127.0.0.1"


def _write(place: Path, index: int, facts: Mapping[str, object]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    aside = place / f"{index}.writing"
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(facts, file)
    aside.replace(place / f"{index}.json")


def _accept(listening: socket.socket, secret: str, ended: threading.Event) -> None:
    with suppress(OSError):  # closed
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection, secret, ended), daemon=True).start()


def _answer(connection: socket.socket, secret: str, ended: threading.Event) -> None:
    with connection, suppress(OSError, ValueError, LookupError, TypeError):
        connection.settimeout(10.0)
        with connection.makefile("rb") as file:
            asked = json.loads(file.readline(2**20))
        if not hmac.compare_digest(str(asked["secret"]), secret):
            return
        connection.settimeout(None)
        if asked["command"]:
            _run(connection, asked["command"])
        else:
            ended.set()


def _run(connection: socket.socket, command: str) -> None:
    """Until the command ends, or the other side does."""
    _watched(connection)
    pipe, ours = os.pipe()
    words = [sys.executable, "-IS", keeper.__file__, str(pipe), str(KILLED), "sh", "-c", command]
    try:
        process = Kept(
            words, ours, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(pipe,)
        )
    finally:
        os.close(pipe)
    assert process.stdout is not None
    try:
        for printed in _printed(process, connection):
            connection.sendall(LENGTH.pack(len(printed)) + printed)
    finally:
        process.let_go()
        code = process.wait()
        process.stdout.close()
        process.end_orphans()
        connection.sendall(LENGTH.pack(0) + LENGTH.pack(code))


def _printed(process: Kept, connection: socket.socket) -> Iterator[bytes]:
    """What a command prints, until it ends or the other side does."""
    assert process.stdout is not None
    while True:
        ready = select.select([process.stdout, connection], [], [])[0]
        if connection in ready and not connection.recv(1):
            return
        if process.stdout in ready:
            printed = os.read(process.stdout.fileno(), 2**16)
            if not printed:
                return
            yield printed


def _watched(connection: socket.socket) -> None:
    """Have a node that is gone noticed within half a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


# In the first one


def wait(place: Path, count: int) -> int:
    """Until so many pods are there."""
    said = False
    while missing := sorted(set(range(count)) - set(told(place))):
        if not said:
            print(f"Waiting for pods {', '.join(map(str, missing))} of {count}", flush=True)
            said = True
        time.sleep(0.5)
    return 0


class Commands:
    """A command in several pods at once."""

    def __init__(self, place: Path, count: int, words: Sequence[str]):
        self.place, self.count, self.words = place, count, words
        self.codes: list[int] = []
        self.connections: list[socket.socket] = []
        self.first_failed = threading.Event()

    def run(self) -> int:
        """The exit code of the first that failed. On SIGTERM all are ended, and it is 143."""
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
        threads = [threading.Thread(target=self._one, args=(index,), daemon=True) for index in range(self.count)]
        for thread in threads:
            thread.start()
        deadline = 0.0
        while any(thread.is_alive() for thread in threads):
            if stopped.wait(0.05) or (deadline and time.monotonic() > deadline):
                self._end()
                for thread in threads:
                    thread.join(KILLED + 2)
                break
            if self.first_failed.is_set() and not deadline:
                deadline = time.monotonic() + GRACE
        return 143 if stopped.is_set() else next(filter(None, self.codes), 0)

    def _end(self) -> None:
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def _one(self, index: int) -> None:
        code = 255
        try:
            with _connected(self.place, index) as connection:
                self.connections.append(connection)
                hosts = ",".join(one["address"] for one in list(told(self.place).values())[: self.count])
                command = f"DLPERF_HOSTS={hosts} {shlex.join([*self.words, str(index)])}"
                _ask(connection, self.place, index, command)
                code = _passed_on(connection)
        except OSError as error:
            host = told(self.place).get(index, {}).get("host", "a node that was never there")
            print(f"pod {index} on {host} was lost: {error.strerror or error}", file=sys.stderr, flush=True)
        self.codes.append(code)
        if code:
            self.first_failed.set()


def _connected(place: Path, index: int) -> socket.socket:
    """A pod that was replaced says anew where it is."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            one = told(place)[index]
            connection = socket.create_connection((one["address"], one["port"]), timeout=5.0)
        except (OSError, LookupError) as error:
            if time.monotonic() > deadline:
                raise OSError(f"it cannot be reached ({error})") from None
            time.sleep(0.5)
        else:
            connection.settimeout(None)
            _watched(connection)
            return connection


def _ask(connection: socket.socket, place: Path, index: int, command: str) -> None:
    asked = {"secret": told(place)[index]["secret"], "command": command}
    connection.sendall(json.dumps(asked).encode() + b"\n")


def _passed_on(connection: socket.socket) -> int:
    """Print what comes. The command's exit code; OSError where the connection ends without one."""
    while length := LENGTH.unpack(_exactly(connection, LENGTH.size))[0]:
        sys.stderr.buffer.write(_exactly(connection, length))
        sys.stderr.buffer.flush()
    code: int = LENGTH.unpack(_exactly(connection, LENGTH.size))[0]
    return code if code >= 0 else 128 - code


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        more = connection.recv(length - len(found))
        if not more:
            raise OSError("its connection ended")
        found += more
    return found


def end(place: Path, count: int) -> int:
    """Tell all to end; one that is gone has."""
    for index in range(count):
        with suppress(OSError, LookupError), socket.create_connection(_where(place, index), timeout=5.0) as connection:
            _ask(connection, place, index, "")
    return 0


def _where(place: Path, index: int) -> tuple[str, int]:
    one = told(place)[index]
    return one["address"], one["port"]


def main(argv: Sequence[str]) -> int:
    if PODS not in os.environ:
        print(f"{PODS} is not set: this runs in the pods of a job that holds a comparison", file=sys.stderr)
        return 2
    place, verb = Path(os.environ[PODS]), argv[0]
    if verb == "serve":
        return serve(place, int(os.environ.get("JOB_COMPLETION_INDEX", "0")))
    if verb == "run":
        return Commands(place, int(argv[1]), argv[2:]).run()
    return {"wait": wait, "end": end}[verb](place, int(argv[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
