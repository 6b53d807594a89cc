"""What of a third-party script holds for a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dlperf import models
from dlperf.catalog import checkout
from dlperf.catalog.adapter import Adapter
from dlperf.catalog.script import Part
from dlperf.schema import Job

BATCH_MEANS = {
    "device": "{samples} on each device",
    "node": "of all devices of a node",
    "global": "of all devices",
    "tokens": "tokens on each device",
}


def holds(part: Part, job: Job) -> bool:
    """Whether all conditions of `when` hold for a job."""
    facts = {
        **job.options,
        "device": job.device,
        "precision": job.precision,
        "ranks": "several" if job.world_size > 1 else "one",
        "nodes": "several" if job.nnodes > 1 else "one",
    }
    return all(facts.get(name) in values for name, values in part.when.items())


def declared(parts: Iterable[Part], job: Job) -> dict[str, str]:
    """The values of the parts that hold, later ones over earlier ones; {option} stands for an option's value."""
    found = {name: value for part in parts if holds(part, job) for name, value in part.values.items()}
    names = _Options(job.options)
    return {name: value.format_map(names) for name, value in found.items()}


class _Options(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "{" + name + "}"


def about(adapter: Adapter, job: Job) -> dict[str, str]:
    """What a reader must know of a row, see schema.ABOUT; nothing of a native one."""
    if adapter.source is None:
        return {}
    script = adapter.scripts[job.model]
    name = "/".join(adapter.source.repository.rstrip("/").split("/")[-2:])
    return {
        "script": f"{name} at {adapter.source.short}, {script.folder}",
        "image": adapter.image(job.device, job.options),
        "batch": BATCH_MEANS[script.batch].format(samples=models.family(job.model).SAMPLE),
        "estimator": script.log.estimator,
        "differs": "; ".join(part.text for part in script.differs if holds(part, job)),
        "edits": ", ".join(checkout.edited(adapter, job.model)),
    }
