"""Word2Vec in TensorFlow: one tf.function per step, whose gradients are the rows that it looked up; or a graph of each
worker over parameter servers."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime, servers
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    config = models.config(job.model)
    rates = word2vec.rates(config, word2vec.optimizer(job.batch_size * ranks.world_size))
    effective = {"tables": "rows of a batch"}
    if job.servers:
        return servers.Trainer(job, ranks, Looked(config), loss, looked_up, servers.SGD(rates), effective)
    strategy = runtime.configure(job, ranks)
    weights = runtime.load(job)
    optimizer = optimizers.RowsSGD(job, weights, rates)
    feed = runtime.Feed(job, ranks)
    return runtime.Trainer(job, strategy, Network(config, weights), loss, optimizer, feed, effective)


def serve(job, ranks):
    return servers.serve(job, ranks)


def loss(network, *batch):
    logits = network(*batch)
    of_negatives = tf.reduce_sum(tf.nn.softplus(logits[:, 1:]), 1)
    return tf.reduce_mean(tf.nn.softplus(-logits[:, 0]) + of_negatives), (logits,)


def looked_up(config, batch):
    """The rows that a batch needs, by table, in the order of its examples: first contexts, then negatives."""
    negatives = batch["negatives"][0] if config.shared else tf.reshape(batch["negatives"], [-1])
    contexts = tf.concat([batch["contexts"], negatives], 0)
    return {"emb.weight": batch["words"], "emb_w.weight": contexts, "emb_b.weight": contexts}


class Looked:
    """The network over rows that were looked up, as `looked_up` names them."""

    def __init__(self, config):
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, batch, rows):
        h, w, b = (rows[f"{name}.weight"] for name in ("emb", "emb_w", "emb_b"))
        count, width = h.shape
        own = tf.reduce_sum(h * w[:count], 1, keepdims=True) + b[:count]
        others, biases = w[count:], b[count:]
        if self.config.shared:
            others = tf.matmul(h, others, transpose_b=True) + tf.transpose(biases)
        else:
            others = tf.einsum("nd,nkd->nk", h, tf.reshape(others, [count, -1, width]))
            others += tf.reshape(biases, [count, -1])
        logits = tf.concat([own, others], 1)
        self.compute_dtype = logits.dtype
        sets = () if self.config.shared else (self.config.negatives,)
        self.shapes.update(logits=tuple(logits.shape[1:]), negatives=sets)
        return logits


class Network(Looked):
    """The same with its tables. Names are the canonical ones of dlperf.models.word2vec."""

    def __init__(self, config, weights):
        super().__init__(config)
        self.weights = weights

    def __call__(self, batch):
        chosen = looked_up(self.config, batch)
        return super().__call__(batch, {name: tf.gather(self.weights[name], rows) for name, rows in chosen.items()})
