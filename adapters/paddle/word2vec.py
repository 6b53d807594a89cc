"""Word2Vec in PaddlePaddle: dygraph, SGD of the rows that a batch looks up, which are its tables' gradients
(SelectedRows); or a static graph over parameter servers."""

import numpy
import paddle
import paddle.nn.functional as F
from paddle import nn

from dlperf import models
from dlperf.adapters.paddle import optimizers, runtime, servers, tables
from dlperf.adapters.paddle.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    effective = {"tables": "rows of a batch"}
    if job.servers:
        return servers.Trainer(job, ranks, *on_servers(job), effective)
    tables.configure(job, ranks)
    network = Network(models.config(job.model))
    runtime.load(network, job)
    optimizer = optimizers.rows_sgd(network, rates(job))
    return runtime.Trainer(job, ranks, network, loss, optimizer, runtime.Feed(job, ranks), effective)


def serve(job, ranks):
    return servers.serve(job, ranks, *on_servers(job))


def on_servers(job):
    """What servers.Program takes of this model."""
    network = Looked(models.config(job.model))
    return network, loss, network.looked_up, rates(job)


def rates(job):
    return word2vec.rates(models.config(job.model), word2vec.optimizer(job.batch_size))


def loss(network, *batch):
    logits = network(*batch)
    return F.softplus(logits * network.signs).sum(1).mean(), (logits,)


def signs(config, dtype):
    """Of the logits in the loss: one product costs less than the true context's and the negatives' apart."""
    return paddle.to_tensor([-1.0] + [1.0] * config.negatives, dtype=dtype)


def shared(config, h, w, b):
    """The logits of words, h: rows of emb. w, b: rows of the other tables, of a context for each, then of the negatives
    of all."""
    sizes = [-1, config.negatives]
    w, others = paddle.split(w, sizes)
    b, biases = paddle.split(b, sizes)
    own = (h * w).sum(1, keepdim=True) + b
    return paddle.concat([own, paddle.matmul(h, others, transpose_y=True) + biases.t()], 1)


def each(h, w, b):
    """As shared. w, b: of each word a row for its context, then for its negatives."""
    return (paddle.matmul(w, h.unsqueeze(2)) + b).squeeze(2)


class Looked:
    """The network in a static graph, over rows that were looked up."""

    def __init__(self, config):
        self.config, self.shapes = config, {}

    def looked_up(self, batch):
        """Rows by table, and what else the network is fed: nothing."""
        if self.config.shared:
            contexts = numpy.concatenate([batch["contexts"], batch["negatives"][0]])
        else:
            contexts = numpy.concatenate([batch["contexts"][:, None], batch["negatives"]], 1).reshape(-1)
        return {"emb.weight": batch["words"], "emb_w.weight": contexts, "emb_b.weight": contexts}, {}

    def __call__(self, batch, rows):
        h, w, b = (rows[f"{name}.weight"] for name in ("emb", "emb_w", "emb_b"))
        negatives = self.config.negatives
        if self.config.shared:
            logits, sets = shared(self.config, h, w, b), ()
        else:
            w, b = (one.reshape([-1, 1 + negatives, one.shape[1]]) for one in (w, b))
            logits, sets = each(h, w, b), (negatives,)
        self.signs = signs(self.config, logits.dtype)
        self.shapes = {"logits": (1 + negatives,), "negatives": sets}
        return logits


class Network(nn.Layer):
    """Names are the canonical ones of dlperf.models.word2vec."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.seen = {}  # see runtime.Replica
        self.emb, self.emb_w, self.emb_b = (
            nn.Embedding(config.vocabulary, width, sparse=True) for width in (config.width, config.width, 1)
        )
        self.register_buffer("signs", signs(config, self.emb.weight.dtype), persistable=False)

    def forward(self, batch):
        h = self.emb(batch["words"])
        # a table is looked up once, so that its gradient is rows of one lookup, which nothing has to join
        if self.config.shared:
            negatives = batch["negatives"][0]
            chosen = paddle.concat([batch["contexts"], negatives])
            logits = shared(self.config, h, self.emb_w(chosen), self.emb_b(chosen))
        else:
            negatives = batch["negatives"]
            chosen = paddle.concat([batch["contexts"].unsqueeze(1), negatives], 1)
            logits = each(h, self.emb_w(chosen), self.emb_b(chosen))
        self.seen = {"logits": logits.detach(), "negatives": negatives}
        return logits
