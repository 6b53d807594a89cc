"""What several parts of a report ask of a comparison, found once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from dlperf.schema import Comparison

Found = TypeVar("Found")


def once(find: Callable[[Comparison], Found]) -> Callable[[Comparison], Found]:
    """Keeps what a function of a comparison found with that comparison, which does not change. Callers change nothing
    of it. (functools.cache wants arguments that hash.)"""
    key = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def kept(comparison: Comparison) -> Found:
        known: dict[str, Any] = vars(comparison)
        if key not in known:
            known[key] = find(comparison)
        found: Found = known[key]
        return found

    return kept
