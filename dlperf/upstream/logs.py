"""Training scripts that are not ours: the figures in what they print, or printed elsewhere.

What a script prints becomes windows like those of our own workers: all samples over all seconds, after the warm-up that
the protocol asks for, whatever the script averages itself.

A log is read as marks: that so many steps were complete at a moment. Where lines have timestamps, the moments are
theirs; else they add up from the seconds, or from samples over the rate, that each line gives for the steps since the
line before. A window goes from mark to mark. Steps that dynamic loss scaling skips are time without a step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from dlperf.catalog.script import Log, Script
from dlperf.figures.rates import units
from dlperf.planning.scripts import declared
from dlperf.planning.spec import Protocol
from dlperf.runs import failures
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.schema import Failure, Job, Window
from dlperf.upstream.commands import Steps, steps

LOG = "stdout.log"
#: what a tag before a line, as mpirun and horovodrun write it, says of the rank; another's words may stand before it
TAG = re.compile(r"\[(?:\d+,)?(?P<rank>\d+)\]<std(?:out|err)>:")
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|\bOOM\b|RESOURCE_EXHAUSTED|ResourceExhausted|cudaMalloc failed")


class LogLine(NamedTuple):
    """What one line of a log says. step: how many are complete. time: its timestamp, or seconds since the last one.
    samples: that a step had, over all devices; None where the line tells none."""

    number: int
    rank: str
    step: int
    time: float
    loss: float | None
    samples: float | None = None


class Mark(NamedTuple):
    """`steps` were complete at `clock`, says line `line`; what leads to it begins at line `since`. samples: of all
    steps that lines told until then."""

    steps: int
    clock: float
    line: int
    since: int
    loss: float | None
    samples: float = 0.0


#: bytes that are read at once, and of a line that has no carriage return; lines with figures of which more are read
LONG, MOST = 2**20, 500_000
EPOCH, SECOND = datetime(1970, 1, 1), timedelta(seconds=1)
#: a step or a moment beyond it is what another rank wrote into the middle of
BEYOND = 1e15


def lines(path: Path, log: Log, job: Job) -> Iterator[LogLine]:
    """The lines with figures, those between carriage returns too. One that is cut off at the end is left out."""
    for number, line in pieces(path):
        text = line.decode("utf-8", "replace").replace("\r", " ")
        for found in log.line.finditer(text):
            try:
                yield of_groups(number, rank(text, found.start()), found.groupdict(), log, job)
            except (ValueError, OverflowError, ZeroDivisionError):
                continue  # another rank wrote into the middle of it


def rank(text: str, end: int) -> str:
    """Which rank the last tag before `end` tells; empty without one."""
    told = [tag["rank"] for tag in TAG.finditer(text, 0, end)] if "]<std" in text else []
    return told[-1] if told else ""


def pieces(path: Path, needles: Sequence[bytes] = (b"",)) -> Iterator[tuple[int, bytes]]:
    """The number of each whole line and its bytes, in pieces that end at a carriage return where it is very long. One
    that has none of these either is no line of figures, and is left out: a part of a number is another number. Lines
    far from any of the needles may be left out too."""
    number, rest, skipped = 1, b"", False
    with suppress(OSError), open(path, "rb") as file:
        while block := file.read(LONG):
            text = rest + block
            if (end := text.rfind(b"\n") + 1) and not any(text.find(one, 0, end) >= 0 for one in needles):
                number, rest, skipped = number + text.count(b"\n"), text[end:], False
                continue
            *whole, rest = text.split(b"\n")
            for line in whole:
                if not skipped:
                    yield number, line
                number, skipped = number + 1, False
            if len(rest) > LONG and not skipped:
                told, mark, rest = rest.rpartition(b"\r")
                skipped = not mark
                if mark:
                    yield number, told
            rest = b"" if skipped else rest


def of_groups(number: int, rank: str, groups: Mapping[str, str], log: Log, job: Job) -> LogLine:
    """What a line's groups tell. ValueError, OverflowError or ZeroDivisionError where its numbers are none."""
    loss = float(groups["loss"]) if groups.get("loss") else None
    step, time = int(groups["step"]) - log.first + 1, _time(groups, log, job)
    samples = float(groups["samples"]) if "samples" in groups else None
    if not (abs(step) < BEYOND and abs(time) < BEYOND and 0 <= (samples or 0) < BEYOND):
        raise ValueError(f"step {step} of {samples} at {time}")
    return LogLine(number, rank, step, time, loss, samples)


