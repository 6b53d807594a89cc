"""How a comparison was measured, in sentences. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dlperf.figures import peaks, until
from dlperf.report import text
from dlperf.schema import Comparison


def repeats(comparison: Comparison) -> int:
    """Runs asked of each row: as the request says, else the most that any row has."""
    asked = None if until.stopped(comparison) else _protocol_of(comparison).get("repeats")
    return int(asked or max((record.repeat + 1 for record in comparison.records), default=1))


def _protocol_of(comparison: Comparison) -> Mapping[str, Any]:
    """name, warmup_steps, windows, steps_per_window and repeats, as the request has them."""
    return comparison.spec.get("protocol") or {}


def sentences(comparison: Comparison) -> Iterable[str]:
    asked = _protocol_of(comparison)
    if asked:
        windows = f"{text.count(asked['windows'], 'timed window')} of {text.count(asked['steps_per_window'], 'step')}"
        yield (
            f"Protocol “{asked['name']}”: each run makes {text.count(asked['warmup_steps'], 'warm-up step')}, then "
            f"{windows}{_at_least(asked)}. Within a window nothing waits for the device."
        )
    if "threads" in comparison.spec:
        yield f"Each framework may use {text.count(comparison.spec['threads'], 'CPU thread')}."
    yield (
        f"Each row is run {text.count(repeats(comparison), 'time')}, each time in fresh processes."
        f"{_added(comparison)} The runs of all rows are interleaved: every block has one run of each row, in random "
        "order, so that a drift of the machine affects all rows alike. A row that fails twice without a success is not "
        "tried again."
    )
    if any(job.traits.ranked for job in comparison.jobs):
        yield "All steps are made at one learning rate: the models have no schedule."
    yield (
        "The rate of a run is all samples of its windows divided by all their seconds, those of the slowest rank; "
        "never a mean of rates. A row shows the median of its runs. What it says is of this session of this machine."
    )
    yield (
        "The interval of a rate holds the median of the runs that this session could have made in 95 % of cases: from "
        "five runs on it lies between two of them (with five in 94 %), whatever their distribution; with fewer it is "
        "Student's t on the logarithms of the rates, which assumes that these are normal, and two speeds between "
        "which a machine changes can stay unseen. The run is the replicate, not the step. n=1 has no interval."
    )
    yield (
        "Ratios are means of the ratios of two rows' runs in the same block, on logarithms, with the 95 % interval of "
        "this ratio alone, by Student's t; where two rows share fewer than half of their blocks, of all their runs, by "
        "Welch's t."
    )
    yield (
        "A rank is a range: all that the runs leave open. Of all comparisons in a table together, at most one table in "
        "twenty calls one of two equal rows slower (min-p of Westfall and Young over blocks; Holm's method where rows "
        "lack blocks). So two rows can tie whose ratio's interval does not contain 1."
    )
    yield (
        "Peak memory is the largest resident size of one process in any run. CPU time is user and system time within "
        "the windows; it and the first step, which includes compilation, are medians of runs."
    )
    if peaks.ceilings(comparison):
        yield (
            "FLOP/s are those of the model's definition, forward and backward. Their share is of the fastest product "
            "of large matrices in that precision that a run of any system timed: on a CPU before its steps, as did "
            "NumPy beside it, on a GPU after its windows."
        )
    yield from _spent(comparison)


def _spent(comparison: Comparison) -> Iterable[str]:
    """What the comparison took besides its runs."""
    rest = {what: seconds for what, seconds in comparison.seconds.items() if seconds >= 1}
    if rest:
        runs = math.fsum(record.seconds for record in comparison.records)
        told = text.listing(f"{what} {seconds:,.0f} s" for what, seconds in rest.items())
        yield f"The runs took {runs:,.0f} s; before them, {told}."


#: why no more blocks were made
STOPPED = {
    "goal": "; they were",
    "blocks": "; after as many as --max-blocks allows they were not",
    "time": "; when the runs had taken as long as --max-time allows they were not",
}


def _added(comparison: Comparison) -> str:
    """With --until, what it waited for, and whether that came."""
    goal = comparison.spec.get("until")
    if not goal:
        return ""
    ended = STOPPED.get(until.stopped(comparison), "")
    return (
        f" Blocks of runs were added until the half width of each ratio's interval was within {100 * goal:g} %{ended}."
        " Whether rows differ was not looked at, and the error of the ranking is held for having looked several times."
    )


def _at_least(asked: Mapping[str, Any]) -> str:
    """`; a row of one rank makes more of both, until warm-up has taken 5 s and a window 2 s`."""
    taken = {"warm-up has taken": asked.get("warmup_seconds"), "a window": asked.get("window_seconds")}
    told = [f"{what} {text.number(seconds, 0)} s" for what, seconds in taken.items() if seconds]
    return f"; a row of one rank makes more steps until {' and '.join(told)}" if told else ""
