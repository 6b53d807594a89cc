"""The processes that make environments: they are never silent, and end together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlperf import cache
from dlperf.envs import indexes
from dlperf.envs.environment import Note, silent
from dlperf.envs.explain import gigabytes
from dlperf.envs.indexes import Sources
from dlperf.envs.target import Target

#: seconds without a word after which a line says that work goes on
BEAT_SECONDS = 20.0


def wait_for_other(target: Target, session: Session) -> Callable[[], None]:
    started, said = time.monotonic(), float("-inf")

    def busy() -> None:
        nonlocal said
        if time.monotonic() - said >= BEAT_SECONDS:
            since = f": {time.monotonic() - started:.0f} s" if said > 0 else ""
            session.say(f"{target.label}: waiting for another process that makes it{since}")
            said = time.monotonic()
        session.check()
        time.sleep(0.1)

    return busy


class Session:
    """What the threads of one call share: whom they tell, where packages come from, and their child processes, which
    end together."""

    def __init__(self, progress: Note) -> None:
        self._progress = progress
        self._turn, self._looking, self._lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._sources: Sources | None = None
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def say(self, line: str) -> None:
        with self._turn:
            self._progress(line)

    def sources(self) -> Sources:
        """Found out once, for it may take seconds."""
        with self._looking:
            self._sources = self._sources or indexes.read(self.say, str(cache.folder() / "uv"))
            return self._sources

    def check(self) -> None:
        """Raise in a thread that must go no further."""
        if self._ended:
            raise KeyboardInterrupt

    @contextmanager
    def start(self, command: Sequence[str], environ: Mapping[str, str], held: int) -> Iterator[subprocess.Popen[str]]:
        with self._lock:
            self.check()
            process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # so that Ctrl-C reaches us alone, and that we can end its children too
                pass_fds=[held],
            )
            self._running.add(process)
        try:
            yield process
        except BaseException:
            end(process)
            raise
        finally:
            self._running.discard(process)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            running = list(self._running)
        for process in running:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    """End a process and its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)


@dataclass
class Making:
    """One environment, or the folder of its wheels, being made by the holder of its lock `held`.

    step: what is being done; said: when a line was last said of it.
    """

    target: Target
    held: int
    session: Session
    step: str = "looking for a Python"
    said: float = field(default_factory=time.monotonic)

    def say(self, line: str) -> None:
        self.said = time.monotonic()
        self.session.say(f"{self.target.label}: {line}")

    def begin(self, step: str) -> None:
        self.step = step
        self.say(step)

    def run(self, command: Sequence[str], environ: Mapping[str, str], each: Note = silent) -> tuple[int, list[str]]:
        """Run a command that writes to the environment; its exit status and lines. It ends when we are interrupted."""
        lines: list[str] = []
        with self.session.start(command, environ, self.held) as process, self._never_silent(process):
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                each(lines[-1])
            code = process.wait()
        self.session.check()
        return code, lines

    @contextmanager
    def _never_silent(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Say every now and then how long a command has run, and what it has written."""
        over, started = threading.Event(), time.monotonic()

        def beat() -> None:
            while not over.wait(max(0.01, self.said + BEAT_SECONDS - time.monotonic())):
                if time.monotonic() - self.said >= BEAT_SECONDS:
                    self.say(f"{self.step}: {time.monotonic() - started:.0f} s{_written(process.pid)}")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _written(pid: int) -> str:
    """ ", 612 MB written", what a process and those of its children that ended wrote; nothing where that is unknown or
    less than a megabyte."""
    with suppress(OSError):
        found = re.search(r"^wchar: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
        return f", {gigabytes(int(found[1]))} written" if found and int(found[1]) >= 1e6 else ""
    return ""
