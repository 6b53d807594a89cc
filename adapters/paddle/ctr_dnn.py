"""CTR-DNN in PaddlePaddle: dygraph, lazy Adam of the rows that a batch looks up, which are its table's gradients
(SelectedRows)."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime, tables
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import ctr_dnn

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    tables.configure(job, ranks)
    network = Network(models.config(job.model))
    runtime.load(network, job)
    optimizer = optimizers.LazyAdam(network, ctr_dnn.optimizer(job.batch_size))
    effective = {"tables": "rows of a batch"}
    return runtime.Trainer(job, ranks, network, loss, optimizer, runtime.Feed(job, ranks), effective)


def loss(network, batch):
    logits = network(batch)
    return F.cross_entropy(logits, batch["clicked"]), (logits,)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.ctr_dnn."""

    def __init__(self, config):
        super().__init__()
        self.seen = {}  # see runtime.Replica
        self.emb = nn.Embedding(config.vocabulary, config.width, sparse=True)
        sides = [config.slots * config.width + config.numbers, *[config.hidden] * 3, 2]
        for name, inputs, outputs in zip(ctr_dnn.LAYERS, sides, sides[1:]):
            self.add_sublayer(name, nn.Linear(inputs, outputs))

    def forward(self, batch):
        rows, places = tables.once(batch["categories"].flatten())
        x = F.embedding(places.reshape(batch["categories"].shape), self.emb(rows)).flatten(1)
        x = paddle.concat([x, batch["numbers"]], 1)
        *hidden, last = (getattr(self, name) for name in ctr_dnn.LAYERS)
        for layer in hidden:
            x = F.relu(layer(x))
        logits = last(x)
        self.seen = {"logits": logits.detach(), "numbers": batch["numbers"], "categories": batch["categories"]}
        return logits
