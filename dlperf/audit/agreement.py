"""Rules on figures that must be the same, or must not be. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

from dlperf.audit import headings
from dlperf.audit.averages import kind
from dlperf.audit.cells import NOTES, SECONDS, Cell, Subject, counted
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.scaling import NOISE


def tables_disagree(subject: Subject) -> Iterator[Finding]:
    told = list(configurations(subject).values())
    models = {one.figure.model for one in subject.rates} - {""}
    if len(models) == 1 and subject.plain:  # a heading may leave out the one model that all is of
        told = list(configurations(subject, lambda one: configuration(one, models)).values())
    pairs = [(a, b) for cells in told for a, *others in [_first_of_tables(cells) or [cells[0]]] for b in others]
    yield from _disagreeing(pairs)
    without = [*_without_batch(subject)]
    agreeing = {
        a.figure.table for a, b in without if not _apart(a, b)
    }  # a table in which none does is of another batch
    yield from _disagreeing([(b, a) for a, b in without if a.figure.table in agreeing])


def _without_batch(subject: Subject) -> Iterator[tuple[Cell, Cell]]:
    """Cells of tables that tell no batch, each with that of another table whose batch is the only one told."""
    if not subject.plain:
        return
    for cells in configurations(subject, lambda one: configuration(one, batch=False)).values():
        batches = {one.batch for one in cells if one.batch[1]}
        known = _first_of_tables([one for one in cells if one.batch[1]])
        if len(batches) == 1 and known:
            yield from ((one, known[0]) for one in _first_of_tables([one for one in cells if not one.batch[1]]))


def _disagreeing(pairs: Iterable[tuple[Cell, Cell]]) -> Iterator[Finding]:
    """Pairs of one configuration with two figures."""
    for a, b in pairs:
        if is_log(a) != is_log(b) or estimators_differ(a, b):
            continue
        apart = _apart(a, b)
        if not apart:
            continue
        times = max(a.number, b.number) / min(a.number, b.number)
        devices = a.figure.devices or 1
        odd = f", {times:.4g} times" if devices > 1 and abs(times / devices - 1) < NOISE else ""
        expected = f"{a.figure.printed}, as in {a.figure.table} ({a.where})"
        found = f"{b.figure.printed}, {100 * apart:.1f} % apart{odd}"
        known = (
            b.figure.model and a.figure.model and a.source == b.source
        )  # else nobody knows whether it is of one thing
        severity = ERROR if apart > NOISE and known else WARNING
        yield of(b, severity, expected, found)


def means_of_rates(subject: Subject) -> Iterator[Finding]:
    """Both estimators of one run."""
    for cells in configurations(subject).values():
        means = [one for one in cells if one.figure.estimator == "mean_of_rates"]
        totals = [one for one in cells if one.figure.estimator == "samples_over_seconds"]
        for one in means:
            for other in totals[:1]:
                apart = one.number / other.number - 1
                if one.low > other.high or one.high < other.low:
                    severity = ERROR if abs(apart) > NOISE else WARNING
                    expected = f"{other.figure.printed}: samples over seconds ({other.where})"
                    yield of(one, severity, expected, f"{one.figure.printed}: a mean of rates, {100 * apart:+.1f} %")


def two_rates(subject: Subject) -> Iterator[Finding]:
    """Of one row: columns that say the same of one run, and print another rate."""
    for cells in configurations(subject).values():
        rows: dict[tuple[str, str], list[Cell]] = {}
        for one in cells:
            if one.runs is None and not is_log(one):  # a system may be there twice, to see how far it comes out apart
                rows.setdefault((one.figure.table, one.figure.row), []).append(one)
        for row in rows.values():
            a, *others = row
            for b in others:
                steps = [one.figure.options["step"] for one in (a, b) if "step" in one.figure.options]
                kinds = {kind(one.figure.column) for one in (a, b)}
                same = len(set(steps)) < 2 and (len(kinds) == 1 or "" in kinds)
                heads = {re.sub(r" \(\d+\)$", "", one.figure.column) for one in (a, b)}  # of one name: each a system's
                if len(heads) > 1 and same and not estimators_differ(a, b) and _apart(a, b):
                    expected = f"{a.figure.printed}, as “{a.figure.column}” has"
                    yield of(b, WARNING, expected, f"{b.figure.printed}, {100 * _apart(a, b):.1f} % apart")


def units_change(subject: Subject) -> Iterator[Finding]:
    """What a model's rates count: one finding where it changes in a table, one where it does between tables."""
    first: dict[str, Cell] = {}
    told: set[tuple[str, str, str]] = set()
    for one in subject.cells:
        figure = one.figure
        of_what = figure.model or figure.system
        if figure.quantity != "throughput" or not figure.unit:
            continue
        before = first.setdefault(of_what, one)
        if not of_what and before.source == one.source:
            continue
        a, b = counted(before.figure.unit), counted(figure.unit)
        if a != b and (of_what, figure.table, b) not in told:
            told.add((of_what, figure.table, b))
            here = any(
                counted(other.figure.unit) == a and (other.figure.model or other.figure.system) == of_what
                for other in subject.tables[figure.table]
            )
            expected = f"{before.figure.unit}, as in {before.figure.table} ({before.where})"
            if not (here and headings.unit(figure.column)):  # columns that say it have each their own
                yield of(one, ERROR if here else WARNING, expected, f"{figure.unit} for {of_what or 'its figures'}")


