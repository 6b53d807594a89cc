"""Word2Vec in JAX: one jitted step with donated tables, of which it reads and changes the rows of a batch alone."""

import jax
import jax.numpy as jnp

from dlperf import models
from dlperf.adapters.jax import runtime, sharded, tables
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.models import word2vec

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(models.config(job.model))
    optimizer = tables.SGD(word2vec.rates(network.config, word2vec.optimizer(job.batch_size)))
    feed = runtime.Feed(job, ranks)
    trainer = sharded.Trainer if ranks.world_size > 1 else tables.Trainer
    return trainer(job, ranks, network, loss, optimizer, feed, {"tables": "rows of a batch"})


def loss(network, batch, rows):
    logits = network(rows)
    of_negatives = jax.nn.softplus(logits[:, 1:]).sum(1)
    return (jax.nn.softplus(-logits[:, 0]) + of_negatives).mean(), (logits,)


class Network:
    """Over rows that were looked up. Names are the canonical ones of dlperf.models.word2vec."""

    def __init__(self, config):
        self.config = config
        self.shapes, self.compute_dtype = {}, None

    def looked_up(self, batch):
        """The rows that a batch needs, by table."""
        negatives = batch["negatives"][0] if self.config.shared else batch["negatives"].reshape(-1)
        contexts = jnp.concatenate([batch["contexts"], negatives])
        return {"emb.weight": batch["words"], "emb_w.weight": contexts, "emb_b.weight": contexts}

    def __call__(self, rows):
        h, w, b = (rows[f"{name}.weight"] for name in ("emb", "emb_w", "emb_b"))
        count, width = h.shape
        own = (h * w[:count]).sum(1, keepdims=True) + b[:count]
        others, biases = w[count:], b[count:]
        if self.config.shared:
            others = h @ others.T + biases.T
        else:
            others = jnp.einsum("nd,nkd->nk", h, others.reshape(count, -1, width)) + biases.reshape(count, -1)
        logits = jnp.concatenate([own, others], 1)
        self.compute_dtype = logits.dtype
        self.shapes.update(logits=logits.shape[1:], negatives=() if self.config.shared else (self.config.negatives,))
        return logits
