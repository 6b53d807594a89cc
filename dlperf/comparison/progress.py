"""What a person sees while a comparison runs: a live line on a terminal, plain lines elsewhere, nothing if quiet.

Without a terminal a line comes at least every EVERY seconds, whatever is at work, so that nobody takes it for dead.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from dlperf.errors import clean
from dlperf.figures import rates
from dlperf.planning.spec import Protocol, Spec
from dlperf.runs import events
from dlperf.runs.events import Stream
from dlperf.schema import Job, Record
from dlperf.words import count, duration

if TYPE_CHECKING:
    from rich.live import Live

#: seconds without a line after which there is one, at the latest
EVERY = 30.0
#: seconds from call to call of `tick` and `busy`
TICK = 1.0
#: seconds between two looks at a run's events, where no terminal shows them
LOOK = 10.0
#: a run that takes more than this many times its share is told
SLOW = 5.0
#: but not one of less than this many seconds: nobody stops a comparison for it
SHORT = 60.0


@dataclass(frozen=True)
class Position:
    """How far a run is, `now` by the clock that its events have.

    stage: in words. pace: seconds a step takes; None until a step that did not compile tells. left: seconds that its
    steps still take. at_least: of the whole run, what it takes at the least; None as long as the first step may just
    have compiled, see `position`. compiling: seconds that the first step took longer than the others do.
    """

    stage: str
    pace: float | None = None
    left: float | None = None
    at_least: float | None = None
    compiling: float = 0.0


def position(stream: Stream, protocol: Protocol, began: float, now: float) -> Position:
    """What the events of a run tell, `began` when it was started.

    The first step compiles (JAX and TensorFlow: 10 to 60 s where a step takes 2), so that it tells nothing of the
    others, but that they hardly take longer. What comes next tells: the second step, or where the warm-up has one step
    only the first window. That has ended, or it lasts already half as long, for each step, as the first step did: then
    less than half of the first was compiling, and the time since is what a step takes at the least. Several ranks probe
    their network between the two, so of them only what has ended tells.
    """
    protocol = _made(stream, protocol)
    steps, total = _done(stream, protocol), max(protocol.warmup_steps, 1) + protocol.windows * protocol.steps_per_window
    since, elapsed = max(0.0, now - stream.written), max(0.0, now - began)
    if not steps:
        what = "in its first step, which may compile" if stream.built else "importing and building"
        return Position(what if stream.start else "starting")
    coming, pace, first = _coming(stream, protocol, steps), _pace(stream), stream.first_step or 0.0
    if pace is None:
        least = since / max(coming, 1)
        open_ = least < first / 2 or stream.start.get("world_size", 1) > 1
        whole = None if open_ else elapsed - since + (total - steps) * least
        return Position(_stage(stream, protocol, steps, total, 0), at_least=whole, compiling=max(0.0, first - least))
    left = max(0.0, (total - steps) * pace - min(since, coming * pace))
    begun = min(int(since / pace), coming - 1) if coming and pace else 0
    stage = _stage(stream, protocol, steps, total, begun)
    return Position(stage, pace, left, elapsed + left, max(0.0, first - pace))


def _made(stream: Stream, protocol: Protocol) -> Protocol:
    """The protocol with the steps that the worker chose, where it warms up by time."""
    told = stream.warm or {}
    steps = {"warmup_steps": told.get("steps"), "steps_per_window": told.get("steps_per_window")}
    return replace(protocol, **{name: count for name, count in steps.items() if count})


def _done(stream: Stream, protocol: Protocol) -> int:
    """Steps that have ended, as far as events tell."""
    if stream.warm:
        return max(protocol.warmup_steps, 1) + sum(window.steps for window in stream.windows)
    return 2 if stream.second_step is not None else 1 if stream.first_step is not None else 0


def _coming(stream: Stream, protocol: Protocol, steps: int) -> int:
    """Steps until the next event; 0 after the last."""
    if not stream.warm:
        return 1 if steps == 1 and protocol.warmup_steps > 1 else max(protocol.warmup_steps, 1) - steps
    return protocol.steps_per_window if len(stream.windows) < protocol.windows else 0


def _pace(stream: Stream) -> float | None:
    """Of the windows, or before the first of them of the second step."""
    if stream.windows:
        return sum(window.seconds for window in stream.windows) / max(1, sum(window.steps for window in stream.windows))
    return stream.second_step


def _stage(stream: Stream, protocol: Protocol, steps: int, total: int, begun: int) -> str:
    """Where it is: only the ends of windows and the first two steps are known, what lies between is "about"."""
    if len(stream.windows) >= protocol.windows:
        return "ending"
    about = "about " if begun else ""
    place = f"window {len(stream.windows) + 1} of {protocol.windows}" if stream.warm else "warming up"
    return f"{place}, {about}step {min(steps + begun + 1, total)} of {total}"


class Progress:
    """Says nothing: --quiet, and the base of the two others. clock: as time.time, by which events are written."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._total = self._ended = 0
        self._jobs: dict[str, Job] = {}
        self._spec: Spec | None = None
        self._expected: Mapping[str, float] = {}
        self._waiting: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._job: Job | None = None
        self._where = ""
        self._began = 0.0
        self._position = Position("starting")
        self._told: set[str] = set()

    def begin(self, jobs: Sequence[Job], spec: Spec | None = None, expected: Mapping[str, float] | None = None) -> None:
        """One run of each of these is to be done, the same job several times. expected: seconds of a run by job id,
        see dlperf.comparison.estimate; empty where nobody can tell."""
        self._total = len(jobs)
        self._jobs = {job.id: job for job in jobs}
        self._spec, self._expected = spec, expected or {}
        self._waiting = Counter(job.id for job in jobs)

    def note(self, line: str) -> None:
        """Something worth a line: an environment is being made, a warning."""

    def busy(self, what: Callable[[], str]) -> None:
        """Once a second, from one thread at a time, while something other than a run is at work: `what` says what."""

    def started(self, job: Job, repeat: int) -> None:
        self._job, self._began = job, self._clock()
        self._where = f"{job.model} {job.precision_asked} {job.system}, run {repeat + 1}"
        self._position = Position("starting")
        self._started()

    def _started(self) -> None:
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
        # a crash tells nothing of how long the others take
        if record.seconds and (record.failure is None or record.failure.kind == "timeout"):
            self._seconds.setdefault(record.job.id, []).append(record.seconds)
        self._finished(record)

    def _finished(self, record: Record) -> None:
        pass

    def close(self) -> None:
        pass

    def _look(self, folder: Path) -> str:
        """Read where the run is. Says so if it is slow, once a row. Returns its rate so far; empty if nobody knows."""
        assert self._job is not None
        if not self._job.traits.worker or self._spec is None:  # a script that is not ours has a log of its own
            self._position = Position("its script is running")
            return ""
        stream = events.read(folder / "events.rank0.jsonl")
        self._position = position(stream, self._spec.protocol, self._began, self._clock())
        slow = "" if self._job.id in self._told else self._slow(self._job, stream)
        if slow:
            self._told.add(self._job.id)
            self.note(slow)
        pace = self._position.pace
        samples = self._job.global_batch_size * rates.units(self._job, ())
        return f"{rates.shown(samples / pace)} {_unit(self._job)}" if pace else ""

    def share(self, job: Job) -> float | None:
        """Seconds that a run of a row should take: what the plan expects, times what the other rows took over that
        (the median, or once, if they were faster); or the median of what other rows of this model and precision took.
        Whichever is more, so that neither a wrong estimate, nor a busy machine, nor one fast row is the bar."""
        others = {id_: seconds for id_, seconds in self._seconds.items() if id_ != job.id}
        over = [fmean(seconds) / self._expected[id_] for id_, seconds in others.items() if id_ in self._expected]
        like = [each for id_, seconds in others.items() if _kind(self._jobs[id_]) == _kind(job) for each in seconds]
        known = [max(1.0, median(over or [1.0])) * self._expected[job.id]] if job.id in self._expected else []
        return max([*known, *([median(like)] if like else [])], default=None)

    def _slow(self, job: Job, stream: Stream) -> str:
        """What to know of a run that will take more than SLOW times its share, without what its first step compiled,
        and what to do; empty for others."""
        share, most = self.share(job), self._position.at_least
        if not share or not most or self._spec is None:
            return ""
        if most - self._position.compiling <= max(SLOW * share, SHORT):
            return ""
        protocol = self._spec.protocol
        steps = max(protocol.warmup_steps, 1) + protocol.windows * protocol.steps_per_window
        about = "about" if self._position.pace else "at least"
        first = stream.first_step or 0.0
        took = duration(first) if first >= 1 else f"{first:.1g} s"
        line = f"{job.model} {job.precision_asked} {job.system}: the first step took {took}; a run of "
        line += f"{count(steps, 'step')} will take {about} {duration(most)}, {most / share:.0f} times its share."
        if most > self._spec.timeout:
            line += f" It will not end within --timeout {self._spec.timeout:g}."
        return " ".join([line, *self._ways_out(job, protocol)])

    def _ways_out(self, job: Job, protocol: Protocol) -> list[str]:
        others = list(dict.fromkeys(one.adapter for one in self._jobs.values() if one.adapter != job.adapter))
        short = (1, 1, 1)
        ways = [f"to go on without it: --frameworks {','.join(others)}"] if others else []
        if (protocol.warmup_steps, protocol.windows, protocol.steps_per_window) != short:
            ways.append("shorter: --warmup-steps 1 --windows 1 --steps-per-window 1")
        text = "; ".join([*ways, "or set --timeout"] if ways else ["set --timeout"])
        return [text[0].upper() + text[1:] + "."]

    def left(self) -> str:
        """The time left. A job's runs take what its runs took so far, or what this one will; those of a job without a
        run what the plan expects, times what the others took together over what it expected of them, or where it
        expects nothing, their mean: rows come in random order, and a median forgets the slow ones. Empty where nothing
        is known."""
        known = {job: fmean(seconds) for job, seconds in self._seconds.items()}
        elapsed = self._clock() - self._began if self._job else 0.0
        whole = None
        if self._job and self._position.left is not None:
            whole = elapsed + self._position.left
            if not self._expected:
                known.setdefault(self._job.id, whole)
        if (not known and not self._expected) or self._ended >= self._total:
            return ""
        plan = {job: self._expected.get(job, 1.0) for job in self._waiting}
        scale = sum(known.values()) / sum(plan[job] for job in known) if known else 1.0
        each = {job: scale * seconds for job, seconds in plan.items()} | known
        expected = sum(count * each[job] for job, count in self._waiting.items())
        longer = False  # than anyone thought, so nobody knows when this run will end
        if self._job:
            this = each[self._job.id]
            longer = whole is None and elapsed > this
            expected += max(0.0, (whole or this) - elapsed) - this
        if longer:
            return f"more than {duration(expected)} left" if expected > 0 else ""
        return f"about {duration(max(0.0, expected))} left"

    def _line(self, rate: str) -> str:
        """ "[2/12] bert_base amp jax, run 1: window 1 of 3, step 3 of 8; 3.1 sentences/s; 40 s so far; about ..."."""
        elapsed = f"{duration(self._clock() - self._began)} so far"
        parts = [f"{self._where}: {self._position.stage}", rate, elapsed, self.left()]
        return f"[{self._ended + 1}/{self._total}] " + "; ".join(filter(None, parts))

    def outcome(self, record: Record) -> str:
        """ "bert_base amp pytorch, run 1: 9.87 sentences/s"."""
        where = f"{record.job.model} {record.job.precision_asked} {record.job.system}, run {record.repeat + 1}"
        if record.failure:
            return f"{where}: {record.failure.kind}: {record.failure.message}"
        return f"{where}: {rates.shown(rates.throughput(record))} {_unit(record.job)}"


