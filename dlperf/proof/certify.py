"""Makes the trajectories that certificates rest on, keeps them, and has them judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from dlperf import launchers, machine
from dlperf.envs import kinds
from dlperf.envs.environment import Environment
from dlperf.errors import RunError
from dlperf.planning.spec import Spec
from dlperf.proof import band, judge, low
from dlperf.proof.asked import SEED, Asked, at_once, compressed, needed, own_statistics, threads, trajectories
from dlperf.proof.bars import BARS
from dlperf.proof.certificates import CERTIFICATE, FROM_WORKER, blank, digest, keep, place, read, update, whole
from dlperf.proof.judge import Evidence
from dlperf.proof.published import moved, reference
from dlperf.runs import bundle, events, failures, worker
from dlperf.runs.events import Stream
from dlperf.runs.execute import execute, now
from dlperf.schema import Certificate, Failure, Job, Trajectory
from dlperf.stored import DAMAGED, arrays
from dlperf.words import duration


@dataclass
class Certifier:
    """Makes certificates for the rows of one comparison.

    folder: has code/, the bundle; runs go to proofs/ in it. spec: of the comparison; with `verify` off, nothing is run
    that no cached certificate proves. busy: called once a second while something is at work, with what says in words
    what it is.
    """

    folder: Path
    spec: Spec
    note: Callable[[str], None]
    busy: Callable[[Callable[[], str]], None] = lambda what: None

    def __post_init__(self) -> None:
        self._threads = threads(self.spec)
        self._stopped, self._turn = threading.Event(), threading.Lock()
        self._at_work: dict[str, tuple[Asked, float]] = {}
        self._wanted = self._waiting = 0
        self._seconds: dict[str, float] = {}

    def certificates(
        self, jobs: Sequence[Job], environments: Mapping[str, Environment], **which: bool
    ) -> dict[str, tuple[Certificate, ...]]:
        """The certificates of each row whose environment there is; both by Job.id. which: see `trajectories`."""
        rows = [job for job in jobs if job.id in environments]
        wanted = {one.name: one for job in rows for one in needed(job, **which)}
        self._wanted = self._waiting = len(wanted)
        self._seconds = {}
        evidence = self._all(wanted, environments)
        verdicts = self._judge(wanted, evidence)
        self._tell(wanted, verdicts)
        return {job.id: tuple(verdicts[one.name] for one in trajectories(job, **which)) for job in rows}

    def _all(self, wanted: Mapping[str, Asked], environments: Mapping[str, Environment]) -> dict[str, Evidence]:
        """Two at a time on a CPU, each with half of the threads: much of a run is start-up, and on one core. Those of
        several ranks one at a time, after the others."""
        alone = [one for one in wanted.values() if one.ranks == 1]
        cards = [one.memory_bytes for one in self.spec.gpus]
        count = at_once(alone, self._threads, machine.available_memory(), cards)
        found = self._at_once(count, alone, environments)
        together = [one for one in wanted.values() if one.ranks > 1]
        return {**found, **self._at_once(1, together, environments)}

    def _at_once(
        self, count: int, wanted: Sequence[Asked], environments: Mapping[str, Environment]
    ) -> dict[str, Evidence]:
        def evidence(one: Asked) -> Evidence:
            return self._evidence(one, environments[one.job.id], self._threads // count)

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
            if members[0].in_band:
                judged = [band.judge(one, band.of(one.trajectory)) for one in mine]
            elif members[0].precision in BARS:
                alone = [_alone(one, evidence) for one in members if one.ranks > 1]
                witnesses = [one for one in alone if one]
                judged = judge.judge([*mine, *witnesses], reference(mine[0].trajectory))[: len(mine)]
            else:
                judged = [self._judge_low(one, evidence) for one in members]
            verdicts.update(zip((one.name for one in members), judged, strict=True))
        for certificate in verdicts.values():
            if certificate.trajectory.sketches:
                update(certificate)
        return verdicts

    @staticmethod
    def _judge_low(one: Asked, evidence: Mapping[str, Evidence]) -> Certificate:
        own = {name: evidence[Asked(one.job, one.model, name).name] for name in ("fp64", "fp32")}
        mine = evidence[one.name]
        return low.judge(mine, own["fp64"], own["fp32"], moved(mine.trajectory))

    def _evidence(self, one: Asked, environment: Environment, threads: int) -> Evidence:
        """The trajectory from the cache, or a new one."""
        with self._turn:
            self._waiting -= 1
            number = f"[{self._wanted - self._waiting}/{self._wanted}]"
        blank = self._blank(one, environment)
        found = self._cached(blank)
        if found:
            return found
        if not self.spec.verify:
            failure = Failure(judge.NOT_ASKED, "no certificate was asked for (--no-verify), and none is there")
            return Evidence(replace(blank, failure=failure), {})
        self._say(f"{number} proof of the same work: {one.title}")
        made = self.run(one, environment, max(1, threads // one.ranks))
        keep(made, self.folder / "proofs" / one.name / "run")
        self._seconds[one.name] = made.trajectory.seconds
        failed = made.trajectory.failure
        ended = f"failed: {failed.kind}" if failed else f"made in {duration(made.trajectory.seconds)}"
        self._say(f"{number} {one.title}: {ended}{self._left(self._threads // threads)}")
        return made

    def _left(self, at_once: int) -> str:
        """`; at most about 6 min left`, if those that are left take as long as those that were made. Some may be in the
        cache."""
        left = (self._waiting + len(self._at_work)) * fmean(self._seconds.values()) / at_once
        return f"; at most about {duration(left)} left" if self._waiting else ""

    def _tell(self, wanted: Mapping[str, Asked], verdicts: Mapping[str, Certificate]) -> None:
        """What came of the trajectories that were made now."""
        made = {name: verdicts[name] for name in self._seconds}
        odd = {name: one for name, one in made.items() if one.verdict != "same"}
        if made:
            self._say(f"proofs made: {len(made)}; of the same work: {len(made) - len(odd)}")
        for name, one in odd.items():
            self._say(f"{wanted[name].title}: {one.verdict}: {one.why}")

    def _cached(self, blank: Trajectory) -> Evidence | None:
        folder = place(blank)
        if not (folder / CERTIFICATE).exists():
            return None
        try:
            return read(folder, blank)
        except (OSError, *DAMAGED) as error:
            self._say(f"{folder / CERTIFICATE}: recomputing: {error}")
            return None

    def _blank(self, one: Asked, environment: Environment) -> Trajectory:
        code = bundle.digest(self.folder / "code" / "dlperf", one.job.adapter)
        return blank(one, environment, code, self.spec.gpus, self._cpu)

    @cached_property
    def _cpu(self) -> str:
        """The one that trains, as far as it is known: kernels differ by instruction sets, and some by vendor."""
        sets = self.spec.instructions
        model = self.spec.emulate_cpu or machine.processor()["cpu"]
        return "" if sets is None else f"{model}: {' '.join(sets)}"

    def run(self, one: Asked, environment: Environment, threads: int) -> Evidence:
        """A new trajectory; a run that failed is one with its failure."""
        folder = self.folder / "proofs" / one.name / "run"
        began = time.monotonic()
        spec = replace(self.spec, threads=threads, seed=SEED)
        command = script(one, environment, spec)
        launcher = launchers.find(one.run.launcher)
        try:
            kinds.check(environment)
            self._at_work[one.name] = one, time.time()
            outcome = execute(
                folder,
                request(one, spec),
                command,
                lambda: events.read_job(folder, one.ranks, servers=one.run.servers),
                lambda ended, stream, *where: failures.failure(ended, stream, *where) or _parted(stream),
                spec.timeout,
                self._tick,
                launcher,
                environment.engine,
            )
            stream, failure = outcome.stream, outcome.failure
        except RunError as error:
            stream, failure = Stream(), Failure(error.kind, str(error), error.lines)
        finally:
            self._at_work.pop(one.name, None)
        made = replace(
            self._blank(one, environment),
            made=now(),
            seconds=time.monotonic() - began,
            command=command,
            versions=stream.start.get("versions", {}),
            peak_memory_bytes=(stream.end or {}).get("peak_memory_bytes"),
            failure=failure,
        )
        if failure or stream.trajectory is None:
            return Evidence(made, {})
        try:
            return _told(made, stream, folder)
        except (OSError, *DAMAGED) as error:
            failure = Failure("wrong_tensor", f"what it wrote down of its tensors is not whole: {error}")
            return Evidence(replace(made, failure=failure), {})

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
        """ "proofs running: jax: bert_base_check, fp64: step 3 of 10, 45 s; up to 7 more"."""
        at_work = list(self._at_work.values())
        told = [f"{one.title}: {self._stage(one)}, {time.time() - began:.0f} s" for one, began in at_work]
        more = [f"up to {self._waiting} more"] if self._waiting else []
        return "proofs running: " + "; ".join(told + more)

    def _stage(self, one: Asked) -> str:
        """How far a run is, by what its first rank has told."""
        stream = events.read(self.folder / "proofs" / one.name / "run" / "events.rank0.jsonl")
        if stream.traced >= one.steps:
            return "writing down what changed"
        return f"step {stream.traced + 1:.0f} of {one.steps}" if stream.built else "importing and building"


def _alone(one: Asked, evidence: Mapping[str, Evidence]) -> Evidence | None:
    """What one rank computes with the batch of several: the same, unless each normalises over its own part, or hands
    over a part of its gradients."""
    found = evidence.get(replace(one, ranks=1).name)
    if found is None or own_statistics(one.model) or compressed(one.job):
        return None
    return replace(found, trajectory=replace(found.trajectory, system=f"{one.job.system}, 1 rank"))


def _parted(stream: Stream) -> Failure | None:
    """Ranks that ended up with different weights."""
    weights = [rank.trajectory["weights"] for rank in stream.ranks if rank.trajectory]
    odd = [number for number, digest in enumerate(weights) if digest != weights[0]]
    if not odd:
        return None
    return Failure("ranks_differ", f"after the last step {stream.name(odd[0])} has not the weights of {stream.name(0)}")


def _told(made: Trajectory, stream: Stream, folder: Path) -> Evidence:
    """A trajectory with what its ranks told. OSError or one of DAMAGED where that is not whole."""
    told = stream.trajectory or {}
    if made.ranks > 1:
        _merge(folder, made.ranks)
    made = replace(
        made,
        losses=mean_losses(stream),
        gradient_norms=tuple(told["gradient_norms"]),
        step_seconds=tuple(told["step_seconds"]),
        read_seconds=tuple(told["read_seconds"]),
        effective=told["effective"],
        sketches=digest(folder / FROM_WORKER),
    )
    return whole(Evidence(made, arrays(folder / FROM_WORKER)))


def mean_losses(stream: Stream) -> tuple[float, ...]:
    """Of each step: each rank's loss is of its own part of the batch."""
    told = [rank.trajectory["losses"] for rank in stream.ranks or (stream,) if rank.trajectory]
    return tuple(fmean(losses) for losses in zip(*told, strict=True))


def _merge(folder: Path, ranks: int) -> None:
    """Make rank 0's sketches those of the job: logits are sums over the ranks, all else it has already."""
    import numpy

    parts = [arrays(folder / f"trajectory.rank{rank}.npz") for rank in range(ranks)]
    logits = {name: sum(part[name] for part in parts) for name in parts[0] if name.startswith("logits/")}
    numpy.savez(folder / FROM_WORKER, **{**parts[0], **logits})  # type: ignore[arg-type]


def script(one: Asked, environment: Environment, spec: Spec) -> str:
    """What `sh` runs for a trajectory, in its folder. spec: its threads are those of each rank."""
    launch = worker.launch(one.run, environment, spec, one.name, f"proof of the same work, {one.title}")
    return launchers.find(one.run.launcher).script(launch)


def request(one: Asked, spec: Spec) -> dict[str, object]:
    """The content of its job.json."""
    return worker.request(one.run, spec, distinct_batches=one.steps, dropout=0.0, trace_steps=one.steps)
