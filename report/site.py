"""The pages of a site over many reports: the newest tables, histories of systems, what machines measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from urllib.parse import quote

from dlperf.figures.dlperf2020 import Published
from dlperf.figures.published import Source as Others
from dlperf.report import TEMPLATES, charts, history, listings, render_source, templates, text
from dlperf.report.history import Entry, Source
from dlperf.report.listings import INDEX, NOT_OURS, REPORTS, TABLES_2020, Cell, Listing, Places, grouped, report_link

TITLE = "Training throughput of deep-learning frameworks"
ABOUT = (
    "For each model, precision, machine and size the newest table that was published. A rate is the median of n runs, "
    "each in fresh processes, with its 95 % interval; ranks that the runs leave open are shown as a range. Proof: that "
    "a system trained the same as the others, and by how much its losses differ at most.",
    "Each rate leads to its report. “Verified” leads to the archive that the report was made of, which was verified "
    "when this site was made. Rows are grey where there is no such archive, and where they are not comparable.",
)
HISTORY = "What was measured of it, the newest first. Charts are of what was measured on two days or more."
ON_MACHINE = "All that was measured on it, the newest first."
ABOUT_2020 = (
    f"These rates were {NOT_OURS}: they are its tables of October 2020, on 1, 8, 16 and 32 V100-SXM2-16GB, 8 in each "
    "node, as github.com/Oneflow-Inc/DLPerf has them. They come without runs, intervals and proofs. Note: what is "
    "known to be wrong or uneven in a row.",
)
OF_OTHERS = "Their tables, cell for cell, with where each row stands and what is known of it; not measured by dlperf."


@dataclass(frozen=True)
class Part:
    """Of a page. link: what its title leads to, within the site. items: of a list."""

    title: str
    tables: tuple[Listing, ...] = ()
    about: str = ""
    items: tuple[tuple[Cell, ...], ...] = ()
    link: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Page:
    file: str
    title: str
    about: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def listed(self) -> bool:
        """Whether it begins with a list of its parts."""
        return len(self.parts) > 2

    @property
    def root(self) -> str:
        """The way to the site's folder."""
        return "../" * self.file.count("/")


def pages(
    sources: Sequence[Source],
    published: Sequence[Published],
    others: Mapping[str, Others],
    explained: Mapping[str, Mapping[str, Any]],
    unread: Mapping[str, str],
) -> dict[str, str]:
    """The site's own files by name. others: what others published, by the folder's name; see of_others.
    explained: what a folder's why.json holds. unread: why something is not in it."""
    found = [entry for source in sources if _ran(source) for entry in history.entries(source)]
    older = [entry for one in published for entry in history.of_2020(one)]
    every = sorted([*found, *older], key=lambda one: (one.moment, one.source.name if one.source else ""), reverse=True)
    titles = {entry.framework: entry.title for entry in reversed(every)}
    places = Places(_files("systems", titles), _files("machines", {entry.machine for entry in every}))
    made = [_index(sources, found, others, explained, unread, places, titles)]
    made += [
        _system(titles[name], places, charts.colour(titles[name]), [e for e in every if e.framework == name])
        for name in titles
    ]
    made += [_machine(name, places, [e for e in every if e.machine == name]) for name in places.machines]
    made += [_tables_2020(published, places)] if published else []
    template = templates(autoescape=True).get_template("site.html.j2")
    systems = [(titles[name], file) for name, file in places.systems.items()]
    more = [("DLPerf 2020", TABLES_2020)] if published else []
    around = [
        ("Newest tables", INDEX),
        *systems,
        ("Machines", f"{INDEX}#machines"),
        *more,
        ("Reports", f"{INDEX}#reports"),
    ]
    styles = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "site.css"))
    files = {page.file: template.render(page=_anchored(page), navigation=around) for page in made}
    return {**files, "style.css": styles, ".nojekyll": ""}


def of_others(source: Others) -> dict[str, str]:
    """What a folder in the site has of it: its page, which has its charts in it, and its data."""
    return {name: content for name, content in render_source(source).items() if not name.endswith((".svg", ".md"))}


def _ran(source: Source) -> bool:
    """Whether it has rows that were run: a report of what others published, which is older, is listed alone."""
    return any(job.traits.run for job in source.comparison.jobs)


