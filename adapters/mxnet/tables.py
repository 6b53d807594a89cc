"""Tensors in a KVStore of MXNet, here or on parameter servers, whose optimizer updates them: of tables a step pulls the
rows that it looks up, row_sparse, and pushes their gradients; all other tensors it pulls and pushes whole."""

import ctypes
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from mxnet import autograd, nd
from mxnet.ndarray import sparse

from dlperf.adapters import base
from dlperf.adapters.api import Sparse, Unsupported
from dlperf.adapters.mxnet import communication, optimizers
from dlperf.models.parameters import count, initial


class Lookup(NamedTuple):
    """What a batch needs. ids: by table, int64, ascending, each once. places: of each row that the network asked for,
    where among these it is. pulled: by tensor, the arrays that the KVStore fills, of tables row_sparse. seen: as Store
    has it."""

    ids: Any
    places: Any
    pulled: Any
    seen: Any


class Feed(base.Feed):
    """Batches whose integers are as NumPy has them: what a step looks rows up by."""

    def __init__(self, job, ranks):
        self._dtype = job.weights_dtype
        super().__init__(job, ranks)

    def _tensor(self, array):
        return nd.array(array, dtype=self._dtype) if array.dtype.kind == "f" else array


def serve(job, ranks):
    """See dlperf.adapters.api.ModelModule."""
    communication.serve(job, ranks)
    (optimizer,) = optimizers.SERVING or [None]
    if optimizer is None:
        return {}
    stale = {str(many): often for many, often in sorted(optimizer.stale.items())}
    return {"pushes": optimizer.pushes, "stale": stale}


