"""Why one row is faster than another: both run again, and their frameworks' profilers say where a step's time goes."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dlperf import __version__, flags
from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, RunError, UsageError
from dlperf.flags import DEFAULTS

ROW = (
    "a framework, with options that are not its usual ones (paddle:mkl=avx512), or the folder of a comparison's row "
    "(runs/20261125-120000/runs/JOB)"
)
#: flags of compare that this command has, too
FLAGS = ("precision", "batch_size", "device", "env", "threads", "repeats", "seed", "timeout", "output", "quiet")
#: of them those that say what a row is, which a folder says itself
OF_ROW = ("model", "precision", "batch_size", "device")
#: steps that are profiled, after the windows
STEPS = 3


class Asked(NamedTuple):
    """A row of the command line: an adapter with options, and of a folder's what else sets it apart."""

    adapter: str
    options: Mapping[str, str]
    fixed: Mapping[str, str]


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.why", description=__doc__)
    made.add_argument("rows", metavar="ROW", nargs=2, help=ROW)
    made.add_argument("-m", "--model", metavar="M", help="one model, such as resnet50 or bert; a row's folder says it")
    flags.add_to(made, "compare", FLAGS)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 if a row could not be run or profiled; 2 for a wrong request."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _why(arguments), kept="Finished runs are kept.")


def _why(arguments: Mapping[str, Any]) -> int:
    from dlperf import machine, report
    from dlperf.catalog import reader
    from dlperf.comparison import progress, store
    from dlperf.comparison.runner import Runner
    from dlperf.planning.plan import Plan
    from dlperf.revision import revision
    from dlperf.runs.execute import now

    asked = [_asked(row, arguments) for row in arguments["rows"]]
    adapters = reader.adapters([one.adapter for one in asked])
    specs, jobs = zip(*(_planned(one, arguments, adapters) for one in asked), strict=True)
    _alike(arguments["rows"], jobs)
    folder = Path(arguments["output"]) if arguments["output"] else store.dated("why")
    spec = replace(specs[0], frameworks=tuple(job.adapter for job in jobs), profile=STEPS)
    opened = store.create(folder, spec, Plan(jobs, ()), {}, machine.describe(), now(), __version__, revision())
    with store.locked(folder):
        shown = progress.choose(bool(arguments["quiet"]))
        try:
            Runner(opened, adapters, shown).run()
        finally:
            shown.close()
    comparison = opened.comparison
    a, b = (_side(job, comparison.runs.get(job.id, ()), folder) for job in jobs)
    print(report.write_why(comparison, a, b, folder))
    print(f"Report: {folder / 'why.md'} and {folder / 'why.html'}")
    return 0


def _asked(row: str, arguments: Mapping[str, Any]) -> Asked:
    """UsageError where a row is neither."""
    if "/" not in row and not Path(row).is_dir():
        adapter, _, options = row.partition(":")
        pairs = [one.partition("=") for one in options.split(",") if one]
        wrong = [key for key, sign, value in pairs if not (key and sign and value)]
        if wrong:
            raise UsageError([Problem("ROW", row, "FRAMEWORK or FRAMEWORK:OPTION=VALUE,OPTION=VALUE")])
        return Asked(adapter, {key: value for key, _, value in pairs}, {})
    return _of_folder(Path(row), arguments)


