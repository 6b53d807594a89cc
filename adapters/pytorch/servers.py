"""Parameter servers for PyTorch, over torch.distributed.rpc: row r of each tensor is on server r % servers, which
updates it. PyTorch itself has none."""

import collections
import os
import threading
import time
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch.distributed import TCPStore, rpc
from torch.func import functional_call

from dlperf.adapters import base
from dlperf.adapters.api import Sparse
from dlperf.adapters.pytorch import optimizers, runtime
from dlperf.adapters.ranks import interface
from dlperf.models.parameters import count, initial

#: that worker 0 waits for the others at most, when all are done
SECONDS_TO_LEAVE = 10


class Meeting:
    """All workers and servers. Workers come first in RPC's own ranks, because worker 0 keeps its store."""

    def __init__(self, job, ranks):
        server, place = ranks.role == "server", ranks.rank
        ends = ranks.servers if server else ranks.workers
        network = interface(
            ends[place].rpartition(":")[0]
        )  # else TensorPipe takes what the host's own name resolves to
        for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
            if network:
                os.environ.setdefault(name, network)
        rank = place + len(ranks.workers) * server
        self._keeps, self._others = rank == 0, len(ranks.workers) + len(ranks.servers) - 1
        rpc.init_rpc(
            f"{ranks.role}{place}",
            rank=rank,
            world_size=self._others + 1,
            rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
                init_method=f"tcp://{ranks.workers[0]}",
                num_worker_threads=max(4, len(ranks.workers) + 1),
                rpc_timeout=job.meeting_seconds,
            ),
        )
        address, _, port = ranks.workers[0].rpartition(":")
        seconds = timedelta(seconds=job.meeting_seconds)
        self._store = TCPStore(address, int(port), is_master=self._keeps, timeout=seconds, multi_tenant=True)

    def leave(self):
        """When all have called it. Worker 0 stays until the others are gone, whose shutdown reads its store."""
        rpc.shutdown()
        deadline = time.monotonic() + SECONDS_TO_LEAVE
        self._store.add("left", 0 if self._keeps else 1)
        while self._keeps and self._store.add("left", 0) < self._others and time.monotonic() < deadline:
            time.sleep(0.01)


class SGD:
    """w = w - rate * g. rates: of each tensor."""

    kernel = "SGD on the servers, by index_add_"

    def __init__(self, rates):
        self._rates, self.moments = rates, {}

    def start(self, tensors):
        pass

    def __call__(self, name, tensor, rows, gradient, step):
        tensor.index_add_(0, rows, gradient, alpha=-self._rates[name])


class Adam:
    """As dlperf.models.ctr_dnn.Optimizer says, of the rows that a push has. moments: "mean" and "square", by tensor."""

    kernel = "Adam on the servers, of the rows of a push"

    def __init__(self, recipe):
        self._recipe, self.moments = recipe, {"mean": {}, "square": {}}

    def start(self, tensors):
        for held in self.moments.values():
            held.update({name: torch.zeros_like(tensor) for name, tensor in tensors.items()})

    def __call__(self, name, tensor, rows, gradient, step):
        mean, square = (held[name] for held in self.moments.values())
        optimizers.lazy_adam(self._recipe, step, tensor, mean, square, rows, gradient)


class Shard:
    """What one server keeps: its rows of each tensor. update: a SGD or an Adam. workers: how many push.

    updates: how many were applied. waiting: of sync, what workers have pushed for the next one: worker -> push, future.
    stale: how many updates were applied between a worker's pull and its push -> how often.
    """

    def __init__(self, job, ranks, update):
        own = slice(ranks.rank, None, len(ranks.servers))
        self.tables = {
            one.name: torch.from_numpy(initial(one, job.seed, job.weights_dtype, own))
            for one in base.parameters(job)
            if one.trained
        }
        update.start(self.tables)
        self.touched = {name: torch.zeros(len(table), dtype=torch.bool) for name, table in self.tables.items()}
        self.update, self.workers, self.sync = update, len(ranks.workers), job.ps_mode == "sync"
        self.lock, self.updates, self.pushes = threading.Lock(), 0, 0
        self.stale, self.waiting, self.meeting = collections.Counter(), {}, []

    def pull(self, wanted):
        """wanted: rows by tensor; of those that it does not name, all."""
        with self.lock:
            found = {name: one[wanted[name]] if name in wanted else one.clone() for name, one in self.tables.items()}
            return found, self.updates

    def apply(self, pushes):
        """One update by the mean of some pushes. Called with the lock."""
        self.updates += 1
        for name, tensor in self.tables.items():
            rows, gradient = mean([parts[name] for _, parts in pushes])
            self.update(name, tensor, rows, gradient, self.updates)
            self.touched[name][rows] = True
        for seen, _ in pushes:
            self.stale[self.updates - 1 - seen] += 1
        self.pushes += len(pushes)