class Store:
    """The trained tensors of a job in a KVStore, by name. tables: names of those of which rows are pulled and pushed.
    joined: names of tables -> of others, whose rows these have to the right of their own: one message carries both.
    optimizer: the KVStore's, a RowsSGD or LazyAdam.

    shapes: of what the KVStore has, by name. dtype: of what is pulled and pushed. kernel: what updates, in words.
    moments: names of those that the optimizer keeps."""

    def __init__(self, job, ranks, tables, optimizer, joined=MappingProxyType({})):
        self._job, self._tables = job, tables
        # servers may keep float64 or not, as communication.KVStore._add_exactly says: so they are given float32
        self.dtype = "float32" if job.servers else job.weights_dtype
        self.kernel = f"{optimizer.kernels[self.dtype]} of the KVStore"
        self._parts = {one.name: [one] for one in base.parameters(job) if one.trained}
        for name, others in joined.items():
            self._parts[name] += [part for other in others for part in self._parts.pop(other)]
        self.shapes = {
            name: first.shape if not more else (first.shape[0], sum(one.shape[1] for one in (first, *more)))
            for name, (first, *more) in self._parts.items()
        }
        self._keys = {name: key for key, name in enumerate(self.shapes)}
        self._store = communication.store(job, ranks)
        workers = ranks.world_size if job.ps_mode == "sync" else 1  # a server adds up what they push
        optimizer.rescale_grad = 1 / workers
        self._store.set_optimizer(optimizer)
        for name in self.shapes:
            self._store.init(self._keys[name], self._first(name))
        self.moments, self._counts = optimizer.moments, optimizer.counts
        for moment in self.moments:
            self._keep(moment)
        self.pushes = 0 if job.servers else None
        # Tables of which rows are on their way. A worker of MXNet 1.9.1 has one list of rows for a table, which a push
        # and a pull write: with both under way one of ten runs died (kv_app.h, lens->size() == keys.size())
        self._pushed, self._pulled = set(), {}
        if job.servers:
            self._store.init(self._counts, nd.zeros(job.servers))

    @property
    def description(self):
        return f"parameter servers ({self._job.ps_mode}): KVStore {self._store.type}"

    def _first(self, name, **instead):
        """The initial values. instead: of what models.parameters has of them. Servers take those of the worker that the
        KVStore counts as its first. All rows of a table are there, zeros too: a server of MXNet 1.9.1 dies of an array
        that has none."""
        shape = self.shapes[name]
        if self._store.rank:
            return nd.zeros(shape, dtype=self.dtype, stype="row_sparse" if name in self._tables else "default")
        parts = [initial(one._replace(**instead), self._job.seed, self.dtype) for one in self._parts[name]]
        values = nd.array(np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0], dtype=self.dtype)
        if name not in self._tables:
            return values
        return sparse.row_sparse_array((values, nd.arange(shape[0], dtype="int64")), shape=shape)

    def _keep(self, moment):
        """Have the optimizer keep a moment as tensors of the KVStore, which workers can pull. It is shown each by a
        push of zeros: of a table, in a row of each server."""
        servers = max(1, self._job.servers)
        for name, shape in self.shapes.items():
            key = self.moments[moment] + self._keys[name]
            self._store.init(key, self._first(name, init="zeros"))
            if name in self._tables:
                rows = nd.array([shape[0] * (2 * one + 1) // (2 * servers) for one in range(servers)], dtype="int64")
                values = nd.zeros((servers, *shape[1:]), dtype=self.dtype)
                self._store.push(key, sparse.row_sparse_array((values, rows), shape=shape))
            else:
                self._store.push(key, nd.zeros(shape, dtype=self.dtype))
        nd.waitall()

    def _key(self, name, moment):
        return self._keys[name] + (self.moments[moment] if moment else 0)

    def pull_rows(self, name, ids, moment=None):
        """Of a table, or of a moment of it: row_sparse. ids: int64, ascending, each once."""
        if name in self._pushed:
            nd.waitall()
            self._pushed.clear()
        pulled = sparse.zeros("row_sparse", self.shapes[name], dtype=self.dtype)
        self._store.row_sparse_pull(self._key(name, moment), out=pulled, row_ids=ids)
        self._pulled[name] = pulled
        return pulled

    def pull(self, name, moment=None, out=None):
        """All of a tensor, or of a moment of it."""
        pulled = nd.empty(self.shapes[name], dtype=self.dtype) if out is None else out
        self._store.pull(self._key(name, moment), out=pulled)
        return pulled

    def push(self, name, gradient, ids=None):
        """ids: of a table, the rows that the gradient has."""
        gradient = gradient.astype(self.dtype, copy=False)
        if ids is not None:
            gradient = sparse.row_sparse_array((gradient, ids), shape=self.shapes[name])
            if name in self._pulled:
                self._pulled.pop(name).data.wait_to_read()
            self._pushed.add(name)
        self._store.push(self._keys[name], gradient)

    def seen(self):
        """How many updates each server has applied: as far as the engine, which may pull other tensors before or
        after, tells."""
        if not self._job.servers:
            return None
        found = nd.empty(self._job.servers)
        self._store.pull(self._counts, out=found)
        return found

    def tell(self, seen):
        """With a push: how many updates were there when its tensors were pulled."""
        if seen is not None:
            self._store.push(self._counts, seen)
            self.pushes += self._job.servers

    def whole(self, moment=None):
        """All tensors, or a moment of each, as NumPy has them."""
        for name, shape in self.shapes.items():
            if name in self._tables:
                pulled = self.pull_rows(name, nd.arange(shape[0], dtype="int64"), moment)
            else:
                pulled = self.pull(name, moment)
            yield from self.parts(name, self.values(pulled).asnumpy())

    def parts(self, name, values):
        """The tensors that the KVStore has by one name: theirs, and their values. values: all of it, or some rows."""
        parts = self._parts[name]
        if len(parts) == 1:
            return [(name, values)]
        ends = np.cumsum([one.shape[1] for one in parts[:-1]])
        return zip((one.name for one in parts), np.split(values, ends, axis=1))

    def values(self, pulled):
        """Those of its rows, or all, in the type of the job's weights."""
        values = pulled.data if pulled.stype == "row_sparse" else pulled
        return values.astype(self._job.weights_dtype, copy=False)

    def meet(self):
        self._store._barrier()

    def close(self):
        """As communication.KVStore.close: with the other workers, and without waiting for long."""
        nd.waitall()
        if self._job.servers:
            self._store._barrier()
            communication.leave(self._free)

    def _free(self):
        self._store = None


class Trainer(base.Trainer):
    """network: has `looked_up`: batch -> rows by table, in any order, some more than once; all other tensors come
    whole; and `compiled`, what makes one program of it. loss: network, batch, tensors by name, places as Lookup has
    them -> scalar, logits. optimizer: as Store has it. joined: as Store has it.

    With async the tensors for the next batch are pulled while this one is trained on; where steps are checked, nothing
    overlaps."""

    def __init__(self, job, ranks, network, loss, optimizer, joined=MappingProxyType({})):
        if ranks.world_size > 1 and not job.servers:
            raise Unsupported(
                f"{job.model} in MXNet has its tables in one process or on parameter servers: add --servers"
            )
        super().__init__(job, Feed(job, ranks), {"tables": "rows of a batch"})
        self._network, self._loss, self._ranks = network, loss, ranks
        self._tables = list(network.looked_up(self._feed[0]))
        self._store = Store(job, ranks, self._tables, optimizer, joined)
        self._whole = [name for name in self._store.shapes if name not in self._tables]
        self._ahead = job.ps_mode == "async" and not job.trace_steps
        self._next, self._logits, self._gradients = None, (), {}
        self.parameter_count = count(base.parameters(job))
        self.gradient_bytes = 0
        self.effective.update(
            compile=network.compiled,
            threads=str(ctypes.CDLL("libgomp.so.1").omp_get_max_threads()),
            optimizer=self._store.kernel,
        )
        if job.servers:
            self.effective["communication"] = self._store.description
            self.effective["server_dtype"] = self._store.dtype
            self.effective["overlap"] = "rows of the next batch are pulled during a step" if self._ahead else "none"

    def _ask(self, batch):
        looked_up = self._network.looked_up(batch)
        found = {name: np.unique(rows, return_inverse=True) for name, rows in looked_up.items()}
        # nd.array, which copies, takes six times as long
        ids = {name: nd.from_numpy(unique.astype("int64")) for name, (unique, _) in found.items()}
        places = {name: nd.from_numpy(where.astype("int32")) for name, (_, where) in found.items()}
        seen = self._store.seen()
        # after all that needs no answer: it may wait for what was pushed
        pulled = {name: self._store.pull_rows(name, rows) for name, rows in ids.items()}
        for name in self._whole:
            pulled[name] = self._store.pull(name)
        return Lookup(ids, places, pulled, seen)

    def _step(self, batch):
        asked = self._next or self._ask(batch)
        values = {name: self._store.values(one) for name, one in asked.pulled.items()}
        if self._ahead:
            self._next = self._ask(self._feed[self._steps + 1])
        for one in values.values():
            one.attach_grad()
        with autograd.record():
            loss, logits = self._loss(self._network, batch, values, asked.places)
        loss.backward()
        gradients = {name: one.grad for name, one in values.items()}
        self._push(asked.ids, gradients)
        self._store.tell(asked.seen)
        if self._job.trace_steps:
            self._logits, self._gradients = logits, (asked.ids, gradients)
        self.gradient_bytes = sum(one.size for one in values.values()) * np.dtype(self._store.dtype).itemsize
        return loss

    def _push(self, ids, gradients):
        """Whole ones first: to make a row_sparse array waits for its values."""
        for name in [*self._whole, *self._tables]:
            self._store.push(name, gradients[name], ids.get(name))

    @property
    def pushes(self):
        """Messages that it has sent: one to each server in each step, as far as counts go."""
        return self._store.pushes

    def _observe(self, batch):
        self.shapes = self._network.shapes
        self.effective["compute_dtype"] = np.dtype(self._network.compute_dtype).name

    def wait(self):
        nd.waitall()

    def read(self, loss):
        return loss.asscalar().item()

    def all_reduce(self, count):
        def meet():
            self.wait()
            self._store.meet()
            return float(self._ranks.world_size)

        return meet

    def parameters(self):
        return self._store.whole()

    def moments(self):
        return {moment: self._store.whole(moment) for moment in self._store.moments}

    def logits(self):
        return ((name, value.asnumpy()) for name, value in zip(base.logits(self._job), self._logits))

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        if self._ranks.world_size > 1:
            return
        ids, gradients = self._gradients
        for name, whole in gradients.items():
            for part, values in self._store.parts(name, whole.asnumpy()):
                yield part, Sparse(ids[name].asnumpy(), values) if name in ids else values

    def peak_memory(self):
        return None

    def close(self):
        self._store.close()


class OnServers(communication.OneRank):
    """The optimizer of runtime.Trainer, and what adds up gradients, where a network's weights are on parameter servers:
    a step pushes all gradients and pulls all weights, each as soon as it is there. optimizer: as Store has it."""

    def __init__(self, job, ranks, pairs, optimizer):
        self._store, self._workers = Store(job, ranks, (), optimizer), ranks.world_size
        self._traced = job.trace_steps > 0
        self._trained = [(one.name, gluon.data(), gluon.grad()) for one, gluon in pairs if one.trained]
        self.kernel, self.description = self._store.kernel, self._store.description
        self._seen = self._store.seen()

    @property
    def pushes(self):
        return self._store.pushes

    def step(self, grad_scale):
        for name, _, gradient in self._trained:
            # a pull writes into the array that was pushed last, before it copies from there: that is not to be the
            # gradient where somebody looks at it
            self._store.push(name, gradient.copy() if self._traced else gradient)
        self._store.tell(self._seen)
        self._pull()

    def _pull(self):
        self._seen = self._store.seen()
        for name, weight, _ in self._trained:
            if np.dtype(weight.dtype) == self._store.dtype:
                self._store.pull(name, out=weight)
            else:
                weight[:] = self._store.values(self._store.pull(name))

    def moments(self):
        return {
            moment: [self._store.pull(name, moment) for name, *_ in self._trained] for moment in self._store.moments
        }

    def all_reduce(self, count):
        def meet():
            nd.waitall()
            self._store.meet()
            self._pull()  # what others have pushed meanwhile
            nd.waitall()
            return float(self._workers)

        return meet

    def close(self):
        self._store.close()
