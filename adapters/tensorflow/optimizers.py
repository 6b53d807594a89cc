"""The optimizers of TensorFlow's kernels, clipping and loss scaling."""

import tensorflow as tf

from dlperf.adapters import base


class SGD:
    """v = momentum * v + g + weight_decay * w; w -= learning_rate * v."""

    def __init__(self, job, weights, recipe):
        self._recipe = recipe
        self._weights, self._decayed = trained(job, weights)
        self._velocity = [zeros(weight) for weight in self._weights]

    def moments(self):
        return {}

    def apply(self, gradients, finite):
        """finite: whether to step at all; None: yes."""
        dtype = self._weights[0].dtype
        rate = unless(finite, 0.0, self._recipe.learning_rate, dtype)
        momentum = unless(finite, 1.0, self._recipe.momentum, dtype)
        decay = unless(finite, 0.0, self._recipe.weight_decay, dtype)
        for weight, velocity, decayed, gradient in zip(self._weights, self._velocity, self._decayed, gradients):
            if decayed:
                gradient += decay * weight
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=velocity.handle, lr=rate, grad=gradient, momentum=momentum
            )


class RowsSGD:
    """w -= learning_rate * g, of the rows that a gradient has."""

    def __init__(self, job, weights, recipe):
        self._rate = recipe.learning_rate
        self._weights, _ = trained(job, weights)

    def moments(self):
        return {}

    def apply(self, gradients, finite):
        for weight, gradient in zip(self._weights, gradients):
            weight.scatter_sub(tf.IndexedSlices(self._rate * gradient.values, gradient.indices))


class AdamW:
    """Adam with bias correction and decoupled weight decay.

    The kernel takes w -= lr * m / (sqrt(v) + epsilon). With c1 = 1 - beta1^t and c2 = 1 - beta2^t,
    learning_rate * sqrt(c2) / c1 for lr and eps * sqrt(c2) for epsilon make that the formula of dlperf.models.bert.
    """

    def __init__(self, job, weights, recipe):
        self._recipe = recipe
        self._weights, self._decayed = trained(job, weights)
        self._first = [zeros(weight) for weight in self._weights]
        self._second = [zeros(weight) for weight in self._weights]
        # What the kernel reads: 0.999 in float32 is 1.3e-8 off, 1 - 0.999 in it is 4.7e-5 off.
        self._beta1, self._beta2 = (
            float(self._weights[0].dtype.as_numpy_dtype(beta)) for beta in (recipe.beta1, recipe.beta2)
        )
        self._steps = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def moments(self):
        """As dlperf.adapters.api.Trainer, but lists in the order of `trained`."""
        return {"mean": self._first, "square": self._second}

    def apply(self, gradients, finite):
        """finite: whether to step at all; None: yes."""
        recipe, dtype = self._recipe, self._weights[0].dtype
        step = self._steps.assign_add(unless(finite, 0.0, 1.0, tf.float64))
        correction1, correction2 = 1 - self._beta1**step, tf.sqrt(1 - self._beta2**step)
        rate = recipe.learning_rate * correction2 / correction1
        keep = unless(finite, 1.0, 1 - recipe.learning_rate * recipe.weight_decay, dtype)
        scalars = {
            "lr": unless(finite, 0.0, tf.cast(rate, dtype), dtype),
            "epsilon": tf.cast(recipe.eps * correction2, dtype),
            "beta1": unless(finite, 1.0, self._beta1, dtype),
            "beta2": unless(finite, 1.0, self._beta2, dtype),
            "beta1_power": tf.zeros((), dtype),
            "beta2_power": tf.zeros((), dtype),
        }
        for weight, first, second, decayed, gradient in zip(
            self._weights, self._first, self._second, self._decayed, gradients
        ):
            if decayed:
                weight.assign(weight * keep)
            tf.raw_ops.ResourceApplyAdam(var=weight.handle, m=first.handle, v=second.handle, grad=gradient, **scalars)


def trained(job, weights):
    """The trained variables, and of each whether it decays."""
    parameters = [parameter for parameter in base.parameters(job) if parameter.trained]
    return [weights[parameter.name] for parameter in parameters], [parameter.decayed for parameter in parameters]


def zeros(weight):
    return tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False)


def unless(finite, otherwise, value, dtype):
    """`value`, or `otherwise` in a step whose gradients are not finite: skipped without asking the device."""
    value = tf.convert_to_tensor(value, dtype)
    return value if finite is None else tf.where(finite, value, tf.constant(otherwise, dtype))


class LossScale:
    """Dynamic: halved when gradients are not finite, doubled after 2000 steps in which they were."""

    INTERVAL = 2000

    def __init__(self):
        self.scale = tf.Variable(65536.0, trainable=False)
        self._good = tf.Variable(0, trainable=False)

    def update(self, finite):
        good = tf.where(finite, self._good + 1, 0)
        grown = tf.where(good == self.INTERVAL, self.scale * 2, self.scale)
        self.scale.assign(tf.where(finite, grown, self.scale / 2))
        self._good.assign(tf.where(good == self.INTERVAL, 0, good))


def rescaled(gradients, loss_scale, clip_norm):
    """Take the loss scale out and clip, in one pass over the gradients. Returns them and, with a loss scale, whether
    they are finite."""
    if loss_scale is None and clip_norm is None:
        return gradients, None
    norm = tf.linalg.global_norm(gradients)
    scale = 1 / loss_scale.scale if loss_scale else tf.ones((), norm.dtype)
    factor = scale if clip_norm is None else tf.minimum(scale, clip_norm / norm)
    if loss_scale is None:
        return [gradient * factor for gradient in gradients], None
    finite = tf.math.is_finite(norm)
    factor = tf.where(finite, factor, 0.0)
    return [tf.math.multiply_no_nan(gradient, factor) for gradient in gradients], finite
