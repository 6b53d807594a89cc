"""CTR-DNN in JAX: one jitted step with a donated table and moments, of which it reads and changes the rows of a batch
alone."""

import jax
import jax.numpy as jnp

from dlperf import models
from dlperf.adapters.jax import runtime, sharded, tables
from dlperf.adapters.jax.linear import dense
from dlperf.adapters.jax.runtime import copy, product, versions
from dlperf.adapters.jax.vgg import cross_entropy
from dlperf.models import ctr_dnn

__all__ = ["Network", "build", "copy", "loss", "product", "versions"]


def build(job, ranks):
    runtime.configure(job, ranks)
    network = Network(models.config(job.model), job)
    optimizer = tables.LazyAdam(job, ctr_dnn.optimizer(job.batch_size))
    feed = runtime.Feed(job, ranks)
    trainer = sharded.Trainer if ranks.world_size > 1 else tables.Trainer
    return trainer(job, ranks, network, loss, optimizer, feed, {"tables": "rows of a batch"})


def loss(network, batch, rows):
    logits = network(batch, rows)
    return cross_entropy(logits, batch["clicked"]), (logits,)


class Network:
    """Over rows that were looked up. Names are the canonical ones of dlperf.models.ctr_dnn."""

    def __init__(self, config, job):
        self.config, self.device = config, job.device
        self.shapes, self.compute_dtype = {}, None

    def looked_up(self, batch):
        """The rows that a batch needs of its table."""
        return {"emb.weight": batch["categories"].reshape(-1)}

    def __call__(self, batch, rows):
        numbers = batch["numbers"]
        x = jnp.concatenate([rows["emb.weight"].reshape(len(numbers), -1), numbers], 1)
        for name in ctr_dnn.LAYERS:
            x = dense(x, rows, name, self.device)
            if name != ctr_dnn.LAYERS[-1]:
                x = jax.nn.relu(x)
        self.compute_dtype = x.dtype
        self.shapes.update(logits=x.shape[1:], numbers=numbers.shape[1:], categories=batch["categories"].shape[1:])
        return x
