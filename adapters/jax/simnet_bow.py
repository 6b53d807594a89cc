"""Simnet-BOW in JAX: one jitted step with a donated table, of which it reads and changes the rows of a batch alone."""

import jax
import jax.numpy as jnp

from dlperf import models
from dlperf.adapters.jax import runtime, sharded, tables
from dlperf.adapters.jax.linear import dense
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.models import simnet_bow

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(models.config(job.model), job)
    optimizer = tables.SGD(simnet_bow.rates(network.config, simnet_bow.optimizer(job.batch_size)))
    feed = runtime.Feed(job, ranks)
    trainer = sharded.Trainer if ranks.world_size > 1 else tables.Trainer
    return trainer(job, ranks, network, loss, optimizer, feed, {"tables": "rows of a batch"})


def loss(network, batch, rows):
    cosines = network(batch, rows)
    each = network.config.margin - cosines[:, 0] + cosines[:, 1]
    return jax.nn.relu(each).mean(), (cosines,)


class Network:
    """Over rows that were looked up. Names are the canonical ones of dlperf.models.simnet_bow."""

    def __init__(self, config, job):
        self.config, self.device = config, job.device
        self.shapes, self.compute_dtype = {}, None

    def looked_up(self, batch):
        """The rows that a batch needs of its table, text by text. A place without a word has row 0, which is in no
        sum."""
        return {"emb.weight": jnp.concatenate([batch[name].reshape(-1) for name in simnet_bow.TEXTS]).clip(0)}

    def __call__(self, batch, rows):
        texts = [batch[name] for name in simnet_bow.TEXTS]
        ends = [texts[0].size, texts[0].size + texts[1].size]
        bags = [bag(text, part) for text, part in zip(texts, jnp.split(rows["emb.weight"], ends))]
        query = dense(bags[0], rows, "q_fc", self.device)
        # both titles in one product
        titles = dense(jnp.concatenate(bags[1:]), rows, "fc", self.device).reshape(2, *query.shape)
        cosines = (unit(query) * unit(titles)).sum(-1).T
        self.compute_dtype = query.dtype
        self.shapes.update(cosines=cosines.shape[1:], query=texts[0].shape[1:], title=texts[1].shape[1:])
        return cosines


@jax.named_scope("embedding")
def bag(text, rows):
    """softsign of the sum of the rows of each text's words."""
    there = (text >= 0)[:, :, None]
    return jax.nn.soft_sign(jnp.where(there, rows.reshape(*text.shape, -1), 0).sum(1))


def unit(vectors):
    return vectors * jax.lax.rsqrt(jnp.square(vectors).sum(-1, keepdims=True))
