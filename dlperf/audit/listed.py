"""The times of steps that stand in a list beside a rate, as benchmarks write them into a JSON. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence

from dlperf.audit import steps
from dlperf.audit.cells import SECONDS, Cell, Subject, counted, outside, stated
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.headings import STEP, normal
from dlperf.audit.logged import CLOCK, SAMPLES, WARM, is_of_each, of_steps, parts
from dlperf.audit.objects import PAUSE
from dlperf.audit.scaling import NOISE

#: of a heading, that its figures are the time of a step
TIMED = re.compile(r"^(step|iter\w*|batch)?[ _-]?(time|seconds|duration|latency)\b")
LEAST = 6
#: windows of a run
FEWEST = 3


def rates(subject: Subject) -> Iterator[Finding]:
    """A rate beside the times of its steps is samples over seconds, of all or all but the first ones."""
    for one, (number, mean, *_, totals) in _listed(subject):
        batch = _batch(one)
        if not batch:
            continue
        known = [batch * (number - skip) / total for skip, total in enumerate(totals)]
        if any(one.low * (1 - NOISE / 4) <= each <= one.high * (1 + NOISE / 4) for each in known):
            continue
        expected = f"{known[0]:,.5g}: samples over seconds of the {number:g} steps that are listed"
        apart = 100 * (one.number / known[0] - 1)
        if one.low * (1 - 1e-3) <= batch * mean <= one.high * (1 + 1e-3):
            yield of(one, ERROR, expected, f"{one.figure.printed}, the mean of their rates, {apart:+.1f} %")
        elif abs(apart) > 100 * NOISE:
            yield of(one, WARNING, expected, f"{one.figure.printed}, {apart:+.1f} %")


def means(subject: Subject) -> Iterator[Finding]:
    """A mean time of a step beside the times of steps, which is that of all, though a warm-up is left out."""
    for one in subject.cells:
        told = one.figure.options.get("listed", "")
        skip = stated(one.figure.options.get("warmup", "")) or 0.0
        unit = SECONDS.get(one.figure.unit)
        if not told or not unit or not skip or not MEAN.search(normal(one.figure.column)) or not one.number:
            continue
        number, _, _, _, *totals = map(float, told.split())
        if skip >= min(len(totals), number):
            continue
        every, right = (totals[int(each)] / (number - each) / unit for each in (0.0, skip))
        if abs(one.number / every - 1) < NOISE / 4 and abs(right / every - 1) > NOISE:
            expected = f"{right:,.5g}: the mean of the steps that are listed but for {skip:g}"
            yield of(one, ERROR, expected, f"{one.figure.printed}, the mean of all {number:g}")


MEAN = re.compile(r"^(mean|average|avg)\b.*\b(step|iter\w*|batch)\b")


def pauses(subject: Subject) -> Iterator[Finding]:
    for one, (_, _, at, times, _) in _listed(subject):
        left = (stated(one.figure.options.get(key, "")) or 0.0 for key in ("warmup", "from_step"))
        if at > max(left):
            expected = f"steps of at most {PAUSE:g} times their median, after the first"
            yield of(one, WARNING, expected, f"step {at:g} of the list takes {times:.3g} times as long")


def _listed(subject: Subject) -> Iterator[tuple[Cell, tuple[float, float, float, float, list[float]]]]:
    """Rates with times of their steps, once for each row."""
    rows: set[tuple[str, str]] = set()
    for one in subject.rates:
        told, row = one.figure.options.get("listed"), (one.figure.table, one.figure.row)
        if told and row not in rows and one.number:
            rows.add(row)
            number, mean, at, times, *totals = map(float, told.split())
            yield one, (number, mean, at, times, totals)


def _batch(one: Cell) -> float | None:
    """Samples of a step that a rate counts: of all devices, or of one where there is no more."""
    what = counted(one.figure.unit)
    kind, number = one.global_batch
    if not number or what not in ("rows", "rows per device", "steps"):
        return 1.0 if what == "steps" else None
    if what == "rows per device":
        return number / one.devices if kind == "global" and one.devices else number
    return number if kind == "global" or not one.size else None


def windows(subject: Subject) -> Iterator[Finding]:
    """A rate of all beside a table of windows, or steps, with the samples, seconds and rate of each."""
    parts = {name: made for name, cells in subject.tables.items() if (made := _windows(cells))}
    if len(parts) != 1 or not subject.plain or subject.prose:
        return
    ((name, every),) = parts.items()
    groups: dict[int | None, list[tuple[float, float, Cell]]] = {}
    for part in every:
        groups.setdefault(part[2].size, []).append(part)
    unit = counted(every[0][2].figure.unit)
    for one in subject.rates:
        beside = {each.figure.row for each in subject.tables[one.figure.table] if each.size == one.size}
        rows = groups.get(one.size, ())
        if one.figure.table == name or len(beside) > 1 or counted(one.figure.unit) != unit or len(rows) < FEWEST:
            continue
        total = sum(samples for samples, _, _ in rows) / sum(seconds for _, seconds, _ in rows)
        mean = statistics.fmean(rate.number for _, _, rate in rows)
        apart = one.number / total - 1
        if abs(one.number - mean) <= one.ulp and abs(apart) > NOISE / 4:
            expected = f"{total:,.6g}: samples over seconds of {len(rows)} windows"
            found = f"{one.figure.printed}, the mean of their rates, {100 * apart:+.1f} %"
            yield of(one, ERROR if abs(apart) > NOISE else WARNING, expected, found)


def _windows(cells: Sequence[Cell]) -> list[tuple[float, float, Cell]]:
    """Samples, seconds and rate of each row; none where a row lacks one."""
    rows: dict[str, list[Cell]] = {}
    for one in cells:
        rows.setdefault(one.figure.row, []).append(one)
    made = []
    for row in rows.values():
        rates = [one for one in row if one.figure.quantity == "throughput" and one.number]
        samples = [one.number for one in row if SAMPLES.fullmatch(normal(one.figure.column))]
        seconds = [one.number for one in row if CLOCK.match(normal(one.figure.column))]
        if len(rates) == len(samples) == len(seconds) == 1 and samples[0] and seconds[0]:
            made.append((samples[0], seconds[0], rates[0]))
    return made if len(made) == len(rows) >= FEWEST else []


def long_steps(subject: Subject) -> Iterator[Finding]:
    """Of a table of steps with the seconds of each, one that takes long, but for the first of a column, and for those
    before the first that a rate of the file is said to be of."""
    begins = {stated(one.figure.options.get("from_step", "")) for one in subject.rates} - {None}
    begin = begins.pop() or 0.0 if len(begins) == 1 else 0.0
    for (_, column), cells in subject.columns.items():
        if not TIMED.search(normal(column)):
            continue
        several = [
            one
            for one in cells
            if one.figure.quantity == "other"
            and one.number
            and not WARM.search(one.figure.row)
            and not (_step(one).isdecimal() and int(_step(one)) < begin)
        ]
        seconds = [one.number for one in several]
        if len(several) < LEAST or not is_of_each(seconds) or not of_steps(subject, several):
            continue
        usual = statistics.median(seconds)
        timed = several if begin and _step(several[0]) == f"{begin:g}" else several[1:]
        long = next((one for one in timed if one.number > PAUSE * usual), None)
        if long:
            expected = f"steps of at most {PAUSE:g} times their median, after the first"
            yield of(long, WARNING, expected, f"{long.figure.printed}: {long.number / usual:.3g} times as long")


def _step(one: Cell) -> str:
    """The last part of a row's label, which is its step in a table of these."""
    return one.figure.row.rpartition(" | ")[2]


