"""One run: a script is executed in a folder of its own, and what it tells is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlperf.launchers import Launcher
from dlperf.runs import execute
from dlperf.runs.events import Stream
from dlperf.runs.execute import Ended
from dlperf.schema import Failure


@dataclass(frozen=True)
class Outcome:
    """What came of a run. started: as ISO 8601 has it, in UTC. seconds: until all its processes had ended."""

    started: str
    seconds: float
    stream: Stream
    failure: Failure | None


def run(
    folder: Path,
    request: Mapping[str, object],
    script: str,
    read: Callable[[], Stream],
    failure: Callable[[Ended, Stream, Path, Launcher], Failure | None],
    timeout: float,
    tick: Callable[[], None],
    launcher: Launcher,
    engine: str = "",
) -> Outcome:
    """Execute a script in a new folder, and read what it left there.

    request: the content of job.json. tick: called once a second; it may raise execute.Enough. engine: of the containers
    in which it runs, if it does.
    """
    execute.prepare(folder, request, script)
    started, began = now(), time.monotonic()
    ended = execute.execute(folder, timeout, tick, launcher, engine)
    seconds = time.monotonic() - began
    stream = read()
    return Outcome(started, seconds, stream, failure(ended, stream, folder, launcher))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
