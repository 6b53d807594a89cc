"""One log: its figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from statistics import median

from dlperf import errors
from dlperf.catalog.script import Log
from dlperf.figures.published import Figure
from dlperf.importlogs.format import EVERY, Format, Line
from dlperf.importlogs.lines import Match, Summed, figures, odd, positive
from dlperf.importlogs.others import TRAINING, looks_like
from dlperf.importlogs.recognise import SAMPLE, Refused, Seen, Unlike, Unusable, crashed, no_training, seen, unlike
from dlperf.importlogs.size import Size, named_models, size
from dlperf.importlogs.spans import Jumped, apart, ranked, span
from dlperf.schema import Job
from dlperf.upstream import logs
from dlperf.words import count

OURS = "samples over seconds"


@dataclass(frozen=True)
class Made:
    """A figure before it is one. whole: whether the log has it as it is, of all devices."""

    column: str
    value: float
    estimator: str
    since: int
    until: int
    steps: str
    doubts: tuple[str, ...] = ()
    quantity: str = "throughput"
    whole: bool = False


@dataclass(frozen=True)
class Read:
    """figures: several of one log. values: of each, before it was printed."""

    form: Format
    size: Size
    figures: tuple[Figure, ...]
    values: tuple[float, ...]


def read(path: Path, shown: str, forms: Mapping[str, Format], named: str | None, given: Mapping[str, str]) -> Read:
    """Refused where it is no log of training that has figures. shown: how figures name it."""
    try:
        found = seen(path, forms, named)
        made: list[Read] = []
        refused: list[Refused] = []
        stepped: list[Format] = []
        quoted: list[str] = []
        for form in found.found:
            try:
                made.append(_read(path, shown, form, found, named, given))
                stepped += [form] if form.logs else []
            except Unlike as why:
                quoted += [form.title] if str(why) else []
            except Refused as why:
                refused.append(why)
                stepped += [form] if form.logs and isinstance(why, Unusable) else []
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from None
    if len(stepped) > 1:
        several = " and of ".join(one.title for one in stepped)
        raise Refused(f"it has lines of {several}. Choose one with --format: {', '.join(one.name for one in stepped)}")
    if made:
        return made[0]
    if refused:
        raise refused[0]
    if no := no_training(PurePath(shown).name, found.head):
        raise Refused(no)
    for form in found.found:
        if what := "" if quoted else odd(path, form):
            raise Refused(f"it looks like {form.title}, but {what}")
    if named:
        raise Refused(f"no whole line has figures as {forms[named].title} prints them")
    raise unlike(found.head, forms.values(), quoted)


def _read(path: Path, shown: str, form: Format, log: Seen, asked: str | None, given: Mapping[str, str]) -> Read:
    """asked: the format that a flag names."""
    lines, name = figures(path, form), PurePath(shown).name
    if lines.empty:
        raise Unlike("quoted" if lines.quoted else "")
    if no := no_training(name, log.head):
        raise Refused(no)
    if not (lines.matches or lines.events) and form.begins and not form.begins.search(log.text):
        if other := looks_like(log.head[:SAMPLE], TRAINING):
            raise Refused(f"it looks like the log of {other}")
        raise Refused(f"it has a sum of {form.title}, but neither its head nor a step")
    if form.other and (other := form.other(log.text)):
        raise Refused(other)
    named = form.model if asked and form.model else named_models(PurePath(path.absolute()), given)
    if form.demands and not form.demands.search(f"{log.text}\n{lines.first}\n{named}"):
        raise Refused(f"it looks like {form.title}, but {form.otherwise}")
    every = lines.log is not None and lines.log.ranks == "all"
    ranks = len({one.rank for one in lines.matches if one.rank}) if every else 0
    sized = size(form, PurePath(errors.shown(str(path.absolute()))), log.text, ranks, given)
    job, doubts = _job(form, sized), list(sized.doubts)
    if len(lines.matches) >= logs.MOST:
        doubts.append(f"its first {logs.MOST:,} lines with figures were read")
    told = len(doubts)
    made = _of_lines(form, lines.log, lines.matches, sized, job, name, doubts) if lines.log else []
    if lines.matches and not made and len(doubts) == told:
        doubts += filter(None, [odd(path, form)])
    workers = form.workers(log.text) if form.workers else 1
    for total in lines.totals.values():
        if (one := _of_total(total, sized, job, workers)) and one.column not in {other.column for other in made}:
            made.append(one)
        number = total.groups.get("seconds") or total.groups.get("value") or ""
        if not one and not positive(number):
            doubts.append(f"line {total.number} tells {total.total.needle.decode()} {number[:20]}")
    if (missing := [one for one in form.totals if one.line not in lines.totals]) and (what := odd(path, form, missing)):
        doubts.append(what)
    made += [Made(*one[:6], (one[6],) if one[6] else (), one[7]) for one in lines.events]
    doubts += _unlike_totals(made)
    if crash := crashed(path, form.needle):
        doubts.append(f"it ends in a crash: {crash!r}")
    if not made:
        raise Unusable(doubts[-1] if doubts else f"{name}: no figure can be made of its lines")
    printed = tuple(_figure(shown, form, sized, one, doubts) for one in made)
    return Read(form, sized, printed, tuple(one.value for one in made))


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
    if form.named:
        form = replace(form, warmup=form.warmup - log.first)
    if log.rate_of == "device" and job.world_size > 1:
        doubts.append(f"its rates are of one card, and were multiplied by {job.world_size}")
    theirs = form.publisher(lines, job) if form.publisher else None
    rare = not form.whole and apart([one.mark for one in lines], log) != log.every
    if theirs and theirs.value and rare and theirs.doubt:
        theirs = None  # too few lines for a publisher that counts them
    if theirs and 0 < theirs.value < math.inf:
        said = tuple(filter(None, [theirs.doubt]))
        if rare and 0 < theirs.steps != form.steps:
            said = (f"{form.who} counts lines: of this log they are {theirs.steps} steps, not {form.steps}",)
            form = replace(form, warmup=theirs.begun, steps=theirs.steps)
        steps = "" if form.whole or theirs.doubt else str(form.steps + (form.warmup == 0))
        made.append(Made(form.column, theirs.value, form.estimator, theirs.since, theirs.until, steps, said))
    elif form.publisher:
        start = form.warmup + log.first - 1  # as the script calls it
        why = theirs.doubt if theirs else f"not all of its steps {start} to {start + form.steps} are told"
        doubts.append(f"{form.who} gives no figure of it: {why}")
    try:
        ours = _ours(form, log, lines, job, name, doubts)
    except Jumped as jumped:
        doubts.append(str(jumped))
        return [one for one in made if one.estimator == "mean_of_rates"]  # which scripts make by another clock
    if ours and _unlike_rates(log, lines, ours.value, sized, doubts):
        return []
    if ours:
        made.append(ours)
        if theirs and theirs.value and abs(theirs.value / ours.value - 1) > 0.005:
            doubts.append(f"the {form.column} is {theirs.value / ours.value - 1:+.1%} of samples over seconds")
    return made


def _unlike_rates(log: Log, lines: Sequence[Line], value: float, sized: Size, doubts: list[str]) -> bool:
    """Whether samples over seconds are so far from what the lines print that the batch cannot be that of a step."""
    rates = [one.rate for one in lines if one.rate] if log.rate_of == "all" else []
    if not rates or 0.75 < value / median(rates) < 4 / 3:
        return False
    whole = sized.batch * sized.accumulation * sized.nodes * sized.devices_per_node
    doubts.append(
        f"its lines print {median(rates):.6g}: {whole} are not the samples of a step, or time passed elsewhere"
    )
    return not 0.1 < value / median(rates) < 10


def _unlike_totals(made: Sequence[Made]) -> Iterator[str]:
    """What it sums up itself of all devices, where that is far from samples over seconds."""
    ours = next((one.value for one in made if one.column == OURS), None)
    for one in made:
        if ours and one.whole and not 0.75 < ours / one.value < 1.5:  # its first steps may be in it
            yield f"its own {one.column} is {one.value:.6g}, not {ours:.6g}: other devices or another batch, as a rule"


def _lines(log: Log, matches: Sequence[Match], job: Job) -> Iterator[Line]:
    for one in matches:
        try:
            mark = logs.of_groups(one.number, one.rank, one.groups, log, job)
            rate = float(told) if (told := one.groups.get("rate")) else None
        except (ValueError, OverflowError, ZeroDivisionError):
            continue  # another rank wrote into the middle of it, or it is absurd
        if (log.timestamp or mark.time > 0) and (rate is None or 0 < rate < logs.BEYOND):
            yield Line(mark, rate, one.groups)


def _ours(form: Format, log: Log, found: Sequence[Line], job: Job, name: str, doubts: list[str]) -> Made | None:
    ranks, log = ranked(form, log, found, job, doubts)
    told: list[list[str]] = [[] for _ in ranks]
    spans = [span(form, log, mine, job, name, said) for mine, said in zip(ranks.values(), told, strict=True)]
    doubts += _once(told)
    timed = [one for one in spans if one]
    if not timed or len(timed) < len(spans):
        return None
    slowest = max(timed, key=lambda one: one.seconds / one.steps)
    if form.steps != EVERY and slowest.steps < form.steps:
        doubts.append(f"{slowest.steps} steps were logged of the {form.steps} that its publisher takes")
    if not 0 < slowest.seconds < math.inf:
        doubts.append(f"no time passes in {name}:{slowest.since}-{slowest.until}")
        return None
    rough = log.timestamp == "elapsed" and not form.clock and slowest.seconds < 1000
    said = (f"the clock has whole seconds: up to {1 / slowest.seconds:.1%} off",) if rough else ()
    if form.clock and log.timestamp and "mean" in found[0].groups:  # of all steps before, at both ends
        off = slowest.ends * _half(found) / slowest.seconds
        said = (f"its averages have few digits: up to {off:.1%} off",) if off > 0.001 else ()
    rate = slowest.steps * job.global_batch_size / slowest.seconds
    return Made(OURS, rate, "samples_over_seconds", slowest.since, slowest.until, str(slowest.steps), said)


def _half(found: Sequence[Line]) -> float:
    """Half of the last digit of the averages that lines tell."""
    return 0.5 * 10.0 ** -max(len(one.groups["mean"].partition(".")[2]) for one in found)


def _once(told: Sequence[Sequence[str]]) -> Iterator[str]:
    """What is doubtful of each rank, once where others say the same of other lines."""
    alike: dict[str, list[str]] = {}
    for said in told:
        for text in said:
            alike.setdefault(re.sub(r"\d+", "0", text), []).append(text)
    for several in alike.values():
        yield several[0] + (f" (likewise in {count(len(several) - 1, 'other rank')})" if len(several) > 1 else "")


def _of_total(summed: Summed, sized: Size, job: Job, workers: int) -> Made | None:
    total, groups = summed.total, summed.groups
    try:
        if "seconds" in groups:
            if not sized.claimed:
                return None
            value = job.global_batch_size * sized.claimed / _seconds(groups["seconds"])
        else:
            value = total.several(list(map(float, summed.values))) if total.several else float(groups["value"])
            value *= {"all": 1, "device": job.world_size, "worker": workers, "step": job.global_batch_size}[total.of]
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    if not 0 < value < logs.BEYOND:
        return None
    steps = str(sized.claimed or "")
    several = f"the last of {summed.lines} such lines" if summed.lines > 1 and not total.several else ""
    said = tuple(filter(None, [total.doubt, several]))
    since = summed.since if total.several else summed.number
    whole = total.of == "all" and "seconds" not in groups
    return Made(total.column, value, total.estimator, since, summed.number, steps, said, whole=whole)


def _seconds(told: str) -> float:
    """Of 61.5 or 0:01:01.5."""
    return sum(float(part) * 60.0**place for place, part in enumerate(reversed(told.split(":"))))


def digits(value: float) -> str:
    """With two decimals, and six digits at least."""
    return f"{value:.{max(2, min(12, 5 - math.floor(math.log10(value))))}f}"


def _figure(shown: str, form: Format, sized: Size, made: Made, doubts: Sequence[str]) -> Figure:
    place = PurePath(shown)
    case = f"{sized.nodes}n{sized.devices_per_node}g"
    theirs = made.column == form.column
    options = {"lines": f"{made.since}-{made.until}", "format": form.name}
    if sized.accumulation > 1:
        options["accumulation"] = str(sized.accumulation)
    if theirs:
        options["by"] = form.who.replace(" ", "_")
    if sized.run:
        options["run"] = sized.run
    return Figure(
        table=str(place.parent.parent) if place.parent.name == case else str(place.parent),
        row=f"{case}/{place.name}" if place.parent.name == case else f"{place.name} ({case})",
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
