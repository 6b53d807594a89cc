"""One log: its figures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePath

from dlperf.catalog import reader
from dlperf.catalog.script import Log, Script
from dlperf.figures.published import Figure
from dlperf.importlogs.format import Format, Line, Total
from dlperf.importlogs.recognise import Refused, recognised
from dlperf.importlogs.size import Size, missing, size
from dlperf.schema import Job
from dlperf.upstream import logs
from dlperf.upstream.commands import Steps

OURS, THEIRS = "samples over seconds", "publisher's estimator"


@dataclass(frozen=True)
class Read:
    """path: as figures name it. size: of the run. figures: several of one log."""

    path: str
    form: Format
    size: Size
    figures: tuple[Figure, ...]


def read(path: Path, shown: str, forms: Mapping[str, Format], named: str | None, given: Mapping[str, str]) -> Read:
    """Refused where it is no log of training that has figures."""
    try:
        found, head = recognised(path, forms, named)
        refused = []
        for form in found:
            try:
                return _read(path, shown, form, head, given)
            except Refused as why:
                refused.append((form, why))
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from None
    raise next((why for form, why in refused if "no whole line" not in str(why)), refused[0][1])


def _read(path: Path, shown: str, form: Format, head: str, given: Mapping[str, str]) -> Read:
    if form.demands and not _has(path, form.demands):
        raise Refused(f"it looks like {form.title}, but {form.otherwise}")
    log, matches = _matches(path, form)
    totals = _totals(path, form)
    events = form.events(_texts(path, [form.needle])) if form.events else []
    if not matches and not totals and not events:
        raise Refused(f"it looks like {form.title}, but no whole line has figures")
    ranks = {rank for _, rank, _ in matches if rank}
    sized = size(form, PurePath(path.absolute()), head, len(ranks) if log and log.ranks == "all" else 0, given)
    if isinstance(sized, list):
        raise Refused(f"it looks like {form.title}, but {missing(sized)}")
    job, made = _job(form, sized), []
    doubts = list(sized.doubts)
    if log and matches:
        made += _of_lines(form, log, matches, sized, job, path.name, doubts)
    made += [one for total in totals if (one := _of_total(*total, sized, job))]
    made += [Made(*one[:6], (one[6],) if one[6] else (), one[7]) for one in events]
    if not made:
        raise Refused(doubts[-1] if doubts else f"{path.name}: no figure can be made of its lines")
    figures = tuple(_figure(shown, form, sized, one, doubts) for one in made)
    return Read(shown, form, sized, figures)


@dataclass(frozen=True)
class Made:
    """A figure before it is one."""

    column: str
    value: float
    estimator: str
    since: int
    until: int
    steps: str
    doubts: tuple[str, ...] = ()
    quantity: str = "throughput"


def _has(path: Path, needle: bytes) -> bool:
    before = b""
    with open(path, "rb") as file:
        while block := file.read(2**20):
            if needle in before + block:
                return True
            before = block[-len(needle) :]
    return False


#: of a line with figures, or of what stands between two carriage returns of it; of more, patterns would take minutes
LONGEST = 2**14


def _texts(path: Path, needles: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """The lines with one of these, by their number, and each part of a line between carriage returns."""
    for number, piece in logs.pieces(path):
        if any(needle in piece for needle in needles):
            for part in piece.split(b"\r"):
                if len(part) <= LONGEST:
                    yield number, part.decode("utf-8", "replace")


Match = tuple[int, str, re.Match[str]]


def _matches(path: Path, form: Format) -> tuple[Log | None, list[Match]]:
    """The first of the format's logs that fits a line, and all lines that it fits."""
    known = [_log(one) for one in form.logs]
    chosen: Log | None = None
    found: list[Match] = []
    if not known:
        return None, []
    for number, text in _texts(path, [form.needle]):
        chosen = chosen or next((log for log in known if log.line.search(text)), None)
        if chosen:
            tag = logs.TAG.match(text)
            found += [(number, tag["rank"] if tag else "", one) for one in chosen.line.finditer(text)]
        if len(found) >= logs.MOST or (found and not form.whole and _step(found[-1]) > 2 * (form.warmup + form.steps)):
            break
    return chosen, found


def _step(match: Match) -> int:
    """As it is printed; what is absurd is of no step."""
    told = match[2]["step"]
    return int(told) if len(told) < 12 else 0


