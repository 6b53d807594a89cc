"""CTR-DNN in PyTorch: sparse gradients of the rows that a batch looks up, here or on parameter servers."""

import torch
import torch.nn.functional as F
from torch import nn

from dlperf import models
from dlperf.adapters.pytorch import linear, optimizers, runtime, servers
from dlperf.adapters.pytorch.runtime import copy, product, versions
from dlperf.models import ctr_dnn

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    device = runtime.configure(job, ranks)
    config, recipe = models.config(job.model), ctr_dnn.optimizer(job.batch_size * ranks.world_size)
    feed = runtime.Feed(job, ranks, device)
    dense, words = linear.function(job)
    effective = {"tables": "rows of a batch", "dense_layers": words}
    if job.servers:
        return servers.Trainer(job, ranks, Looked(config, dense), loss, feed, looked_up, effective)
    network = Network(config, dense)
    network.to(device=device, dtype=getattr(torch, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.LazyAdam(network, recipe)
    return runtime.Trainer(job, ranks, network, loss, optimizer, feed, effective)


def serve(job, ranks):
    return servers.serve(job, ranks, servers.Adam(ctr_dnn.optimizer(job.batch_size)))


def loss(network, batch, *rows):
    logits = network(batch, *rows)
    return F.cross_entropy(logits, batch["clicked"].long()), (logits,)


def looked_up(config, batch):
    """The rows that a batch needs of its table."""
    return {"emb.weight": batch["categories"].flatten()}


class Looked(nn.Module):
    """The network over `rows`: those of the table, as `looked_up` names them, and the dense layers' tensors. dense: see
    linear.function."""

    def __init__(self, config, dense):
        super().__init__()
        self.config, self.product = config, dense
        self.shapes, self.compute_dtype = {}, None

    def forward(self, batch, rows):
        numbers, slots = batch["numbers"], batch["categories"].shape[1]
        x = torch.cat([rows["emb.weight"].reshape(len(numbers), -1), numbers], 1)
        for name in ctr_dnn.LAYERS:
            x = self.product(x, rows[f"{name}.weight"], rows[f"{name}.bias"])
            if name != ctr_dnn.LAYERS[-1]:
                x = F.relu(x)
        self.compute_dtype = x.dtype
        self.shapes = {"logits": tuple(x.shape[1:]), "numbers": (numbers.shape[1],), "categories": (slots,)}
        return x


class Network(Looked):
    """The same with its tensors. Names are the canonical ones of dlperf.models.ctr_dnn."""

    def __init__(self, config, dense):
        super().__init__(config, dense)
        self.emb = nn.Embedding.from_pretrained(torch.empty(config.vocabulary, config.width), freeze=False, sparse=True)
        sides = [config.slots * config.width + config.numbers, *[config.hidden] * 3, 2]
        for name, inputs, outputs in zip(ctr_dnn.LAYERS, sides, sides[1:]):
            self.add_module(name, nn.Linear(inputs, outputs))

    def forward(self, batch):
        tensors = dict(self.named_parameters())
        return super().forward(batch, {**tensors, "emb.weight": self.emb(looked_up(self.config, batch)["emb.weight"])})
