"""Holds a TOML file's values against the types that they must have, and collects what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Required, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from dlperf.errors import Problem, did_you_mean

#: msgspec's words, and ours
WORDS = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false"}
WORDS |= {"array": "a list", "object": "a table", " of length >= 1": " that is not empty", " | ": " or "}


class Tables:
    """`fit` first: where it finds nothing wrong, all values have the types of dlperf.catalog.keys."""

    def __init__(self, path: Path):
        self.path = path
        self.problems: list[Problem] = []

    def fit(self, where: str, value: Any, kind: Any) -> None:
        """Each key and value that is not of a TypedDict, a table or list of such, or a type that msgspec checks. By
        hand down to single values, because msgspec's errors leave out a table's keys, and end at the first."""
        dot = where + "." if where else ""
        if is_typeddict(kind) and isinstance(value, dict):
            types = _types(kind)
            for key in value:
                if key in types:
                    self.fit(dot + key, value[key], types[key])
                else:
                    allowed = ", ".join(sorted(types))
                    self.says(dot + key, f"unknown key; allowed: {allowed}. {did_you_mean(key, types)}")
            for key in sorted(kind.__required_keys__ - set(value)):
                self.says(dot + key, "missing.")
        elif get_origin(kind) is dict and isinstance(value, dict):
            names, values = get_args(kind)
            for key, one in value.items():
                self._single(dot + key, key, names)
                self.fit(dot + key, one, values)
        elif get_origin(kind) is Annotated and isinstance(value, list) and value:
            self.fit(where, value, get_args(kind)[0])
        elif get_origin(kind) is list and isinstance(value, list):
            for index, one in enumerate(value):
                self.fit(f"{where}[{index}]", one, get_args(kind)[0])
        else:
            self._single(where, value, kind)

    def _single(self, where: str, value: object, kind: Any) -> None:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            needed = re.sub("(?s), got .*| - at .*|^Expected |`", "", str(error))
            self.wrong(where, value, re.sub("|".join(map(re.escape, WORDS)), lambda word: WORDS[word[0]], needed))
        if isinstance(value, float) and not math.isfinite(value):
            self.wrong(where, value, "a number")

    def choices(self, where: str, table: Mapping[str, Any], key: str, allowed: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.one_of(f"{where}.{key}", value, allowed) for value in table.get(key, allowed))

    def wrong(self, where: str, value: object, allowed: str, step: str = "") -> None:
        """Of a closed set, a range or a form."""
        self.problems.append(Problem(f"{self.path}: {where}", value, allowed, step))

    def says(self, where: str, sentence: str) -> None:
        """What is wrong with a key, in its own sentence."""
        self.problems.append(Problem(f"{self.path}: {where}", "", says=sentence.strip()))

    def one_of(self, where: str, value: str, allowed: Sequence[str]) -> str:
        if value not in allowed:
            self.wrong(where, value, ", ".join(allowed))
        return value


def _types(kind: Any) -> dict[str, Any]:
    """Of a TypedDict's keys."""
    types = get_type_hints(kind, include_extras=True)
    return {key: get_args(one)[0] if get_origin(one) is Required else one for key, one in types.items()}


def listed(value: str | Sequence[str]) -> tuple[str, ...]:
    """A text, or several."""
    return (value,) if isinstance(value, str) else tuple(value)