class Lines(Progress):
    """One plain line for each thing that happens, and one every EVERY seconds in which nothing does."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._printed = self._looked = clock()

    def note(self, line: str) -> None:
        self._printed = self._clock()
        print(clean(line), flush=True)

    def _due(self) -> bool:
        return self._clock() - self._printed >= EVERY - TICK

    def busy(self, what: Callable[[], str]) -> None:
        if self._due():
            self.note(what())

    def _started(self) -> None:
        self._looked = self._clock()

    def tick(self, folder: Path) -> None:
        if self._clock() - self._looked < LOOK and not self._due():
            return
        self._looked = self._clock()
        rate = self._look(folder)
        if self._due():
            self.note(self._line(rate))

    def _finished(self, record: Record) -> None:
        left = self.left()
        tail = f"; {left}" if left else ""
        self.note(f"[{self._ended}/{self._total}] {self.outcome(record)}{tail}")


class Display(Progress):
    """A live line below the finished ones (rich)."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._text: Any = Text
        self._console = Console()
        # Redrawn when told to, once a second, so that no thread works while a worker measures.
        self._live: Live = Live(Text(""), console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._drawn = 0.0

    def note(self, line: str) -> None:
        self._console.print(self._text(clean(line)))

    def _draw(self, line: str) -> None:
        self._drawn = self._clock()
        self._live.update(self._text(line), refresh=True)

    def busy(self, what: Callable[[], str]) -> None:
        if self._clock() - self._drawn >= TICK:
            self._draw(what())

    def _started(self) -> None:
        self._draw(self._line(""))

    def tick(self, folder: Path) -> None:
        rate = self._look(folder)
        self._draw(self._line(rate))

    def _finished(self, record: Record) -> None:
        self.note(f"[{self._ended}/{self._total}] {self.outcome(record)}")
        self._draw(self.left())

    def close(self) -> None:
        self._live.stop()


def _kind(job: Job) -> tuple[str, str, int]:
    return job.model, job.precision, job.world_size


def _unit(job: Job) -> str:
    from dlperf import models

    return models.FAMILIES[job.family].RATE_UNIT


def choose(quiet: bool) -> Progress:
    if quiet:
        return Progress()
    return Display() if sys.stdout.isatty() else Lines()
