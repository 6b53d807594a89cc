"""Parameter servers for PyTorch, over torch.distributed.rpc: row r of each table is on server r % servers, which
applies SGD to it. PyTorch itself has none."""

import collections
import os
import threading
from typing import Any, NamedTuple

import torch
from torch.distributed import rpc

from dlperf.adapters import base
from dlperf.adapters.api import Sparse
from dlperf.adapters.ranks import interface
from dlperf.models.parameters import count, initial


def join(job, ranks):
    """Meet all workers and servers. Workers come first in RPC's own ranks, because worker 0 keeps its store."""
    server, place = ranks.role == "server", ranks.rank
    ends = ranks.servers if server else ranks.workers
    network = interface(ends[place].rpartition(":")[0])  # else TensorPipe takes what the host's own name resolves to
    for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        if network:
            os.environ.setdefault(name, network)
    rpc.init_rpc(
        f"{ranks.role}{place}",
        rank=place + len(ranks.workers) * server,
        world_size=len(ranks.workers) + len(ranks.servers),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=f"tcp://{ranks.workers[0]}",
            num_worker_threads=max(4, len(ranks.workers) + 1),
            rpc_timeout=job.meeting_seconds,
        ),
    )


class Shard:
    """What one server keeps: its rows of each table. workers: how many push.

    updates: how many were applied. waiting: of sync, what workers have pushed for the next one: worker -> push, future.
    stale: how many updates were applied between a worker's pull and its push -> how often.
    """

    def __init__(self, job, ranks, rate):
        own = slice(ranks.rank, None, len(ranks.servers))
        self.tables = {
            one.name: torch.from_numpy(initial(one, job.seed, job.weights_dtype, own)) for one in base.parameters(job)
        }
        self.touched = {name: torch.zeros(len(table), dtype=torch.bool) for name, table in self.tables.items()}
        self.rate, self.workers, self.sync = rate, len(ranks.workers), job.ps_mode == "sync"
        self.lock, self.updates, self.pushes = threading.Lock(), 0, 0
        self.stale, self.waiting, self.meeting = collections.Counter(), {}, []

    def pull(self, wanted):
        with self.lock:
            return {name: table[wanted[name]] for name, table in self.tables.items()}, self.updates

    def apply(self, pushes):
        """One update by the mean of some pushes. Called with the lock."""
        for seen, parts in pushes:
            for name, (rows, gradients) in parts.items():
                self.tables[name].index_add_(0, rows, gradients, alpha=-self.rate / len(pushes))
                self.touched[name][rows] = True
            self.stale[self.updates - seen] += 1
        self.pushes += len(pushes)
        self.updates += 1


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


def touched():
    """The rows that training changed, by table: their numbers here, and their values."""
    with SHARD.lock:
        found = {name: mask.nonzero().flatten() for name, mask in SHARD.touched.items()}
        return {name: (rows, SHARD.tables[name][rows]) for name, rows in found.items()}


def serve(job, ranks, rate):
    """See dlperf.adapters.api.ModelModule."""
    global SHARD
    torch.set_num_threads(job.threads)
    SHARD = Shard(job, ranks, rate)
    join(job, ranks)
    rpc.shutdown()  # returns when all have called it
    return {"pushes": SHARD.pushes, "stale": {str(many): often for many, often in sorted(SHARD.stale.items())}}


class Pulled(NamedTuple):
    """Rows on their way. rows: by table, ascending, each once. parts: by server and table, which of these it has.
    futures: by server."""

    rows: Any
    parts: Any
    futures: Any


