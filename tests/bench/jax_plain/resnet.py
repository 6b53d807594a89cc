"""ResNet-50 v1.5 of jax-resnet, or where that is missing one of flax's layers, trained as flax's ImageNet example does:
TrainState, optax.sgd, one jitted step."""

import os
from functools import partial
from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

from dlperf.models import resnet
from dlperf.models.batches import Batches

try:
    from jax_resnet import ResNet50
except ImportError:
    from dlperf.adapters.jax_plain.network import ResNet50

__all__ = ["build", "versions"]


def versions():
    return {"jax": jax.__version__, "flax": flax.__version__}


def build(job, ranks):
    dtype = configure(job)
    network = ResNet50(
        n_classes=1000,
        conv_cls=partial(nn.Conv, dtype=dtype),
        norm_cls=partial(nn.BatchNorm, momentum=0.9, dtype=dtype),
    )
    recipe = resnet.optimizer(job.batch_size)
    optimizer = optax.chain(
        optax.add_decayed_weights(recipe.weight_decay), optax.sgd(recipe.learning_rate, recipe.momentum)
    )
    return Trainer(job, ranks, network, train_step, optimizer, prepare, dtype)


def configure(job):
    """Threads and precision. Returns the type of products."""
    os.environ["NPROC"] = str(job.threads)  # XLA's CPU client reads its number of threads from here
    if job.device == "cuda":
        precision = {"fp32": "highest", "tf32": "high"}.get(job.precision, "default")
        jax.config.update("jax_default_matmul_precision", precision)
    return {"amp_bf16": jnp.bfloat16, "amp_fp16": jnp.float16}.get(job.precision, jnp.float32)


class State(TrainState):
    batch_stats: Any


class Trainer:
    """train_step: state, batch -> state, loss. prepare: a batch of arrays -> what the network takes, and labels."""

    input_seconds = None

    def __init__(self, job, ranks, network, train_step, optimizer, prepare, dtype):
        self._batches, self._train_step = [prepare(batch) for batch in Batches(job, ranks).pool()], train_step
        first = self._batches[0]
        keys = {"params": jax.random.key(job.seed), "dropout": jax.random.key(job.dropout_seed)}
        variables = jax.jit(network.init)(keys, first[0] if isinstance(first, tuple) else first)
        self._state = State.create(
            apply_fn=network.apply,
            params=variables["params"],
            batch_stats=variables.get("batch_stats"),
            tx=optimizer,
        )
        self._steps = 0
        self.shapes = {}
        self.parameter_count = sum(weight.size for weight in jax.tree.leaves(self._state.params))
        self.effective = {
            "precision": job.precision,
            "compute_dtype": jnp.dtype(dtype).name,
            "threads": job.threads,
            "data": "synthetic",
        }

    def step(self):
        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        self._state, loss = self._train_step(self._state, batch)
        return loss

    def wait(self):
        jax.block_until_ready(self._state)

    def read(self, loss):
        return float(loss)

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        pass


@jax.jit
def train_step(state, batch):
    images, labels = batch

    def loss_of(params):
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, updated = state.apply_fn(variables, images, mutable=["batch_stats"])
        return optax.softmax_cross_entropy(logits, labels).mean(), updated

    (loss, updated), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradients, batch_stats=updated["batch_stats"]), loss


def prepare(batch):
    labels = optax.smooth_labels(jax.nn.one_hot(batch["labels"], 1000), 0.1)
    return jnp.array(batch["images"].transpose(0, 2, 3, 1)), labels
