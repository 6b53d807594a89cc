"""What really ran in the rows of a section, as far as their runs tell. Pure."""

from __future__ import annotations

from dlperf.figures import standings
from dlperf.figures.summaries import Summary
from dlperf.proof.judge import work_keys
from dlperf.report import names, text
from dlperf.report.shape import Column, Row, Table


def tables(summaries: list[Summary]) -> tuple[Table | None, Table | None, Table | None]:
    """Keys whose value is the same in every system; those that differ and change the work; and the other ones, which
    are how a framework does it. Those that differ have a column for each system, and a sentence on what they mean."""
    columns: dict[str, dict[str, list[str]]] = {}
    for summary in summaries:
        for record in (*summary.done, *summary.failed):
            if record.effective:
                values = columns.setdefault(names.system(summary.job), {})
                for key, value in record.effective.items():
                    values.setdefault(key, []).append(text.line(str(value)))
    keys = list(dict.fromkeys(key for values in columns.values() for key in values))
    cells = {key: [text.alternatives(values.get(key, [])) for values in columns.values()] for key in keys}
    alike = [key for key in keys if len({standings.work(key, cell) for cell in cells[key]}) == 1]
    of_work = {key for summary in summaries for key in work_keys(summary.job.family)}
    work = [key for key in keys if key not in alike and key in of_work]
    how = [key for key in keys if key not in alike and key not in of_work]
    meanings = {key: names.meaning(key, summary.job.family) for summary in summaries for key in keys}
    one = (Column("key"), Column("all systems" if len(columns) > 1 else next(iter(columns), "")))
    each = (Column("key"), *(Column(name) for name in columns), Column("what it is"))
    return (
        _table(one, [(key, cells[key][0]) for key in alike]),
        _table(each, [(key, *cells[key], meanings[key]) for key in work]),
        _table(each, [(key, *cells[key], meanings[key]) for key in how]),
    )


def _table(columns: tuple[Column, ...], rows: list[tuple[str, ...]]) -> Table | None:
    return Table(columns, tuple(Row(row) for row in rows)) if rows else None
