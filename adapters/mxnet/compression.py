"""Deep gradient compression in MXNet, see dlperf.adapters.compression; over Horovod, since a KVStore only adds up."""

from mxnet import nd

from dlperf.adapters.compression import deep, density, first, kept
from dlperf.adapters.mxnet.communication import Horovod


class Deep(Horovod):
    """A weight's u and v lie one after the other in two arrays, of which those of one weight are views.

    trained: of each weight itself, its gradient, and whether it decays.
    """

    def __init__(self, job, ranks, trained, recipe):
        whole = [gradient for _, gradient, _ in trained if not deep(gradient)]
        super().__init__(job, ranks, whole)
        self._job, self._recipe, self._size, self._step, self._sent = job, recipe, ranks.world_size, 0, 0
        self._deep = [one for one in trained if deep(one[0])]
        self._lengths = [weight.size for weight, _, _ in self._deep]
        like = self._deep[0][0]
        self._u, self._v = (nd.zeros(sum(self._lengths), ctx=like.context, dtype=like.dtype) for _ in "uv")
        self._us, self._vs = (list(_split(held, self._lengths)) for held in (self._u, self._v))
        if job.trace_steps:
            for v, (weight, _, _) in zip(self._vs, self._deep):
                v[:] = nd.array(first(weight.shape).ravel(), ctx=v.context, dtype=v.dtype)
        self.description = f"deep gradient compression: topk, allgather ({self.description})"

    def add_gradients(self):
        """Of weights that are not compressed; of the others those of all ranks change the weight, too."""
        share = density(self._job, self._step)
        self._step += 1
        super().add_gradients()
        self._sent = sum(gradient.size * gradient.dtype().itemsize for gradient in self._gradients)
        counts = [kept(length, share) for length in self._lengths]
        self._accumulate()
        values, places = (self._gathered(name, parts) for name, parts in self._taken(counts))
        for rank in range(self._size):  # so that all round alike
            parts = (_split(found[rank], counts) for found in (values, places))
            for (weight, gradient, _), value, place in zip(self._deep, *parts):
                _add(weight, place, value * (-self._recipe.learning_rate / self._size))
                if self._job.trace_steps:
                    if rank == 0:
                        gradient[:] = 0
                    _add(gradient, place, value)

    def _accumulate(self):
        self._u *= self._recipe.momentum
        for u, (weight, gradient, decayed) in zip(self._us, self._deep):
            u += gradient.reshape(-1)
            if decayed:
                u += self._recipe.weight_decay * weight.reshape(-1)
        self._v += self._u

    def _taken(self, counts):
        """What is sent of each weight, and its places there; it is zero from now on."""
        places = [nd.topk(v.abs(), k=count, ret_typ="indices", dtype="int32") for v, count in zip(self._vs, counts)]
        values = [nd.take(v, place) for v, place in zip(self._vs, places)]
        for held in (self._us, self._vs):
            for one, place in zip(held, places):
                _put(one, place, nd.zeros(place.size, ctx=one.context, dtype=one.dtype))
        return ("values", values), ("places", places)

    def _gathered(self, name, parts):
        """Of all ranks: (ranks, values)."""
        own = nd.concat(*parts, dim=0)
        self._sent += own.size * own.dtype().itemsize
        return self._hvd.allgather(own, name=name).reshape((self._size, -1))

    def sent_bytes(self, gradients):
        """Counted in the last step."""
        return self._sent


def _split(array, lengths):
    begin = 0
    for length in lengths:
        yield array[begin : begin + length]
        begin += length


def _add(tensor, places, values):
    """Each place is there once."""
    flat = tensor.reshape(-1)
    _put(flat, places, nd.take(flat, places) + values)


def _put(flat, places, values):
    nd._internal._scatter_set_nd(lhs=flat, rhs=values, indices=places.reshape((1, -1)), shape=flat.shape, out=flat)
