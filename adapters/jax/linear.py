"""Matrix products in JAX, with their derivative; and the type of what 16 bits are too few for."""

import jax
import jax.numpy as jnp
from jax import lax

#: beyond, transposing costs a CPU more than a bfloat16 product saves (ResNet's many pixels; BERT has few tokens)
MOST_ROWS_TRANSPOSED = 2048


def wide(x):
    """In float32 or better: for statistics, softmax and losses."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


@jax.custom_vjp
def linear(x, weight):
    """x (.., n, in) times weight (.., out, in) transposed, in x's dtype; half precision is summed up in float32.

    `weight` may be float32 beside an x of half precision: it is cast here, and has its gradient in float32.
    Written with its derivative, since JAX's own would multiply float32 by bfloat16 where the sums are float32.
    """
    return _product(x, weight.astype(x.dtype), -1, -1).astype(x.dtype)


def _forward(x, weight):
    cast = weight.astype(x.dtype)
    return _product(x, cast, -1, -1).astype(x.dtype), (x, cast, jnp.zeros((), weight.dtype))


def _backward(saved, gradient):
    x, cast, weight = saved
    of_x = _product(gradient, cast, -1, -2).astype(x.dtype)
    return of_x, _weight_gradient(gradient, x).astype(weight.dtype)


def _weight_gradient(gradient, x):
    rows = x.shape[-2]
    if x.dtype.itemsize > 2 or rows > MOST_ROWS_TRANSPOSED:
        return _product(gradient, x, -2, -2)
    # XLA's CPU compiler multiplies bfloat16 as such (AMX) only where the left side is row-major and summed over its
    # last axis; else as float32, five times slower. The reshape makes the transposed gradient row-major.
    shape = (*x.shape[:-2], gradient.shape[-1], rows)
    return _product(jnp.swapaxes(gradient[None], -1, -2).reshape(shape), x, -1, -2)


def _product(a, b, axis_of_a, axis_of_b):
    """Of stacks of matrices, summed over these axes."""
    stack = tuple(range(a.ndim - 2))
    dimensions = (((a.ndim + axis_of_a,), (b.ndim + axis_of_b,)), (stack, stack))
    return lax.dot_general(a, b, dimensions, preferred_element_type=jnp.promote_types(a.dtype, jnp.float32))


linear.defvjp(_forward, _backward)
