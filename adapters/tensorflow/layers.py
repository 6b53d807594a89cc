"""Layers that several networks have."""

import tensorflow as tf


def dense(weights, name):
    """x of (rows, inputs) -> (rows, outputs), in x's type."""
    multiply, bias = project(weights, name), weights[name + ".bias"]
    return lambda x: biased(multiply(x), bias)


def project(weights, name):
    """The same without a bias."""
    weight = weights[name + ".weight"]
    return lambda x: tf.matmul(x, tf.cast(weight, x.dtype))


def biased(x, bias):
    """x + bias, in x's type. BiasAddGrad is faster in float32, but on a CPU it sums bfloat16 in bfloat16, where 4096
    ones are 256; the gradient of + sums in float32."""
    bias = tf.cast(bias, x.dtype)
    return x + bias if x.dtype.size == 2 else tf.nn.bias_add(x, bias)


def drop(x, rate):
    """tf.nn.dropout, but for what it does in 16 bits: it draws numbers in them, of which bfloat16's are multiples of
    1/128, so that a rate of 0.1 is one of 0.102. Those of float32 are multiples of 2^-23, and stand for what is half as
    far around them: zeros are not below each rate, or a rate of 10^-10 would drop some values of a large network."""
    if not rate:
        return x
    with tf.name_scope("dropout"):
        kept = tf.random.uniform(x.shape, dtype=wide(x.dtype)) >= rate - 2**-24
        return tf.where(kept, x * (1 / (1 - rate)), tf.zeros((), x.dtype))


def attend(query, key, value, mask, rate=0.0):
    """softmax(query key' / sqrt(size) + mask), dropped at a rate, times value: (rows, heads, columns, size) each. mask:
    see `additive`.

    The gradient of a softmax takes a sum of all from each. In bfloat16 what is left of nearly equal ones, as the last
    queries of BERT-large have, was off by 0.76 of itself."""
    with tf.name_scope("attention"):
        scores = tf.matmul(query * query.shape[-1] ** -0.5, key, transpose_b=True)
        shares = tf.nn.softmax(tf.cast(scores, mask.dtype) + mask)
        return tf.matmul(drop(tf.cast(shares, query.dtype), rate), value)


def additive(kept, dtype):
    """The mask that `attend` adds to scores of a type: 0 where `kept`, in the type that its softmax has."""
    return tf.where(kept, tf.zeros((), wide(dtype)), tf.constant(-10000.0, wide(dtype)))


def wide(dtype):
    """float32 or better."""
    return tf.float32 if dtype.size == 2 else dtype
