"""The optimizers of JAX's step, and its loss scaling: written here, compiled into the step."""

import math

import jax
import jax.numpy as jnp

from dlperf.adapters import base

#: dynamic loss scaling as torch.amp.GradScaler has it
FIRST_SCALE, GROWTH_STEPS = 2.0**16, 2000


class SGD:
    """Momentum and weight decay, as dlperf.models.resnet.Optimizer says."""

    kernel = "SGD, written in JAX (compiled into the step)"

    def __init__(self, job, recipe):
        self.recipe, self.decayed = recipe, decayed(job)

    def initial(self, weights):
        return {"velocity": jax.tree.map(jnp.zeros_like, weights)}

    def update(self, weights, gradients, state, step):
        recipe, velocity, updated = self.recipe, {}, {}
        for name, weight in weights.items():
            gradient = gradients[name]
            if name in self.decayed:
                gradient = gradient + recipe.weight_decay * weight
            velocity[name] = recipe.momentum * state["velocity"][name] + gradient
            updated[name] = weight - recipe.learning_rate * velocity[name]
        return updated, {"velocity": velocity}


class AdamW:
    """Decoupled weight decay, bias correction and clipping, as dlperf.models.bert.Optimizer says."""

    kernel = "AdamW, written in JAX (compiled into the step)"

    def __init__(self, job, recipe):
        self._recipe, self._decayed, self._clip_norm = recipe, decayed(job), job.clip_norm
        self._sum_of_squares = sum_of_squares if job.device == "cpu" else sum_of_squares_of_alike

    def initial(self, weights):
        return {moment: jax.tree.map(jnp.zeros_like, weights) for moment in ("mean", "square")}

    def update(self, weights, gradients, state, step):
        recipe, updated, mean, square = self._recipe, {}, {}, {}
        factor = 1.0
        if self._clip_norm is not None:
            norm = jnp.sqrt(self._sum_of_squares(gradients))
            factor = jnp.minimum(1.0, self._clip_norm / norm)
        for name, weight in weights.items():
            gradient = gradients[name] * factor
            mean[name] = recipe.beta1 * state["mean"][name] + (1 - recipe.beta1) * gradient
            square[name] = recipe.beta2 * state["square"][name] + (1 - recipe.beta2) * jnp.square(gradient)
            # 1 - beta^t without the digits that float32 loses there
            steps = (step + 1).astype(weight.dtype)
            unbiased_mean = mean[name] / -jnp.expm1(steps * math.log(recipe.beta1))
            unbiased_square = square[name] / -jnp.expm1(steps * math.log(recipe.beta2))
            change = unbiased_mean / (jnp.sqrt(unbiased_square) + recipe.eps)
            if name in self._decayed:
                change = change + recipe.weight_decay * weight
            updated[name] = weight - recipe.learning_rate * change
        return updated, {"mean": mean, "square": square}


def decayed(job):
    """Names of the weights that decay."""
    return {parameter.name for parameter in base.parameters(job) if parameter.decayed}


def sum_of_squares(gradients):
    """Of all gradients, a dict of arrays; on a CPU."""
    return sum(jnp.sum(jnp.square(gradient)) for gradient in gradients.values())


def sum_of_squares_of_alike(gradients):
    """The same on a GPU, where one kernel does for all gradients of a shape."""
    alike = {}
    for gradient in gradients.values():
        alike.setdefault(gradient.shape, []).append(gradient)
    return sum(jnp.sum(jnp.square(jnp.stack(same))) for same in alike.values())


def first_scale():
    return {"value": jnp.float32(FIRST_SCALE), "good_steps": jnp.zeros((), jnp.int32)}


def guarded(old, new, gradients):
    """Loss scaling: the old state where a gradient is not finite, then half the scale; double after enough steps.

    Selected, not branched: a branch would wait for the device. The sum tells it that clipping takes the root of.
    """
    finite = jnp.isfinite(sum_of_squares_of_alike(gradients))
    scale, good_steps = old["scale"]["value"], old["scale"]["good_steps"] + 1
    grown = jnp.where(good_steps == GROWTH_STEPS, scale * 2, scale)
    kept = {name: value for name, value in old.items() if name != "scale"}
    new = jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, kept)
    new["scale"] = {
        "value": jnp.where(finite, grown, scale / 2),
        "good_steps": jnp.where(finite & (good_steps < GROWTH_STEPS), good_steps, 0),
    }
    return new
