"""Word2Vec in MXNet: row_sparse tables in a KVStore, here or on parameter servers, whose optimizer updates the rows
that gradients have."""

import numpy as np
from mxnet import nd

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
    return tables.Trainer(job, ranks, Network(config), loss, optimizers.RowsSGD(rates), {"emb_w.weight": BESIDE})


def serve(job, ranks):
    return tables.serve(job, ranks)


def loss(network, batch, rows, places):
    logits = network(batch, rows, places)
    of_negatives = softplus(nd.slice_axis(logits, axis=1, begin=1, end=None)).sum(axis=1)
    own = nd.slice_axis(logits, axis=1, begin=0, end=1).reshape(-1)
    return (softplus(-own) + of_negatives).mean(), (logits,)


def softplus(x):
    return nd.Activation(x, act_type="softrelu")


class Network:
    """Over rows that were looked up: by table, each once. places: where among them those that `looked_up` names are."""

    def __init__(self, config):
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def looked_up(self, batch):
        """The rows that a batch needs, by table, in the order of its examples."""
        negatives = batch["negatives"][0] if self.config.shared else batch["negatives"].reshape(-1)
        contexts = np.concatenate([batch["contexts"], negatives])
        return {"emb.weight": batch["words"], "emb_w.weight": contexts}

    def __call__(self, batch, rows, places):
        """A context's row ends with its bias, and a word's with 1: their product is the logit."""
        h, contexts = (nd.take(rows[name], places[name]) for name in ("emb.weight", "emb_w.weight"))
        size = h.shape[0]
        h = nd.concat(h, nd.ones((size, 1), dtype=h.dtype), dim=1)
        own = (h * contexts[:size]).sum(axis=1, keepdims=True)
        others = contexts[size:]
        if self.config.shared:
            others = nd.dot(h, others, transpose_b=True)
        else:
            others = nd.batch_dot(others.reshape((size, -1, h.shape[1])), h.expand_dims(2)).reshape((size, -1))
        logits = nd.concat(own, others, dim=1)
        self.compute_dtype = logits.dtype
        self.shapes = {"logits": logits.shape[1:], "negatives": () if self.config.shared else (self.config.negatives,)}
        return logits
