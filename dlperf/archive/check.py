"""Whether an archive is what it says: its files as its manifest has them, its figures as the records of its runs have
them, and its report what its results give. What somebody makes up consistently, events too, is not found."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

import msgspec

from dlperf import report
from dlperf.archive import derived, proven, tar
from dlperf.archive.content import PACKED, Packed, here
from dlperf.comparison import store
from dlperf.errors import UsageError, clean
from dlperf.report import gate
from dlperf.runs import bundle
from dlperf.schema import Comparison
from dlperf.stored import DAMAGED, decoded

#: of an archive, what is not the report
ASIDE = ("runs/", "proofs/", "code/")
CODE, LIST = "code/dlperf/", f"code/{bundle.LIST}"
CSV = "results.csv"
CHART = re.compile(r"<svg.*?</svg>", re.DOTALL)
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Checked:
    """problems: a sentence for each; empty when it verifies. uncompared: for each part that could not be held to
    anything, why; it does not verify as a whole then. notes: what else to know. comparison: what it is of, None where
    that cannot be read; digest: of its results.json; unmet: conditions of publishing that it does not meet."""

    problems: tuple[str, ...]
    uncompared: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None
    digest: str = ""
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What of a report is not as results.json gives it; see Checked."""

    problems: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check(path: Path, render: bool = True) -> Checked:
    """See dlperf.archive.verify."""
    try:
        files = tar.unpacked(path)
    except tar.Refused as error:
        return Checked((f"{error}.",))
    problems, uncompared, notes = [f"{one}." for one in tar.differing(files)], list[str](), list[str]()
    try:
        comparison = store.results(files.get(store.RESULTS, b""), store.RESULTS)
        packed = msgspec.convert(decoded(files.get(PACKED, b"")), Packed)
    except UsageError as error:
        return Checked((*problems, str(error)))
    except DAMAGED as error:
        return Checked((*problems, f"{PACKED} is not what dlperf wrote ({error})."))
    problems += derived.runs(files, comparison)
    problems += proven.proofs(files, comparison)
    problems += _code(files, comparison)
    if store.MANIFEST in files:
        problems += derived.begun(files[store.MANIFEST], comparison)
    else:
        notes.append(
            f"It has no {store.MANIFEST}, as those that older dlperf packed: the load, the commit and what else "
            f"{store.RESULTS} has of when it began were held to nothing."
        )
    problems += _listed(files, store.MANIFEST in files)
    others = [record.job.system for record in comparison.records if record.done and not record.job.traits.worker]
    if others:
        systems = ", ".join(dict.fromkeys(others))
        notes.append(f"Rates of {systems} are of logs that are not ours, and were not read again.")
    unmet = gate.of_published(comparison)
    for lacking, missing in _unsaid(comparison, unmet):
        if missing or packed["revision"] == here()["revision"]:
            problems.append(lacking)
        else:
            uncompared.append(f"{lacking} Its dlperf, {packed['revision']}, may have had other conditions.")
    if render:
        found = _report(files, comparison, packed)
        problems, notes = [*problems, *found.problems], [*notes, *found.notes]
        uncompared += found.uncompared
    digest = hashlib.sha256(files[store.RESULTS]).hexdigest()
    problems, uncompared, notes = ([*map(clean, said)] for said in (problems, uncompared, notes))
    return Checked(tuple(problems), tuple(uncompared), tuple(notes), comparison, digest, unmet)


