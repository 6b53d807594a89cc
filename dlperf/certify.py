"""Makes the trajectories that certificates rest on, keeps them in the user's cache folder, and has them judged.

One folder in `<cache>/certificates` for each system, model, precision, environment and code:

    certificate.json   the trajectory, the last verdict on it, and a seal over both
    trajectory.npz     sketches of its tensors, see dlperf.adapters.trace

Its name ends in a digest of all that it depends on, so that a change of the adapter's code, of the model or of the
environment finds none. A file that does not fit its seal is refused, and made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from dlperf import cache, launchers, machine, models, proof
from dlperf.adapters import trace
from dlperf.envs import kinds
from dlperf.envs.environment import Environment
from dlperf.errors import RunError
from dlperf.launchers import Launch
from dlperf.models.parameters import count, initial
from dlperf.planning.plan import file_name
from dlperf.proof import Evidence
from dlperf.runs import bundle, events, execute, failures
from dlperf.runs.events import Stream
from dlperf.schema import Certificate, Failure, Job, Trajectory, certificate_from, trajectory_from

#: of every trajectory; the seed is that of the weights and the batches
STEPS, BATCH_SIZE, SEED = 10, 4, 1
#: of a row of several ranks, whatever their number: what may go wrong with many goes wrong with two
RANKS = 2
CERTIFICATE, SKETCHES = "certificate.json", "trajectory.npz"
FROM_WORKER = "trajectory.rank0.npz"
#: memory of a run, in bytes: for each parameter, as BERT-base took most in float64 (OneFlow, 7.5 GiB), and besides
PER_PARAMETER, BESIDES = 72, 2**30
#: where the published trajectories are
REFERENCES = Path(__file__).parent / "reference"


@dataclass(frozen=True)
class Asked:
    """One trajectory that is needed: a job's system, trained on `model` in `precision`, by `ranks` ranks together."""

    job: Job
    model: str
    precision: str
    ranks: int = 1

    @property
    def name(self) -> str:
        """A file name, unique among the trajectories of a comparison."""
        return file_name(f"{self.model}-{self.precision}-{self.job.system}{_ranks('-{}ranks', self.ranks)}")

    @property
    def title(self) -> str:
        return f"{self.job.system}: {self.model}, {self.precision}{_ranks(', {} ranks', self.ranks)}"

    @property
    def nnodes(self) -> int:
        """Ranks are placed as in the row: on one node if it has several there, else on several nodes."""
        return 1 if self.job.nproc_per_node >= self.ranks else self.ranks

    @property
    def pool(self) -> tuple[object, ...]:
        """What must be the same for two trajectories to be compared."""
        work = tuple(sorted((k, v) for k, v in self.job.options.items() if k in proof.WORK))
        return self.model, self.precision, self.job.device, work, self.ranks


def _ranks(text: str, ranks: int) -> str:
    """Nothing for one rank."""
    return text.format(ranks) if ranks > 1 else ""


def shown(job: Job, alone: bool = False, full_size: bool = False) -> list[Asked]:
    """The trajectories that prove a row: in float64 on small input, and in its own precision.

    float32 runs at the real size, where its losses must agree with those of the others; low precision on small input.
    A row of several ranks has one more: in float64 by RANKS ranks together, whose mean must be that of the whole batch.
    alone: only the one in its own precision. full_size: that one at the real size, in any case.
    """
    together = [replace(_float64(job), ranks=RANKS)] if job.world_size > 1 else []
    if full_size:
        return [Asked(job, job.model, job.precision)]
    own = Asked(job, job.model if job.precision == "fp32" else job.model + "_check", job.precision)
    return ([own] if alone or job.precision == "fp64" else [_float64(job), own]) + together


def needed(job: Job, alone: bool = False, full_size: bool = False) -> list[Asked]:
    """Those of `shown`, and those that the bound of low precision comes from."""
    asked = shown(job, alone, full_size)
    low = [one for one in asked if one.precision not in proof.BARS]
    return [replace(one, precision=precision) for one in low for precision in ("fp64", "fp32")] + asked


