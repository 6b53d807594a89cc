"""CTR-DNN in OneFlow, stepped eagerly: gradients end at the rows that were looked up, and lazy Adam changes these."""

import oneflow as flow
import oneflow.nn.functional as F
from oneflow import nn

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime, tables
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import ctr_dnn

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = tables.configure(job, ranks)
    network = Network(models.config(job.model))
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.LazyAdam(job, network, ctr_dnn.optimizer(job.batch_size))
    effective = {"tables": "rows of a batch"}
    return tables.Trainer(job, device, network, loss, optimizer, runtime.Feed(job, ranks, device), effective)


def loss(network, batch):
    logits = network(batch)
    return F.cross_entropy(logits, batch["clicked"], reduction="none").mean(), (logits,)


class Network(tables.Network):
    """Names are the canonical ones of dlperf.models.ctr_dnn."""

    def __init__(self, config):
        super().__init__(config)
        self.emb = tables.Table(config.vocabulary, config.width)
        sides = [config.slots * config.width + config.numbers, *[config.hidden] * 3, 2]
        for name, inputs, outputs in zip(ctr_dnn.LAYERS, sides, sides[1:]):
            self.add_module(name, nn.Linear(inputs, outputs))

    def forward(self, batch):
        numbers, categories = batch["numbers"], batch["categories"]
        # each row once, as Adam needs it
        rows, places = flow.unique(categories.flatten(), return_inverse=True)
        x = flow._C.gather(self.look_up("emb", rows), places, 0).reshape(len(numbers), -1)
        x = flow.cat([x, numbers], 1)
        *hidden, last = (getattr(self, name) for name in ctr_dnn.LAYERS)
        for layer in hidden:
            x = F.relu(layer(x))
        logits = last(x)
        self.shapes.update(
            logits=tuple(logits.shape[1:]), numbers=tuple(numbers.shape[1:]), categories=tuple(categories.shape[1:])
        )
        return logits
