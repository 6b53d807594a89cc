"""BERT pretraining in TensorFlow: one tf.function per step."""

import tensorflow as tf

from dlperf import models
from dlperf.adapters.tensorflow import optimizers, runtime
from dlperf.adapters.tensorflow.layers import additive, attend, biased, dense, drop
from dlperf.adapters.tensorflow.runtime import copy, product, versions
from dlperf.models import bert

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    strategy = runtime.configure(job, ranks)
    config = models.config(job.model)
    weights = runtime.load(job)
    dropout = config.dropout * job.dropout
    network = Network(config, weights, runtime.DTYPES[job.precision], dropout)
    optimizer = optimizers.AdamW(job, weights, bert.optimizer(job.batch_size * ranks.world_size))
    feed = runtime.Feed(job, ranks)
    effective = {
        "clip_norm": str(job.clip_norm or "off"),
        "masked_positions": str(config.masked),
        "attention": "written out",
    }
    return runtime.Trainer(job, strategy, network, loss, optimizer, feed, effective)


def loss(network, batch):
    mlm, nsp = network(batch)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    words = cross_entropy(tf.reshape(batch["masked_ids"], [-1]), tf.reshape(mlm, [-1, network.config.vocabulary]))
    of_words = tf.reduce_sum(words * tf.reshape(batch["masked_weights"], [-1])) / batch["masked_total"]
    sentences = tf.reduce_mean(cross_entropy(batch["next_sentence_labels"], nsp))
    return of_words + sentences, (mlm, nsp)


class Network:
    """Names are the canonical ones of dlperf.models.bert; dtype is that of matrix products.

    Hidden states are (batch * sequence, hidden), as matrix products want them.
    """

    def __init__(self, config, weights, dtype, dropout):
        self.config, self.weights = config, weights
        self.shapes, self.compute_dtype = {}, None
        self._embeddings = Embeddings(config, weights, dtype, dropout)
        self._layers = [Layer(index, config, weights, dropout) for index in range(config.layers)]
        self._predictions = Predictions(config, weights)
        self._pooler = dense(weights, "bert.pooler.dense")
        self._seq_relationship = dense(weights, "cls.seq_relationship")

    def __call__(self, batch):
        size, sequence = batch["input_ids"].shape
        x = self._embeddings(batch["input_ids"], batch["token_type_ids"])
        inside = tf.range(sequence) < batch["lengths"][:, None]
        mask = additive(inside, x.dtype)[:, None, None, :]
        for layer in self._layers:
            x = layer(x, mask)
        x = tf.reshape(x, [size, sequence, -1])
        masked = tf.gather(x, batch["masked_positions"], batch_dims=1)
        mlm = self._predictions(tf.reshape(masked, [size * self.config.masked, -1]))
        nsp = self._seq_relationship(tf.tanh(self._pooler(x[:, 0])))
        self.compute_dtype = mlm.dtype
        mlm = tf.reshape(mlm, [size, self.config.masked, -1])
        self.shapes.update(mlm_logits=tuple(mlm.shape[1:]), nsp_logits=tuple(nsp.shape[1:]))
        result = self.weights["cls.predictions.bias"].dtype
        return tf.cast(mlm, result), tf.cast(nsp, result)


class Embeddings:
    def __init__(self, config, weights, dtype, dropout):
        names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
        self._tables = [weights[f"bert.embeddings.{name}.weight"] for name in names]
        self._norm = norm(weights, "bert.embeddings.LayerNorm", config)
        self._dtype, self._dropout = dtype, dropout

    def __call__(self, words, types):
        word, position, kind = self._tables
        # two rows: a product with one-hot types has a cheaper gradient than a look-up
        kinds = tf.matmul(tf.one_hot(tf.reshape(types, [-1]), kind.shape[0], dtype=kind.dtype), kind)
        x = tf.gather(word, words) + position[: words.shape[1]]
        x = tf.reshape(x, [-1, word.shape[1]]) + kinds
        return drop(self._norm(tf.cast(x, self._dtype)), self._dropout)


class Layer:
    def __init__(self, index, config, weights, dropout):
        name = f"bert.encoder.layer.{index}."
        self._config, self._dropout = config, dropout
        self._parts = [dense(weights, name + "attention.self." + part) for part in ("query", "key", "value")]
        self._attention = Output(name + "attention.output", config, weights)
        self._intermediate = dense(weights, name + "intermediate.dense")
        self._output = Output(name + "output", config, weights)

    def __call__(self, x, mask):
        query, key, value = (self._split(part(x), mask.shape[0]) for part in self._parts)
        context = attend(query, key, value, mask, self._dropout)
        context = tf.reshape(tf.transpose(context, (0, 2, 1, 3)), x.shape)
        x = self._attention.norm(x + drop(self._attention.dense(context), self._dropout))
        return self._output.norm(x + drop(self._output.dense(gelu(self._intermediate(x))), self._dropout))

    def _split(self, x, size):
        x = tf.reshape(x, [size, -1, self._config.heads, self._config.head_size])
        return tf.transpose(x, (0, 2, 1, 3))


class Output:
    def __init__(self, name, config, weights):
        self.dense = dense(weights, name + ".dense")
        self.norm = norm(weights, name + ".LayerNorm", config)


class Predictions:
    """The MLM head; its decoder is the word embedding."""

    def __init__(self, config, weights):
        self._transform = Output("cls.predictions.transform", config, weights)
        self._embedding = weights["bert.embeddings.word_embeddings.weight"]
        self._bias = weights["cls.predictions.bias"]

    def __call__(self, x):
        x = self._transform.norm(gelu(self._transform.dense(x)))
        return biased(tf.matmul(x, tf.cast(self._embedding, x.dtype), transpose_b=True), self._bias)


def norm(weights, name, config):
    scale, shift = weights[name + ".weight"], weights[name + ".bias"]

    def apply(x):
        wide = tf.cast(x, scale.dtype)
        mean, variance = tf.nn.moments(wide, -1, keepdims=True)
        return tf.cast(tf.nn.batch_normalization(wide, mean, variance, shift, scale, config.norm_eps), x.dtype)

    return apply


def gelu(x):
    return tf.nn.gelu(x) if x.dtype != tf.float64 else 0.5 * x * (1 + tf.math.erf(x * 0.5**0.5))
