"""How a figure was made, by the words of its table. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

cache = lru_cache(maxsize=2**14)

#: how a figure was made, by words
ESTIMATED = (
    (
        "mean_of_rates",
        r"mean[ _]of[ _](the )?([\w-]+[ _])*(rates|speeds)|(average|mean) (rate|speed)s?\b|per-step (mean|average)|"
        r"(average|mean|averag\w+)( of| over)?( the)? ([\w/-]+ )*(rates|speeds|img/s|throughputs?)\b",
    ),
    (
        "samples_over_seconds",
        r"(samples?|images?|sequences?|sentences?|tokens?) ?(over|/|by|divided by) ?(the )?(total )?"
        r"(seconds|time|elapsed|wall)|elapsed|total (samples|images|sequences|sentences|tokens)|samples_over_seconds",
    ),
    ("median_of_runs", r"median"),
    ("best_of_runs", r"\b(best|fastest|max(imum)?|peak)\b ?(of|over|out of|in|value|run)|^(best|max(imum)?|peak)$"),
    ("mean_of_runs", r"\b(mean|average|avg\.?)\b ?(of|over) ?(the )?(\w+ )?(runs|repeats|trials|repetitions|seeds)"),
)


@cache
def estimator(told: str) -> str:
    return next((name for name, pattern in ESTIMATED if re.search(pattern, told, re.IGNORECASE)), "")


#: of a column that says of each row how it was made, by its first word
STATISTICS = (("mean", "mean|average|avg"), ("best", "best|max|maximum|fastest|peak"), ("median", "median"))


@cache
def statistic(told: str) -> str:
    """The same of a cell that tells nothing else: `best of 200 steps`."""
    named = (name for name, words in STATISTICS if re.match(rf"({words})\b", told.strip().lower()))
    return estimator(told) or next((f"{name}_of_runs" for name in named), "")


def footnote(lines: Sequence[str], marks: Collection[str]) -> str:
    """The estimator that a footnote tells, of what has its marks, or of all: where no mark has another, of all only
    that which is never right. lines: a table's title and the text with it."""
    parts = [part for line in lines for part in re.split(r"(?<=[.;]) +(?=\\?[*†‡\[])", line)]
    marked = [(part, re.match(r"\s*(\[\^?\w{1,3}\]|\\?\*+|[†‡§¹²³])", part)) for part in parts]
    several = any(mark and estimator(part) for part, mark in marked)
    for part, mark in marked:
        mine = mark[0].strip(" \\") in marks if mark else not marks
        told = estimator(re.split(r"[;.]\s", part)[0] if mark else part) if mine else ""
        if told:
            return told if told == "mean_of_rates" or mark or several else ""
    return ""
