"""What --dry-run prints: the plan, what it will take, and commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import dlperf.adapters
import dlperf.models
from dlperf import shell
from dlperf.catalog.adapter import Adapter
from dlperf.comparison import estimate
from dlperf.comparison.estimate import Estimate
from dlperf.envs.environment import Environment
from dlperf.errors import RunError
from dlperf.planning import plan
from dlperf.planning.plan import Plan
from dlperf.planning.spec import FIRST_LOOK, Spec
from dlperf.proof import certify
from dlperf.schema import Job, run_folder
from dlperf.systems import kinds as systems
from dlperf.systems.system import System
from dlperf.words import columns


def text(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path, full: bool = False) -> str:
    """The plan, what it will take, and the command of each row's first run, verbatim. full: every command that a
    comparison would run, as a shell script that does the same by hand. Nothing is run or made."""
    runs = plan.order(planned, spec.protocol.repeats, spec.seed)
    expected = estimate.expected(spec, [job for _, job in runs], adapters)
    lines = [f"# {line}" for line in [*estimate.text(expected), f"In {folder}"]]
    lines += [f"# {line}".rstrip() for line in ("", *_table(spec, planned, expected).splitlines(), "")]
    lines += [f"# not run: {s.model} {s.precision_asked} {s.system}: {s.status}: {s.why}" for s in planned.skips]
    if full:
        lines += [*_first(spec, planned, adapters, folder)]
    if spec.largest_batch:
        sizes = ", ".join(f"{job.id} from {job.batch_size} on" for job in planned.jobs if not job.duplicate_of)
        lines += ["", f"# first, in {folder / 'probes'}, a process for each batch size that is tried: {sizes};"]
        lines += ["# the runs that follow have the largest that runs"]
    if spec.until:
        runs = [(repeat, job) for repeat, job in runs if repeat < FIRST_LOOK]
    for repeat, job in runs if full else [(0, job) for job in planned.jobs]:
        lines += ["", *_run(repeat, job, spec, adapters, folder, full)]
    if spec.until:
        lines += ["", f"# further repeats, the same in folders of their own, until ratios are within {spec.until:.2%}"]
    if not full:
        lines += ["", "# --dry-run=full: with environments, proofs, all repeats and what each is asked for (job.json)"]
    return "\n".join(lines)


def _table(spec: Spec, planned: Plan, expected: Estimate) -> str:
    """The rows, of each what a run comes to."""
    protocol = spec.protocol
    steps = f"{protocol.warmup_steps} + {protocol.windows} x {protocol.steps_per_window}"
    lines = [("row", "devices", "batch", "steps", "runs", "environment", "about")]
    for job in planned.jobs:
        repeats = job.runs(protocol.repeats)
        to_make = (job.adapter, job.environment) in expected.to_make
        environment = job.image or f"{job.adapter} {job.environment}{' (to make)' if to_make else ''}"
        took = estimate.about(repeats * expected.each[job.id]) if job.id in expected.each else "?"
        lines.append((job.id, job.size, str(job.batch_size), steps, str(repeats), environment, took))
    return columns(lines)


def _first(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path) -> Iterator[str]:
    """Environments, the code that runs, and proofs."""
    jobs = {f"{job.adapter} {job.image or job.environment}": job for job in planned.jobs}
    for name, commands in environment_commands(spec, planned, adapters).items():
        made = _planned(spec, jobs[name], adapters)
        place = None if isinstance(made, RunError) else made.folder
        if place:  # a step that fails leaves no environment that looks whole
            yield from ("", f"# environment of {name}, unless it is there already", f"[ -e {shell.quote(place)} ] || (")
            yield from ("set -e", commands, ") || exit")
        else:
            yield from ("", f"# environment of {name}", commands)
    code = shell.quote(folder / "code" / "dlperf")
    side = " ".join(shell.quote(Path(str(part.__file__)).parent) for part in (dlperf.models, dlperf.adapters))
    yield from ("", f"mkdir -p {code}", f"cp {shell.quote(Path(dlperf.__file__))} {code}", f"cp -r {side} {code}")
    for one in estimate.proofs(planned.jobs, adapters) if spec.verify else ():
        environment = _planned(spec, one.job, adapters)
        if isinstance(environment, RunError):  # its row says so
            continue
        yield from ("", "# unless there is a valid certificate")
        yield from _by_hand(
            folder / "proofs" / one.name / "run", certify.request(one, spec), certify.script(one, environment, spec)
        )


def _run(repeat: int, job: Job, spec: Spec, adapters: Mapping[str, Adapter], folder: Path, full: bool) -> Iterator[str]:
    place = folder / run_folder(job, repeat)
    environment = _planned(spec, job, adapters)
    if isinstance(environment, RunError):
        yield f"# {place}: not run: {environment}"
        return
    system, adapter = _system(job, adapters), adapters[job.adapter]
    script = system.script(adapter, job, spec, repeat, environment)
    if not script:
        yield f"# {place}: nothing is run"
    elif full:
        yield from _by_hand(place, system.request(adapter, job, spec, repeat), script)
    else:
        yield from (f"# {place / 'launch.sh'}", script.rstrip())


def _by_hand(place: Path, asked: Mapping[str, object], script: str) -> Iterator[str]:
    """Commands that make a run's folder and run it there."""
    yield f"mkdir -p {shell.quote(place)}"
    for name, content in (("job.json", json.dumps(asked, indent=1)), ("launch.sh", script.rstrip())):
        yield from (f"cat > {shell.quote(place / name)} <<'END OF {name}'", content, f"END OF {name}")
    yield f"sh {shell.quote(place / 'launch.sh')}"


def environment_commands(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter]) -> dict[str, str]:
    """How each environment would be made, by adapter and its key, or image, where there is something to make."""
    jobs = {f"{job.adapter} {job.image or job.environment}": job for job in planned.jobs}
    found = {key: _system(job, adapters).commands(adapters[job.adapter], job, spec) for key, job in jobs.items()}
    return {key: commands for key, commands in found.items() if commands}


def _planned(spec: Spec, job: Job, adapters: Mapping[str, Adapter]) -> Environment | RunError:
    try:
        return _system(job, adapters).planned(adapters[job.adapter], job, spec)
    except RunError as error:
        return error


def _system(job: Job, adapters: Mapping[str, Adapter]) -> System:
    return systems.of(adapters[job.adapter])
