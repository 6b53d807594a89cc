"""What --dry-run prints: the plan, what it will take, and commands."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import dlperf.adapters
import dlperf.models
from dlperf import shell
from dlperf.catalog.adapter import Adapter
from dlperf.comparison import estimate
from dlperf.comparison.estimate import Estimate
from dlperf.envs import indexes
from dlperf.envs.environment import Environment
from dlperf.envs.target import from_here
from dlperf.errors import RunError
from dlperf.planning import plan
from dlperf.planning.plan import Plan
from dlperf.planning.spec import FIRST_LOOK, Spec
from dlperf.proof import certify
from dlperf.schema import Job, run_folder
from dlperf.systems import kinds as systems
from dlperf.systems.system import System
from dlperf.words import columns

#: what --dry-run may be: the plan alone, with the command of each row, and a script of all
PLAN, ROWS, FULL = FORMS = ("plan", "rows", "full")


def text(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path, form: str = ROWS) -> str:
    """form: one of FORMS. The plan and what it will take; with ROWS also the command of each row's first run, verbatim,
    once for rows that have the same. FULL: every command that a comparison would run, as a shell script that does the
    same by hand. Nothing is run or made."""
    runs = plan.order(planned, spec.protocol.repeats, spec.seed)
    expected = estimate.expected(spec, [job for _, job in runs], adapters)
    lines = [f"# {line}".rstrip() for line in _plan(spec, planned, expected, adapters, folder)]
    if form == FULL:
        lines += [*_first(spec, planned, adapters, folder)]
    if spec.largest_batch:
        sizes = ", ".join(f"{job.id} from {job.batch_size} on" for job in planned.jobs if not job.duplicate_of)
        lines += ["", f"# first, in {folder / 'probes'}, a process for each batch size that is tried: {sizes};"]
        lines += ["# the runs that follow have the largest that runs"]
    if form == ROWS:
        lines += _commands(spec, planned, adapters, folder)
    if form == FULL:
        for repeat, job in runs:
            if not spec.until or repeat < FIRST_LOOK:
                lines += ["", *_run(repeat, job, spec, adapters, folder)]
    if spec.until:
        lines += ["", f"# further repeats, the same in folders of their own, until ratios are within {spec.until:.2%}"]
    if form == FULL:
        return "\n".join([*lines, "", *_last(spec, folder)])
    lines += ["", "# --dry-run=full: with environments, proofs, all repeats and what each is asked for (job.json)"]
    return "\n".join(lines + (["# --dry-run=plan: without commands"] if form == ROWS else []))


def _plan(
    spec: Spec, planned: Plan, expected: Estimate, adapters: Mapping[str, Adapter], folder: Path
) -> Iterator[str]:
    yield from _table(spec, planned, expected, adapters).splitlines()
    yield ""
    yield from (f"not run: {s.model} {s.precision_asked} {s.system}: {s.status}: {s.why}" for s in planned.skips)
    yield from estimate.text(expected)
    yield f"In {folder}"


def _table(spec: Spec, planned: Plan, expected: Estimate, adapters: Mapping[str, Adapter]) -> str:
    """The rows, of each what a run comes to."""
    protocol = spec.protocol
    steps = f"{protocol.warmup_steps} + {protocol.windows} x {protocol.steps_per_window}"
    lines = [("row", "devices", "batch", "steps", "runs", "environment", "about")]
    for job in planned.jobs:
        repeats = job.runs(protocol.repeats)
        environment = job.image or f"{job.adapter} {job.environment}"
        if (job.adapter, job.environment) in expected.to_make:
            size = adapters[job.adapter].environments[job.environment].gigabytes
            environment += f" (to make: {f'{size:g} GB' if size else 'of unknown size'})"
        took = estimate.about(repeats * expected.each[job.id]) if job.id in expected.each else "?"
        lines.append((job.id, job.size, str(job.batch_size), steps, str(repeats), environment, took))
    return columns(lines)


def _first(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path) -> Iterator[str]:
    """Environments, the code that runs, and proofs."""
    jobs = {f"{job.adapter} {job.image or job.environment}": job for job in planned.jobs}
    environments = environment_commands(spec, planned, adapters)
    if environments and spec.env == "venv":
        yield from ("", indexes.IN_SHELL.format(python=shell.quote(from_here(sys.executable))))
    for name, commands in environments.items():
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


def _last(spec: Spec, folder: Path) -> Iterator[str]:
    """How to go on: what is run by hand is in no comparison, as nobody took its time or looked at its end."""
    place = shell.quote(folder / "request.json")
    yield "# These runs are in no comparison, so `dlperf report` and --resume do not know them; what each did is in its"
    yield "# events.rank0.jsonl. The request makes the same rows as a comparison, with proofs and a report:"
    yield f"#   python -m dlperf.compare --spec {place} --output NEW"
    request = json.dumps({"spec": dataclasses.asdict(spec)}, indent=1)
    yield from (f"mkdir -p {shell.quote(folder)}", f"cat > {place} <<'END OF request.json'", request)
    yield "END OF request.json"


def _commands(spec: Spec, planned: Plan, adapters: Mapping[str, Adapter], folder: Path) -> Iterator[str]:
    """The script of each row's first run; of rows whose scripts differ in their names alone the first one's."""
    alike: dict[str, list[Job]] = {}
    for job in planned.jobs:
        said = _script(0, job, spec, adapters)
        alike.setdefault((said or "nothing is run").replace(job.id, "\0"), []).append(job)
    for said, (job, *others) in alike.items():
        place = folder / run_folder(job, 0)
        runs = "\n" in said
        yield ""
        yield f"# {place / 'launch.sh'}" if runs else f"# {place}: {said}".replace("\0", job.id)
        yield from (f"# {'the same' if runs else said}: {other.id}".replace("\0", other.id) for other in others)
        if runs:
            yield said.replace("\0", job.id).rstrip()


def _script(repeat: int, job: Job, spec: Spec, adapters: Mapping[str, Adapter]) -> str:
    """Of a run; one line where there is none, which says why, or nothing of what is not run at all."""
    environment = _planned(spec, job, adapters)
    if isinstance(environment, RunError):
        return f"not run: {environment}"
    return _system(job, adapters).script(adapters[job.adapter], job, spec, repeat, environment)


def _run(repeat: int, job: Job, spec: Spec, adapters: Mapping[str, Adapter], folder: Path) -> Iterator[str]:
    place, script = folder / run_folder(job, repeat), _script(repeat, job, spec, adapters)
    if "\n" in script:
        yield from _by_hand(place, _system(job, adapters).request(adapters[job.adapter], job, spec, repeat), script)
    else:
        yield f"# {place}: {script or 'nothing is run'}"


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
