"""Rules on steps, windows and runs, as a table states them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from dlperf.audit.beside import logs_of, may_be_of
from dlperf.audit.cells import Cell, Subject, stated
from dlperf.audit.claims import runs_of, steps_of
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, merged, of
from dlperf.audit.tables import CELLS, COLUMNS, ROWS
from dlperf.words import count

#: the names under which options say how many steps ran
RAN = ("ran", "ran_steps", "steps_run", "steps_ran", "logged_steps")
FEW = 3


def steps(subject: Subject) -> Iterator[Finding]:
    """Steps that are claimed against those that ran, by options or a log beside."""
    logs: dict[Hashable, list[int]] = {}
    for one in subject.cells:
        if one.figure.origin == "log" and (ran := stated(one.figure.steps)):
            logs.setdefault((one.setting, one.size), []).append(int(ran))
    for one in subject.cells:
        figure = one.figure
        claimed = stated(figure.steps)
        if not claimed:
            continue
        told = [ran for name in RAN if (ran := stated(figure.options.get(name, ""))) is not None]
        if figure.origin != "log":
            told += [float(ran) for ran in logs.get((one.setting, one.size), ())]
        if told and max(told) < claimed:
            yield of(one, ERROR, f"{claimed:g} steps, as stated", f"{max(told):g} steps ran")
    yield from _ended(subject)


def _ended(subject: Subject) -> Iterator[Finding]:
    """Logs that end before the steps of the one row that they can be of, by its column or the text."""
    told, mine = _of_logs([one for one in subject.cells if "ended" in one.figure.options], subject)
    claims = Counter(id(log) for several in mine.values() for log in several)
    for one in told:
        logs = [log for log in mine[id(one)] if claims[id(log)] == 1]
        ran = [int(log.figure.options["ended"]) for log in logs]
        claimed = stated(one.figure.steps) or steps_of(subject.prose)
        if ran and max(ran) < claimed:
            where = logs[0].where
            yield of(one, ERROR, f"{claimed:g} steps, as stated", f"at most {max(ran)} steps ran, by its log ({where})")


def _of_logs(logs: Sequence[Cell], subject: Subject) -> tuple[list[Cell], dict[int, list[Cell]]]:
    """Rates that no log tells, one of each row, and by their identity the logs that they may be of."""
    sizes: dict[int | None, list[Cell]] = {}
    for one in logs:
        sizes.setdefault(one.size, []).append(one)
    rows = {(one.figure.table, one.figure.row, one.figure.system): one for one in subject.rates if not one.of_log}
    told = [one for one in rows.values() if logs and one.figure.origin != "log"]
    alone = len({one.figure.framework for one in logs}) == 1
    return told, {id(one): [log for log in logs_of(one, sizes) if may_be_of(log, one, alone)] for one in told}


def few_logs(subject: Subject) -> Iterator[Finding]:
    """Fewer logs beside a table than the runs that its figure is said to be of; one finding for all."""
    told, mine = _of_logs([one for one in subject.rates if one.of_log], subject)
    found: dict[tuple[int, int], list[Cell]] = {}
    for one in told:
        logs = {log.figure.path for log in mine[id(one)]}
        claimed = int(stated(one.figure.options.get("runs", "")) or runs_of(subject.prose))
        if 0 < len(logs) < claimed:
            found.setdefault((len(logs), claimed), []).append(one)
    for (here, claimed), several in found.items():
        yield from merged(several, WARNING, f"{claimed} runs, as stated", f"{here} of their logs")


def unread(subject: Subject) -> Iterator[Finding]:
    """Rows that were left out; and where no log of a folder has a figure: tables are held against nothing."""
    if subject.left:
        expected = f"tables of at most {ROWS:,} rows, {COLUMNS:,} columns and {CELLS:,} cells"
        yield Finding(WARNING, subject.name, "", "", "", "", expected, f"{count(subject.left, 'row')} not read")
    if subject.unread and not any(one.of_log for one in subject.rates):
        (name, why), *_ = subject.unread.items()
        found = f"{count(len(subject.unread), 'log')} could not be read: {name}: {why}"
        yield Finding(WARNING, subject.name, "", "", "", "", "logs with figures, to hold tables against", found)


def window(subject: Subject) -> Iterator[Finding]:
    """The warm-up, or the end of an epoch, in what was timed."""
    for one in subject.rates:
        options = one.figure.options
        claimed, epoch = stated(one.figure.steps), stated(options.get("epoch_steps", ""))
        if claimed and epoch and epoch < claimed:
            yield of(one, WARNING, f"{claimed:g} steps within an epoch", f"an epoch of {epoch:g} steps")
        held, size = stated(options.get("dataset", "")), one.global_batch
        if claimed and held and size[0] == "global" and size[1] and claimed * size[1] > held:
            expected = f"{claimed:g} steps within the {held:,.0f} samples of an epoch"
            yield of(one, WARNING, expected, f"{claimed:g} steps of {size[1]:g}: {claimed * size[1] / held:.2g} epochs")
        told = [options.get(key, "") for key in ("from_step", "warmup")]  # in whole steps, where seconds may be printed
        begin, warm = (stated(each) if each.isdecimal() else None for each in told)
        if begin is not None and warm and begin < warm:
            yield of(one, WARNING, f"steps after a warm-up of {warm:g}", f"steps from number {begin:g} on")
        if stated(options.get("warmup", "")) == 0:
            yield of(one, WARNING, "steps of a warm-up that are left out", "none left out")
        if options.get("step") == "1" and options.get("key") == "tracked_stats":
            yield of(one, WARNING, "an epoch after the first", "the first epoch, with the start of the pipeline")


def few_runs(subject: Subject) -> Iterator[Finding]:
    """By what is stated; one finding for each table."""
    for cells in subject.tables.values():
        found: dict[str, list[Cell]] = {}
        for one in cells:
            figure = one.figure
            if figure.quantity not in ("throughput", "time_to_train") or one.value is None or one.of_log:
                continue
            runs = stated(figure.options.get("runs") or figure.options.get("n") or "")
            if figure.estimator in ("one_run", "last_printed"):
                runs = 1
            if runs is not None and 0 < runs < FEW:
                found.setdefault(f"{runs:g}", []).append(one)
        for runs_, several in found.items():
            yield from merged(several, WARNING, f"{FEW} runs or more", runs_)


RULES = (
    Rule(
        "steps that never ran",
        "As many steps ran as are claimed.",
        ERROR,
        "arithmetic",
        steps,
    ),
    Rule(
        "warm-up or epoch end",
        "The steps that are timed come after a warm-up and end with no epoch.",
        WARNING,
        "DLPerf's protocol leaves 20 steps out; the first epochs in MLPerf's logs of ResNet-50 are up to 42 % slower "
        "than later ones",
        window,
    ),
    Rule(
        "few runs",
        "A figure is of three runs or more.",
        WARNING,
        "two runs have no outlier that can be told; DLPerf suggests seven, MLPerf asks for five of ResNet-50",
        few_runs,
    ),
    Rule(
        "logs of its runs",
        "Beside a table are the logs of as many runs as its figures are said to be of.",
        WARNING,
        "none: files are there or not",
        few_logs,
    ),
    Rule(
        "not read",
        "All rows of a table are read, and some of a folder's logs have figures.",
        WARNING,
        "none: what dlperf reads",
        unread,
    ),
)

#: of these, those that look at several tables
ACROSS = tuple(rule for rule in RULES if rule.judge in (steps, few_logs))
