"""Operations on CUDA with their derivatives written out: XLA then keeps less for the backward pass, and reads and
writes less, than of what JAX derives. Shapes of heads: (rows, heads, columns, size)."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from dlperf.adapters.jax.linear import linear, plus, wide


def kept(seed, shape, rate):
    """A mask, False at `rate`: a hash of each element's index and of seed, two uint32. It is computed again wherever it
    is needed, inside of other kernels; the bits of XLA's generator go through memory. The hash is Wellons' triple32,
    with the seed before and within; what is compared is its upper bits, those of the last product."""
    x = lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) ^ seed[0]
    x = (x ^ (x >> 17)) * jnp.uint32(0xED5AD4BB)
    x = ((x ^ (x >> 11)) + seed[1]) * jnp.uint32(0xAC4C1B51)
    x = (x ^ (x >> 15)) * jnp.uint32(0x31848BAB)
    return x >= jnp.uint32(round(rate * 2**32))


def dropped(x, seed, rate):
    return jnp.where(kept(seed, x.shape, rate), x / (1 - rate), 0) if rate else x


@jax.custom_vjp
def gelu(x):
    """Keeps x alone."""
    values = wide(x)
    return (values * _below(values)).astype(x.dtype)


def _gelu_backward(x, gradient):
    values = wide(x)
    density = jnp.exp(-jnp.square(values) / 2) / math.sqrt(2 * math.pi)
    return (((_below(values) + values * density) * wide(gradient)).astype(x.dtype),)


def _below(x):
    """The normal distribution: the probability of less than x."""
    return (1 + lax.erf(x / math.sqrt(2))) / 2


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def norm(x, weight, bias, eps, one_pass):
    """LayerNorm of (rows, hidden). Keeps x, and two numbers of a row. one_pass: see `resnet.Network`."""
    return _norm_forward(x, weight, bias, eps, one_pass)[0]


def _norm_forward(x, weight, bias, eps, one_pass):
    mean, variance = (one[:, None] for one in moments(wide(x), 1, one_pass))
    scale = lax.rsqrt(variance + eps)
    return _normal(x, mean, scale, weight, bias), (x, weight, mean, scale)


def _norm_backward(eps, one_pass, saved, gradient):
    x, weight, mean, scale = saved
    gradient, normal = wide(gradient), (wide(x) - mean) * scale
    of_normal = gradient * weight
    along = (of_normal * normal).mean(-1, keepdims=True)
    of_x = scale * (of_normal - of_normal.mean(-1, keepdims=True) - normal * along)
    return of_x.astype(x.dtype), (gradient * normal).sum(0), gradient.sum(0)


norm.defvjp(_norm_forward, _norm_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def batch_norm(x, weight, bias, eps, one_pass, relu):
    """BatchNorm of (rows, channels), and the rectifier if relu: the result, mean and variance. Keeps x, and two
    numbers of a channel. Mean and variance are for the running statistics: no gradient flows back from them."""
    return _batch_norm_forward(x, weight, bias, eps, one_pass, relu)[0]


def _batch_norm_forward(x, weight, bias, eps, one_pass, relu):
    mean, variance = moments(wide(x), 0, one_pass)
    scale = lax.rsqrt(variance + eps)
    result = _normal(x, mean, scale, weight, bias)
    return (jax.nn.relu(result) if relu else result, mean, variance), (x, weight, bias, mean, scale)


def _batch_norm_backward(eps, one_pass, relu, saved, gradients):
    x, weight, bias, mean, scale = saved
    bias = lax.optimization_barrier(bias)  # or XLA keeps what is positive from the forward pass

    def rectified(bias):
        return jnp.where(_normal(x, mean, scale, weight, bias) > 0, gradients[0], 0) if relu else gradients[0]

    normal, gradient = (wide(x) - mean) * scale, wide(rectified(bias))
    zero = jnp.zeros((), gradient.dtype)
    # one reduction of both: XLA would write the rectified gradient down for two
    of_weight, of_bias = lax.reduce((gradient * normal, gradient), (zero, zero), _added, (0,))
    gradient = wide(rectified(lax.optimization_barrier((bias, of_bias))[0]))  # and the gradient from above
    of_x = weight * scale * (gradient - of_bias / len(x) - normal * of_weight / len(x))
    return of_x.astype(x.dtype), of_weight, of_bias


batch_norm.defvjp(_batch_norm_forward, _batch_norm_backward)


def _added(one, other):
    return one[0] + other[0], one[1] + other[1]


def _normal(x, mean, scale, weight, bias):
    return ((wide(x) - mean) * scale * weight + bias).astype(x.dtype)


def moments(values, axes, one_pass):
    """Mean and variance. In one pass values are read once, but float32 loses digits that full precision has."""
    mean = values.mean(axes)
    if one_pass:
        return mean, jnp.maximum(jnp.square(values).mean(axes) - jnp.square(mean), 0)
    return mean, jnp.square(values - jnp.expand_dims(mean, axes)).mean(axes)


@jax.custom_vjp
def projected(x, weights, biases):
    """x (rows, in) times each of the weights (out, in) transposed, plus its bias. Of x one product is the gradient."""
    return tuple(plus(linear(x, weight, "cuda"), bias) for weight, bias in zip(weights, biases))


def _projected_forward(x, weights, biases):
    return projected(x, weights, biases), (x, weights)


def _projected_backward(saved, gradients):
    x, weights = saved
    gradient, weight = jnp.concatenate(gradients, axis=-1), jnp.concatenate([one.astype(x.dtype) for one in weights])
    of_weights = jnp.split(_product("no,ni->oi", gradient, x, weights[0].dtype), len(weights))
    of_biases = jnp.split(gradient.sum(0, dtype=weights[0].dtype), len(weights))
    return _product("no,oi->ni", gradient, weight), tuple(of_weights), tuple(of_biases)


projected.defvjp(_projected_forward, _projected_backward)


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def attention(query, key, value, mask, seed, rate):
    """softmax(query key' / sqrt(size)), dropped at `rate`, times value. mask: True for columns that count. Keeps scores
    and one number of a row, from which the shares are computed again, not the shares."""
    return _attention_forward(query, key, value, mask, seed, rate)[0]


def _attention_forward(query, key, value, mask, seed, rate):
    scores = _product("abic,abjc->abij", query, key)
    total = _log_of_sum(_masked(scores, mask, query))
    shares = jnp.exp(_masked(scores, mask, query) - total)
    of_value = dropped(shares, seed, rate).astype(query.dtype)
    context = _product("abij,abjc->abic", of_value, value)
    return context, (query, key, value, mask, seed, scores, total, of_value, context)


def _attention_backward(rate, saved, gradient):
    query, key, value, mask, seed, scores, total, of_value, context = saved
    seed = lax.optimization_barrier(seed)  # or XLA keeps the mask for both passes
    of_shares = dropped(wide(_product("abic,abjc->abij", gradient, value)), seed, rate)
    shares = jnp.exp(_masked(scores, mask, query) - total)
    along = (wide(gradient) * wide(context)).sum(-1, keepdims=True)  # the sum of shares * of_shares
    of_scores = (shares * (of_shares - along) / math.sqrt(query.shape[-1])).astype(query.dtype)
    of_query, of_key = _product("abij,abjc->abic", of_scores, key), _product("abij,abic->abjc", of_scores, query)
    return of_query, of_key, _product("abij,abic->abjc", of_value, gradient), None, None


attention.defvjp(_attention_forward, _attention_backward)


def _masked(scores, mask, query):
    return jnp.where(mask, wide(scores) / math.sqrt(query.shape[-1]), -jnp.inf)


def _log_of_sum(x):
    """Of the exponentials of each row, reading it once."""

    def joined(one, other):
        (great, total), (greater, more) = one, other
        both = jnp.maximum(great, greater)
        scale, rescale = (jnp.where(part == both, 1, jnp.exp(part - both)) for part in (great, greater))
        return both, total * scale + more * rescale

    great, total = lax.reduce((x, jnp.ones_like(x)), (-jnp.inf, 0.0), joined, (x.ndim - 1,))
    return (great + jnp.log(total))[..., None]


def _product(formula, a, b, dtype=None):
    return jnp.einsum(formula, a, b, preferred_element_type=dtype or a.dtype)
