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
    os.environ["NPROC"] = str(job.threads)  # XLA's CPU client reads its number of threads from here
    return Trainer(job, ranks)


class State(TrainState):
    batch_stats: Any


class Trainer:
    input_seconds = None

    def __init__(self, job, ranks):
        self._batches = [prepare(batch) for batch in Batches(job, ranks).pool()]
        dtype = {"amp_bf16": jnp.bfloat16, "amp_fp16": jnp.float16}.get(job.precision, jnp.float32)
        if job.device == "cuda":
            precision = {"fp32": "highest", "tf32": "high"}.get(job.precision, "default")
            jax.config.update("jax_default_matmul_precision", precision)
        network = ResNet50(
            n_classes=1000,
            conv_cls=partial(nn.Conv, dtype=dtype),
            norm_cls=partial(nn.BatchNorm, momentum=0.9, dtype=dtype),
        )
        variables = jax.jit(network.init)(jax.random.key(job.seed), self._batches[0][0])
        recipe = resnet.optimizer(job.batch_size)
        optimizer = optax.chain(
            optax.add_decayed_weights(recipe.weight_decay), optax.sgd(recipe.learning_rate, recipe.momentum)
        )
        self._state = State.create(
            apply_fn=network.apply, params=variables["params"], batch_stats=variables["batch_stats"], tx=optimizer
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
        images, labels = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        self._state, loss = train_step(self._state, images, labels)
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
def train_step(state, images, labels):
    def loss_of(params):
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, updated = state.apply_fn(variables, images, mutable=["batch_stats"])
        return optax.softmax_cross_entropy(logits, labels).mean(), updated

    (loss, updated), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradients, batch_stats=updated["batch_stats"]), loss


def prepare(batch):
    labels = optax.smooth_labels(jax.nn.one_hot(batch["labels"], 1000), 0.1)
    return jnp.array(batch["images"].transpose(0, 2, 3, 1)), labels