def _time(groups: Mapping[str, str], log: Log, job: Job) -> float:
    if log.timestamp == "epoch":
        return float(groups["timestamp"])
    if log.timestamp == "elapsed":
        return sum(float(part) * 60.0**place for place, part in enumerate(reversed(groups["timestamp"].split(":"))))
    if log.timestamp.startswith("%Y-%m-%d %H:%M:%S"):  # many times as fast as strptime
        return (datetime.fromisoformat(groups["timestamp"]) - EPOCH) / SECOND
    if log.timestamp:
        return datetime.strptime(groups["timestamp"], log.timestamp).replace(tzinfo=UTC).timestamp()
    if "seconds" in groups:
        return float(groups["seconds"]) / (1000 if log.milliseconds else 1)
    counts = {
        "all": 1,
        "node": job.nnodes,
        "device": job.world_size,
        "step": _samples(job),
        "node step": _samples(job) / job.nnodes,
    }
    return log.every * _samples(job) / (float(groups["rate"]) * counts[log.rate_of])


def _samples(job: Job) -> int:
    """Of a step, over all devices."""
    return job.global_batch_size * int(units(job, ()))


def marks(found: Sequence[LogLine], log: Log) -> list[Mark]:
    """Of the lines of one rank. A step that is told again is a step whose update was skipped before: the last line
    counts, and all the time. Where steps count backwards, training started over, and the rest is left out."""
    made: list[Mark] = []
    if found and not log.timestamp:
        made = [Mark(found[0].step - log.every, 0.0, found[0].number - 1, found[0].number, None)]
    for line in found:
        last = made[-1] if made else None
        if last and line.step < last.steps:
            break
        clock = line.time if log.timestamp else (last.clock if last else 0.0) + line.time
        again = last is not None and line.step == last.steps
        since = last.since if last and again else line.number
        if again:
            made.pop()
        samples = (made[-1].samples if made else 0.0) + log.every * (line.samples or 0.0)
        made.append(Mark(line.step, clock, line.number, since, line.loss, samples))
    return made


def windows(found: Sequence[Mark], wanted: Steps, log: Log, samples_per_step: int, name: str) -> list[Window]:
    """As many as the marks have after the warm-up, each of at least as many steps as wanted. samples_per_step: where
    lines do not tell. name: of the log."""
    rest = iter(found)
    made: list[Window] = []
    start = next((mark for mark in rest if mark.steps >= wanted.warmup), None)
    since: int | None = None
    for mark in rest:
        if start is None or len(made) == wanted.windows:
            break
        since = since or (start.line if log.timestamp else mark.since)
        if mark.steps >= start.steps + wanted.window:
            count = mark.steps - start.steps
            span, seconds = f"{name}:{since}-{mark.line}", mark.clock - start.clock
            samples = round(mark.samples - start.samples) if log.tells_samples else count * samples_per_step
            made.append(Window(len(made), count, samples, seconds, None, mark.loss, source=span))
            start, since = mark, None
    return made


def by_rank(found: Iterable[LogLine], log: Log, job: Job) -> dict[str, list[LogLine]]:
    """Lines of each rank that prints, as far as they can be told apart.

    Where several print and nothing tells them apart, their lines become those of one: a step is complete when all have
    told so. Of seconds, it took the mean of theirs: ranks wait for each other, so each one's steps add up to the same
    total, to within one step, while the longest of each step, by another rank each time, add up to more than any has.
    """
    ranks: dict[str, list[LogLine]] = {}
    for line in found:
        ranks.setdefault(line.rank, []).append(line)
    if _printing(log, job) == 1 or set(ranks) != {""}:
        return ranks
    told: dict[int, list[LogLine]] = {}
    for line in ranks[""]:
        told.setdefault(line.step, []).append(line)
    whole = [several for several in told.values() if len(several) >= _printing(log, job)]
    return {"": [_of_all(several, log) for several in whole]}


def _printing(log: Log, job: Job) -> int:
    """How many ranks print."""
    return {"one": 1, "node": job.nnodes, "all": job.world_size}[log.ranks]


def _of_all(several: Sequence[LogLine], log: Log) -> LogLine:
    losses = [line.loss for line in several if line.loss is not None]
    times = [line.time for line in several]
    return several[-1]._replace(
        time=max(times) if log.timestamp else fmean(times), loss=fmean(losses) if losses else None
    )


