"""Rules on the runs of a comparison: steps, clocks, losses, load and work, as its records tell. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from dlperf import models
from dlperf.audit.cells import Subject
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule
from dlperf.audit.scaling import NOISE
from dlperf.figures import disturbances, rates, standings, steady, summaries
from dlperf.runs import conditions
from dlperf.schema import Comparison, Job, Record
from dlperf.words import count

#: of a run's first loss, from which on it went up: a learning rate that is too high for a moment does not do so much
ROSE, FLEW = 1.2, 10.0
#: timed steps of a run, from which on a loss that did not fall is none of chance
LEARNT = 100
#: windows of one run that differ more than this were not alike; report/caveats.py says the same
SPREAD = 1.2
#: share of the clock of its row's runs that one may lack: clocks differ with what else is warm, throttling takes more
BELOW = 0.15
#: seconds that clocks of two processes may be apart, where one writes whole seconds
SLACK = 2.0


def at(subject: Subject, record: Record, severity: str, expected: str, found: str, others: int = 0) -> Finding:
    """Of a run."""
    job = record.job
    where = record.folder or f"run {record.repeat + 1} of {job.id}"
    row = f"{job.size}-b{job.batch_size}, run {record.repeat + 1}"
    return Finding(severity, subject.name, _table(job), row, job.system, where, expected, found, others=others)


def of_row(subject: Subject, job: Job, severity: str, expected: str, found: str) -> Finding:
    place = (subject.name, _table(job), f"{job.size}-b{job.batch_size}", job.system, job.id)
    return Finding(severity, *place, expected=expected, found=found)


def _table(job: Job) -> str:
    return f"{job.model}-{job.precision_asked}-{job.device}"


def _done(subject: Subject) -> Sequence[Record]:
    return [one for one in subject.comparison.records if one.done and one.windows] if subject.comparison else ()


def _each(
    subject: Subject, severity: str, expected: str, found: Callable[[Record], str], records: Iterable[Record]
) -> Iterator[Finding]:
    """One finding for all runs of a row, at the first of them."""
    rows: dict[str, list[Record]] = {}
    for record in records:
        rows.setdefault(record.job.id, []).append(record)
    for several in rows.values():
        yield at(subject, several[0], severity, expected, found(several[0]), len(several) - 1)


def steps(subject: Subject) -> Iterator[Finding]:
    if subject.comparison is None:
        return
    asked = subject.comparison.spec.get("protocol") or {}
    claimed = asked.get("windows", 0) * asked.get("steps_per_window", 0)
    for record in _done(subject):
        ran = sum(window.steps for window in record.windows)
        if record.job.traits.run and ran < claimed:
            expected = f"{count(claimed, 'step')}, as the protocol has it"
            yield at(subject, record, ERROR, expected, f"{count(ran, 'step')} in its windows")


def changed(subject: Subject) -> Iterator[Finding]:
    for told in subject.changed:
        yield Finding(WARNING, subject.name, "", "", "", "records.jsonl", "records as they were written", told)


def samples(subject: Subject) -> Iterator[Finding]:
    for record in _done(subject):
        job = record.job
        if job.input != "synthetic" or not job.traits.worker or job.model not in models.FAMILY_OF:
            continue
        each = job.global_batch_size * models.units(job.model)
        for window in record.windows:
            if window.samples != window.steps * each:
                expected = f"{window.steps * each:,}: {count(window.steps, 'step')} of {each:,}"
                times = window.samples / (window.steps * each) if window.steps else math.inf
                found = f"{window.samples:,} samples in window {window.index}, {times:.3g} times"
                yield at(subject, record, ERROR, expected, found)
                break


def clocks(subject: Subject) -> Iterator[Finding]:
    comparison = subject.comparison
    if comparison is None:
        return
    done = [one for one in comparison.records if one.windows]
    backwards = [one for one in done if any(window.seconds <= 0 for window in one.windows)]
    yield from _each(
        subject, ERROR, "windows of more than no time", lambda one: "one that ends before it begins", backwards
    )
    longer = [one for one in done if one.seconds and rates.seconds(one) > one.seconds + SLACK and one not in backwards]
    yield from _each(subject, ERROR, "windows within the run's seconds", _longer, longer)
    created = _moment(comparison.created)
    early = [one for one in comparison.records if created and _before(one, created)]
    expected = f"a start after {comparison.created}, when the comparison began"
    yield from _each(subject, ERROR, expected, lambda one: one.started, early)
    yield from _in_order(subject, comparison)
    yield from _together(subject, comparison)


def _in_order(subject: Subject, comparison: Comparison) -> Iterator[Finding]:
    """Blocks of runs follow each other; what was resumed, or run again, is in a later block than all before it."""
    for records in comparison.runs.values():
        blocks = [(one.block, one) for one in records if one.block is not None]
        starts = [(block, began, one) for block, one in blocks if (began := _moment(one.started))]
        starts.sort(key=lambda one: one[0])
        for at_, (block, began, record) in enumerate(starts):
            sooner = [later for other, start, later in starts[at_ + 1 :] if other > block and start < began]
            if sooner:
                expected = (
                    f"a start before that of run {sooner[0].repeat + 1}, {sooner[0].started}: its block is earlier"
                )
                yield at(subject, record, ERROR, expected, record.started)
                break


def _longer(record: Record) -> str:
    return f"{rates.seconds(record):.6g} s of {record.seconds:.6g} s"


def _before(record: Record, created: datetime) -> bool:
    began = _moment(record.started)
    return began is not None and began + timedelta(seconds=SLACK) < created


def _together(subject: Subject, comparison: Comparison) -> Iterator[Finding]:
    """Runs that began while another was under way: one finding."""
    timed = [(began, record) for record in comparison.records if record.seconds and (began := _moment(record.started))]
    found = []
    for (before, first), (began, record) in pairwise(sorted(timed, key=lambda one: one[0])):
        over = (before + timedelta(seconds=first.seconds) - began).total_seconds()
        if over > SLACK:
            found.append((first, record, over))
    for first, record, over in found[:1]:
        expected = f"a start after the run of {first.job.system} before it ended"
        yield at(subject, record, WARNING, expected, f"{over:.3g} s before", len(found) - 1)


def _moment(told: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(told)
    except ValueError:
        return None
    return found if found.tzinfo else None


def losses(subject: Subject) -> Iterator[Finding]:
    comparison = subject.comparison
    rising: dict[tuple[str, str], list[Record]] = {}
    for record in comparison.records if comparison else ():
        if record.failure and record.failure.kind == "nan":
            yield at(subject, record, WARNING, "a loss that is a number", record.failure.message)
    for record in _done(subject):
        told = [window.loss for window in record.windows if window.loss is not None]
        if not told:
            continue
        if not all(map(math.isfinite, told)):
            yield at(subject, record, ERROR, "a loss that is a number", str(told[-1]))
        elif len(told) < len(record.windows) and record.job.traits.worker:  # JSON has no other word for NaN
            yield at(subject, record, WARNING, "a loss of each window", f"null in {len(record.windows) - len(told)}")
        elif len(told) > 1 and told[0] > 0 and told[-1] > ROSE * told[0]:
            severity = ERROR if told[-1] > FLEW * told[0] else WARNING
            rising.setdefault((record.job.id, severity), []).append(record)
        elif sum(window.steps for window in record.windows) >= LEARNT and told[-1] >= told[0] and len(told) > 1:
            rising.setdefault((record.job.id, WARNING), []).append(record)
    for (_, severity), records in rising.items():
        expected = "a loss in the last window below the first one's"
        yield from _each(subject, severity, expected, _rise, records)


def _rise(record: Record) -> str:
    told = [window.loss for window in record.windows if window.loss is not None]
    return f"{told[0]:.4g} in the first, {told[-1]:.4g} in the last"


def mean(subject: Subject) -> Iterator[Finding]:
    """Of logs whose own figure is a mean of rates, how far that is from samples over seconds."""
    for record in _done(subject):
        estimator = record.job.about.get("estimator", "")
        if "mean" in estimator.lower():
            total = rates.throughput(record)
            average = math.fsum(window.samples / window.seconds for window in record.windows) / len(record.windows)
            apart = average / total - 1
            severity = ERROR if apart > NOISE else WARNING
            found = f"{rates.shown(average)} as a mean of rates, {100 * apart:+.1f} %"
            yield at(subject, record, severity, f"{rates.shown(total)}: samples over seconds", found)


def few(subject: Subject) -> Iterator[Finding]:
    comparison = subject.comparison
    if comparison is None:
        return
    quick = summaries.few(comparison)
    for job in comparison.jobs:
        runs = sum(record.done for record in comparison.runs.get(job.id, ()))
        if job.traits.ranked and 0 < runs < 3:
            yield of_row(subject, job, WARNING, "3 runs or more", f"{runs}")
    if quick:
        expected = f"{summaries.STEPS} steps of a run, or {summaries.RUNS} runs of a row"
        found = f"{count(quick[0], 'step')}, {count(quick[1], 'run')}"
        yield Finding(WARNING, subject.name, "", "", "", "results.json", expected, found)


def window(subject: Subject) -> Iterator[Finding]:
    if subject.comparison is None:
        return
    for table in steady.found(subject.comparison):
        for job, slower in table.slower:
            found = f"the first was slower by {100 * slower:.1f} %; {table.windows} of each run left out of the figures"
            yield of_row(subject, job, WARNING, "windows after the warm-up", found)
    uneven = [one for one in _done(subject) if rates.window_spread(one) > SPREAD]
    yield from _each(
        subject,
        WARNING,
        f"windows of one run within {SPREAD} times",
        lambda one: f"{rates.window_spread(one):.3g} times from the slowest to the fastest",
        uneven,
    )


def load(subject: Subject) -> Iterator[Finding]:
    """Throttling, foreign load, errors of memory."""
    done = _done(subject)
    for name, most, who in disturbances.TAKERS:
        yield from _each(
            subject,
            WARNING,
            f"at most {100 * most:g} % of the CPUs' time for others",
            lambda one, name=name, who=who: f"{100 * disturbances.share([one], name):.1f} % for {who.lower()}",  # type: ignore[misc]
            [one for one in done if disturbances.share([one], name) > most],
        )
    for clock, what in (("cpu_mhz", "the CPU"), ("gpu_mhz_median", "the GPU")):
        yield from _each(
            subject,
            WARNING,
            f"clocks of {what} within {100 * disturbances.FELL:g} % from window to window",
            lambda one, clock=clock: f"a fall by {100 * disturbances.fall(one, clock):.0f} %",  # type: ignore[misc]
            [one for one in done if disturbances.fall(one, clock) > disturbances.FELL],
        )
        yield from _slower_clock(subject, done, clock, what)
    yield from _each(
        subject,
        WARNING,
        "clocks of the GPU that nothing holds down",
        lambda one: ", ".join(conditions.reasons(disturbances.seen(one, "gpu_throttle_reasons"))),
        [one for one in done if conditions.reasons(disturbances.seen(one, "gpu_throttle_reasons"))],
    )
    for name, what in COUNTS:
        yield from _each(
            subject,
            WARNING,
            f"no {what}",
            lambda one, name=name: f"{disturbances.seen(one, name):,.3g}",  # type: ignore[misc]
            [one for one in done if disturbances.seen(one, name)],
        )


def _slower_clock(subject: Subject, done: Sequence[Record], clock: str, what: str) -> Iterator[Finding]:
    """Runs of a row whose clock is far below that of most."""
    rows: dict[str, list[tuple[float, Record]]] = {}
    for one in done:
        if mhz := disturbances.seen(one, clock):
            rows.setdefault(one.job.id, []).append((mhz, one))
    for several in rows.values():
        usual = median(mhz for mhz, _ in several)
        slow = [(mhz, one) for mhz, one in several if len(several) > 2 and mhz < (1 - BELOW) * usual]
        if slow:
            expected = f"a clock of {what} near {usual:,.0f} MHz, the median of the runs of its row"
            yield at(subject, slow[0][1], WARNING, expected, f"{slow[0][0]:,.0f} MHz", len(slow) - 1)


#: conditions of which there should be none
COUNTS = (
    ("cpu_throttles", "slowing of CPUs for their temperature"),
    ("cpu_quota_seconds", "seconds that a control group's limit held threads back"),
    ("gpu_others", "processes of others on the GPU"),
    ("gpu_ecc_errors", "errors of the GPU's memory"),
)


def work(subject: Subject) -> Iterator[Finding]:
    comparison = subject.comparison
    if comparison is None:
        return
    for job in comparison.jobs:
        why = standings.obstacles(comparison).get(job.id)
        if why and comparison.runs.get(job.id):
            severity = ERROR if why.startswith(("different", "impossible")) else WARNING
            yield of_row(subject, job, severity, "the same work as other rows, proven", why)
    counts: dict[tuple[str, str], dict[int, Record]] = {}
    for record in _done(subject):
        if record.job.traits.ranked and record.parameter_count is not None:
            key = record.job.model, record.job.device
            counts.setdefault(key, {}).setdefault(record.parameter_count, record)
    for several in counts.values():
        first, *others = several.items()
        for number, record in others:
            expected = f"{first[0]:,} parameters, as {first[1].job.system} has"
            yield at(subject, record, ERROR, expected, f"{number:,}")


RULES = (
    Rule(
        "changed by hand",
        "Nobody changed a comparison's records after they were written.",
        WARNING,
        "each line's digest, and their order",
        changed,
    ),
    Rule(
        "steps of the protocol",
        "A run timed as many steps as its protocol claims.",
        ERROR,
        "arithmetic",
        steps,
    ),
    Rule(
        "samples of a window",
        "A window has as many samples as its steps have with the stated batch.",
        ERROR,
        "arithmetic, for synthetic input, of which each row is as long",
        samples,
    ),
    Rule(
        "clocks",
        "Windows take time, no more than their run; a run begins after its comparison, and after the run before it; "
        "blocks of runs follow each other.",
        ERROR,
        "arithmetic, and two seconds, since starts are written in whole seconds",
        clocks,
    ),
    Rule(
        "loss",
        "A loss is a number and does not rise.",
        ERROR,
        "it may rise by a fifth in a few steps without a warm-up of the learning rate, as BERT's does here; ten times "
        "is divergence; over 100 steps it falls",
        losses,
    ),
    Rule(
        "mean of a log's rates",
        "What a log's publisher calls its rate is samples over seconds.",
        ERROR,
        "as mean of rates; 2 % as super-linear",
        mean,
    ),
    Rule(
        "few runs or steps",
        "A row has three runs or more, and either 7 of them or 20 steps in each.",
        WARNING,
        "the conditions of dlperf.publish; DLPerf's protocol has 100 steps and 7 runs",
        few,
    ),
    Rule(
        "windows alike",
        "Windows begin after the warm-up, and those of one run are alike.",
        WARNING,
        "Student's t over the runs of a row, see dlperf/figures/steady.py; 1.2 times between windows",
        window,
    ),
    Rule(
        "throttling and foreign load",
        "Nobody else used the machine, and clocks stayed as they were.",
        WARNING,
        "shares and falls of dlperf/figures/disturbances.py: 2 to 5 %, more than intervals between runs have; 15 % "
        "from run to run",
        load,
    ),
    Rule(
        "same work",
        "Rows of one table did the same work, proven, with as many parameters.",
        ERROR,
        "the bars of the proofs, see CONTRIBUTING.md; numbers of parameters are equal or not",
        work,
    ),
)