def _log(one: str | Log) -> Log:
    if isinstance(one, Log):
        return one
    adapter, _, model = one.partition("/")
    if not _ADAPTERS:
        _ADAPTERS.update({name: found.scripts for name, found in reader.adapters().items()})
    return _ADAPTERS[adapter][model].log


_ADAPTERS: dict[str, Mapping[str, Script]] = {}


def _totals(path: Path, form: Format) -> list[tuple[Total, int, re.Match[str]]]:
    """The last line of each."""
    found: dict[str, tuple[Total, int, re.Match[str]]] = {}
    if form.totals:
        for number, text in _texts(path, [total.needle for total in form.totals]):
            for total in form.totals:
                if match := total.line.search(text):
                    found[total.column] = (total, number, match)
    return list(found.values())


def _job(form: Format, sized: Size) -> Job:
    return Job(
        id="log",
        system=form.name,
        adapter=form.framework,
        title=form.title,
        model=sized.model,
        family="",
        device="cuda",
        precision_asked=sized.precision,
        precision=sized.precision,
        batch_size=sized.batch * sized.accumulation,
        input="synthetic",
        data_dir=None,
        options={},
        environment="",
        nnodes=sized.nodes,
        nproc_per_node=sized.devices_per_node,
        kind="imported",
        repeats=1,
    )


def _of_lines(
    form: Format, log: Log, matches: Sequence[Match], sized: Size, job: Job, name: str, doubts: list[str]
) -> list[Made]:
    lines = list(_lines(log, matches, job))
    if not lines:
        return []
    made: list[Made] = []
    if log.rate_of == "device" and job.world_size > 1:
        doubts.append(f"its rates are of one card, and were multiplied by {job.world_size}")
    theirs = form.publisher(lines, job) if form.publisher else None
    if theirs and 0 < theirs.value < math.inf:
        said = tuple(filter(None, [theirs.doubt]))
        steps = str(form.steps + 1 if form.warmup == 0 and form.steps < 10**6 else form.steps)
        steps = "" if form.steps >= 10**9 or theirs.doubt else steps
        made.append(Made(THEIRS, theirs.value, form.estimator, theirs.since, theirs.until, steps, said))
    elif form.publisher:
        doubts.append(
            f"{form.who} gives no figure of it: its steps {form.warmup} to {form.warmup + form.steps} are not there"
        )
    ours = _ours(form, log, [one.mark for one in lines], job, name, doubts)
    if ours:
        made.append(ours)
        if theirs and abs(theirs.value / ours.value - 1) > 0.005:
            doubts.append(f"the publisher's is {theirs.value / ours.value - 1:+.1%} of samples over seconds")
    return made


def _lines(log: Log, matches: Sequence[Match], job: Job) -> Iterator[Line]:
    for number, rank, found in matches:
        try:
            mark = logs.of_match(number, rank, found, log, job)
            rate = float(found["rate"]) if "rate" in log.line.groupindex else None
        except (ValueError, OverflowError, ZeroDivisionError):
            continue  # another rank wrote into the middle of it, or it is absurd
        if (log.timestamp or mark.time > 0) and (rate is None or 0 < rate < logs.BEYOND):
            yield Line(mark, rate)


def _ours(form: Format, log: Log, found: Sequence[logs.LogLine], job: Job, name: str, doubts: list[str]) -> Made | None:
    ranks, log = _ranked(log, found, job, doubts)
    of_ranks = []
    for mine in ranks.values():
        marks = logs.marks(mine, log)
        again = len({line.number for line in mine}) - len({line.step for line in mine})
        if again > 0:
            doubts.append(f"{again} lines tell a step again: its update was skipped, by loss scaling as a rule")
        back = next((b for a, b in pairwise(marks) if b.clock < a.clock), None)
        if back:
            doubts.append(f"its clock goes back at line {back.line}")
        start = next((mark for mark in marks if mark.steps >= form.warmup), None)
        if start is None or marks[-1].steps <= start.steps:
            doubts.append(f"{name} ends after step {marks[-1].steps}, within the first {form.warmup}")
            return None
        steps = min(form.steps, marks[-1].steps - start.steps)
        of_ranks.append(logs.windows(marks, Steps(form.warmup, steps, 1, 0), log, job.global_batch_size, name)[0])
    if not of_ranks:
        return None
    window = max(of_ranks, key=lambda one: one.seconds / one.steps)
    if form.steps < 10**9 and window.steps < form.steps:
        doubts.append(f"{window.steps} steps were logged of the {form.steps} that its publisher takes")
    if not 0 < window.seconds < math.inf:
        doubts.append(f"no time passes in {window.source}")
        return None
    since, _, until = window.source.rpartition(":")[2].partition("-")
    rough = log.timestamp == "elapsed" and window.seconds < 1000
    said = (f"the clock has whole seconds: up to {1 / window.seconds:.1%} off",) if rough else ()
    rate = window.samples / window.seconds
    return Made(OURS, rate, "samples_over_seconds", max(1, int(since)), int(until), str(window.steps), said)


