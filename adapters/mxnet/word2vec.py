"""Word2Vec in MXNet: row_sparse tables in a KVStore, here or on parameter servers, whose optimizer updates the rows
that gradients have."""

import numpy as np
from mxnet import nd
from mxnet.gluon import HybridBlock

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime, tables
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


#: what is looked up with a context, and learns at its rate: joined to its table, since one message is for one table
BESIDE = ("emb_b.weight",)


def build(job, ranks):
    runtime.configure(job, ranks)
    config, recipe = models.config(job.model), word2vec.optimizer(job.batch_size * ranks.world_size)
    rates = {name: rate for name, rate in word2vec.rates(config, recipe).items() if name not in BESIDE}
    return tables.Trainer(
        job, ranks, Network(config, job.batch_size), loss, optimizers.RowsSGD(rates), {"emb_w.weight": BESIDE}
    )


def serve(job, ranks):
    return tables.serve(job, ranks)


def loss(network, batch, rows, places):
    found, logits = network(batch, rows, places)
    return found, (logits,)


class Network:
    """Over rows that were looked up: by table, each once. places: where among them those that `looked_up` names are.
    Its loss is part of its graph."""

    compiled = "hybridize"

    def __init__(self, config, batch_size):
        self.config = config
        self.shapes, self.compute_dtype = {}, None
        self._graph = Graph(config, batch_size)
        self._graph.hybridize()

    def looked_up(self, batch):
        """The rows that a batch needs, by table, in the order of its examples."""
        negatives = batch["negatives"][0] if self.config.shared else batch["negatives"].reshape(-1)
        contexts = np.concatenate([batch["contexts"], negatives])
        return {"emb.weight": batch["words"], "emb_w.weight": contexts}

    def __call__(self, batch, rows, places):
        """The loss and the logits."""
        loss, logits = self._graph(*(nd.take(rows[name], places[name]) for name in ("emb.weight", "emb_w.weight")))
        self.compute_dtype = logits.dtype
        self.shapes = {"logits": logits.shape[1:], "negatives": () if self.config.shared else (self.config.negatives,)}
        return loss, logits


class Graph(HybridBlock):
    """Of the words' rows and the contexts', the true ones first, then the negatives."""

    def __init__(self, config, batch_size):
        super().__init__()
        self._shared, self._size = config.shared, batch_size

    def hybrid_forward(self, F, words, contexts):
        """A context's row ends with its bias, and a word's with 1: their product is the logit."""
        size = self._size
        h = F.concat(words, F.ones_like(F.slice_axis(words, axis=1, begin=0, end=1)), dim=1)
        own = F.sum(h * F.slice_axis(contexts, axis=0, begin=0, end=size), axis=1, keepdims=True)
        others = F.slice_axis(contexts, axis=0, begin=size, end=None)
        if self._shared:
            others = F.dot(h, others, transpose_b=True)
        else:
            others = F.reshape(F.batch_dot(F.reshape(others, (-4, size, -1, 0)), F.expand_dims(h, 2)), (size, -1))
        of_negatives = F.sum(softplus(F, others), axis=1)
        loss = F.mean(softplus(F, -F.reshape(own, -1)) + of_negatives)
        return loss, F.BlockGrad(F.concat(own, others, dim=1))


def softplus(F, x):
    return F.Activation(x, act_type="softrelu")
