"""Makes the reference's runs that measured runs are held against, keeps them, and holds runs against them.

They are runs of the adapter `numpy` in the core's own Python, in `<comparison>/proofs`, and for later comparisons in
`<cache>/references`: they depend on nothing of the machine but its rounding.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dlperf import cache, launchers, models
from dlperf.catalog.adapter import Adapter
from dlperf.envs import kinds
from dlperf.errors import RunError
from dlperf.planning.spec import Protocol, Spec
from dlperf.proof import measured, optimizer, places, rounding
from dlperf.proof.certificates import definition
from dlperf.proof.judge import work_options
from dlperf.proof.measured import Marks, Reference
from dlperf.proof.places import Zeros
from dlperf.proof.written import EVENTS, STATES, marks
from dlperf.runs import bundle, events, failures, worker
from dlperf.runs.execute import execute
from dlperf.schema import Job
from dlperf.stored import DAMAGED, content

ADAPTER = "numpy"
#: FLOP/s of a core in float32, and what other precisions take times as long; measured on two cores of Zen 4, BERT-base
#: at batch 4 and ResNet-50 at batch 16
FLOPS, SLOWER = 3.5e10, {"fp64": 2.0, "fp32": 1.0, "amp_bf16": 2.6}
#: beyond which cores are of no use: most of NumPy runs on one, and ResNet-50 took no less time on 16 beside an H200
CORES = 2
#: dropout's seeds of the two runs, which no measured run has
SEEDS = (1_000_001, 1_000_002)
#: the share of a comparison's seconds that all runs may take; audits, and what workers write, take as much. And the
#: seconds that two runs may take whatever the share is: under a CPU's protocols, and for the fewest steps, as of a GPU
#: that is done soon
SHARE, SECONDS = 0.05, 120.0
#: steps of a run from revealing weights, at most: ten of BERT-base in bfloat16 would take more time than all else here;
#: and of a network in which rounding decides, more with each step
REVEALING, REVEALING_KINKS = 6, 2
#: beside them in the cache, written last: the digest of each
CHECKSUMS = "checksums.txt"


@dataclass(frozen=True)
class Asked:
    """One run of the reference: of a job's model, batch and options, in `precision`, for so many steps. revealing,
    dropout: see dlperf.adapters.api.Job. placing: whether it drops nearly all, see dlperf.proof.places."""

    job: Job
    precision: str
    dropout_seed: int
    protocol: Protocol
    revealing: bool = False
    placing: bool = False

    @property
    def dropout(self) -> float:
        return places.share(self.job) if self.placing else float(not self.revealing)

    @property
    def name(self) -> str:
        p, more = self.protocol, "".join(f"-{key}={value}" for key, value in sorted(work_options(self.job).items()))
        steps = f"{p.warmup_steps}+{p.windows}x{p.steps_per_window}"
        more += "-revealing" * self.revealing + "-placing" * self.placing
        return f"{self.job.model}-{self.precision}-b{self.job.batch_size}-{steps}{more}-{self.dropout_seed}-reference"


@dataclass
class References:
    """Those of one comparison, each pair made when it is first asked for.

    folder: the comparison's. adapter: the one that is named ADAPTER. seconds: that one pair may take. busy: see
    `Certifier`.
    """

    folder: Path
    spec: Spec
    adapter: Adapter
    seconds: float
    note: Callable[[str], None]
    busy: Callable[[Callable[[], str]], None]
    _made: dict[tuple[object, ...], Reference | str] = field(default_factory=dict)
    _placed: dict[tuple[object, ...], tuple[Zeros, Zeros] | str] = field(default_factory=dict)

    def of(self, job: Job, revealing: bool = False) -> Reference | str:
        """What a job's runs are held against, or why there is nothing. revealing: see `pair`."""
        why = obstacle(job, self.spec)
        if why:
            return why
        key = (revealing, *work(job))
        if key not in self._made:
            self._made[key] = self._pair(job, revealing)
        return self._made[key]

    def verdict(self, job: Job, run: Path, revealing: bool = False) -> dict[str, Any]:
        """Of one run, see Record.work. run: its folder. revealing: see `pair`."""
        try:
            told = marks(run, job)
        except (OSError, *DAMAGED) as error:
            return {"verdict": "unproven", "why": f"what it wrote down of its tensors cannot be read: {error}"}
        found = self.of(job, revealing)
        held = found if isinstance(found, Reference) else None
        wrong = [*adam_faults(job, told), *measured.faults(told, trained(job), held)]
        if revealing == drops(job.model):  # where it is held without masks
            wrong += sgd_faults(job, told, held)
        if wrong:
            return {"verdict": "different", "why": wrong[0]}
        return {"verdict": "same", "steps": held.steps} if held else {"verdict": "unproven", "why": str(found)}

    def placed(self, job: Job) -> tuple[Zeros, Zeros] | str:
        """Which gradients of a job are zero where dropout drops nearly all, in two runs; or why nobody knows."""
        key = work(job)
        if key not in self._placed:
            self._placed[key] = obstacle(job, self.spec) or self._zeros(job)
        return self._placed[key]

    def _zeros(self, job: Job) -> tuple[Zeros, Zeros] | str:
        asked = placing(job, self.spec.protocol)
        takes = sum(seconds(one, self.spec.threads) for one in asked)
        if takes > max(self.seconds, SECONDS):
            return f"a step of the reference takes {takes / 2:.0f} s on this CPU, and there is no time for two"
        found = []
        for one in asked:
            made = self._run(one)
            if isinstance(made, str):
                return f"the reference did not run: {made}"
            found.append(places.zeros(made, decayed(job), recipe(job)))
        first, second = found
        return (first, second) if places.telling(first, second) else "no gradient tells where dropout stands"

    def place(self, job: Job, run: Path) -> str:
        """What is wrong with the places of dropout in a run that drops nearly all, see dlperf.proof.places; empty if
        nothing. run: its folder. OSError or one of DAMAGED where what it wrote down cannot be read."""
        held = self.placed(job)
        return (
            ""
            if isinstance(held, str)
            else places.fault(places.zeros(marks(run, job), decayed(job), recipe(job)), *held, places.off(job))
        )

    def _pair(self, job: Job, revealing: bool) -> Reference | str:
        spec, budget = self.spec, self.seconds
        protocol = affordable(job, spec.protocol, spec.threads, budget, revealing)
        if protocol is None:
            first = sum(seconds(one, spec.threads) for one in pair(job, _first_steps(spec.protocol), revealing))
            left = max(budget, SECONDS)
            return f"two steps of the reference take {first:.0f} s on this CPU, and {left:.0f} s are left for it"
        made = []
        for asked in pair(job, protocol, revealing):
            found = self._run(asked)
            if isinstance(found, str):
                return f"the reference did not run: {found}"
            made.append(found)
        changes, means, eps = rounding.CHANGES, rounding.MEANS, 0.0
        if is_adam(job):
            eps = (1 - recipe(job).beta1) * recipe(job).eps
            changes = rounding.HALVES if job.precision.startswith("amp") else rounding.SIGNS
        drawn = None if revealing else masks(job)
        if not drawn and not models.family(job.model).SMOOTH:
            changes, means = (rounding.kinked(bars, revealing) for bars in (changes, means))
        return Reference(made[0], made[1], drawn, changes, means, eps)

    def _run(self, asked: Asked) -> Marks | str:
        """What a run wrote down, from the cache or made now; or why there is none."""
        place = kept(asked, bundle.digest(self.folder / "code" / "dlperf", ADAPTER), self.spec.seed)
        with suppress(OSError, *DAMAGED):
            if content(place / CHECKSUMS).decode() == checksums(place):
                return marks(place, asked.job, finite=True)
        run = self.folder / "proofs" / asked.name / "run"
        self.note(f"reference for measured runs: {asked.name}")
        found = self.make(asked, run)
        if isinstance(found, Marks):
            with suppress(OSError):
                (place / CHECKSUMS).unlink(missing_ok=True)
                shutil.copytree(run, place, dirs_exist_ok=True)
                (place / CHECKSUMS).write_text(checksums(place), encoding="utf-8")
        return found

    def make(self, asked: Asked, run: Path, options: Mapping[str, str] | None = None) -> Marks | str:
        """Make a run of the reference in a folder. options: besides those of its job."""
        p, launcher = asked.protocol, launchers.find("local")
        try:
            environment = kinds.ensure(self.adapter, "cpu", "current")
        except RunError as error:
            return str(error)
        job = replace(
            asked.job,
            adapter=ADAPTER,
            precision=asked.precision,
            device="cpu",
            options={**work_options(asked.job), **(options or {})},
            launcher="local",
            environment="cpu",
            image="",
        )
        request = worker.request(
            job,
            self.spec,
            revealing=asked.revealing,
            dropout=asked.dropout,
            dropout_seed=asked.dropout_seed,
            warmup_steps=p.warmup_steps,
            windows=p.windows,
            steps_per_window=p.steps_per_window,
        )
        script = launcher.script(worker.launch(job, environment, self.spec, asked.name, f"the reference, {asked.name}"))
        outcome = execute(
            run,
            request,
            script,
            lambda: events.read_job(run, 1),
            failures.failure,
            self.spec.timeout,
            lambda: self.busy(lambda: f"at work: {asked.name}"),
            launcher,
        )
        if outcome.failure:
            return f"{outcome.failure.kind}: {outcome.failure.message}"
        try:
            return marks(run, asked.job, finite=True)
        except (OSError, *DAMAGED) as error:
            return f"what it wrote down of its tensors cannot be read: {error}"


