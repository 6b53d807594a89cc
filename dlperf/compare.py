"""Train the same models in several deep-learning frameworks and report who was faster, by how much, and how sure."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

if platform.system() != "Linux":  # first of all: the modules below do not even import on Windows
    places = "a Linux container or virtual machine (on Windows: WSL 2)"
    sys.exit(f"dlperf needs Linux; on macOS or Windows run it in {places}")

from dlperf import __version__, estimate, launchers, models, runner, store
from dlperf import progress as progress_
from dlperf.catalog import reader
from dlperf.catalog.adapter import Adapter
from dlperf.envs import kinds
from dlperf.envs.environment import Environment
from dlperf.errors import Problem, RunError, UsageError, did_you_mean, exit_code
from dlperf.launchers.containers import ARGUMENTS, ENGINES
from dlperf.models.images import FORMATS
from dlperf.planning import plan
from dlperf.planning.checks import from_arguments
from dlperf.planning.plan import Plan
from dlperf.planning.spec import AUTO, Spec, without_amp
from dlperf.proof import asked, certify
from dlperf.schema import Comparison, Job
from dlperf.upstream import setup

#: flags that make the spec, with the value that stands for "not given"
DEFAULTS: dict[str, object] = {
    "model": "resnet50,bert",
    "precision": "fp32",
    "frameworks": "all",
    "batch_size": None,
    "global_batch_size": None,
    "device": "auto",
    "env": "venv",
    "image": None,
    "container_arg": None,
    "protocol": None,
    "warmup_steps": None,
    "windows": None,
    "steps_per_window": None,
    "repeats": None,
    "compile": None,
    "set": None,
    "data": "synthetic",
    "input": None,
    "format": None,
    "timeout": None,
    "seed": None,
    "threads": None,
    "no_verify": None,
    "nnodes": None,
    "nproc_per_node": None,
    "hosts": None,
    "hostfile": None,
    "launcher": None,
    "launcher_arg": None,
    "predict": None,
    "source": None,
    "emulate_cpu": None,
    "allow_reference": None,
}


class Parser(argparse.ArgumentParser):
    """argparse, with a suggestion for a flag that does not exist."""

    def error(self, message: str) -> NoReturn:
        flags = [flag for action in self._actions for flag in action.option_strings]
        unknown = [word for word in message.split() if word.startswith("--")] if "unrecognized" in message else []
        hints = [did_you_mean(word.partition("=")[0], flags) for word in unknown]
        self.exit(2, f"{self.prog}: {message}. {' '.join(filter(None, hints))}".rstrip(". ") + ".\n")


def parser() -> argparse.ArgumentParser:
    """The command line. Values stay text here; dlperf.planning.checks checks them all at once."""
    made = Parser(prog="python -m dlperf.compare", description=__doc__, allow_abbrev=False)
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
    add("--version", action="version", version=f"dlperf {__version__}")
    return made


def add_environment(add: Callable[..., object]) -> None:
    """The flags that say what a framework's processes live in."""
    engines = ", ".join(ENGINES)
    add("--env", metavar="E", help=f"venv (default: made on first use), current (this interpreter), {engines}")
    add("--image", metavar="I,...", help="for containers: REF, ngc or FRAMEWORK=REF; default: python -m dlperf.images")
    arguments = ", ".join(ARGUMENTS)
    add("--container-arg", action="append", metavar="KEY=VALUE", help=f"for containers: {arguments}")


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
        print(("# " if arguments["dry_run"] else "") + chosen_precision(spec, adapters), flush=True)
    planned = plan.make(spec, adapters)
    folder = Path(str(arguments["output"] or f"runs/{datetime.now():%Y%m%d-%H%M%S}"))
    if arguments["dry_run"]:
        print(dry_run(spec, planned, adapters, folder.absolute()))
        return 0
    from dlperf import machine

    created = datetime.now(UTC).isoformat(timespec="seconds")
    commands = environment_commands(spec, planned, adapters)
    made = store.create(folder, spec, planned, commands, machine.describe(), created, __version__)
    return _run(made, adapters, arguments)


