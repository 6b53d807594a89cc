"""Puts a comparison among published ones, if it meets the conditions: its report, its archive, and an entry of the
list."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, RunError, UsageError

if TYPE_CHECKING:  # functions import what they use, so that --help and a wrong flag are answered at once
    from dlperf.schema import Comparison

EXIT_CODES = "Exit codes: 0; 1 where it does not meet the conditions, or no archive of it verifies; 2 for an invalid "
EXIT_CODES += "request. But with 0 nothing is written."
LIST = "README.md"
HEAD = "# Published reports\n"


class Explained(TypedDict):
    """Of why.json, what the list shows."""

    title: str
    summary: str


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.publish", description=__doc__, epilog=EXIT_CODES)
    made.add_argument("source", metavar="RUN", help="a comparison's folder")
    made.add_argument("folder", metavar="DIR", help="where published ones are; README.md lists them")
    made.add_argument("--name", metavar="NAME", help="of its folder in DIR; default: RUN's")
    made.add_argument(
        "--anyway", action="store_true", help="also if conditions are not met; the report then says which"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """See EXIT_CODES."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _publish(arguments))


def _publish(arguments: Mapping[str, Any]) -> int:
    from dlperf import report
    from dlperf.archive import pack, signature
    from dlperf.report import gate, index, public

    source, folder = Path(arguments["source"]), Path(arguments["folder"])
    comparison, changed = pack.opened(source)
    place = _place(source, folder, arguments["name"])
    unmet = gate.unmet(comparison, changed)
    if unmet and not arguments["anyway"]:
        lines = [f"{one.condition}: {one.says}" for one in unmet]
        says = (
            f"{source} is not published: it does not meet these conditions. --anyway publishes it, and says so in it."
        )
        raise RunError("publish", says, lines)
    comparison = replace(comparison, unmet=gate.told(one.condition for one in unmet))
    shown = public.unnamed(comparison, source)
    published = _published(folder)
    _same(place, shown, published.get(place.name))
    page = folder / LIST
    head = index.head(page.read_text(encoding="utf-8")) if page.exists() else HEAD
    listed = index.index({**published, place.name: shown}, _explained(folder), head)
    files = report.render(shown)
    folder.mkdir(parents=True, exist_ok=True)
    stale = sorted(path for path in _earlier(place) if path.relative_to(place).as_posix() not in files)
    with tempfile.TemporaryDirectory(prefix=".publish-", dir=folder) as aside:
        packed, new = Path(aside, f"{place.name}{pack.SUFFIX}"), Path(aside, LIST)
        pack.write(comparison, source, packed)
        new.write_text(listed, encoding="utf-8")
        report.place(files, place)
        old, signed = place / packed.name, signature.beside(place / packed.name)
        if signed.is_file() and (not old.is_file() or old.read_bytes() != packed.read_bytes()):
            stale.append(signed)
        packed.replace(old)
        for path in stale:
            if path != old:
                path.unlink()
                print(f"Removed: {path}, of what was published there before")
        new.replace(page)
    print(f"Published: {place / 'report.md'} and {place / packed.name}, listed in {page}")
    return 0


def _place(source: Path, folder: Path, name: str | None) -> Path:
    """The folder of its report. UsageError where there can be none."""
    from dlperf.archive import pack

    place = folder / (name or source.resolve().name)
    if not pack.fits(place.name) or place.parent != folder or place.name == LIST:
        allowed = f"letters, digits and -._=+, but not {LIST}"
        raise UsageError([Problem("--name", name or place.name, allowed, "Choose another name.")])
    if folder.exists() and not folder.is_dir():
        raise UsageError([Problem("DIR", folder, says="this is no folder. Choose another.")])
    if place.resolve() == source.resolve():
        says = "this is the comparison's own folder, which holds names of this machine. Choose another DIR."
        raise UsageError([Problem("DIR", folder, says=says)])
    return place


def _earlier(place: Path) -> set[Path]:
    """What of a published comparison is there: charts, pages of models, archives, which another name may have had. What
    else somebody put beside them stays."""
    from dlperf import models
    from dlperf.archive.pack import SUFFIX

    pages = {place / f"{model}.md" for model in models.FAMILY_OF}
    found = {*place.glob("charts/*.svg"), *place.glob(f"*{SUFFIX}"), *pages}
    return {path for path in found if path.is_file() and not path.is_symlink()}


def _same(place: Path, shown: Comparison, there: Comparison | None) -> None:
    """UsageError where another comparison, or something else, has its place."""
    alike = there and (there.created, there.machine, {job.id for job in there.jobs}) == (
        shown.created,
        shown.machine,
        {job.id for job in shown.jobs},
    )
    if place.exists() and not alike:
        says = f"{'another comparison' if there else 'something else'} is there. Choose another --name."
        raise UsageError([Problem("NAME", place, says=says)])


def _published(folder: Path) -> dict[str, Comparison]:
    """What is in the folder already. UsageError for what cannot be read, since the list would lose it."""
    from dlperf.comparison import store

    return {path.parent.name: store.open_results(path) for path in sorted(folder.glob(f"*/{store.RESULTS}"))}


def _explained(folder: Path) -> dict[str, Explained]:
    import msgspec

    from dlperf.stored import DAMAGED, decoded

    found = {}
    for path in sorted(folder.glob("*/why.json")):
        try:
            found[path.parent.name] = msgspec.convert(decoded(path.read_bytes()), Explained)
        except DAMAGED as error:
            raise UsageError([Problem(str(path), "", says=f"not what dlperf wrote ({error}).")]) from None
    return found


if __name__ == "__main__":
    sys.exit(main())
