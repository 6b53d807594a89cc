"""The published trajectories, which take part in every comparison of their model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dlperf.proof.asked import compressed, of_ranks, own_statistics
from dlperf.proof.certificates import SKETCHES, place
from dlperf.proof.judge import REFERENCE, Evidence, work_options
from dlperf.proof.low import SLACK
from dlperf.schema import Certificate, Trajectory
from dlperf.stored import arrays, trajectory_from

#: where the published trajectories are
REFERENCES = Path(__file__).parent / "reference"
#: and what low precision does to the network written out in NumPy
MOVED = REFERENCES / "low_precision.json"


def reference(like: Trajectory) -> Evidence | None:
    """The published float64 trajectory of the same job, where there is one: it takes part in every comparison.

    None for another model, other options that change the work, or where dlperf.models has changed since.
    """
    name = _published_name(like)
    if not (REFERENCES / f"{name}.json").exists():
        return None
    trajectory = published(name)
    if _asked(trajectory) != _asked(like):
        return None
    return Evidence(trajectory, arrays(REFERENCES / f"{name}.npz"))


def moved(like: Trajectory) -> Mapping[str, float] | None:
    """What a low precision did to the network written out in NumPy in the same job: relative errors of its losses,
    logits, gradients, changes and statistics, each as one vector, as in `Bound.found`. None where it is not published.
    """
    found = _moved().get(f"{like.model} {like.precision}", {})
    return found["errors"] if _asked(like).items() <= found.items() and like.ranks == 1 else None


def _asked(of: Trajectory) -> dict[str, Any]:
    """What two trajectories must have in common to be compared."""
    same = {"definition": of.definition, "batch_size": of.batch_size, "steps": of.steps, "seed": of.seed}
    return {**same, "options": work_options(of)}


def _moved() -> dict[str, Any]:
    return dict(json.loads(MOVED.read_text(encoding="utf-8"))) if MOVED.exists() else {}


def publish_moved(certificate: Certificate) -> None:
    """Make what low precision did in a trajectory of `numpy` what others are held to."""
    made = certificate.trajectory
    errors = {bound.what: float(f"{bound.found:.3g}") for bound in certificate.bounds if bound.what in SLACK}
    known = {**_moved(), f"{made.model} {made.precision}": {**_asked(made), "errors": errors}}
    MOVED.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


def _published_name(trajectory: Trajectory) -> str:
    """Of its file. Several ranks compute what one does, but for a model that normalises over each rank's own batch, and
    where they compress gradients: "resnet50_check_2ranks_dgc"."""
    kind = compressed(trajectory) if trajectory.ranks > 1 else ""
    apart = kind or own_statistics(trajectory.model)
    ranks = of_ranks("_{}ranks", trajectory.ranks) if apart else ""
    return trajectory.model + ranks + (f"_{kind}" if kind else "")


def published(name: str) -> Trajectory:
    """By the name of its file: "bert_base_check", "resnet50_check_2ranks"."""
    return trajectory_from(json.loads((REFERENCES / f"{name}.json").read_text(encoding="utf-8")))


def publish(certificate: Certificate, folder: Path = REFERENCES) -> None:
    """Make a certificate's trajectory the published one of its model: without what says where it was made. Of low
    precision, what it moved."""
    trajectory = certificate.trajectory
    if certificate.bounds:
        publish_moved(certificate)
        return
    public = replace(
        trajectory,
        system=REFERENCE,
        title="published reference",
        options=work_options(trajectory),
        environment={},
        command="",
        code="",
        step_seconds=(),
        read_seconds=(),
    )
    folder.mkdir(exist_ok=True)
    name = _published_name(trajectory)
    if name == trajectory.model and trajectory.ranks > 1:
        return  # the same as one rank's
    (folder / f"{name}.json").write_text(json.dumps(asdict(public), indent=1) + "\n", encoding="utf-8")
    shutil.copy(place(trajectory) / SKETCHES, folder / f"{name}.npz")
