"""Tables in a KVStore of MXNet, here or on parameter servers: a step pulls the rows that it looks up, row_sparse, and
pushes their gradients."""

import ctypes
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd, nd
from mxnet.ndarray import sparse

from dlperf.adapters import base
from dlperf.adapters.api import Sparse
from dlperf.adapters.mxnet import communication
from dlperf.models import word2vec
from dlperf.models.parameters import count, initial


class Lookup(NamedTuple):
    """What a batch needs. ids: by table, int64, ascending, each once. places: as Network has it. pulled: by table, the
    row_sparse arrays that the KVStore fills."""

    ids: Any
    places: Any
    pulled: Any


class Feed(base.Feed):
    """Batches as NumPy has them: what a step hands to MXNet is made from them."""

    def _tensor(self, array):
        return array


class Trainer(base.Trainer):
    """With async the rows of the next batch are pulled before this one's gradients are pushed; where steps are checked,
    nothing overlaps."""

    def __init__(self, job, ranks, network, loss):
        super().__init__(job, Feed(job, ranks), {"tables": "rows of a batch"})
        self._network, self._loss, self._ranks = network, loss, ranks
        recipe = word2vec.optimizer(job.batch_size * ranks.world_size)
        # servers may keep float64 or not, as communication.KVStore._add_exactly says: so they are given float32
        self._dtype = "float32" if job.servers else job.weights_dtype
        self._store = communication.store(job, ranks)
        workers = ranks.world_size if job.ps_mode == "sync" else 1  # a server adds up what they push
        self._store.set_optimizer(
            mx.optimizer.SGD(learning_rate=recipe.learning_rate, rescale_grad=1 / workers, lazy_update=True)
        )
        self._tables = {one.name: one for one in base.parameters(job)}
        for name, parameter in self._tables.items():
            self._store.init(name, self._first(parameter))
        self._ahead = job.ps_mode == "async" and not job.trace_steps
        self._next, self._logits, self._gradients = None, (), {}
        self.parameter_count = count(self._tables.values())
        self.gradient_bytes = 0
        self.effective.update(
            compile="none",
            threads=str(ctypes.CDLL("libgomp.so.1").omp_get_max_threads()),
            optimizer="sgd_update (lazy) of the KVStore",
        )
        if job.servers:
            self.effective["communication"] = f"parameter servers ({job.ps_mode}): KVStore {self._store.type}"
            self.effective["server_dtype"] = self._dtype
            self.effective["overlap"] = "rows of the next batch are pulled during a step" if self._ahead else "none"

    def _first(self, parameter):
        """The initial rows. Servers take those of the worker that the KVStore counts as its first. All of them are
        there, zeros too: a server of MXNet 1.9.1 dies of an array that has none."""
        if self._store.rank:
            return sparse.zeros("row_sparse", parameter.shape, dtype=self._dtype)
        values = nd.array(initial(parameter, self._job.seed, self._dtype), dtype=self._dtype)
        rows = nd.arange(parameter.shape[0], dtype="int64")
        return sparse.row_sparse_array((values, rows), shape=parameter.shape)

    def _ask(self, batch):
        ids, places, pulled = {}, {}, {}
        for name, rows in self._network.looked_up(batch).items():
            found, where = np.unique(rows, return_inverse=True)
            ids[name], places[name] = nd.array(found, dtype="int64"), nd.array(where, dtype="int32")
            pulled[name] = sparse.zeros("row_sparse", self._tables[name].shape, dtype=self._dtype)
            self._store.row_sparse_pull(name, out=pulled[name], row_ids=ids[name])
        return Lookup(ids, places, pulled)

    def _step(self, batch):
        asked = self._next or self._ask(batch)
        rows = {name: one.data.astype(self._job.weights_dtype, copy=False) for name, one in asked.pulled.items()}
        if self._ahead:
            self._next = self._ask(self._feed[self._steps + 1])
        for one in rows.values():
            one.attach_grad()
        with autograd.record():
            loss, logits = self._loss(self._network, rows, asked.places)
        loss.backward()
        for name, one in rows.items():
            shape = self._tables[name].shape
            gradient = one.grad.astype(self._dtype, copy=False)
            self._store.push(name, sparse.row_sparse_array((gradient, asked.ids[name]), shape=shape))
        if self._job.trace_steps:
            self._logits = logits
            self._gradients = {name: (asked.ids[name], one.grad) for name, one in rows.items()}
        self.gradient_bytes = sum(one.size * one.dtype().itemsize for one in rows.values())
        return loss

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
            self._store._barrier()
            return float(self._ranks.world_size)

        return meet

    def parameters(self):
        for name, parameter in self._tables.items():
            rows = sparse.zeros("row_sparse", parameter.shape, dtype=self._dtype)
            every = nd.arange(parameter.shape[0], dtype="int64")
            self._store.row_sparse_pull(name, out=rows, row_ids=every)
            yield name, rows.data.asnumpy().astype(self._job.weights_dtype, copy=False)

    def logits(self):
        return ((name, value.asnumpy()) for name, value in zip(base.logits(self._job), self._logits))

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        if self._ranks.world_size > 1:
            return iter(())
        return ((name, Sparse(ids.asnumpy(), one.asnumpy())) for name, (ids, one) in self._gradients.items())

    def peak_memory(self):
        return None

    def close(self):
        """As communication.KVStore.close: with the other workers, and without waiting for long."""
        self.wait()
        if self._job.servers:
            self._store._barrier()
            communication.leave(self._free)

    def _free(self):
        self._store = None
