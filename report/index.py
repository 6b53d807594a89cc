"""The list of published reports: report/published/README.md. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dlperf.report import gate, markdown, public, text
from dlperf.report.view import about, title, view
from dlperf.schema import Comparison

HEAD = """\
<!-- Made from each folder's results.json: `make test TEST_ARGS="--update-golden tests/report/test_report.py"`. -->
# Published reports

Each folder holds the whole report (`report.md`, `report.html`), its data (`results.csv`, `results.json`) and charts.
`dlperf-2020.csv` has the tables that DLPerf published in 2020. [h200-counted.md](h200-counted.md) is what a step comes
to on a GPU that was not there: counted, not measured. Folders with `figures.csv` are not reports: they hold what others
published (DLPerf, NVIDIA, PaddlePaddle, MLPerf and more), a line for each cell with its file, line and known doubts,
and in `source.toml` what was measured and how. [AUDIT.md](AUDIT.md) is what does not fit in their tables.
"""


#: where the first entry begins
ENTRY = re.compile(r"^\n## (\[|Why steps differ$|Without all conditions$)", re.MULTILINE)

ANYWAY = """
## Without all conditions

Made before `dlperf.publish` had conditions, or published although some are not met.

"""

WHY = """
## Why steps differ

By `python -m dlperf.why`, which sorts what each framework's profiler saw of a step.

"""


def index(published: Mapping[str, Comparison], explained: Mapping[str, Mapping[str, Any]], head: str = HEAD) -> str:
    """The newest first, each with what its sections found; behind them a line for each of ours that does not meet the
    conditions of publishing. published: by the name of the folder. explained: what a folder's why.json holds."""
    unmet = {
        name: dict.fromkeys((*comparison.unmet, *gate.told(one.condition for one in gate.unmet(comparison))))
        for name, comparison in published.items()
        if any(job.traits.worker for job in comparison.jobs)
    }
    names = sorted(published, reverse=True)
    parts = [head, *(_entry(name, published[name]) for name in names if not unmet.get(name))]
    anyway = [_anyway(name, published[name], unmet[name]) for name in names if unmet.get(name)]
    parts += [ANYWAY, *anyway] if anyway else []
    told = [_explained(name, explained[name]) for name in sorted(explained, reverse=True)]
    return "".join([*parts, WHY, *told] if told else parts)


def listing(made: Mapping[str, Comparison]) -> str:
    """Of reports that are not published, whatever their conditions."""
    return "# Reports\n" + "".join(_entry(name, made[name]) for name in sorted(made, reverse=True))


def head(page: str) -> str:
    """What stands above the entries of a list, or all of a page that has none."""
    return page[: found.start()] if (found := ENTRY.search(page)) else page.rstrip("\n") + "\n"


def _explained(name: str, held: Mapping[str, Any]) -> str:
    return f"- **[{markdown.escape(held['title'])}]({name}/why.md)**: {markdown.escape(held['summary'])}\n"


def _entry(name: str, comparison: Comparison) -> str:
    made = view(public.cleaned(comparison))
    found = "".join(
        f"- **{markdown.escape(one.title)}**: {markdown.escape(one.summary)}\n" for one in made.sections if one.summary
    )
    unmet = f" **{markdown.escape(made.unmet)}**" if made.unmet else ""
    first = f"{markdown.escape(made.title)}. {markdown.escape(made.about)}{unmet}"
    return f"\n## [{name}]({name}/report.md)\n\n{first}\n\n{found}"


def _anyway(name: str, comparison: Comparison, unmet: Iterable[str]) -> str:
    made = public.cleaned(comparison)
    told = f"{title(made)}. {about(made)} But {text.listing(map(text.line, unmet))}."
    return f"- [{name}]({name}/report.md): {markdown.escape(told)}\n"
