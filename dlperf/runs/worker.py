"""How our worker is started: what a launcher is told of a run, and the content of job.json."""

from __future__ import annotations

import os
from pathlib import Path

from dlperf.envs.environment import Environment
from dlperf.launchers import Launch
from dlperf.planning.spec import Spec
from dlperf.schema import Job

#: where the bundle is, seen from a run's folder, which is three folders below its comparison's
CODE = Path("../../../code")


def launch(job: Job, environment: Environment, spec: Spec, name: str, title: str) -> Launch:
    """What a launcher is told. spec: its threads are those of each rank. name, title: see Launch."""
    return Launch(
        title=title,
        name=name,
        python=environment.python,
        code=CODE,
        device=job.device,
        threads=spec.threads,
        variables=environment.variables,
        nnodes=job.nnodes,
        nproc_per_node=job.nproc_per_node,
        hosts=spec.hosts[: job.nnodes],
        arguments=spec.launcher_arguments,
        container=environment.container(job.device, spec.container_arguments, data_of(job)),
        emulated=environment.emulated,
        step=spec.allocation not in ("", "run"),
        servers=job.servers,
        bandwidth=job.bandwidth,
        latency=job.latency,
    )


def request(job: Job, spec: Spec, **more: object) -> dict[str, object]:
    """The content of job.json, see dlperf.adapters.api.Job. more: what a run asks of the job besides."""
    asked = {
        "model": job.model,
        "device": job.device,
        "precision": job.precision,
        "batch_size": job.batch_size,
        "seed": spec.seed,
        "threads": spec.threads,
        "options": dict(job.options),
        **({"servers": job.servers, "ps_mode": job.ps_mode} if job.servers else {}),
    }
    return {"adapter": job.adapter, "job": {**asked, **more}}


def data_of(job: Job) -> str | None:
    """The absolute path of the data folder; None for synthetic input."""
    return os.path.abspath(job.data_dir) if job.data_dir else None
