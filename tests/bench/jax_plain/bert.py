"""BERT of flax' layers, trained as flax' examples do: TrainState, optax.adamw, one jitted step."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from dlperf import models
from dlperf.adapters.jax_plain import resnet
from dlperf.adapters.jax_plain.resnet import versions
from dlperf.models import bert

__all__ = ["build", "versions"]


def build(job, ranks):
    dtype = resnet.configure(job)
    recipe = bert.optimizer(job.batch_size)
    optimizer = optax.chain(
        optax.clip_by_global_norm(recipe.clip_norm),
        optax.adamw(recipe.learning_rate, recipe.beta1, recipe.beta2, eps=recipe.eps, weight_decay=recipe.weight_decay),
    )
    network = Bert(models.config(job.model), dtype)
    return resnet.Trainer(job, ranks, network, train_step, optimizer, prepare, dtype)


class Bert(nn.Module):
    config: object
    dtype: object

    @nn.compact
    def __call__(self, batch):
        config, ids = self.config, batch["input_ids"]
        embed = {"features": config.hidden, "dtype": self.dtype}
        norm = {"epsilon": config.norm_eps, "dtype": self.dtype}
        words = nn.Embed(config.vocabulary, **embed)
        x = words(ids) + nn.Embed(config.token_types, **embed)(batch["token_type_ids"])
        x = x + nn.Embed(config.positions, **embed)(jnp.arange(ids.shape[1]))
        x = nn.Dropout(config.dropout, deterministic=False)(nn.LayerNorm(**norm)(x))
        mask = (jnp.arange(ids.shape[1]) < batch["lengths"][:, None])[:, None, None, :]
        for _ in range(config.layers):
            x = Layer(config, self.dtype)(x, mask)
        masked = jnp.take_along_axis(x, batch["masked_positions"][..., None], axis=1)
        masked = nn.gelu(nn.Dense(config.hidden, dtype=self.dtype)(masked), approximate=False)
        masked = words.attend(nn.LayerNorm(**norm)(masked))
        masked = masked + self.param("bias", nn.initializers.zeros, (config.vocabulary,))
        pooled = jnp.tanh(nn.Dense(config.hidden, dtype=self.dtype)(x[:, 0]))
        return masked.astype(jnp.float32), nn.Dense(2, dtype=jnp.float32)(pooled)


class Layer(nn.Module):
    config: object
    dtype: object

    @nn.compact
    def __call__(self, x, mask):
        config, dropout = self.config, nn.Dropout(self.config.dropout, deterministic=False)
        norm = {"epsilon": config.norm_eps, "dtype": self.dtype}
        attention = nn.MultiHeadDotProductAttention(
            config.heads,
            dtype=self.dtype,
            dropout_rate=config.dropout,
            broadcast_dropout=False,  # else one mask for all heads and rows
            deterministic=False,
        )
        x = nn.LayerNorm(**norm)(x + dropout(attention(x, x, mask=mask)))
        inner = nn.gelu(nn.Dense(config.intermediate, dtype=self.dtype)(x), approximate=False)
        return nn.LayerNorm(**norm)(x + dropout(nn.Dense(config.hidden, dtype=self.dtype)(inner)))


@jax.jit
def train_step(state, batch):
    def loss_of(params):
        words, sentences = state.apply_fn({"params": params}, batch, rngs={"dropout": key})
        entropy = optax.softmax_cross_entropy_with_integer_labels
        weights = batch["masked_weights"]
        of_words = (entropy(words, batch["masked_ids"]) * weights).sum() / weights.sum()
        return of_words + entropy(sentences, batch["next_sentence_labels"]).mean()

    key = jax.random.fold_in(jax.random.key(0), state.step)
    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def prepare(batch):
    return {name: jnp.array(array) for name, array in batch.items()}
