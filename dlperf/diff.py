"""Whether B's rows are slower than A's, what changed between the two, and how sure that is."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, RunError, UsageError, whole_number

if TYPE_CHECKING:
    from dlperf.figures.changes import Changes
    from dlperf.schema import Comparison

SIDE = (
    "a comparison's folder, a published report's or its name, a results.json or an archive; of several sessions, "
    "separated by commas"
)
FORMATS = ("text", "markdown", "json")
#: of each row on each side, with --rerun
REPEATS, MOST_REPEATS = 5, 1000
EXIT_CODES = (
    "Exit codes: 0 if all rows are decided and none is slower; 1 if one is slower by more than P; 3 if none is, but "
    "one is undecided or has no run; 2 for a wrong request."
)


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.diff", description=__doc__, epilog=EXIT_CODES)
    made.add_argument("a", metavar="A", help=SIDE)
    made.add_argument("b", metavar="B", help="likewise")
    made.add_argument("--fail-above", metavar="P", default="3%", help="what a row may be slower by; default: 3%%")
    made.add_argument("--format", metavar="F", default="text", help="text, markdown or json; default: text")
    made.add_argument("-o", "--output", metavar="FILE", help="write it to this file")
    made.add_argument(
        "--rerun",
        action="store_true",
        help="run the rows that A and B share again, in turns, each with its own code and environment; compare these",
    )
    made.add_argument("-r", "--repeats", metavar="N", help="with --rerun: runs of each row on each side; default: 5")
    made.add_argument("--runs", metavar="DIR", help="with --rerun: a new folder for them; default: runs/diff-DATE")
    made.add_argument("-q", "--quiet", action="store_true", help="no progress, and of the text the last line alone")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """See EXIT_CODES."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _diff(arguments), kept="Finished runs are kept.")


def _diff(arguments: Mapping[str, Any]) -> int:
    share = _checked(arguments)
    sides = [_places(arguments[side]) for side in ("a", "b")]
    found, read = _found(sides, share)
    if arguments["rerun"]:
        sides = _rerun(found, sides, arguments)
        found, read = _found(sides, share)
    return _told(found, sides, read, arguments)


def _found(sides: Sequence[Sequence[Path]], share: float) -> tuple[Changes, Sequence[Sequence[Comparison]]]:
    from dlperf.figures.changes import changes

    read = [[_read(place, side) for place in places] for side, places in zip("AB", sides, strict=True)]
    _different(sides, read)
    found = changes(read[0], read[1], share)
    _some_match(found)
    return found, read


def _told(
    found: Changes,
    sides: Sequence[Sequence[Path]],
    read: Sequence[Sequence[Comparison]],
    arguments: Mapping[str, Any],
) -> int:
    from dlperf.report import diff

    heads = [_head(places, several) for places, several in zip(sides, read, strict=True)]
    told = diff.FORMATS[arguments["format"]](found, heads)
    if arguments["output"]:
        Path(arguments["output"]).write_text(told, encoding="utf-8")
        print(diff.conclusion(found))
    elif arguments["quiet"] and arguments["format"] == "text":
        print(diff.conclusion(found))
    else:
        print(told, end="")
    return code(found)


def code(found: Changes) -> int:
    """See EXIT_CODES."""
    from dlperf.figures.changes import NO_RUN
    from dlperf.figures.verdicts import SLOWER, UNDECIDED

    return 1 if SLOWER in found.words else 3 if {UNDECIDED, NO_RUN} & set(found.words) else 0


def _checked(arguments: Mapping[str, Any]) -> float:
    """P. UsageError for all that is wrong."""
    wrong = []
    percent = re.fullmatch(r"([0-9]{1,2}(?:\.[0-9]{1,18})?)%", arguments["fail_above"])
    share = float(percent[1]) / 100 if percent else 0.0
    if not share:
        allowed = "a share of A's rate above 0 and below 100 %"
        wrong.append(Problem("--fail-above", arguments["fail_above"], allowed, "Try --fail-above 3%."))
    if arguments["format"] not in FORMATS:
        wrong.append(Problem("--format", arguments["format"], ", ".join(FORMATS)))
    if arguments["output"]:
        output = Path(arguments["output"])
        if output.is_dir():
            wrong.append(Problem("--output", output, says="this is a folder. Name a file."))
        elif output.exists():
            wrong.append(Problem("--output", output, says="this file exists. Name another, or remove it."))
        elif not output.absolute().parent.is_dir():
            wrong.append(Problem("--output", output, says="its folder does not exist. Make it first."))
    for name in ("repeats", "runs"):
        if arguments[name] and not arguments["rerun"]:
            wrong.append(
                Problem(f"--{name}", arguments[name], says="it is of --rerun, which is not given. Leave it out.")
            )
    if arguments["repeats"] and whole_number(arguments["repeats"], 2, MOST_REPEATS) is None:
        wrong.append(Problem("--repeats", arguments["repeats"], f"2 to {MOST_REPEATS}"))
    if wrong:
        raise UsageError(wrong)
    return share


