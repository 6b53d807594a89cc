"""Transformer in TensorFlow: one tf.function per step."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime
from dlperf.adapters.tensorflow.bert import norm
from dlperf.adapters.tensorflow.layers import additive, attend, dense, drop, project
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import transformer

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    strategy = runtime.configure(job, ranks)
    config = models.config(job.model)
    weights = runtime.load(job)
    network = Network(config, weights, runtime.DTYPES[job.precision], config.dropout * job.dropout)
    optimizer = optimizers.AdamW(job, weights, transformer.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks)
    effective = {"label_smoothing": str(config.label_smoothing), "attention": "written out"}
    return runtime.Trainer(job, strategy, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits, config = network(batch), network.config
    flat, rest = tf.reshape(logits, [-1, config.vocabulary]), config.label_smoothing / config.vocabulary
    labels = tf.reshape(batch["labels"], [-1])
    target = tf.one_hot(labels, config.vocabulary, 1 - config.label_smoothing + rest, rest, dtype=flat.dtype)
    tokens = tf.nn.softmax_cross_entropy_with_logits(target, flat)
    return tf.reduce_sum(tokens * tf.reshape(batch["target_weights"], [-1])) / batch["target_total"], (logits,)


class Network:
    """Names are the canonical ones of dlperf.models.transformer; dtype is that of matrix products. Hidden states are
    (batch * sequence, hidden), as matrix products want them; what pre-norm layers add up is in float32 (float64)."""

    def __init__(self, config, weights, dtype, dropout):
        self.config, self.weights, self._dtype, self._dropout = config, weights, dtype, dropout
        self.shapes, self.compute_dtype = {}, None
        self._table = weights["embedding.weight"]
        self._positions = tf.constant(transformer.positions(config), self._table.dtype)
        self._layers = {
            side: [
                Layer(f"{side}.layers.{index}.", side, config, weights, dtype, dropout)
                for index in range(config.layers)
            ]
            for side in transformer.SIDES
        }
        self._norms = {side: norm(weights, f"{side}.norm", config) for side in self._layers if config.pre_norm}

    def __call__(self, batch):
        size, sequence = batch["source"].shape
        padding = additive(tf.range(sequence) < batch["source_lengths"][:, None], self._dtype)[:, None, None, :]
        later = additive(tf.linalg.band_part(tf.ones((sequence, sequence), tf.bool), -1, 0), self._dtype)
        memory = self._side("encoder", batch["source"], {"self_attention": padding})
        masks = {"self_attention": later, "cross_attention": padding}
        x = self._side("decoder", batch["target"], masks, memory)
        logits = tf.matmul(x, tf.cast(self._table, x.dtype), transpose_b=True)
        self.compute_dtype = logits.dtype
        logits = tf.reshape(logits, [size, sequence, -1])
        self.shapes.update(logits=tuple(logits.shape[1:]))
        return tf.cast(logits, self._table.dtype)

    def _side(self, side, tokens, masks, memory=None):
        """The encoder, or the decoder, which takes the encoder's output."""
        config, size = self.config, tokens.shape[0]
        x = tf.reshape(tf.gather(self._table, tokens) * config.hidden**0.5 + self._positions, [-1, config.hidden])
        x = drop(x if config.pre_norm else tf.cast(x, self._dtype), self._dropout)
        for layer in self._layers[side]:
            x = layer(x, size, masks, memory)
        return tf.cast(self._norms[side](x), self._dtype) if config.pre_norm else x


class Layer:
    def __init__(self, name, side, config, weights, dtype, dropout):
        self._config, self._dtype, self._dropout = config, dtype, dropout
        self._parts = []
        for number, kind in enumerate(transformer.SIDES[side], 1):
            names = ("query", "key", "value", "output") if kind != "feed_forward" else ("inner", "outer")
            make = project if kind != "feed_forward" else dense
            parts = [make(weights, f"{name}{kind}.{part}") for part in names]
            self._parts.append((kind, norm(weights, f"{name}norm{number}", config), parts))

    def __call__(self, x, size, masks, memory):
        pre_norm = self._config.pre_norm
        for kind, normalise, parts in self._parts:
            inputs = tf.cast(normalise(x), self._dtype) if pre_norm else x
            if kind == "feed_forward":
                inner, outer = parts
                y = outer(drop(tf.nn.relu(inner(inputs)), self._dropout))
            else:
                y = self._attend(parts, inputs, memory if kind == "cross_attention" else inputs, size, masks[kind])
            x = x + tf.cast(drop(y, self._dropout), x.dtype)
            x = x if pre_norm else normalise(x)
        return x

    def _attend(self, parts, x, memory, size, mask):
        query, key, value, output = parts
        inputs = (self._split(part(of), size) for part, of in ((query, x), (key, memory), (value, memory)))
        context = attend(*inputs, mask, self._dropout)
        return output(tf.reshape(tf.transpose(context, (0, 2, 1, 3)), x.shape))

    def _split(self, x, size):
        x = tf.reshape(x, [size, -1, self._config.heads, self._config.head_size])
        return tf.transpose(x, (0, 2, 1, 3))