def units_in_a_column(subject: Subject) -> Iterator[Finding]:
    """Of frameworks that are compared in one column, whose cells have their units: each has one, and all the same."""
    for cells in subject.tables.values():
        groups: dict[Hashable, list[Cell]] = {}
        for one in cells:
            figure = one.figure
            if figure.quantity == "throughput" and one.value is not None and not headings.unit(figure.column):
                words = " ".join(re.findall(r"[^\W\d_]{2,}", figure.system))
                key = figure.column, figure.model, words, figure.options.get("data")
                groups.setdefault(key, []).append(one)
        for several in groups.values():
            units: dict[str, set[str]] = {}
            for one in several:
                units.setdefault(one.figure.framework, set()).add(_thing(one.figure.unit))
            things = Counter(_thing(one.figure.unit) for one in several)
            if "" in units or "" in things or len(things) < 2 or any(len(told) > 1 for told in units.values()):
                continue
            (usual, count), *_ = things.most_common()
            other = next(one for one in several if _thing(one.figure.unit) != usual)
            like = next(one for one in several if _thing(one.figure.unit) == usual)
            if count < len(several) or len(several) == 2:
                expected = f"{like.figure.unit}, as in {like.figure.row}"
                found = f"{other.figure.unit} in the same column"
                yield of(other, ERROR, expected, found, len(several) - count - 1)
        if re.search(r"(^|\| )units?( \||$)", subject.labels.get(cells[0].figure.table, ""), re.IGNORECASE):
            yield from _times_in_a_column(cells)


def _times_in_a_column(cells: Sequence[Cell]) -> Iterator[Finding]:
    """Of times beside a column of units."""
    columns: dict[str, list[Cell]] = {}
    for one in cells:
        figure = one.figure
        if figure.quantity in ("other", "time_to_train") and figure.unit in SECONDS and one.number:
            columns.setdefault(figure.column, []).append(one)
    for several in columns.values():
        (usual, count), *others = Counter(one.figure.unit for one in several).most_common()
        if len(others) == 1:
            odd = next(one for one in several if one.figure.unit != usual)
            yield of(odd, WARNING, f"{usual}, as {count} rows of its column", odd.figure.unit, len(several) - count - 1)


def _thing(unit: str) -> str:
    """What a rate counts, as far as its word tells: no more of `samples`, which any row may be; empty of no unit."""
    what = counted(unit)
    word = re.split(r"[\s/]+", unit.strip().lower())[0]
    if not what.startswith("rows"):
        return what
    named = "images" if re.match("im", word) else "texts" if re.match("se[nq]", word) else ""
    return f"{named}{what.removeprefix('rows')}" if named else ""


def precisions(subject: Subject) -> Iterator[Finding]:
    """Of three frameworks or more, each in one precision, the one that has another than all others."""
    for cells in subject.tables.values():
        held: dict[tuple[str, int | None], dict[str, dict[str, Cell]]] = {}
        for one in cells:
            figure = one.figure
            if figure.quantity == "throughput" and one.number and figure.precision and figure.framework:
                group = held.setdefault((figure.model, one.size), {})
                group.setdefault(figure.framework, {}).setdefault(WIDE.get(figure.precision, "half"), one)
        for group in held.values():
            found = [(kind, one) for told in group.values() if len(told) == 1 for kind, one in told.items()]
            (usual, count), *others = Counter(kind for kind, _ in found).most_common() or [("", 0)]
            if len(found) == len(group) == count + 1 > 2 and len(others) == 1:
                one = next(one for kind, one in found if kind != usual)
                like = next(one.figure.precision for kind, one in found if kind == usual)
                yield of(one, WARNING, f"{like}, as the {count} other frameworks have", one.figure.precision)


