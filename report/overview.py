"""What a report begins with: of each section a brief table; of several models one of all, and their pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlperf.figures.standings import Standing
from dlperf.report import finding, names, text
from dlperf.report.shape import Column, Excerpt, Overview, Page, Proof, Rates, Row, Section, Table

#: models from which on each has a page of its own
SEVERAL = 3
ABOUT = (
    "Medians. Fastest are those that may be: these runs do not tell them apart. A rate in brackets is in no ranking, "
    "and a system without a rate did not run; the page of the model says why."
)


def rates(title: str, standings: Sequence[Sequence[Standing]]) -> tuple[Rates, ...]:
    """One for each size of a section. title: the section's."""
    several = len(standings) > 1
    return tuple(_rates(title, ranked, several) for ranked in standings if ranked)


def _rates(title: str, ranked: Sequence[Standing], several: bool) -> Rates:
    job = ranked[0].summary.job
    places = text.decimals(s.summary.throughput for s in ranked if s.summary.throughput)
    return Rates(
        f"{title}, {names.size(job)}" if several else title,
        names.size(job),
        names.rate_unit(job.family),
        {names.system(s.summary.job): finding.rate(s.summary, s, places) for s in ranked},
        tuple(names.system(s.summary.job) for s in ranked if finding.may_be_first(s)),
    )


def answered(section: Section) -> Section:
    """With its brief table, which takes the notes from the whole one: systems, their rates and ranks, and proofs."""
    table = section.throughput
    if table is None or section.pivot:
        return section
    n = [column.title for column in table.columns].index("n")
    kept = (0, *range(n, n + 6), -1)
    first = kept.index(n)
    rows = tuple(
        replace(row, cells=tuple(row.cells[place] for place in kept), first=first, span=len(kept) - first + 1)
        for row in table.rows
    )
    columns = tuple(replace(table.columns[place], minor=place not in (0, n + 1, n + 3)) for place in kept)
    brief = Table(columns, rows, table.noted)
    whole = tuple(replace(row, note=row.note if row.kind == "missing" else "", span=row.span - 1) for row in table.rows)
    size = section.rates[0].size if len(section.rates) == 1 else ""
    return replace(section, throughput=Table(table.columns, whole), brief=brief, size=size)


def overview(sections: Sequence[Section]) -> Overview | None:
    """None where there are fewer than SEVERAL models."""
    if len({section.model for section in sections}) < SEVERAL:
        return None
    found = [each for section in sections for each in section.rates]
    systems = list(dict.fromkeys(name for each in found for name in each.cells))
    columns = (Column("model"), *(Column(name, numeric=True) for name in systems), Column("unit"), Column("fastest"))
    rows = (
        (each.title, *(each.cells.get(name, text.NONE) for name in systems), each.unit, text.listing(each.first))
        for each in found
    )
    return Overview(ABOUT, Table(columns, tuple(Row(cells) for cells in rows)))


def pages(sections: Iterable[Section], proofs: Sequence[Proof], commands: Sequence[Excerpt]) -> tuple[Page, ...]:
    """One for each model, in the order of the sections."""
    of_model: dict[str, list[Section]] = {}
    for section in sections:
        of_model.setdefault(section.model, []).append(section)
    return tuple(
        Page(
            title=names.model(model),
            file=f"{model}.md",
            sections=tuple(group),
            proofs=tuple(one for one in proofs if one.model == model),
            commands=tuple(one for one in commands if one.model == model),
        )
        for model, group in of_model.items()
    )