def _of_folder(row: Path, arguments: Mapping[str, Any]) -> Asked:
    from dlperf.comparison import store

    told = [f"--{name.replace('_', '-')}" for name in OF_ROW if arguments[name]]
    if told:
        says = f"a row of a comparison keeps what it was made with. Leave out {', '.join(told)}."
        raise UsageError([Problem("ROW", row, says=says)])
    folder = row.absolute().parent.parent
    if not store.holds(folder):
        says = "it is not in the folder of a comparison. Name DIR/runs/JOB, DIR being such a folder, or a framework."
        raise UsageError([Problem("ROW", row, says=says)])
    made, _ = store.read(folder)  # a published report has no runs, but says what they were of
    job = {one.id: one for one in made.jobs}.get(row.name)
    if job is None:
        known = ", ".join(one.id for one in made.jobs)
        raise UsageError([Problem("ROW", row, says=f"that comparison has no such row. Its rows: {known}.")])
    if job.world_size > 1 or not job.traits.worker:
        what = "it has several ranks" if job.world_size > 1 else "its script is not dlperf's"
        raise UsageError(
            [Problem("ROW", row, says=f"{what}, and only rows of one device and our adapters are profiled.")]
        )
    fixed = {"model": job.model, "precision": job.precision_asked, "batch_size": str(job.batch_size)}
    fixed |= {"device": job.device, "threads": str(made.spec["threads"])}
    if job.data_dir:
        fixed |= {"data": job.data_dir, "input": job.input}
    return Asked(job.adapter, job.options, fixed)


def _planned(asked: Asked, arguments: Mapping[str, Any], adapters: Mapping[str, Any]) -> tuple[Any, Any]:
    """The spec and the job of a row; UsageError where it cannot run."""
    from dlperf.planning import plan
    from dlperf.planning.checks import from_arguments

    given = {name: arguments[name] for name in ("model", *FLAGS) if name in DEFAULTS and arguments[name] is not None}
    wanted = {**DEFAULTS, **given, **asked.fixed, "frameworks": asked.adapter, "tuned": "off", "aa": "0"}
    wanted |= {"set": [f"{key}={value}" for key, value in asked.options.items()], "no_verify": True}
    spec = from_arguments({**wanted, "dry_run": False, "output": arguments["output"]}, adapters)
    found = plan.from_spec(spec, adapters)
    if found.skips:
        skip = found.skips[0]
        raise UsageError(
            [Problem("ROW", asked.adapter, says=f"{skip.model} in {skip.precision} does not run: {skip.why}.")]
        )
    if len(found.jobs) != 1:
        raise UsageError(
            [Problem("ROW", asked.adapter, says="name one model and one precision: --model, --precision.")]
        )
    job = found.jobs[0]
    if not (adapters[job.adapter].folder / "profiling.py").is_file():
        says = "no profiler is known for this framework: its adapter has no profiling.py."
        raise UsageError([Problem("ROW", asked.adapter, says=says)])
    return spec, job


def _alike(rows: Sequence[str], jobs: Sequence[Any]) -> None:
    a, b = jobs
    if "cuda" in (a.device, b.device):
        says = "steps on a GPU are not explained yet; make gpu lists their kernels. Choose --device cpu."
        raise UsageError([Problem("--device", "cuda", says=says)])
    if a.id == b.id:
        raise UsageError([Problem("ROW", rows[1], says="both rows are the same. Name another, or other options.")])
    if (a.model, a.precision, a.device, a.work) != (b.model, b.precision, b.device, b.work):
        says = (
            f"it is {b.model} in {b.precision} with batch {b.batch_size}, and {rows[0]} is {a.model} in {a.precision} "
        )
        says += f"with batch {a.batch_size}. Name rows of one table."
        raise UsageError([Problem("ROW", rows[1], says=says)])


def _side(job: Any, records: Sequence[Any], folder: Path) -> Any:
    """RunError where a row has no profile."""
    from dlperf.figures import difference
    from dlperf.runs.events import read_job

    done = [record for record in records if record.done]
    if not done:
        failure = records[-1].failure if records else None
        why = f"{failure.kind}: {failure.message}" if failure else "it was not run"
        raise RunError("crash", f"{job.system} has no run: {why}", failure.lines if failure else ())
    seen = [read_job(folder / record.folder, job.world_size, len(record.windows)).profile for record in done]
    found = difference.side(job, done, seen)
    if found is None:
        why = next((one["why"] for one in seen if one.get("why")), "its run told of none")
        raise RunError("unsupported", f"{job.system} has no profile: {why}")
    return found


if __name__ == "__main__":
    sys.exit(main())
