"""Simnet-BOW in TensorFlow: one tf.function per step, whose gradient of the table is the rows that it looked up; or a
graph of each worker over parameter servers."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime, servers
from dlperf.adapters.tensorflow.layers import dense
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    config = models.config(job.model)
    rates = simnet_bow.rates(config, simnet_bow.optimizer(job.batch_size * ranks.world_size))
    effective = {"tables": "rows of a batch"}
    if job.servers:
        return servers.Trainer(job, ranks, Looked(config), loss, looked_up, servers.SGD(rates), effective)
    strategy = runtime.configure(job, ranks)
    weights = runtime.load(job)
    optimizer = optimizers.RowsSGD(job, weights, rates)
    feed = runtime.Feed(job, ranks)
    network = Network(config, weights, xla=job.options["compile"] == "on")
    return runtime.Trainer(job, strategy, network, loss, optimizer, feed, effective)


def serve(job, ranks):
    return servers.serve(job, ranks)


def loss(network, *batch):
    cosines = network(*batch)
    return tf.reduce_mean(tf.nn.relu(network.config.margin - cosines[:, 0] + cosines[:, 1])), (cosines,)


def looked_up(config, batch):
    """The rows that a batch needs of its table: of each word that is there, text by text."""
    words = texts(batch)
    return {"emb.weight": tf.boolean_mask(words, words >= 0)}


def texts(batch):
    """Queries, titles and others, one below the other; behind a text's words there are -1."""
    query, title, other = (batch[name] for name in simnet_bow.TEXTS)
    longest = max(query.shape[1], title.shape[1])
    padded = [tf.pad(one, [[0, 0], [0, longest - one.shape[1]]], constant_values=-1) for one in (query, title, other)]
    return tf.concat(padded, 0)


class Looked:
    """The network over `rows`: those of the table, as `looked_up` names them, and the dense layers' tensors."""

    def __init__(self, config, xla=False):
        self.config, self._xla = config, xla
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, batch, rows):
        # to leave out places without a word takes a third less than to multiply them by zero
        words, (count, longest) = texts(batch), batch["query"].shape
        own = tf.where(words >= 0)[:, 0]
        if self._xla:  # has no segment_sum, which is the faster one elsewhere
            sums = tf.math.unsorted_segment_sum(rows["emb.weight"], own, words.shape[0])
        else:
            sums = tf.math.segment_sum(rows["emb.weight"], own)
        bags = tf.nn.softsign(tf.ensure_shape(sums, (words.shape[0], self.config.width)))
        queries = dense(rows, "q_fc")(bags[:count])
        titles = dense(rows, "fc")(bags[count:])  # and others: one product for both
        products = tf.math.l2_normalize(queries, 1) * tf.reshape(tf.math.l2_normalize(titles, 1), [2, *queries.shape])
        cosines = tf.transpose(tf.reduce_sum(products, 2))
        self.compute_dtype = queries.dtype
        self.shapes.update(cosines=tuple(cosines.shape[1:]), query=(longest,), title=(batch["title"].shape[1],))
        return cosines


class Network(Looked):
    """The same with its tensors. Names are the canonical ones of dlperf.models.simnet_bow."""

    def __init__(self, config, weights, xla):
        super().__init__(config, xla)
        self.weights = weights

    def __call__(self, batch):
        rows = tf.gather(self.weights["emb.weight"], looked_up(self.config, batch)["emb.weight"])
        return super().__call__(batch, {**self.weights, "emb.weight": rows})