def obstacle(job: Job, spec: Spec) -> str:
    """Why the reference does not train a job; empty if it does."""
    if not spec.verify:
        return "no proof was asked for (--no-verify)"
    if job.world_size > 1:
        return "the reference trains in one process, and the row has several ranks"
    if job.servers:
        return "the reference has its parameters itself, and the row has them on servers"
    if job.input != "synthetic":
        return "the reference reads no files"
    if not find_spec(f"dlperf.adapters.{ADAPTER}.{job.family}"):
        return f"no {job.family} is written out in NumPy"
    if spec.emulate_cpu:
        return "an emulated CPU has no time for the reference"
    return ""


def trained(job: Job) -> tuple[str, ...]:
    """The names of what is trained, not counted."""
    return tuple(decayed(job))


def masks(job: Job) -> measured.Masks | None:
    """What a job's dropout may do, where it has dropout."""
    return (measured.OF_ADAM if is_adam(job) else measured.OF_SGD) if drops(job.model) else None


def drops(model: str) -> bool:
    """Whether a model trains with dropout."""
    return bool(getattr(models.config(model), "dropout", 0.0))


def places_dropout(job: Job) -> bool:
    """Whether a row is looked at where its dropout stands. In float16 a loss scale would skip the step. Behind a
    LayerNorm of sums gradients overflow: what is dropped whole has no variance."""
    pre_norm = getattr(models.config(job.model), "pre_norm", True)
    return drops(job.model) and pre_norm and job.precision != "amp_fp16"


