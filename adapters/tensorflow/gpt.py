"""GPT-2 pretraining in TensorFlow: one tf.function per step."""

import math

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime
from dlperf.adapters.tensorflow.bert import norm
from dlperf.adapters.tensorflow.layers import additive, attend, dense
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import gpt

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    strategy = runtime.configure(job, ranks)
    weights = runtime.load(job)
    network = Network(models.config(job.model), weights, runtime.DTYPES[job.precision])
    optimizer = optimizers.AdamW(job, weights, gpt.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks)
    effective = {"clip_norm": str(job.clip_norm or "off"), "attention": "written out"}
    return runtime.Trainer(job, strategy, network, loss, optimizer, feed, effective)


def loss(network, batch):
    logits = network(batch["input_ids"])
    labels, flat = tf.reshape(batch["labels"], [-1]), tf.reshape(logits, [-1, network.config.vocabulary])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, flat)), (logits,)


class Network:
    """Names are the canonical ones of dlperf.models.gpt; dtype is that of matrix products. What layers add up is in
    float32 (float64), and (batch * sequence, hidden), as matrix products want it."""

    def __init__(self, config, weights, dtype):
        self.config, self.weights, self._dtype = config, weights, dtype
        self.shapes, self.compute_dtype = {}, None
        self._table, self._places = weights["transformer.wte.weight"], weights["transformer.wpe.weight"]
        self._layers = [Layer(f"transformer.h.{index}.", config, weights, dtype) for index in range(config.layers)]
        self._norm = norm(weights, "transformer.ln_f", config)

    def __call__(self, tokens):
        size, sequence = tokens.shape
        x = tf.reshape(tf.gather(self._table, tokens) + self._places[:sequence], [size * sequence, -1])
        before = tf.linalg.band_part(tf.ones((sequence, sequence), tf.bool), -1, 0)
        mask = additive(before, self._dtype)
        for layer in self._layers:
            x = layer(x, mask, size)
        x = tf.cast(self._norm(x), self._dtype)
        logits = tf.matmul(x, tf.cast(self._table, x.dtype), transpose_b=True)
        self.compute_dtype = logits.dtype
        logits = tf.reshape(logits, [size, sequence, -1])
        self.shapes.update(logits=tuple(logits.shape[1:]))
        return tf.cast(logits, self._table.dtype)


class Layer:
    def __init__(self, name, config, weights, dtype):
        self._config, self._dtype = config, dtype
        self._norms = [norm(weights, name + part, config) for part in ("ln_1", "ln_2")]
        self._attention = [dense(weights, name + part) for part in ("attn.c_attn", "attn.c_proj")]
        self._mlp = [dense(weights, name + part) for part in ("mlp.c_fc", "mlp.c_proj")]

    def __call__(self, x, mask, size):
        first, second = self._norms
        x = x + tf.cast(self._attend(tf.cast(first(x), self._dtype), mask, size), x.dtype)
        inner, outer = self._mlp
        # in 16 bits 1 + tanh would lose the digits that are left where it is small
        y = gelu(tf.cast(inner(tf.cast(second(x), self._dtype)), x.dtype))
        return x + tf.cast(outer(tf.cast(y, self._dtype)), x.dtype)

    def _attend(self, x, mask, size):
        whole, projection = self._attention
        parts = tf.reshape(whole(x), [size, -1, 3, self._config.heads, self._config.head_size])
        query, key, value = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
        context = attend(query, key, value, mask)
        return projection(tf.reshape(tf.transpose(context, (0, 2, 1, 3)), x.shape))


def gelu(x):
    """The form with tanh. tf.nn.gelu has a constant in float32, in float64 too."""
    if x.dtype != tf.float64:
        return tf.nn.gelu(x, approximate=True)
    return 0.5 * x * (1 + tf.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
