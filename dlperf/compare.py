"""Train the same models in several deep-learning frameworks and report who was faster, by how much, and how sure."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

if platform.system() != "Linux":  # first of all: the modules below do not even import on Windows
    places = "a Linux container or virtual machine (on Windows: WSL 2)"
    sys.exit(f"dlperf needs Linux; on macOS or Windows run it in {places}")

from dlperf import __version__, launchers, models
from dlperf.catalog import reader
from dlperf.catalog.adapter import Adapter
from dlperf.cli import DEFAULTS, Parser, add_environment, exit_code
from dlperf.comparison import dry_run, progress, store
from dlperf.comparison.runner import Runner
from dlperf.comparison.store import Store
from dlperf.errors import Problem, UsageError
from dlperf.models.images import FORMATS
from dlperf.planning import plan
from dlperf.planning import spec as spec_
from dlperf.planning.checks import from_arguments
from dlperf.planning.spec import AUTO
from dlperf.schema import Comparison


def parser() -> argparse.ArgumentParser:
    """The command line. Values stay text here; dlperf.planning.checks checks them all at once."""
    made = Parser(prog="python -m dlperf.compare", description=__doc__)
    what = made.add_argument_group("what to compare")
    add = what.add_argument
    add("-m", "--model", metavar="M,...", help="resnet50, bert (= bert_base), bert_large; default: resnet50,bert")
    add(
        "-p",
        "--precision",
        metavar="P,...",
        help="fp32, tf32, amp (fp16 on CUDA, bf16 on CPU), fp16, bf16; default: fp32; auto: amp, or fp32 where fewer "
        "than three frameworks have kernels for amp",
    )
    add("-f", "--frameworks", metavar="F,...", help="default: all")
    add("-b", "--batch-size", "--batch-size-per-device", metavar="N", help="per device; default: DLPerf's on CUDA")
    add("--global-batch-size", metavar="N", help="over all devices, instead of --batch-size")
    add("--data", metavar="DIR", help="synthetic (default), or a folder made by python -m dlperf.data")
    add(
        "--input", metavar="I,...", help="with --data: native (default: the framework's own pipeline), dali; each a row"
    )
    add("--format", metavar="F,...", help=f"with --data: {', '.join(FORMATS)}; default: what is there")
    add("--compile", metavar="on|off", help="the framework's compiler; on,off makes a row of each")
    add(
        "--source",
        metavar="DIR",
        help="checkout of a script that is not ours, for --frameworks ngc-...; or NAME=DIR,...",
    )
    add("--set", action="append", metavar="KEY=VALUE", help="an adapter's option: clip_norm=off, pytorch.layout=nchw")
    where = made.add_argument_group("where")
    add = where.add_argument
    add("--device", metavar="D", help="auto (default), cpu or cuda")
    add_environment(add)
    add("--threads", metavar="N", help="CPU threads for each rank; default: all usable CPUs, over the ranks of a node")
    flag = "--allow-reference"
    add(flag, action="store_true", default=None, help="run rows whose kernels on this CPU are slow reference loops")
    add(
        "--emulate-cpu",
        metavar="CPU",
        help="run the workers on a CPU that qemu-user emulates: Haswell; no speed is real",
    )
    ranks = made.add_argument_group("how many ranks, and what starts them")
    add = ranks.add_argument
    add("--nnodes", metavar="N,...", help="nodes; several with commas, each with each --nproc-per-node a row")
    add("--nproc-per-node", metavar="N,...", help="ranks on each node, one device each; default: 1")
    add("--hosts", metavar="H,...", help="the nodes' names or addresses; NAME:SLOTS limits the ranks there")
    add("--hostfile", metavar="FILE", help="instead: one a line, as Open MPI has it (NAME slots=N)")
    add("--launcher", metavar="L", help=f"auto (default), {', '.join(launchers.names())}")
    add("--launcher-arg", action="append", metavar="KEY=VALUE", help="an argument of the launcher: partition=gpu")
    add("--predict", metavar="N,...", help="numbers of devices whose throughput the report predicts from the rows")
    how = made.add_argument_group("how often")
    add = how.add_argument
    add("--protocol", metavar="P", help="dlperf (20 + 100 steps, 7 repeats; default on CUDA) or quick (default on CPU)")
    for flag in ("--warmup-steps", "--windows", "--steps-per-window"):
        add(flag, metavar="N", help="instead of the protocol's")
    add("-r", "--repeats", metavar="N", help="fresh processes for each row, instead of the protocol's")
    add("--seed", metavar="N", help="of weights, batches and order; default: 1")
    add("--timeout", metavar="S", help="seconds for one run")
    flag = "--no-verify"
    add(flag, action="store_true", default=None, help="make no proofs of the same work; rows without one are marked")
    out = made.add_argument_group("output")
    add = out.add_argument
    add("-o", "--output", metavar="DIR", help="a new folder; default: runs/<date and time>")
    add("--resume", metavar="DIR", help="run what is missing in the folder of an interrupted comparison")
    add("--retry-failed", action="store_true", help="with --resume: run failed runs again, too")
    add("--dry-run", action="store_true", help="print the plan and every command, run nothing")
    add("-q", "--quiet", action="store_true", help="no progress")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 if nothing could run; 2 for a wrong request; 130 after Ctrl-C."""
    arguments = vars(parser().parse_args(argv))
    return exit_code(lambda: _compare(arguments), kept="Finished runs are kept.")


