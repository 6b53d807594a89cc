"""Sums over the ranks by Horovod, with --set communication=horovod."""

import horovod.mxnet as hvd
from mxnet import nd

from dlperf.adapters import horovod


class Sums:
    """Sums of arrays over all ranks, in place, as dlperf.adapters.mxnet.kvstore has them: operations of the engine."""

    def __init__(self, job, ranks, device, gradients):
        horovod.prepare(ranks, job.meeting_seconds)
        hvd.init()
        self._device, self._gradients = device, gradients
        self.description = f"horovod.mxnet.allreduce_ ({'nccl' if hvd.nccl_built() else 'gloo'})"

    def add_gradients(self):
        for key in reversed(range(len(self._gradients))):  # as the backward pass computes them
            hvd.allreduce_(self._gradients[key], op=hvd.Sum, name=f"gradient {key}", priority=-key)

    def of_ones(self, count):
        """A call that adds up `count` ones and returns the first sum."""
        values = nd.zeros(count, ctx=self._device)

        def add_up():
            values[:] = 1
            hvd.allreduce_(values, op=hvd.Sum, name=f"ones {count}")
            return values[:1].asscalar().item()

        return add_up

    def close(self):
        hvd.shutdown()
