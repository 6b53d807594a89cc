"""Renders reports again, from the folders of comparisons or from their results.json."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.report", description=__doc__)
    made.add_argument(
        "sources", metavar="RUN", nargs="+", help="a comparison's folder, a published report's, or a results.json"
    )
    made.add_argument(
        "-o", "--output", metavar="DIR", help="where to; of several each has a folder there, and README.md lists them"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 where a source is none, or the output has other files."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _report(arguments))


def _report(arguments: Mapping[str, Any]) -> int:
    from dlperf import report
    from dlperf.comparison import store
    from dlperf.report.index import listing

    sources = [Path(source) for source in arguments["sources"]]
    found = [store.read(source) for source in sources]  # all of them, before anything is written
    for source, (_, changed) in zip(sources, found, strict=True):
        for warning in changed:
            print(f"{source}: {warning}", file=sys.stderr)
    places = _places(sources, arguments["output"])
    for place, (comparison, _) in zip(places, found, strict=True):
        with store.locked(place) if (place / store.MANIFEST).exists() else nullcontext():
            report.write(comparison, place)
        print(f"Report: {place / 'report.md'} and {place / 'report.html'}")
    if len(places) > 1 and arguments["output"]:
        list_ = Path(arguments["output"]) / "README.md"
        made = {place.name: comparison for place, (comparison, _) in zip(places, found, strict=True)}
        list_.write_text(listing(made), encoding="utf-8")
        print(f"List: {list_}")
    return 0


def _places(sources: Sequence[Path], output: str | None) -> list[Path]:
    """The folder of each source's report. UsageError for one that has other files."""
    own = [(source.parent if source.is_file() else source).resolve() for source in sources]
    if output is None:
        return own
    if Path(output).is_file():
        raise UsageError([Problem("--output", output, says="this is a file. Choose a folder.")])
    names: list[str] = []
    for place in own:
        taken = [name for name in names if re.fullmatch(rf"{re.escape(place.name)}(-\d+)?", name)]
        names.append(f"{place.name}-{len(taken) + 1}" if taken else place.name)
    places = [Path(output) / name for name in names] if len(own) > 1 else [Path(output)]
    for place in places:
        if place.is_dir() and any(place.iterdir()) and not (place / "results.json").exists():
            says = f"{place} holds something else than a report. Choose another folder."
            raise UsageError([Problem("--output", output, says=says)])
    return places


if __name__ == "__main__":
    sys.exit(main())
