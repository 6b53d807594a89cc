"""GPT-2 of flax' layers, trained as flax' examples do: TrainState, optax.adamw, one jitted step."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from dlperf import models
from dlperf.adapters.jax_plain import resnet
from dlperf.adapters.jax_plain.bert import prepare
from dlperf.adapters.jax_plain.resnet import versions
from dlperf.models import gpt

__all__ = ["build", "prepare", "versions"]


def build(job, ranks):
    dtype = resnet.configure(job)
    recipe = gpt.optimizer(job.batch_size)
    optimizer = optax.chain(
        optax.clip_by_global_norm(recipe.clip_norm),
        optax.adamw(recipe.learning_rate, recipe.beta1, recipe.beta2, eps=recipe.eps, weight_decay=recipe.weight_decay),
    )
    network = Gpt(models.config(job.model), dtype)
    return resnet.Trainer(job, ranks, network, train_step, optimizer, prepare, dtype)


class Gpt(nn.Module):
    config: object
    dtype: object

    @nn.compact
    def __call__(self, batch):
        config, ids = self.config, batch["input_ids"]
        embed = {"features": config.hidden, "dtype": self.dtype}
        words = nn.Embed(config.vocabulary, **embed)
        x = words(ids) + nn.Embed(config.positions, **embed)(jnp.arange(ids.shape[1]))
        mask = nn.make_causal_mask(ids)
        for _ in range(config.layers):
            x = Layer(config, self.dtype)(x, mask)
        x = nn.LayerNorm(epsilon=config.norm_eps, dtype=self.dtype)(x)
        return words.attend(x).astype(jnp.float32)


class Layer(nn.Module):
    config: object
    dtype: object

    @nn.compact
    def __call__(self, x, mask):
        config, norm = self.config, {"epsilon": self.config.norm_eps, "dtype": self.dtype}
        attention = nn.MultiHeadDotProductAttention(config.heads, dtype=self.dtype)
        y = nn.LayerNorm(**norm)(x)
        x = x + attention(y, y, mask=mask)
        inner = nn.Dense(config.intermediate, dtype=self.dtype)(nn.LayerNorm(**norm)(x))
        return x + nn.Dense(config.hidden, dtype=self.dtype)(nn.gelu(inner))


@jax.jit
def train_step(state, batch):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, batch)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss
