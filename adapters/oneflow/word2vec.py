"""Word2Vec in OneFlow, stepped eagerly: gradients end at the rows that were looked up, and an update changes these."""

import oneflow as flow
import oneflow.nn.functional as F

from dlperf import models
from dlperf.adapters.oneflow import optimizers, runtime, tables
from dlperf.adapters.oneflow.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    device = tables.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config)
    network.to(device=device, dtype=getattr(flow, job.weights_dtype))
    runtime.load(network, job)
    optimizer = optimizers.RowsSGD(network, word2vec.rates(config, word2vec.optimizer(job.batch_size)))
    effective = {"tables": "rows of a batch"}
    return tables.Trainer(job, device, network, loss, optimizer, runtime.Feed(job, ranks, device), effective)


def loss(network, batch):
    logits = network(batch)
    return F.softplus(logits * network.signs).sum() / len(logits), (logits,)  # one sum: an operation costs 20 us


class Network(tables.Network):
    """Names are the canonical ones of dlperf.models.word2vec. signs: of the logits in the loss; one product costs less
    than the true context's and the negatives' apart."""

    def __init__(self, config):
        super().__init__(config)
        self.emb, self.emb_w, self.emb_b = (
            tables.Table(config.vocabulary, width) for width in (config.width, config.width, 1)
        )
        self.register_buffer("signs", flow.tensor([-1.0] + [1.0] * config.negatives), persistent=False)

    def forward(self, batch):
        contexts = self._contexts(batch)
        h, w, b = self.look_up("emb", batch["words"]), self.look_up("emb_w", contexts), self.look_up("emb_b", contexts)
        logits = (self._shared if self.config.shared else self._own)(h, w, b)
        sets = () if self.config.shared else (self.config.negatives,)
        self.shapes.update(logits=tuple(logits.shape[1:]), negatives=sets)
        return logits

    def _contexts(self, batch):
        """Where they are shared first each word's, then the negatives; else (batch, 1 + negatives)."""
        if self.config.shared:
            return flow.cat([batch["contexts"], batch["negatives"][0]], 0)
        return flow.cat([batch["contexts"].unsqueeze(1), batch["negatives"]], 1)

    def _shared(self, h, w, b):
        sizes = [len(h), self.config.negatives]
        (w, others), (b, biases) = flow.split(w, sizes), flow.split(b, sizes)
        own = (h * w).sum(1, keepdim=True) + b
        return flow.cat([own, flow.matmul(h, others, transpose_b=True) + biases.reshape(1, -1)], 1)

    def _own(self, h, w, b):
        return (flow.matmul(w, h.unsqueeze(2)) + b).squeeze(2)
