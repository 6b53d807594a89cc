"""Simnet-BOW in MXNet: a row_sparse table and dense layers in a KVStore, here or on parameter servers."""

import numpy as np
from mxnet import nd

from dlperf import models
from dlperf.adapters.mxnet import optimizers, runtime, tables
from dlperf.adapters.mxnet.runtime import copy, product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    config, recipe = models.config(job.model), simnet_bow.optimizer(job.batch_size * ranks.world_size)
    return tables.Trainer(job, ranks, Network(config), loss, optimizers.RowsSGD(simnet_bow.rates(config, recipe)))


def serve(job, ranks):
    return tables.serve(job, ranks)


def loss(network, batch, rows, places):
    cosines = network(batch, rows, places)
    own, wrong = nd.split(cosines, num_outputs=2, axis=1)
    return nd.relu(network.config.margin - own + wrong).mean(), (cosines,)


class Network:
    """Over the rows of the table that were looked up, each once, and the dense layers' tensors. places: where among the
    rows those that `looked_up` names are."""

    compiled = "none"

    def __init__(self, config):
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def looked_up(self, batch):
        """The rows that a batch needs of its table, text by text. A place without a word has row 0, which is in no
        sum."""
        return {"emb.weight": np.maximum(np.concatenate([batch[name].reshape(-1) for name in simnet_bow.TEXTS]), 0)}

    def __call__(self, batch, rows, places):
        queries = batch["query"]
        titles = np.concatenate([batch["title"], batch["other"]])
        places, table = places["emb.weight"], rows["emb.weight"]
        query = self._vectors(rows, "q_fc", bag(table, places[: queries.size], queries))
        title, other = nd.split(self._vectors(rows, "fc", bag(table, places[queries.size :], titles)), 2, axis=0)
        cosines = nd.stack(*[(query * one).sum(axis=1) for one in (title, other)], axis=1)
        self.compute_dtype = cosines.dtype
        self.shapes = {"cosines": cosines.shape[1:], "query": queries.shape[1:], "title": titles.shape[1:]}
        return cosines

    def _vectors(self, rows, layer, bags):
        """Of length 1 each."""
        x = nd.FullyConnected(
            nd.softsign(bags), rows[f"{layer}.weight"], rows[f"{layer}.bias"], num_hidden=self.config.hidden
        )
        return nd.broadcast_div(x, nd.norm(x, axis=1, keepdims=True))


def bag(table, places, texts):
    """The sum of the rows of each text's words."""
    there = nd.array(np.expand_dims(texts >= 0, 1), dtype=table.dtype)
    return nd.batch_dot(there, nd.take(table, places.reshape(texts.shape))).reshape((len(texts), -1))
