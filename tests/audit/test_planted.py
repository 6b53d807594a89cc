"""Errors planted in tables and logs as people publish them, one in each of planted.txt, where `«wrong|right»` marks the
place: the audit finds it, and no error in the same file without it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from dlperf.audit import reading
from dlperf.audit.findings import ERROR, Finding
from dlperf.audit.rules import audit_all

#: by name: parts of the rules of which one finds it, and files by their names
Case = tuple[str, dict[str, str]]


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    told = Path(__file__).with_name("planted.txt").read_text(encoding="utf-8")
    for block in told.split("=== ")[1:]:
        head, _, text = block.partition("\n")
        name, rules, file = (one.strip() for one in head.split("|"))
        found.setdefault(name, (rules, {}))[1][file] = text
    return found


CASES = cases()


def audited(files: dict[str, str], which: int, folder: Path) -> list[Finding]:
    tops: list[str] = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub("«([^|»]*)\\|([^»]*)»", lambda found: found[which + 1], text), encoding="utf-8")
        tops.append(str(folder / Path(name).parts[0]))
    subjects = [one for top in dict.fromkeys(tops) for one in reading.subjects(top)]
    return [one for several in audit_all(subjects).values() for one in several]


def told(findings: Sequence[Finding]) -> set[tuple[str, ...]]:
    return {(one.rule, one.row, one.column, one.found) for one in findings}


@pytest.mark.parametrize("name", CASES)
def test_a_planted_error_is_found(name: str, tmp_path: Path) -> None:
    rules, files = CASES[name]
    right = audited(files, 1, tmp_path / "right")
    assert [one for one in right if one.severity == ERROR] == []
    wrong = audited(files, 0, tmp_path / "wrong")
    new = [one for one in wrong if (one.rule, one.row, one.column, one.found) not in told(right)]
    assert any(rule in one.rule for one in new for rule in rules.split(" or ")), wrong
