"""Transformer of Keras' layers, as TensorFlow's tutorial "Neural machine translation with a Transformer" has it."""

import keras
import tensorflow as tf
from keras import layers

from dlperf import models
from dlperf.adapters.tensorflow_plain import resnet
from dlperf.adapters.tensorflow_plain.bert import prepare
from dlperf.adapters.tensorflow_plain.resnet import versions
from dlperf.models import transformer

__all__ = ["build", "prepare", "versions"]


def build(job, ranks):
    resnet.configure(job)
    config, recipe = models.config(job.model), transformer.optimizer(job.batch_size)
    optimizer = keras.optimizers.Adam(
        recipe.learning_rate, beta_1=recipe.beta1, beta_2=recipe.beta2, epsilon=recipe.eps
    )
    return resnet.Trainer(job, ranks, Network(config), loss, optimizer, prepare)


class Network(keras.Model):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words, self.dropout = layers.Embedding(config.vocabulary, config.hidden), layers.Dropout(config.dropout)
        self.positions = tf.constant(transformer.positions(config), tf.float32)
        self.encoder = [Layer(config) for _ in range(config.layers)]
        self.decoder = [Layer(config, decoder=True) for _ in range(config.layers)]
        norms = (layers.LayerNormalization(epsilon=config.norm_eps) for _ in range(2))
        self.norms = list(norms) if config.pre_norm else [tf.identity, tf.identity]

    def call(self, batch, training=False):
        padding = tf.sequence_mask(batch["source_lengths"], self.config.sequence)[:, None, :]
        memory = self.embed(batch["source"], training)
        for layer in self.encoder:
            memory = layer(memory, padding=padding, training=training)
        memory = self.norms[0](memory)
        x = self.embed(batch["target"], training)
        for layer in self.decoder:
            x = layer(x, memory=memory, padding=padding, training=training)
        x = self.norms[1](x)
        return tf.matmul(x, tf.cast(self.words.embeddings, x.dtype), transpose_b=True)

    def embed(self, tokens, training):
        x = self.words(tokens)
        x = x * self.config.hidden**0.5 + tf.cast(self.positions, x.dtype)
        return self.dropout(x, training=training)


class Layer(layers.Layer):
    def __init__(self, config, decoder=False):
        super().__init__()
        attention = {"dropout": config.dropout, "use_bias": False}
        self.pre_norm, parts = config.pre_norm, 3 if decoder else 2
        self.attention = [
            layers.MultiHeadAttention(config.heads, config.head_size, **attention) for _ in range(parts - 1)
        ]
        self.norms = [layers.LayerNormalization(epsilon=config.norm_eps) for _ in range(parts)]
        self.dropouts = [layers.Dropout(config.dropout) for _ in range(parts + 1)]
        self.inner, self.outer = layers.Dense(config.intermediate, activation="relu"), layers.Dense(config.hidden)

    def call(self, x, memory=None, padding=None, training=False):
        if memory is None:
            x = self.add(0, x, lambda y: self.attention[0](y, y, attention_mask=padding, training=training), training)
        else:
            x = self.add(0, x, lambda y: self.attention[0](y, y, use_causal_mask=True, training=training), training)
            across = self.attention[1]
            x = self.add(1, x, lambda y: across(y, memory, attention_mask=padding, training=training), training)
        return self.add(-1, x, lambda y: self.feed_forward(y, training), training)

    def add(self, number, x, part, training):
        norm, dropout = self.norms[number], self.dropouts[number]
        if self.pre_norm:
            return x + dropout(part(norm(x)), training=training)
        return norm(x + dropout(part(x), training=training))

    def feed_forward(self, x, training):
        return self.outer(self.dropouts[-2](self.inner(x), training=training))


def loss(network, batch):
    logits = tf.cast(network(batch, training=True), tf.float32)
    config, weights = network.config, batch["target_weights"]
    smooth = config.label_smoothing
    labels = tf.one_hot(batch["labels"], config.vocabulary, 1 - smooth + smooth / config.vocabulary)
    labels = tf.where(labels == 0, smooth / config.vocabulary, labels)
    losses = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
