"""The certificates in the user's cache folder.

One folder in `<cache>/certificates` for each system, model, precision, environment, code and processor:

    certificate.json   the trajectory, the last verdict on it, and a checksum over both
    trajectory.npz     sketches of its tensors, see dlperf.adapters.trace

Its name ends in a digest of all that it depends on, so that a change of the adapter's code, of the model or of the
environment finds none. A file that is not what was written is refused, and made again. The checksum is against damage:
whoever edits a certificate on purpose can make it again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from dlperf import cache, models
from dlperf.adapters import variables
from dlperf.adapters.api import WIDTH
from dlperf.adapters.gpu import Gpu
from dlperf.envs.environment import Environment
from dlperf.models.parameters import initial
from dlperf.proof.asked import BATCH_SIZE, SEED, STEPS, Asked, batch_size, of_ranks
from dlperf.proof.judge import Evidence
from dlperf.schema import Certificate, Trajectory
from dlperf.stored import DAMAGED, arrays, checksum, content, decoded, kept_from, vectors

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
        batch_size=batch_size(one.model),
        steps=one.steps,
        seed=SEED,
        options={**one.options, **({"ps_mode": job.ps_mode} if job.servers else {})},
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
    with suppress(OSError):  # another user's
        return any(_folder().glob(f"{label}-{'?' * 16}/{CERTIFICATE}"))
    return False


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
    """Write the verdict beside its trajectory, with a checksum, unless it is there already."""
    folder = place(certificate.trajectory)
    data = json.loads(json.dumps(asdict(certificate)))
    try:
        if (folder / SKETCHES).exists() and not _same(folder / CERTIFICATE, certificate):
            text = json.dumps({"checksum": checksum(data), "certificate": data}, indent=1) + "\n"
            _write(folder / CERTIFICATE, text.encode())
    except OSError:
        pass  # as in _keep


def _same(path: Path, certificate: Certificate) -> bool:
    try:
        return kept_from(decoded(content(path))) == certificate
    except (OSError, *DAMAGED):
        return False


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    os.replace(aside, path)


def read(folder: Path, blank: Trajectory) -> Evidence:
    """A cached trajectory. OSError or one of DAMAGED where the files are not what was written."""
    trajectory = kept_from(decoded(content(folder / CERTIFICATE))).trajectory
    if place(trajectory) != folder:
        raise ValueError("it is of another system, environment or code than its folder's name says")
    if digest(folder / SKETCHES) != trajectory.sketches:
        raise ValueError(f"its {SKETCHES} was damaged or edited")
    # the labels of this comparison: the same options may have another name there
    named = replace(trajectory, system=blank.system, title=blank.title, of=blank.of)
    return whole(Evidence(named, arrays(folder / SKETCHES)))


def digest(path: Path) -> str:
    return hashlib.sha256(content(path)).hexdigest()


def whole(evidence: Evidence) -> Evidence:
    """The same, where all is there that others are compared with; else ValueError."""
    told, found = evidence.trajectory, evidence.sketches
    if not told.steps == len(told.losses) == len(told.gradient_norms):
        raise ValueError(f"{len(told.losses)} losses and {len(told.gradient_norms)} norms of {told.steps} steps")
    if len(told.step_seconds) != len(told.read_seconds):
        raise ValueError(f"{len(told.step_seconds)} steps were timed, and {len(told.read_seconds)} reads")
    lengths = _lengths(told)
    if not any(name.startswith("gradient/") for name in found):  # some frameworks hide them
        lengths = {name: length for name, length in lengths.items() if not name.startswith("gradient/")}
    vectors(found, lengths)
    return evidence


def _lengths(of: Trajectory) -> dict[str, int]:
    """How many values its sketches have, by name."""
    family, config = models.family(of.model), models.config(of.model)
    parameters = family.parameters(config)
    sizes = {f"logits/{name}": of.batch_size * math.prod(shape) for name, shape in family.logits(config).items()}
    sizes |= {f"gradient/{one.name}": one.size for one in parameters if one.trained}
    sizes |= {f"{'change' if one.trained else 'statistic'}/{one.name}": one.size for one in parameters}
    return {name: min(size, WIDTH) for name, size in sizes.items()}
