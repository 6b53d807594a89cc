"""Prints the small tables of a comparison as Markdown, or a badge, or renews tables and charts in a page between two
marks."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from dlperf import sources
from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError, did_you_mean

if TYPE_CHECKING:
    from dlperf.schema import Comparison

T = TypeVar("T")
#: around a table or a chart in a page: which results, relative to the page, and which section of them
MARK = re.compile(r"<!-- dlperf (?:table|chart) \S+ \S+ -->\n")
MARKED = re.compile(
    r"(<!-- dlperf (table|chart) (\S+) (\S+) -->\n)(?:(?!<!-- dlperf ).)*?(<!-- end of the \2 -->)", re.DOTALL
)


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.table", description=__doc__)
    made.add_argument(
        "source",
        metavar="RUN",
        nargs="?",
        help="a comparison's folder, a published report's or its name, or a results.json",
    )
    made.add_argument("sections", metavar="SECTION", nargs="*", help="such as bert_base-fp32-cpu; default: all")
    made.add_argument(
        "--badge",
        action="store_true",
        help="print what shields.io's endpoint badge takes, as JSON: the fastest of SECTION, or a row by its name",
    )
    made.add_argument(
        "--write",
        metavar="PAGE",
        help="renew what stands in a page between <!-- dlperf table RUN SECTION --> and <!-- end of the table -->, and "
        "the same of a chart",
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 where there is no such run or section."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _table(arguments))


def _table(arguments: Mapping[str, Any]) -> int:
    if bool(arguments["source"]) == bool(arguments["write"]):
        raise UsageError([Problem("RUN", arguments["source"] or "", says="name either a run, or a page with --write.")])
    if arguments["write"] and arguments["badge"]:
        raise UsageError([Problem("--badge", "", says="it is printed, and stands in no page. Leave --write out.")])
    if arguments["write"]:
        page = Path(arguments["write"])
        try:
            page.write_text(renewed(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")
        except OSError as error:
            says = f"cannot be read or written: {error.strerror}."
            raise UsageError([Problem("--write", page, says=says)]) from None
        except UnicodeDecodeError as error:
            raise UsageError([Problem("--write", page, says=f"is not UTF-8 (byte {error.start}).")]) from None
        return 0
    if arguments["badge"]:
        print(json.dumps(_badge(sources.run(arguments["source"]), arguments["sections"]), ensure_ascii=False))
        return 0
    found = _tables(sources.run(arguments["source"]))
    print("\n".join(_of(found, name) for name in arguments["sections"] or found), end="")
    return 0


def renewed(page: str, folder: Path) -> str:
    """A page with the tables and charts that its marks name. folder: the page's. UsageError where one does not exist, a
    mark is not followed by its end, and where there is none."""
    whole = {found.start() for found in MARKED.finditer(page)}
    for mark in MARK.finditer(page):
        if mark.start() not in whole:
            line = page.count("\n", 0, mark.start()) + 1
            says = (
                f"line {line}: no <!-- end of the table --> or <!-- end of the chart --> follows before the next mark."
            )
            raise UsageError([Problem(mark[0].strip(), "", says=says)])
    if not whole:
        says = "the page has no <!-- dlperf table RUN SECTION --> with <!-- end of the table --> behind it. Add them."
        raise UsageError([Problem("--write", "", says=says)])

    def made(found: re.Match[str]) -> str:
        head, kind, source, section, tail = found.groups()
        place = folder / source
        return f"{head}{_of(_tables(place), section) if kind == 'table' else _chart(place, source, section)}{tail}"

    return MARKED.sub(made, page)


def _tables(source: Path) -> Mapping[str, str]:
    from dlperf import report

    return report.tables(_comparison(source))


def _badge(source: Path, named: Sequence[str]) -> Mapping[str, object]:
    from dlperf.report.badge import badges

    found = badges(_comparison(source))
    if len(named) != 1:
        says = f"a badge is of one section or row. Name one of {', '.join(found) or 'none, since no row has a figure'}."
        raise UsageError([Problem("SECTION", " ".join(named), says=says)])
    return _of(found, named[0])


def _chart(source: Path, named: str, section: str) -> str:
    """The line that shows a report's chart of a section. named: the source as its page names it."""
    from dlperf import report

    words, file = _of(report.pictures(_comparison(source)), section)
    folder, seen = source, PurePosixPath(named)
    if not source.is_dir():
        folder, seen = folder.parent, seen.parent
    if not (folder / file).is_file():
        says = f"it has no {file} beside it. Render its report: python -m dlperf.report {named}"
        raise UsageError([Problem("RUN", named, says=says)])
    return f"![{words}]({seen / file})\n"


def _comparison(source: Path) -> Comparison:
    from dlperf.comparison import store

    return store.read(source)[0]


def _of(tables: Mapping[str, T], section: str) -> T:
    if section not in tables:
        step = did_you_mean(section, tables)
        raise UsageError([Problem("SECTION", section, ", ".join(tables) or "none, since no row has a figure", step)])
    return tables[section]


if __name__ == "__main__":
    sys.exit(main())
