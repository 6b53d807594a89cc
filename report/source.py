"""What others published, cell for cell, with where each row stands and what is known of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlperf import sources
from dlperf.errors import clean
from dlperf.figures.published import Figure, Headed, Source, Told, tables
from dlperf.report import drawn, names, text
from dlperf.report.shape import Column, Excerpt, Printed, PrintedTable, Row, SourceReport, Table

ESTIMATORS = {
    "samples_over_seconds": "samples over seconds",
    "mean_of_rates": "a mean of rates",
    "median_of_runs": "a median of runs",
    "mean_of_runs": "a mean of runs",
    "one_run": "one run",
    "last_printed": "the last rate that was printed",
    "unknown": "not known",
}
CHART = "Read off a chart: in no chart here, and never computed with."
#: groups of cells that a table tells apart
MOST = 40
#: of a cell, and of all other texts
CELL, LONG = 1000, 20_000


def source_report(source: Source) -> SourceReport:
    told, by_table = source.told, _by_table(source.figures)
    heads = {one.id: one for one in told.table}
    order = [name for name in heads if name in by_table] + [name for name in by_table if name not in heads]
    anchors = anchored(order)
    titles = _titles([heads.get(name, Headed(name)) for name in order])
    return SourceReport(
        title=text.line(source.title),
        about=text.line(told.about, LONG),
        facts=tuple(_facts(told)),
        tables=tuple(
            _table(heads.get(name, Headed(name)), titles[name], by_table[name], anchors[name], told) for name in order
        ),
        hardware=_listed(told.hardware, ("topology", "topology_line")),
        software=_listed(told.software, ()),
        excerpts=tuple(_topologies(told.hardware)),
        doubts=tuple(_doubts(told)),
        cited=tuple(_cited(told.cited)),
    )


def anchored(titles: Iterable[str]) -> dict[str, str]:
    """A name that is safe in file names and in links for each, of different ones different names."""
    found: dict[str, str] = {}
    for title in titles:
        slug = base = text.slug(clean(title))[:60]
        while slug in found.values():
            slug = f"{base}-{len(found) + 1}"
        found[title] = slug
    return found


def _titles(heads: Sequence[Headed]) -> dict[str, str]:
    """By the tables' ids, with these where several have one title."""
    told = {one.id: text.line(one.title or one.id, CELL) for one in heads}
    every = list(told.values())
    return {name: title if every.count(title) == 1 else f"{title} ({text.line(name)})" for name, title in told.items()}


def _by_table(figures: Iterable[Figure]) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for one in figures:
        found.setdefault(one.table, []).append(one)
    return found


# What a source says of itself


def _facts(told: Told) -> Iterator[tuple[str, Printed]]:
    for name in ("publisher", "date", "licence"):
        if value := getattr(told, name):
            yield name, Printed(text.line(value, CELL))
    if told.url:
        yield "page", Printed(text.line(told.url, CELL), _address(told.url))
    if told.repository:
        commit = f" at {told.commit}" if told.commit else ""
        yield (
            "repository",
            Printed(text.line(told.repository + commit, CELL), sources.tree(told.repository, told.commit)),
        )


def _address(url: str) -> str:
    return url if re.fullmatch(r"https?://[\w.-]+(:\d+)?(/[\w./~%?#=&:@+,-]*)?", url, re.ASCII) else ""


def _listed(each: Sequence[Mapping[str, str | int]], without: Sequence[str]) -> Table | None:
    """A column for each key that one of them has."""
    keys = [key for key in dict.fromkeys(key for one in each for key in one) if key not in without]
    keys = [key for key in keys if any(one.get(key) for one in each)]
    rows = [Row(tuple(text.line(str(one.get(key) or text.NONE), CELL) for key in keys)) for one in each]
    return Table(tuple(Column(text.line(key.replace("_", " "))) for key in keys), tuple(rows)) if keys else None


def _topologies(hardware: Iterable[Mapping[str, str | int]]) -> Iterator[Excerpt]:
    for one in hardware:
        if told := str(one.get("topology") or "").strip("\n"):
            yield Excerpt(text.line(f"Topology: {one.get('name', '')}"), "", clean(told))