def recipe(job: Job) -> Any:
    """The constants of a job's optimizer."""
    return models.family(job.model).optimizer(job.global_batch_size)


def is_adam(job: Job) -> bool:
    return models.moments(job.model) == 2


def decayed(job: Job) -> dict[str, bool]:
    """The names of what is trained and settled, and of each whether it decays."""
    parameters = models.family(job.model).parameters(models.config(job.model))
    return {one.name: one.decayed for one in parameters if one.trained and one.settled}


def tables(job: Job) -> list[str]:
    """Names of the tables of which a step updates the rows that it looks up alone."""
    family = models.family(job.model)
    of_rows = hasattr(family, "BUSY")
    return [one.name for one in family.parameters(models.config(job.model)) if of_rows and one.kind == "embedding"]


def adam_faults(job: Job, told: Marks, since: int = 0) -> Iterator[str]:
    """See `optimizer.faults`. since: steps before. In float16 a loss scale skips steps, and how many is not known; on
    servers that take pushes as they come, other workers' updates are between two states of one."""
    if is_adam(job) and job.precision != "amp_fp16" and not (job.ps_mode == "async" and job.world_size > 1):
        yield from optimizer.faults(told.states, told.moments, decayed(job), recipe(job), since, tables(job))


def sgd_faults(job: Job, told: Marks, held: Reference | None) -> Iterator[str]:
    """See `optimizer.faults_of_sgd`. held: what the run is held against."""
    if held and hasattr(recipe(job), "momentum") and job.precision != "amp_fp16":
        most = optimizer.SGD if job.precision == "fp32" else optimizer.SGD_OF_HALVES
        first, second = held.first.states, held.second.states
        yield from optimizer.faults_of_sgd(told.states, first, second, decayed(job), recipe(job), most)


