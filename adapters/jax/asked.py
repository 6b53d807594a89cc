"""What the traced training step tells of itself."""

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from dlperf import models


def of(step, job):
    """For Trainer.effective, the keys that the job's family has. step: the jaxpr of a training step."""
    told, found = models.family(job.model).EFFECTIVE, {}
    equations = list(_equations(step.jaxpr))
    if "dropout" in told:
        found["dropout"] = ", ".join(sorted(set(_rates(equations)))) or "0.0"
    if "gelu" in told:
        names = {one.primitive.name for one in equations}
        found["gelu"] = "erf" if names & {"erf", "erfc"} else "tanh" if "tanh" in names else "neither erf nor tanh"
    return found


def _rates(equations):
    """Of dropout: what random bits, which are whole numbers without a sign, are compared with."""
    varying = {}  # the constants that shard_map makes values of each rank
    for one in equations:
        name = one.primitive.name
        if name in ("pvary", "pcast") and isinstance(one.invars[0], Literal):
            varying[one.outvars[0]] = one.invars[0]
        elif name == "ge":
            bar = one.invars[1]
            bar = bar if isinstance(bar, Literal) else varying.get(bar)
            if bar is not None and jnp.dtype(bar.aval.dtype).kind == "u":
                yield f"{float(bar.val) / 2 ** (8 * bar.aval.dtype.itemsize):.3g}"


def _equations(jaxpr):
    """Of a jaxpr and of all that it calls."""
    for one in jaxpr.eqns:
        yield one
        for value in jax.tree.leaves(list(one.params.values()), is_leaf=lambda x: isinstance(x, (Jaxpr, ClosedJaxpr))):
            if isinstance(value, ClosedJaxpr):
                yield from _equations(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from _equations(value)
