"""Rows that are tuned, beside those that are as their framework is released. Pure.

As released: what the framework's documentation tells its users, in a layout and a compiled form of our choice. Tuned:
what a user can do besides from Python, the environment and the package index: undocumented variables, private operators
of the wheel, another library in front of its own. Neither changes the work, lowers a precision or alters the
framework's files. An adapter names what is tuned, and on which CPUs, in `[[options.NAME.tuned]]`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlperf.catalog.adapter import Adapter, Option
from dlperf.planning.spec import Spec
from dlperf.schema import Job

#: what --tuned takes: rows of both sorts, those that are tuned where there are any, or those as released
CHOICES = ("both", "on", "off")


def settings(
    spec: Spec, adapter: Adapter, family: str, precision: str, given: Mapping[str, str]
) -> list[dict[str, str]]:
    """Of a row with the settings that are given, those that are made: the row itself, the tuned one, or both."""
    found = {} if spec.tuned == "off" or spec.device != "cpu" else _fitting(spec, adapter, family, precision)
    more = {name: value for name, value in found.items() if name not in given}
    if not more:
        return [dict(given)]
    tuned = {**given, **more}
    return [tuned] if spec.tuned == "on" else [dict(given), tuned]


def _fitting(spec: Spec, adapter: Adapter, family: str, precision: str) -> dict[str, str]:
    """The first tuned value of each option that fits the CPU, where that is known."""
    sets = frozenset(spec.instructions or ())
    fits = {
        name: [one.value for one in option.tuned if precision in one.precision and sets.issuperset(one.needs)]
        for name, option in adapter.options_of(family).items()
    }
    return {name: values[0] for name, values in fits.items() if values}


def about(adapter: Adapter, job: Job) -> str:
    """With what a row is tuned; empty if it is not."""
    chosen = [(job.options.get(name), option) for name, option in adapter.options_of(job.family).items()]
    return "; ".join(f"{option.name}={value}: {option.about}" for value, option in chosen if _is(option, value))


def _is(option: Option, value: str | None) -> bool:
    return any(one.value == value for one in option.tuned)