class Tables:
    """The tables of all servers, as a worker has them."""

    def __init__(self, job, ranks):
        self._sync, self._worker, self.pushes = job.ps_mode == "sync", ranks.rank, 0
        self._names = [f"server{number}" for number in range(len(ranks.servers))]
        join(job, ranks)

    def ask(self, rows):
        """rows: int64, by table, ascending, each once."""
        servers = len(self._names)
        parts = [
            {name: (one % servers == number).nonzero().flatten() for name, one in rows.items()}
            for number in range(servers)
        ]
        local = [{name: rows[name][own] // servers for name, own in part.items()} for part in parts]
        return Pulled(rows, parts, [rpc.rpc_async(to, pull, (own,)) for to, own in zip(self._names, local)])

    def get(self, pulled):
        """Values by table; and of each server how many updates it had applied."""
        found, seen = {}, []
        for part, future in zip(pulled.parts, pulled.futures):
            values, updates = future.wait()
            seen.append(updates)
            for name, own in part.items():
                table = found.setdefault(name, values[name].new_empty(len(pulled.rows[name]), values[name].shape[1]))
                table[own] = values[name]
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

    def touched(self):
        """By table, Sparse."""
        parts = [rpc.rpc_sync(name, touched) for name in self._names]
        for name in parts[0]:
            rows = torch.cat([part[name][0] * len(parts) + number for number, part in enumerate(parts)])
            values = torch.cat([part[name][1] for part in parts])
            rows, order = rows.sort()
            yield name, Sparse(rows.numpy(), values[order].numpy())

    def close(self):
        rpc.shutdown()


class Trainer(base.Trainer):
    """A worker. network: over rows, as dlperf.adapters.pytorch.word2vec.Looked. loss: network, rows -> scalar, logits.
    looked_up: config, batch -> rows by table. With async the rows of the next batch are pulled while this one is
    trained on, so that they lack its push; where steps are checked, nothing overlaps."""

    def __init__(self, job, ranks, network, loss, feed, looked_up, effective):
        super().__init__(job, feed, effective)
        self._network, self._loss, self._looked_up, self._workers = network, loss, looked_up, len(ranks.workers)
        self._tables = Tables(job, ranks)
        self._ahead = job.ps_mode == "async" and not job.trace_steps
        self._next, self._sent, self._logits, self._gradients = None, [], (), {}
        self.parameter_count = count(base.parameters(job))
        self.gradient_bytes = 0
        self.effective.update(
            compile="none",
            threads=str(torch.get_num_threads()),
            optimizer="SGD on the servers, by index_add_",
            communication=f"parameter servers ({job.ps_mode}): torch.distributed.rpc (TensorPipe)",
            overlap="rows of the next batch are pulled during a step" if self._ahead else "none",
        )

    @property
    def pushes(self):
        """Messages that it has sent: one to each server in each step."""
        return self._tables.pushes

    def _ask(self, batch):
        found = {
            name: torch.unique(rows.long(), return_inverse=True)
            for name, rows in self._looked_up(self._network.config, batch).items()
        }
        pulled = self._tables.ask({name: rows for name, (rows, _) in found.items()})
        return pulled, {name: places for name, (_, places) in found.items()}

    def _step(self, batch):
        pulled, places = self._next or self._ask(batch)
        values, seen = self._tables.get(pulled)
        if self._ahead:
            self._next = self._ask(self._feed[self._steps + 1])
        for table in values.values():
            table.requires_grad_()
        rows = {name: torch.nn.functional.embedding(places[name], table) for name, table in values.items()}
        loss, logits = self._loss(self._network, rows)
        gradients = dict(zip(values, torch.autograd.grad(loss, list(values.values()))))
        self.wait()
        self._sent = self._tables.push(pulled, seen, gradients)
        if not self._ahead:
            self.wait()
        if self._job.trace_steps:
            self._logits, self._gradients = logits, (pulled.rows, gradients)
        self.gradient_bytes = sum(one.numel() * one.element_size() for one in gradients.values())
        return loss.detach()

    def _observe(self, batch):
        self.shapes = self._network.shapes
        self.effective["compute_dtype"] = str(self._network.compute_dtype).replace("torch.", "")

    def wait(self):
        for one in self._sent:
            one.wait()
        self._sent = []

    def read(self, loss):
        return loss.item()

    def all_reduce(self, count):
        return self._tables.meet

    def parameters(self):
        return self._tables.touched()

    def logits(self):
        return ((name, value.detach().numpy()) for name, value in zip(base.logits(self._job), self._logits))

    def gradients(self):
        """A worker's own: of several, nobody has the mean but the servers."""
        if self._workers > 1:
            return iter(())
        rows, values = self._gradients
        return ((name, Sparse(rows[name].numpy(), values[name].numpy())) for name in values)

    def peak_memory(self):
        return None

    def close(self):
        self._tables.close()
