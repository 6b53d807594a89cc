"""Tables of reStructuredText that have no bars between their cells, with bars, as Markdown has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: above and below the heading of a simple table, and below its last row
RULER = re.compile(r"={2,}(?: +={2,})+\s*")
#: the first line of a table that is a list of lists, and a row and a cell of it
LIST = re.compile(r"(\s*)\.\. list-table::")
ROW, CELL = re.compile(r"\s+\* - ?(.*)"), re.compile(r"\s+- ?(.*)")


def piped(lines: Sequence[str]) -> Sequence[str]:
    """Each line where it was; those of a row that has several in its first one."""
    made = _simple(list(lines))
    at = 0
    while at < len(made):
        if LIST.match(made[at]):
            at = _listed(made, at)
        at += 1
    return made


def _simple(made: list[str]) -> list[str]:
    rulers = [at for at, line in enumerate(made) if RULER.fullmatch(line)]
    for first, second, last in zip(rulers[::3], rulers[1::3], rulers[2::3], strict=False):
        starts = [found.start() for found in re.finditer("=+", made[first])]
        places = list(zip(starts, [*starts[1:], None], strict=True))
        cut = [[line[a:b].strip() for a, b in places] for line in made[first : last + 1]]
        heads = [" ".join(filter(None, several)) for several in zip(*cut[1 : second - first], strict=True)]
        rows = [_bars(row) for row in (heads, *cut[second + 1 - first : last - first])]
        made[first : last + 1] = [*[""] * (second - 1 - first), rows[0], _rule(len(places)), *rows[1:], ""]
    return made


def _bars(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(width: int) -> str:
    return "|" + "---|" * width


def _listed(made: list[str], first: int) -> int:
    """The last line of a table that begins in a line, which is made one with bars where all of its rows are alike."""
    depth = len(LIST.match(made[first])[1])  # type: ignore[index]
    end = first + 1
    while end < len(made) and (not made[end].strip() or len(made[end]) - len(made[end].lstrip()) > depth):
        end += 1
    rows: list[tuple[int, list[str]]] = []
    for at in range(first, end):
        if found := ROW.match(made[at]):
            rows.append((at, [found[1].strip()]))
        elif rows and (found := CELL.match(made[at])):
            rows[-1][1].append(found[1].strip())
        elif rows and made[at].strip():
            rows[-1][1][-1] += f" {made[at].strip()}"
    if len(rows) > 1 and len({len(cells) for _, cells in rows}) == 1 and rows[1][0] > rows[0][0] + 1:
        made[first:end] = [""] * (end - first)
        places = [rows[0][0], *range(rows[0][0] + 2, end)]  # one after the other, below the rule
        for place, (_, cells) in zip(places, rows, strict=False):
            made[place] = _bars(cells)
        made[rows[0][0] + 1] = _rule(len(rows[0][1]))
    return end - 1
