"""GPT-2 of Keras' layers, trained as Keras' guide "Writing a training loop from scratch in TensorFlow"."""

import keras
import tensorflow as tf
from keras import layers

from dlperf import models
from dlperf.adapters.tensorflow_plain import resnet
from dlperf.adapters.tensorflow_plain.bert import prepare
from dlperf.adapters.tensorflow_plain.resnet import versions
from dlperf.models import gpt

__all__ = ["build", "prepare", "versions"]


def build(job, ranks):
    resnet.configure(job)
    config, recipe = models.config(job.model), gpt.optimizer(job.batch_size)
    optimizer = keras.optimizers.AdamW(
        recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        beta_1=recipe.beta1,
        beta_2=recipe.beta2,
        epsilon=recipe.eps,
        global_clipnorm=recipe.clip_norm,
    )
    return resnet.Trainer(job, ranks, Gpt(config), loss, optimizer, prepare)


class Gpt(keras.Model):
    def __init__(self, config):
        super().__init__()
        self.words = layers.Embedding(config.vocabulary, config.hidden)
        self.places = layers.Embedding(config.positions, config.hidden)
        self.blocks = [Block(config) for _ in range(config.layers)]
        self.norm = layers.LayerNormalization(epsilon=config.norm_eps)

    def call(self, ids, training=False):
        x = self.words(ids) + self.places(tf.range(ids.shape[1]))
        for block in self.blocks:
            x = block(x, training=training)
        x = self.norm(x)
        return tf.matmul(x, tf.cast(self.words.embeddings, x.dtype), transpose_b=True)


class Block(layers.Layer):
    def __init__(self, config):
        super().__init__()
        self.attention = layers.MultiHeadAttention(config.heads, config.head_size)
        self.norms = [layers.LayerNormalization(epsilon=config.norm_eps) for _ in range(2)]
        gelu = lambda x: keras.activations.gelu(x, approximate=True)  # noqa: E731
        self.inner, self.outer = layers.Dense(config.intermediate, activation=gelu), layers.Dense(config.hidden)

    def call(self, x, training=False):
        y = self.norms[0](x)
        x = x + self.attention(y, y, use_causal_mask=True, training=training)
        return x + self.outer(self.inner(self.norms[1](x)))


def loss(network, batch):
    logits = tf.cast(network(batch["input_ids"], training=True), tf.float32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], logits))