def _places(side: str) -> list[Path]:
    """A name with a comma is one place if it exists."""
    from dlperf import sources

    return [Path(side)] if Path(side).exists() else [sources.run(one) for one in side.split(",")]


def _read(place: Path, side: str) -> Comparison:
    """UsageError where there is no comparison, or none of its runs has a rate."""
    from dlperf.comparison import store
    from dlperf.report import public

    if not str(place).strip() or not store.holds(place):
        says = "this is no comparison's folder and no results.json. Separate several sessions with commas."
        raise UsageError([Problem(side, place, says=says)])
    found, changed = store.read(place)
    for warning in changed:
        print(f"{place}: {warning}", file=sys.stderr)
    if why := _no_rate(found):
        raise UsageError([Problem(side, place, says=why)])
    return public.cleaned(public.unnamed(found, place if place.is_dir() else place.parent))


def _no_rate(found: Comparison) -> str:
    """Why there is nothing to compare; empty if there is something."""
    if any(record.done for record in found.records):
        return ""
    failed = next((record.failure for record in reversed(found.records) if record.failure), None)
    why = f"the last one failed: {failed.kind}: {failed.message}" if failed else "there are none"
    return f"no run of it has a rate; {why}."


def _different(sides: Sequence[Sequence[Path]], read: Sequence[Sequence[Comparison]]) -> None:
    """UsageError where one comparison is named twice, if by a copy: its runs count once."""
    seen: dict[object, Path] = {}
    for place, one in zip([*sides[0], *sides[1]], [*read[0], *read[1]], strict=True):
        runs = one.created, tuple((record.job.id, record.started, record.seconds) for record in one.records)
        if runs in seen:
            says = f"this is the same comparison as {seen[runs]}. Name another one."
            raise UsageError([Problem("B" if place in sides[1] else "A", place, says=says)])
        seen[runs] = place


def _some_match(found: Changes) -> None:
    """UsageError where no row is in both."""
    from dlperf.figures.changes import ONLY_A, ONLY_B
    from dlperf.report import diff

    if any(row.a and row.b for row in found.rows):
        return
    have = [[diff.row(row.job) for row in found.rows if row.word == word] for word in (ONLY_A, ONLY_B)]
    says = f"no row of it is in A. A has: {'; '.join(have[0])}. B has: {'; '.join(have[1])}."
    raise UsageError([Problem("B", "", says=says)])


def _rerun(found: Changes, sides: Sequence[Sequence[Path]], arguments: Mapping[str, Any]) -> list[list[Path]]:
    """Run the rows that both have again, on this machine. Returns the folders of these runs, of A and of B.

    UsageError, of all rows, where some cannot be: a comparison of the others would be another one.
    """
    from dlperf import machine
    from dlperf.comparison import again, store
    from dlperf.figures.changes import OTHER_WORK

    several = [",".join(map(str, places)) for places in sides if len(places) > 1]
    if several:
        raise UsageError([Problem("--rerun", several[0], says="it runs one comparison of each side. Name one.")])
    sources = [again.opened(places[0], side) for side, places in zip("AB", sides, strict=True)]
    both = [(row.a.id, row.b.id) for row in found.rows if row.a and row.b and row.word != OTHER_WORK]
    if not both:
        raise UsageError([Problem("--rerun", "", says="no row of B does the work of one of A.")])
    known = [{job.id: job for job in source.plan.jobs} for source in sources]
    rows = [[known[0][a], known[1][b]] for a, b in both]
    wrong = [
        Problem(side, job.id, says=f"it cannot be run again: {obstacle}.")
        for row in rows
        for side, source, job in zip("AB", sources, row, strict=True)
        if (obstacle := again.obstacle(source, job))
    ]
    if wrong:
        raise UsageError(wrong)
    folder = Path(arguments["runs"]) if arguments["runs"] else store.dated("diff")
    store.claim(folder)
    repeats, described, turns = int(arguments["repeats"] or REPEATS), machine.describe(), secrets.token_hex(8)
    made = [
        again.create(source, folder / name, [row[number] for row in rows], repeats, described, turns)
        for number, (name, source) in enumerate(zip("ab", sources, strict=True))
    ]
    with store.locked(made[0].store.folder), store.locked(made[1].store.folder):
        again.take_turns(made[0], made[1], rows, repeats, _silent if arguments["quiet"] else _progress)
    print(f"Runs: {folder}", file=sys.stderr)
    for one in made:
        if why := _no_rate(one.store.comparison):
            raise RunError("crash", f"{one.store.folder}: {why}")
    return [[one.store.folder] for one in made]


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    """Nobody wants to know."""


def _head(places: Sequence[Path], several: Sequence[Comparison]) -> str:
    names = [place.resolve().parent.name if place.is_file() else place.resolve().name for place in places]
    return ", ".join(f"{name} ({one.created}, dlperf {one.version})" for name, one in zip(names, several, strict=True))


if __name__ == "__main__":
    sys.exit(main())
