"""What a rule is, and what it finds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dlperf.audit.cells import Cell, Subject

#: an error cannot stand as it is printed; a warning may have a good reason that is not said; of the last digit it is
#: known how it came about
ERROR, WARNING, LAST_DIGIT = "error", "warning", "last digit"
SEVERITIES = (ERROR, WARNING, LAST_DIGIT)


@dataclass(frozen=True)
class Finding:
    """One cell that is not as it should be. rule, basis: name and source of the threshold, of its Rule. table, row,
    column: the cell's; of a whole table or run, empty in part. where: file and line. others: how many more cells of the
    same kind it stands for."""

    severity: str
    source: str
    table: str
    row: str
    column: str
    where: str
    expected: str
    found: str
    rule: str = ""
    basis: str = ""
    others: int = 0

    @property
    def cell(self) -> str:
        """`source: table / row / column`."""
        return f"{self.source}: {' / '.join(filter(None, (self.table, self.row, self.column)))}".rstrip(": ")


@dataclass(frozen=True)
class Rule:
    """An entry of dlperf.audit.rules.RULES. checks: one sentence. severity: the worst that it finds. basis: the source
    of its threshold. judge: from all cells of one source, or from a comparison, to findings, whose rule and basis are
    filled in afterwards."""

    name: str
    checks: str
    severity: str
    basis: str
    judge: Callable[[Subject], Iterable[Finding]]

    def findings(self, subject: Subject) -> Iterator[Finding]:
        for one in self.judge(subject):
            yield replace(one, rule=self.name, basis=self.basis)


def of(cell: Cell, severity: str, expected: str, found: str, others: int = 0) -> Finding:
    """A finding at a cell."""
    one = cell.figure
    place = (cell.source, one.table, one.row, one.column, cell.where)
    return Finding(severity, *place, expected=expected, found=found, others=others)


def merged(cells: Iterable[Cell], severity: str, expected: str, found: str) -> Iterator[Finding]:
    """One finding for several cells of the same kind, at the first of them; none for none."""
    several = list(cells)
    if several:
        yield of(several[0], severity, expected, found, len(several) - 1)
