"""Make a finished run again, in a new folder, as it was made: by its script, with its code, in its environment."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, RunError, UsageError, whole_number


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.repeat", description=__doc__)
    made.add_argument(
        "run", metavar="RUN", help="a run's folder: DIR/runs/JOB/N of a comparison's folder DIR; run 1 is N = 0"
    )
    made.add_argument("-o", "--output", metavar="DIR", help="a new folder; default: runs/repeat-DATE")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 if the run failed; 2 for a wrong request."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _repeat(arguments))


def _repeat(arguments: Mapping[str, Any]) -> int:
    from dlperf import machine
    from dlperf.comparison import again, store
    from dlperf.figures import rates

    place = Path(arguments["run"]).absolute()
    if len(place.parents) < 3 or place.parents[1].name != "runs":
        raise UsageError([Problem("RUN", arguments["run"], says="this is no run's folder. Name DIR/runs/JOB/N.")])
    source = again.opened(place.parents[2], "RUN")
    old = source.records.get((place.parent.name, whole_number(place.name, least=0)))  # type: ignore[arg-type]
    if old is None:
        known = ", ".join(f"{job}/{repeat}" for job, repeat in source.records) or "none"
        raise UsageError([Problem("RUN", arguments["run"], says=f"no such run was made. Those that were: {known}.")])
    why = again.obstacle(source, old.job)
    if why:
        raise UsageError([Problem("RUN", arguments["run"], says=f"it cannot be made again: {why}.")])
    source.records = {(old.job.id, old.repeat): old}
    folder = Path(arguments["output"]) if arguments["output"] else store.dated("repeat")
    made = again.create(source, folder, [old.job], 1, machine.describe())
    with store.locked(folder):
        record = made.run(old.job, 0)
    if record.failure:
        raise RunError(record.failure.kind, f"{record.failure.kind}: {record.failure.message}", record.failure.lines)
    before = f" (the finished run: {rates.said(old)})" if old.done else ""
    print(f"{old.job.id}: {rates.said(record)}{before}\nIts files: {folder / record.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
