"""Word2Vec in PaddlePaddle: dygraph, SGD of the rows that a batch looks up, which are its tables' gradients
(SelectedRows)."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime, tables
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    tables.configure(job, ranks)
    config = models.config(job.model)
    network = Network(config)
    runtime.load(network, job)
    optimizer = optimizers.rows_sgd(network, word2vec.rates(config, word2vec.optimizer(job.batch_size)))
    effective = {"tables": "rows of a batch"}
    return runtime.Trainer(job, ranks, network, loss, optimizer, runtime.Feed(job, ranks), effective)


def loss(network, batch):
    logits = network(batch)
    return F.softplus(logits * network.signs).sum(1).mean(), (logits,)


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.word2vec. signs: of the logits in the loss; one product costs less
    than the true context's and the negatives' apart."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.seen = {}  # see runtime.Replica
        self.emb, self.emb_w, self.emb_b = (
            nn.Embedding(config.vocabulary, width, sparse=True) for width in (config.width, config.width, 1)
        )
        signs = paddle.to_tensor([-1.0] + [1.0] * config.negatives, dtype=self.emb.weight.dtype)
        self.register_buffer("signs", signs, persistable=False)

    def forward(self, batch):
        h = self.emb(batch["words"])
        if self.config.shared:
            negatives = batch["negatives"][0]
            logits = self._shared(h, paddle.concat([batch["contexts"], negatives]))
        else:
            negatives = batch["negatives"]
            logits = self._own(h, paddle.concat([batch["contexts"].unsqueeze(1), negatives], 1))
        self.seen = {"logits": logits.detach(), "negatives": negatives}
        return logits

    def _shared(self, h, chosen):
        """chosen: a context for each word, then the negatives of all. A table is looked up once, so that its gradient
        is rows of one lookup, which nothing has to join."""
        sizes = [len(h), self.config.negatives]
        w, others = paddle.split(self.emb_w(chosen), sizes)
        b, biases = paddle.split(self.emb_b(chosen), sizes)
        own = (h * w).sum(1, keepdim=True) + b
        return paddle.concat([own, paddle.matmul(h, others, transpose_y=True) + biases.t()], 1)

    def _own(self, h, chosen):
        """chosen: of each word its context, then its negatives."""
        return (paddle.matmul(self.emb_w(chosen), h.unsqueeze(2)) + self.emb_b(chosen)).squeeze(2)
