"""What else hosts and GPUs did while a row was measured: shares of its windows, and clocks that fell. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlperf.runs import conditions
from dlperf.schema import Record

#: of its clock that a device loses between two windows of a run, from which on they are not alike
FELL = 0.05
#: shares of a host's CPU time in windows: how much of it they may be, and who takes it
TAKERS = (
    ("cpu_others_share", 0.05, "Other processes"),
    ("cpu_steal_share", 0.02, "Other guests of this virtual machine's host"),
)
#: seconds from which on such a share is known
COUNTED_SECONDS = 0.1


def share(records: Sequence[Record], name: str) -> float:
    """Over all windows; 0 where it is not known, or is of less time than can be counted."""
    windows = [window for record in records for window in record.windows]
    seconds = math.fsum(window.seconds for window in windows)
    taken = math.fsum(window.seconds * window.conditions.get(name, 0.0) for window in windows)
    return taken / seconds if taken > COUNTED_SECONDS else 0.0


def fall(record: Record, clock: str) -> float:
    """Share of its highest clock so far that a device lost in a later window, at the most."""
    highest, most = 0.0, 0.0
    for window in record.windows:
        mhz = window.conditions.get(clock, highest)
        highest = max(highest, mhz)
        most = max(most, 1 - mhz / highest if highest else 0.0)
    return most


def seen(record: Record, name: str) -> float:
    """A condition in all windows of a run; 0 where it is not known."""
    return conditions.together([window.conditions for window in record.windows]).get(name, 0.0)