def _steps(subject: Subject, cells: Sequence[Cell]) -> list[int]:
    """Of a table with a row for each step, their numbers."""
    heads = subject.labels.get(cells[0].figure.table, "").split(" | ")
    head = next((one for one in heads if STEP.fullmatch(normal(one))), "")
    told = dict.fromkeys(parts(subject, one).get(head, "") for one in cells) if head else {}
    return [int(one) for one in told if re.fullmatch(r"\d{1,9}", one)]


def named(subject: Subject) -> Iterator[Finding]:
    """Rates of rows that name another file, which is a list of steps with their rates: samples over seconds of all but
    some first ones, or their median."""
    files: dict[str, list[float]] = {}
    for cells in subject.columns.values():
        each = [one.number for one in cells if one.figure.quantity == "throughput" and one.number > 0]
        if len(each) == len(cells) >= LEAST and len(_steps(subject, cells)) == len(cells):
            stem = re.sub(r"\.\w{1,5}(: .*)?$", "", cells[0].figure.path.rpartition("/")[2]).lower()
            files[stem] = each if stem not in files else []
    for one in subject.rates if files else ():
        rows = one.figure.row.lower().split(" | ")
        each = next((files[part] for part in rows if files.get(part)), [])
        totals = [statistics.harmonic_mean(each[skip:]) for skip in (0, 1, 2, 5, 10) if skip + LEAST <= len(each)]
        if totals and one.low > 0:
            made = [*totals, statistics.median(each)]
            apart = outside(one, min(made), max(made))
            if apart > NOISE:
                expected = f"{totals[0]:,.6g}: samples over seconds of the {len(each)} steps of its file"
                yield of(one, ERROR, expected, f"{one.figure.printed}, {100 * apart:.1f} % apart")


