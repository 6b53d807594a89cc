"""The largest batch that a device's memory holds: `--batch-size max`. Pure; the runner makes the probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dlperf.planning.spec import Spec
from dlperf.schema import Failure
from dlperf.words import count

#: sizes are multiples of it, as tensor cores like them, where they are no smaller
MULTIPLE = 8
#: the search ends when the largest that runs is so near, as its share, to the smallest that does not
NEAR = 1 / 16
#: samples beyond which nothing is tried: a model this small has no largest batch worth waiting for
MOST = 2**16
#: steps of a probe: PyTorch captures a CUDA graph, which has memory of its own, after its third
WARMUP_STEPS, STEPS = 5, 3


def probing(spec: Spec) -> Spec:
    """What a probe is asked for: a few steps, whatever they take."""
    protocol = replace(spec.protocol, warmup_steps=WARMUP_STEPS, windows=1, steps_per_window=STEPS)
    return replace(spec, protocol=replace(protocol, warmup_seconds=0.0, window_seconds=0.0))


def search(start: int, probe: Callable[[int], Failure | None]) -> tuple[int, str]:
    """The largest size that runs, and how it was found, in words; `start` where none does.

    It is doubled from `start` on until memory runs out, or else halved until it does not, and then bisected. Any other
    failure ends the search. probe: why a size does not run.
    """
    tried: dict[int, Failure | None] = {}
    low, high = 0, start
    while (size := _next(low, high, tried)) is not None:
        failure = tried[size] = probe(size)
        low, high = (size, high) if failure is None else (low, size)
        if failure is not None and failure.kind != "out_of_memory":
            break
    return low or start, _told(low, high, tried)


def _next(low: int, high: int, tried: dict[int, Failure | None]) -> int | None:
    """The size to try next; None at the end. low: the largest that ran, or 0; high: the smallest that did not, or that
    was to be tried."""
    if not tried:
        return high
    if not any(tried.values()):
        return 2 * low if 2 * low <= MOST else None
    if not low:
        return high // 2 or None
    between = (low + high) // 2 // MULTIPLE * MULTIPLE
    return between if between > low and high - low > NEAR * low else None


def _told(low: int, high: int, tried: dict[int, Failure | None]) -> str:
    probes = count(len(tried), "probe")
    failure = tried.get(high)
    if failure is None:
        return f"batch {low:,} is the largest that was tried ({probes}): it runs"
    why = "runs out of memory" if failure.kind == "out_of_memory" else f"fails: {failure.kind}: {failure.message}"
    return f"batch {low:,} is the largest that runs ({probes}); {high:,} {why}" if low else f"batch {high:,} {why}"
