"""What the traced training step tells of itself."""

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from dlperf import models


def of(step, job):
    """For Trainer.effective, the keys that the job's family has. step: the jaxpr of a training step."""
    if models.FAMILY_OF[job.model] != "bert":
        return {}
    equations = list(_equations(step.jaxpr))
    has_erf = any(one.primitive.name in ("erf", "erfc") for one in equations)
    return {
        "dropout": ", ".join(sorted(set(_rates(equations)))) or "0.0",
        "gelu": "erf" if has_erf else "without erf",
    }


def _rates(equations):
    """Of dropout: what random bits, which are whole numbers without a sign, are compared with."""
    for one in equations:
        if one.primitive.name == "ge" and isinstance(one.invars[1], Literal):
            dtype = jnp.dtype(one.invars[1].aval.dtype)
            if dtype.kind == "u":
                yield f"{float(one.invars[1].val) / 2 ** (8 * dtype.itemsize):.3g}"


def _equations(jaxpr):
    """Of a jaxpr and of all that it calls."""
    for one in jaxpr.eqns:
        yield one
        for value in jax.tree.leaves(list(one.params.values()), is_leaf=lambda x: isinstance(x, (Jaxpr, ClosedJaxpr))):
            if isinstance(value, ClosedJaxpr):
                yield from _equations(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from _equations(value)
