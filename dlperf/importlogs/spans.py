"""The steps that a log times: samples over seconds of them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, Line
from dlperf.schema import Job
from dlperf.upstream import logs
from dlperf.upstream.commands import Steps


class Jumped(Exception):
    """A clock that does not tell how long the steps took, and where."""


@dataclass(frozen=True)
class Span:
    """Steps of one rank that were timed, and the lines that tell. ends: steps that were complete at its two ends, added
    up, of all its parts."""

    steps: int
    seconds: float
    since: int
    until: int
    ends: int = 0


def span(form: Format, log: Log, mine: Sequence[logs.LogLine], job: Job, name: str, doubts: list[str]) -> Span | None:
    """After the warm-up, of the steps until they begin again; where the publisher takes all, of each such part.

    Jumped where their clock is none."""
    parts = _parts(mine)
    if len(parts) > 1 and not form.whole:
        doubts.append(f"its steps begin again at line {parts[1][0].number}; what follows is left out")
    spans: list[Span] = []
    for part in parts if form.whole else parts[:1]:
        if (again := len({line.number for line in part}) - len({line.step for line in part})) > 0:
            doubts.append(f"{again} lines tell a step again: its update was skipped, by loss scaling as a rule")
        marks = logs.marks(part, log)
        if back := next((b for a, b in pairwise(marks) if b.clock < a.clock), None):
            doubts.append(f"its clock goes back at line {back.line}")
        begun = part[0].step - log.every
        begun = begun if begun >= form.warmup else 0
        if begun and not spans and form.warmup:
            doubts.append(f"its first step is {begun + 1}: training went on there, or the beginning is missing")
        least = begun + form.warmup if not spans else part[0].step
        start = next((mark for mark in marks if mark.steps >= least), None)
        if start is None or marks[-1].steps <= start.steps:
            if not spans:
                within = f"within the first {form.warmup}" if marks[-1].steps <= form.warmup else ""
                left = within or f"and is left with no two lines after the first {form.warmup}"
                doubts.append(f"{name} ends after step {marks[-1].steps}, {left}")
            break
        steps = min(form.steps, marks[-1].steps - start.steps)
        window = logs.windows(marks, Steps(start.steps, steps, 1, 0), log, job.global_batch_size, name)[0]
        if back and not form.clock and (jump := _jump(marks, start, start.steps + window.steps)):
            raise Jumped(f"its clock jumps at line {jump.line}, within the steps that are timed")
        since, _, until = window.source.rpartition(":")[2].partition("-")
        ends = 2 * start.steps + window.steps
        spans.append(Span(window.steps, window.seconds, max(1, int(since)), int(until), ends))
    if not spans:
        return None
    return Span(
        sum(one.steps for one in spans),
        math.fsum(one.seconds for one in spans),
        spans[0].since,
        spans[-1].until,
        sum(one.ends for one in spans),
    )


def _jump(marks: Sequence[logs.Mark], start: logs.Mark, end: int) -> logs.Mark | None:
    """Where, from a mark to `end` steps, the clock goes back, or forward again what it went back before: by half of
    that, and by ten times as long as lines are apart."""
    pairs = list(pairwise(marks))
    usual = median(b.clock - a.clock for a, b in pairs)
    back = max(a.clock - b.clock for a, b in pairs if a.steps < end)
    for a, b in pairs:
        apart = b.clock - a.clock
        if start.steps <= a.steps < end and (apart < 0 or (back > 0 and apart > max(back / 2, 10 * usual))):
            return b
    return None


def _parts(mine: Sequence[logs.LogLine]) -> list[list[logs.LogLine]]:
    """Lines up to where steps count backwards."""
    parts: list[list[logs.LogLine]] = []
    for line in mine:
        if not parts or line.step < parts[-1][-1].step:
            parts.append([])
        parts[-1].append(line)
    return parts


def ranked(
    form: Format, log: Log, found: Sequence[Line], job: Job, doubts: list[str]
) -> tuple[dict[str, list[logs.LogLine]], Log]:
    """Lines by rank, and the log with as many steps from line to line as there are."""
    marks = [one.mark for one in found]
    told = {mark.rank for mark in marks}
    several = Counter(Counter(mark.step for mark in marks).values()).most_common(1)[0][0]
    expected = {"one": 1, "node": job.nnodes, "all": job.world_size}[log.ranks]
    every = apart(marks, log)
    if every > 1 and form.clock:
        marks = list(_clocked(form.clock, marks, found))
        log = replace(log, timestamp="elapsed")
    if expected > 1 and told == {""} and several < expected:
        doubts.append(f"{several} of {expected} ranks that should print do")
        few = replace(job, nnodes=1, nproc_per_node=several)
        by = {"": marks} if several == 1 else logs.by_rank(marks, replace(log, ranks="all"), few)
    else:
        by = logs.by_rank(marks, log, job)
    if not log.timestamp and (form.seconds != "line" or "seconds" not in log.line.groupindex):
        scale = every / log.every
        by = {rank: [line._replace(time=line.time * scale) for line in mine] for rank, mine in by.items()}
        if every > 1 and form.seconds == "one":
            doubts.append(f"its lines tell the seconds of one step in {every}; the others are taken to be as long")
    return {rank: mine for rank, mine in by.items() if mine}, replace(log, every=every)


def _clocked(
    clock: Callable[[Mapping[str, str], int], float], marks: Sequence[logs.LogLine], found: Sequence[Line]
) -> Iterator[logs.LogLine]:
    for mark, line in zip(marks, found, strict=True):
        with suppress(ValueError):  # 2.6.0, where another process wrote into the line
            yield mark._replace(time=clock(line.groups, mark.step))


def apart(marks: Sequence[logs.LogLine], log: Log) -> int:
    """Steps from line to line."""
    last: dict[str, int] = {}
    gaps: Counter[int] = Counter()
    for mark in marks:
        gap = mark.step - last.get(mark.rank, mark.step)
        last[mark.rank] = mark.step
        if gap > 0:
            gaps[gap] += 1
    return gaps.most_common(1)[0][0] if gaps else log.every
