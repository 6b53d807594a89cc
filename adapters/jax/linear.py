"""Matrix products in JAX, with their derivative; and the type of what 16 bits are too few for."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

#: beyond, transposing costs a CPU more than a bfloat16 product saves (ResNet's many pixels; BERT has few tokens)
MOST_ROWS_TRANSPOSED = 2048


def wide(x):
    """In float32 or better: for statistics, softmax and losses."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def linear(x, weight, device):
    """x (.., n, in) times weight (.., out, in) transposed, in x's dtype; half precision is summed up in float32.

    `weight` may be float32 beside an x of half precision: it is cast here, and has its gradient in float32.
    Written with its derivative, since JAX's own would multiply float32 by bfloat16 where the sums are float32.
    """
    return summed(x, weight.astype(x.dtype), -1, -1, _written(x.dtype, device)).astype(x.dtype)


def _forward(x, weight, device):
    cast = weight.astype(x.dtype)
    return linear(x, cast, device), (x, cast, jnp.zeros((), weight.dtype))


def _backward(device, saved, gradient):
    x, cast, weight = saved
    of_x = summed(gradient, cast, -1, -2, _written(x.dtype, device)).astype(x.dtype)
    return of_x, _weight_gradient(gradient, x, _written(weight.dtype, device), device).astype(weight.dtype)


def _written(dtype, device):
    """What a product writes whose result is to be `dtype`. cuBLAS sums in float32 whatever it writes, and XLA would not
    fold a cast into its call; on a CPU the sums are of the type that is written."""
    return dtype if device == "cuda" else jnp.promote_types(dtype, jnp.float32)


def _weight_gradient(gradient, x, dtype, device):
    rows = x.shape[-2]
    if device == "cuda" or x.dtype.itemsize > 2 or rows > MOST_ROWS_TRANSPOSED:
        return summed(gradient, x, -2, -2, dtype)
    # XLA's CPU compiler multiplies bfloat16 as such (AMX) only where the left side is row-major and summed over its
    # last axis; else as float32, five times slower. The reshape makes the transposed gradient row-major.
    shape = (*x.shape[:-2], gradient.shape[-1], rows)
    return summed(jnp.swapaxes(gradient[None], -1, -2).reshape(shape), x, -1, -2, dtype)


def summed(a, b, axis_of_a, axis_of_b, dtype):
    """Products of stacks of matrices, summed over these axes."""
    stack = tuple(range(a.ndim - 2))
    dimensions = (((a.ndim + axis_of_a,), (b.ndim + axis_of_b,)), (stack, stack))
    return lax.dot_general(a, b, dimensions, preferred_element_type=dtype)


linear.defvjp(_forward, _backward)


@jax.custom_vjp
def plus(x, bias):
    """x (n, out) plus a float32 bias, in x's dtype. The bias has its gradient in float32: of 16 bits XLA would write a
    sum of 16 bits, which a Hopper also adds up in them."""
    return x + bias.astype(x.dtype)


plus.defvjp(
    lambda x, bias: (plus(x, bias), jnp.zeros((), bias.dtype)),
    lambda bias, gradient: (gradient, gradient.sum(0, dtype=bias.dtype)),
)


@jax.named_scope("product")
def dense(x, weights, name, device):
    """A dense layer. x (n, in), in whose dtype its output is."""
    y, bias = linear(x, weights[name + ".weight"], device), weights[name + ".bias"]
    return plus(y, bias) if device == "cuda" else y + bias.astype(x.dtype)
