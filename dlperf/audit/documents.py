"""Rules on what a document says around its tables: logs that it quotes, and its text on steps, batch and runs. Pure."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, combinations, pairwise

from dlperf.audit import headings, steps
from dlperf.audit.cells import Cell, Subject, counted, outside, stated
from dlperf.audit.claims import NUMBER, WINDOW, claims, runs_of, steps_of, window
from dlperf.audit.excerpts import Excerpt, steady
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.logged import FIRST
from dlperf.audit.reprints import slipped
from dlperf.audit.scaling import NOISE

#: above what the few lines of an excerpt leave to the others of its log
LINES = 0.05
#: lines of a log of which every part is looked at, unless more parts than this have a figure by chance
MOST_LINES, CHANCE = 200, 0.1
#: first lines of a log that a figure may leave out, and by which one is known that is of all its steps
SKIPPED, WARMED = (0, 1, 2, 3, 5, 10, 20, 50, 100), 0.02
#: by which two lines differ whose rates are of all steps before them
SMOOTH = 0.001
#: of a cell that is held against a number of the same name
DIGITS = 3
#: times the steps of a log that may be claimed of it: beyond, it is another run's
RUN = 3
#: lines of steps from which on a quoted log may be all of it
LEAST_LINES = 4
#: times that a figure may be off its log: beyond, the log is another run's, or one of its size
OTHER, OTHER_SIZE = 1.5, 4.0
EXAMPLE = re.compile(
    r"\b(example|sample (output|log)|similar|looks? like|e\.g|should (see|print|be)|typical|expected output|"
    r"for instance|format|prints)\b",
    re.IGNORECASE,
)


def quoted(subject: Subject) -> Iterator[Finding]:
    """The figure that a quoted log is of, where that is known: the only one of its document, or of its size."""
    found: dict[int, tuple[Cell, list[Excerpt]]] = {}
    sizes = _sizes(subject)
    yield from _of_windows(subject, sizes)
    for one in subject.excerpts:
        if one.read or EXAMPLE.search(one.above) or not (one.total or len(steady(one)) > 1):
            continue
        if one.unit == "time":
            yield from _timed(subject, one, sizes)
            continue
        rates = _rates(subject, one)
        mine = _of_size(rates, one, sizes)
        if len(mine) == 1 and (odd := _of_all_lines(mine[0], one)):
            yield odd
            continue
        if any(_off(cell, [one]) <= NOISE for cell in rates) or len(mine) != 1:
            continue
        found.setdefault(id(mine[0]), (mine[0], []))[1].append(one)
    for cell, logs in found.values():
        off, (low, high) = _off(cell, logs), _span(logs)
        total = len(logs) == 1 and logs[0].total is not None
        if (NOISE / 4 if total and logs[0].file else NOISE) < off < OTHER - 1:
            between = f"{low:,.6g}" if total else f"{low:,.6g} to {high:,.6g}"
            expected = f"{between}, as its log in {logs[0].at(_line(logs[0]))} has"
            severity = ERROR if (total and off > NOISE) or off > LINES else WARNING
            yield of(cell, severity, expected, f"{cell.figure.printed}, {100 * off:.1f} % apart")


def named(subject: Subject) -> Iterator[Finding]:
    """A column whose name is that of a number in a document's code, and has one cell."""
    columns: dict[str, list[Cell]] = {}
    for one in subject.cells if subject.named else ():
        if one.value is not None and one.figure.origin != "log":
            columns.setdefault(re.sub(r" ?\([^)]*\)$", "", headings.normal(one.figure.column)), []).append(one)
    for name, cells in columns.items():
        numbers = subject.named.get(name, ())
        if len(cells) != 1 or len(numbers) != 1 or cells[0].digits < DIGITS:
            continue
        (line, printed), one = numbers[0], cells[0]
        value = float(printed)
        if not one.low <= value <= one.high and value and NOISE < abs(one.number / value - 1) < OTHER - 1:
            severity = ERROR if slipped(printed, one.figure.printed) else WARNING
            yield of(one, severity, f"{printed}, as line {line} has of “{name}”", one.figure.printed)