def _merged(of_ranks: Sequence[Window]) -> Window:
    """One window of all ranks: the slowest one's seconds."""
    seconds = [window.seconds for window in of_ranks]
    spans = [int(number) for window in of_ranks for number in window.source.rpartition(":")[2].split("-")]
    losses = [window.loss for window in of_ranks if window.loss is not None]
    return replace(
        of_ranks[0],
        seconds=max(seconds),
        skew_seconds=max(seconds) - min(seconds),
        loss=fmean(losses) if losses else None,
        source=f"{of_ranks[0].source.rpartition(':')[0]}:{min(spans)}-{max(spans)}",
    )


def read(folder: Path, script: Script, job: Job, protocol: Protocol, versions: Mapping[str, str]) -> Stream:
    """What a run's log tells, in place of a worker's events."""
    return stream(folder / LOG, script.log, steps(script, protocol), job, versions, declared(script.effective, job))


def stream(
    path: Path, log: Log, wanted: Steps, job: Job, versions: Mapping[str, str], effective: Mapping[str, str]
) -> Stream:
    """What a log tells of a job's run. Never raises for what the log holds."""
    ranks = by_rank(islice(lines(path, log, job), MOST), log, job)
    of_ranks = [windows(marks(mine, log), wanted, log, _samples(job), path.name) for mine in ranks.values()]
    found = tuple(_merged(several) for several in zip(*of_ranks, strict=False))
    first = [mine[0].time for mine in ranks.values() if mine and mine[0].step == log.every == 1 and not log.timestamp]
    why = _lack(ranks, found, wanted, log, job, path.name)
    return Stream(
        start={"versions": dict(versions)},
        built={"seconds": None} if found else {},
        warm={"effective": dict(effective), "first_step_seconds": max(first, default=None)},
        windows=found,
        end=None if why else {},
        failed={"kind": why.kind, "message": why.message} if why else None,
    )


def complete(folder: Path, script: Script, job: Job, protocol: Protocol) -> bool:
    """Whether the log has all that is wanted."""
    return read(folder, script, job, protocol, {}).failed is None


def _lack(
    ranks: Mapping[str, Sequence[LogLine]], found: Sequence[Window], wanted: Steps, log: Log, job: Job, name: str
) -> Failure | None:
    """Why a log gives no figures; None if it does."""
    printing = _printing(log, job)
    if not ranks:
        return Failure("no_figures", f"no line of {name} is of the form {log.line.pattern!r}")
    if not any(ranks.values()):
        return Failure("no_figures", f"no step is told {printing} times in {name}, once by each rank that should print")
    if log.ranks == "all" and set(ranks) != {""} and len(ranks) < printing:
        silent = sorted(set(map(str, range(job.world_size))) - set(ranks), key=int)
        return Failure("no_figures", f"of {job.world_size} ranks, {', '.join(silent)} printed no line with figures")
    for mine in ranks.values():
        for line in mine:
            if line.step > wanted.warmup and line.loss is not None and not math.isfinite(line.loss):
                return Failure("nan", f"the loss is {line.loss} after step {line.step} ({name}:{line.number})")
    last = min((mine[-1] for mine in ranks.values()), key=lambda line: line.step)
    if len(found) < wanted.windows:
        need = wanted.warmup + wanted.windows * wanted.window
        message = f"the log ends after step {last.step} ({name}:{last.number}); the protocol needs {need}"
        return Failure("no_figures", message)
    for window in found:
        if window.seconds <= 0:
            return Failure("no_figures", f"no time passes in {window.source}")
    return None


def failure(ended: Exit, stream: Stream, folder: Path) -> Failure | None:
    """What went wrong with a run: what its end tells, then what its log does."""
    tail, inside = failures.last_lines(folder), stream.failure
    outside = failures.outside(ended, tail)
    if outside is None and ended.code:
        outside = Failure("crash", f"it ended with exit code {ended.code}{failures.last_words(tail)}", tail)
    if outside is None or outside.kind == "timeout":
        return outside or (inside and replace(inside, lines=tail))
    said = f"; {inside.message}" if inside else ""
    kind = "out_of_memory" if OUT_OF_MEMORY.search("\n".join(tail)) else outside.kind
    kind = "nan" if inside and inside.kind == "nan" else kind
    return replace(outside, kind=kind, message=outside.message + said)
