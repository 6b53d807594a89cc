"""What --dry-run prints: the plan, what it will take, and every command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlperf.catalog.adapter import Adapter
from dlperf.comparison import estimate
from dlperf.envs.environment import Environment
from dlperf.errors import RunError
from dlperf.planning import plan
from dlperf.planning.plan import Plan
from dlperf.planning.spec import FIRST_LOOK, Spec
from dlperf.proof import certify
from dlperf.schema import Job, run_folder
from dlperf.systems import kinds as systems
from dlperf.systems.system import System


def text(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path) -> str:
    """The plan, what it will take, and every command, verbatim, as text. Nothing is run or made."""
    runs = plan.order(planned, spec.protocol.repeats, spec.seed)
    expected = estimate.expected(spec, [job for _, job in runs], adapters)
    if spec.until:
        runs = [(repeat, job) for repeat, job in runs if repeat < FIRST_LOOK]
    lines = [f"# {line}" for line in [*estimate.text(expected), f"In {folder}"]]
    lines += [f"# not run: {s.model} {s.precision_asked} {s.system}: {s.status}: {s.why}" for s in planned.skips]
    for name, commands in environment_commands(spec, planned, adapters).items():
        lines += ["", f"# environment of {name}, unless it is there already", commands]
    if spec.verify:
        for one in estimate.proofs(planned.jobs, adapters):
            environment = _planned(spec, one.job, adapters)
            if isinstance(environment, RunError):  # its row says so
                continue
            head = f"# {folder / 'proofs' / one.name / 'run' / 'launch.sh'}, unless there is a valid certificate"
            lines += ["", head, certify.script(one, environment, spec).rstrip()]
    if spec.largest_batch:
        sizes = ", ".join(f"{job.id} from {job.batch_size} on" for job in planned.jobs if not job.duplicate_of)
        lines += ["", f"# first, in {folder / 'probes'}, a process for each batch size that is tried: {sizes};"]
        lines += ["# the runs that follow have the largest that runs"]
    for repeat, job in runs:
        place = folder / run_folder(job, repeat)
        environment = _planned(spec, job, adapters)
        if isinstance(environment, RunError):
            lines += ["", f"# {place}: not run: {environment}"]
            continue
        script = _system(job, adapters).script(adapters[job.adapter], job, spec, repeat, environment)
        lines += ["", f"# {place / 'launch.sh'}", script.rstrip()] if script else ["", f"# {place}: nothing is run"]
    if spec.until:
        lines += ["", f"# further repeats, the same in folders of their own, until ratios are within {spec.until:.2%}"]
    return "\n".join(lines)


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
