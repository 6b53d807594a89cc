"""Tables in JAX of which a step looks up rows: it reads and changes these alone. Other tensors are changed whole."""

import math

import jax
import jax.numpy as jnp

from dlperf.adapters import base
from dlperf.adapters.jax import runtime


class SGD:
    """w = w - rate * g. rates: of each tensor."""

    kernel = "SGD of rows, written in JAX (compiled into the step)"

    def __init__(self, rates):
        self._rates = rates

    def initial(self, weights):
        return {}

    def update(self, weights, chosen, gradients, state, step):
        """chosen: by table, the row of each of its gradients."""
        updated = {}
        for name, weight in weights.items():
            change = -self._rates[name] * gradients[name]
            updated[name] = weight.at[chosen[name]].add(change) if name in chosen else weight + change
        return updated, state


class LazyAdam:
    """As dlperf.models.ctr_dnn.Optimizer says.

    places: of each row of a table room for a number, see `summed`.
    """

    kernel = "Adam, of tables for rows, written in JAX (compiled into the step)"

    def __init__(self, job, recipe):
        self._recipe = recipe
        self._tables = {one.name: one.shape[0] for one in base.parameters(job) if one.kind == "embedding"}

    def initial(self, weights):
        places = {name: jnp.zeros(rows, jnp.int32) for name, rows in self._tables.items()}
        moments = {moment: jax.tree.map(jnp.zeros_like, weights) for moment in ("mean", "square")}
        return {**moments, "places": places}

    def update(self, weights, chosen, gradients, state, step):
        """chosen: by table, the row of each of its gradients."""
        updated, means, squares, places = {}, {}, {}, {}
        for name, weight in weights.items():
            mean, square, gradient = state["mean"][name], state["square"][name], gradients[name]
            if name not in chosen:
                change, means[name], squares[name] = self._change(mean, square, gradient, step)
                updated[name] = weight + change
                continue
            rows, gradient, places[name] = summed(state["places"][name], chosen[name], gradient)
            old = (moment.at[rows].get(mode="clip") for moment in (mean, square))
            change, m, v = self._change(*old, gradient, step)
            how = {"mode": "drop", "unique_indices": True}
            means[name], squares[name] = mean.at[rows].set(m, **how), square.at[rows].set(v, **how)
            updated[name] = weight.at[rows].add(change, **how)
        return updated, {"mean": means, "square": squares, "places": places}

    def _change(self, mean, square, gradient, step):
        """What is added to weights, and the new moments."""
        recipe, steps = self._recipe, (step + 1).astype(gradient.dtype)
        mean = recipe.beta1 * mean + (1 - recipe.beta1) * gradient
        square = recipe.beta2 * square + (1 - recipe.beta2) * jnp.square(gradient)
        # 1 - beta^t without the digits that float32 loses there
        unbiased_mean = mean / -jnp.expm1(steps * math.log(recipe.beta1))
        unbiased_square = square / -jnp.expm1(steps * math.log(recipe.beta2))
        return -recipe.learning_rate * unbiased_mean / (jnp.sqrt(unbiased_square) + recipe.eps), mean, square


def summed(places, rows, gradients):
    """Rows, each once, the sum of the gradients of each, and new places. rows: int32 (n,), gradients: (n, width).

    Results have n rows, too, as a compiled program wants it: of several gradients of one row all but one get a row
    behind the table, where nothing is. The one is that whose number the row has in `places` when all have written
    theirs there; what other steps wrote is never read. To sort the rows would take a CPU several times as long.
    """
    numbers = jnp.arange(len(rows), dtype=places.dtype)
    places = places.at[rows].set(numbers)
    own = places[rows]
    sums = jnp.zeros_like(gradients).at[own].add(gradients)
    return jnp.where(own == numbers, rows, len(places) + numbers), sums, places


class Trainer(runtime.Trainer):
    """JAX's gradient of a lookup is a whole table of zeros and some rows; so it is taken of what was looked up.

    loss: network, batch, rows -> scalar, logits. rows: of a table what `looked_up` of the network names, other tensors
    whole.
    """

    def _train(self, state, batch):
        weights, chosen = state["weights"], self._network.looked_up(batch)
        rows = {name: one[chosen[name]] if name in chosen else one for name, one in weights.items()}
        differentiated = jax.value_and_grad(lambda rows: self._loss(self._network, batch, rows), has_aux=True)
        (loss, logits), gradients = differentiated(rows)
        with jax.named_scope("optimizer"):
            weights, optimizer = self._optimizer.update(weights, chosen, gradients, state["optimizer"], state["step"])
        new = {**state, "weights": weights, "optimizer": optimizer, "step": state["step"] + 1}
        return new, (loss, logits, (chosen, gradients)) if self._job.trace_steps else loss

    def gradients(self):
        chosen, gradients = self._traced[1]
        yield from ((name, base.summed(rows, gradients[name])) for name, rows in chosen.items())
        yield from self._canonical({name: one for name, one in gradients.items() if name not in chosen})
