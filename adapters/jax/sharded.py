"""Tables in JAX whose rows are spread over the ranks: row r is on rank r % ranks. JAX has no parameter servers; here
each rank is one of a part, and a step exchanges the rows of all batches by collectives of a compiled program."""

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from jax.experimental import multihost_utils

from dlperf.adapters import base
from dlperf.adapters.jax import tables
from dlperf.adapters.jax.communication import COMMON, OWN, RANKS, here
from dlperf.models.parameters import count, initial


class Trainer(tables.Trainer):
    """As tables.Trainer, in several ranks. A rank's part of a table has one row more, which stands for all rows that it
    does not have: what it is asked for of those it answers with zeros, and what it is told of them goes there."""

    #: see dlperf.adapters.api.Trainer
    together = True

    def __init__(self, job, *arguments):
        super().__init__(job, *arguments)
        self.parameter_count = count(base.parameters(job))
        how = "rows of tables over the ranks: all_gather, psum_scatter; other tensors by pmean (gloo)"
        self.effective["communication"] = how

    def _initial(self, job, optimizer):
        rank, ranks = jax.process_index(), jax.process_count()
        self._rows = {one.name: one.shape[0] for one in base.parameters(job) if one.kind == "embedding"}
        weights = {}
        for one in base.parameters(job):
            own = slice(rank, None, ranks) if one.name in self._rows else slice(None)
            values = initial(one, job.seed, job.weights_dtype, own)
            if one.name in self._rows:
                part = numpy.zeros((-(-one.shape[0] // ranks) + 1, *one.shape[1:]), job.weights_dtype)
                part[: len(values)] = values
                values = part
            weights[one.name] = jax.device_put(values)
        state, specs = self._state_of(job, weights, {}, optimizer)
        of_weights = {name: OWN if name in self._rows else COMMON for name in weights}
        specs["weights"] = of_weights
        specs["optimizer"] = {key: of_weights if key != "places" else OWN for key in state["optimizer"]}
        if "places" in state["optimizer"]:
            state["optimizer"]["places"] = {
                name: jnp.zeros(len(weights[name]), jnp.int32) for name in state["optimizer"]["places"]
            }
        return state, specs

    def _train(self, state, batch):
        weights, asked = state["weights"], self._network.looked_up(batch)
        self._sent = 0
        # of the rows that all ranks ask for, those that this one has, by their places in its part
        chosen = {name: self._own(self._gathered(rows), len(weights[name]) - 1) for name, rows in asked.items()}
        rows = {
            name: self._answered(weights[name], chosen[name]) if name in chosen else lax.pcast(one, RANKS, to="varying")
            for name, one in weights.items()
        }
        differentiated = jax.value_and_grad(lambda rows: self._loss(self._network, batch, rows), has_aux=True)
        (loss, logits), gradients = differentiated(rows)
        means = {
            name: self._gathered(one) / self._devices.mesh.size if name in chosen else self._mean(one)
            for name, one in gradients.items()
        }
        flat = {name: one.reshape(-1, one.shape[-1]) if name in chosen else one for name, one in means.items()}
        places = {name: one.reshape(-1) for name, one in chosen.items()}
        with jax.named_scope("optimizer"):
            weights, optimizer = self._optimizer.update(weights, places, flat, state["optimizer"], state["step"])
        new = {**state, "weights": weights, "optimizer": optimizer, "step": state["step"] + 1}
        loss = self._devices.own_row(loss)
        if not self._job.trace_steps:
            return new, loss
        told = {name: (self._gathered(rows), flat[name]) for name, rows in asked.items()}
        return new, (loss, logits, (told, {name: one for name, one in means.items() if name not in chosen}))

    def _gathered(self, own):
        """Of all ranks: (ranks, ...)."""
        self._sent += own.size * own.dtype.itemsize
        return lax.all_gather(own, RANKS, to="invarying")

    def _own(self, rows, other):
        """Places in this rank's part, `other` for what is not there."""
        ranks = self._devices.mesh.size
        return jnp.where(rows % ranks == lax.axis_index(RANKS), rows // ranks, other)

    def _answered(self, table, chosen):
        """The rows that this rank's batch needs: of each all ranks but one send zeros."""
        found = jnp.where((chosen == len(table) - 1)[..., None], 0, table[chosen])
        self._sent += found.size * found.dtype.itemsize
        return lax.psum_scatter(found, RANKS)

    def _mean(self, gradient):
        self._sent += gradient.size * gradient.dtype.itemsize
        return lax.pmean(gradient, RANKS)

    @property
    def gradient_bytes(self):
        """Of rows, what is asked for and answered besides; counted when the step is compiled."""
        return getattr(self, "_sent", 0)

    def parameters(self):
        return self._whole(self._state["weights"])

    def moments(self):
        state = self._state["optimizer"]
        return {moment: self._whole(state[moment]) for moment in ("mean", "square") if moment in state}

    def _whole(self, held):
        """All ranks must take all of it."""
        for parameter in base.parameters(self._job):
            if parameter.name in self._rows:
                parts = multihost_utils.process_allgather(held[parameter.name], tiled=True)
                parts = parts.reshape(self._devices.mesh.size, -1, *parameter.shape[1:])[:, :-1]
                yield parameter.name, parts.swapaxes(0, 1).reshape(-1, *parameter.shape[1:])[: parameter.shape[0]]
            else:
                yield parameter.name, here(held[parameter.name])

    def gradients(self):
        told, dense = self._traced[1]
        for name, (rows, values) in told.items():
            yield name, base.summed(here(rows).reshape(-1), here(values))
        yield from ((name, here(one)) for name, one in dense.items())
