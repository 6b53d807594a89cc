"""The objects of a JSON as rows: those that have scalars, with those around them. Pure."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: depth of JSON that is looked into
DEPTH = 40
#: of a text in JSON, above which it is no label
LABEL = 200
#: in what list or object they are, their keys, and of each its place in the JSON and its values
Group = tuple[str, tuple[str, ...], list[tuple[int | str, list[str]]]]


def groups(text: str, sure: bool) -> list[Group]:
    """A row for each object that has scalars, with those around it; a group for each list and set of keys. sure:
    whether it must be JSON; ValueError where it is none then."""
    try:
        told = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            told = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            if not sure:
                return []
            digits = "" if isinstance(error, json.JSONDecodeError) else "a number in it has too many digits"
            raise ValueError(digits or f"it is no JSON: {error}") from None
    found: dict[tuple[str, tuple[str, ...]], list[tuple[int | str, list[str]]]] = {}
    for place, row in _objects(told, "", {}, 0):
        listed = place.partition("[")[0] if "[" in place else ""
        found.setdefault((listed, tuple(row)), []).append((place, list(row.values())))
    return [(listed, keys, rows) for (listed, keys), rows in found.items() if len(keys) > 1]


def _objects(told: Any, place: str, around: Mapping[str, str], depth: int) -> Iterator[tuple[str, dict[str, str]]]:
    if depth > DEPTH:
        return
    if isinstance(told, list):
        for number, one in enumerate(told):
            yield from _objects(one, f"{place}[{number}]", around, depth + 1)
    if not isinstance(told, dict):
        return
    told = {key: len(one) if _of_processes(key, one) else one for key, one in _with_steps(_with_runs(told)).items()}
    mine = {**around, **{key: _scalar(one) for key, one in told.items() if _scalar(one)}}
    nested = {key: one for key, one in told.items() if isinstance(one, dict | list) and one}
    flat = [key for key, one in nested.items() if isinstance(one, dict) and all(_scalar(each) for each in one.values())]
    keys = [frozenset(nested[key]) for key in flat]
    listed = any(isinstance(one, list) and isinstance(one[0], dict | list) for one in nested.values())
    for key in flat:  # settings of what is beside them, or a part of the one run; else runs, by their names
        rows = keys.count(frozenset(nested[key])) > 1 or all(map(str.isdigit, nested[key]))
        if not rows and (listed or len(mine) > len(around) or SETTINGS.fullmatch(key)):
            part = {name: _scalar(one) for name, one in dict(nested.pop(key)).items()}
            mine |= {name if name not in mine else f"{key} {name}": one for name, one in part.items()}
    if len(mine) > len(around) and (not nested or any(RATED.search(key) for key in mine.keys() - around.keys())):
        yield place, mine
        mine = {key: one for key, one in mine.items() if key in around or not WHOLE.search(key)}
    for key, one in nested.items():
        label = {f"name {depth}": key} if isinstance(one, dict) else {}
        yield from _objects(one, f"{place}.{key}".lstrip("."), {**mine, **label}, depth + 1)


#: of a list of numbers, that they are those of runs; how many; and a figure that is made of them
RUNS = re.compile(
    r"(all_?|raw_?)?(runs?|repeats?|trials?|speeds?|rates?|throughputs?|times?|seconds|values|results|measurements|ips)"
    r"(_\w+)?|\w+_(runs|repeats|trials|values)",
    re.IGNORECASE,
)
MOST_RUNS, MOST_OTHERS = 50, 10
AVERAGE = re.compile(r"(^|_)(median|mean|average|avg)(_|$)|^(min|max)$", re.IGNORECASE)


def _with_runs(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """With each number of its one list of runs by its own key, beside an average of them."""
    lists = [
        key
        for key, one in told.items()
        if isinstance(one, list)
        and 1 < len(one) <= MOST_RUNS
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in one)
    ]
    averaged = any(AVERAGE.search(key) and isinstance(one, int | float) for key, one in told.items())
    if len(lists) != 1 or not RUNS.fullmatch(lists[0]) or not averaged:
        return told
    if len(told[lists[0]]) > MOST_OTHERS and not re.search("run|repeat|trial", lists[0], re.IGNORECASE):
        return told  # those of steps, some of which an average may leave out
    runs = {f"run {number}": each for number, each in enumerate(told[lists[0]], 1)}
    return {**{key: one for key, one in told.items() if key != lists[0]}, **runs}


def _of_processes(key: str, told: Any) -> bool:
    """Whether it is a list of those that also used the machine, of which a rule asks how many they are."""
    return isinstance(told, list) and bool(OTHERS.search(key))


OTHERS = re.compile(r"(other|foreign)_\w*(process|user|job)", re.IGNORECASE)
#: of a list of numbers, that they are times of steps
STEP_TIMES = re.compile(
    r"(all_?|raw_?)?(step|iter(ation)?|batch)s?_?(times?|seconds|secs?|durations?|latenc\w+)(_\w+)?", re.I
)
LEAST_STEPS = 5
#: times the median, from which on a step has something else in it, as the end of an epoch; first steps that a rate may
#: leave out
PAUSE, WARM = 3.0, 5


def _with_steps(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """With what its one list of step times comes to, see dlperf.audit.listed, and how many they are."""
    for key, one in told.items():
        if not (isinstance(one, list) and len(one) >= LEAST_STEPS and STEP_TIMES.fullmatch(key)):
            continue
        if not all(isinstance(each, int | float) and not isinstance(each, bool) and 0 < each < 1e9 for each in one):
            continue
        slow = key.endswith("ms") or (not key.endswith("s") and sorted(one)[len(one) // 2] > 10)
        seconds = [each / 1000 if slow or sorted(one)[len(one) // 2] > 10 else float(each) for each in one]
        rest = {name: value for name, value in told.items() if name != key}
        return {**rest, "steps listed": len(one), "listed step times": packed(seconds)}
    return told


def packed(seconds: Sequence[float]) -> str:
    """Of times of steps, as dlperf.audit.listed takes them: their number, mean of rates, the step that is too long and
    its times the median, and the seconds of all, and of those after 1 to WARM first ones."""
    usual = statistics.median(seconds)
    long = next((at for at, one in enumerate(seconds) if at and one > PAUSE * usual), -1)
    totals = [math.fsum(seconds[skip:]) for skip in range(WARM + 1) if skip < len(seconds)]
    mean = statistics.fmean(1 / one for one in seconds)
    told = [len(seconds), mean, long + 1, seconds[long] / usual if long >= 0 else 0.0, *totals]
    return " ".join(f"{one:.9g}" for one in told)


#: of an object in JSON: settings of all that is beside it; and a key of a figure
SETTINGS = re.compile(
    r"config\w*|settings?|arg\w*|hyper\w*|meta\w*|env\w*|hardware|setup|machine|system", re.IGNORECASE
)
RATED = re.compile(r"(per|/)_?s(ec(ond)?)?(_|$)|throughput|ips$|speed|rate", re.IGNORECASE)
#: of an object in JSON whose figure is told already, what is of all of it and not of each part: `average_ips`
WHOLE = re.compile(
    rf"{RATED.pattern}|^(total_?|elapsed_?)?(samples|images|sentences|sequences|tokens|seconds|elapsed|time|duration)$",
    re.IGNORECASE,
)


def _scalar(told: Any) -> str:
    if isinstance(told, bool):
        return str(told).lower()
    if isinstance(told, float):
        return f"{told:.12g}" if abs(told) < 1e15 else repr(told)
    return str(told) if isinstance(told, int | str) and len(str(told)) < LABEL and "\n" not in str(told) else ""
