"""Rules on steps, batch, samples, seconds and rates of one row, of which some are products of others. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from dlperf.audit import headings
from dlperf.audit.cells import SECONDS, Cell, Subject, counted, stated
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.headings import normal
from dlperf.audit.logged import SAMPLES
from dlperf.audit.scaling import NOISE

#: by what rows may differ that agree: digits that are printed
EXACT = 0.005
#: and from which on one has another number
CLEAR = 0.05
Row = Sequence[Cell]
TIMED = re.compile(rf"{headings.CLOCK}|^(measured|timed|benchmark) ?(seconds|time|duration)")


def products(subject: Subject) -> Iterator[Finding]:
    """Steps, batch, samples, seconds and rates of a row, where most rows agree."""
    for cells in subject.tables.values():
        rows: dict[str, list[Cell]] = {}
        for one in cells:
            rows.setdefault(one.figure.row, []).append(one)
        heads = {normal(one.figure.column) for one in cells}
        for what, needs, left, right in FORMULAS:
            if not any(map(needs.search, heads)):
                continue
            found: list[tuple[Cell, float, float, float]] = []
            for row in rows.values():
                (product, number), other = left(row), right(row)
                if product and number and other:
                    found.append((product, number, other, _open(row)))
            yield from _unlike(what, found)


def _open(row: Row) -> float:
    """By which share digits that are not printed may change a product of a row's rates and times."""
    counted_ = [
        one for one in row if one.number > 0 and (one.figure.unit in SECONDS or one.figure.quantity == "throughput")
    ]
    return sum(one.ulp / one.number for one in counted_)


def _unlike(what: str, found: Sequence[tuple[Cell, float, float, float]]) -> Iterator[Finding]:
    """Rows that are off by more than noise, where as many or more are right, or have one factor in common."""
    ratios = [number / other for _, number, other, _ in found]
    right = sum(abs(each - 1) <= EXACT for each in ratios)
    factor = 1.0
    if right * 2 < len(ratios) and what != HF:
        factor = max(ratios, key=lambda one: sum(abs(each / one - 1) <= EXACT for each in ratios), default=1.0)
        if sum(abs(each / factor - 1) <= EXACT for each in ratios) * 3 < 2 * len(ratios) or len(ratios) < 3:
            return
    for (one, number, other, open_), ratio in zip(found, ratios, strict=True):
        apart = abs(ratio / factor - 1)
        if apart > NOISE + open_:
            expected = f"{other * factor:,.6g}: {what}"
            severity = ERROR if apart > CLEAR else WARNING  # a step's time may be a mean of its own
            yield of(one, severity, expected, f"{number:,.6g}, {100 * (ratio / factor - 1):+.1f} %")


def _samples(row: Row) -> tuple[Cell | None, float]:
    found = [one for one in row if one.figure.quantity == "other" and SAMPLES.fullmatch(normal(one.figure.column))]
    return (found[0], found[0].number) if len(found) == 1 else (None, 0.0)


def _of_rate(row: Row) -> tuple[Cell | None, float]:
    """The samples of a rate and its seconds."""
    one = _rate(row, steps=False)
    clocks = [each for each in row if each.figure.quantity == "other" and TIMED.search(normal(each.figure.column))]
    if one is None or len(clocks) != 1:
        return None, 0.0
    return one, one.number * clocks[0].number * SECONDS.get(clocks[0].figure.unit, 1.0)


def _per_second(row: Row) -> tuple[Cell | None, float]:
    one = _rate(row, steps=False)
    return one, one.number if one else 0.0


def _rate(row: Row, steps: bool) -> Cell | None:
    """The one rate of a row that counts steps, or samples."""
    rates = [one for one in row if one.figure.quantity == "throughput" and one.number]
    found = [one for one in rates if (counted(one.figure.unit) == "steps") == steps]
    return found[0] if len(found) == 1 and "per device" not in counted(found[0].figure.unit) else None


def _batch(row: Row) -> float:
    batches = {one.global_batch for one in row if one.global_batch[1]}
    kind, number = batches.pop() if len(batches) == 1 else ("", None)
    return number or 0.0 if kind in ("global", "device") else 0.0


def _in_steps(row: Row) -> float:
    steps = {stated(one.figure.steps) for one in row if one.figure.steps}
    return (steps.pop() or 0.0) * _batch(row) if len(steps) == 1 else 0.0


def _in_a_second(row: Row) -> float:
    one = _rate(row, steps=True)
    return one.number * _batch(row) if one else 0.0


#: of a heading, that devices times time stand below it, and which part of an hour
OF_ALL = re.compile(r"\b(gpu|device|accelerator|chip|card|tpu)s?[ -]?(?P<unit>hours?|hrs?|days|minutes)\b")
UNITS = {"h": 3600.0, "d": 86400.0, "m": 60.0}


def _device_hours(row: Row) -> tuple[Cell | None, float]:
    found = [one for one in row if OF_ALL.search(normal(one.figure.column)) and one.number]
    return (found[0], found[0].number) if len(found) == 1 else (None, 0.0)


