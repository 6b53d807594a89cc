"""The lines of a log that have figures of a format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlperf.catalog import reader
from dlperf.catalog.script import Log, Script
from dlperf.errors import ESCAPES
from dlperf.importlogs.format import Event, Format, Total
from dlperf.upstream import logs

#: of a line with figures, or of what stands between two carriage returns of it; of more, patterns would take minutes
LONGEST = 2**14


@dataclass(frozen=True)
class Match:
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
    """All that a log has of a format. first: its first line with figures. log: the first of the format's that fits a
    line, and the lines that it fits; totals: by column."""

    first: str = ""
    log: Log | None = None
    matches: list[Match] = field(default_factory=list)
    totals: dict[str, Summed] = field(default_factory=dict)
    events: Sequence[Event] = ()

    @property
    def empty(self) -> bool:
        return not (self.matches or self.totals or self.events)


def _texts(path: Path, needles: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """The lines with one of these, by their number, and each part of a line between carriage returns."""
    for number, piece in logs.pieces(path, needles):
        if any(needle in piece for needle in needles):
            for part in piece.split(b"\r") if b"\r" in piece else (piece,):
                if len(part) <= LONGEST:
                    text = part.decode("utf-8", "replace")
                    yield number, ESCAPES.sub("", text) if "\x1b" in text else text


def figures(path: Path, form: Format, head: str) -> Figures:
    found = Figures()
    if form.events:
        found.events = form.events(_texts(path, [form.needle]))
        return found
    known = [_log(one) for one in form.logs]
    totals = [one for one in form.totals if not (one.unless and one.unless.search(head))]
    needle = form.needle.decode()
    done = not known
    for number, text in _texts(path, [*([form.needle] if known else ()), *(one.needle for one in totals)]):
        for total in totals:
            if match := total.line.search(text):
                before = found.totals.get(total.column)
                told = match.groupdict()
                lines = (before.lines + (before.groups != told)) if before else 1
                values = before.values if before else []
                if total.several:
                    values.append(told["value"])
                since = before.since if before else number
                found.totals[total.column] = Summed(total, number, told, lines, since, values)
                found.first = found.first or text
        if done or needle not in text:
            continue
        found.log = found.log or next((log for log in known if log.line.search(text)), None)
        if found.log:
            found.first = found.first or text
            for match in found.log.line.finditer(text):
                found.matches.append(Match(number, logs.rank(text, match.start()), match.groupdict()))
        done = len(found.matches) >= logs.MOST or _past(form, found.matches)
        if done and not totals:
            break
    return found


def _past(form: Format, matches: Sequence[Match]) -> bool:
    """Whether a line is long after the window; what is absurd is of no step."""
    if form.whole or not matches:
        return False
    told, first = matches[-1].groups["step"], matches[0].groups["step"]
    return len(told) < 12 and len(first) < 12 and int(told) - int(first) > 2 * (form.warmup + form.steps)


def _log(one: str | Log) -> Log:
    if isinstance(one, Log):
        return one
    adapter, _, model = one.partition("/")
    if not _ADAPTERS:
        _ADAPTERS.update({name: found.scripts for name, found in reader.adapters().items()})
    return _ADAPTERS[adapter][model].log


_ADAPTERS: dict[str, Mapping[str, Script]] = {}
