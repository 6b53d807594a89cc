"""Turns records into report.md, report.html, results.csv, results.json and charts; certificates into their page."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dlperf import markdown
from dlperf.figures.difference import Side
from dlperf.figures.published import Source
from dlperf.figures.rows import rows
from dlperf.report import against as against_
from dlperf.report import charts, proofs, public, text
from dlperf.report import why as why_
from dlperf.report.narrow import narrow
from dlperf.report.shape import AgainstReport, Chart, LineChart, Page, Report, Row, Section, SourceReport, Table, Why
from dlperf.report.source import source_report
from dlperf.report.view import view
from dlperf.schema import SCHEMA, Comparison
from dlperf.stored import decoded

__all__ = [
    "AGAINST",
    "figures_text",
    "pictures",
    "place",
    "proof_text",
    "read_why",
    "render",
    "render_source",
    "render_why",
    "results_csv",
    "results_json",
    "rows",
    "tables",
    "tables_html",
    "write",
    "write_against",
    "write_proof",
    "write_why",
]

Shown = Report | Why | SourceReport | AgainstReport

TEMPLATES = Path(__file__).parent / "templates"
#: the files of our rows beside what others published
AGAINST = ("against.md", "against.html", "against.csv", "against.json")
#: columns of rows that are not ranked, up to their rates
MEASURED = 8
#: fields that those published before do not have: left out where they are empty, so that their files stay as they are
LATER = ("revision", "unmet")


def write(comparison: Comparison, folder: Path) -> None:
    """Write the report into `folder`: report.md, report.html, results.csv, results.json, charts/*.svg; of several
    models also a page of each, MODEL.md.

    Each file is written aside and moved into place; those that others refer to come first. OSError when that fails.
    """
    place(render(public.unnamed(comparison, folder)), folder)


def write_proof(comparison: Comparison, folder: Path) -> None:
    """Write proof.md, proof.html and certificates.json into `folder`, in the same way."""
    place(render_proof(public.unnamed(comparison, folder)), folder)


def write_against(comparison: Comparison, sources: Sequence[Source], folder: Path) -> None:
    """Write AGAINST and its charts into `folder`, in the same way: the rows beside the closest ones of each source."""
    place(render_against(public.unnamed(comparison, folder), sources), folder)


def write_why(comparison: Comparison, a: Side, b: Side, folder: Path) -> str:
    """Write why.md, why.html, why.svg and why.json into `folder`, in the same way. Returns what a terminal shows."""
    one = why_.explained(public.cleaned(public.unnamed(comparison, folder)), a, b)
    place(render_why(one), folder)
    report = why_.why(one)
    return "\n".join([report.summary, "", *text.in_columns(report.kinds)])


def render_why(one: why_.Explained) -> dict[str, str]:
    """why.json, its pages and their chart. Pure."""
    report = why_.why(one)
    said = {"schema": SCHEMA, "title": report.title, "summary": report.summary}
    drawn = {report.chart.file: charts.svg(report.chart, "why")}
    pages = {"why.md": _markdown(report, "why.md.j2"), "why.html": _html(report, drawn, "why.html.j2")}
    return {"why.json": json.dumps({**said, **dataclasses.asdict(one)}, indent=1) + "\n", **drawn, **pages}


def read_why(path: Path) -> why_.Explained:
    """What a why.json holds. OSError, or one of dlperf.stored.DAMAGED, where it is none."""
    return msgspec.convert(decoded(path.read_bytes()), why_.Explained)


def place(files: Mapping[str, str], folder: Path) -> None:
    """Write the files of a report into `folder`, each aside first. OSError when that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=folder) as aside:
        for name, content in files.items():
            new, old = Path(aside, Path(name).name), folder / name
            new.write_text(content, encoding="utf-8", newline="")
            old.parent.mkdir(exist_ok=True)
            os.replace(new, old)


def render(comparison: Comparison, audited: bool = True) -> dict[str, str]:
    """The report's files by name, relative to its folder. audited: with what the audit found, which reports of older
    dlperf lack. Pure."""
    comparison = public.cleaned(comparison)
    report = view(comparison)
    report = report if audited else dataclasses.replace(report, audits=())
    drawn = {chart.file: charts.svg(chart, Path(chart.file).stem) for chart in _charts(report)}
    return {
        **drawn,
        "results.csv": results_csv(comparison),
        "results.json": results_json(comparison),
        **{page.file: _markdown(report, "model.md.j2", page) for page in report.pages},
        "report.md": _markdown(report),
        "report.html": _html(report, _for_all_widths(_charts(report), drawn)),
    }


def _for_all_widths(charted: Iterable[Chart | LineChart], drawn: Mapping[str, str]) -> dict[str, str]:
    """For a page: bars once more as a telephone has room for them."""
    template = templates(autoescape=True).get_template("narrow.svg.j2")
    bars = {one.file: template.render(chart=narrow(one)) for one in charted if isinstance(one, Chart)}
    return {
        file: f'<div class="wide">\n{picture}</div>\n{bars[file]}' if file in bars else picture
        for file, picture in drawn.items()
    }


def _charts(report: Report) -> Iterator[Chart | LineChart]:
    for section in report.sections:
        yield from [section.chart] if section.chart else []
        yield from section.scaling.charts if section.scaling else ()
        yield from [section.links.chart] if section.links and section.links.chart else []


def render_proof(comparison: Comparison) -> dict[str, str]:
    """The certificates alone: their page, and all that is in them."""
    comparison = public.cleaned(comparison)
    report = view(comparison)
    certificates = {job: [dataclasses.asdict(one) for one in each] for job, each in comparison.proofs.items()}
    return {
        "certificates.json": json.dumps({"schema": SCHEMA, "certificates": certificates}, indent=1) + "\n",
        "proof.md": _markdown(report, "proof.md.j2"),
        "proof.html": _html(report, {}, "proof.html.j2"),
    }


def render_against(comparison: Comparison, sources: Sequence[Source]) -> dict[str, str]:
    """The files by name. Pure."""
    comparison = public.cleaned(comparison)
    report = against_.against(comparison, sources)
    told = list(against_.lines(against_.pairs(comparison, sources)))
    held = {"schema": SCHEMA, "sources": [one.name for one in sources], "rows": tuple(told)}
    charted = [table.chart for table in report.tables if table.chart]
    drawn = {chart.file: charts.svg(chart, Path(chart.file).stem) for chart in charted}
    made = (
        _markdown(report, "against.md.j2"),
        _html(report, _for_all_widths(charted, drawn), "against.html.j2"),
        _csv(told, "job"),
        "{" + ",".join(f"\n{json.dumps(key)}: {_lines(value)}" for key, value in held.items()) + "\n}\n",
    )
    return {**drawn, **dict(zip(AGAINST, made, strict=True))}


def render_source(source: Source) -> dict[str, str]:
    """The files of a report on what others published: Markdown, HTML, charts and all of its figures."""
    report = source_report(source)
    charted = [chart for table in report.tables for chart in table.charts]
    drawn = {chart.file: charts.svg(chart, Path(chart.file).stem) for chart in charted}
    told = {name: value for name, value in dataclasses.asdict(source.told).items() if value}
    figures = tuple({key: value for key, value in _fields(one).items() if value} for one in source.figures)
    held = {"schema": SCHEMA, "id": source.id, "source": told, "figures": figures}
    return {
        **drawn,
        **source.files,
        "figures.json": "{"
        + ",".join(f"\n{json.dumps(key)}: {_lines(value)}" for key, value in held.items())
        + "\n}\n",
        "report.md": _markdown(report, "source.md.j2"),
        "report.html": _html(report, _for_all_widths(charted, drawn), "source.html.j2"),
    }


def proof_text(comparison: Comparison) -> str:
    """The certificates for a terminal."""
    lines = []
    for one in proofs.proofs(public.cleaned(comparison)):
        lines += [one.title, " ".join(one.about), "", *text.in_columns(one.systems), ""]
        lines += [*text.in_columns(one.pairs), ""] if one.pairs else []
        lines += [f"- {note}" for note in one.notes] + ([""] if one.notes else [])
    return "\n".join(lines)


def figures_text(comparison: Comparison) -> str:
    """The rows that have figures for a terminal, best first, of several sizes a row each; those that are not ranked;
    and what happened while they were measured. Empty without any."""
    report = view(public.cleaned(comparison))
    lines = []
    for section, brief, notes in _briefly(report):
        lines += [section.title, *text.in_columns(brief), *(f"- {note}" for note in notes), ""]
    for title, table in _apart(report):
        lines += [title, *text.in_columns(table), ""]
    if lines and report.disturbed:
        more = len(report.caveats) - len(report.disturbed)
        lines += ["Caveats", *(f"- {one}" for one in report.disturbed)]
        lines += [*([f"- {text.count(more, 'more caveat')} in the report"] if more else []), ""]
    return "\n".join(lines)


def tables(comparison: Comparison) -> dict[str, str]:
    """The same in Markdown, by the anchors of the sections, each under its title."""
    template = _markdown_environment().get_template("table.md.j2")
    return {
        section.anchor: f"**{markdown.escape(section.title)}**\n\n{template.render(table=brief).strip()}\n"
        for section, brief, _ in _briefly(view(public.cleaned(comparison)))
    }


def pictures(comparison: Comparison) -> dict[str, tuple[str, str]]:
    """The chart of each section, by its anchor: in words, for Markdown, and its file, relative to the report."""
    charts = {section.anchor: section.chart for section in view(public.cleaned(comparison)).sections}
    return {anchor: (markdown.escape(chart.alt), chart.file) for anchor, chart in charts.items() if chart}


def tables_html(comparison: Comparison) -> str:
    """The same for a notebook, with the rows that have no figure and why."""
    template = templates(autoescape=True).get_template("tables.html.j2")
    return template.render(sections=view(public.cleaned(comparison)).sections)


def _apart(report: Report) -> Iterator[tuple[str, Table]]:
    """Rows in no ranking: titles, sizes and figures."""
    for section in report.sections:
        for others in section.others:
            rows = tuple(Row(row.cells[:MEASURED]) for row in others.table.rows if row.kind != "missing")
            if rows:
                yield f"{section.title}: {others.title}", Table(others.table.columns[:MEASURED], rows)


def _briefly(report: Report) -> Iterator[tuple[Section, Table, list[str]]]:
    """What each section begins with: rows with figures, and notes."""
    for section in report.sections:
        if section.pivot:
            yield section, section.pivot.rates, [section.pivot.about, *section.pivot.notes]
        rows = [row for row in section.brief.rows if row.kind != "missing"] if section.brief else []
        if section.brief and rows:
            notes = [f"{row.label}: {row.note}." for row in rows if row.note]
            yield section, Table(section.brief.columns, tuple(rows)), notes


def results_csv(comparison: Comparison) -> str:
    """One line per run, with the columns of `rows`; texts are put on one line."""
    return _csv(rows(comparison), "job")


def _csv(told: Sequence[Mapping[str, Any]], column: str) -> str:
    """column: the only one where there is no line."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(told[0]) if told else [column], lineterminator="\n")
    writer.writeheader()
    for row in told:
        writer.writerow({key: _cell(value) if isinstance(value, str) else value for key, value in row.items()})
    return out.getvalue()


def _cell(told: str) -> str:
    """Of CSV. A spreadsheet computes what begins as a formula does; behind an apostrophe it is text (OWASP, "CSV
    injection")."""
    line = text.line(told, 1000)
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line


def results_json(comparison: Comparison) -> str:
    """The whole comparison, a line for each record; `stored.comparison_from` reads it back."""
    kept = {name: told for name, told in _fields(comparison).items() if told or name not in LATER}
    fields = {"schema": SCHEMA, **kept}
    return "{" + ",".join(f"\n{json.dumps(name)}: {_lines(value)}" for name, value in fields.items()) + "\n}\n"


def _lines(value: Any) -> str:
    """As JSON, each part of a list or a mapping on a line of its own. `json`'s own indentation takes ten times as long,
    and gives each number a line."""
    if isinstance(value, tuple) and value:
        return "[" + ",".join(f"\n {_json(part)}" for part in value) + "\n]"
    if isinstance(value, Mapping) and value:
        return "{" + ",".join(f"\n {json.dumps(key)}: {_json(part)}" for key, part in value.items()) + "\n}"
    return _json(value)


def _fields(value: Any) -> dict[str, Any]:
    """Of a dataclass, by name. `dataclasses.asdict` would copy all that is in it first."""
    return {name: getattr(value, name) for name in _names(value.__class__)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


_json = json.JSONEncoder(default=_fields).encode


def _markdown(report: Shown, template: str = "report.md.j2", page: Page | None = None) -> str:
    return _markdown_environment().get_template(template).render(report=report, page=page)


def _markdown_environment() -> Environment:
    environment = templates(finalize=markdown.escape)
    environment.filters |= {"fence": markdown.fence, "ready": markdown.Verbatim}
    return environment


def _html(report: Shown, drawn: dict[str, str], template: str = "report.html.j2") -> str:
    # Only our own drawings, style sheet and script are marked as ready: all else is escaped.
    pictures = {file: Markup(picture) for file, picture in drawn.items()}
    style, script = (Markup((TEMPLATES / f"report.{kind}").read_text(encoding="utf-8")) for kind in ("css", "js"))
    environment = templates(autoescape=True)
    return environment.get_template(template).render(report=report, charts=pictures, style=style, script=script)


def templates(**options: Any) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
