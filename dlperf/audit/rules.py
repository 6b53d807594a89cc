"""The list of all rules, and the audit by them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlperf.audit import (
    agreement,
    averages,
    batches,
    beside,
    derived,
    documents,
    listed,
    logged,
    outliers,
    peak,
    products,
    protocol,
    repeats,
    reprints,
    runs,
    scaling,
    shares,
    told,
)
from dlperf.audit.cells import Subject
from dlperf.audit.findings import SEVERITIES, Finding, Rule

#: the name of what several files disagree in
TOGETHER = "between the files"
RULES: Sequence[Rule] = (
    *scaling.RULES,
    *peak.RULES,
    *shares.RULES,
    *derived.RULES,
    *agreement.RULES,
    *beside.RULES,
    *reprints.RULES,
    *repeats.RULES,
    *batches.RULES,
    *protocol.RULES,
    *logged.RULES,
    *products.RULES,
    *averages.RULES,
    *outliers.RULES,
    *documents.RULES,
    *told.RULES,
    *listed.RULES,
    *runs.RULES,
)
#: those that look at several files
ACROSS = (*agreement.RULES, *beside.RULES, *reprints.RULES, *repeats.RULES, *protocol.ACROSS, *listed.ACROSS)


def audit(subject: Subject, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """All that the rules find, errors first, each severity in the order of the rules."""
    found = [one for rule in rules for one in rule.findings(subject)]
    return sorted(found, key=lambda one: SEVERITIES.index(one.severity))


def audit_all(subjects: Sequence[Subject]) -> dict[str, list[Finding]]:
    """Of each subject, by its name, with a number behind it where another has it too; and what plain files, and the
    logs of comparisons, that were named together disagree in, as the last."""
    found: dict[str, list[Finding]] = {}
    for subject in subjects:
        taken = sum(name == subject.name or name.startswith(f"{subject.name} (") for name in found)
        found[f"{subject.name} ({taken + 1})" if taken else subject.name] = audit(subject)
    files = [one for one in subjects if one.plain or one.comparison]
    if len(files) > 1 and any(one.plain for one in files):
        seen = {_what(one) for several in found.values() for one in several}
        found_ = [*audit(_together(files), ACROSS), *audit(_as_one(files), scaling.RULES)]
        found[TOGETHER] = [one for one in found_ if _what(one) not in seen]
    return found


def _together(subjects: Sequence[Subject]) -> Subject:
    """Tables of two files are two tables, whatever their names."""
    cells = [
        replace(one, figure=replace(one.figure, table=f"{number}: {one.figure.table}" if number else one.figure.table))
        for number, subject in enumerate(subjects)
        for one in subject.cells
    ]
    prose = "\n".join(one.prose for one in subjects if one.prose)
    labels = {
        f"{number}: {table}" if number else table: label
        for number, subject in enumerate(subjects)
        for table, label in subject.labels.items()
    }
    return Subject(TOGETHER, cells, labels=labels, plain=all(one.plain for one in subjects), prose=prose)


def _as_one(subjects: Sequence[Subject]) -> Subject:
    """Files of one row each, with the same columns, are one table."""
    alone = [one for one in subjects if one.plain and len({each.figure.row for each in one.cells}) == 1]
    heads = {tuple(each.figure.column for each in one.cells) for one in alone}
    cells = [replace(one, figure=replace(one.figure, table=TOGETHER)) for each in alone for one in each.cells]
    return Subject(TOGETHER, cells if len(heads) == 1 and len(alone) > 2 else [], plain=True)


def _what(one: Finding) -> tuple[str, ...]:
    return one.rule, one.severity, one.where, one.found