def pair(job: Job, protocol: Protocol, revealing: bool = False) -> tuple[Asked, Asked]:
    """The two runs that tell how far apart right runs of a job are. revealing: those from revealing weights, without
    dropout."""
    if drops(job.model) and not revealing:
        first, second = (Asked(job, "fp32", seed, protocol) for seed in SEEDS)
        return first, second
    own = job.precision if job.precision in SLOWER else "amp_bf16"  # fp16 and tf32 round less
    first, second = (Asked(job, one, SEEDS[0], protocol, revealing) for one in ("fp64", own))
    return first, second


def placing(job: Job, protocol: Protocol) -> tuple[Asked, Asked]:
    """The two runs that tell which gradients are zero where dropout drops nearly all."""
    first, second = (Asked(job, "fp32", seed, steps_alone(protocol, 1), placing=True) for seed in SEEDS)
    return first, second


def work(job: Job) -> tuple[object, ...]:
    """What rows have in common that are held against the same runs."""
    return (job.model, job.precision, job.batch_size, *sorted(work_options(job).items()))


def pairs(jobs: Sequence[Job]) -> list[tuple[Job, bool]]:
    """Of these rows, what pairs of runs are needed: a job, and `pair`'s revealing."""
    alike = {work(job): job for job in jobs}.values()
    return [(job, revealing) for job in alike for revealing in (False, True)]


def budget(jobs: Sequence[Job], protocol: Protocol, seconds: float) -> float:
    """Seconds for each pair of runs that these rows need. seconds: that the comparison is expected to take."""
    least = SECONDS if protocol.name in ("quick", "fast") else 0.0
    return max(least, SHARE * seconds / max(1, len(pairs(jobs))))


def affordable(job: Job, protocol: Protocol, threads: int, budget: float, revealing: bool = False) -> Protocol | None:
    """As much of a protocol as both runs make in so many seconds: all, its first window, its warm-up, two steps, or
    nothing; from revealing weights some steps. The least of these may take SECONDS."""
    some = [protocol, replace(protocol, windows=1), replace(protocol, windows=0), _first_steps(protocol)]
    choices = _few(job, protocol) if revealing else some
    for one in choices:
        most = max(budget, SECONDS) if one == choices[-1] else budget
        if sum(seconds(asked, threads) for asked in pair(job, one, revealing)) <= most:
            return one
    return None


def _few(job: Job, protocol: Protocol) -> list[Protocol]:
    """For how many steps a run from revealing weights may be trained, most first. It costs a row one more process."""
    most = REVEALING if models.family(job.model).SMOOTH else REVEALING_KINKS
    most = min(most, protocol.warmup_steps + protocol.windows * protocol.steps_per_window)
    return [steps_alone(protocol, steps) for steps in range(most, 1, -1)]


def steps_alone(protocol: Protocol, steps: int) -> Protocol:
    """So many steps of warm-up, and no window."""
    return replace(protocol, warmup_steps=steps, windows=0, warmup_seconds=0.0, window_seconds=0.0)


def _first_steps(protocol: Protocol) -> Protocol:
    return steps_alone(protocol, min(2, protocol.warmup_steps))


def seconds(asked: Asked, threads: int) -> float:
    """What a run takes, roughly."""
    steps = asked.protocol.warmup_steps + asked.protocol.windows * asked.protocol.steps_per_window
    work = models.flops(asked.job.model) * asked.job.batch_size
    return steps * work * SLOWER[asked.precision] / FLOPS / min(threads, CORES)


def kept(asked: Asked, code: str, seed: int) -> Path:
    """Where the cache has a run of the reference, or would have it."""
    p = asked.protocol
    work = (definition(asked.job.model), asked.job.batch_size, asked.precision, asked.dropout_seed, seed)
    parts = (
        *work,
        *(asked.revealing, p.warmup_steps, p.windows, p.steps_per_window),
        *(sorted(work_options(asked.job).items()), code),
    )
    return cache.folder() / "references" / f"{asked.name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def kept_names() -> frozenset[str]:
    """Of the runs in the cache, of whatever code and seed: a cheap guess, for estimates."""
    with suppress(OSError):
        return frozenset(one.name.rpartition("-")[0] for one in (cache.folder() / "references").iterdir())
    return frozenset()


def checksums(folder: Path) -> str:
    """Of what a run of the reference wrote down; against damage. OSError or ValueError where that is not there."""
    return "".join(f"{hashlib.sha256(content(folder / name)).hexdigest()}  {name}\n" for name in (EVENTS, STATES))