def _files(folder: str, of: Iterable[str]) -> dict[str, str]:
    """A page for each name, in their order."""
    return {name: f"{folder}/{slug}.html" for name, slug in _slugs(of).items()}


def _slugs(of: Iterable[str]) -> dict[str, str]:
    """Different ones for different names."""
    found: dict[str, str] = {}
    for name in sorted(of):
        slug = base = text.slug(name)[:80]
        number = 1
        while slug in found.values():
            number += 1
            slug = f"{base}-{number}"
        found[name] = slug
    return found


def _anchored(page: Page) -> Page:
    slugs = _slugs({part.title for part in page.parts})
    return replace(page, parts=tuple(replace(part, anchor=slugs[part.title]) for part in page.parts))


# The newest tables


def _index(
    sources: Sequence[Source],
    found: Sequence[Entry],
    others: Mapping[str, Others],
    explained: Mapping[str, Mapping[str, Any]],
    unread: Mapping[str, str],
    places: Places,
    titles: Mapping[str, str],
) -> Page:
    topics: dict[str, list[Listing]] = {}
    for topic, table in listings.newest(found, places):
        topics.setdefault(topic, []).append(table)
    parts = [Part(topic, tuple(tables)) for topic, tables in topics.items()]
    systems = [(Cell(titles[name], file),) for name, file in places.systems.items()]
    machines = [(Cell(name, file),) for name, file in places.machines.items()]
    parts += [Part("Systems", items=tuple(systems)), Part("Machines", items=tuple(machines))]
    parts.append(Part("Reports", (listings.reports(sources, found),)))
    if others:
        each = [
            (
                Cell(text.line(one.title), f"{REPORTS}/{quote(name)}/report.html"),
                Cell(f": {text.line(one.by)}" if one.by else ""),
            )
            for name, one in others.items()
        ]
        parts.append(Part("Published by others", items=tuple(each), about=OF_OTHERS))
    if explained:
        why = [
            (
                Cell(text.line(str(held["title"])), f"{REPORTS}/{quote(name)}/why.html"),
                Cell(f": {text.line(str(held['summary']), 1000)}"),
            )
            for name, held in sorted(explained.items(), reverse=True)
        ]
        parts.append(Part("Why steps differ", items=tuple(why), about="What each framework's profiler saw of a step."))
    if unread:
        told = tuple((Cell(f"{name}: {text.line(why, 1000)}"),) for name, why in sorted(unread.items()))
        parts.append(Part("Not in this site", items=told, about="What could not be read, and why."))
    return Page(INDEX, TITLE, ABOUT, tuple(parts))


# Of a system, of a machine, of DLPerf


def _system(title: str, places: Places, colour: str, entries: Sequence[Entry]) -> Page:
    """entries: the newest first."""
    parts = []
    for machine, mine in grouped(entries, lambda one: one.machine):
        tables = [
            listings.past(each, machine, colour)
            for _, each in grouped(mine, lambda one: (one.topic, one.work, one.size))
        ]
        parts.append(Part(machine, tuple(tables), link=places.machines[machine]))
    return Page(places.systems[entries[0].framework], title, (HISTORY,), tuple(parts))


def _machine(machine: str, places: Places, entries: Sequence[Entry]) -> Page:
    """entries: the newest first."""
    parts = []
    for name, several in groupby(entries, lambda one: one.source.name if one.source else ""):
        mine = list(several)
        tables = [listings.measured(topic, each, places) for topic, each in grouped(mine, lambda one: one.topic)]
        link = report_link(mine[0].source) if mine[0].source else TABLES_2020
        title = name if mine[0].date in name else f"{mine[0].date}: {name or NOT_OURS}"
        parts.append(Part(title, tuple(tables), link=link))
    return Page(places.machines[machine], machine, (ON_MACHINE,), tuple(parts))


def _tables_2020(published: Sequence[Published], places: Places) -> Page:
    """In the order in which they were published."""
    topics: dict[str, dict[int, list[Published]]] = {}
    for one in published:
        topic = next(history.of_2020(one)).topic
        topics.setdefault(topic, {}).setdefault(one.batch_size, []).append(one)
    parts = [
        Part(topic, tuple(listings.table_2020(rows, places) for rows in batches.values()))
        for topic, batches in topics.items()
    ]
    return Page(TABLES_2020, "DLPerf's tables of October 2020", ABOUT_2020, tuple(parts))
