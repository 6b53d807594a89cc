"""The kinds of systems and their verbs: native ones run our scripts, upstream ones third-party scripts, imported ones
none."""

from __future__ import annotations

from collections.abc import Mapping

from dlperf.catalog.adapter import Adapter
from dlperf.kind import IMPORTED, NATIVE, UPSTREAM
from dlperf.systems.imported import Imported
from dlperf.systems.native import Native
from dlperf.systems.system import System
from dlperf.systems.upstream import Upstream

SYSTEMS: Mapping[str, System] = {NATIVE.name: Native(), UPSTREAM.name: Upstream(), IMPORTED.name: Imported()}


def of(adapter: Adapter) -> System:
    """The kind of an adapter's systems."""
    return SYSTEMS[adapter.kind.name]
