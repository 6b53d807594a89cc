"""Reads a TOML file's values one by one, and collects what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlperf.errors import Problem, did_you_mean


class Tables:
    """Each reader returns a usable value in any case."""

    def __init__(self, path: Path):
        self.path = path
        self.problems: list[Problem] = []

    def known(self, where: str, table: Mapping[str, Any], keys: set[str]) -> None:
        for key in sorted(set(table) - keys):
            self.says(where + key, f"unknown key; allowed: {', '.join(sorted(keys))}. {did_you_mean(key, keys)}")

    def text(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str) or not value:
            self.problems.append(Problem(f"{self.path}: {key}", value, "a string that is not empty"))
        return str(value)

    def texts(self, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
        """A string, or a list of them."""
        value = table.get(key, "")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str) and one for one in values):
            self.problems.append(Problem(f"{self.path}: {key}", value, "a string, or a list of strings"))
        return tuple(str(one) for one in values)

    def strings(self, where: str, value: object) -> dict[str, str]:
        """A table of strings."""
        if not isinstance(value, dict):
            self.wrong(where, value, "a table of strings")
            return {}
        return {str(name): str(text) for name, text in value.items()}

    def choices(self, where: str, table: Mapping[str, Any], key: str, allowed: Sequence[str]) -> tuple[str, ...]:
        values = table.get(key, list(allowed))
        for value in values:
            if value not in allowed:
                self.wrong(f"{where}.{key}", value, ", ".join(allowed))
        return tuple(values)

    def wrong(self, where: str, value: object, allowed: str, step: str = "") -> None:
        """Of a closed set, a range or a form."""
        self.problems.append(Problem(f"{self.path}: {where}", value, allowed, step))

    def says(self, where: str, sentence: str) -> None:
        """What is wrong with a key, in its own sentence."""
        self.problems.append(Problem(f"{self.path}: {where}", "", says=sentence.strip()))

    def one_of(self, where: str, value: object, allowed: Sequence[str]) -> str:
        if value not in allowed:
            self.wrong(where, value, ", ".join(allowed))
        return str(value)

    def number(self, where: str, value: object, least: int = 0) -> int:
        if not isinstance(value, int) or value < least:
            self.wrong(where, value, f"a whole number, {least} or more")
            return least
        return value

    def positive(self, where: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            self.wrong(where, value, "a number, more than 0")
            return 1.0
        return float(value)
