"""The certificates in the user's cache folder.

One folder in `<cache>/certificates` for each system, model, precision, environment, code and processor:

    certificate.json   the trajectory, the last verdict on it, and a seal over both
    trajectory.npz     sketches of its tensors, see dlperf.adapters.trace

Its name ends in a digest of all that it depends on, so that a change of the adapter's code, of the model or of the
environment finds none. A file that does not fit its seal is refused, and made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dlperf import cache, models
from dlperf.adapters import variables
from dlperf.adapters.api import WIDTH
from dlperf.adapters.gpu import Gpu
from dlperf.envs.environment import Environment
from dlperf.models.parameters import initial
from dlperf.proof.asked import BATCH_SIZE, SEED, STEPS, Asked, of_ranks
from dlperf.proof.judge import Evidence
from dlperf.schema import Certificate, Trajectory
from dlperf.stored import certificate_from

CERTIFICATE, SKETCHES = "certificate.json", "trajectory.npz"
FROM_WORKER = "trajectory.rank0.npz"
#: of GPUs of other machines: what is proven there is never taken from the cache
UNKNOWN = "unknown"


def blank(one: Asked, environment: Environment, code: str, gpus: Sequence[Gpu] = (), cpu: str = "") -> Trajectory:
    """A trajectory as far as it is known before it is made. gpus: see Spec. cpu: see Trajectory."""
    job = one.job
    return Trajectory(
        system=job.system,
        adapter=job.adapter,
        title=job.title,
        of=job.model,
        model=one.model,
        family=job.family,
        device=job.device,
        precision=one.precision,
        batch_size=BATCH_SIZE,
        steps=STEPS,
        seed=SEED,
        options=dict(job.options),
        definition=definition(one.model),
        code=code,
        environment=environment.stored,
        ranks=one.ranks,
        gpu="; ".join(dict.fromkeys(each.about for each in gpus)) or ("" if job.device == "cpu" else UNKNOWN),
        cpu=cpu if job.device == "cpu" else "",
    )


def definition(model: str) -> str:
    """Digest of what a trajectory of this model starts from: sizes, optimizer, parameters, some weights, a batch."""
    family, config = models.family(model), models.config(model)
    parameters = family.parameters(config)
    total = hashlib.sha256(repr((WIDTH, STEPS, SEED, config, family.optimizer(BATCH_SIZE))).encode())
    total.update(repr(parameters).encode())
    # of those that start at random, if any do
    smallest = min(parameters, key=lambda one: (isinstance(one.init, str), one.size))
    total.update(initial(smallest, SEED).tobytes())
    for name, array in sorted(family.batch(config, BATCH_SIZE, SEED, 0).items()):
        total.update(name.encode() + array.tobytes())
    return total.hexdigest()


def place(trajectory: Trajectory) -> Path:
    """The folder of a certificate: its name says what it is of, its end is the digest of what it depends on. Variables
    are this process's; workers on other machines may have others of them."""
    t = trajectory
    asked = (
        t.adapter,
        t.model,
        t.device,
        t.precision,
        t.batch_size,
        t.steps,
        t.seed,
        sorted(t.options.items()),
        t.ranks,
    )
    made_of = (t.definition, t.code, t.environment["kind"], t.environment["digest"])
    parts = (asked, made_of, *filter(None, (t.gpu, t.cpu, variables.told())))
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return _folder() / f"{_label(t.adapter, t.model, t.device, t.precision, t.ranks)}-{key}"


def _folder() -> Path:
    return cache.folder() / "certificates"


def _label(adapter: str, model: str, device: str, precision: str, ranks: int) -> str:
    return f"{adapter}-{model}-{device}-{precision}{of_ranks('-{}ranks', ranks)}"


def kept(one: Asked) -> bool:
    """Whether the cache has a certificate like it, of whatever code, options and environment: a cheap guess, for
    estimates."""
    label = _label(one.job.adapter, one.model, one.job.device, one.precision, one.ranks)
    return any(_folder().glob(f"{label}-{'?' * 16}/{CERTIFICATE}"))


def keep(made: Evidence, run: Path) -> None:
    """Put a new trajectory into the cache, from the folder of its run: an interruption does not lose it."""
    if made.trajectory.failure or made.trajectory.gpu == UNKNOWN:
        return
    folder = place(made.trajectory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / SKETCHES, (run / FROM_WORKER).read_bytes())
        update(Certificate(made.trajectory, "unproven", "not compared with others yet"))
    except OSError:  # a cache that cannot be written costs time, nothing else
        shutil.rmtree(folder, ignore_errors=True)


def update(certificate: Certificate) -> None:
    """Write the verdict beside its trajectory, sealed, unless it is there already."""
    folder = place(certificate.trajectory)
    content = json.loads(json.dumps(asdict(certificate)))
    text = json.dumps({"seal": seal(content), "certificate": content}, indent=1) + "\n"
    try:
        if (folder / SKETCHES).exists() and not _same(folder / CERTIFICATE, text):
            _write(folder / CERTIFICATE, text.encode())
    except OSError:
        pass  # as in _keep


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8", errors="replace") == text


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    os.replace(aside, path)


def seal(content: Mapping[str, Any]) -> str:
    """SHA-256 of a certificate's content: a damaged or hand-edited one does not fit it."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read(folder: Path, blank: Trajectory) -> Evidence:
    """A cached trajectory. Raises, by what is wrong, where the files are not what was written."""
    found = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
    if found["seal"] != seal(found["certificate"]):
        raise ValueError("checksum mismatch: it was damaged or edited")
    trajectory = certificate_from(found["certificate"]).trajectory
    if place(trajectory) != folder:
        raise ValueError("it is of another system, environment or code than its folder's name says")
    if digest(folder / SKETCHES) != trajectory.sketches:
        raise ValueError(f"its {SKETCHES} was damaged or edited")
    # the labels of this comparison: the same options may have another name there
    return Evidence(
        replace(trajectory, system=blank.system, title=blank.title, of=blank.of), sketches(folder / SKETCHES)
    )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sketches(path: Path) -> dict[str, Any]:
    import numpy

    with numpy.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
