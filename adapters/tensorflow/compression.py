"""Deep gradient compression in TensorFlow, see dlperf.adapters.compression."""

import math

import tensorflow as tf

from dlperf.adapters.api import Unsupported
from dlperf.adapters.compression import deep, density, first, kept

#: of larger tensors a sample tells which values may be the largest; its stride is prime, so that it has all channels.
#: How many standard deviations more of it are taken than should do
SAMPLED, STRIDE, DEVIATIONS = 50_000, 101, 3.0


class Deep:
    """What exchanges gradients in place of a strategy's all-reduce, over the same ranks, and updates the tensors that
    it compresses; the optimizer updates the others. A weight's u and v are vectors, in the order of its memory.

    Called with a batch it trains a step, which is a tf.function for each density: a count of values is a shape. The
    passes through the network are traced once for all.
    """

    def __init__(self, job, strategy, optimizer):
        if job.options["compile"] == "on":
            raise Unsupported("compression=dgc: what XLA compiles of it was not proven; add --compile off")
        self.description = f"deep gradient compression: all_gather, of vectors all_reduce; {strategy.description}"
        self._job, self._strategy, self._optimizer = job, strategy, optimizer
        self._recipe, self._weights, self._decayed = optimizer.leave(deep)
        self._sizes = [weight.shape.num_elements() for weight in self._weights]
        self._u, self._v = ([zeros(weight) for weight in self._weights] for _ in "uv")
        if job.trace_steps:
            for v, weight in zip(self._v, self._weights):
                values = first(weight.shape, (2, 3, 1, 0) if weight.shape.rank == 4 else (1, 0))
                v.assign(values.ravel().astype(job.weights_dtype))
        self._step, self._made, self._last, self._sent = 0, {}, None, {}

    def compiled(self, differentiate, trace):
        """This, once it has the trainer's passes through the network, and what a step hands out for checking."""
        self._differentiate, self._trace = tf.function(differentiate), trace
        return self

    def __call__(self, batch):
        self._last = density(self._job, self._step)
        self._step += 1
        if self._last not in self._made:
            self._made[self._last] = self._function(self._last)
        return self._made[self._last](batch)

    def get_concrete_function(self, batch):
        """That of the last step."""
        return self._made[self._last].get_concrete_function(batch)

    @property
    def sent_bytes(self):
        """Of the last step, those that this rank handed over."""
        return self._sent.get(self._last, 0)

    def _function(self, share):
        return tf.function(lambda batch: self._strategy.run(self._train, batch, share))

    def _train(self, batch, share):
        loss, logits, gradients = self._differentiate(batch)
        self._sent[share] = 0
        means = self._mean([gradient for gradient in gradients if not deep(gradient)], share)
        counts = [kept(size, share) for size in self._sizes]
        values, places = self._take([gradient for gradient in gradients if deep(gradient)], counts)
        found = self._gathered(values, places, counts, share)
        traced = self._trace(logits, self._whole(gradients, means, *found)) if self._job.trace_steps else None
        self._update(means, *found)
        return loss if traced is None else (loss, traced)

    def _mean(self, gradients, share):
        """Over the ranks, as one message."""
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        self._count(flat, share)
        mean = self._strategy.add_up([flat])[0] / self._strategy.size
        return tf.split(mean, [gradient.shape.num_elements() for gradient in gradients])

    def _take(self, gradients, counts):
        """What this rank sends of all weights, one after the other, and its places in each of them."""
        taken = []
        with tf.name_scope("optimizer"):
            for *held, count in zip(self._weights, self._decayed, self._u, self._v, gradients, counts):
                taken.append(self._take_one(*held, count))
        return tuple(tf.concat(parts, 0) for parts in zip(*taken))

    def _take_one(self, weight, decayed, held_u, held_v, gradient, count):
        gradient = tf.reshape(gradient, [-1])
        if decayed:
            gradient += self._recipe.weight_decay * tf.reshape(weight, [-1])
        u = self._recipe.momentum * held_u + gradient
        v = held_v + u
        places = largest(tf.abs(v), count)
        values = tf.gather(v, places)
        # by then nobody else reads u and v: they become what the variables hold
        with tf.control_dependencies([values]):
            held_v.assign(emptied(v, places, values))
            held_u.assign(emptied(u, places, tf.gather(u, places)))
        return values, places

    def _gathered(self, values, places, counts, share):
        """Of each weight, what all ranks sent, and its places. Both are one message, since each costs a round trip."""
        total, words = sum(counts), values.dtype.size // tf.int32.size
        message = tf.concat([places, tf.reshape(tf.bitcast(values, tf.int32), [-1])], 0)
        self._count(message, share)
        whole = tf.reshape(self._strategy.gather(message), [self._strategy.size, (1 + words) * total])
        places, values = tf.split(whole, [total, words * total], 1)
        if words > 1:
            values = tf.reshape(values, [self._strategy.size, total, words])
        parts = (tf.split(tensor, counts, 1) for tensor in (tf.bitcast(values, self._weights[0].dtype), places))
        return [[tf.reshape(part, [-1]) for part in each] for each in parts]

    def _count(self, message, share):
        self._sent[share] += message.shape.num_elements() * message.dtype.size

    def _update(self, means, values, places):
        rate = self._recipe.learning_rate / self._strategy.size
        with tf.name_scope("optimizer"):
            self._optimizer.apply(means, None)
            for weight, value, place in zip(self._weights, values, places):
                changed = tf.tensor_scatter_nd_sub(tf.reshape(weight, [-1]), place[:, None], rate * value)
                weight.assign(tf.reshape(changed, weight.shape))

    def _whole(self, gradients, means, values, places):
        """The gradients by which all tensors are updated, for checking."""
        means, sent = iter(means), zip(values, places)
        return [self._spread(like.shape, *next(sent)) if deep(like) else next(means) for like in gradients]

    def _spread(self, shape, values, places):
        flat = tf.scatter_nd(places[:, None], values / self._strategy.size, [shape.num_elements()])
        return tf.reshape(flat, shape)


