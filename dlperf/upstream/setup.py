"""What third-party scripts need: a checkout, and an image or an environment."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from dlperf.adapters import gpu
from dlperf.catalog import checkout, locks
from dlperf.catalog.adapter import Adapter
from dlperf.catalog.checkout import FOLDER
from dlperf.envs import kinds
from dlperf.envs.environment import Environment, Note, none
from dlperf.errors import RunError
from dlperf.launchers.containers import ENGINES
from dlperf.planning.spec import Spec
from dlperf.schema import Job


def environment(adapter: Adapter, job: Job, spec: Spec, folder: Path, note: Note) -> Environment:
    """The script, copied into a comparison's folder, and what runs it: its image, or an environment.

    RunError (kind "environment") says what is missing and how to get it.
    """
    assert adapter.source is not None
    contained = bool(job.image)
    if not contained and spec.env in ENGINES:
        raise RunError("environment", f"{adapter.name} runs in no image: leave out --env {spec.env}")
    given = spec.sources.get(adapter.name)
    target = folder / FOLDER / adapter.name
    if given and not target.exists():
        # it may have changed since the comparison was asked for
        wrong = checkout.problem(adapter, Path(given), spec.models)
        if wrong:
            raise RunError("environment", str(wrong))
        checkout.copy(adapter, Path(given), target, spec.models)
    if contained:
        made = _found(planned(adapter, job, spec), job)
    elif spec.env != "current" and job.environment not in adapter.environments:
        step = f"make one as {adapter.homepage} tells, and run dlperf in it with --env current"
        raise RunError("environment", f"{adapter.name} has no environment of ours on {job.device}: {step}")
    if not given and (not contained or any(checkout.edited(adapter, job.model))):
        step = f"{adapter.source.checkout}; then --source {adapter.name}=DIR"
        raise RunError("environment", f"{adapter.name} needs its script: {step}")
    theirs = adapter.scripts[job.model].data
    if not contained and job.input != "synthetic" and not job.data_dir and not (theirs and Path(theirs).exists()):
        choices = adapter.options_of(job.family)
        other = ", or --set input=synthetic" if "input" in choices and choices["input"].accepts("synthetic") else ""
        where = f" (nothing is in {theirs})" if theirs else ""
        raise RunError("environment", f"{adapter.name} needs its data: --data DIR{other}{where}")
    return made if contained else kinds.ensure(adapter, job.environment, spec.env, note)


def planned(adapter: Adapter, job: Job, spec: Spec) -> Environment:
    """What `environment` would return. Runs nothing."""
    if job.image:
        return replace(none(adapter.name, job.environment), kind=_engine(spec), image=job.image)
    if spec.env == "current" or job.environment in adapter.environments:
        return kinds.planned(adapter, job.environment, spec.env)
    return none(adapter.name, job.environment)


def _engine(spec: Spec) -> str:
    """What containers of third-party scripts are started with."""
    return spec.env if spec.env in ENGINES else "docker"


def commands_to_get(adapter: Adapter, job: Job, spec: Spec) -> str:
    """The commands that bring what a job needs, as text."""
    assert adapter.source is not None
    lines = [] if adapter.name in spec.sources else [adapter.source.checkout]
    if job.image:
        lines.append(f"{_engine(spec)} pull {job.image}")
    elif spec.env == "venv" and job.environment in adapter.environments:
        lines += kinds.commands(adapter, job.environment)
    return "\n".join(lines)


def _found(wanted: Environment, job: Job) -> Environment:
    """An image, with the digest that its engine knows it by."""
    engine, image = wanted.kind, wanted.image
    pull = f"image {image} is not here: {engine} pull {image}"
    if engine == "apptainer":
        raise RunError("environment", f"{job.adapter} runs as root in its image: choose --env docker or podman")
    try:
        words = [engine, "image", "inspect", "--format", "{{.Id}}", image]
        found = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError("environment", f"{pull} ({engine} cannot be run: {error})") from None
    if found.returncode:
        said = found.stderr.strip().splitlines()[-1:]
        raise RunError("environment", f"{pull} ({' '.join(said) or f'{engine} gives no reason'})")
    if job.device == "cuda" and not gpu.look().gpus:
        raise RunError("environment", f"{job.adapter} needs CUDA, and nvidia-smi finds no GPU here")
    return replace(wanted, digest=found.stdout.strip())


def versions(adapter: Adapter, environment: Environment) -> dict[str, str]:
    """Of the framework, where a lock says so."""
    if environment.folder is None:
        return {}
    pinned = locks.read(adapter.environments[environment.key].lock)
    return {one.name: one.version for one in pinned if one.name in adapter.distribution}
