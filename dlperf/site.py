"""Makes a site of static pages over a folder of published reports: newest tables, histories, machines, archives."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from dlperf import processes
from dlperf.archive import tar
from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError, reason
from dlperf.sources import DLPERF, FIGURES, read_source

if TYPE_CHECKING:
    from dlperf.archive.check import Checked
    from dlperf.figures.dlperf2020 import Published
    from dlperf.figures.published import Source as Others
    from dlperf.report.history import Archive, Source
    from dlperf.schema import Comparison

RESULTS, EXPLAINED, WHY = "results.json", "why.json", "why.html"
#: what of a report's folder is in the site, beside its archive
OF_REPORT = (
    "*.html",
    "*.md",
    "*.svg",
    "results.csv",
    RESULTS,
    EXPLAINED,
    "charts/*.svg",
    "against.csv",
    "against.json",
)
#: bytes of archives, and of figures as many times over, from which processes of their own are worth their start
MUCH, DRAWN = 2**21, 50
#: in the site: the list of the files that this command wrote
MARKER = ".dlperf-site"


@dataclass
class Found:
    """What a folder of reports holds. files: to be copied, by the report's name. others: what others published, by the
    folder's name, and rendered: the files of its page; published: of these the tables of DLPerf. explained: what each
    why.json holds. unread: why something is not in the site, by its name."""

    sources: list[Source] = field(default_factory=list)
    others: dict[str, Others] = field(default_factory=dict)
    rendered: dict[str, Mapping[str, str]] = field(default_factory=dict)
    published: list[Published] = field(default_factory=list)
    explained: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    files: dict[str, list[Path]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.site", description=__doc__)
    made.add_argument("folder", metavar="DIR", help="a folder of published reports, such as report/published")
    made.add_argument("-o", "--output", metavar="OUT", default="_site", help="where to (default: _site)")
    return made


def main(argv: Iterable[str] | None = None) -> int:
    """0, also where a report could not be read, which stderr and the site name; 2 where DIR has no report that can be
    read, or OUT has files that this command did not write."""
    arguments = vars(parser().parse_args(None if argv is None else list(argv)))
    return exit_code(lambda: _site(Path(arguments["folder"]), Path(arguments["output"])))


def _site(folder: Path, out: Path) -> int:
    from dlperf.report import site
    from dlperf.report.listings import INDEX, REPORTS

    written = _written(out)
    found = _found(folder, out)
    for name, why in found.unread.items():
        print(f"{folder / name} is not in the site: {why}", file=sys.stderr)
    if not found.sources:
        says = f"no report in it can be read: it has no folder with a {RESULTS} that dlperf wrote. Name another folder."
        raise UsageError([Problem("DIR", folder, says=says)])
    pages = site.pages(found.sources, found.published, found.others, found.explained, found.unread)
    for name, files in found.rendered.items():
        pages |= {f"{REPORTS}/{name}/{file}": content for file, content in files.items()}
    copies = {
        f"{REPORTS}/{name}/{path.relative_to(folder / name).as_posix()}": path
        for name, paths in found.files.items()
        for path in paths
    }
    _write(out, written, pages, copies)
    print(f"Site: {out / INDEX}")
    return 0


# What there is


def _found(folder: Path, out: Path) -> Found:
    """Each report is read once, and its archive: what takes long, on all CPUs, the largest first."""
    found, places = Found(), _folders(folder, out)
    linked = [place for place in places if place.is_symlink()]
    found.unread = dict.fromkeys(
        (place.name for place in linked), "it is a link, and none is followed. Put the report itself here."
    )
    looked = dict(_looked([place for place in places if place not in linked]))
    known: dict[str, str] = {}
    for place in places:
        if isinstance(seen := looked.get(place), Refused):
            found.unread[place.name] = seen.why
        elif isinstance(seen, Seen):
            _report(place, seen, found, known)
        elif seen is not None:
            _others(place, *seen, found)
        elif place not in linked:
            _explained(place, found)
    return found


def _looked(places: Sequence[Path]) -> Iterator[tuple[Path, Seen | tuple[Others, Mapping[str, str]] | Refused]]:
    """What `_report_in` and `_others_in` make of folders of reports and of what others published."""
    reports = [place for place in places if os.path.lexists(place / RESULTS)]
    others = [place for place in places if place not in reports and (place / FIGURES).is_file()]
    work: list[tuple[int, Path, Callable[[Path], Any]]] = [
        *((_bytes(_packed(place)), place, _report_in) for place in reports),
        *((DRAWN * _bytes(place / FIGURES), place, _others_in) for place in others),
    ]
    work.sort(key=lambda one: -one[0])
    large = work if sum(size for size, *_ in work) > MUCH else ()
    made = processes.each(_done, [one[1:] for one in work]) if large else map(_done, (one[1:] for one in work))
    yield from zip((place for _, place, _ in work), made, strict=True)


def _done(work: tuple[Path, Callable[[Path], Any]]) -> Any:
    place, look = work
    with processes.uncollected():
        return look(place)


def _bytes(path: Path | None) -> int:
    try:
        return path.stat().st_size if path else 0
    except OSError:
        return 0


def _others_in(place: Path) -> tuple[Others, Mapping[str, str]] | Refused:
    from dlperf.report.site import of_others

    try:
        source = read_source(place)
    except UsageError as error:
        return Refused(" ".join(problem.says for problem in error.problems))
    return source, of_others(source)


def _others(place: Path, source: Others, rendered: Mapping[str, str], found: Found) -> None:
    from dlperf.figures.dlperf2020 import read_published
    from dlperf.stored import DAMAGED

    found.others[place.name], found.rendered[place.name] = source, rendered
    if source.id == DLPERF:
        try:
            found.published = read_published(source.figures)
        except DAMAGED as error:
            found.unread[place.name] = f"not DLPerf's tables as dlperf has them ({reason(error)})."


def _folders(folder: Path, out: Path) -> list[Path]:
    """Those of reports, by name. UsageError where a folder cannot be read, or two could not lie beside each other
    everywhere."""
    try:
        places = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise UsageError([Problem("DIR", folder, says=f"cannot be read: {error.strerror}.")]) from None
    site = out.resolve()
    places = [
        path
        for path in places
        if path.resolve() != site and any(os.path.lexists(path / name) for name in (RESULTS, EXPLAINED, FIGURES))
    ]
    by_name: dict[str, Path] = {}
    for path in places:
        other = by_name.setdefault(path.name.casefold(), path)
        if other is not path:
            says = f"two reports have one name, but for capitals: {other.name} and {path.name}. Rename one."
            raise UsageError([Problem("DIR", folder, says=says)])
    return places


@dataclass(frozen=True)
class Seen:
    """Of a report. digest: of its results. unmet: see Source."""

    digest: str
    comparison: Comparison
    archive: Archive
    unmet: tuple[str, ...]


@dataclass(frozen=True)
class Refused:
    why: str


def _report_in(place: Path) -> Seen | Refused:
    """A report, and its archive. What is in the two is compared, not digests alone: later versions of dlperf write the
    same results with more keys."""
    from dlperf.comparison import store
    from dlperf.report import gate
    from dlperf.report.history import Archive

    try:
        written = (place / RESULTS).read_bytes()
        digest = hashlib.sha256(written).hexdigest()
        file, found = _checked(place)
        same = found.digest == digest and found.comparison
        comparison = same or store.results(written, RESULTS)
    except OSError as error:
        return Refused(f"{RESULTS} cannot be read: {error.strerror}.")
    except UsageError as error:
        return Refused(f"{RESULTS}: {' '.join(problem.says for problem in error.problems)}")
    problems = found.problems
    if file and not problems and found.comparison != comparison:
        problems = (f"It is the archive of another comparison: its {RESULTS} is not that of this report.",)
    unmet = found.unmet if same else gate.of_published(comparison)
    return Seen(digest, comparison, Archive(file, " ".join(problems)), unmet)


def _report(place: Path, seen: Seen, found: Found, known: dict[str, str]) -> None:
    """known: names of reports, by the digests of their results."""
    from dlperf.archive import signature
    from dlperf.report.history import Source

    name, archive = place.name, seen.archive
    if seen.digest in known:
        found.unread[name] = f"its {RESULTS} is that of {known[seen.digest]}, so it would count twice. Remove one."
        return
    known[seen.digest] = name
    files = _files(place)
    if archive.file:
        packed = place / archive.file
        files += filter(_plain, (packed, signature.beside(packed)))
    page = "report.html" if place / "report.html" in files else RESULTS
    if page == RESULTS:
        print(f"{place} has no report.html; `python -m dlperf.report {place}` makes it", file=sys.stderr)
    found.sources.append(Source(name, seen.comparison, archive, page, seen.unmet))
    found.files[name] = files


def _explained(place: Path, found: Found) -> None:
    from dlperf.stored import DAMAGED, decoded

    try:
        held = decoded((place / EXPLAINED).read_bytes())
        if not _plain(place / WHY):
            found.unread[place.name] = f"it has no {WHY}, which its entry leads to: `python -m dlperf.why` makes both."
            return
        found.explained[place.name] = {"title": held["title"], "summary": held["summary"]}
        found.files[place.name] = _files(place)
    except OSError as error:
        found.unread[place.name] = f"{EXPLAINED} cannot be read: {error.strerror}."
    except DAMAGED as error:
        found.unread[place.name] = f"{EXPLAINED}: not what dlperf wrote ({reason(error)})."


def _files(place: Path) -> list[Path]:
    """Of a report, what is in the site. A link is not: it would publish whatever it leads to."""
    paths = {path for pattern in OF_REPORT for path in place.glob(pattern)}
    return sorted(path for path in paths if _plain(path) and not (path.parent != place and path.parent.is_symlink()))


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _checked(place: Path) -> tuple[str, Checked]:
    """The name of a report's archive, of several the last one's, and what was found in it; of none, nothing."""
    from dlperf.archive.check import Checked, check

    file = _packed(place)
    if file is None:
        return "", Checked(())
    try:
        return file.name, check(file, render=False)
    except OSError as error:
        return file.name, Checked((reason(error),))


def _packed(place: Path) -> Path | None:
    return max(filter(_plain, place.glob(f"*{tar.SUFFIX}")), default=None)


# What is written


def _written(out: Path) -> frozenset[str]:
    """The files that this command wrote there before. UsageError where the folder has others and no list."""
    if out.exists() and not out.is_dir():
        raise UsageError([Problem("--output", out, says="this is a file. Choose a folder.")])
    marker = out / MARKER
    try:
        if marker.is_file() and not marker.is_symlink():
            listed = json.loads(marker.read_text(encoding="utf-8"))
            return frozenset(name for name in listed if _inside(name))
        used = out.is_dir() and any(out.iterdir())
    except (ValueError, TypeError):
        says = (
            f"its {MARKER} is damaged, so that nobody knows which of its files may be replaced. Choose another folder."
        )
        raise UsageError([Problem("--output", out, says=says)]) from None
    if used:
        says = f"it holds files that dlperf.site did not write (it has no {MARKER}). Choose another folder."
        raise UsageError([Problem("--output", out, says=says)])
    return frozenset()


def _inside(name: str) -> bool:
    """Whether a name in the list is one of a file in the site."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _write(out: Path, written: frozenset[str], pages: Mapping[str, str], copies: Mapping[str, Path]) -> None:
    """What was there before and is not now is removed; nothing else is."""
    names = frozenset([*pages, *copies])
    foreign = sorted(name for name in names - written if os.path.lexists(out / name))
    linked = sorted(name for name in names | written if _through_link(out, name))
    if foreign or linked:
        name, what = (foreign[0], "was not written by dlperf.site") if foreign else (linked[0], "is behind a link")
        says = f"{name} in it {what}, and would be replaced. Remove it, or choose another folder."
        raise UsageError([Problem("--output", out, says=says)])
    out.mkdir(parents=True, exist_ok=True)
    _list(out, names | written)
    for name, path in sorted(copies.items()):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, out / name)
    for name, content in sorted(pages.items()):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(content, encoding="utf-8", newline="")
    for name in sorted(written - names, reverse=True):
        _remove(out, out / name)
    _list(out, names)


def _through_link(out: Path, name: str) -> bool:
    return any((out / parent).is_symlink() for parent in [PurePosixPath(name), *PurePosixPath(name).parents][:-1])


def _list(out: Path, names: Iterable[str]) -> None:
    aside = out / f"{MARKER}.writing"
    aside.write_text(json.dumps(sorted(names), indent=0) + "\n", encoding="utf-8")
    aside.replace(out / MARKER)


def _remove(out: Path, path: Path) -> None:
    """A file, and the folders that are empty without it."""
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if folder == out or not _emptied(folder):
            return


def _emptied(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
