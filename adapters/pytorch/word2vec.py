"""Word2Vec in PyTorch: sparse gradients of the rows that a batch looks up, here or on parameter servers."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import geo, optimizers, runtime, servers
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config, recipe = models.config(job.model), word2vec.optimizer(job.batch_size * ranks.world_size)
    feed = runtime.Feed(job, ranks, device)
    if runtime.by_torchrec(job):
        from dlperf.adapters.pytorch import sharded

        effective = {"tables": "rows of a batch, in float32"}
        return sharded.Trainer(
            job, ranks, Looked(config), loss, feed, looked_up, effective, word2vec.rates(config, recipe)
        )
    if job.servers:
        asked = (job, ranks, Looked(config), loss, feed, looked_up, {"tables": "rows of a batch"})
        return (
            geo.Trainer(*asked, servers.SGD(word2vec.rates(config, recipe)))
            if job.ps_mode == "geo"
            else servers.Trainer(*asked)
        )
    network = Network(config)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.sparse_sgd(network, word2vec.rates(config, recipe))
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, {"tables": "rows of a batch"})


def serve(job, ranks):
    rates = word2vec.rates(models.config(job.model), word2vec.optimizer(job.batch_size))
    return servers.serve(job, ranks, geo.Sum() if job.ps_mode == "geo" else servers.SGD(rates))


def loss(network, *batch):
    logits = network(*batch)
    of_negatives = F.softplus(logits[:, 1:]).sum(1)
    return (F.softplus(-logits[:, 0]) + of_negatives).mean(), (logits,)


def looked_up(config, batch):
    """The rows that a batch needs, table by table: int64, in any order, some more than once."""
    negatives = batch["negatives"][0] if config.shared else batch["negatives"].flatten()
    contexts = torch.cat([batch["contexts"], negatives])
    return {"emb.weight": batch["words"], "emb_w.weight": contexts, "emb_b.weight": contexts}


class Looked(nn.Module):
    """The network over rows that were looked up: `rows` has for each table those that `looked_up` names, in its
    order."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def forward(self, batch, rows):
        h, w, b = (rows[f"{name}.weight"] for name in ("emb", "emb_w", "emb_b"))
        count = len(h)
        own = (h * w[:count]).sum(1, keepdim=True) + b[:count]
        others, biases = w[count:], b[count:]
        if self.config.shared:
            negatives = torch.addmm(biases.t(), h, others.t())
        else:
            others = others.unflatten(0, (count, -1))
            negatives = torch.bmm(others, h[:, :, None]).squeeze(2) + biases.view(count, -1)
        logits = torch.cat([own, negatives], 1)
        self.compute_dtype = logits.dtype
        sets = () if self.config.shared else (self.config.negatives,)
        self.shapes = {"logits": tuple(logits.shape[1:]), "negatives": sets}
        return logits


class Network(Looked):
    """The same with its tables. Names are the canonical ones of dlperf.models.word2vec."""

    def __init__(self, config):
        super().__init__(config)
        for name, width in (("emb", config.width), ("emb_w", config.width), ("emb_b", 1)):
            table = nn.Embedding.from_pretrained(torch.empty(config.vocabulary, width), freeze=False, sparse=True)
            self.add_module(name, table)

    def forward(self, batch):
        tables = {"emb.weight": self.emb, "emb_w.weight": self.emb_w, "emb_b.weight": self.emb_b}
        chosen = looked_up(self.config, batch)
        return super().forward(batch, {name: table(chosen[name]) for name, table in tables.items()})