def _of_all_lines(cell: Cell, log: Excerpt) -> Finding | None:
    """A figure that is the mean of a log's rates, or of all its steps with those of a warm-up, where that is another
    than samples over seconds. Its lines are of as many steps each."""
    rates = [rate for _, _, rate in log.rates]
    gaps = {b - a for (_, a, _), (_, b, _) in pairwise(log.rates)}
    if len(rates) < LEAST_LINES or len(gaps) > 1:
        return None
    usual = statistics.harmonic_mean([rate for _, _, rate in steady(log)])
    sums = list(accumulate(rates, initial=0.0))
    for since, until in _parts(cell, rates):
        part, mean = log.rates[since:until], (sums[until] - sums[since]) / (until - since)
        if abs(cell.number - mean) > cell.ulp:
            continue
        total = statistics.harmonic_mean(rates[since:until])
        if mean / total - 1 > NOISE:
            expected = f"{total:,.6g}: samples over seconds of {log.at(part[0][0])} to {part[-1][0]}"
            return of(cell, ERROR, expected, f"{cell.figure.printed}, the mean of their rates")
    total = statistics.harmonic_mean(rates)
    if abs(cell.number / total - 1) < WARMED and usual / total - 1 > FIRST - 1:
        expected = f"{usual:,.6g}, as the log in {log.at(log.line)} has after its first steps"
        return of(cell, WARNING, expected, f"{cell.figure.printed}, that of all its steps")
    return None


def _parts(cell: Cell, rates: Sequence[float]) -> list[tuple[int, int]]:
    """The parts of a log that a figure may be the mean of: all that are long enough, where these are so few that none
    has its digits by chance; else all lines, or all but some first ones. None where it is samples over seconds."""
    if abs(cell.number - statistics.harmonic_mean(rates)) <= cell.ulp:
        return []
    chance = len(rates) ** 2 * cell.ulp / max(max(rates) - min(rates), cell.ulp)
    if len(rates) > MOST_LINES or chance > CHANCE:
        return [(skip, len(rates)) for skip in SKIPPED if skip + LEAST_LINES <= len(rates)]
    return [(a, b) for a, b in combinations(range(len(rates) + 1), 2) if b - a >= LEAST_LINES]


def _timed(subject: Subject, log: Excerpt, sizes: Mapping[str, int]) -> Iterator[Finding]:
    """The only rate of its size, of a known batch, against the times of a log's steps."""
    mine = _of_size(list(subject.rates), log, sizes)
    batch = _in_a_step(mine[0]) if len({one.figure.row for one in mine}) == 1 else None
    if not batch:
        return
    one = mine[0]
    each = [rate * batch for _, _, rate in steady(log)]
    off = outside(one, min(each), max(each))
    if LINES < off < (OTHER_SIZE if log.file in sizes else OTHER) - 1:
        expected = f"{min(each):,.6g} to {max(each):,.6g}: {batch:g} over the times in {log.at(log.line)} and below"
        yield of(one, WARNING, expected, f"{one.figure.printed}, {100 * off:.1f} % apart")


def _in_a_step(one: Cell) -> float | None:
    """What its rate counts, in a step of a batch that is known."""
    what, _, part = counted(one.figure.unit).partition(" per ")
    kind, number = one.global_batch
    if not number and (number := stated(one.figure.options.get("whole_batch", ""))):
        kind = "global"
    length = stated(one.figure.options.get("sequence", "")) if what == "tokens" else 1.0
    if kind != "global" or not number or not length or what not in ("rows", "tokens", "") or part not in ("", "device"):
        return None
    return number * length / (one.devices if part else 1) if one.devices or not part else None


def _line(one: Excerpt) -> int:
    return one.total[0] if one.total else one.line


