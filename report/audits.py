"""What the audit finds in a comparison, as a section of its report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlperf.audit.cells import subject
from dlperf.audit.findings import SEVERITIES, Finding
from dlperf.audit.rules import audit
from dlperf.report import text
from dlperf.report.shape import Audit, Column, Row, Table
from dlperf.schema import Comparison

COLUMNS = ("severity", "rule", "cell or run", "expected", "found")


def audits(comparison: Comparison) -> Iterator[Audit]:
    """One, of all that is there; none where nothing was measured."""
    if comparison.records:
        findings = audit(subject(comparison, ""))
        yield Audit(_about(findings), _table(findings) if findings else None)


def _about(findings: Sequence[Finding]) -> str:
    counts = [(name, sum(one.severity == name for one in findings)) for name in SEVERITIES]
    told = text.listing(text.count(number, name) for name, number in counts if number)
    return f"The rules that python -m dlperf.audit --rules lists find {told or 'nothing'} here."


def _table(findings: Sequence[Finding]) -> Table:
    return Table(tuple(Column(title) for title in COLUMNS), tuple(map(_row, findings)))


def _row(one: Finding) -> Row:
    more = f" (and {one.others} more)" if one.others else ""
    cells = (one.severity, one.rule, one.cell.removeprefix(": "), one.expected, one.found + more)
    return Row(tuple(text.line(cell, 400) for cell in cells))
