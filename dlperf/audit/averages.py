"""Rules on means, medians, least and greatest of runs, as rows or columns of a table have them. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from dlperf.audit.cells import SECONDS, Cell, Subject
from dlperf.audit.findings import ERROR, WARNING, Finding, Rule, of
from dlperf.audit.headings import normal
from dlperf.audit.logged import parts

#: what a row or a column is of others, by its words
KINDS = (
    ("spread", r"std|stdev|standard|deviation|sd|sem|error|variance|cv|rsd|range|spread|jitter|iqr|ci"),
    ("mean", r"mean|average|averaged|avg|geomean|gmean|μ|mittelwert|durchschnitt|moyenne|promedio"),
    ("median", r"median|med|p50"),
    ("least", r"minimum|min"),
    ("most", r"maximum|max"),
    ("best", r"best|fastest|slowest|worst|peak"),
    ("sum", r"total|sum|count|overall|all|n|p\d\d"),
)
_KIND = re.compile("|".join(rf"(?P<{name}>(?<![a-z])(?:{words})(?![a-z]))" for name, words in KINDS), re.IGNORECASE)
#: a row that is one of several runs, and a column that is
_NAMES = r"run|trial|repeat|repetition|rep|replica|seed|attempt|measurement|sample|try|round"
ROW = re.compile(rf"(?:{_NAMES})?\s*[#_-]?\s*(?:\d{{1,3}}|[a-h])", re.IGNORECASE)
RUNS = re.compile(rf"(?:{_NAMES})s?( (?:id|no|number|#))?")
COLUMN = re.compile(rf"\b(?:{_NAMES}|r)\s*[#_-]?\s*(?:\d{{1,3}}|[a-h])\b|\b\d(?:st|nd|rd|th) (?:{_NAMES})\b")
#: words that an average has beside its name
PLAIN = re.compile(
    r"\b(arithmetic|olympic|minutes|min|geometric|harmonic|trimmed|geo|of|over|the|runs?|trials?|repeats?|value|row)\b|"
    r"\b(three|five|seven|ten|\d+)\b|[^a-z]+"
)
#: behind what is an average by another word, or a run
MINUTES = re.compile(r"(?<=\w) min(utes)?$")
#: behind an average, its spread
SPREAD = re.compile(r"(?:±|\+/-|\+-|\band\b) ?\w+")
#: how many something is an average of
COUNT = re.compile(r"\b(\d{1,4})[ -]*(?:runs?|trials?|repeats?|repetitions?|seeds?|measurements?)\b", re.IGNORECASE)


@lru_cache(maxsize=2**14)
def kind(told: str) -> str:
    """What a heading or a label is of others; empty of none, or of several."""
    told = SPREAD.sub("", normal(told))
    bare = MINUTES.sub("", told)
    told = bare if _KIND.search(bare) or COLUMN.search(bare) else told
    found = {one.lastgroup or "" for one in _KIND.finditer(told)}
    return found.pop() if len(found) == 1 else "spread" if "spread" in found else ""


@lru_cache(maxsize=2**14)
def rest(told: str) -> str:
    """What a heading says but for the run, the average and its unit."""
    bare = SPREAD.sub(" ", re.sub(r"\([^)]*\)|\[[^\]]*\]", " ", COLUMN.sub(" ", normal(told))))
    return " ".join(PLAIN.sub(" ", _KIND.sub(" ", bare)).split())


def _averaged(one: Cell) -> bool:
    """Whether the mean of such figures is one of them: not of counts and settings."""
    figure = one.figure
    known = figure.quantity in ("throughput", "time_to_train", "speedup", "efficiency") or figure.unit in SECONDS
    return one.value is not None and (known or bool(re.search(r"latency|loss|accuracy|memory", figure.column, re.I)))


Group = tuple[str, Cell, Sequence[Cell], bool]


def averages(subject: Subject) -> Iterator[Finding]:
    for cells in subject.tables.values():
        if not any(map(kind, _texts(cells))):
            continue
        for what, one, others, runs in (*_down(subject, cells), *_along(cells)):
            yield from _judged(what, one, others, runs)


def _texts(cells: Sequence[Cell]) -> set[str]:
    """All headings, parts of labels and cells that are no numbers."""
    words = {one.figure.printed for one in cells if one.value is None and len(one.figure.printed) < 80}
    return (
        words
        | {one.figure.column for one in cells}
        | {part for one in cells for part in one.figure.row.split(" | ") if len(part) < 80}
    )


def _down(subject: Subject, cells: Sequence[Cell]) -> Iterator[Group]:
    """Averages in a column, of the rows above that are like them, up to the average before."""
    rows: dict[str, dict[str, Cell]] = {}
    for one in cells:
        rows.setdefault(one.figure.row, {})[one.figure.column] = one
    told = [_labels(subject, row) for row in rows.values()]
    made = [
        next(((kind(part), head) for head, part in each.items() if kind(part) and not rest(part)), ("", ""))
        for each in told
    ]
    above: list[int] = []
    lines = list(rows.values())
    for at, (what, head) in enumerate(made):
        if not what or OPERATORS.search(normal(head)):
            above = [] if at and made[at - 1][0] else above
            above.append(at)
            continue
        mine = {head: part for head, part in told[at].items() if not kind(part) and not NONE.fullmatch(part)}
        like = [each for each in above if mine.items() <= told[each].items()]
        after = [each for each in range(at, len(made)) if not made[each][0] and mine.items() <= told[each].items()]
        runs = bool(like) and all(any(_is_run(*label) for label in told[each].items()) for each in like)
        number = COUNT.search(" ".join(told[at].values()))
        if (number and int(number[1]) != len(like)) or after or not (runs or what in ("mean", "median")):
            continue
        row, others_ = lines[at], [lines[each] for each in like]
        for column, one in row.items():
            others = [each[column] for each in others_ if column in each and each[column].value is not None]
            if len(others) > 1 and len(others) == len(like) and _averaged(one) and kind(column) != "spread":
                yield what, one, others, runs


#: a column of what computes means, and a blank in a label
OPERATORS = re.compile(r"\bop(s|erators?|erations?)?\b|function|kernel|reduc|metric|loss|pool")
NONE = re.compile(r"[-–—]*|n/?a", re.IGNORECASE)


def _labels(subject: Subject, row: Mapping[str, Cell]) -> dict[str, str]:
    """What a row says that is no figure, by heading: also the number of its run."""
    told = parts(subject, next(iter(row.values())))
    told |= {head: one.figure.printed for head, one in row.items() if one.value is None or RUNS.fullmatch(normal(head))}
    return {head: part for head, part in told.items() if len(part) < 80}


def _is_run(head: str, part: str) -> bool:
    """Whether a label is that of one of several runs: run 3, or 3 in a column of runs."""
    return bool(ROW.fullmatch(part) and (RUNS.fullmatch(normal(head)) or re.match(_NAMES, part, re.IGNORECASE)))


def _along(cells: Sequence[Cell]) -> Iterator[Group]:
    """Averages in a row, of its runs."""
    rows: dict[str, list[Cell]] = {}
    for one in cells:
        rows.setdefault(one.figure.row, []).append(one)
    for row in rows.values():
        runs = [one for one in row if COLUMN.search(normal(one.figure.column)) and not kind(one.figure.column)]
        names = {rest(one.figure.column) for one in runs} - {""}
        for one in row:
            what = kind(one.figure.column)
            counts = what in ("least", "most") and OF_RUNS.search(normal(one.figure.column))  # how many there must be
            if not what or counts or COLUMN.search(normal(one.figure.column)) or one.value is None:
                continue
            name = rest(one.figure.column)
            mine = [run for run in runs if rest(run.figure.column) == name] if len(names) > 1 else runs
            known = len(names) > 1 or not name or name in names or bool(AS_RUNS.fullmatch(name))
            number = COUNT.search(one.figure.column)
            known = known and (not number or int(number[1]) == len(mine))
            if known and len(mine) > 1 and all(run.value is not None for run in mine):
                yield what, one, mine, True


OF_RUNS = re.compile(r"\b(runs|repeats|trials)\b")
#: what a column of averages may be called, where runs have their number alone
AS_RUNS = re.compile(
    r"throughput|rate|speed|(images?|imgs?|samples?|sequences?|seqs?|sentences?|tokens?) (per |/ ?)?s(ec(ond)?s?)?|"
    r"(training|train|step|epoch|total)? ?time|latency|result|images?( s)?|img s|s"
)


def _judged(what: str, one: Cell, others: Sequence[Cell], runs: bool) -> Iterator[Finding]:
    """runs: whether the others are all that it can be of; else its rows may be of more than is printed."""
    if len({re.sub(r"[\d.,\s±-]+", "", each.figure.printed) for each in (one, *others)}) > 1 or what in (
        "spread",
        "sum",
    ):
        return
    low, high = min(each.low for each in others), max(each.high for each in others)
    span = f"between {_shown(others, min)} and {_shown(others, max)}, the least and the greatest of {len(others)}"
    if one.high < low or one.low > high:
        yield of(one, ERROR if runs or what in ("mean", "median") else WARNING, span, one.figure.printed)
    elif runs and not any(a <= one.high + one.ulp / 2 and one.low - one.ulp / 2 <= b for a, b in _made(what, others)):
        names = {"least": "the least", "most": "the greatest", "mean": "the mean", "median": "the median"}
        a, b = next(iter(_made(what, others)))
        expected = f"{(a + b) / 2:,.{one.decimals + 1}f}, {names[what]} of {len(others)}"
        yield of(one, WARNING if what == "mean" else ERROR, expected, one.figure.printed)


def _shown(cells: Sequence[Cell], least: object) -> str:
    chosen = min(cells, key=lambda one: one.number) if least is min else max(cells, key=lambda one: one.number)
    return chosen.figure.printed


def _made(what: str, cells: Sequence[Cell]) -> Iterator[tuple[float, float]]:
    """What it may be, each as a range: a mean also the geometric or harmonic one, or without the ends."""
    lows, highs = sorted(one.low for one in cells), sorted(one.high for one in cells)
    if what == "least":
        yield lows[0], highs[0]
    elif what == "most":
        yield lows[-1], highs[-1]
    elif what == "median":
        yield statistics.median(lows), statistics.median(highs)
        yield statistics.median_low(lows), statistics.median_low(highs)
        yield statistics.median_high(lows), statistics.median_high(highs)
    else:
        yield statistics.mean(lows), statistics.mean(highs)
        if lows[0] > 0:
            yield statistics.harmonic_mean(lows), statistics.harmonic_mean(highs)
            yield tuple(math.exp(statistics.mean(map(math.log, each))) for each in (lows, highs))  # type: ignore[misc]
        if len(cells) > 2:
            yield statistics.mean(lows[1:-1]), statistics.mean(highs[1:-1])
            yield statistics.mean(one.low for one in cells[1:]), statistics.mean(one.high for one in cells[1:])


def missing(subject: Subject) -> Iterator[Finding]:
    """Of a table with a column for each run, rows whose average is of fewer than others', and than the table says."""
    prose = " ".join([subject.prose, *subject.notes])
    for cells in subject.tables.values():
        columns = {one.figure.column for one in cells}
        runs = {name for name in columns if COLUMN.search(normal(name)) and not kind(name)}
        made = {name for name in columns - runs if kind(name) in ("mean", "median")}
        if len(runs) < 2 or not made or len({rest(name) for name in runs}) > 1:
            continue
        rows = dict.fromkeys(one.figure.row for one in cells)
        said = {int(found[1]) for found in COUNT.finditer(" ".join([prose, *made, *rows]))}
        if len(said) == 1 and max(said) > len(runs):
            one = next(one for one in cells if one.figure.column in made)
            yield of(one, WARNING, f"{max(said)} runs, as its table says", f"{len(runs)} columns of runs")
        if len(runs) < 3:
            continue
        held: dict[str, int] = {}
        averages_: dict[str, Cell] = {}
        for one in cells:
            if one.figure.column in runs:
                held[one.figure.row] = held.get(one.figure.row, 0) + (one.value is not None)
            elif one.figure.column in made and one.value is not None:
                averages_.setdefault(one.figure.row, one)
        full = sum(number == len(runs) for number in held.values())
        stated = said == {len(runs)}
        few = [row for row in averages_ if 0 < held.get(row, 0) < len(runs)]
        for row in few:
            if full and (held[row] < 3 or stated):
                expected = f"{len(runs)} runs, as {'its table says' if stated else 'others have'}"
                yield of(averages_[row], WARNING, expected, f"{held[row]} with a figure")


