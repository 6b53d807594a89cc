"""Looks for what is wrong in published figures, in tables of one's own and in comparisons."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError
from dlperf.processes import uncollected

EXIT_CODES = (
    "Exit codes: 0 if no error is found, whatever the warnings; 1 if there is one; 2 for an invalid request, or "
    "for what cannot be read."
)
#: of the page over all published sources
PAGE = "AUDIT.md"


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.audit", description=__doc__, epilog=EXIT_CODES)
    made.add_argument(
        "sources",
        metavar="FILE|RUN|SOURCE",
        nargs="*",
        help="a figures.csv, or tables in CSV, Markdown, HTML or JSON; a log, or a folder of tables and logs; a "
        "comparison's folder, a published report's, or a results.json; the id of a published source, as dlperf-v1.0",
    )
    made.add_argument("--json", action="store_true", help="findings and rules as JSON")
    made.add_argument("--rules", action="store_true", help="list the rules, each with the source of its threshold")
    made.add_argument("-o", "--output", metavar="DIR", help=f"also write {PAGE} and audit.json into a folder")
    made.add_argument("--write", action="store_true", help=f"renew report/published/{PAGE}, over all published sources")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """See EXIT_CODES."""
    arguments = vars(parser().parse_args(argv))
    with uncollected():
        return exit_code(lambda: _audit(arguments))


def _audit(arguments: Mapping[str, Any]) -> int:
    from dlperf import sources
    from dlperf.audit import page, reading
    from dlperf.audit.rules import audit_all

    if arguments["rules"]:
        print(page.rules(), end="")
        return 0
    names = list(arguments["sources"])
    if arguments["write"] == bool(names):
        says = "name what to audit, or --write, which audits all published sources."
        raise UsageError([Problem("FILE|RUN|SOURCE", " ".join(names), says=says)])
    if arguments["write"]:
        subjects = [reading.folder(sources.published() / name) for name in sources.names()]
    else:
        subjects = [one for name in dict.fromkeys(names) for one in reading.subjects(name)]
    found = audit_all(subjects)
    if arguments["write"]:
        told = {name: sources.read_source(sources.published() / name).told for name in sources.names()}
        _write(sources.published(), {PAGE: page.markdown(found, told)})
        return 0
    if arguments["output"]:
        _write(Path(arguments["output"]), {PAGE: page.markdown(found), "audit.json": page.as_json(found)})
    print(page.as_json(found) if arguments["json"] else page.text(found), end="")
    return int(any(one.severity == "error" for several in found.values() for one in several))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """OSError where that fails; a file of another name is left as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
        print(f"Written: {folder / name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
