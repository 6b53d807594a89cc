"""Turns records into report.md, report.html, results.csv, results.json and charts."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dlperf.metrics import rows
from dlperf.report import charts, markdown, text
from dlperf.report.shape import Report
from dlperf.report.view import view
from dlperf.schema import SCHEMA, Comparison

__all__ = ["render", "results_csv", "results_json", "rows", "write"]

TEMPLATES = Path(__file__).parent / "templates"


def write(comparison: Comparison, folder: Path) -> None:
    """Write the report into `folder`: report.md, report.html, results.csv, results.json, charts/*.svg.

    Each file is written aside and moved into place; those that others refer to come first. OSError when that fails.
    """
    files = render(comparison)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=folder) as aside:
        for name, content in files.items():
            new, place = Path(aside, Path(name).name), folder / name
            new.write_text(content, encoding="utf-8", newline="")
            place.parent.mkdir(exist_ok=True)
            os.replace(new, place)


def render(comparison: Comparison) -> dict[str, str]:
    """The report's files by name, relative to its folder. Pure."""
    report = view(comparison)
    drawn = {
        section.chart.file: charts.svg(section.chart, section.anchor) for section in report.sections if section.chart
    }
    return {
        **drawn,
        "results.csv": results_csv(comparison),
        "results.json": results_json(comparison),
        "report.md": _markdown(report),
        "report.html": _html(report, drawn),
    }


def results_csv(comparison: Comparison) -> str:
    """One line per run, with the columns of `rows`; texts are put on one line."""
    runs = rows(comparison)
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(runs[0]) if runs else ["job"], lineterminator="\n")
    writer.writeheader()
    for row in runs:
        writer.writerow(
            {key: text.line(value, 1000) if isinstance(value, str) else value for key, value in row.items()}
        )
    return out.getvalue()


def results_json(comparison: Comparison) -> str:
    """The whole comparison; `schema.comparison_from` reads it back."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(comparison)}, indent=1) + "\n"


def _markdown(report: Report) -> str:
    environment = _environment(finalize=markdown.escape)
    environment.filters["fence"] = markdown.fence
    return environment.get_template("report.md.j2").render(report=report)


def _html(report: Report, drawn: dict[str, str]) -> str:
    # Only our own drawings and style sheet are marked as ready: all else is escaped.
    pictures = {file: Markup(picture) for file, picture in drawn.items()}
    style = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8"))
    environment = _environment(autoescape=True)
    return environment.get_template("report.html.j2").render(report=report, charts=pictures, style=style)


def _environment(**options: Any) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