def short(subject: Subject) -> Iterator[Finding]:
    """Steps that a file claims of which its own list of steps ends before; not of one that is a table beside logs."""
    lists = [found for cells in subject.tables.values() if len(found := _steps(subject, cells)) >= LEAST]
    most = steps.reach(lists[0]) if len(lists) == 1 else None
    if most is None or not subject.plain or subject.prose:
        return
    for one in subject.rates:
        claimed = stated(one.figure.steps)
        alone = len({each.figure.row for each in subject.tables[one.figure.table]}) == 1
        if claimed and alone and not one.of_log and most < claimed:
            yield of(one, ERROR, f"{claimed:g} steps, as stated", f"at most {most}, by its list of steps")


RULES = (
    Rule(
        "rate of listed steps",
        "A rate is samples over seconds of the steps whose times are listed with it.",
        ERROR,
        "arithmetic, within 0.5 %, of all steps or all but the first five; a mean of their rates within 0.1 %: an "
        "error; else more than 2 % as super-linear: a warning",
        rates,
    ),
    Rule(
        "mean of listed steps",
        "A mean time of steps is of those that are listed, but for a warm-up that is said to be left out.",
        ERROR,
        "arithmetic, within 0.5 %, of a warm-up of at most five steps; 2 % as super-linear",
        means,
    ),
    Rule(
        "rate of listed windows",
        "A rate of all windows that are listed is their samples over their seconds.",
        ERROR,
        "arithmetic: it is the mean of their rates, to the last digit; 2 % as super-linear, else a warning",
        windows,
    ),
    Rule(
        "rate of its list of steps",
        "The rate of a row that names a file of steps is samples over seconds of these.",
        ERROR,
        "2 % as super-linear, of all steps or all but the first 1 to 10, or their median",
        named,
    ),
    Rule(
        "list of steps ends early",
        "A file that lists its steps has as many as it says.",
        ERROR,
        "arithmetic, with one more line than it has",
        short,
    ),
    Rule(
        "long step in a table",
        "Of steps with the seconds of each none after the first takes three times the median.",
        WARNING,
        "as for pauses in a log",
        long_steps,
    ),
    Rule(
        "long step in a list",
        "No step after the first takes three times the median: an epoch does not end among them, nor does a warm-up.",
        WARNING,
        "as for pauses in a log",
        pauses,
    ),
)

#: of these, those that look at several files
ACROSS = tuple(rule for rule in RULES if rule.judge is named)
