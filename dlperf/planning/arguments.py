"""The texts of a command line, read one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlperf.errors import Problem, decimal, did_you_mean, whole_number

#: the largest number that each flag takes: what is beyond is a slip, and would fill the memory or never end
MOST = {
    **{"servers": 4096, "workers": 2**20, "nnodes": 4096, "nproc_per_node": 256, "threads": 4096, "predict": 2**20},
    **{"batch_size": 10**7, "global_batch_size": 10**7, "seed": 2**32 - 1},
    **{"warmup_steps": 10**6, "windows": 10**6, "steps_per_window": 10**6, "repeats": 1000, "max_blocks": 1000},
    **{"sequence_length": 10**6, "aa": 1000, "timeout": 10**7, "max_time": 10**8},
}

#: of a time, in seconds
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def whole(name: str, least: int = 1) -> str:
    """What is allowed of a flag that takes a whole number."""
    return f"a whole number from {least} to {MOST[name]:,}"


class Arguments:
    """Reads texts, returns a usable value in any case, and collects what is wrong."""

    def __init__(self, arguments: Mapping[str, Any]):
        self.arguments = arguments
        self.problems: list[Problem] = []

    def wrong(self, field: str, value: object, allowed: str, step: str = "") -> None:
        """Of a closed set, a range or a form."""
        self.problems.append(Problem(_flag(field), value, allowed, step))

    def problem(self, field: str, value: object, says: str) -> None:
        """In its own sentences."""
        self.problems.append(Problem(_flag(field), value, says=says))

    def listed(self, name: str, allowed: Sequence[str], again: bool = False, alone: str = "") -> tuple[str, ...]:
        """again: whether what is there twice counts twice. alone: a word in place of a list, which the caller reads."""
        values, known = split(self.arguments[name], again), [*allowed, *filter(None, [alone])]
        for value in dict.fromkeys(values):
            if value not in known:
                self.wrong(name, value, ", ".join(known), did_you_mean(value, known))
            elif value not in allowed:
                self.problem(name, self.arguments[name], f"{alone} stands alone. Leave it out, or the others.")
        if not values:
            self.wrong(name, self.arguments[name], ", ".join(known))
        return tuple(value for value in values if value in allowed) or (allowed[0],)

    def words(self, name: str) -> list[str]:
        """Of a flag that may be left out."""
        text = self.arguments.get(name)
        found = split(text or "")
        if text and not found:
            self.problem(name, text, "it names nothing. Give it a value, or leave the flag out.")
        return found

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        value = str(self.arguments[name])
        if value not in allowed:
            self.wrong(name, value, ", ".join(allowed), did_you_mean(value, allowed))
            return allowed[0]
        return value

    def count(self, name: str, default: Any, least: int = 1) -> Any:
        text = self.arguments.get(name)
        if text is None:
            return default
        number = whole_number(text, least, MOST[name])
        if number is None:
            self.wrong(name, text, whole(name, least))
        return default if number is None else number

    def seconds(self, name: str, default: float) -> float:
        text = self.arguments.get(name)
        if text is None:
            return default
        unit = UNITS.get(str(text)[-1:], 0.0)
        value = (decimal(str(text)[:-1] if unit else text) or 0.0) * (unit or 1.0)
        if not 0 < value <= MOST[name]:
            self.wrong(name, text, f"seconds, more than 0 and at most {MOST[name]:,}, or with a unit: 90s, 15m, 2h")
            return default
        return value

    def counts(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Whole numbers, separated by commas."""
        text = self.arguments.get(name)
        if text is None:
            return default
        numbers = tuple(number for word in split(text) if (number := whole_number(word, most=MOST[name])))
        if not numbers or len(numbers) < len(split(text)):
            self.wrong(name, text, f"whole numbers from 1 to {MOST[name]:,}, separated by commas")
            return default or (1,)
        return numbers

    def decimals(self, name: str, default: tuple[float, ...], least: float, most: float) -> tuple[float, ...]:
        """Numbers, separated by commas."""
        words = split(self.arguments[name])
        numbers = tuple(number for word in words if (number := decimal(word)) and least <= number <= most)
        if not numbers or len(numbers) < len(words):
            self.wrong(name, self.arguments[name], f"numbers from {least:g} to {most:,g}, separated by commas")
            return default
        return numbers

    def pairs(self, name: str, allowed: str) -> dict[str, str]:
        """KEY=VALUE texts of a flag that may be given several times."""
        found: dict[str, str] = {}
        for text in self.arguments.get(name) or ():
            key, sign, value = text.partition("=")
            if not sign or not key or not value:
                self.wrong(name, text, allowed)
            elif found.get(key, value) != value:
                self.problem(name, text, f"{key} was already set to {found[key]}. Give it one value.")
            else:
                found[key] = value
        return found


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def split(text: str, again: bool = False) -> list[str]:
    """again: whether what is there twice counts twice."""
    parts = [part.strip() for part in str(text).split(",") if part.strip()]
    return parts if again else list(dict.fromkeys(parts))
