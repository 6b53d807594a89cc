"""CTR-DNN in TensorFlow: one tf.function per step, whose gradient of the table is the rows that it looked up; or a
graph of each worker over parameter servers."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime, servers
from dlperf.adapters.tensorflow.layers import dense
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import ctr_dnn

__all__ = ["Network", "build", "copy", "loss", "product", "serve", "versions"]


def build(job, ranks):
    config, recipe = models.config(job.model), ctr_dnn.optimizer(job.batch_size * ranks.world_size)
    effective = {"tables": "rows of a batch"}
    if job.servers:
        return servers.Trainer(job, ranks, Looked(config), loss, looked_up, servers.LazyAdam(recipe), effective)
    strategy = runtime.configure(job, ranks)
    weights = runtime.load(job)
    optimizer = optimizers.LazyAdam(job, weights, recipe)
    feed = runtime.Feed(job, ranks)
    return runtime.Trainer(job, strategy, Network(config, weights), loss, optimizer, feed, effective)


def serve(job, ranks):
    return servers.serve(job, ranks)


def loss(network, batch, *rows):
    logits = network(batch, *rows)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["clicked"], logits)), (logits,)


def looked_up(config, batch):
    """The rows that a batch needs of its table."""
    return {"emb.weight": tf.reshape(batch["categories"], [-1])}


class Looked:
    """The network over `rows`: those of the table, as `looked_up` names them, and the dense layers' tensors."""

    def __init__(self, config):
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def __call__(self, batch, rows):
        numbers, slots = batch["numbers"], batch["categories"].shape[1]
        x = tf.concat([tf.reshape(rows["emb.weight"], [numbers.shape[0], -1]), numbers], 1)
        for name in ctr_dnn.LAYERS:
            x = dense(rows, name)(x)
            if name != ctr_dnn.LAYERS[-1]:
                x = tf.nn.relu(x)
        self.compute_dtype = x.dtype
        self.shapes.update(logits=tuple(x.shape[1:]), numbers=(numbers.shape[1],), categories=(slots,))
        return x


class Network(Looked):
    """The same with its tensors. Names are the canonical ones of dlperf.models.ctr_dnn."""

    def __init__(self, config, weights):
        super().__init__(config)
        self.weights = weights

    def __call__(self, batch):
        rows = tf.gather(self.weights["emb.weight"], looked_up(self.config, batch)["emb.weight"])
        return super().__call__(batch, {**self.weights, "emb.weight": rows})