def _float64(job: Job) -> Asked:
    return Asked(job, job.model + "_check", "fp64")


@dataclass
class Certifier:
    """Makes certificates for the rows of one comparison.

    folder: has code/, the bundle; runs go to proofs/ in it. make: whether to run what no cached certificate proves.
    hosts, arguments: for the launcher of rows of several ranks. container: --container-arg. busy: called once a second
    while something is at work, with what says in words what it is.
    """

    folder: Path
    threads: int
    timeout: float
    note: Callable[[str], None]
    make: bool = True
    hosts: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    container: Mapping[str, str] = field(default_factory=dict)
    busy: Callable[[Callable[[], str]], None] = lambda what: None

    def __post_init__(self) -> None:
        self._stopped, self._turn = threading.Event(), threading.Lock()
        self._at_work: dict[str, tuple[Asked, float]] = {}
        self._waiting = 0

    def certificates(
        self, jobs: Sequence[Job], environments: Mapping[tuple[str, str], Environment], **which: bool
    ) -> dict[str, tuple[Certificate, ...]]:
        """The certificates of each row whose environment there is, by Job.id. which: see `shown`."""
        rows = [job for job in jobs if (job.adapter, job.environment) in environments]
        wanted = {one.name: one for job in rows for one in needed(job, **which)}
        self._waiting = len(wanted)
        evidence = self._all(wanted, environments)
        verdicts = self._judge(wanted, evidence)
        return {job.id: tuple(verdicts[one.name] for one in shown(job, **which)) for job in rows}

    def _all(
        self, wanted: Mapping[str, Asked], environments: Mapping[tuple[str, str], Environment]
    ) -> dict[str, Evidence]:
        """Two at a time on a CPU, each with half of the threads: much of a run is start-up, and on one core. Those of
        several ranks one at a time, after the others."""
        alone = [one for one in wanted.values() if one.ranks == 1]
        count = at_once(alone, self.threads, machine.available_memory())
        found = self._at_once(count, alone, environments)
        together = [one for one in wanted.values() if one.ranks > 1]
        return {**found, **self._at_once(1, together, environments)}

    def _at_once(
        self, count: int, wanted: Sequence[Asked], environments: Mapping[tuple[str, str], Environment]
    ) -> dict[str, Evidence]:
        def evidence(one: Asked) -> Evidence:
            return self._evidence(one, environments[one.job.adapter, one.job.environment], self.threads // count)

        pool = ThreadPoolExecutor(count)
        try:
            return dict(zip((one.name for one in wanted), pool.map(evidence, wanted), strict=True))
        except BaseException:
            self._stopped.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _judge(self, wanted: Mapping[str, Asked], evidence: Mapping[str, Evidence]) -> dict[str, Certificate]:
        pools: dict[tuple[object, ...], list[Asked]] = {}
        for one in wanted.values():
            pools.setdefault(one.pool, []).append(one)
        verdicts: dict[str, Certificate] = {}
        for members in pools.values():
            mine = [evidence[one.name] for one in members]
            if members[0].precision in proof.BARS:
                alone = [_alone(one, evidence) for one in members if one.ranks > 1]
                witnesses = [one for one in alone if one]
                judged = proof.judge([*mine, *witnesses], reference(mine[0].trajectory))[: len(mine)]
            else:
                judged = [self._judge_low(one, evidence) for one in members]
            verdicts.update(zip((one.name for one in members), judged, strict=True))
        for certificate in verdicts.values():
            if certificate.trajectory.sketches:
                _update(certificate)
        return verdicts

    @staticmethod
    def _judge_low(one: Asked, evidence: Mapping[str, Evidence]) -> Certificate:
        own = {name: evidence[Asked(one.job, one.model, name).name] for name in ("fp64", "fp32")}
        return proof.judge_low(evidence[one.name], own["fp64"], own["fp32"])

    def _evidence(self, one: Asked, environment: Environment, threads: int) -> Evidence:
        """The trajectory from the cache, or a new one."""
        with self._turn:
            self._waiting -= 1
        blank = self._blank(one, environment)
        found = self._cached(blank)
        if found:
            return found
        if not self.make:
            failure = Failure("unproven", "no certificate was asked for (--no-verify), and none is there")
            return Evidence(replace(blank, failure=failure), {})
        self._say(f"proof of the same work: {one.title}")
        made = self.run(one, environment, max(1, threads // one.ranks))
        _keep(made, self.folder / "proofs" / one.name / "run")
        return made

    def _cached(self, blank: Trajectory) -> Evidence | None:
        folder = place(blank)
        if not (folder / CERTIFICATE).exists():
            return None
        try:
            return _read(folder, blank)
        except Exception as error:  # for a damaged archive numpy raises whatever its parser met
            self._say(f"{folder / CERTIFICATE}: refused, and made anew: {error}")
            return None

    def _blank(self, one: Asked, environment: Environment) -> Trajectory:
        return _blank(one, environment, bundle.digest(self.folder / "code" / "dlperf", one.job.adapter))

    def run(self, one: Asked, environment: Environment, threads: int) -> Evidence:
        """A new trajectory; a run that failed is one with its failure."""
        folder = self.folder / "proofs" / one.name / "run"
        began = time.monotonic()
        command = script(one, environment, threads, self.hosts, self.arguments, self.container)
        launcher = launchers.find(one.job.launcher if one.ranks > 1 else "local")
        try:
            kinds.check(environment)
            execute.prepare(folder, request(one, threads), command)
            self._at_work[one.name] = one, time.time()
            ended = execute.execute(folder, self.timeout, self._tick, launcher, environment.engine)
            stream = events.of_job(folder, one.ranks)
            failure = failures.failure(ended, stream, folder, launcher) or _parted(stream)
        except RunError as error:
            stream, failure = Stream(), Failure(error.kind, str(error), error.lines)
        finally:
            self._at_work.pop(one.name, None)
        made = replace(
            self._blank(one, environment),
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.monotonic() - began,
            command=command,
            versions=stream.start.get("versions", {}),
            peak_memory_bytes=(stream.end or {}).get("peak_memory_bytes"),
            failure=failure,
        )
        if failure or stream.trajectory is None:
            return Evidence(made, {})
        told = stream.trajectory
        if one.ranks > 1:
            _merge(folder, one.ranks)
        made = replace(
            made,
            losses=_mean_losses(stream),
            gradient_norms=tuple(told["gradient_norms"]),
            step_seconds=tuple(told["step_seconds"]),
            read_seconds=tuple(told["read_seconds"]),
            effective=told["effective"],
            sketches=_digest(folder / FROM_WORKER),
        )
        return Evidence(made, _sketches(folder / FROM_WORKER))

    def _say(self, line: str) -> None:
        with self._turn:
            self.note(line)

    def _tick(self) -> None:
        """Once a second while a run is at work. Ctrl-C reaches the main thread only, so the others look for it."""
        if self._stopped.is_set():
            raise KeyboardInterrupt
        with self._turn:
            self.busy(self._what)

    def _what(self) -> str:
        """ "proofs at work: jax: bert_base_check, fp64: step 3 of 10, 45 s; up to 7 more"."""
        at_work = list(self._at_work.values())
        told = [f"{one.title}: {self._stage(one)}, {time.time() - began:.0f} s" for one, began in at_work]
        more = [f"up to {self._waiting} more"] if self._waiting else []
        return "proofs at work: " + "; ".join(told + more)

    def _stage(self, one: Asked) -> str:
        """How far a run is, by what its first rank has told."""
        stream = events.read(self.folder / "proofs" / one.name / "run" / "events.rank0.jsonl")
        if stream.traced >= STEPS:
            return "writing down what changed"
        return f"step {stream.traced + 1:.0f} of {STEPS}" if stream.built else "importing and building"


def _alone(one: Asked, evidence: Mapping[str, Evidence]) -> Evidence | None:
    """What one rank computes with the batch of several: the same, unless each normalises over its own part."""
    found = evidence.get(replace(one, ranks=1).name)
    if found is None or _own_statistics(one.model):
        return None
    return replace(found, trajectory=replace(found.trajectory, system=f"{one.job.system}, 1 rank"))


def _own_statistics(model: str) -> bool:
    """Whether each rank normalises over its own part of the batch."""
    return hasattr(models.family(model), "normalised")


def _parted(stream: Stream) -> Failure | None:
    """Ranks that ended up with different weights."""
    weights = [rank.trajectory["weights"] for rank in stream.ranks if rank.trajectory]
    odd = [number for number, digest in enumerate(weights) if digest != weights[0]]
    if not odd:
        return None
    return Failure("ranks_differ", f"after the last step {stream.name(odd[0])} has not the weights of {stream.name(0)}")


def _mean_losses(stream: Stream) -> tuple[float, ...]:
    """Of each step: each rank's loss is of its own part of the batch."""
    told = [rank.trajectory["losses"] for rank in stream.ranks or (stream,) if rank.trajectory]
    return tuple(fmean(losses) for losses in zip(*told, strict=True))


def _merge(folder: Path, ranks: int) -> None:
    """Make rank 0's sketches those of the job: logits are sums over the ranks, all else it has already."""
    import numpy

    parts = [_sketches(folder / f"trajectory.rank{rank}.npz") for rank in range(ranks)]
    whole = dict(parts[0])
    for name in whole:
        if name.startswith("logits/"):
            whole[name] = sum(part[name] for part in parts)
    numpy.savez(folder / FROM_WORKER, **whole)


def memory(model: str) -> int:
    """Bytes that a run takes, roughly."""
    return BESIDES + PER_PARAMETER * int(count(models.family(model).parameters(models.config(model))))


def at_once(alone: Sequence[Asked], threads: int, available: int) -> int:
    """How many trajectories of one rank are made at a time. available: bytes of memory."""
    needed = max((memory(one.model) for one in alone), default=0)
    on_cpu = all(one.job.device == "cpu" for one in alone)
    return 2 if on_cpu and threads > 1 and available >= 2 * needed else 1


def script(
    one: Asked,
    environment: Environment,
    threads: int,
    hosts: tuple[str, ...] = (),
    arguments: Mapping[str, str] | None = None,
    container: Mapping[str, str] | None = None,
) -> str:
    """What `sh` runs for a trajectory, in its folder. hosts, arguments: for the launcher of several ranks. container:
    --container-arg."""
    several = one.ranks > 1
    return launchers.find(one.job.launcher if several else "local").script(
        Launch(
            title=f"proof of the same work, {one.title}",
            name=one.name,
            python=environment.python,
            code=Path("../../../code"),
            device=one.job.device,
            threads=threads,
            variables=environment.variables,
            nnodes=one.nnodes,
            nproc_per_node=one.ranks // one.nnodes,
            hosts=hosts[: one.nnodes] if several else (),
            arguments=(arguments or {}) if several else {},
            container=environment.container(one.job.device, container or {}),
            emulated=environment.emulated,
        )
    )


def request(one: Asked, threads: int) -> dict[str, object]:
    """The content of job.json, see dlperf.adapters.api.Job."""
    return {
        "adapter": one.job.adapter,
        "job": {
            "model": one.model,
            "device": one.job.device,
            "precision": one.precision,
            "batch_size": BATCH_SIZE // one.ranks,
            "distinct_batches": STEPS,
            "dropout": False,
            "trace_steps": STEPS,
            "seed": SEED,
            "threads": threads,
            "options": dict(one.job.options),
        },
    }


# The cache


def _blank(one: Asked, environment: Environment, code: str) -> Trajectory:
    """A trajectory as far as it is known before it is made."""
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
    )


def definition(model: str) -> str:
    """Digest of what a trajectory of this model starts from: sizes, optimizer, parameters, some weights, a batch."""
    family, config = models.family(model), models.config(model)
    parameters = family.parameters(config)
    total = hashlib.sha256(repr((trace.WIDTH, STEPS, SEED, config, family.optimizer(BATCH_SIZE))).encode())
    total.update(repr(parameters).encode())
    smallest = min((one for one in parameters if not isinstance(one.init, str)), key=lambda one: one.size)
    total.update(initial(smallest, SEED).tobytes())
    for name, array in sorted(family.batch(config, BATCH_SIZE, SEED, 0).items()):
        total.update(name.encode() + array.tobytes())
    return total.hexdigest()


def place(trajectory: Trajectory) -> Path:
    """The folder of a certificate: its name says what it is of, its end is the digest of what it depends on."""
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
    key = hashlib.sha256(repr((asked, made_of)).encode()).hexdigest()[:16]
    return _folder() / f"{_label(t.adapter, t.model, t.device, t.precision, t.ranks)}-{key}"


def _folder() -> Path:
    return cache.folder() / "certificates"


def _label(adapter: str, model: str, device: str, precision: str, ranks: int) -> str:
    return f"{adapter}-{model}-{device}-{precision}{_ranks('-{}ranks', ranks)}"


def kept(one: Asked) -> bool:
    """Whether the cache has a certificate like it, of whatever code, options and environment: a cheap guess, for
    estimates."""
    label = _label(one.job.adapter, one.model, one.job.device, one.precision, one.ranks)
    return any(_folder().glob(f"{label}-{'?' * 16}/{CERTIFICATE}"))


def _keep(made: Evidence, run: Path) -> None:
    """Put a new trajectory into the cache, from the folder of its run: an interruption does not lose it."""
    if made.trajectory.failure:
        return
    folder = place(made.trajectory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / SKETCHES, (run / FROM_WORKER).read_bytes())
        _update(Certificate(made.trajectory, "unproven", "not compared with others yet"))
    except OSError:  # a cache that cannot be written costs time, nothing else
        shutil.rmtree(folder, ignore_errors=True)


def _update(certificate: Certificate) -> None:
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


def _read(folder: Path, blank: Trajectory) -> Evidence:
    """A cached trajectory. Raises, by what is wrong, where the files are not what was written."""
    found = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
    if found["seal"] != seal(found["certificate"]):
        raise ValueError("its content does not fit its seal: it was damaged or edited")
    trajectory = certificate_from(found["certificate"]).trajectory
    if place(trajectory) != folder:
        raise ValueError("it is of another system, environment or code than its folder's name says")
    if _digest(folder / SKETCHES) != trajectory.sketches:
        raise ValueError(f"its {SKETCHES} was damaged or edited")
    # the labels of this comparison: the same options may have another name there
    return Evidence(
        replace(trajectory, system=blank.system, title=blank.title, of=blank.of), _sketches(folder / SKETCHES)
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sketches(path: Path) -> dict[str, Any]:
    import numpy

    with numpy.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


# The published trajectories


def reference(like: Trajectory) -> Evidence | None:
    """The published float64 trajectory of the same job, where there is one: it takes part in every comparison.

    None for another model, other options that change the work, or where dlperf.models has changed since.
    """
    name = _published_name(like)
    if not (REFERENCES / f"{name}.json").exists():
        return None
    trajectory = published(name)
    work = {key: value for key, value in like.options.items() if key in proof.WORK}
    same = (trajectory.definition, trajectory.batch_size, trajectory.steps, trajectory.seed, trajectory.options)
    if same != (like.definition, like.batch_size, like.steps, like.seed, work):
        return None
    return Evidence(trajectory, _sketches(REFERENCES / f"{name}.npz"))


def _published_name(trajectory: Trajectory) -> str:
    """Of its file. Several ranks compute what one does, but for a model that normalises over each rank's own batch."""
    return trajectory.model + (_ranks("_{}ranks", trajectory.ranks) if _own_statistics(trajectory.model) else "")


def published(name: str) -> Trajectory:
    """By the name of its file: "bert_base_check", "resnet50_check_2ranks"."""
    return trajectory_from(json.loads((REFERENCES / f"{name}.json").read_text(encoding="utf-8")))


def publish(certificate: Certificate, folder: Path = REFERENCES) -> None:
    """Make a certificate's trajectory the published one of its model: without what says where it was made."""
    trajectory = certificate.trajectory
    work = {key: value for key, value in trajectory.options.items() if key in proof.WORK}
    public = replace(
        trajectory,
        system=proof.REFERENCE,
        title="published reference",
        options=work,
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