def _doubts(told: Told) -> Iterator[Excerpt]:
    """title: what is doubtful; about: by what that was seen; text: where."""
    for one in told.doubt:
        seen = one.get("seen") or one.get("how", "")
        yield Excerpt(*(text.line(value, LONG) for value in (one.get("what", ""), seen, one.get("where", ""))))


def _cited(cited: Iterable[Mapping[str, str]]) -> Iterator[Printed]:
    for one in cited:
        at = Told(repository=one.get("repository", ""), commit=one.get("commit", ""))
        name = f"{at.repository} {one.get('path', '')} at {at.commit[:7]}"
        yield Printed(text.line(name, CELL), sources.link(at, one.get("path", ""), ()))


# A table


def _table(head: Headed, title: str, figures: Sequence[Figure], anchor: str, told: Told) -> PrintedTable:
    columns, printed = tables(figures)[head.id]
    cells: dict[tuple[str, str], list[Figure]] = {}
    for one in figures:
        cells.setdefault((one.row, one.column), []).append(one)
    notes = {note: number for number, note in enumerate(dict.fromkeys(_said(figures)), 1)}
    labels, titles, remark = _labels(head.row, list(printed))
    places = {row: [one for one in figures if one.row == row] for row in printed}
    rows = [
        (
            *(Printed(text.line(part, CELL)) for part in labels[row]),
            *(_cell(shown, cells.get((row, column), ()), notes) for column, shown in zip(columns, values, strict=True)),
            _where(head, places[row], told),
        )
        for row, values in printed.items()
    ]
    numbers = [_numeric([one for one in figures if one.column == column]) for column in columns]
    shown = [Column(text.line(column, CELL), numeric) for column, numeric in zip(columns, numbers, strict=True)]
    about, differ = _shared(figures)
    charts, lines = drawn.drawn(title, figures, anchor)
    return PrintedTable(
        anchor=anchor,
        title=title,
        where=_stands(head, told),
        about=tuple(filter(None, (about, remark, *_columns(head)))),
        columns=(*(Column(title, whole=True) for title in titles), *shown, Column("where it stands", whole=True)),
        rows=tuple(rows),
        footnotes=tuple(text.line(note, LONG) for note in head.footnotes),
        notes=tuple(notes),
        differ=differ,
        charts=charts,
        speedups=drawn.speedups(lines),
    )


def _said(figures: Iterable[Figure]) -> Iterator[str]:
    for one in figures:
        yield from _notes(one)


def _notes(one: Figure) -> Iterator[str]:
    if one.origin == "chart":
        yield CHART
    if one.doubt.strip():
        yield text.line(one.doubt, LONG)


def _cell(shown: str, figures: Iterable[Figure], notes: Mapping[str, int]) -> Printed:
    told = text.line(shown, LONG)
    numbers = tuple(sorted({notes[note] for note in _said(figures)}))
    if linked := re.fullmatch(r"\[([^\[\]]+)\]\(([^()\s]+)\)", told):
        return Printed(linked[1], _address(linked[2]), numbers) if _address(linked[2]) else Printed(told, "", numbers)
    return Printed(told, _address(told), numbers)


def _numeric(figures: Iterable[Figure]) -> bool:
    return any(one.value is not None for one in figures) and all(one.quantity != "other" for one in figures)


def _labels(heading: str, rows: Sequence[str]) -> tuple[dict[str, list[str]], list[str], str]:
    """The parts of each row's label, the titles of their columns, and what else the heading says. `a | b` are two
    where all rows have two."""
    titles = heading.split(" | ")
    parts = {row: row.split(" | ") for row in rows}
    if len(titles) > 1 and all(len(each) == len(titles) for each in parts.values()):
        return parts, [text.line(title) for title in titles], ""
    short, _, remark = heading.partition(" (") if heading.endswith(")") else (heading, "", "")
    remark = f"Rows: {text.line(remark.removesuffix(')'), CELL)}." if remark else ""
    return {row: [row] for row in rows}, [text.line(short) or "row"], remark