def _ranked(
    log: Log, found: Sequence[logs.LogLine], job: Job, doubts: list[str]
) -> tuple[dict[str, list[logs.LogLine]], Log]:
    """Lines by rank, and the log with as many steps from line to line as there are."""
    told = {line.rank for line in found}
    each = Counter(line.step for line in found)
    several = Counter(each.values()).most_common(1)[0][0]
    expected = {"one": 1, "node": job.nnodes, "all": job.world_size}[log.ranks]
    if expected > 1 and told == {""} and several < expected:
        doubts.append(f"{several} of {expected} ranks that should print do")
        by = (
            {"": list(found)}
            if several == 1
            else logs.by_rank(found, replace(log, ranks="all"), _printing(job, several))
        )
    else:
        by = logs.by_rank(found, log, job)
    by = {rank: mine for rank, mine in by.items() if mine}
    gaps = Counter(b.step - a.step for mine in by.values() for a, b in pairwise(mine) if b.step > a.step)
    every = gaps.most_common(1)[0][0] if gaps else log.every
    if "rate" in log.line.groupindex and not log.timestamp and "seconds" not in log.line.groupindex:
        scale = every / log.every
        by = {rank: [line._replace(time=line.time * scale) for line in mine] for rank, mine in by.items()}
    return by, replace(log, every=every)


def _printing(job: Job, several: int) -> Job:
    return replace(job, nnodes=1, nproc_per_node=several)


def _of_total(total: Total, number: int, match: re.Match[str], sized: Size, job: Job) -> Made | None:
    groups = match.groupdict()
    try:
        if "seconds" in groups:
            if not sized.claimed:
                return None
            value = job.global_batch_size * sized.claimed / float(groups["seconds"])
        else:
            value = float(groups["value"])
            value *= {"all": 1, "device": job.world_size, "step": job.global_batch_size}[total.of]
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    if not 0 < value < logs.BEYOND:
        return None
    steps = str(sized.claimed or "")
    return Made(total.column, value, total.estimator, number, number, steps, (total.doubt,) if total.doubt else ())


def digits(value: float) -> str:
    """With two decimals, and six digits at least."""
    return f"{value:.{max(2, min(12, 5 - math.floor(math.log10(value))))}f}"


def _figure(shown: str, form: Format, sized: Size, made: Made, doubts: Sequence[str]) -> Figure:
    place = PurePath(shown)
    case = f"{sized.nodes}n{sized.devices_per_node}g"
    theirs = made.column == THEIRS
    options = {"lines": f"{made.since}-{made.until}", "format": form.name}
    if sized.accumulation > 1:
        options["accumulation"] = str(sized.accumulation)
    if theirs:
        options["by"] = form.who.replace(" ", "_")
    if sized.run:
        options["run"] = sized.run
    return Figure(
        table=str(place.parent.parent) if place.parent.name == case else str(place.parent),
        row=f"{case}/{place.name}",
        column=made.column,
        printed=f"{made.value:.2f}" if theirs and made.value >= 1 else digits(made.value),
        quantity=made.quantity,
        unit=form.unit if made.quantity == "throughput" else "min",
        estimator=made.estimator,
        model=sized.model,
        system=form.title,
        framework=form.framework,
        version="",
        precision=sized.precision,
        options=options,
        nodes=sized.nodes,
        devices=sized.nodes * sized.devices_per_node,
        device="",
        batch=str(sized.batch),
        batch_of="device",
        steps=made.steps,
        origin="text",
        path=shown,
        line=made.until,
        doubt="; ".join(dict.fromkeys([*made.doubts, *doubts])),
    )
