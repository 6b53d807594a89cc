"""Transformer of flax' layers, as flax' wmt example has it: TrainState, optax.adam, one jitted step."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from dlperf import models
from dlperf.adapters.jax_plain import resnet
from dlperf.adapters.jax_plain.bert import prepare
from dlperf.adapters.jax_plain.resnet import versions
from dlperf.models import transformer

__all__ = ["build", "prepare", "versions"]


def build(job, ranks):
    dtype = resnet.configure(job)
    config, recipe = models.config(job.model), transformer.optimizer(job.batch_size)
    optimizer = optax.adam(recipe.learning_rate, recipe.beta1, recipe.beta2, eps=recipe.eps)
    network = Network(config, dtype)
    return resnet.Trainer(job, ranks, network, train_step(config), optimizer, prepare, dtype)


class Network(nn.Module):
    config: object
    dtype: object

    @nn.compact
    def __call__(self, batch):
        config = self.config
        words = nn.Embed(config.vocabulary, config.hidden, dtype=self.dtype)
        positions = jnp.array(transformer.positions(config), self.dtype)
        dropout = nn.Dropout(config.dropout, deterministic=False)

        def embed(tokens):
            return dropout(words(tokens) * config.hidden**0.5 + positions)

        inside = jnp.arange(config.sequence) < batch["source_lengths"][:, None]
        padding = inside[:, None, None, :]
        x = embed(batch["source"])
        for _ in range(config.layers):
            x = Layer(config, self.dtype)(x, padding)
        memory = self.last(x)
        later = nn.make_causal_mask(batch["target"])
        x = embed(batch["target"])
        for _ in range(config.layers):
            x = Layer(config, self.dtype)(x, later, memory, padding)
        return words.attend(self.last(x)).astype(jnp.float32)

    def last(self, x):
        return nn.LayerNorm(epsilon=self.config.norm_eps, dtype=self.dtype)(x) if self.config.pre_norm else x


class Layer(nn.Module):
    """Of the encoder, or with its output, `memory`, of the decoder."""

    config: object
    dtype: object

    @nn.compact
    def __call__(self, x, mask, memory=None, padding=None):
        x = self.add(x, lambda y: self.attend(y, y, mask))
        if memory is not None:
            x = self.add(x, lambda y: self.attend(y, memory, padding))
        return self.add(x, self.feed_forward)

    def add(self, x, part):
        config, dropout = self.config, nn.Dropout(self.config.dropout, deterministic=False)
        norm = nn.LayerNorm(epsilon=config.norm_eps, dtype=self.dtype)
        return x + dropout(part(norm(x))) if config.pre_norm else norm(x + dropout(part(x)))

    def attend(self, x, memory, mask):
        attention = nn.MultiHeadDotProductAttention(
            self.config.heads,
            dtype=self.dtype,
            use_bias=False,
            dropout_rate=self.config.dropout,
            broadcast_dropout=False,  # else one mask for all heads and rows
            deterministic=False,
        )
        return attention(x, memory, mask=mask)

    def feed_forward(self, x):
        inner = nn.relu(nn.Dense(self.config.intermediate, dtype=self.dtype)(x))
        inner = nn.Dropout(self.config.dropout, deterministic=False)(inner)
        return nn.Dense(self.config.hidden, dtype=self.dtype)(inner)


def train_step(config):
    @jax.jit
    def step(state, batch):
        key = jax.random.fold_in(jax.random.key(0), state.step)

        def loss_of(params):
            logits = state.apply_fn({"params": params}, batch, rngs={"dropout": key})
            targets = optax.smooth_labels(jax.nn.one_hot(batch["labels"], config.vocabulary), config.label_smoothing)
            losses = optax.softmax_cross_entropy(logits, targets) * batch["target_weights"]
            return losses.sum() / batch["target_weights"].sum()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    return step
