"""Word2Vec on parameter servers as in PyTorch's tutorial of them (rpc_param_server_tutorial): tables are layers of the
servers, which workers look up by RPC in a context of distributed autograd, and DistributedOptimizer updates them there.
"""

import os
from datetime import timedelta

import torch
import torch.nn.functional as F
from torch import distributed, nn
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer

from dlperf import models
from dlperf.adapters.pytorch_plain.runtime import configure, versions
from dlperf.adapters.ranks import interface
from dlperf.models import word2vec
from dlperf.models.batches import Batches
from dlperf.models.parameters import count

__all__ = ["build", "serve", "versions"]

#: a server's layers
TABLES = {}


def build(job, ranks):
    configure(job)
    return Trainer(job, ranks)


def tables(config):
    """Of each its name, and its layer."""
    for name, width in (("emb", config.width), ("emb_w", config.width), ("emb_b", 1)):
        yield name, lambda width=width: nn.Embedding(config.vocabulary, width, sparse=True)


def rows(config, batch):
    """Of each table: of contexts and their biases first the true ones, then the negatives, all examples' or each its
    own."""
    negatives = torch.tensor(batch["negatives"][0] if config.shared else batch["negatives"])
    contexts = torch.cat([torch.tensor(batch["contexts"]), negatives.flatten()]).long()
    return {"emb": torch.tensor(batch["words"]).long(), "emb_w": contexts, "emb_b": contexts}


def logits(shared, h, w, b):
    """Of the true context, then of the negatives, which all examples share or each has of its own."""
    size = len(h)
    own = (h * w[:size]).sum(1, keepdim=True) + b[:size]
    others, biases = w[size:], b[size:]
    if shared:
        return torch.cat([own, h @ others.t() + biases.t()], 1)
    others = others.unflatten(0, (size, -1))
    return torch.cat([own, torch.bmm(others, h[:, :, None]).squeeze(2) + biases.view(size, -1)], 1)


def loss(found):
    return (F.softplus(-found[:, 0]) + F.softplus(found[:, 1:]).sum(1)).mean()


def serve(job, ranks):
    torch.set_num_threads(job.threads)
    for number, (name, layer) in enumerate(tables(models.config(job.model))):
        if number % len(ranks.servers) == ranks.rank:
            TABLES[name] = layer()
    join(job, ranks)
    rpc.shutdown()


def look_up(name, rows):
    return TABLES[name](rows)


def weight(name):
    return rpc.RRef(TABLES[name].weight)


def join(job, ranks):
    network = interface(ranks.endpoints[ranks.rank].rpartition(":")[0])
    for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        if network:
            os.environ.setdefault(name, network)
    number = ranks.rank + (len(ranks.workers) if ranks.role == "server" else 0)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://{ranks.workers[0]}", rpc_timeout=job.meeting_seconds, num_worker_threads=16
    )
    everyone = len(ranks.workers) + len(ranks.servers)
    rpc.init_rpc(f"{ranks.role}{ranks.rank}", rank=number, world_size=everyone, rpc_backend_options=options)


class Trainer:
    """A worker."""

    input_seconds = None

    def __init__(self, job, ranks):
        join(job, ranks)
        self._meet(job, ranks)
        config = models.config(job.model)
        self._shared = config.shared
        names = [name for name, _ in tables(config)]
        self._at = {name: f"server{number % len(ranks.servers)}" for number, name in enumerate(names)}
        weights = [rpc.rpc_sync(to, weight, (name,)) for name, to in self._at.items()]
        rate = word2vec.optimizer(job.batch_size * ranks.world_size).learning_rate
        self._optimizer = DistributedOptimizer(torch.optim.SGD, weights, lr=rate)
        self._batches = [rows(config, batch) for batch in Batches(job, ranks).pool()]
        self._steps, self.shapes, self.gradient_bytes = 0, {}, 0
        self.parameter_count = count(word2vec.parameters(config))
        self.effective = {
            "precision": job.precision,
            "compute_dtype": "float32",
            "compile": "none",
            "threads": torch.get_num_threads(),
            "data": "synthetic",
            "note": "plain has whole tables on a server, by distributed autograd",
        }

    def _meet(self, job, ranks):
        host, _, port = ranks.workers[0].rpartition(":")
        seconds = timedelta(seconds=job.meeting_seconds)
        store = distributed.TCPStore(host, int(port), is_master=ranks.rank == 0, timeout=seconds, multi_tenant=True)
        workers = len(ranks.workers)
        distributed.init_process_group("gloo", store=store, rank=ranks.rank, world_size=workers, timeout=seconds)

    def step(self):
        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        with autograd.context() as context:
            asked = [rpc.rpc_async(to, look_up, (name, batch[name])) for name, to in self._at.items()]
            found = loss(logits(self._shared, *(one.wait() for one in asked)))
            autograd.backward(context, [found])
            self._optimizer.step(context)
        return found.detach()

    def wait(self):
        pass

    def read(self, loss):
        return loss.item()

    def all_reduce(self, count):
        def reduce():
            ones = torch.ones(count)
            distributed.all_reduce(ones)
            return ones[0].item()

        return reduce

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        rpc.shutdown()
