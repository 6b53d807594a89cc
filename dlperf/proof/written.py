"""What a measured run wrote down of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlperf import models
from dlperf.adapters.api import samples
from dlperf.proof.measured import Marks
from dlperf.runs import events
from dlperf.schema import Job
from dlperf.stored import arrays, vectors

EVENTS, STATES = "events.rank0.jsonl", "states.npz"


def marks(run: Path, job: Job, finite: bool = False) -> Marks:
    """What a run of a job wrote down. OSError or one of DAMAGED where that is not whole."""
    stream = events.read(run / EVENTS)
    windows = [(one.seconds, one.read_seconds) for one in stream.windows if one.read_seconds is not None]
    found, moments = states(run / STATES, job, finite)
    # on servers that take pushes as they come the second step may train on what the first did
    losses = {step: loss for step, loss in stream.losses.items() if step > 1 or job.ps_mode != "async"}
    return Marks(losses, found, windows, moments)


def states(
    path: Path, job: Job, finite: bool = False
) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, dict[str, Any]]]]:
    """Samples of each of the model's settled tensors after so many steps, the start among them, and of Adam's moments.
    OSError or one of DAMAGED where the file holds anything else than those of all tensors."""
    found: dict[int, dict[str, Any]] = {0: {}}
    moments: dict[int, dict[str, dict[str, Any]]] = {}
    most = samples(job.model)
    for key, values in arrays(path, most).items():
        steps, _, tensor = key.partition("/")
        moment, _, name = tensor.rpartition("/")
        state = (
            moments.setdefault(int(steps), {"mean": {}, "square": {}})[moment]
            if moment
            else found.setdefault(int(steps), {})
        )
        state[name] = values
    parameters = models.family(job.model).parameters(models.config(job.model))
    sizes = {one.name: min(one.size, most) for one in parameters}
    of_trained = {one.name: sizes[one.name] for one in parameters if one.trained}
    for state in found.values():
        vectors(state, sizes, finite)
    for several in moments.values():
        for state in several.values():
            vectors(state, of_trained, finite)
    for state in (*found.values(), *(state for several in moments.values() for state in several.values())):
        for one in parameters:
            if not one.settled:
                state.pop(one.name, None)
    return found, moments
