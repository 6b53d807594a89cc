"""Renders reports again: of comparisons, from their folders or results.json, and of what others published."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError, reason

if TYPE_CHECKING:
    from dlperf.figures.published import Source
    from dlperf.report.why import Explained
    from dlperf.schema import Comparison

FIGURES_JSON = "figures.json"
WHY = "why.json"


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.report", description=__doc__)
    made.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        help="a comparison's folder, a published report's or its name, a results.json or an archive; a folder with a "
        "figures.csv or why.json",
    )
    made.add_argument(
        "--published", metavar="SOURCE[,SOURCE]", help="what others published, such as dlperf-v1.0, cell for cell"
    )
    made.add_argument(
        "--against",
        metavar="SOURCE[,SOURCE]",
        help="beside each report against.md and against.html: its rows beside the closest ones that others published",
    )
    made.add_argument(
        "-o", "--output", metavar="DIR", help="where to; of several each has a folder there, and README.md lists them"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 where a run or a source is none, or the output has other files."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _report(arguments))


def _report(arguments: Mapping[str, Any]) -> int:
    from dlperf import report
    from dlperf.comparison import store
    from dlperf.report.index import listing
    from dlperf.report.why import Explained

    wanted = _wanted(arguments)
    against = [_source(name, "--against") for name in _names(arguments["against"])]
    found = [_read(place) for place in wanted]  # all of them, before anything is written
    places = _places(wanted, found, arguments["output"])
    for place, one in zip(places, found, strict=True):
        with store.locked(place) if (place / store.MANIFEST).exists() else nullcontext():
            _write(one, place, against)
        page = "why" if isinstance(one, Explained) else "report"
        print(f"Report: {place / f'{page}.md'} and {place / f'{page}.html'}")
        if against:
            print(f"Beside what others published: {place / report.AGAINST[0]} and {place / report.AGAINST[1]}")
    if len(places) > 1 and arguments["output"]:
        list_ = Path(arguments["output"]) / "README.md"
        listed = {place.name: one for place, one in zip(places, found, strict=True) if not isinstance(one, Explained)}
        list_.write_text(listing(listed), encoding="utf-8")
        print(f"List: {list_}")
    return 0


# What is asked for


def _names(told: str | None) -> list[str]:
    return list(dict.fromkeys(filter(None, (name.strip() for name in (told or "").split(",")))))


def _wanted(arguments: Mapping[str, Any]) -> list[Path]:
    from dlperf import sources

    for flag in ("published", "against"):
        if arguments[flag] is not None and not _names(arguments[flag]):
            raise UsageError([Problem(f"--{flag}", "", says=f"names none. Sources: {', '.join(sources.names())}.")])
    named = [(name, sources.find(name, "--published")) for name in _names(arguments["published"])]
    runs = [sources.run(run) for run in arguments["runs"]]
    if not (runs or named):
        says = "nothing to report: name a run or, with --published, what others published, such as dlperf-v1.0."
        raise UsageError([Problem("RUN", "", says=says)])
    if arguments["against"] is not None and (named or any(map(_is_source, runs)) or any(map(_is_why, runs))):
        raise UsageError([Problem("--against", arguments["against"], says="goes with runs alone. Name no source.")])
    installed = [name for name, place in named if sources.own(place) and not sources.in_checkout()]
    if installed and arguments["output"] is None:
        says = "its folder belongs to the installed package. Add -o DIR."
        raise UsageError([Problem("--published", installed[0], says=says)])
    return [*runs, *(place for _, place in named)]


def _is_source(place: Path) -> bool:
    """Of a folder that has both, the results of a comparison come first."""
    from dlperf import sources
    from dlperf.comparison import store

    return sources.holds(place) and (place.is_file() or not store.holds(place))


def _is_why(place: Path) -> bool:
    """What dlperf.why made, without its runs: those are a comparison's."""
    from dlperf.comparison import store

    return place.name == WHY if place.is_file() else (place / WHY).is_file() and not store.holds(place)


def _source(name: str, field: str) -> Source:
    from dlperf import sources

    return sources.read_source(sources.find(name, field))


def _read(place: Path) -> Comparison | Source | Explained:
    from dlperf import report, sources
    from dlperf.comparison import store
    from dlperf.stored import DAMAGED

    if _is_source(place):
        return sources.read_source(place)
    if _is_why(place):
        path = place if place.is_file() else place / WHY
        try:
            return report.read_why(path)
        except DAMAGED as error:
            says = f"not what this dlperf.why writes ({reason(error)}). Name another, or make it again."
            raise UsageError([Problem("RUN", path, says=says)]) from None
    comparison, changed = store.read(place)
    for warning in changed:
        print(f"{place}: {warning}", file=sys.stderr)
    return comparison


# Where it goes


def _places(wanted: Sequence[Path], found: Sequence[Comparison | Source | Explained], output: str | None) -> list[Path]:
    """The folder of each one's report. UsageError for one that has other files."""
    own = [(source.parent if source.is_file() else source).resolve() for source in wanted]
    if output is None:
        return own
    if Path(output).is_file():
        raise UsageError([Problem("--output", output, says="this is a file. Choose a folder.")])
    names: list[str] = []
    for place in own:
        taken = [name for name in names if re.fullmatch(rf"{re.escape(place.name)}(-\d+)?", name)]
        names.append(f"{place.name}-{len(taken) + 1}" if taken else place.name)
    places = [Path(output) / name for name in names] if len(own) > 1 else [Path(output)]
    for place, mine, one in zip(places, own, found, strict=True):
        if place.is_dir() and any(place.iterdir()) and place.resolve() != mine and not _replaces(one, place):
            says = f"{place} holds something else than a report of this. Choose another folder."
            raise UsageError([Problem("--output", output, says=says)])
    return places


def _replaces(one: Comparison | Source | Explained, place: Path) -> bool:
    """Whether a folder holds a report that this one may take the place of: any comparison's, or the source's own."""
    from dlperf.figures.published import Source
    from dlperf.report.why import Explained
    from dlperf.stored import DAMAGED, decoded

    if not isinstance(one, Source):
        return (place / (WHY if isinstance(one, Explained) else "results.json")).exists()
    try:
        held = decoded((place / FIGURES_JSON).read_bytes())
    except (OSError, *DAMAGED):
        return False
    return isinstance(held, dict) and held.get("id") == one.id


def _write(one: Comparison | Source | Explained, place: Path, against: Sequence[Source]) -> None:
    from dlperf import report
    from dlperf.figures.published import Source
    from dlperf.report.why import Explained

    if isinstance(one, Explained):
        report.place(report.render_why(one), place)
        return
    if not isinstance(one, Source):
        report.write(one, place)
        if against:
            report.write_against(one, against, place)
        return
    files = report.render_source(one)
    report.place({name: text for name, text in files.items() if not _same(one, name, place / name)}, place)


def _same(source: Source, name: str, path: Path) -> bool:
    """Whether a file of the source is there already; that is left alone, above all in the source's own folder."""
    return name in source.files and path.is_file() and path.read_bytes() == source.files[name].encode()


if __name__ == "__main__":
    sys.exit(main())