def ordered(subject: Subject) -> Iterator[Finding]:
    """Of one row, columns that say the least, the mean and the greatest of the same."""
    for cells in subject.tables.values():
        rows: dict[tuple[str, str], dict[str, Cell]] = {}
        for one in cells:
            if (what := kind(one.figure.column)) in ("least", "mean", "median", "most") and one.value is not None:
                rows.setdefault((one.figure.row, rest(one.figure.column)), {}).setdefault(what, one)
        for told in rows.values():
            least, most = told.get("least"), told.get("most")
            if not least or not most:  # min alone may be minutes
                continue
            for one in (told[what] for what in ("mean", "median") if what in told):
                if one.high < least.low or one.low > most.high:
                    expected = f"between {least.figure.printed} and {most.figure.printed}, the least and the greatest"
                    yield of(one, ERROR, expected, one.figure.printed)
            if least.low > most.high:
                yield of(least, ERROR, f"at most {most.figure.printed}, the greatest", least.figure.printed)


def mixed(subject: Subject) -> Iterator[Finding]:
    """A column that is one average in some rows, and another in others."""
    for cells in subject.tables.values():
        columns: dict[str, list[Cell]] = {}
        for one in cells:
            if one.value is not None:
                columns.setdefault(one.figure.column, []).append(one)
        named = [name for name in columns if kind(name) not in ("", "spread", "sum")]
        for a, b in combinations(named, 2):
            if kind(a) == kind(b) or rest(a) != rest(b):
                continue
            for name in columns.keys() - {a, b}:
                if not kind(name) and (found := _of_both(columns[name], columns[a], columns[b])):
                    rows = "; ".join(f"{head} in {', '.join(several)}" for head, several in found.items())
                    yield of(columns[name][0], WARNING, f"{a} in all rows, or {b}", rows, len(columns[name]) - 1)


