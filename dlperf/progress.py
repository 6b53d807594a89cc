"""What a person sees while a comparison runs: a live line on a terminal, plain lines elsewhere, nothing if quiet."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dlperf import events, metrics
from dlperf.schema import Job, Record

if TYPE_CHECKING:
    from rich.live import Live


class Progress:
    """Says nothing: --quiet, and the base of the two others."""

    def __init__(self) -> None:
        self._total = self._ended = 0
        self._waiting: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._job: Job | None = None
        self._began = 0.0

    def begin(self, jobs: Sequence[Job]) -> None:
        """One run of each of these is to be done, the same job several times."""
        self._total = len(jobs)
        self._waiting = Counter(job.id for job in jobs)

    def note(self, line: str) -> None:
        """Something worth a line: an environment is being made, a warning."""

    def started(self, job: Job, repeat: int) -> None:
        self._job, self._began = job, time.monotonic()
        self._started(job, repeat)

    def _started(self, job: Job, repeat: int) -> None:
        pass

    def tick(self, folder: Path) -> None:
        """Once a second while a run is at work; `folder` has its events."""

    def passed(self, job: Job) -> None:
        """A run that will not be tried."""
        self._ended += 1
        self._waiting[job.id] -= 1

    def finished(self, record: Record) -> None:
        self._ended += 1
        self._waiting[record.job.id] -= 1
        self._job = None
        if record.seconds:
            self._seconds.setdefault(record.job.id, []).append(record.seconds)
        self._finished(record)

    def _finished(self, record: Record) -> None:
        pass

    def close(self) -> None:
        pass

    def left(self) -> str:
        """The time left: a job's runs take what its runs took so far, or the mean of all; empty before the first."""
        known = {job: fmean(seconds) for job, seconds in self._seconds.items()}
        if not known or self._ended >= self._total:
            return ""
        other = fmean(known.values())
        elapsed = time.monotonic() - self._began if self._job else 0.0
        expected = sum(count * known.get(job, other) for job, count in self._waiting.items())
        minutes, seconds = divmod(round(max(0.0, expected - elapsed)), 60)
        return f"about {minutes} min {seconds:02} s left" if minutes else f"about {seconds} s left"

    def outcome(self, record: Record) -> str:
        """ "bert_base amp pytorch, run 1: 9.87 sentences/s"."""
        where = f"{record.job.model} {record.job.precision_asked} {record.job.system}, run {record.repeat + 1}"
        if record.failure:
            return f"{where}: {record.failure.kind}: {record.failure.message}"
        return f"{where}: {metrics.throughput(record):.4g} {_unit(record.job)}"


class Lines(Progress):
    """One plain line for each thing that happens."""

    def note(self, line: str) -> None:
        print(line, flush=True)

    def _finished(self, record: Record) -> None:
        left = self.left()
        tail = f"; {left}" if left else ""
        self.note(f"[{self._ended}/{self._total}] {self.outcome(record)}{tail}")


class Display(Progress):
    """A live line below the finished ones (rich)."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._text: Any = Text
        self._console = Console()
        # Redrawn when told to, once a second, so that no thread works while a worker measures.
        self._live: Live = Live(Text(""), console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def note(self, line: str) -> None:
        self._console.print(self._text(line))

    def _started(self, job: Job, repeat: int) -> None:
        self._where = f"{job.model} {job.precision_asked} {job.system}, run {repeat + 1}"
        self._show("starting")

    def tick(self, folder: Path) -> None:
        stream = events.read(folder / "events.rank0.jsonl")
        samples, seconds = sum(w.samples for w in stream.windows), sum(w.seconds for w in stream.windows)
        if stream.windows and self._job:
            self._show(f"{samples / seconds:.4g} {_unit(self._job)}")
        else:
            self._show("warming up" if stream.built else "starting")

    def _show(self, what: str) -> None:
        elapsed = time.monotonic() - self._began
        parts = [f"[{self._ended + 1}/{self._total}]", self._where + ":", what, f"({elapsed:.0f} s)", self.left()]
        self._live.update(self._text(" ".join(parts).strip()), refresh=True)

    def _finished(self, record: Record) -> None:
        self.note(f"[{self._ended}/{self._total}] {self.outcome(record)}")
        self._live.update(self._text(self.left()), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _unit(job: Job) -> str:
    from dlperf import models

    return str(models.FAMILIES[job.family].RATE_UNIT)


def choose(quiet: bool) -> Progress:
    if quiet:
        return Progress()
    return Display() if sys.stdout.isatty() else Lines()
