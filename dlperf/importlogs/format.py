"""What a format of logs is, and the arithmetic of those who published figures from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import numpy

from dlperf.catalog.script import Log
from dlperf.schema import Job
from dlperf.upstream.logs import LogLine

#: what a publisher's figure is called, as far as its arithmetic is known
THEIRS = "publisher's estimator"
#: what the mean of printed rates is called where it is not
MEAN = "mean of printed rates"
#: the steps of a format whose publisher takes all
EVERY = 10**9


class Line(NamedTuple):
    """A line with figures. rate: as it is printed, whatever it counts; None where the line has none. groups: of the
    log's expression."""

    mark: LogLine
    rate: float | None
    groups: Mapping[str, str]


class Told(NamedTuple):
    """A publisher's figure, samples/s over all devices, 0 where there is none, and the first and last line that it is
    made of. doubt: what is to be said of it. begun, steps: of a publisher that counts lines, the steps before the first
    one, and in all."""

    value: float
    since: int
    until: int
    doubt: str = ""
    begun: int = 0
    steps: int = 0


class Event(NamedTuple):
    """A figure that a format's own function makes. quantity: "throughput" in samples/s, or "time_to_train" in min."""

    column: str
    value: float
    estimator: str
    since: int
    until: int
    steps: str
    doubt: str
    quantity: str


#: of all lines with figures in the order of the log, and the run; None where they are too few
Publisher = Callable[[Sequence[Line], Job], Told | None]


@dataclass(frozen=True)
class Total:
    """A line of a log's end. line: with the group `value`, a rate, or `seconds`, of all steps. of: what the rate
    counts: samples of "all" devices, a "device" or a "worker" (see Format), or a "step" of all. estimator: of
    dlperf.figures.published. several: what is made of the values of several lines; else the last counts."""

    column: str
    line: re.Pattern[str]
    needle: bytes
    estimator: str
    of: str = "all"
    doubt: str = ""
    several: Callable[[Sequence[float]], float] | None = None


def ended(name: str, doubt: str) -> Total:
    """The rate of all steps with which a dllogger of NVIDIA's ends, `name : value`."""
    line = re.compile(rf"{name} : (?P<value>[\d.]+)")
    return Total(name, line, name.encode(), "samples_over_seconds", doubt=doubt)


def by_numpy(value: float) -> float:
    """With two decimals, as numpy's `round` makes them: in places it differs from Python's in the last one."""
    return float(numpy.round(value, 2))


def by_python(value: float) -> float:
    return round(value, 2)


def unrounded(value: float) -> float:
    return value


@dataclass(frozen=True)
class Format:
    """needle: what each line with figures has. begins: what the head of its log has, by which one without any step is
    known, and sums of one with none. logs: how lines tell, each as `adapter/model` of which adapter.toml has
    it, or its own; the first that fits a log counts.

    publisher, estimator: the published arithmetic, and its name in figures.csv; who: whose it is; column: what figures
    call it. rounded: how it rounds medians and speedups. warmup, steps: of the window that it takes; whole: whether
    it takes all steps; else lines long after its window are not read.

    facts: what the log's arguments are called: nodes, devices_per_node, devices (of all nodes), batch, accumulation,
    steps, model, type (of numbers). told: others, from the log's head; the last one counts. batch: what its batch
    argument is of. amp: its arguments that are on with mixed precision. model: where its script trains no other.
    process: "device" where each process has one.

    demands: what the head of the log or its lines have if it is one of training, by this script, or the model's name
    that its path or a flag tells; else `otherwise` is said. other: why it is not read by what its head tells, if so.
    totals: see Total. events: of a format without lines of steps, figures from the numbers and texts of lines with the
    needle.

    seconds: what lines that tell seconds tell those of: the steps since the "line" before, "one" step, or one in the
    "mean" since the line before. workers: how many print rates of their own, by the log's head. clock: of lines that
    tell the mean since a start too, the seconds from there, by groups and step; it counts where lines are steps
    apart. first: where versions differ, what the script calls its first step, by the groups of the first line. named:
    whether the publisher takes steps by what they are called, and warmup is of a version that calls the first 0."""

    name: str
    title: str
    framework: str
    unit: str
    needle: bytes
    logs: tuple[str | Log, ...]
    model: str = ""
    publisher: Publisher | None = None
    estimator: str = "samples_over_seconds"
    who: str = ""
    column: str = THEIRS
    rounded: Callable[[float], float] = by_numpy
    warmup: int = 20
    steps: int = 100
    facts: Mapping[str, str] = field(default_factory=dict)
    told: Sequence[Callable[[str], Mapping[str, str]]] = ()
    batch: str = "device"
    demands: re.Pattern[str] | None = None
    otherwise: str = ""
    other: Callable[[str], str] | None = None
    begins: re.Pattern[str] | None = None
    totals: tuple[Total, ...] = ()
    amp: Sequence[str] = ()
    process: str = ""
    whole: bool = False
    events: Callable[[Iterable[tuple[int, str]]], list[Event]] | None = None
    seconds: str = "line"
    clock: Callable[[Mapping[str, str], int], float] | None = None
    first: Callable[[Mapping[str, str]], int] | None = None
    named: bool = False
    workers: Callable[[str], int] | None = None


