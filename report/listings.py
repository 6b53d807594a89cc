"""The tables of a site over many reports. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from dlperf.figures import ranking, standings
from dlperf.figures.dlperf2020 import Published
from dlperf.figures.standings import Standing
from dlperf.figures.summaries import summarized
from dlperf.report import finding, history, names, section, text
from dlperf.report.history import Archive, Entry, Source
from dlperf.report.shape import Column
from dlperf.report.timeline import Timeline, timeline

NOT_OURS = "published by DLPerf, not measured by dlperf"
#: where they are in the site
INDEX, TABLES_2020, REPORTS = "index.html", "published/dlperf-2020.html", "reports"


class Cell(NamedTuple):
    """link: within the site."""

    text: str
    link: str = ""


@dataclass(frozen=True)
class Line:
    """kind: classes of its row: fastest, tie, quiet."""

    cells: tuple[Cell, ...]
    kind: str = ""


@dataclass(frozen=True)
class Listing:
    """A table. name: without the links of its caption. head: which of its columns names the row."""

    caption: tuple[Cell, ...]
    columns: tuple[Column, ...]
    rows: tuple[Line, ...]
    head: int = 0
    note: str = ""
    chart: Timeline | None = None

    @property
    def name(self) -> str:
        return "".join(cell.text for cell in self.caption)


class Places(NamedTuple):
    """Pages by what they are of: adapters, machines."""

    systems: Mapping[str, str]
    machines: Mapping[str, str]


def grouped(
    of: Iterable[Entry], key: Callable[[Entry], Any], order: Callable[[Any], Any] = lambda key: key
) -> list[tuple[Any, list[Entry]]]:
    """By a key, the groups in its order, what is in each as it was."""
    groups: dict[Any, list[Entry]] = {}
    for entry in of:
        groups.setdefault(key(entry), []).append(entry)
    return [(found, groups[found]) for found in sorted(groups, key=order)]


# Cells


def report_link(source: Source, anchor: str = "") -> str:
    """Where a report, or a section of it, is in the site."""
    page = f"{REPORTS}/{quote(source.name)}/{source.page}"
    return f"{page}#{anchor}" if anchor and source.page.endswith(".html") else page


def _rate(entry: Entry, places: int) -> tuple[Cell, Cell, Cell]:
    """Its rate, interval and n."""
    link = report_link(entry.source, entry.anchor) if entry.source else TABLES_2020
    estimate = entry.estimate
    n = str(estimate.n) if estimate.n else text.NONE
    return Cell(text.number(estimate.centre, places), link), Cell(text.interval(estimate, places)), Cell(n)


def _report(entry: Entry) -> Cell:
    if entry.source is None:
        return Cell("DLPerf 2020", TABLES_2020)
    return Cell(entry.source.name, report_link(entry.source, entry.anchor))


def _archive(source: Source | None, room: int = history.ROOM) -> Cell:
    if source is None:
        return Cell(NOT_OURS, TABLES_2020)
    return _archived(source.name, source.archive, room)


def _archived(name: str, archive: Archive, room: int) -> Cell:
    if not archive.file:
        return Cell("no archive")
    link = f"{REPORTS}/{quote(name)}/{quote(archive.file)}"
    return Cell(f"does not verify: {text.line(archive.problem, room)}" if archive.problem else "verified", link)


def _quiet(entry: Entry) -> str:
    archive = entry.source.archive if entry.source else Archive()
    return "" if entry.comparable and archive.file and not archive.problem else "quiet"


def _rate_columns(entry: Entry) -> tuple[Column, ...]:
    return Column(entry.unit, numeric=True), Column("95 % interval", numeric=True), Column("n", numeric=True)


VERSION, PROOF, REPORT, ARCHIVE = Column("version", whole=True), *map(Column, ("proof", "report", "archive"))


# The newest tables


def newest(found: Sequence[Entry], places: Places) -> list[tuple[str, Listing]]:
    """Of each topic, machine and size, with the topic; one without all conditions of publishing only where there is no
    other. Ranks take long, so they are found of these tables alone; those of as many rows and runs one after the other,
    since what is drawn for one then serves the next."""
    groups = grouped(found, lambda one: (one.topic, one.machine, one.work, one.size))
    last = {key: max(each, key=_precedence) for key, each in groups}
    rows = {key: [entry for entry in each if entry.source is last[key].source] for key, each in groups}
    reports = {key: len({entry.source.name for entry in each if entry.source}) for key, each in groups}
    alike = sorted(rows, key=lambda key: (len(rows[key]), max(one.estimate.n for one in rows[key]), key))
    made = {key: table(rows[key], reports[key], places) for key in alike}
    return [(key[0], made[key]) for key, _ in groups]


def _precedence(entry: Entry) -> tuple[bool, str, str]:
    source = entry.source
    return not (source and source.unmet), entry.moment, source.name if source else ""


def table(entries: Sequence[Entry], of: int, places: Places) -> Listing:
    """of: how many reports have such a table."""
    first = entries[0]
    assert first.source is not None
    comparison = first.source.comparison
    of_job = {one.summary.job.id: one for one in entries if one.summary}
    ranked = [one.summary for one in entries if one.summary and one.summary.job.traits.ranked]
    level = ranking.level(comparison.spec)
    standing = {s.summary.job.id: s for s in standings.standings(ranked, standings.obstacles(comparison), level)}
    digits = text.decimals(one.estimate for one in entries)
    rows = [
        _row(of_job[id_], digits, places, standing.get(id_))
        for id_ in [*standing, *(id_ for id_ in of_job if id_ not in standing)]
    ]
    rate, interval, n = _rate_columns(first)
    beside = (
        Column("relative to fastest", numeric=True),
        Column("95 % interval", numeric=True),
        Column("rank", numeric=True),
    )
    columns = (Column("system"), rate, interval, *beside, n, PROOF, ARCHIVE)
    older = f"; the newest of {of} such tables" if of > 1 else ""
    caption = (
        Cell(first.date, report_link(first.source, first.anchor)),
        Cell(", "),
        Cell(first.machine, places.machines[first.machine]),
        Cell(f": {first.size}{older}"),
    )
    return Listing(caption, columns, tuple(rows), note=" ".join(filter(None, (_unmet(first.source), _missing(first)))))


def _row(entry: Entry, digits: int, places: Places, standing: Standing | None) -> Line:
    rate, interval, n = _rate(entry, digits)
    beside = (*section.beside_fastest(standing), section.ranks(standing)) if standing else (text.NONE,) * 3
    system = Cell(entry.system, places.systems[entry.framework])
    cells = (system, rate, interval, *map(Cell, beside), n, Cell(entry.proof), _archive(entry.source))
    kind = finding.kind(standing) if standing else ""
    return Line(cells, f"{kind if kind in ('fastest', 'tie') else ''} {_quiet(entry)}".strip())


def _unmet(source: Source) -> str:
    return f"Without all conditions of publishing: {text.listing(source.unmet)}." if source.unmet else ""


def _missing(entry: Entry) -> str:
    """Systems that this entry's report has no figure for in its table."""
    assert entry.source is not None
    comparison = entry.source.comparison
    failed = [
        one.job for one in summarized(comparison).values() if one.throughput is None and one.job.work == entry.work
    ]
    of = [
        row
        for row in names.rows(failed, comparison.skips)
        if text.line(names.section(row), history.ROOM) == entry.topic
    ]
    missing = text.listing(text.line(names.system(row)) for row in of)
    return f"No figure for {missing}: the report says why." if missing else ""


