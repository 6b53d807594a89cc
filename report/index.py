"""The list of published reports: report/published/README.md. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dlperf import markdown
from dlperf.figures.published import Source
from dlperf.report import gate, public, text
from dlperf.report.view import about, title, view
from dlperf.schema import Comparison

HEAD = """\
<!-- Made from each folder's results.json: `make test TEST_ARGS="--update-golden tests/report/test_report.py"`. -->
# Published reports

Each folder holds the whole report (`report.md`, `report.html`), its data (`results.csv`, `results.json`) and charts.
[h200-counted.md](h200-counted.md) is what a step comes to on a GPU that was not there: counted, not measured. Folders
with `figures.csv` hold what others published (DLPerf, NVIDIA, PaddlePaddle, MLPerf and more), a line for each cell with
its file, line and known doubts, and in `source.toml` what was measured and how: `python -m dlperf.report --published
NAME -o DIR` makes a report of it. [DLPerf's report V1.0](dlperf-v1.0/report.md) is there cell for cell, with its charts
and notes. Beside the closest of its rows stand ours: [float32 on a CPU](2026-11-27-cpu-fp32/against.md) and
[ResNet-50 on an H200](2026-11-27-h200-fp16-resnet50/against.md), also beside NVIDIA's, with all that differs.
[AUDIT.md](AUDIT.md) is what does not fit in published tables.
"""


#: where the first entry begins
ENTRY = re.compile(r"^\n## (\[|Why steps differ$|Without all conditions$)", re.MULTILINE)

ANYWAY = """
## Without all conditions

Made before `dlperf.publish` had conditions, or published although some are not met.

"""

OTHERS = """
## Published by others

"""

WHY = """
## Why steps differ

By `python -m dlperf.why`, which sorts what each framework's profiler saw of a step.

"""


def index(published: Mapping[str, Comparison], explained: Mapping[str, Mapping[str, Any]], head: str = HEAD) -> str:
    """The newest first, each with what its sections found; behind them a line for each of ours that does not meet the
    conditions of publishing. published: by the name of the folder. explained: what a folder's why.json holds."""
    unmet = {name: gate.of_published(comparison) for name, comparison in published.items()}
    names = sorted(published, reverse=True)
    parts = [head, *(_entry(name, published[name]) for name in names if not unmet[name])]
    anyway = [_anyway(name, published[name], unmet[name]) for name in names if unmet[name]]
    parts += [ANYWAY, *anyway] if anyway else []
    told = [_explained(name, explained[name]) for name in sorted(explained, reverse=True)]
    return "".join([*parts, WHY, *told] if told else parts)


def listing(made: Mapping[str, Comparison | Source]) -> str:
    """Of reports that are not published, whatever their conditions; behind them what others published."""
    ours = {name: one for name, one in made.items() if isinstance(one, Comparison)}
    others = {name: one for name, one in made.items() if isinstance(one, Source)}
    entries = [*(_entry(name, ours[name]) for name in sorted(ours, reverse=True))]
    told = "".join(others_entry(name, others[name]) for name in sorted(others))
    return "".join(["# Reports\n", *entries, *([f"{OTHERS}{told}"] if told else [])])


def others_entry(name: str, source: Source) -> str:
    by = f" ({markdown.escape(text.line(source.by))})" if source.by else ""
    return f"- [{name}]({name}/report.md): {markdown.escape(text.line(source.title))}{by}\n"


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
