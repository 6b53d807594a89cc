"""Tables in JAX of which a step looks up rows: it reads and changes these alone."""

import jax

from dlperf.adapters import base
from dlperf.adapters.jax import runtime


class SGD:
    """As dlperf.models.word2vec.Optimizer says, of some rows of each table."""

    kernel = "SGD of rows, written in JAX (compiled into the step)"

    def __init__(self, recipe):
        self._rate = recipe.learning_rate

    def initial(self, weights):
        return {}

    def update(self, weights, chosen, gradients):
        return {name: table.at[chosen[name]].add(-self._rate * gradients[name]) for name, table in weights.items()}


class Trainer(runtime.Trainer):
    """JAX's gradient of a lookup is a whole table of zeros and some rows; so it is taken of what was looked up."""

    def _train(self, state, batch):
        chosen = self._network.looked_up(batch)
        rows = {name: table[chosen[name]] for name, table in state["weights"].items()}
        (loss, logits), gradients = jax.value_and_grad(lambda rows: self._loss(self._network, rows), has_aux=True)(rows)
        with jax.named_scope("optimizer"):
            weights = self._optimizer.update(state["weights"], chosen, gradients)
        new = {**state, "weights": weights, "step": state["step"] + 1}
        return new, (loss, (logits,), (chosen, gradients)) if self._job.trace_steps else loss

    def gradients(self):
        chosen, gradients = self._traced[1]
        return ((name, base.summed(chosen[name], gradients[name])) for name in gradients)