def _devices_by_time(row: Row) -> float:
    """In the unit of what is told in `_device_hours`."""
    one, _ = _device_hours(row)
    unit = OF_ALL.search(normal(one.figure.column)) if one else None
    times = [one for one in row if one.figure.quantity == "time_to_train" and one.figure.unit in SECONDS and one.number]
    if not unit or len(times) != 1:
        return 0.0
    return times[0].number * SECONDS[times[0].figure.unit] * times[0].devices / UNITS[unit["unit"][0]]


#: of a heading: the time of all rows of a data set, of a step, of all of a run
EPOCH = re.compile(r"\bepoch (time|seconds|duration)\b|\b(time|seconds|secs?|s|minutes|min|hours|h) ?(/|per) ?epoch\b")
STEP = re.compile(r"^(train )?(step|batch|iter\w*) (time|seconds|duration|latency)$")
#: of HF Trainer's all_results.json, of which one row tells enough
RUNTIME, SAMPLED, EPOCHS = (re.compile(one) for one in ("^train runtime$", "^train samples$", "^epoch$"))


def _over(row: Row, head: re.Pattern[str]) -> tuple[Cell | None, float]:
    """The rate of samples of a row, and how many these are in the time of the column with such a heading."""
    rate, times = _rate(row, steps=False), [one for one in row if head.search(normal(one.figure.column)) and one.number]
    if rate is None or len(times) != 1:
        return None, 0.0
    return times[0], rate.number * times[0].number * SECONDS.get(times[0].figure.unit, 1.0)


def _of_an_epoch(row: Row) -> tuple[Cell | None, float]:
    return _over(row, EPOCH)


def _of_a_step(row: Row) -> tuple[Cell | None, float]:
    """Of a time without a unit, as timm's tables have it; see logged.py of others."""
    one, number = _over(row, STEP)
    return (None, 0.0) if one is None or one.figure.unit in SECONDS else (one, number)


def _one(row: Row) -> float:
    """Of what is the same in all rows, whatever it is; 0 where rows tell their data, which may differ."""
    return 0.0 if any("data" in one.figure.options for one in row) else 1.0


def _of_tokens(row: Row) -> tuple[Cell | None, float]:
    found = _counting(row, "tokens")
    return found, found.number if found else 0.0


def _in_rows(row: Row) -> float:
    one = _counting(row, "rows")
    length = stated(one.figure.options.get("sequence", "")) if one else None
    return one.number * (length or 0.0) if one else 0.0


def _in_the_runtime(row: Row) -> float:
    samples, epochs, seconds = (_the(row, head) for head in (SAMPLED, EPOCHS, RUNTIME))
    return samples * epochs / seconds if seconds else 0.0


def _the(row: Row, head: re.Pattern[str]) -> float:
    """The number of the column with such a heading; 0 of none, or of several."""
    found = [one.number for one in row if head.search(normal(one.figure.column))]
    return found[0] if len(found) == 1 else 0.0


def _in_the_time(row: Row) -> tuple[Cell | None, float]:
    """Samples at the rate of all devices in the time to train."""
    rates = [one for one in row if one.figure.quantity == "throughput" and one.number and one.parts]
    times = [one for one in row if one.figure.quantity == "time_to_train" and one.figure.unit in SECONDS and one.number]
    if len(rates) != 1 or len(times) != 1 or counted(rates[0].figure.unit).startswith("steps"):
        return None, 0.0
    return times[0], rates[0].number * (rates[0].parts or 1) * times[0].number * SECONDS[times[0].figure.unit]


def _printed_samples(row: Row) -> float:
    return _samples(row)[1]


def _counting(row: Row, what: str) -> Cell | None:
    found = [one for one in row if one.figure.quantity == "throughput" and counted(one.figure.unit) == what]
    return found[0] if len(found) == 1 else None


#: of a heading, that its rates count steps, or tokens
OF_STEPS, OF_TOKENS = re.compile(r"\b(steps?|it|iter\w*|batches)\b"), re.compile(r"\bto?k(en)?s?\b|words?")
HF = "train_samples times epochs, over train_runtime"
#: in words, what a heading must be, the cell that is a product, and the product
FORMULAS: Sequence[tuple[str, re.Pattern[str], Callable[[Row], tuple[Cell | None, float]], Callable[[Row], float]]] = (
    ("steps times the global batch", SAMPLES, _samples, _in_steps),
    ("steps a second times the global batch", OF_STEPS, _per_second, _in_a_second),
    ("steps times the global batch, over the seconds", TIMED, _of_rate, _in_steps),
    ("devices times the time to train", OF_ALL, _device_hours, _devices_by_time),
    ("samples of an epoch, as most rows have them at their rates", EPOCH, _of_an_epoch, _one),
    ("samples of a step, as most rows have them at their rates", STEP, _of_a_step, _batch),
    ("samples in a second times their tokens", OF_TOKENS, _of_tokens, _in_rows),
    ("samples, as printed, that the rate is of in the time to train", SAMPLES, _in_the_time, _printed_samples),
    (HF, SAMPLED, _per_second, _in_the_runtime),
)

RULES = (
    Rule(
        "product of its row",
        "Samples are steps times the global batch, and so are rates of samples and of steps, in all rows of a table.",
        ERROR,
        "arithmetic: half of the rows or more within 0.5 %, or two of three with one factor; 2 % as super-linear, "
        "and what digits leave open: a warning up to 5 %",
        products,
    ),
)
