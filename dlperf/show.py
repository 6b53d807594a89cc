"""Show a comparison in the terminal: its tables, its rows and where their logs are, or all runs of one row."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError, clean, did_you_mean
from dlperf.schema import Comparison, Job, Record
from dlperf.words import columns


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.show", description=__doc__)
    made.add_argument(
        "source", metavar="RUN", help="a comparison's folder, a published report's or its name, or a results.json"
    )
    made.add_argument("row", metavar="ROW", nargs="?", help="such as bert_base-fp32-pytorch-b4; without it, all rows")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 where there is no such run or row."""
    asked = parser().parse_args(argv)
    return exit_code(lambda: _show(asked.source, asked.row))


def _show(named: str, row: str | None) -> int:
    from dlperf import sources
    from dlperf.comparison import store

    source = sources.run(named)
    comparison, changed = store.read(source)
    for warning in changed:
        print(f"{source}: {warning}", file=sys.stderr)
    folder = source.parent if source.is_file() else source
    lines = _all(comparison, folder) if row is None else _one(comparison, folder, _named(comparison, row))
    print(clean("\n".join(lines)))
    return 0


def _named(comparison: Comparison, name: str) -> Job:
    """By its id, or by its system, in tables or in records, where one row alone has that."""
    from dlperf.report import names

    rows = {job.id: job for job in comparison.jobs}
    of_system = [job for job in comparison.jobs if name in (job.system, names.system(job))]
    if name not in rows and len(of_system) == 1:
        return of_system[0]
    if name not in rows:
        step = did_you_mean(name, [*rows, *(job.system for job in comparison.jobs)])
        raise UsageError([Problem("ROW", name, ", ".join(rows) or "none", step)])
    return rows[name]


def _all(comparison: Comparison, folder: Path) -> Iterator[str]:
    from dlperf import report

    yield report.figures_text(comparison)
    if comparison.jobs:
        rows = [("row", "n", "failed", "why", "logs")]
        for job in comparison.jobs:
            runs = comparison.runs.get(job.id, ())
            failed = [record.failure for record in runs if record.failure]
            why = failed[-1].kind if failed else "-"
            logs = _place(folder / "runs" / job.id)
            rows.append((job.id, str(len(runs) - len(failed)), str(len(failed)), why, logs))
        yield columns(rows)
    for skip in comparison.skips:
        yield f"{skip.model} {skip.precision_asked} {skip.system}: {skip.status}: {skip.why}"


def _place(path: Path) -> str:
    """Of logs; a published report has none."""
    return str(path) if path.is_dir() else "-"


def _one(comparison: Comparison, folder: Path, job: Job) -> Iterator[str]:
    from dlperf.figures import standings, steady

    runs = steady.without(comparison).runs.get(job.id, ())  # rates as the report has them
    done = [record for record in runs if record.done]
    yield f"{job.id}: {job.title}, {job.model}, {job.precision} on {job.device}, batch {job.batch_size} a device"
    yield ""
    yield columns([("run", "rate", "seconds", "logs", "failure"), *(_run(record, folder) for record in runs)])
    if job.traits.proven:
        phrase = standings.proof(comparison, job)
        obstacle = standings.obstacles(comparison).get(job.id, "")
        yield f"\nProof: {phrase}." + (f" Not comparable: {obstacle}." if obstacle not in ("", phrase) else "")
    latest = (done or runs)[-1] if runs else None
    yield from _listed("Options", job.options)
    if latest:
        yield from _listed("Environment", latest.environment)
        yield from _listed("Versions", latest.versions)
        yield from _listed("What really ran", latest.effective)
        yield f"\nCommand of run {latest.repeat + 1}:\n{latest.command.rstrip()}"


def _run(record: Record, folder: Path) -> tuple[str, ...]:
    from dlperf.figures import rates

    rate = rates.said(record) if record.done else "-"
    why = f"{record.failure.kind}: {record.failure.message}" if record.failure else ""
    logs = _place(folder / record.folder) if record.folder else "-"
    return str(record.repeat + 1), rate, f"{record.seconds:.1f}", logs, " ".join(why.split())


def _listed(title: str, values: Mapping[str, str]) -> Iterator[str]:
    if values:
        yield f"\n{title}:"
        yield columns([(f"  {key}", " ".join(str(value).split())) for key, value in values.items()])


if __name__ == "__main__":
    sys.exit(main())
