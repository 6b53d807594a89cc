"""Of a row's wall time, the share in training steps, and where the rest went. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlperf.runs.stages import STAGES
from dlperf.schema import Record

#: stages in which a model is trained at its pace: steps that are measured, and those of the warm-up after the first,
#: which compiles
TRAINED = ("warm_up", "windows")
FAILED = "failed"


def shares(records: Sequence[Record]) -> dict[str, float]:
    """Of all seconds of a row's runs, by stage; they add up to 1. Empty where some run that succeeded does not tell."""
    if not all(record.stages.keys() >= set(STAGES) for record in records if record.done):
        return {}
    found = {name: math.fsum(one.stages[name] for one in records if one.done) for name in STAGES}
    found[FAILED] = math.fsum(one.seconds for one in records if not one.done)
    total = math.fsum(found.values())
    return {name: seconds / total for name, seconds in found.items()} if total else {}


def goodput(found: dict[str, float]) -> float | None:
    """From such shares."""
    return math.fsum(found[name] for name in TRAINED) if found else None


def rounded(found: dict[str, float], parts: int) -> dict[str, int]:
    """Shares as numbers of so many equal parts, which add up to it: those with the largest remainders get one more."""
    whole = {name: math.floor(share * parts) for name, share in found.items()}
    left = parts - sum(whole.values())
    for name in sorted(found, key=lambda one: whole[one] - found[one] * parts)[:left]:
        whole[name] += 1
    return whole
