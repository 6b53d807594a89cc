"""The batches of one rank: synthetic ones, or rows of a prepared data folder."""

import numpy

from dlperf import models
from dlperf.models import pretraining


class Batches:
    """Batch number `step` is `batches[step]`: a dict of C-contiguous numpy arrays, the same in every framework.

    With synthetic input there are `job.distinct_batches` different ones, made once and used in turn, so that numpy
    costs nothing while training is timed; with a data folder each step has fresh rows. Ranks have different batches;
    with job.trace_steps, for checking, all ranks together have the batch that one rank of that global size would have.
    `len(batches)` is the number of distinct batches; `pool()` lists them, for an adapter that puts synthetic batches
    on the device beforehand.

    BERT's batches have one array more, `masked_total`, float64 (): the sum of masked_weights, averaged over the ranks.
    The masked-word loss is divided by it, so that the mean of the ranks' losses is the loss of the global batch,
    however many words each rank has masked.
    """

    def __init__(self, job, ranks):
        self._job, self._ranks = job, ranks
        self._family, self._config = models.family(job.model), models.config(job.model)
        self.synthetic = job.input == "synthetic"
        if self.synthetic:
            self._batches = [self._synthetic(index) for index in range(job.distinct_batches)]
        else:
            self._batches = pretraining.Rows(
                job.data_dir, self._config, job.batch_size, ranks.rank, ranks.world_size, job.seed
            )

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, step):
        index = step % len(self._batches)
        batch = self._batches[index]
        return batch if self.synthetic else self._with_total(batch, self._batches.masked_words(index))

    def pool(self):
        return [self[index] for index in range(len(self))]

    def _with_total(self, batch, masked_words):
        return dict(batch, masked_total=numpy.array(masked_words / self._ranks.world_size, "float64"))

    def _synthetic(self, index):
        ranks = self._ranks
        batch = self._of_rank(ranks.rank, index)
        if "masked_weights" not in batch:
            return batch
        others = (self._of_rank(rank, index) for rank in range(ranks.world_size) if rank != ranks.rank)
        counts = [one["masked_weights"].sum(dtype="float64") for one in (batch, *others)]
        return self._with_total(batch, sum(counts))

    def _of_rank(self, rank, index):
        job, size = self._job, self._job.batch_size
        if not job.trace_steps:
            return self._family.batch(self._config, size, job.seed, rank * job.distinct_batches + index)
        whole = self._family.batch(self._config, size * self._ranks.world_size, job.seed, index)
        rows = slice(rank * size, (rank + 1) * size)
        return {name: numpy.ascontiguousarray(array[rows]) for name, array in whole.items()}
