"""Simnet-BOW in PyTorch: sparse gradients of the rows that a batch looks up, here or on parameter servers."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import geo, optimizers, runtime, servers
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config = models.config(job.model)
    feed = runtime.Feed(job, ranks, device)
    if runtime.by_torchrec(job):
        from dlperf.adapters.pytorch import sharded

        effective = {"tables": "rows of a batch, in float32"}
        return sharded.Trainer(job, ranks, Looked(config), loss, feed, looked_up, effective, rates(job))
    if job.servers:
        asked = (job, ranks, Looked(config), loss, feed, looked_up, {"tables": "rows of a batch"})
        return geo.Trainer(*asked, servers.SGD(rates(job))) if job.ps_mode == "geo" else servers.Trainer(*asked)
    network = Network(config)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.sparse_sgd(network, rates(job))
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, {"tables": "rows of a batch"})


def serve(job, ranks):
    return servers.serve(job, ranks, geo.Sum() if job.ps_mode == "geo" else servers.SGD(rates(job)))


def rates(job):
    return simnet_bow.rates(models.config(job.model), simnet_bow.optimizer(job.batch_size))


def loss(network, *batch):
    cosines = network(*batch)
    each = network.config.margin - cosines[:, 0] + cosines[:, 1]
    return F.relu(each).mean(), (cosines,)


def looked_up(config, batch):
    """The rows that a batch needs of its table, text by text. A place without a word has row 0, which is in no sum."""
    return {"emb.weight": torch.cat([batch[name].flatten() for name in simnet_bow.TEXTS]).clamp(min=0)}


class Looked(nn.Module):
    """The network over `rows`: those of the table, as `looked_up` names them, and the dense layers' tensors."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def forward(self, batch, rows):
        texts = [batch[name] for name in simnet_bow.TEXTS]
        parts = rows["emb.weight"].split([text.numel() for text in texts])
        query, title, other = (
            F.linear(F.softsign(bag(text, part)), rows[f"{layer}.weight"], rows[f"{layer}.bias"])
            for text, part, layer in zip(texts, parts, ("q_fc", "fc", "fc"))
        )
        cosines = torch.stack([F.cosine_similarity(query, one) for one in (title, other)], 1)
        self.compute_dtype = query.dtype
        self.shapes = {
            "cosines": tuple(cosines.shape[1:]),
            "query": (texts[0].shape[1],),
            "title": (texts[1].shape[1],),
        }
        return cosines


def bag(text, rows):
    """The sum of the rows of each text's words."""
    there = (text >= 0).to(rows.dtype)
    return torch.bmm(there[:, None], rows.unflatten(0, text.shape)).squeeze(1)


class Network(Looked):
    """The same with its tensors. Names are the canonical ones of dlperf.models.simnet_bow."""

    def __init__(self, config):
        super().__init__(config)
        self.emb = nn.Embedding.from_pretrained(torch.empty(config.vocabulary, config.width), freeze=False, sparse=True)
        self.q_fc, self.fc = (nn.Linear(config.width, config.hidden) for _ in range(2))

    def forward(self, batch):
        tensors = dict(self.named_parameters())
        return super().forward(batch, {**tensors, "emb.weight": self.emb(looked_up(self.config, batch)["emb.weight"])})