def counted_from(groups: Mapping[str, str]) -> int:
    """0 where the first line is of step 0 or, of lines that are steps apart, of one before a round number; else 1."""
    return 0 if groups["step"] == "0" or groups["step"].endswith("9") else 1


def labels(start: int, end: int, rounded: Callable[[float], float] = by_python) -> Publisher:
    """Samples over the difference of the timestamps of two steps; of a step that is told twice, the last."""

    def told(lines: Sequence[Line], job: Job) -> Told | None:
        if "timestamp" not in lines[0].groups:
            return Told(0.0, 0, 0, "its lines have no time")
        marks = {one.mark.step: one.mark for one in lines}
        if start not in marks or end not in marks:
            return None
        a, b = marks[start], marks[end]
        samples = job.global_batch_size * (end - start)
        return Told(rounded(samples / (b.time - a.time)), a.number, b.number) if b.time > a.time else None

    return told


def ordinals(start: int, end: int, *, after: int = 0, every_rank: bool = False) -> Publisher:
    """The same between the start-th and the end-th line, of those of more than `after` complete steps. every_rank:
    counted in times the number of devices."""

    def told(lines: Sequence[Line], job: Job) -> Told | None:
        counted = [one.mark for one in lines if one.mark.step > after]
        times = job.world_size if every_rank else 1
        if len(counted) < end * times:
            return None
        a, b = counted[start * times - 1], counted[end * times - 1]
        if b.time <= a.time:
            return None
        rate = float(job.global_batch_size) / ((b.time - a.time) / (end - start))
        return Told(by_python(rate), a.number, b.number)

    return told


def mean_of(
    start: int,
    end: int | None,
    rate: Callable[[Line, Job], float],
    *,
    every_rank: bool = False,
    digits: int | None = None,
    exact: bool = False,
) -> Publisher:
    """The mean of rates from the start-th to the end-th line, or the last. every_rank: of each step, the median over
    ranks. digits: to which each rate is rounded. exact: whether the publisher's script needs as many lines as there
    are, no more."""

    def told(lines: Sequence[Line], job: Job) -> Told | None:
        times = job.world_size if every_rank else 1
        if len(lines) <= start * times:
            return None
        used = lines if end is None else lines[: end * times]
        rates = [rate(one, job) for one in used]
        rates = rates if digits is None else [round(one, digits) for one in rates]
        rows = [median(rates[at : at + times]) for at in range(0, len(rates) - times + 1, times)][start:]
        if not rows:
            return None
        few = f"the mean of {len(rows)} steps, not of {end - start}" if end and len(rows) < end - start else ""
        more = "the publisher's script takes no log of more lines" if exact and len(lines) > len(used) else ""
        begun = lines[start * times - 1].mark.step if start else 0
        return Told(
            by_numpy(float(numpy.mean(rows))),
            used[start * times].mark.number,
            used[-1].mark.number,
            "; ".join({few, more} - {""}),
            begun,
            used[-1].mark.step - begun,
        )

    return told


def printed(line: Line, job: Job) -> float:
    """A rate over all devices, as printed."""
    return line.rate or 0.0


def per_device(line: Line, job: Job) -> float:
    return (line.rate or 0.0) * job.world_size


def from_seconds(line: Line, job: Job) -> float:
    """Of a line that gives a step's seconds."""
    return job.global_batch_size / line.mark.time


def mean_time(start: int, end: int, after: int) -> Publisher:
    """The global batch over the mean time of lines, of all processes as they are mixed, of steps that the script calls
    by more than `after`."""

    def told(lines: Sequence[Line], job: Job) -> Told | None:
        counted = [one.mark for one in lines if int(one.groups["step"]) > after]
        used = counted[start:end]
        if len(used) < end - start:
            return None
        seconds = 0.0
        for one in used:
            seconds += one.time
        distinct = len({one.step for one in used})
        mixed = f"its {len(used)} lines are of several processes: {distinct} steps" if distinct < len(used) else ""
        rate = float(job.global_batch_size / (seconds / len(used)))
        return Told(by_python(rate), used[0].number, used[-1].number, mixed)

    return told
