"""What --dry-run prints: the plan, what it will take, and every command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlperf.catalog.adapter import Adapter
from dlperf.comparison import estimate, runner
from dlperf.envs import kinds
from dlperf.envs.environment import Environment
from dlperf.errors import RunError
from dlperf.planning import plan
from dlperf.planning.plan import Plan
from dlperf.planning.spec import Spec
from dlperf.proof import asked, certify
from dlperf.schema import Job
from dlperf.upstream import setup


def text(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path) -> str:
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
