"""Findings as text, JSON and Markdown. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from dlperf import sources
from dlperf.audit.findings import ERROR, LAST_DIGIT, SEVERITIES, WARNING, Finding, Rule
from dlperf.audit.rules import RULES
from dlperf.errors import clean
from dlperf.figures.published import Told
from dlperf.markdown import escape
from dlperf.words import count


def text(found: Mapping[str, Sequence[Finding]]) -> str:
    """A line for each finding, and one that counts them."""
    lines = []
    for name, findings in found.items():
        lines += [_line(one) for one in findings]
        lines.append(f"{clean(name)}: {counts(findings)}")
    return "\n".join(lines) + "\n"


def _line(one: Finding) -> str:
    more = f" (and {one.others} more)" if one.others else ""
    where = f" ({one.where})" if one.where else ""
    return clean(f"{one.severity}: {one.cell}{where}: {one.rule}: expected {one.expected}; found {one.found}{more}")


def counts(findings: Iterable[Finding]) -> str:
    """`2 errors, 1 warning and 3 last digits, by 31 rules`."""
    several = list(findings)
    numbers = {one: sum(finding.severity == one for finding in several) for one in SEVERITIES}
    words = [count(number, one) for one, number in numbers.items()]
    return f"{', '.join(words[:-1])} and {words[-1]}, by {len(RULES)} rules"


def as_json(found: Mapping[str, Sequence[Finding]]) -> str:
    rules = [{key: getattr(rule, key) for key in ("name", "checks", "severity", "basis")} for rule in RULES]
    findings = [dataclasses.asdict(one) for several in found.values() for one in several]
    return json.dumps({"sources": list(found), "rules": rules, "findings": findings}, indent=1) + "\n"


def rules() -> str:
    """The list, for a terminal."""
    return "".join(f"{one.name} ({one.severity}): {one.checks}\n    Source: {one.basis}.\n" for one in RULES)


def markdown(found: Mapping[str, Sequence[Finding]], told: Mapping[str, Told] | None = None) -> str:
    """The page of all sources. told: of those that have a folder beside it, what their source.toml says."""
    told = told or {}
    titles = {name: f"[{name}]({name}/source.toml)" if name in told else _cell(name) for name in found}
    lines = [HEAD, "", *_summary(found, titles), "", "## Rules", "", *_rules(RULES)]
    for name, findings in found.items():
        if findings:
            lines += ["", f"## {titles.get(name, name)}", "", *_source(findings, told.get(name, Told()))]
    return "\n".join(lines) + "\n"


def _summary(found: Mapping[str, Sequence[Finding]], titles: Mapping[str, str]) -> list[str]:
    lines = ["| source | errors | warnings | last digits |", "|---|---:|---:|---:|"]
    for name, findings in found.items():
        numbers = [sum(1 for one in findings if one.severity == kind) for kind in (ERROR, WARNING, LAST_DIGIT)]
        lines.append(f"| {titles.get(name, name)} | {' | '.join(map(str, numbers))} |")
    return lines


def _rules(rules: Iterable[Rule]) -> list[str]:
    rows = (f"| {one.name} | {one.severity} | {_cell(one.checks)} | {_cell(one.basis)} |" for one in rules)
    return ["| rule | at worst | what is checked | source of the threshold |", "|---|---|---|---|", *rows]


def _source(findings: Sequence[Finding], told: Told) -> list[str]:
    lines = ["| severity | rule | cell | where | expected | found |", "|---|---|---|---|---|---|"]
    for one in findings:
        place = " / ".join(filter(None, (one.table, one.row, one.column)))
        more = f" (and {one.others} more)" if one.others else ""
        before, after = (one.severity, one.rule, place), (one.expected, one.found + more)
        lines.append(f"| {' | '.join([*map(_cell, before), _where(one.where, told), *map(_cell, after)])} |")
    return lines


def _where(where: str, told: Told) -> str:
    """With a link to the line, where its document is on GitHub."""
    path, _, line = where.rpartition(":")
    to = sources.link(told, path, [int(line)]) if line.isdigit() else ""
    return f"[{_cell(where)}]({to})" if to else _cell(where)


def _cell(told: str) -> str:
    return escape(clean(told))


HEAD = """\
<!-- Made by `python -m dlperf.audit --write`; do not edit. -->
# Audit of the published figures

What [`python -m dlperf.audit`](../../dlperf/README.md) finds in the sources of this folder: cells that do not agree
with each other as they are printed, and what a reader should know of others. A finding is about a cell, not about its
authors: it may be a typing error, a table of which a part was measured again, or a run that varied, and it may have a
reason that the source does not state. Cells are as their `figures.csv` has them, with a link to the line of the
document at the commit that `source.toml` names.

How it was checked: each rule below was applied to every cell; values that were read off a chart are in no arithmetic.
`python -m dlperf.audit SOURCE` does it again for one source. *error*: the cell contradicts others of its source, or
what the device can do, by more than the rule leaves to noise and to rounding. *warning*: it may be right, for a reason
that is not stated. *last digit*: a ratio that was cut instead of rounded, or computed from rates with more digits than
are printed. For each error the document was then opened at that commit: the digits of its cells, and the batches of its
row, stand in the lines named here, so that none is an error of this transcription. Where a rate on several devices is
called too high, the one on few devices may be too low instead: the audit does not know which.
"""