def _compare(arguments: Mapping[str, object]) -> int:
    adapters = reader.adapters()
    if arguments["resume"]:
        return _resume(arguments, adapters)
    given = {name: arguments[name] for name in DEFAULTS if arguments[name] is not None}
    asked = {**DEFAULTS, **given, "dry_run": arguments["dry_run"], "output": arguments["output"]}
    spec = from_arguments(asked, adapters)
    if asked["precision"] == AUTO:
        print(("# " if arguments["dry_run"] else "") + spec_.chosen_precision(spec, adapters), flush=True)
    planned = plan.make(spec, adapters)
    folder = Path(str(arguments["output"] or f"runs/{datetime.now():%Y%m%d-%H%M%S}"))
    if arguments["dry_run"]:
        print(dry_run.text(spec, planned, adapters, folder.absolute()))
        return 0
    from dlperf import machine

    created = datetime.now(UTC).isoformat(timespec="seconds")
    commands = dry_run.environment_commands(spec, planned, adapters)
    made = store.create(folder, spec, planned, commands, machine.describe(), created, __version__)
    return _run(made, adapters, arguments)


def _resume(arguments: Mapping[str, object], adapters: Mapping[str, Adapter]) -> int:
    contradictions = [name for name in [*DEFAULTS, "output", "dry_run"] if arguments[name]]
    if contradictions:
        flags = ", ".join("--" + name.replace("_", "-") for name in contradictions)
        step = f"Leave out {flags}: the comparison keeps what it was started with."
        raise UsageError([Problem("--resume", arguments["resume"], "no other request beside it", step)])
    opened = store.open_folder(Path(str(arguments["resume"])))
    gone = sorted({job.adapter for job in opened.plan.jobs} - set(adapters))
    if gone:
        raise UsageError([Problem("--resume", ", ".join(gone), f"adapters that there are: {', '.join(adapters)}")])
    return _run(opened, adapters, arguments)


def _run(opened: Store, adapters: Mapping[str, Adapter], arguments: Mapping[str, object]) -> int:
    """Run, and write the report whatever ends the running."""
    with store.locked(opened.folder):
        shown = progress.choose(bool(arguments["quiet"]))
        for warning in opened.warnings:
            shown.note(warning)
        interrupted = False
        try:
            Runner(opened, adapters, shown, bool(arguments["retry_failed"])).run()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            shown.close()
        _report(opened, interrupted)
    if interrupted:
        return 130
    return 0 if any(record.done for record in opened.records.values()) else 1


def _report(opened: Store, interrupted: bool) -> None:
    from dlperf import report

    comparison = opened.comparison
    if interrupted:
        print(f"Interrupted. Go on with: python -m dlperf.compare --resume {opened.folder}", flush=True)
    report.write(comparison, opened.folder)
    print(summary(comparison))
    print(f"Report: {opened.folder / 'report.md'} and {opened.folder / 'report.html'}")


def summary(comparison: Comparison) -> str:
    """The figures in a few plain lines, for the end of the command."""
    from dlperf.figures import standings, summaries

    lines = []
    obstacles = standings.obstacles(comparison)
    several = any(job.world_size > 1 for job in comparison.jobs)
    for job in comparison.jobs:
        row = summaries.summarize(job, comparison.records)
        size = f" {job.nnodes}n{job.nproc_per_node}d" if several else ""
        what = f"{job.model} {job.precision_asked:<5} {job.system}{size}"
        if row.throughput:
            remarks = [f"median of {row.throughput.n}"] + ([f"{len(row.failed)} failed"] if row.failed else [])
            remarks += ["not comparable"] if job.id in obstacles else ["upstream"] if job.upstream else []
            unit = models.FAMILIES[job.family].RATE_UNIT
            lines.append(f"{what:<40} {row.throughput.median:>9.4g} {unit} ({', '.join(remarks)})")
        elif row.failed and row.failed[-1].failure:
            lines.append(f"{what:<40} {row.failed[-1].failure.kind}: {row.failed[-1].failure.message}")
        else:
            lines.append(f"{what:<40} not run")
    for skip in comparison.skips:
        lines.append(f"{skip.model} {skip.precision_asked:<5} {skip.system:<30} {skip.status}: {skip.why}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