def zeros(weight):
    return tf.Variable(tf.zeros(weight.shape.num_elements(), weight.dtype), trainable=False)


def emptied(tensor, places, values):
    """Zero at some places, where it lies. values: those at these places.

    tensor_scatter_nd_update copies its tensor on a CPU; after a variable's scatter_nd_update each read of it is a copy.
    """
    return tf.raw_ops.ScatterNdNonAliasingAdd(input=tensor, indices=places[:, None], updates=-values)


def largest(values, count):
    """The places of the `count` largest of some values that are not negative, int32. top_k, which keeps a heap on one
    thread, sees those alone that exceed a value of which a sample tells that a few more than `count` do."""
    if values.shape[0] < SAMPLED:
        return tf.math.top_k(values, count, sorted=False).indices
    sample = values[::STRIDE]
    expected = count * sample.shape[0] / values.shape[0]
    wanted = min(math.ceil(expected + DEVIATIONS * expected**0.5 + 1), sample.shape[0])
    least = tf.reduce_min(tf.math.top_k(sample, wanted, sorted=False).values)
    beyond = tf.where(values >= least)[:, 0]

    def of_beyond():
        chosen = tf.math.top_k(tf.gather(values, beyond), count, sorted=False).indices
        return tf.cast(tf.gather(beyond, chosen), tf.int32)

    return tf.cond(tf.size(beyond) >= count, of_beyond, lambda: of_blocks(values, count))


def of_blocks(values, count):
    """The same without a sample: they are in those `count` blocks whose largest values are the largest."""
    size = values.shape[0]
    block = math.gcd(size, 2 ** int(math.log2(size / count) / 2))
    if block == 1:
        return tf.math.top_k(values, count, sorted=False).indices
    blocks = tf.reshape(values, [-1, block])
    chosen = tf.math.top_k(tf.reduce_max(blocks, 1), count, sorted=False).indices
    inside = tf.math.top_k(tf.reshape(tf.gather(blocks, chosen), [-1]), count, sorted=False).indices
    return tf.gather(chosen, inside // block) * block + inside % block
