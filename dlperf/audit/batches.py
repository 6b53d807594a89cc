"""Rules on batches, work and estimators, as a table states them. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations

from dlperf.audit import headings
from dlperf.audit.cells import SECONDS, Cell, Subject, counted, stated
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, merged, of
from dlperf.audit.headings import normal
from dlperf.audit.scaling import NOISE

#: options that change what a step computes
WORK = ("clip", "loss_scale", "data", "task", "asp", "dgc", "optimizer", "vocabulary", "masked")
#: times that a rate times a latency may be off the batch, where each is a mean of its own
FAR = 1.25
#: and where it says that it is one
OWN = 1.12
#: between these a product is off whose time is in another unit
OF_UNITS = ((0.0009, 0.001095), (999.5, 1095.0))
NUMBERS = re.compile(r"\d{1,12}(?:\.\d+)?")


def global_batch(subject: Subject) -> Iterator[Finding]:
    """Of each row, once for each precision."""
    for table, cells in subject.tables.items():
        parts = [part.strip() for part in subject.labels.get(table, "").split("|")]
        heads = [(head, _batch_of(head)) for head in parts]
        seen: set[Hashable] = set()
        for one in sorted(cells, key=lambda one: one.figure.quantity != "throughput"):
            figure = one.figure
            key = figure.row, figure.precision, figure.batch
            if figure.batch_of != "device" or key in seen:
                continue
            seen.add(key)
            told = _told(one, heads)
            batch, accumulated = stated(figure.batch), stated(figure.options.get("accumulation", "")) or None
            if not batch:
                continue
            for (what, _), numbers in told.items():
                product, words = batch, f"{figure.batch}"
                if accumulated:
                    product, words = product * accumulated, f"{words} x {accumulated:g}"
                elif what == "accumulated":
                    continue
                copies = one.copies
                if what == "global":
                    if not copies:
                        continue
                    product, words = product * copies, f"{words} x {copies} {(one.split and 'copies') or 'devices'}"
                    if one.split and not accumulated and all(number % product == 0 for number in numbers):
                        continue  # a pipeline has as many micro-batches in a step as it likes
                # a global batch may be counted in tokens
                if not {product, product * (stated(figure.options.get("sequence", "")) or 1)} & {*numbers}:
                    expected = f"{words} = {product:g}"
                    printed = " or ".join(f"{number:g}" for number in numbers)
                    yield of(one, ERROR, expected, f"{printed} as {what} batch")


def _batch_of(head: str) -> str:
    """Which batch a heading is of: `global`, or `accumulated`; empty of another."""
    what = "global" if re.search("global.*batch", head, re.IGNORECASE) else ""
    return "accumulated" if re.search("accumulated batch", head, re.IGNORECASE) else what


def _told(one: Cell, heads: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
    """The batches that a row's label or options state: `global`, or `accumulated` on each device, and by which
    column."""
    found = {
        (what, ""): [number]
        for what, name in (("global", "global_batch"), ("accumulated", "accumulated"))
        if (number := stated(one.figure.options.get(name, ""))) is not None
    }
    parts = [part.strip() for part in one.figure.row.split("|")]
    if len(parts) == len(heads) > 1:
        for (head, what), part in zip(heads, parts, strict=True):
            if not what:
                continue
            numbers = [float(number) for number in NUMBERS.findall(headings.whole_numbers(part, head))]
            if numbers:
                found.pop((what, ""), None)
                found[what, head] = _of_precision(one.figure.precision, head, numbers)
    return found


def _of_precision(precision: str, head: str, numbers: list[float]) -> list[float]:
    """Of several numbers that which the head names for a precision; all where it does not."""
    names = re.findall(r"mixed precision|FP16|AMP|FP32|TF32|BF16", head)
    kinds = ["narrow" if name in ("mixed precision", "FP16", "AMP", "BF16") else "wide" for name in names]
    mine = "wide" if precision in ("fp32", "tf32") else "narrow"
    if len(kinds) == len(numbers) == len(set(kinds)) and precision and mine in kinds:
        return [numbers[kinds.index(mine)]]
    return numbers


def samples_in_a_step(subject: Subject) -> Iterator[Finding]:
    """Where a row has the seconds of a step beside its rate. Where half of a table's rows or more are off, its batch
    counts something else than its rate, as texts and words."""
    for cells in subject.tables.values():
        rows: dict[str, list[Cell]] = {}
        for one in cells:
            rows.setdefault(one.figure.row, []).append(one)
        told = [list(_in_a_step(row)) for row in rows.values()]
        held = [found for several in told for found in several]
        wrong = [found for _, found in held if found]
        if len(held) < 2 or len(wrong) * 2 <= len(held) or all(of_units for of_units, _ in held):
            yield from wrong


def _in_a_step(row: Sequence[Cell]) -> Iterator[tuple[bool, Finding | None]]:
    """None of a time that fits; of the others whether it is in another unit than it says, beside a rate a second."""
    rates = [one for one in row if one.figure.quantity == "throughput" and one.number]
    for one in row:
        unit = one.figure.unit.lower()
        per = re.fullmatch(r"(ms|s|sec|seconds)(/(step|it|iter|iteration|batch))?", unit)
        column = one.figure.column
        steps = "/" in unit or bool(re.search(r"latency|step|iter|batch time", column, re.IGNORECASE))
        steps = steps and not re.search(r"\d ?%|p\d\d|max|min\b", column, re.IGNORECASE)
        if one.figure.quantity != "other" or not per or not steps or not one.number:
            continue
        beside = [rate for rate in rates if rate.figure.system == one.figure.system] or rates
        if len(beside) != 1:
            continue
        rate, number = beside[0], beside[0].global_batch
        if number[0] == "device" and not rate.size:
            number = "global", number[1]  # of one device, as far as its table tells
        if not number[1] or number[0] != "global" or not rate.number:
            continue
        tokens = stated(rate.figure.options.get("sequence", "")) if counted(rate.figure.unit) == "tokens" else None
        scale = SECONDS[per[1]] / (tokens or 1.0)  # of a row of so many
        batch = rate.number * one.number * scale
        low, high = rate.low * one.low * scale, rate.high * one.high * scale
        if not low * (1 - NOISE) <= number[1] <= high * (1 + NOISE):
            found = f"{batch:.5g}: {rate.figure.printed} times {one.figure.printed} {one.figure.unit}"
            near = 1 / FAR < batch / number[1] < FAR
            if 1 / OWN < batch / number[1] < OWN and re.search(r"\b(avg|mean|average)\b", normal(column)):
                continue  # of which each is a mean of its own
            severity, times = WARNING if near else ERROR, batch / number[1]
            of_units = any(low <= times < high for low, high in OF_UNITS)
            told = of(rate, severity, f"{number[1]:g} samples in a step", f"{found}, {times:.3g} times")
            yield of_units and headings.unit(rate.figure.column).endswith("/s"), told
        else:
            yield False, None


def estimators(subject: Subject) -> Iterator[Finding]:
    for cells in subject.tables.values():
        groups: dict[str, list[Cell]] = {}
        for one in cells:
            known = one.figure.estimator not in ("", "unknown") and not one.of_log
            if one.figure.quantity == "throughput" and one.number and known:
                groups.setdefault(one.figure.estimator, []).append(one)
        if len(groups) > 1:
            columns = [{one.figure.column for one in several} for several in groups.values()]
            rows = any(one == other for one, other in combinations(columns, 2))
            told = "; ".join(
                f"{name.replace('_', ' ')} in "
                + ", ".join(dict.fromkeys(one.figure.row if rows else one.figure.column for one in several))
                for name, several in groups.items()
            )
            first = next(iter(groups.values()))[0]
            yield of(first, WARNING, "one estimator in a table", told, sum(map(len, groups.values())) - 1)


def batches(subject: Subject) -> Iterator[Finding]:
    """On one number of devices, what systems compare; of one system, a single size with another batch."""
    for cells in subject.tables.values():
        groups: dict[Hashable, list[Cell]] = {}
        sized = any(one.size for one in cells)
        for one in cells:
            figure = one.figure
            if figure.quantity == "throughput" and one.number and one.batch[1]:
                of_what = figure.model, figure.precision, figure.options.get("sequence"), figure.device
                frameworks = figure.framework and not sized  # of what they differ in alone
                key = (*of_what, one.size or (figure.system if frameworks else figure.row))
                groups.setdefault(key, []).append(one)
        odd = [several for several in groups.values() if _apart(several, lambda one: one.batch)]
        if odd:
            told = ", ".join(dict.fromkeys(f"{one.figure.batch} ({_named(one)})" for one in odd[0]))
            yield from merged([several[0] for several in odd], WARNING, "one batch per device of all systems", told)
    for series in subject.any_batch:
        batches_ = Counter(one.batch for one in series)
        (usual, count), *others = batches_.most_common()
        odd_ = next((one for one in series if one.batch != usual), None)
        whole = {one.accumulated for one in series}
        if odd_ and usual[1] and odd_.batch[1] and count > len(others) == 1 and count > 1 and len(whole) > 1:
            yield of(
                odd_, WARNING, f"a batch of {usual[1]:g} on each device, as on {count} other sizes", odd_.figure.batch
            )


def _apart(cells: Sequence[Cell], value: Callable[[Cell], Hashable]) -> bool:
    """Whether two systems have no value in common: of several each, they are compared at those that both have."""
    mine: dict[Hashable, set[Hashable]] = {}
    for one in cells:
        mine.setdefault(_who(one), set()).add(value(one))
    return any(a.isdisjoint(b) for a, b in combinations(list(mine.values())[:MOST], 2))


#: systems of a table that are held against each other
MOST = 100


def _who(one: Cell) -> Hashable:
    return one.figure.framework, one.figure.version, one.figure.system


def _named(one: Cell) -> str:
    """The system by its column, or in a table with a row for each by its own name."""
    figure = one.figure
    return (figure.framework or figure.system or figure.row) if COUNTS.search(figure.column) else figure.column


#: a heading that names no system
COUNTS = re.compile(r"/ ?s|per|throughput|rate|speed|^printed$", re.IGNORECASE)


def work(subject: Subject) -> Iterator[Finding]:
    """Columns of a table that compute something else."""
    for cells in subject.tables.values():
        rates = [one for one in cells if one.figure.quantity == "throughput" and one.number]
        for option in WORK:
            values: dict[str, list[Cell]] = {}
            for one in rates:
                value = one.figure.options.get(option, "not told" if option == "clip" else "")
                values.setdefault(value, []).append(one)
            values.pop("", None)
            models = {one.figure.model for several in values.values() for one in several}
            if len(values) > 1 and len(models) == 1:
                told = "; ".join(
                    f"{value} in {', '.join(dict.fromkeys(one.figure.column for one in several))}"
                    for value, several in values.items()
                )
                first = next(iter(values.values()))[0]
                yield of(first, WARNING, f"one setting of {option} in a table", told, others=len(rates) - 1)


def sizes(subject: Subject) -> Iterator[Finding]:
    """Systems whose inputs, or numbers of parameters, are not alike."""
    for cells in subject.tables.values():
        groups: dict[Hashable, list[Cell]] = {}
        for one in cells:
            if one.figure.quantity == "throughput" and one.number:
                groups.setdefault((one.figure.model, one.figure.precision, one.size), []).append(one)
        for option, what in (("sequence", "length"), ("image_size", "image size"), ("params", "number of parameters")):
            for several in groups.values():
                known = [one for one in several if one.figure.options.get(option)]
                if _swept(known, option):
                    continue
                if len(known) == len(several) > 1 and _apart(known, lambda one, option=option: _rough(one, option)):  # type: ignore[misc]
                    told = ", ".join(dict.fromkeys(f"{one.figure.options[option]} ({_named(one)})" for one in known))
                    yield of(known[0], WARNING, f"one {what} of all systems", told, others=len(known) - 1)
                    break


def _swept(cells: Sequence[Cell], option: str) -> bool:
    """Whether a system has several of it, which a table goes through then."""
    return len({(_who(one), one.figure.options[option]) for one in cells}) > len({_who(one) for one in cells})


SHAPE = re.compile(
    r"\b(layers?|hidden|heads?|depth|classes|vocab\w*|d ?model|ffn|embedding|width|seq\w*|length|resolution|crop|"
    r"(image|input) ?size|params?|parameters)\b"
)


def shapes(subject: Subject) -> Iterator[Finding]:
    """Columns that say how a model is built, and frameworks of which each has another there."""
    for cells in subject.tables.values():
        models: dict[str, set[tuple[str, str]]] = {}
        for one in cells:
            if one.figure.quantity == "throughput" and one.number and one.figure.model and one.figure.framework:
                models.setdefault(one.figure.row, set()).add((one.figure.model, one.figure.framework))
        groups: dict[tuple[str, str], list[tuple[str, Cell]]] = {}
        for one in cells:
            told = models.get(one.figure.row, set())
            if (
                one.figure.quantity == "other"
                and one.value
                and len(told) == 1
                and SHAPE.search(normal(one.figure.column))
            ):
                model, framework = next(iter(told))
                groups.setdefault((one.figure.column, model), []).append((framework, one))
        for (column, model), several in groups.items():
            mine: dict[str, set[float]] = {}
            for framework, one in several:
                mine.setdefault(framework, set()).add(one.number)
            if any(a.isdisjoint(b) for a, b in combinations(mine.values(), 2)):
                numbers = "; ".join(f"{', '.join(f'{one:g}' for one in sorted(mine[name]))} in {name}" for name in mine)
                last = next(one for _, one in several if one.number != several[0][1].number)
                yield of(last, WARNING, f"one number of {column} for {model}", numbers, len(several) - 1)


def _rough(one: Cell, option: str) -> Hashable:
    """To the per cent, since millions are rounded."""
    found = NUMBERS.match(one.figure.options[option].replace(",", ""))
    return f"{float(found[0]):.2g}" if found and option == "params" else one.figure.options[option]


def mean_of_rates(subject: Subject) -> Iterator[Finding]:
    """One finding for each table."""
    found: dict[str, list[Cell]] = {}
    for one in subject.rates:
        if one.figure.estimator == "mean_of_rates" and not one.of_log:  # which has the other, too
            found.setdefault(one.figure.table, []).append(one)
    for table, cells in found.items():
        others = {one.figure.column for one in subject.tables[table] if one.figure.estimator != "mean_of_rates"}
        rows = any(one.figure.column in others for one in cells)
        columns = ", ".join(dict.fromkeys(one.figure.row if rows else one.figure.column for one in cells))
        told = f"means of rates, by what their source says, in {columns}"
        yield from merged(cells, WARNING, "samples over seconds", told)


RULES = (
    Rule(
        "batch and global batch",
        "Batch times accumulation times devices is the global batch that is printed, and without devices the "
        "accumulated one.",
        ERROR,
        "arithmetic",
        global_batch,
    ),
    Rule(
        "samples in a step",
        "A rate times the seconds of a step is the batch that is stated.",
        ERROR,
        "arithmetic, within the printed digits and 2 %; up to 25 % each may be a mean of its own: a warning",
        samples_in_a_step,
    ),
    Rule(
        "mean of rates",
        "A rate is all samples over all seconds, not a mean of rates.",
        WARNING,
        "the mean of rates is never below samples over seconds, and above wherever steps vary (Smith 1988, CACM "
        "31:10); DLPerf's logs have up to 9.7 %",
        mean_of_rates,
    ),
    Rule(
        "estimators mixed",
        "Figures of one table are made in one way.",
        WARNING,
        "as for mean of rates",
        estimators,
    ),
    Rule(
        "batches mixed",
        "Systems have the same batch on each device, on each number of devices, and so has one on all.",
        WARNING,
        "DLPerf's rule, README of Oneflow-Inc/DLPerf: compared at the same batch size",
        batches,
    ),
    Rule(
        "work differs",
        "Systems in one table compute the same: clipping, loss scaling, data, task, sparsity.",
        WARNING,
        "none: settings are equal or not",
        work,
    ),
    Rule(
        "inputs differ",
        "Systems in one table have inputs of one length or size, and as many parameters.",
        WARNING,
        "none: sizes are equal or not; parameters to two digits",
        sizes,
    ),
    Rule(
        "models differ",
        "Frameworks that run one model have it with as many layers, hidden units, heads, classes and words.",
        WARNING,
        "none: numbers are equal or not",
        shapes,
    ),
)
