"""A module for each format, with its one entry FORMAT. They are found, not registered."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from dlperf.importlogs.format import Format


@cache
def formats() -> dict[str, Format]:
    """By name."""
    names = sorted(one.name for one in pkgutil.iter_modules(__path__))
    found = [importlib.import_module(f"{__name__}.{name}").FORMAT for name in names]
    return {one.name: one for one in found}