def _of_both(mine: Sequence[Cell], *others: Sequence[Cell]) -> dict[str, list[str]]:
    """The rows in which a column is each of two others; none unless it is one of them in each, and both in some."""
    found: dict[str, list[str]] = {}
    sides = [{one.figure.row: one for one in several} for several in others]
    for one in mine:
        beside = [side.get(one.figure.row) for side in sides]
        if not all(beside) or beside[0].number == beside[1].number:  # type: ignore[union-attr]
            continue
        same = [each for each in beside if each and each.number == one.number]
        if len(same) != 1:
            return {}
        found.setdefault(same[0].figure.column, []).append(one.figure.row)
    return found if len(found) == 2 and sum(map(len, found.values())) > 2 else {}


RULES = (
    Rule(
        "average of its runs",
        "A mean, median, least or greatest is that of the runs, or rows, that are printed with it.",
        ERROR,
        "arithmetic, within the printed digits; a mean inside its runs that no kind of mean gives: a warning",
        averages,
    ),
    Rule(
        "runs of an average",
        "An average is of as many runs as its table says, or of three or more where other rows have all.",
        WARNING,
        "none: cells are filled or blank; three runs as for few runs",
        missing,
    ),
    Rule(
        "mean between its ends",
        "A mean or median lies between the least and the greatest beside it.",
        ERROR,
        "arithmetic, within the printed digits",
        ordered,
    ),
    Rule(
        "column of two estimators",
        "A column is the same average in all its rows.",
        WARNING,
        "as for mean of rates",
        mixed,
    ),
)