def _columns(head: Headed) -> Iterator[str]:
    if head.columns:
        yield f"Columns: {text.line(head.columns, CELL)}."


def _stands(head: Headed, told: Told) -> Printed:
    line = f", line {head.line}" if head.line else ""
    return Printed(text.line(head.path + line, CELL), sources.link(told, head.path, [head.line] if head.line else []))


def _where(head: Headed, figures: Sequence[Figure], told: Told) -> Printed:
    """Of one row: the lines alone where they are of the table's own file."""
    paths = list(dict.fromkeys(one.path for one in figures))
    lines = sorted({one.line for one in figures if one.path == paths[0] and one.line})
    span = f"{lines[0]}" + (f" to {lines[-1]}" if lines[-1] > lines[0] else "") if lines else ""
    at = f"{'lines' if len(lines) > 1 else 'line'} {span}" if lines else ""
    files = [path for path in paths if path != head.path or not lines]
    said = ", ".join(filter(None, (text.listing(files), at)))
    return Printed(text.line(said, CELL) or text.NONE, sources.link(told, paths[0], lines))


# What its cells share, and what not


def _kinds(one: Figure) -> dict[str, str]:
    """What sets cells apart beside their place in the table, in words."""
    return {
        "what": f"{one.quantity.replace('_', ' ')}{f' ({one.unit})' if one.unit else ''}",
        "estimator": ESTIMATORS.get(one.estimator, ""),
        "model": one.model,
        "system": one.system,
        "framework": " ".join(filter(None, (one.framework, one.version))),
        "precision": one.precision,
        "hardware": one.device,
        "batch": names.printed_batch(one),
        "steps": one.steps,
        "options": ", ".join(f"{name}={value}" for name, value in one.options.items()),
    }


def _shared(figures: Sequence[Figure]) -> tuple[str, Table | None]:
    """A sentence on what all cells have, and a row for each group of cells that have the same of what they differ
    in."""
    told = [one for one in figures if any(_kinds(one)[key] for key in ("estimator", "precision", "batch", "options"))]
    if not told:
        return "", None
    kinds = [_kinds(one) for one in figures]
    keys = [key for key in kinds[0] if any(each[key] for each in kinds)]
    apart = [key for key in keys if len({each[key] for each in kinds}) > 1]
    named = {key: "" if key == "what" else f"{key} " for key in keys}
    alike = [f"{named[key]}{text.line(kinds[0][key], CELL)}" for key in keys if key not in apart]
    about = f"All cells: {'; '.join(alike)}." if alike else ""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for one, each in zip(figures, kinds, strict=True):
        groups.setdefault(tuple(each[key] for key in apart), []).append(one)
    if len(groups) > MOST:
        return f"{about} Cells differ in {text.listing(apart)}; figures.csv has it of each.".strip(), None
    rows = [
        Row((_cells(mine, figures), *(text.line(value, CELL) or text.NONE for value in values)))
        for values, mine in groups.items()
    ]
    return about, Table((Column("cells"), *map(Column, apart)), tuple(rows)) if apart else None


def _cells(mine: Sequence[Figure], figures: Sequence[Figure]) -> str:
    """The columns that a group of cells is, each with its rows where these are not all of them; or rows in this way."""
    by_column, by_row = _spread(mine, figures, "column", "row"), _spread(mine, figures, "row", "column")
    return text.line(min((by_column, by_row), key=len), CELL)


def _spread(mine: Sequence[Figure], figures: Sequence[Figure], over: str, within: str) -> str:
    found: dict[str, dict[str, None]] = {}
    for one in mine:
        found.setdefault(getattr(one, over), {})[getattr(one, within)] = None
    every: dict[str, set[str]] = {}
    for one in figures:
        every.setdefault(getattr(one, over), set()).add(getattr(one, within))
    return "; ".join(
        name if len(part) == len(every[name]) else f"{name}: {', '.join(part)}" for name, part in found.items()
    )
