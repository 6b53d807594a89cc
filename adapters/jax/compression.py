"""Deep gradient compression in JAX, see dlperf.adapters.compression."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from dlperf.adapters import compression
from dlperf.adapters.compression import deep, density, first, kept
from dlperf.adapters.jax.communication import COMMON, OWN, RANKS


class Deep:
    """A step in two programs: one computes the gradients of this rank's own loss, the other exchanges what is sent of
    them and updates the weights. Of the second there is one for each density, whose counts are constants.

    optimizer: dlperf.adapters.jax.optimizers.SGD, which updates what is not compressed. differentiated: of a Trainer.
    specs: of its state, with `kept`.
    """

    def __init__(self, job, devices, optimizer, differentiated, specs):
        compression.check(job)
        self._job, self._devices, self._optimizer, self._specs = job, devices, optimizer, specs
        self._differentiated, self._programs, self._steps = differentiated, {}, 0
        self.gradient_bytes, self._bytes = 0, {}
        specs_of_loss = (OWN, OWN) if job.trace_steps else OWN
        self._backward = devices.compiled(self._of_own_loss, (OWN, OWN, specs_of_loss))
        self.description = "deep gradient compression: top_k, all_gather, scatter-add (gloo)"

    @staticmethod
    def initial(job, weights):
        """What each rank keeps: state["kept"]."""
        zeros = {name: jnp.zeros_like(weight) for name, weight in weights.items() if deep(weight)}
        v = jax.tree.map(partial(_first, job), zeros)
        return {"u": zeros, "v": v}

    def __call__(self, state, batch):
        gradients, statistics, loss = self._backward(state, batch)
        share = density(self._job, self._steps)
        self._steps += 1
        if share not in self._programs:
            specs = (self._specs, COMMON) if self._job.trace_steps else self._specs
            self._programs[share] = self._devices.compiled(
                partial(self._exchange, share), specs, donate_argnums=(0, 1, 2)
            )
        found = self._programs[share](state, gradients, statistics)
        self.gradient_bytes = self._bytes[share]
        return (found[0], (*loss, found[1])) if self._job.trace_steps else (found, loss)

    def trace(self, state, batch):
        return self._backward.trace(state, batch)

    def _of_own_loss(self, state, batch):
        gradients, (loss, logits, statistics) = self._differentiated(state, batch, self._devices.own_gradients)
        loss = self._devices.own_row(loss)
        return gradients, statistics, (loss, logits) if self._job.trace_steps else loss

    def _exchange(self, share, state, gradients, statistics):
        weights, recipe, size = state["weights"], self._optimizer.recipe, self._devices.mesh.size
        counts = {name: kept(weights[name].size, share) for name in state["kept"]["u"]}
        u, v, values, places = {}, {}, [], []
        for name in counts:
            gradient = gradients[name]
            if name in self._optimizer.decayed:
                gradient = gradient + recipe.weight_decay * weights[name]
            u[name] = (recipe.momentum * state["kept"]["u"][name] + gradient).reshape(-1)
            v[name] = state["kept"]["v"][name].reshape(-1) + u[name]
        for name, count in counts.items():
            _, place = lax.top_k(jnp.abs(v[name]), count)
            values.append(v[name][place])
            places.append(place)
            for held in (u, v):
                held[name] = held[name].at[place].set(0).reshape(weights[name].shape)
        values, places = self._gathered(share, values), self._gathered(share, places)
        means = self._averaged(share, {name: gradient for name, gradient in gradients.items() if name not in counts})
        with jax.named_scope("optimizer"):
            plain = {name: weights[name] for name in means}
            plain, optimizer = self._optimizer.update(plain, means, state["optimizer"], state["step"])
            updated, begin = dict(weights, **plain), 0
            for name, count in counts.items():
                of_all = (slice(None), slice(begin, begin + count))
                sent, where = values[of_all].reshape(-1) / size, places[of_all].reshape(-1)
                flat = weights[name].reshape(-1).at[where].add(-recipe.learning_rate * sent)
                updated[name], begin = flat.reshape(weights[name].shape), begin + count
                if self._job.trace_steps:
                    means[name] = jnp.zeros_like(flat).at[where].add(sent).reshape(weights[name].shape)
        new = dict(state, weights=updated, statistics=statistics, optimizer=optimizer, step=state["step"] + 1)
        new["kept"] = {"u": u, "v": v}
        return (new, means) if self._job.trace_steps else new

    def _gathered(self, share, parts):
        """Of all ranks: (ranks, values)."""
        own = jnp.concatenate(parts)
        self._count(share, own)
        return lax.all_gather(own, RANKS, to="invarying")

    def _averaged(self, share, gradients):
        flat, unravel = ravel_pytree(gradients)
        self._count(share, flat)
        return unravel(lax.pmean(flat, RANKS))

    def _count(self, share, array):
        """Bytes that a rank hands over, when the program is traced."""
        self._bytes[share] = self._bytes.get(share, 0) + array.size * array.dtype.itemsize


def _first(job, zeros):
    """Of v. zeros: one tensor; a convolution's has the axes that dlperf.adapters.jax.runtime.load gives it."""
    if not job.trace_steps:
        return jnp.zeros_like(zeros)
    return jnp.asarray(first(zeros.shape, (2, 3, 1, 0) if zeros.ndim == 4 else ()), zeros.dtype)