def precision_of_a_size(subject: Subject) -> Iterator[Finding]:
    """Of one system on four numbers of devices or more, the one that is in another precision."""
    for cells in subject.columns.values():
        groups: dict[Hashable, list[Cell]] = {}
        for one in cells:
            figure = one.figure
            if figure.quantity == "throughput" and one.number and one.size and figure.precision:
                groups.setdefault((figure.model, figure.framework, figure.device, one.batch), []).append(one)
        for several in groups.values():
            kinds = Counter(WIDE.get(one.figure.precision, "half") for one in several)
            (usual, count), *others = kinds.most_common()
            once = len({one.size for one in several}) == len(several) == count + 1 > 3
            if once and len(others) == 1:
                odd = next(one for one in several if WIDE.get(one.figure.precision, "half") != usual)
                like = next(one for one in several if one is not odd).figure.precision
                yield of(odd, WARNING, f"{like}, as on {count} other numbers of devices", odd.figure.precision)


#: precisions that are none of half the digits
WIDE = {"fp32": "fp32", "tf32": "tf32"}


def twice(subject: Subject) -> Iterator[Finding]:
    seen: dict[Hashable, Cell] = {}
    for one in subject.cells:
        figure = one.figure
        if figure.table in subject.labels and subject.plain:
            continue  # a page may have two columns of one name
        before = seen.setdefault((figure.table, figure.row, figure.column, figure.quantity), one)
        if before is not one:
            expected = f"one cell; {before.where} has {before.figure.printed or 'a blank'}"
            yield of(one, ERROR, expected, f"{figure.printed or 'a blank'} for the same table, row and column")


def configurations(subject: Subject, of: Callable[[Cell], Hashable] | None = None) -> dict[Hashable, list[Cell]]:
    """Rates that are of the same configuration, as far as their source tells."""
    found: dict[Hashable, list[Cell]] = {}
    for one in subject.rates:
        if one.size and one.number:
            found.setdefault((of or configuration)(one), []).append(one)
    return {key: cells for key, cells in found.items() if len(cells) > 1}


def configuration(one: Cell, models: Collection[str] = (), batch: bool = True) -> Hashable:
    """models: what a figure may be of that names none. batch: whether it is a part of it."""
    figure = one.figure
    options = tuple(sorted((k, v) for k, v in figure.options.items() if k not in NOTES))
    model = figure.model or next(iter(models), "")
    accumulation = figure.options.get("accumulation", ""), model or figure.table
    return (model, *one.setting[1:-1], options, accumulation, batch and one.batch, figure.devices, figure.nodes)


def _first_of_tables(cells: Sequence[Cell]) -> list[Cell]:
    """Of each table the one cell of a configuration; none of a table that has several, which are its repeats."""
    tables: dict[str, list[Cell]] = {}
    for one in cells:
        tables.setdefault(one.figure.table, []).append(one)
    return [several[0] for several in tables.values() if len(several) == 1]


def is_log(one: Cell) -> bool:
    path = one.figure.path or ""
    return one.figure.origin == "log" or bool(re.search(r"\.(log|out|jsonl)$", path))


def estimators_differ(a: Cell, b: Cell) -> bool:
    """One a mean of rates and the other not: another rule's."""
    return {a.figure.estimator, b.figure.estimator} >= {"mean_of_rates", "samples_over_seconds"}


def _apart(a: Cell, b: Cell) -> float:
    """By which share; 0 where digits leave it open."""
    if a.low <= b.high and b.low <= a.high:
        return 0.0
    return max(a.number, b.number) / min(a.number, b.number) - 1


TWO = "2 % is noise between two measurements of one thing, as for super-linear: a warning"

RULES = (
    Rule(
        "tables disagree",
        "One configuration has one figure in all tables of a source.",
        ERROR,
        TWO,
        tables_disagree,
    ),
    Rule(
        "units in a column",
        "What frameworks do in a second is counted alike in one column, by the units of its cells.",
        ERROR,
        "none: units are the same or not; a table in which a framework has several, or models differ, is none of these",
        units_in_a_column,
    ),
    Rule(
        "mean of rates beside the total",
        "A mean of rates is what samples over seconds give.",
        ERROR,
        "the mean of rates is never below the harmonic one, which is samples over seconds (Smith 1988, CACM 31:10); "
        "2 % as for super-linear",
        means_of_rates,
    ),
    Rule(
        "two rates of one run",
        "Columns that print the rate of one run print the same.",
        WARNING,
        "none: within the printed digits; what each of them is may be said elsewhere",
        two_rates,
    ),
    Rule(
        "unit changes",
        "A model's rates count the same thing in all tables of a source.",
        ERROR,
        "none: units are equal or not; an error within one table",
        units_change,
    ),
    Rule(
        "precision of one size",
        "A system is in one precision on all numbers of devices of a table.",
        WARNING,
        "none: one of four or more has another than all others",
        precision_of_a_size,
    ),
    Rule(
        "precisions differ",
        "Frameworks in one table have one precision.",
        WARNING,
        "none: one of three or more has another than all others; fp16, bf16 and mixed precision are one here",
        precisions,
    ),
    Rule(
        "cell twice",
        "A cell stands in a table once.",
        ERROR,
        "none",
        twice,
    ),
)
