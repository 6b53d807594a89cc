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
