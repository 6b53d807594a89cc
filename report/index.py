"""The list of published reports: report/published/README.md. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dlperf.report import markdown, public
from dlperf.report.view import view
from dlperf.schema import Comparison

HEAD = """\
<!-- Made from each folder's results.json: `make test TEST_ARGS="--update-golden tests/report/test_report.py"`. -->
# Published reports

Each folder holds the whole report (`report.md`, `report.html`), its data (`results.csv`, `results.json`) and charts.
`dlperf-2020.csv` has the tables that DLPerf published in 2020. [h200-counted.md](h200-counted.md) is what a step comes
to on a GPU that was not there: counted, not measured.
"""


#: where the first entry begins
ENTRY = re.compile(r"^\n## (\[|Why steps differ$)", re.MULTILINE)

WHY = """
## Why steps differ

By `python -m dlperf.why`, which sorts what each framework's profiler saw of a step.

"""


def index(published: Mapping[str, Comparison], explained: Mapping[str, Mapping[str, Any]], head: str = HEAD) -> str:
    """The newest first, each with what its sections found. published: by the name of the folder. explained: what a
    folder's why.json holds."""
    made = head + "".join(_entry(name, published[name]) for name in sorted(published, reverse=True))
    told = "".join(_explained(name, explained[name]) for name in sorted(explained, reverse=True))
    return made + WHY + told if told else made


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
    about = f"{markdown.escape(made.title)}. {markdown.escape(made.about)}{unmet}"
    return f"\n## [{name}]({name}/report.md)\n\n{about}\n\n{found}"
