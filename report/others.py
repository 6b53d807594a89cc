"""Rows that are in no ranking: a table for each kind of them, of what each is, and what it computes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dlperf.figures import rates, summaries
from dlperf.figures.summaries import Summary
from dlperf.kind import KINDS, Kind
from dlperf.report import names, text
from dlperf.report.shape import Column, Others, Row, Table
from dlperf.schema import Failure, Job, Skip

#: that a sentence names
MOST_RATES = 8


def others(summaries: list[Summary], skips: list[Skip], repeats: int) -> Iterator[Others]:
    """One for each kind of these rows that is not ranked."""
    for kind in KINDS.values():
        mine = [summary for summary in summaries if summary.job.traits is kind]
        mine_skipped = [skip for skip in skips if skip.traits is kind]
        if (mine or mine_skipped) and not kind.ranked:
            yield _of_kind(kind, mine, mine_skipped, repeats)


def _of_kind(kind: Kind, summaries: list[Summary], skips: list[Skip], repeats: int) -> Others:
    family = names.rows((summary.job for summary in summaries), skips)[0].family
    places = text.decimals(summary.throughput for summary in summaries if summary.throughput)
    columns = (
        Column("system"),
        *(Column(title, numeric=True) for title in ("nodes", "devices", "batch per device", "global batch", "n")),
        Column(f"median ({names.rate_unit(family)})", numeric=True),
        Column("95 % interval", numeric=True),
        Column("first step (s)", numeric=True),
        *(Column(title) for title in kind.columns.values()),
        Column("figures from"),
    )
    rows = [_row(summary, places, repeats, len(columns)) for summary in summaries]
    rows += [_skipped(skip, len(columns)) for skip in skips]
    table = Table(columns, tuple(rows), noted=any(row.note for row in rows))
    return Others(kind.title, kind.about, _sentence(kind, summaries), table, kind.declared, _declared(summaries))


def _sentence(kind: Kind, summaries: list[Summary]) -> str:
    """Their rates, for the head of the report; empty without any."""
    places = text.decimals(summary.throughput for summary in summaries if summary.throughput)
    rates = [
        f"{names.system(one.job)} {text.number(one.throughput.centre, places)} {names.rate_unit(one.job.family)}"
        + f" (n={one.throughput.n})"
        for one in summaries
        if one.throughput
    ]
    if len(rates) > MOST_RATES:
        return f"{kind.called} of {text.count(len(rates), 'row')}, not ranked."
    return f"{kind.called}, not ranked: {text.listing(rates)}." if rates else ""


def _row(summary: Summary, places: int, repeats: int, columns: int) -> Row:
    job, estimate = summary.job, summary.throughput
    sizes = [f"{size:,}" for size in (job.nnodes, job.world_size, job.batch_size, job.global_batch_size)]
    what = [job.about.get(key) or text.NONE for key in job.traits.columns]
    note = "; ".join(_notes(summary, repeats))
    if estimate is None:
        short = "failed" if summary.failed else "not run yet"
        rest = columns - len(sizes) - 3
        cells = (names.system(job), *sizes, text.NONE, short, *(text.NONE,) * rest)
        return Row(cells, "missing", names.system(job), note or short, first=5, span=columns - 4)
    places_of = [place for record in summary.done if (place := rates.source(record))]
    cells = (
        names.system(job),
        *sizes,
        str(estimate.n),
        *(text.number(estimate.centre, places), text.interval(estimate, places)),
        text.number(summary.first_step_seconds, 2),
        *what,
        text.line(", ".join(places_of[:2]) + (", …" if len(places_of) > 2 else "")) or text.NONE,
    )
    return Row(cells, "incomparable", label=_label(job), note=note)


def _label(job: Job) -> str:
    return names.system(job) + (f", {job.nnodes}×{job.nproc_per_node}" if job.world_size > 1 else "")


def _notes(summary: Summary, repeats: int) -> list[str]:
    job = summary.job
    differs, edits = job.about.get("differs"), job.about.get("edits")
    notes = [f"otherwise than the native scripts: {differs}"] if differs else []
    notes += [f"edited: {edits}"] if edits else []
    if summary.failed:
        reasons = text.listing(_reason(record.failure) for record in summary.failed if record.failure)
        notes.append(f"{len(summary.failed)} of {text.count(job.runs(repeats), 'run')} failed: {reasons}")
    left = summaries.missing_runs(summary, repeats)
    notes += [f"{text.count(left, 'run')} not made yet"] if left else []
    return notes + (["never run here"] if job.untested else [])


def _reason(failure: Failure) -> str:
    message = text.line(failure.message, 400).rstrip(".")
    return f"{names.status(failure.kind)} ({message})" if message else names.status(failure.kind)


def _skipped(skip: Skip, columns: int) -> Row:
    note = f"{names.status(skip.status)}: {text.line(skip.why).rstrip('.')}"
    cells = (names.system(skip), *(text.NONE,) * 5, names.status_short(skip.status), *(text.NONE,) * (columns - 7))
    return Row(cells, "missing", names.system(skip), note, first=5, span=columns - 4)


def _declared(summaries: list[Summary]) -> Table | None:
    """Keys of `effective` down, systems across."""
    found: dict[str, dict[str, str]] = {}
    for summary in summaries:
        for record in (*summary.done, *summary.failed):
            if record.effective:
                found[names.system(summary.job)] = {k: text.line(str(v)) for k, v in record.effective.items()}
    keys = dict.fromkeys(key for values in found.values() for key in values)
    if not keys:
        return None
    columns = (Column("key"), *map(Column, found), Column("what it is"))
    family = summaries[0].job.family
    cells = {key: [values.get(key, text.NONE) for values in found.values()] for key in keys}
    rows = (Row((key, *cells[key], names.meaning(key, family))) for key in keys)
    return Table(columns, tuple(rows))
