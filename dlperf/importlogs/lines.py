"""The lines of a log that have figures of a format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dlperf.catalog import reader
from dlperf.catalog.script import Log, Script
from dlperf.errors import ESCAPES
from dlperf.importlogs.format import Event, Format, Total
from dlperf.upstream import logs

#: of a line with figures, or of what stands between two carriage returns of it; of more, patterns would take minutes
LONGEST = 2**14
#: as mails and forums quote
QUOTED = re.compile(r"[ \t]{0,9}>")


class Match(NamedTuple):
    """What a line tells, by the groups of its expression; the rank whose tag stands before it, if any."""

    number: int
    rank: str
    groups: Mapping[str, str]


@dataclass
class Summed:
    """The last line that fits a total, how many tell something else than the one before, and their values where a
    figure is made of several. since: the first."""

    total: Total
    number: int
    groups: Mapping[str, str]
    lines: int
    since: int
    values: list[str]


@dataclass
class Figures:
    """All that a log has of a format. quoted: whether a mail quotes lines of it, which do not count. first: its first
    line with figures. log: the first of the format's that fits a line, and the lines that it fits; totals: by
    expression."""

    first: str = ""
    quoted: bool = False
    log: Log | None = None
    matches: list[Match] = field(default_factory=list)
    totals: dict[re.Pattern[str], Summed] = field(default_factory=dict)
    events: Sequence[Event] = ()

    @property
    def empty(self) -> bool:
        return not (self.matches or self.totals or self.events)


def _texts(path: Path, needles: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """The lines with one of these, by their number, and each part of a line between carriage returns."""
    first, others = needles[0], needles[1:]
    for number, piece in logs.pieces(path, needles):
        if first in piece or (others and any(needle in piece for needle in others)):
            for part in piece.split(b"\r") if b"\r" in piece else (piece,):
                if len(part) <= LONGEST:
                    text = part.decode("utf-8", "replace")
                    yield number, ESCAPES.sub("", text) if "\x1b" in text else text


def figures(path: Path, form: Format) -> Figures:
    """Of a whole log, or until long after the window that the format's publisher takes."""
    found = Figures()
    if form.events:
        found.events = form.events(_texts(path, [form.needle]))
        return found
    known = [_log(one) for one in form.logs]
    totals = [(one.needle.decode(), one) for one in form.totals]
    needle, done = form.needle.decode(), not known
    for number, text in _texts(path, [*([form.needle] if known else ()), *(one.needle for _, one in totals)]):
        if QUOTED.match(text):
            found.quoted = True
            continue
        for mark, total in totals:
            if mark in text and (match := total.line.search(text)):
                found.first = found.first or text
                _sum(found.totals, total, number, match.groupdict())
        if done or needle not in text:
            continue
        found.log = found.log or _first(form, known, text)
        for match in found.log.line.finditer(text) if found.log else ():
            found.first = found.first or text
            one = Match(number, logs.rank(text, match.start()), match.groupdict())
            if not _twice(found, one):
                found.matches.append(one)
        done = len(found.matches) >= logs.MOST or _past(form, found)
        if done and not totals:
            break
    return found


#: what stands for a number in a format's expressions, and for what stands in a line instead
NUMBER = re.compile(r"\(\?P<(rate|value|seconds|timestamp)>\[\\d\.(?:e\+)?\]\+\)")
ANY = r"(?P<\1>[-+]?[\\w.+-]+)"
#: bytes of a log's end, where totals stand
TAIL = 2**14


def odd(path: Path, form: Format, totals: Sequence[Total] = ()) -> str:
    """The first line that fits an expression of the format, or one of these totals at its end, but for a number that is
    none or not above 0; empty where there is none."""
    fitting = [one.line for one in totals] or [
        *(_log(one).line for one in form.logs),
        *(one.line for one in form.totals),
    ]
    loose = [re.compile(NUMBER.sub(ANY, one.pattern), one.flags) for one in fitting if NUMBER.search(one.pattern)]
    if totals and not any(_odd(text, loose) for text in _tail(path)):
        return ""
    for number, text in _texts(path, [form.needle, *(one.needle for one in form.totals)]) if loose else ():
        if not QUOTED.match(text) and (told := _odd(text, loose)):
            return f"line {number} tells {told}"
    return ""


def _odd(text: str, loose: Sequence[re.Pattern[str]]) -> str:
    for found in filter(None, (one.search(text) for one in loose)):
        for name, value in found.groupdict().items():
            if name in ("rate", "value", "seconds", "timestamp") and value and not positive(value):
                short = value if len(value) <= 20 else f"{value[:12]}... of {len(value)} characters"
                before = re.split(r", |\s\s|\t", text[max(0, found.start(name) - 30) : found.start(name)].rstrip())[-1]
                return f"{before} {short}"
    return ""


def _tail(path: Path) -> list[str]:
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL))
        return file.read(TAIL).decode("utf-8", "replace").splitlines()


def positive(value: str) -> bool:
    """Whether it is a number above 0 that can be a rate or a time, or a time of the day."""
    try:
        return not re.fullmatch(r"[-+\w.]+", value) or 0 < float(value) < logs.BEYOND
    except ValueError:
        return False


def _twice(found: Figures, one: Match) -> bool:
    """Whether the line before says the same, as where two loggers write."""
    alone = found.log is not None and found.log.ranks == "one"
    return alone and bool(found.matches) and found.matches[-1][1:] == one[1:]


def _first(form: Format, known: Sequence[Log], text: str) -> Log | None:
    """The first that fits a line; where a script's versions differ in it, the line tells what its first step is."""
    for log in known:
        if line := log.line.search(text):
            return replace(log, first=form.first(line.groupdict())) if form.first else log
    return None


def _sum(totals: dict[re.Pattern[str], Summed], total: Total, number: int, told: Mapping[str, str]) -> None:
    before = totals.get(total.line)
    lines = before.lines + (before.groups != told) if before else 1
    values = before.values if before else []
    if total.several:
        values.append(told["value"])
    totals[total.line] = Summed(total, number, told, lines, before.since if before else number, values)


def _past(form: Format, found: Figures) -> bool:
    """Whether a line is long after the window, by steps and by lines; what is absurd is of no step."""
    matches = found.matches
    window = 2 * (form.warmup + form.steps)
    if form.whole or not matches or not found.log or len(matches) * found.log.every <= window:
        return False
    told, first = matches[-1].groups["step"], matches[0].groups["step"]
    return len(told) < 12 and len(first) < 12 and int(told) - int(first) > window


def _log(one: str | Log) -> Log:
    if isinstance(one, Log):
        return one
    adapter, _, model = one.partition("/")
    if not _ADAPTERS:
        _ADAPTERS.update({name: found.scripts for name, found in reader.adapters().items()})
    return _ADAPTERS[adapter][model].log


_ADAPTERS: dict[str, Mapping[str, Script]] = {}