def mean(parts):
    """Of several gradients, each some rows and their values. The rows come back each once."""
    if len(parts) == 1:
        return parts[0]
    rows, places = torch.unique(torch.cat([rows for rows, _ in parts]), return_inverse=True)
    values = torch.cat([values for _, values in parts])
    whole = values.new_zeros(len(rows), *values.shape[1:])
    return rows, whole.index_add_(0, places, values, alpha=1 / len(parts))


SHARD: Any = None


def pull(wanted):
    return SHARD.pull(wanted)


def push(seen, parts):
    with SHARD.lock:
        SHARD.apply([(seen, parts)])


@rpc.functions.async_execution
def push_and_wait(worker, seen, parts):
    """Returns when all workers have pushed, and the mean of it is applied: in their order, so that runs agree."""
    future = torch.futures.Future()
    with SHARD.lock:
        SHARD.waiting[worker] = (seen, parts), future
        if len(SHARD.waiting) == SHARD.workers:
            pushed = [SHARD.waiting[one] for one in sorted(SHARD.waiting)]
            SHARD.waiting = {}
            SHARD.apply([one for one, _ in pushed])
            for _, waiting in pushed:
                waiting.set_result(None)
    return future


@rpc.functions.async_execution
def meet():
    """Returns when all workers have called it, with their number."""
    future = torch.futures.Future()
    with SHARD.lock:
        SHARD.meeting.append(future)
        if len(SHARD.meeting) == SHARD.workers:
            there, SHARD.meeting = SHARD.meeting, []
            for one in there:
                one.set_result(float(len(there)))
    return future


def touched(moment=None):
    """The rows that training changed, by tensor: their numbers here, and their values; or those of a moment."""
    with SHARD.lock:
        tensors = SHARD.update.moments[moment] if moment else SHARD.tables
        found = {name: mask.nonzero().flatten() for name, mask in SHARD.touched.items()}
        return {name: (rows, tensors[name][rows]) for name, rows in found.items()}


def optimizer():
    """What updates, in words, and the names of the moments that it keeps."""
    return SHARD.update.kernel, list(SHARD.update.moments)


def serve(job, ranks, update):
    """See dlperf.adapters.api.ModelModule. update: a SGD or an Adam."""
    global SHARD
    torch.set_num_threads(job.threads)
    SHARD = Shard(job, ranks, update)
    Meeting(job, ranks).leave()
    return {"pushes": SHARD.pushes, "stale": {str(many): often for many, often in sorted(SHARD.stale.items())}}


class Pulled(NamedTuple):
    """Rows on their way. rows: by tensor, ascending, each once. parts: by server and tensor, which of these it has.
    futures: by server."""

    rows: Any
    parts: Any
    futures: Any


