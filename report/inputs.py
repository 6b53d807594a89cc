"""Where batches are read and decoded while training: how fast the loader is alone, and how long steps waited. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dlperf.figures.summaries import Summary
from dlperf.report import names, text
from dlperf.report.shape import Column, Row, Table


def about(summaries: list[Summary]) -> str:
    """What the table means; and where DALI loads less than the framework's own loader, or more."""
    pairs = sorted(_against_own(summaries))
    told = [f"{name} {text.number(ratio, 2)}{' (slower)' if ratio < 1 else ''}" for name, ratio in pairs]
    meaning = "The loader alone makes the same batches without training, with the same threads."
    return f"{meaning} DALI's over the framework's own: {text.listing(told)}." if told else meaning


def _against_own(summaries: list[Summary]) -> Iterator[tuple[str, float]]:
    """Of frameworks whose loaders are here with and without DALI: the fastest of each over each other, on the same
    number of devices."""
    best: dict[tuple[str, int, int], dict[str, float]] = {}
    for one in summaries:
        rates = best.setdefault((one.job.title, one.job.nnodes, one.job.world_size), {})
        rates[one.job.input] = max(rates.get(one.job.input, 0.0), one.loader_throughput or 0.0)
    for (title, nodes, devices), rates in best.items():
        if rates.get("dali") and rates.get("native"):
            where = "" if devices == 1 else f" on {devices} devices" + (f" of {nodes} nodes" if nodes > 1 else "")
            yield title + where, rates["dali"] / rates["native"]


def table(summaries: list[Summary]) -> Table | None:
    """A row for each system whose loader works during training; None where there is none."""
    rows = [summary for summary in summaries if summary.done and summary.loader_throughput is not None]
    if not rows:
        return None
    unit = names.rate_unit(rows[0].job.family)
    columns = (
        Column("system"),
        *(Column(title, numeric=True) for title in ("nodes", "devices")),
        Column("format"),
        *(
            Column(title, numeric=True)
            for title in (f"training ({unit})", f"loader alone ({unit})", "loader / training")
        ),
        Column("share of a step spent waiting for input", numeric=True),
    )
    rates = text.column([summary.throughput.centre if summary.throughput else None for summary in rows])
    alone = text.column([summary.loader_throughput for summary in rows])
    return Table(
        columns, tuple(_row(one, *pair) for one, pair in zip(rows, zip(rates, alone, strict=True), strict=True))
    )


def _row(summary: Summary, rate: str, alone: str) -> Row:
    job = summary.job
    assert summary.throughput is not None
    assert summary.loader_throughput is not None
    return Row(
        (
            names.system(job),
            f"{job.nnodes:,}",
            f"{job.world_size:,}",
            job.format or job.input,
            rate,
            alone,
            text.number(summary.loader_throughput / summary.throughput.centre, 2),
            text.NONE if summary.input_wait is None else f"{summary.input_wait:.1%}",
        )
    )
