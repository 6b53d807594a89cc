"""The trajectories that prove a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlperf import launchers, models
from dlperf.models.parameters import count
from dlperf.planning.plan import file_name
from dlperf.planning.spec import Spec
from dlperf.proof import band
from dlperf.proof.bars import BARS
from dlperf.proof.judge import work_options
from dlperf.schema import Job, Trajectory

#: of every trajectory; the seed is that of the weights and the batches
STEPS, BATCH_SIZE, SEED = 10, 4, 1
#: of a row of several ranks, whatever their number: what may go wrong with many goes wrong with two
RANKS = 2
#: values that the products of a batch give, at most: rows of 1024 tokens are fewer than BATCH_SIZE, whose logits alone
#: would take gigabytes
VALUES = 200_000_000
#: on a GPU, which hardly feels one: how many at a time at most, and the threads that each compiles its step with
AT_ONCE, COMPILING = 4, 4
#: memory of a run, in bytes: for each parameter in float64, as BERT-base took most (OneFlow, 7.5 GiB), for each of
#: VALUES, and besides
PER_PARAMETER, PER_VALUE, BESIDES = 72, 56, 2**30


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
        apart = f"-{self.servers}s-{self.job.ps_mode}" if self.servers else ""
        return file_name(f"{self.model}-{self.precision}-{self.job.system}{apart}{of_ranks('-{}ranks', self.ranks)}")

    @property
    def title(self) -> str:
        apart = f", {self.job.ps_mode}" if self.servers else ""
        return f"{self.job.system}: {self.model}, {self.precision}{apart}{of_ranks(', {} ranks', self.ranks)}"

    @property
    def in_band(self) -> bool:
        """Whether it has no one result, see dlperf.proof.band."""
        return self.ranks > 1 and self.job.ps_mode == "async"

    @property
    def servers(self) -> int:
        """Parameter servers: one beside one rank, if the row has any."""
        return min(self.job.servers, 1) if self.ranks == 1 else self.job.servers

    @property
    def steps(self) -> int:
        return steps(self.model)

    @property
    def options(self) -> Mapping[str, str]:
        """Those of the run: one rank exchanges no gradients that could be compressed."""
        options = self.job.options
        return {**options, "compression": "none"} if self.ranks == 1 and "compression" in options else options

    @property
    def run(self) -> Job:
        """The job that makes it, on synthetic input. Ranks are placed as in the row: on one node if it has several
        there, else on several nodes."""
        nnodes = 1 if self.job.nproc_per_node >= self.ranks else self.ranks
        return replace(
            self.job,
            model=self.model,
            precision=self.precision,
            options=self.options,
            batch_size=batch_size(self.model) // self.ranks,
            data_dir=None,
            nnodes=nnodes,
            nproc_per_node=self.ranks // nnodes,
            launcher=self.job.launcher if self.ranks > 1 else "local",
            servers=self.servers,
            bandwidth=0.0,
            latency=0.0,  # what is computed does not depend on it
        )

    @property
    def pool(self) -> tuple[object, ...]:
        """What must be the same for two trajectories to be compared."""
        work = tuple(sorted(work_options(self.run).items()))
        return self.model, self.precision, self.job.device, work, self.ranks, self.servers, self.job.ps_mode


def of_ranks(text: str, ranks: int) -> str:
    """Nothing for one rank."""
    return text.format(ranks) if ranks > 1 else ""


def trajectories(job: Job, alone: bool = False, full_size: bool = False) -> list[Asked]:
    """The trajectories that prove a row: in float64 on small input, and in its own precision.

    float32 runs at the real size, where its losses must agree with those of the others; low precision on small input.
    A row of several ranks has one more: in float64 by RANKS ranks together, whose mean must be that of the whole batch;
    where parameter servers apply each push by itself, which has no one result, its losses must be within a band.
    alone: only the one in its own precision. full_size: that one at the real size, in any case.
    """
    float64 = _float64(job)
    judged = job.ps_mode in ("", "sync") or (job.ps_mode == "async" and band.known(float64.model))
    together = [replace(float64, ranks=RANKS)] if job.world_size > 1 and judged else []
    if full_size:
        return [Asked(job, job.model, job.precision)]
    own = Asked(job, job.model if job.precision == "fp32" else job.model + "_check", job.precision)
    return ([own] if alone or job.precision == "fp64" else [float64, own]) + together


def needed(job: Job, alone: bool = False, full_size: bool = False) -> list[Asked]:
    """Those of `trajectories`, and those that the bound of low precision comes from."""
    asked = trajectories(job, alone, full_size)
    low = [one for one in asked if one.precision not in BARS]
    return [replace(one, precision=precision) for one in low for precision in ("fp64", "fp32")] + asked


def _float64(job: Job) -> Asked:
    return Asked(job, job.model + "_check", "fp64")


def own_statistics(model: str) -> bool:
    """Whether each rank normalises over its own part of the batch."""
    return bool(models.family(model).normalised(models.config(model)))


def compressed(of: Job | Trajectory) -> str:
    """How ranks compress the gradients that they exchange; empty if they do not."""
    kind = of.options.get("compression", "none")
    return "" if kind == "none" else kind


def steps(model: str) -> int:
    """Of a trajectory: STEPS, but of a network that takes rounding further than float32 can be held to."""
    return int(getattr(models.family(model), "STEPS_OF_PROOF", {}).get(model, STEPS))


def batch_size(model: str) -> int:
    """Of a trajectory: rows over all ranks."""
    values = models.family(model).activations(models.config(model))
    return max(1, min(BATCH_SIZE, VALUES // values))


def memory(one: Asked) -> int:
    """Bytes that a run takes, roughly; each of its ranks takes as many."""
    family, config = models.family(one.model), models.config(one.model)
    values = PER_PARAMETER * count(family.parameters(config))
    values += PER_VALUE * batch_size(one.model) * family.activations(config)
    return BESIDES + values // (1 if one.precision == "fp64" else 2)


def threads(spec: Spec) -> int:
    """That proofs have together: those of all ranks of this machine."""
    nodes = launchers.find(spec.launcher).nodes_here(max(spec.nnodes))
    return spec.threads * nodes * max(spec.nproc_per_node)


def at_once(alone: Sequence[Asked], threads: int, available: int, cards: Sequence[int | None] = ()) -> int:
    """How many trajectories of one rank are made at a time. available: bytes of memory; cards: of each GPU, None where
    that is not known."""
    needed = 2 * max((memory(one) for one in alone), default=0)
    if all(one.job.device == "cpu" for one in alone):
        return 2 if threads > 1 and available >= needed else 1
    room = min(available, *(card or 0 for card in cards)) if cards else 0
    return max(1, min(AT_ONCE, threads // COMPILING, room // max(needed, 1)))