def _rates(subject: Subject, one: Excerpt) -> list[Cell]:
    """Those of a document that count what a log does, as far as both tell."""
    mine = counted(one.unit) if one.unit else ""
    units = {cell.figure.unit for cell in subject.rates}
    alike = {unit for unit in units if not mine or counted(unit) in (mine, "", unit.strip())}
    return [cell for cell in subject.rates if cell.figure.unit in alike]


def _sizes(subject: Subject) -> dict[str, int]:
    """Devices of logs that are files, by the one number in which their names differ, and which numbers of devices are:
    n1.log and n4.log, 1gpu/run2.log."""
    known = {one.devices for one in subject.rates if one.devices}
    alike: dict[str, list[str]] = {}
    for one in subject.excerpts:
        if one.file:
            alike.setdefault(re.sub(r"\d+", "#", one.file), []).append(one.file)
    found: dict[str, int] = {}
    for names in alike.values():
        columns = [*zip(*(map(int, re.findall(r"\d+", name)) for name in names), strict=True)]
        fit = [column for column in columns if len({*column}) > 1 and {*column} <= known]
        if len(fit) == 1:
            found |= dict(zip(names, fit[0], strict=True))
    return found


#: precisions that are none of 16 bits; a log need not tell TF32
KINDS = {"fp32": "fp32", "tf32": "", "": ""}


def _of_windows(subject: Subject, sizes: Mapping[str, int]) -> Iterator[Finding]:
    """A figure beside the logs of its runs, against their samples over seconds: of the steps that the text states, or
    of all but some first ones."""
    since, until = window(subject.prose)
    held: dict[int, tuple[Cell, list[tuple[float, Excerpt]]]] = {}
    for log in subject.excerpts:
        gaps = {b - a for (_, a, _), (_, b, _) in pairwise(log.rates)}
        if log.read or log.file not in sizes or len(gaps) != 1:
            continue
        told = _rates(subject, log) if log.unit != "time" else list(subject.rates)
        mine = _of_size(told, log, sizes)
        each = max(gaps)  # steps of a line, which begin before the one that it names
        if len(log.rates) > LEAST_LINES and len(mine) == 1 and not log.total:
            batch = _in_a_step(mine[0]) if log.unit == "time" else 1.0
            rates = [rate * batch for _, _, rate in log.rates] if batch else []
            numbers = [at for _, at, _ in log.rates]
            inside = [rate for at, rate in zip(numbers, rates, strict=False) if since + each - 1 <= at <= until]
            whole = bool(inside) and numbers[0] <= since + each and until <= numbers[-1] + each
            made = [statistics.harmonic_mean(inside)] if whole else _totals(rates)
            held.setdefault(id(mine[0]), (mine[0], []))[1].extend((total, log) for total in made)
            told_ = KINDS.get(mine[0].figure.precision, "half")
            if log.precision and told_ and told_ != log.precision:
                yield of(mine[0], WARNING, f"{mine[0].figure.precision}, as stated", f"{log.precision} in {log.file}")
    for cell, totals in held.values():
        low, high = (least(totals, key=lambda one: one[0]) for least in (min, max))
        off = outside(cell, low[0], high[0]) if totals and cell.low > 0 else 0.0
        if NOISE < off < OTHER_SIZE - 1 and not cell.figure.options.get("steps"):
            near = low if cell.number < low[0] else high
            steps_ = f"steps {since} to {until}" if until else "its steps"
            expected = f"{near[0]:,.6g}: samples over seconds of {steps_} in {near[1].file}"
            severity = ERROR if off > LINES else WARNING
            yield of(cell, severity, expected, f"{cell.figure.printed}, {100 * off:.1f} % apart")