def _unsaid(comparison: Comparison, unmet: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Conditions of publishing that results.json does not meet, without saying so; of each whether it is that runs are
    missing, as they are when some were taken out."""
    for condition in unmet:
        if condition not in comparison.unmet:
            says = f"{store.RESULTS} does not say what it gives: {condition}."
            yield says, condition == gate.CONDITIONS["failures"]


def _listed(files: Files, begun: bool) -> Iterator[str]:
    """Files of code/ that are not as its list has them, which was made when the code was copied. begun: whether
    comparison.json is there, which has the digest of that list."""
    if LIST not in files:
        yield from [f"{LIST} is missing."] if begun else []
        return
    try:
        listed = msgspec.convert(decoded(files[LIST]), dict[str, str])
        noted = decoded(files[store.MANIFEST]).get("code") if begun else ""
    except DAMAGED as error:
        yield f"{LIST} is not what dlperf wrote ({error})."
        return
    if noted and noted != hashlib.sha256(files[LIST]).hexdigest():
        yield f"{LIST} is not the one of which {store.MANIFEST} has the digest."
    own = {name.removeprefix(CODE): content for name, content in files.items() if name.startswith(CODE)}
    yield from (
        f"{name} is not in {LIST}."
        for name in sorted(files)
        if name.startswith("code/") and name != LIST and name.removeprefix(CODE) not in listed
    )
    for name, digest in sorted(listed.items()):
        if name not in own:
            yield f"{CODE}{name} is missing."
        elif hashlib.sha256(own[name]).hexdigest() != digest:
            yield f"{CODE}{name} is not as {LIST} has it."


def _code(files: Files, comparison: Comparison) -> Iterator[str]:
    """Adapters whose code is not that of which records and certificates have the digest."""
    modules = {
        name.removeprefix(CODE): content
        for name, content in files.items()
        if name.startswith(CODE) and name.endswith(".py")
    }
    shared = {PurePath(path): one for path, one in modules.items() if path.rpartition("/")[0] in ("models", "adapters")}
    ran: dict[str, set[str]] = {}
    for record in comparison.records:
        ran.setdefault(record.job.adapter, set()).add(record.code)
    for trajectory in (one.trajectory for several in comparison.proofs.values() for one in several):
        ran.setdefault(trajectory.adapter, set()).add(trajectory.code)
    for adapter, digests in sorted(ran.items()):
        own = {PurePath(path): one for path, one in modules.items() if path.startswith(f"adapters/{adapter}/")}
        if digests - {""} and (not own or digests - {""} != {bundle.digest_of({**shared, **own})}):
            yield f"{CODE}adapters/{adapter} with what is shared is not the code of which results.json has the digest."


def _report(files: Files, comparison: Comparison, packed: Packed) -> Report:
    """Charts are not compared where another version of matplotlib draws with other digits. What another dlperf rendered
    is held to what this one makes of it, without the sections that are new since; where that is not the same, the
    figures alone are, so that archives are read for as long as there are any."""
    own = here()
    redrawn = packed["matplotlib"] == own["matplotlib"]
    drawn = f"matplotlib {packed['matplotlib']} drew them, and here is {own['matplotlib']}"
    notes = () if redrawn else (f"The charts were not compared: {drawn}.",)
    try:
        problems = _unlike(files, report.render(comparison), redrawn)
        if not problems or packed["revision"] == own["revision"]:
            return Report(tuple(problems), (), notes)
        made = report.render(comparison, audited=False)
    except Exception as error:  # of figures that nobody thought of
        return Report((f"{store.RESULTS} cannot be rendered: {type(error).__name__}: {error}.",))
    whose = f"dlperf {packed['revision']} rendered the report, and this is {own['revision']}"
    if not _unlike(files, made, redrawn):
        return Report((), (), (*notes, f"{whose}, which adds what its audit finds; all else is the same."))
    held = _figures(files.get(CSV, b""), made[CSV])
    says = f"The report was not compared: {whose}, which renders it otherwise. Verify it with that one: "
    return Report((held,) if held else (), (says + " ".join(problems),), notes)


def _unlike(files: Files, made: Mapping[str, str], redrawn: bool) -> list[str]:
    """What of the report is not what was made of results.json; but for the latter, which later versions of dlperf add
    keys to."""
    others = {store.RESULTS, store.MANIFEST, PACKED, tar.MANIFEST}
    held = {name for name in files if not name.startswith(ASIDE) and name not in others}
    found = [f"{name} is no part of the report that results.json gives." for name in sorted(held - made.keys())]
    for name, content in made.items():
        if name == store.RESULTS:
            continue
        if name not in files:
            found.append(f"{name} of the report is missing.")
            continue
        theirs = files[name].decode("utf-8", "replace")
        if not redrawn and name.endswith((".svg", ".html")):
            theirs, content = CHART.sub("", theirs), CHART.sub("", content)
        if theirs != content:
            found.append(f"{name} is not what results.json gives.")
    return found


def _figures(theirs: bytes, ours: str) -> str:
    """Where results.csv has other figures than results.json gives, in the columns that both versions of it have."""
    found, made = (
        list(csv.DictReader(io.StringIO(text, newline=""))) for text in (theirs.decode("utf-8", "replace"), ours)
    )
    shared = (found or [{}])[0].keys() & (made or [{}])[0].keys()
    for number, (one, other) in enumerate(zip(found, made, strict=False), 2):
        for name in sorted(shared):
            if one[name] != other[name]:
                return f"{CSV}, line {number}: {name} is not what results.json gives."
    return "" if len(found) == len(made) and bool(shared) == bool(made) else f"{CSV} has not the rows of results.json."