# Of a system, of a machine, of the site


def past(entries: Sequence[Entry], machine: str, colour: str) -> Listing:
    """Of one topic and size, the newest first. colour: of its chart."""
    first, digits = entries[0], text.decimals(one.estimate for one in entries)
    rows = [
        Line(
            (
                Cell(one.date),
                Cell(one.system),
                *_rate(one, digits),
                Cell(one.version),
                Cell(one.proof),
                _report(one),
                _archive(one.source),
            ),
            _quiet(one),
        )
        for one in entries
    ]
    title = f"{first.topic}: {first.size}"
    drawn = timeline(f"{title}, {machine}", entries, colour)
    columns = (Column("date", whole=True), Column("system"), *_rate_columns(first), VERSION, PROOF, REPORT, ARCHIVE)
    return Listing((Cell(title),), columns, tuple(rows), head=1, chart=drawn)


def _digits(entries: Iterable[Entry]) -> dict[str, int]:
    """Places after the point, by size."""
    return {size: text.decimals(one.estimate for one in each) for size, each in grouped(entries, lambda one: one.size)}


def measured(topic: str, entries: Sequence[Entry], places: Places) -> Listing:
    digits = _digits(entries)
    rows = [
        Line(
            (
                Cell(one.system, places.systems[one.framework]),
                Cell(one.version),
                Cell(one.size),
                *_rate(one, digits[one.size]),
                Cell(one.proof),
                _archive(one.source),
            ),
            _quiet(one),
        )
        for _, each in grouped(entries, lambda one: (one.work, one.size))
        for one in sorted(each, key=lambda one: (not one.comparable, -one.estimate.centre, one.system))
    ]
    columns = (
        Column("system"),
        Column("version", whole=True),
        Column("size"),
        *_rate_columns(entries[0]),
        PROOF,
        ARCHIVE,
    )
    return Listing((Cell(topic),), columns, tuple(rows))


def reports(sources: Sequence[Source], found: Sequence[Entry]) -> Listing:
    """All of them, the newest first."""
    topics: dict[str, list[Entry]] = {}
    for entry in found:
        if entry.source:
            topics.setdefault(entry.source.name, []).append(entry)
    rows = []
    for source in sorted(sources, key=lambda one: (history.moment(one.comparison.created), one.name), reverse=True):
        mine = topics.get(source.name, [])
        date = Cell(history.date(source.comparison.created))
        what = Cell(
            " ".join(filter(None, (f"{text.listing(one.topic for one in mine) or 'no figure'}.", _unmet(source))))
        )
        on = Cell(text.listing(one.machine for one in mine) or text.NONE)
        archive = _archive(source, 1000)
        kind = "" if archive.text == "verified" else "quiet"
        rows.append(Line((Cell(source.name, report_link(source)), date, what, on, archive), kind))
    columns = (Column("report"), Column("began", whole=True), Column("what"), Column("machine"), ARCHIVE)
    return Listing((Cell("Published reports, the newest first"),), columns, tuple(rows))


def table_2020(published: Sequence[Published], places: Places) -> Listing:
    """published: of one model, precision and batch."""
    first = next(history.of_2020(published[0]))
    rows = [
        Line(
            (
                Cell(one.system, places.systems[one.framework]),
                *(Cell(f"{rate:,.2f}") for rate in one.rates.values()),
                Cell(one.caution),
            ),
            "quiet",
        )
        for one in published
    ]
    devices = (Column(text.count(number, "device"), numeric=True) for number in published[0].rates)
    caption = (Cell(f"Batch {published[0].batch_size} per device, {first.unit}: {NOT_OURS}"),)
    return Listing(caption, (Column("system"), *devices, Column("note")), tuple(rows))
