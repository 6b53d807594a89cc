"""The optimizers of TensorFlow's kernels, clipping and loss scaling."""

import tensorflow as tf

from dlperf.adapters import base


class SGD:
    """v = momentum * v + g + weight_decay * w; w -= learning_rate * v."""

    def __init__(self, job, weights, recipe):
        self._recipe = recipe
        self._weights, self._decayed = trained(job, weights)
        self._velocity = [zeros(weight) for weight in self._weights]

    def leave(self, chosen):
        """Leave some tensors to another. Returns the recipe, the tensors, and of each whether it decays.

        chosen: weight -> whether."""
        parts = list(zip(self._weights, self._decayed, self._velocity))
        left = [(weight, decayed) for weight, decayed, _ in parts if chosen(weight)]
        self._weights, self._decayed, self._velocity = zip(*(part for part in parts if not chosen(part[0])))
        return (self._recipe, *zip(*left))

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
    """w -= rate * g; of a table the rows that a gradient has. rates: of each tensor."""

    def __init__(self, job, weights, rates):
        self._weights, _ = trained(job, weights)
        self._rates = [rates[parameter.name] for parameter in base.parameters(job)]

    def moments(self):
        return {}

    def apply(self, gradients, finite):
        for weight, rate, gradient in zip(self._weights, self._rates, gradients):
            if isinstance(gradient, tf.IndexedSlices):
                descend_rows(weight, rate, gradient.indices, gradient.values)
            else:
                descend(weight, rate, gradient)


# The operations by their own names: in a graph of tf.compat.v1 what a variable's methods return is a read of all of it
def descend(weight, rate, gradient):
    """w -= rate * g. Returns the operations."""
    scalars = {"alpha": tf.constant(rate, gradient.dtype), "use_locking": True}
    return [tf.raw_ops.ResourceApplyGradientDescent(var=weight.handle, delta=gradient, **scalars)]


def descend_rows(table, rate, rows, gradient):
    """Likewise of some rows; of one that is there several times, all gradients count."""
    return [tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=rows, updates=rate * gradient)]


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
        self._steps = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def moments(self):
        """As dlperf.adapters.api.Trainer, but lists in the order of `trained`."""
        return {"mean": self._first, "square": self._second}

    def apply(self, gradients, finite):
        """finite: whether to step at all; None: yes."""
        recipe, dtype = self._recipe, self._weights[0].dtype
        step = self._steps.assign_add(unless(finite, 0.0, 1.0, tf.float64))
        keep = unless(finite, 1.0, 1 - recipe.learning_rate * recipe.weight_decay, dtype)
        scalars = of_adam(recipe, step, dtype)
        for name, otherwise in (("lr", 0.0), ("beta1", 1.0), ("beta2", 1.0)):
            scalars[name] = unless(finite, otherwise, scalars[name], dtype)
        for weight, first, second, decayed, gradient in zip(
            self._weights, self._first, self._second, self._decayed, gradients
        ):
            if decayed:
                weight.assign(weight * keep)
            tf.raw_ops.ResourceApplyAdam(var=weight.handle, m=first.handle, v=second.handle, grad=gradient, **scalars)


def of_adam(recipe, step, dtype):
    """The scalars that its kernel takes, for AdamW's formula. step: of which this is the update, from 1, float64."""
    # What the kernel reads: 0.999 in float32 is 1.3e-8 off, 1 - 0.999 in it is 4.7e-5 off.
    beta1, beta2 = (float(dtype.as_numpy_dtype(beta)) for beta in (recipe.beta1, recipe.beta2))
    correction1, correction2 = 1 - beta1**step, tf.sqrt(1 - beta2**step)
    return {
        "lr": tf.cast(recipe.learning_rate * correction2 / correction1, dtype),
        "epsilon": tf.cast(recipe.eps * correction2, dtype),
        "beta1": tf.constant(beta1, dtype),
        "beta2": tf.constant(beta2, dtype),
        "beta1_power": tf.zeros((), dtype),
        "beta2_power": tf.zeros((), dtype),
    }


class LazyAdam:
    """As dlperf.models.ctr_dnn.Optimizer says: TensorFlow's kernel, and of a table the rows that a gradient has."""

    def __init__(self, job, weights, recipe):
        self._recipe = recipe
        self._weights, _ = trained(job, weights)
        self._first, self._second = ([zeros(weight) for weight in self._weights] for _ in range(2))
        self._steps = tf.Variable(0, trainable=False, dtype=tf.int64)

    def moments(self):
        """As dlperf.adapters.api.Trainer, but lists in the order of `trained`."""
        return {"mean": self._first, "square": self._second}

    def apply(self, gradients, finite):
        step = tf.cast(self._steps.assign_add(1), tf.float64)
        for *held, gradient in zip(self._weights, self._first, self._second, gradients):
            if isinstance(gradient, tf.IndexedSlices):
                rows, places = tf.unique(gradient.indices)
                sums = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
                lazy_adam(self._recipe, step, *held, rows, sums)
            else:
                adam(self._recipe, step, *held, gradient)


def adam(recipe, step, weight, first, second, gradient):
    """The step-th update of a whole tensor and of its moments; step: float64. Returns the operations."""
    handles = {"var": weight.handle, "m": first.handle, "v": second.handle}
    scalars = of_adam(recipe, step, gradient.dtype)
    return [tf.raw_ops.ResourceApplyAdam(**handles, grad=gradient, use_locking=True, **scalars)]


def lazy_adam(recipe, step, table, first, second, rows, gradient):
    """Likewise of some rows, each once, and of their moments. TensorFlow has no kernel for it."""
    m, v = tf.gather(first, rows), tf.gather(second, rows)
    m += (1 - recipe.beta1) * (gradient - m)
    v += (1 - recipe.beta2) * (tf.square(gradient) - v)
    correction1, correction2 = 1 - recipe.beta1**step, tf.sqrt(1 - recipe.beta2**step)
    rate = tf.cast(recipe.learning_rate * correction2 / correction1, m.dtype)
    change = rate * m / (tf.sqrt(v) + tf.cast(recipe.eps * correction2, m.dtype))
    return [
        tf.raw_ops.ResourceScatterUpdate(resource=first.handle, indices=rows, updates=m),
        tf.raw_ops.ResourceScatterUpdate(resource=second.handle, indices=rows, updates=v),
        tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=rows, updates=change),
    ]


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