def _totals(rates: Sequence[float]) -> list[float]:
    """Samples over seconds of all steps, and without some first ones, which are a warm-up where that makes them slower;
    also the median, and what the last line has, if it is of all before it."""
    if len(rates) < LEAST_LINES:
        return []
    late = statistics.harmonic_mean(rates[len(rates) // 2 :])
    totals = [statistics.harmonic_mean(rates[skip:]) for skip in SKIPPED if skip + LEAST_LINES <= len(rates)]
    whole = [rates[-1]] if abs(rates[-1] / rates[-2] - 1) < SMOOTH else []
    return [late, *(one for one in totals if one * (1 + NOISE) > late), statistics.median(rates), *whole]


def few_logs(subject: Subject) -> Iterator[Finding]:
    """Of the logs beside a table those of one size that are fewer than the runs which its text states, and others
    have."""
    sizes, claimed = _sizes(subject), runs_of(subject.prose)
    counts = Counter(sizes.values())
    if not claimed or not any(count >= claimed for count in counts.values()):
        return
    for one in _first_of_rows(subject.rates):
        if 0 < counts[one.devices] < claimed:
            yield of(one, WARNING, f"{claimed:g} runs, as stated", f"{counts[one.devices]} of their logs")


def _of_size(rates: Sequence[Cell], one: Excerpt, sizes: Mapping[str, int] | None = None) -> list[Cell]:
    """Those on the devices that the text above a log names, or its file's name as sizes has them; all, where neither
    does."""
    size = headings.size(one.above)[1] or (sizes or {}).get(one.file)
    named = KINDS.get(headings.precision(one.above), "half") if headings.precision(one.above) and one.file else ""
    rates = [cell for cell in rates if not named or KINDS.get(cell.figure.precision, "half") in (named, "")]
    return [cell for cell in rates if cell.size == size or not cell.size] if size else list(rates)


def _span(logs: Sequence[Excerpt]) -> tuple[float, float]:
    rates = [rate for one in logs for rate in ([one.total[1]] if one.total else [each[2] for each in steady(one)])]
    return min(rates), max(rates)


def _off(cell: Cell, logs: Sequence[Excerpt]) -> float:
    """By which share a figure lies outside of logs."""
    return outside(cell, *_span(logs))


def windows(subject: Subject) -> Iterator[Finding]:
    """A stated window of steps with one in it that its quoted log shows to be of a warm-up."""
    told = [(one, found) for one in _first_of_rows(subject.rates) for found in WINDOW.finditer(one.figure.row)]
    told += [(one, found) for one in subject.rates[:1] for found in WINDOW.finditer(subject.prose)]
    for log in subject.excerpts:
        if len(log.rates) < 4:
            continue
        usual = statistics.median(rate for _, _, rate in log.rates)
        first = log.rates[0]
        for one, found in told:
            since, until = (int(each.replace(",", "")) for each in found.groups())
            if since <= first[1] <= until and first[2] * FIRST < usual and first[1] - since < 2:
                slow = f"step {first[1]} is {usual / first[2]:.3g} times as slow ({log.at(first[0])})"
                yield of(one, WARNING, f"steps {since} to {until} without a warm-up", slow)
                break


def _first_of_rows(cells: Sequence[Cell]) -> list[Cell]:
    return list({(one.figure.table, one.figure.row): one for one in reversed(cells)}.values())[::-1]


def ended(subject: Subject) -> Iterator[Finding]:
    """A quoted log that ends before the steps that are claimed: one that begins with the first steps and has half of
    all, unless lines were left out."""
    for log in subject.excerpts:
        most = steps.most(log.table)
        whole = log.ended or (len(log.table.rows) >= LEAST_LINES and not log.cut and steps.begins(log.table))
        if log.read or not whole or most is None or EXAMPLE.search(log.above):
            continue
        told = [(claimed, one) for one in _of_size(subject.rates, log) if (claimed := _claimed(one))]
        if not told and (said := steps_of(subject.prose)):
            told = [(said, one) for one in _of_size(subject.rates, log)]
        claimed, one = min(told, key=lambda each: each[0], default=(0.0, None))
        if one and most < claimed <= most * (RUN if log.ended else 2):
            severity, unless = (ERROR, "") if log.ended else (WARNING, ", unless its end was left out")
            found = f"at most {most} ran, by the log in {log.at(log.line)}{unless}"
            yield of(one, severity, f"{claimed:g} steps, as stated", found)


def _claimed(one: Cell) -> float | None:
    """The steps that a row says it is of, or that it says ran, where no column has both."""
    return stated(one.figure.steps) or stated(one.figure.options.get("ran", ""))


ALL = re.compile(r"\b(each|every|all|any|always|same|throughout|per (case|run|configuration|row|cell|figure))\b", re.I)


OF_DEVICES = re.compile(
    r"\b(each|every|all|same) (\d+ )?(gpu|device|node|card|worker|accelerator|machine|epoch|step)s?\b", re.I
)


def stated_for_all(subject: Subject) -> Iterator[Finding]:
    """What the text says of all figures, and all rows but few have in a column."""
    sentences = re.split(r"[.;!]\s|\n", subject.prose)
    printed = {float(one.replace(",", "")) for one in re.findall(NUMBER, subject.prose)}
    for what in NAMED:
        claimed = {
            number
            for sentence in sentences
            if ALL.search(OF_DEVICES.sub(" ", sentence))
            for number in ([_batch(sentence)] if what == "batch" else claims(sentence, what))
            if number
        }
        several = what == "batch" and len({one.figure.table for one in subject.rates}) > 1
        if len(claimed) != 1 or several:
            continue
        claim = claimed.pop()
        for cells in subject.tables.values():
            for option in HELD[what]:
                held = [(one, number) for one in _first_of_rows(cells) if (number := _held(one, option)) is not None]
                wrong = [(one, number) for one, number in held if number != claim]
                if len(wrong) * 2 > len(held):
                    continue
                for one, number in wrong:
                    if what in ("batch", "warmup") or (number < claim and not (what == "steps" and number in printed)):
                        severity = ERROR if what == "steps" else WARNING
                        yield of(one, severity, f"{claim:g} {NAMED[what]}, as the text says of all", f"{number:g}")


NAMED = {"steps": "steps", "warmup": "steps of a warm-up", "batch": "samples in a batch", "runs": "runs"}
#: the options of a cell, or fields, that have it
HELD = {"steps": ("steps", "ran"), "warmup": ("warmup",), "batch": ("batch",), "runs": ("runs",)}


def _batch(sentence: str) -> float | None:
    number, _ = headings.batch(sentence)
    return float(number) if number else None


def _held(one: Cell, option: str) -> float | None:
    """What a cell's row says of it."""
    fields = {"steps": one.figure.steps, "batch": one.figure.batch}
    return stated(fields.get(option, one.figure.options.get(option, "")))


RULES = (
    Rule(
        "not in the quoted log",
        "A figure is what the log says that its document quotes.",
        ERROR,
        "2 % as for super-linear, of a total that is printed; 5 % outside of all quoted lines; between, a warning",
        quoted,
    ),
    Rule(
        "logs of each size",
        "Beside a table are the logs of as many runs on each number of devices as its text says.",
        WARNING,
        "none: files are there or not",
        few_logs,
    ),
    Rule(
        "not what its code prints",
        "A figure that has the name of a number in its document's code, as a log prints it, is that number.",
        ERROR,
        "2 % as for super-linear; an error where one digit is another or digits changed places",
        named,
    ),
    Rule(
        "warm-up in a stated window",
        "The steps that a figure is said to be of are as fast in the quoted log, from the first on.",
        WARNING,
        "as for warm-up in a log",
        windows,
    ),
    Rule(
        "quoted log ends early",
        "A log that is quoted has as many steps as are claimed.",
        ERROR,
        "arithmetic, with one more line than it has; a warning where nothing says that it is quoted to its end",
        ended,
    ),
    Rule(
        "text and table",
        "What the text says of all figures, on steps, warm-up, batch and runs, is so in all rows of a table.",
        ERROR,
        "none: numbers are equal or not; an error of steps that are fewer",
        stated_for_all,
    ),
)
