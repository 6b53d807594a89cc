"""Tensors in a KVStore of MXNet, here or on parameter servers, whose optimizer updates them: of tables a step pulls the
rows that it looks up, row_sparse, and pushes their gradients; all other tensors it pulls and pushes whole."""

import ctypes
from typing import Any, NamedTuple

import numpy as np
from mxnet import autograd, nd
from mxnet.ndarray import sparse

from dlperf.adapters import base
from dlperf.adapters.api import Sparse, Unsupported
from dlperf.adapters.mxnet import communication
from dlperf.models.parameters import count, initial


class Lookup(NamedTuple):
    """What a batch needs. ids: by table, int64, ascending, each once. places: of each row that the network asked for,
    where among these it is. pulled: by tensor, the arrays that the KVStore fills, of tables row_sparse."""

    ids: Any
    places: Any
    pulled: Any


class Feed(base.Feed):
    """Batches whose integers are as NumPy has them: what a step looks rows up by."""

    def __init__(self, job, ranks):
        self._dtype = job.weights_dtype
        super().__init__(job, ranks)

    def _tensor(self, array):
        return nd.array(array, dtype=self._dtype) if array.dtype.kind == "f" else array


class Trainer(base.Trainer):
    """network: has `looked_up`: batch -> rows by table, in any order, some more than once; all other tensors come
    whole. loss: network, batch, tensors by name, places as Lookup has them -> scalar, logits. optimizer: the KVStore's,
    a RowsSGD or LazyAdam.

    With async the tensors for the next batch are pulled before this one's gradients are pushed; where steps are
    checked, nothing overlaps."""

    def __init__(self, job, ranks, network, loss, optimizer):
        if ranks.world_size > 1 and not job.servers:
            raise Unsupported(
                f"{job.model} in MXNet has its tables in one process or on parameter servers: add --servers"
            )
        super().__init__(job, Feed(job, ranks), {"tables": "rows of a batch"})
        self._network, self._loss, self._ranks = network, loss, ranks
        # servers may keep float64 or not, as communication.KVStore._add_exactly says: so they are given float32
        self._dtype = "float32" if job.servers else job.weights_dtype
        self._tensors = {one.name: one for one in base.parameters(job)}
        self._keys = {name: key for key, name in enumerate(self._tensors)}
        self._tables = list(network.looked_up(self._feed[0]))
        self._whole = [name for name in self._tensors if name not in self._tables]
        self._store = communication.store(job, ranks)
        workers = ranks.world_size if job.ps_mode == "sync" else 1  # a server adds up what they push
        optimizer.rescale_grad = 1 / workers
        self._store.set_optimizer(optimizer)
        for name, parameter in self._tensors.items():
            self._store.init(self._keys[name], self._first(parameter))
        self._moments = optimizer.moments
        for moment in self._moments:
            self._keep(moment)
        self._ahead = job.ps_mode == "async" and not job.trace_steps
        self._next, self._logits, self._gradients = None, (), {}
        self.parameter_count = count(self._tensors.values())
        self.gradient_bytes = 0
        self.effective.update(
            compile="none",
            threads=str(ctypes.CDLL("libgomp.so.1").omp_get_max_threads()),
            optimizer=f"{optimizer.kernels[self._dtype]} of the KVStore",
        )
        if job.servers:
            self.effective["communication"] = f"parameter servers ({job.ps_mode}): KVStore {self._store.type}"
            self.effective["server_dtype"] = self._dtype
            self.effective["overlap"] = "rows of the next batch are pulled during a step" if self._ahead else "none"

    def _first(self, parameter):
        """The initial values. Servers take those of the worker that the KVStore counts as its first. All rows of a
        table are there, zeros too: a server of MXNet 1.9.1 dies of an array that has none."""
        if self._store.rank:
            stype = "row_sparse" if parameter.name in self._tables else "default"
            return nd.zeros(parameter.shape, dtype=self._dtype, stype=stype)
        values = nd.array(initial(parameter, self._job.seed, self._dtype), dtype=self._dtype)
        if parameter.name not in self._tables:
            return values
        return sparse.row_sparse_array((values, nd.arange(parameter.shape[0], dtype="int64")), shape=parameter.shape)

    def _keep(self, moment):
        """Have the optimizer keep a moment as tensors of the KVStore, which workers can pull. It is shown each by a
        push of zeros: of a table, in a row of each server."""
        first, servers = self._moments[moment], max(1, self._job.servers)
        for name, parameter in self._tensors.items():
            key, shape = first + self._keys[name], parameter.shape
            self._store.init(key, self._first(parameter._replace(init="zeros")))
            if name in self._tables:
                rows = nd.array([shape[0] * (2 * one + 1) // (2 * servers) for one in range(servers)], dtype="int64")
                values = nd.zeros((servers, *shape[1:]), dtype=self._dtype)
                self._store.push(key, sparse.row_sparse_array((values, rows), shape=shape))
            else:
                self._store.push(key, nd.zeros(shape, dtype=self._dtype))
        self.wait()

    def _ask(self, batch):
        ids, places, pulled = {}, {}, {}
        for name, rows in self._network.looked_up(batch).items():
            found, where = np.unique(rows, return_inverse=True)
            ids[name], places[name] = nd.array(found, dtype="int64"), nd.array(where, dtype="int32")
            pulled[name] = self._pull_rows(self._keys[name], self._tensors[name], ids[name])
        for name in self._whole:
            pulled[name] = self._pull(self._keys[name], self._tensors[name])
        return Lookup(ids, places, pulled)

    def _pull_rows(self, key, parameter, ids):
        pulled = sparse.zeros("row_sparse", parameter.shape, dtype=self._dtype)
        self._store.row_sparse_pull(key, out=pulled, row_ids=ids)
        return pulled

    def _pull(self, key, parameter):
        pulled = nd.empty(parameter.shape, dtype=self._dtype)
        self._store.pull(key, out=pulled)
        return pulled

    def _values(self, pulled):
        values = pulled.data if pulled.stype == "row_sparse" else pulled
        return values.astype(self._job.weights_dtype, copy=False)

    def _step(self, batch):
        asked = self._next or self._ask(batch)
        values = {name: self._values(one) for name, one in asked.pulled.items()}
        if self._ahead:
            self._next = self._ask(self._feed[self._steps + 1])
        for one in values.values():
            one.attach_grad()
        with autograd.record():
            loss, logits = self._loss(self._network, batch, values, asked.places)
        loss.backward()
        gradients = {name: one.grad for name, one in values.items()}
        self._push(asked.ids, gradients)
        if self._job.trace_steps:
            self._logits, self._gradients = logits, (asked.ids, gradients)
        self.gradient_bytes = sum(one.size for one in values.values()) * np.dtype(self._dtype).itemsize
        return loss

    def _push(self, ids, gradients):
        """Whole ones first: to make a row_sparse array waits for its values."""
        for name in [*self._whole, *self._tables]:
            gradient = gradients[name].astype(self._dtype, copy=False)
            if name in ids:
                gradient = sparse.row_sparse_array((gradient, ids[name]), shape=self._tensors[name].shape)
            self._store.push(self._keys[name], gradient)

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
        return self._all(first=0)

    def moments(self):
        return {moment: self._all(first) for moment, first in self._moments.items()}

    def _all(self, first):
        """All tensors with keys from `first` on, by name."""
        for name, parameter in self._tensors.items():
            key = first + self._keys[name]
            if name in self._tables:
                pulled = self._pull_rows(key, parameter, nd.arange(parameter.shape[0], dtype="int64"))
            else:
                pulled = self._pull(key, parameter)
            yield name, self._values(pulled).asnumpy()

    def logits(self):
        return ((name, value.asnumpy()) for name, value in zip(base.logits(self._job), self._logits))

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        if self._ranks.world_size > 1:
            return
        ids, gradients = self._gradients
        for name, one in gradients.items():
            yield name, Sparse(ids[name].asnumpy(), one.asnumpy()) if name in ids else one.asnumpy()

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
