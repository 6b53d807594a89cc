"""The batches of one rank: synthetic ones, or rows of a prepared data folder."""

from dlperf import models
from dlperf.models import pretraining


class Batches:
    """Batch number `step` is `batches[step]`: a dict of C-contiguous numpy arrays, the same in every framework.

    With synthetic input there are `job.distinct_batches` different ones, made once and used in turn, so that numpy
    costs nothing while training is timed; with a data folder each step has fresh rows. Ranks have different batches.
    `len(batches)` is the number of distinct batches; `pool()` lists them, for an adapter that puts synthetic batches
    on the device beforehand.
    """

    def __init__(self, job, ranks):
        family, config = models.family(job.model), models.config(job.model)
        if job.input == "synthetic":
            first = ranks.rank * job.distinct_batches
            self._batches = [
                family.batch(config, job.batch_size, job.seed, first + index) for index in range(job.distinct_batches)
            ]
        else:
            self._batches = pretraining.Rows(
                job.data_dir, config, job.batch_size, ranks.rank, ranks.world_size, job.seed
            )
        self.synthetic = job.input == "synthetic"

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, step):
        return self._batches[step % len(self._batches)]

    def pool(self):
        return [self[index] for index in range(len(self))]