class Tables:
    """The tensors of all servers, as a worker has them. tables: names of those of which a step looks up rows; the
    others come whole: by name, all rows of each."""

    def __init__(self, job, ranks, tables):
        self._sync, self._worker, self.pushes = job.ps_mode == "sync", ranks.rank, 0
        self._names = [f"server{number}" for number in range(len(ranks.servers))]
        shapes = {one.name: one.shape for one in base.parameters(job) if one.trained}
        self.whole = {name: torch.arange(shape[0]) for name, shape in shapes.items() if name not in tables}
        self._parts = [self._part(self.whole, number) for number in range(len(self._names))]
        self.close = Meeting(job, ranks).leave
        self.kernel, self._moments = rpc.rpc_sync(self._names[0], optimizer)

    def _part(self, rows, server):
        """Which of the rows a server has, by tensor."""
        return {name: (one % len(self._names) == server).nonzero().flatten() for name, one in rows.items()}

    def place(self, rows):
        """Where these are, and the tensors that come whole. rows: int64, by table, ascending, each once."""
        parts = [{**self._part(rows, number), **own} for number, own in enumerate(self._parts)]
        return Pulled({**rows, **self.whole}, parts, [])

    def ask(self, rows):
        """As `place`, and have them sent."""
        placed = self.place(rows)
        for to, part in zip(self._names, placed.parts):
            local = {name: rows[name][part[name]] // len(self._names) for name in rows}
            placed.futures.append(rpc.rpc_async(to, pull, (local,)))
        return placed

    def get(self, pulled):
        """Values by tensor; and of each server how many updates it had applied."""
        found, seen = {}, []
        for part, future in zip(pulled.parts, pulled.futures):
            values, updates = future.wait()
            seen.append(updates)
            for name, own in part.items():
                shape = (len(pulled.rows[name]), *values[name].shape[1:])
                found.setdefault(name, values[name].new_empty(shape))[own] = values[name]
        return found, seen

    def push(self, pulled, seen, gradients):
        """Futures, of which each is there when a server has applied its part."""
        self.pushes += len(self._names)
        sent = []
        for to, part, updates in zip(self._names, pulled.parts, seen):
            own = {name: (pulled.rows[name][at] // len(self._names), gradients[name][at]) for name, at in part.items()}
            if self._sync:
                sent.append(rpc.rpc_async(to, push_and_wait, (self._worker, updates, own)))
            else:
                sent.append(rpc.rpc_async(to, push, (updates, own)))
        return sent

    def meet(self):
        return rpc.rpc_sync(self._names[0], meet)

    def touched(self, moment=None):
        """By tensor, Sparse; or a moment of each."""
        parts = [rpc.rpc_sync(name, touched, (moment,)) for name in self._names]
        for name in parts[0]:
            rows = torch.cat([part[name][0] * len(parts) + number for number, part in enumerate(parts)])
            values = torch.cat([part[name][1] for part in parts])
            rows, order = rows.sort()
            yield name, Sparse(rows.numpy(), values[order].numpy())

    def moments(self):
        return {moment: self.touched(moment) for moment in self._moments}


def whole(job, loss):
    """A loss over pulled tensors, of a network and a loss that know none. loss: network, batch -> scalar, logits."""

    def of_values(network, batch, values):
        replica = runtime.Replica(network, loss, traced=True)
        with runtime.autocast(job, "cpu"):
            return functional_call(replica, {f"network.{name}": one for name, one in values.items()}, (batch,))

    return of_values


class Trainer(runtime.LookedUp):
    """A worker. network: over rows, as dlperf.adapters.pytorch.word2vec.Looked. loss: network, batch, rows -> scalar,
    logits. looked_up: config, batch -> rows by table; all other tensors are pulled whole. Statistics are its own.

    With async the rows of the next batch are pulled while this one is trained on, so that they lack its push; where
    steps are checked, nothing overlaps."""

    def __init__(self, job, ranks, network, loss, feed, looked_up, effective):
        super().__init__(job, network, feed, effective)
        self._loss, self._looked_up, self._workers = loss, looked_up, len(ranks.workers)
        self._tables = Tables(job, ranks, looked_up(network.config, feed[0]) if looked_up else ())
        self._ahead = job.ps_mode == "async" and not job.trace_steps
        self._next, self._sent, self._gradients = None, [], {}
        self.parameter_count = count(base.parameters(job))
        self.gradient_bytes = 0
        self._statistics = {one.name for one in base.parameters(job) if not one.trained}
        self.effective.update(
            compile="none",
            threads=str(torch.get_num_threads()),
            optimizer=self._tables.kernel,
            communication=f"parameter servers ({job.ps_mode}): torch.distributed.rpc (TensorPipe)",
            overlap="rows of the next batch are pulled during a step" if self._ahead else "none",
        )

    @property
    def pushes(self):
        """Messages that it has sent: one to each server in each step."""
        return self._tables.pushes

    def _ask(self, step):
        """Rows for a step, and where among them those of its batch are."""
        if not self._looked_up:  # and a loader's next batch is not to be taken
            return self._tables.ask({}), {}
        batch = self._feed[step]
        found = {
            name: torch.unique(rows.long(), return_inverse=True)
            for name, rows in self._looked_up(self._network.config, batch).items()
        }
        pulled = self._tables.ask({name: rows for name, (rows, _) in found.items()})
        return pulled, {name: places for name, (_, places) in found.items()}

    def _step(self, batch):
        pulled, places = self._next or self._ask(self._steps)
        values, seen = self._tables.get(pulled)
        if self._ahead:
            self._next = self._ask(self._steps + 1)
        for tensor in values.values():
            tensor.requires_grad_()
        rows = {name: torch.nn.functional.embedding(at, values[name]) for name, at in places.items()}
        loss, logits = self._loss(self._network, batch, {**values, **rows})
        gradients = dict(zip(values, torch.autograd.grad(loss, list(values.values()))))
        self.wait()
        self._sent = self._tables.push(pulled, seen, gradients)
        if not self._ahead:
            self.wait()
        if self._job.trace_steps:
            self._logits, self._gradients = logits, (pulled.rows, gradients)
        self.gradient_bytes = sum(one.numel() * one.element_size() for one in gradients.values())
        return loss.detach()

    def wait(self):
        for one in self._sent:
            one.wait()
        self._sent = []

    def all_reduce(self, count):
        return self._tables.meet

    def parameters(self):
        yield from self._tables.touched()
        for name, statistic in self._network.named_buffers():
            if name in self._statistics:
                yield name, statistic.numpy()

    def moments(self):
        return self._tables.moments()

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        if self._workers > 1:
            return iter(())
        rows, values = self._gradients
        return ((name, Sparse(rows[name].numpy(), values[name].numpy())) for name in values)

    def close(self):
        self._tables.close()
