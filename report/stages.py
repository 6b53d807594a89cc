"""Where the wall time of a section's rows went. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlperf.figures import goodput
from dlperf.figures.summaries import Summary
from dlperf.report import names, text
from dlperf.report.shape import Column, Row, Table

TITLES = {
    "processes": "start and end of processes",
    "import": "import",
    "meeting": "waiting for ranks to start",
    "build": "build",
    "first_step": "first step",
    "warm_up": "warm-up",
    "windows": "windows",
    "input": "waiting for input",
    "skew": "waiting for the slowest rank",
    "checks": "checks",
    goodput.FAILED: "failed runs",
}
ABOUT = (
    "In percent of the seconds of all runs of a row. Goodput is what steps after the first took, measured or of the "
    "warm-up. Checks are what else a worker does: samples of the tensors for the proof, losses, probes."
)


def table(summaries: Sequence[Summary]) -> Table | None:
    """A row for each system with a run that succeeded, where these tell; stages that took no time have no column."""
    told = [(one, found) for one in summaries if one.done and (found := goodput.shares([*one.done, *one.failed]))]
    if not told:
        return None
    parts = [goodput.rounded(found, 1000) for _, found in told]
    stages = [name for name in TITLES if any(found[name] for found in parts)]
    apart = names.apart(one.job for one, _ in told)
    columns = ("nodes", "devices", *apart, "run (s)", "goodput", *(TITLES[name] for name in stages))
    return Table(
        (Column("system"), *(Column(title, numeric=True) for title in columns)),
        tuple(_row(one, found, stages, apart) for (one, _), found in zip(told, parts, strict=True)),
    )


def _row(summary: Summary, parts: dict[str, int], stages: Sequence[str], apart: Sequence[str]) -> Row:
    job, runs = summary.job, [*summary.done, *summary.failed]
    mean = math.fsum(record.seconds for record in runs) / len(runs)
    shown = [sum(parts[name] for name in goodput.TRAINED), *(parts[name] for name in stages)]
    sizes = (f"{job.nnodes:,}", f"{job.world_size:,}", *names.told(job, apart), text.number(mean, 1))
    return Row((names.system(job), *sizes, *(text.number(part / 10, 1) for part in shown)))
