"""Several sizes in one table, as DLPerf had them: a row for each size, a column for each system. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dlperf.figures import speedup
from dlperf.figures.standings import Standing
from dlperf.figures.summaries import Summary
from dlperf.report import finding, names, text
from dlperf.report.shape import Column, Pivot, Row, Table
from dlperf.schema import Job, Skip

ABOUT = "Medians in {unit}{ranked}. 2n16d: 2 nodes with 16 devices together{served}."
SERVED = "; +2s: with 2 parameter servers"
BOLD, UNRANKED = "; bold: those that may be fastest", ", in no ranking"
BRACKETS = " A rate in brackets is in no ranking."
#: the column of what rows do with gradients before they send them; a system's name need not tell it there
COMPRESSED = "gradients"


def pivot(
    groups: Sequence[Sequence[Summary]],
    standings: Sequence[Sequence[Standing]],
    skips: Sequence[Skip],
    noted: Mapping[str, str],
) -> Pivot | None:
    """None of rows that have all the same size. groups, standings: by size, no standings where no row is ranked. noted:
    what a reader must know of a row, by its label in the table of all rows."""
    if len(groups) < 2:
        return None
    rows = [summary for group in groups for summary in group]
    places = text.decimals(row.throughput for row in rows if row.throughput)
    made = _Cells({one.summary.job.id: one for ranked in standings for one in ranked}, noted, places)
    heads = dict(_heads([group[0].job for group in groups]))
    column = _uncompressed if COMPRESSED in heads else names.system
    fastest = [column(one.summary.job) for ranked in reversed(standings) for one in ranked]
    systems = tuple(dict.fromkeys([*fastest, *(column(row.job) for row in rows), *map(column, skips)]))
    skipped = {column(skip): made.noted(text.NONE, names.system(skip)) for skip in skips}
    gains = {one.summary.job.id: text.number(one.speedup.centre, 2) for one in speedup.speedups(rows) if one.speedup}
    rates = [
        _row(heads, group, systems, {**skipped, **made.rates(group, column)}, made.best(group, column))
        for group in groups
    ]
    speedups = [
        _row(heads, group, systems, {column(one.job): gains.get(one.job.id, text.NONE) for one in group})
        for group in groups
        if any(one.job.id in gains for one in group)
    ]
    columns = (*map(Column, heads), *(Column(name, numeric=True) for name in systems))
    served = SERVED if any(row.job.servers for row in rows) else ""
    unit = names.rate_unit(rows[0].job.family)
    about = ABOUT.format(unit=unit, ranked=BOLD if standings else UNRANKED, served=served)
    return Pivot(
        about + (BRACKETS if any(one.obstacle for ranked in standings for one in ranked) else ""),
        Table(columns, tuple(rates)),
        Table(columns, tuple(speedups)) if speedups else None,
        tuple(f"{number} {note}." for note, number in made.notes.items()),
    )


@dataclass
class _Cells:
    """of: standings by Job.id. notes: each text once, with the number that stands for it."""

    of: Mapping[str, Standing]
    labels: Mapping[str, str]
    places: int
    notes: dict[str, str] = field(default_factory=dict)

    def rates(self, group: Sequence[Summary], column: Callable[[Job], str]) -> dict[str, str]:
        return {column(one.job): self.noted(self._rate(one), names.row(one.job, True)) for one in group}

    def _rate(self, summary: Summary) -> str:
        return finding.rate(summary, self.of.get(summary.job.id), self.places)

    def best(self, group: Sequence[Summary], column: Callable[[Job], str]) -> set[str]:
        standings = [self.of[one.job.id] for one in group if one.job.id in self.of]
        return {column(s.summary.job) for s in standings if finding.may_be_first(s)}

    def noted(self, cell: str, label: str) -> str:
        note = self.labels.get(label, "").removeprefix(finding.TIE).removeprefix("; ")
        if not note:
            return cell
        return f"{cell} {self.notes.setdefault(note, f'[{len(self.notes) + 1}]')}"


def _uncompressed(row: Job | Skip) -> str:
    name = names.system(row)
    return next((name.replace(f"+{kind}", "") for kind in names.COMPRESSED if f"+{kind}" in name), name)


def _heads(jobs: Sequence[Job]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """What tells sizes apart: by title, of each job's id the cell. Devices always, the others where they differ."""
    found = {
        "devices": {job.id: job.size for job in jobs},
        "batch per device": {job.id: f"{job.batch_size:,}" for job in jobs},
        COMPRESSED: {job.id: job.compression for job in jobs},
        "input": {job.id: job.work[-1] for job in jobs},
    }
    for title, cells in found.items():
        if title == "devices" or len(set(cells.values())) > 1:
            yield title, cells


def _row(
    heads: Mapping[str, Mapping[str, str]],
    group: Sequence[Summary],
    systems: Sequence[str],
    cells: Mapping[str, str],
    best: Collection[str] = (),
) -> Row:
    head = tuple(of[group[0].job.id] for of in heads.values())
    strong = tuple(len(head) + systems.index(name) for name in systems if name in best)
    return Row((*head, *(cells.get(name, text.NONE) for name in systems)), strong=strong)
