"""The batches of one rank: synthetic ones, or rows of a prepared data folder."""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from dlperf import models
from dlperf.models.traits import Epoch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf.adapters.api import Job
    from dlperf.adapters.ranks import Ranks

    Batch = Dict[str, NDArray[Any]]


def counter(job: "Job", ranks: "Ranks") -> Callable[[int, int], int]:
    """What says how many of the family's SAMPLE some steps have over all ranks, of the number of the first, from 0, and
    how many steps there are."""
    family = models.family(job.model)
    each = job.batch_size * ranks.world_size * models.units(job.model)
    reads = models.input_of(job.model)
    if job.input == "synthetic" or not family.COUNTED or reads is None:
        return lambda first, steps: steps * each
    rows = reads.Rows(
        job.data_dir or "", models.config(job.model), job.batch_size, ranks.rank, ranks.world_size, job.seed
    )
    totals = [-1] * len(rows)  # each is read once

    def total(index: int) -> int:
        if totals[index] < 0:
            totals[index] = int(rows.total(index, family.COUNTED))
        return totals[index]

    return lambda first, steps: sum(total((first + step) % len(rows)) for step in range(steps))


class Batches:
    """Batch number `step` is `batches[step]`: a dict of C-contiguous numpy arrays, the same in every framework.

    With synthetic input there are `job.distinct_batches` different ones, made once and used in turn, so that numpy
    costs nothing while training is timed; with a data folder each step has fresh rows. Ranks have different batches;
    with job.trace_steps, for checking, all ranks together have the batch that one rank of that global size would have.
    `len(batches)` is the number of distinct batches; `pool()` lists them, for an adapter that puts synthetic batches
    on the device beforehand.

    A family's TOTALS are in each batch besides.
    """

    def __init__(self, job: "Job", ranks: "Ranks"):
        self._job, self._ranks = job, ranks
        self._family, self._config = models.family(job.model), models.config(job.model)
        self.synthetic = job.input == "synthetic"
        self._rows: Optional[Epoch] = None
        if self.synthetic:
            self._made = [self._synthetic(index) for index in range(job.distinct_batches)]
        else:
            reads = models.input_of(job.model)
            if reads is None:
                raise ValueError(f"{job.data_dir}: {job.model} has synthetic batches alone")
            place = (ranks.rank, ranks.world_size)
            self._rows = reads.Rows(job.data_dir or "", self._config, job.batch_size, *place, job.seed)

    def __len__(self) -> int:
        return len(self._made if self._rows is None else self._rows)

    def __getitem__(self, step: int) -> "Batch":
        index = step % len(self)
        if self._rows is None:
            return self._made[index]
        rows = self._rows
        return self._with_totals(rows[index], lambda field: rows.total(index, field))

    def pool(self) -> "List[Batch]":
        return [self[index] for index in range(len(self))]

    def _with_totals(self, batch: "Batch", total: Callable[[str], float]) -> "Batch":
        """total: of an array, its sum over the global batch."""
        import numpy

        world_size = self._ranks.world_size
        totals = {name: numpy.array(total(field) / world_size) for name, field in self._family.TOTALS.items()}
        return {**batch, **totals}

    def _synthetic(self, index: int) -> "Batch":
        ranks = self._ranks
        batch = self._of_rank(ranks.rank, index)
        if not self._family.TOTALS:
            return batch
        others = [self._of_rank(rank, index) for rank in range(ranks.world_size) if rank != ranks.rank]

        def total(field: str) -> float:
            return sum(float(one[field].sum(dtype="float64")) for one in (batch, *others))

        return self._with_totals(batch, total)

    def _of_rank(self, rank: int, index: int) -> "Batch":
        import numpy

        job, size = self._job, self._job.batch_size
        if not job.trace_steps:
            return self._family.batch(self._config, size, job.seed, rank * job.distinct_batches + index)
        whole = self._family.batch(self._config, size * self._ranks.world_size, job.seed, index)
        rows = slice(rank * size, (rank + 1) * size)
        return {name: numpy.ascontiguousarray(array[rows]) for name, array in whole.items()}