def chosen_precision(spec: Spec, adapters: Mapping[str, Adapter]) -> str:
    """What --precision auto chose, and why, in one line."""
    if spec.precisions == ("amp",):
        return "Comparing in amp (mixed precision)."
    found = None if spec.instructions is None else frozenset(spec.instructions)
    families = {models.FAMILY_OF[model] for model in spec.models}
    without = without_amp([adapters[name] for name in spec.frameworks], families, spec.device, found)
    titles = ", ".join(one.title for one in without)
    return (
        f"Comparing in fp32: on this CPU {titles} have no usable kernels for amp. --precision amp compares the others."
    )


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


def _run(opened: store.Store, adapters: Mapping[str, Adapter], arguments: Mapping[str, object]) -> int:
    """Run, and write the report whatever ends the running."""
    with store.locked(opened.folder):
        shown = progress_.choose(bool(arguments["quiet"]))
        for warning in opened.warnings:
            shown.note(warning)
        interrupted = False
        try:
            runner.Runner(opened, adapters, shown, bool(arguments["retry_failed"])).run()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            shown.close()
        _report(opened, interrupted)
    if interrupted:
        return 130
    return 0 if any(record.done for record in opened.records.values()) else 1


def _report(opened: store.Store, interrupted: bool) -> None:
    from dlperf import report

    comparison = opened.comparison
    if interrupted:
        print(f"Interrupted. Go on with: python -m dlperf.compare --resume {opened.folder}", flush=True)
    report.write(comparison, opened.folder)
    print(summary(comparison))
    print(f"Report: {opened.folder / 'report.md'} and {opened.folder / 'report.html'}")


def summary(comparison: Comparison) -> str:
    """The figures in a few plain lines, for the end of the command."""
    from dlperf import models
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


def dry_run(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path) -> str:
    """The plan, what it will take, and every command, verbatim, as text. Nothing is run or made."""
    expected = estimate.of(spec, planned.jobs * spec.protocol.repeats, adapters)
    lines = [f"# {line}" for line in [*estimate.text(expected), f"In {folder}"]]
    lines += [f"# not run: {s.model} {s.precision_asked} {s.system}: {s.status}: {s.why}" for s in planned.skips]
    for name, commands in environment_commands(spec, planned, adapters).items():
        lines += ["", f"# environment of {name}, unless it is there already", commands]
    if spec.verify:
        wanted = {one.name: one for job in planned.jobs if not job.upstream for one in asked.needed(job)}
        for name, one in wanted.items():
            environment = _planned(spec, one.job, adapters)
            head = f"# {folder / 'proofs' / name / 'run' / 'launch.sh'}, unless there is a valid certificate"
            lines += [
                "",
                head,
                certify.script(
                    one, environment, spec.threads, spec.hosts, spec.launcher_arguments, spec.container_arguments
                ).rstrip(),
            ]
    for repeat, job in plan.order(planned, spec.protocol.repeats, spec.seed):
        script = runner.script(spec, job, repeat, _planned(spec, job, adapters), adapters[job.adapter]).rstrip()
        lines += ["", f"# {folder / runner.run_folder(job, repeat) / 'launch.sh'}", script]
    return "\n".join(lines)


def environment_commands(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter]) -> dict[str, str]:
    """How each environment would be made, by "adapter environment"; nothing for --env current."""
    jobs = {f"{job.adapter} {job.environment}": job for job in planned.jobs}
    if spec.env == "current":
        jobs = {key: job for key, job in jobs.items() if job.upstream}
    return {
        key: setup.get(adapters[job.adapter], job, spec)
        if job.upstream
        else _commands(spec, adapters[job.adapter], job.environment)
        for key, job in jobs.items()
    }


def _planned(spec: Spec, job: Job, adapters: Mapping[str, Adapter]) -> Environment:
    adapter = adapters[job.adapter]
    if job.upstream:
        return setup.planned(adapter, job, spec)
    return runner.on_cpu(kinds.planned(adapter, job.environment, spec.env, spec.images), spec)


def _commands(spec: Spec, adapter: Adapter, key: str) -> str:
    try:
        return "\n".join(kinds.commands(adapter, key, spec.env, spec.images))
    except RunError as error:
        return f"# {error}"


if __name__ == "__main__":
    sys.exit(main())
