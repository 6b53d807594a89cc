"""BERT of Keras' layers, trained as Keras' guide "Writing a training loop from scratch in TensorFlow"."""

import keras
import tensorflow as tf
from keras import layers

from dlperf import models
from dlperf.adapters.tensorflow_plain import resnet
from dlperf.adapters.tensorflow_plain.resnet import versions
from dlperf.models import bert

__all__ = ["build", "versions"]


def build(job, ranks):
    resnet.configure(job)
    config, recipe = models.config(job.model), bert.optimizer(job.batch_size)
    optimizer = keras.optimizers.AdamW(
        recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        beta_1=recipe.beta1,
        beta_2=recipe.beta2,
        epsilon=recipe.eps,
        global_clipnorm=recipe.clip_norm,
    )
    return resnet.Trainer(job, ranks, Bert(config), loss, optimizer, prepare)


class Bert(keras.Model):
    def __init__(self, config):
        super().__init__()
        self.words = layers.Embedding(config.vocabulary, config.hidden)
        self.types = layers.Embedding(config.token_types, config.hidden)
        self.places = layers.Embedding(config.positions, config.hidden)
        self.norm, self.dropout = layers.LayerNormalization(epsilon=config.norm_eps), layers.Dropout(config.dropout)
        self.blocks = [Block(config) for _ in range(config.layers)]
        self.pooler, self.next = layers.Dense(config.hidden, activation="tanh"), layers.Dense(2)
        self.transform = layers.Dense(config.hidden, activation=keras.activations.gelu)
        self.transform_norm = layers.LayerNormalization(epsilon=config.norm_eps)
        self.bias = self.add_weight(shape=(config.vocabulary,), initializer="zeros")

    def call(self, batch, training=False):
        ids = batch["input_ids"]
        x = self.words(ids) + self.types(batch["token_type_ids"]) + self.places(tf.range(ids.shape[1]))
        x = self.dropout(self.norm(x), training=training)
        mask = tf.sequence_mask(batch["lengths"], ids.shape[1])[:, None, :]
        for block in self.blocks:
            x = block(x, mask, training=training)
        masked = tf.gather(x, batch["masked_positions"], axis=1, batch_dims=1)
        masked = self.transform_norm(self.transform(masked))
        words = tf.matmul(masked, tf.cast(self.words.embeddings, masked.dtype), transpose_b=True)
        return words + tf.cast(self.bias, words.dtype), self.next(self.pooler(x[:, 0]))


class Block(keras.layers.Layer):
    def __init__(self, config):
        super().__init__()
        size = config.head_size
        self.attention = layers.MultiHeadAttention(config.heads, size, dropout=config.dropout)
        self.norms = [layers.LayerNormalization(epsilon=config.norm_eps) for _ in range(2)]
        self.inner = layers.Dense(config.intermediate, activation=keras.activations.gelu)
        self.outer, self.dropout = layers.Dense(config.hidden), layers.Dropout(config.dropout)

    def call(self, x, mask, training=False):
        found = self.attention(x, x, attention_mask=mask, training=training)
        x = self.norms[0](x + self.dropout(found, training=training))
        return self.norms[1](x + self.dropout(self.outer(self.inner(x)), training=training))


def loss(network, batch):
    words, sentences = network(batch, training=True)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    weights = batch["masked_weights"]
    of_words = tf.reduce_sum(entropy(batch["masked_ids"], tf.cast(words, tf.float32)) * weights) / tf.reduce_sum(
        weights
    )
    return of_words + tf.reduce_mean(entropy(batch["next_sentence_labels"], tf.cast(sentences, tf.float32)))


def prepare(batch):
    return {name: tf.constant(array) for name, array in batch.items()}
