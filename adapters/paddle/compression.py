"""Deep gradient compression in PaddlePaddle, see dlperf.adapters.compression."""

import functools

import paddle
from paddle import distributed

from dlperf import models
from dlperf.adapters import base, compression
from dlperf.adapters.compression import deep, density, first, kept


class Deep:
    """What exchanges gradients in place of DataParallel, over the same process group."""

    def __init__(self, job, ranks, network):
        compression.check(job)
        recipe = models.family(job.model).optimizer(job.batch_size * ranks.world_size)
        groups = base.parameter_groups(network, job, recipe.weight_decay)
        decays = [(weight, group["weight_decay"]) for group in groups for weight in group["params"]]
        self._job, self._ranks, self._rate, self._step = job, ranks.world_size, recipe.learning_rate, 0
        self._whole = [weight for weight, _ in decays if not deep(weight)]
        self._held = [Held(job, weight, decay, recipe.momentum) for weight, decay in decays if deep(weight)]
        self._found = []
        #: that this rank handed over in the last step
        self.sent_bytes = 0
        self.description = f"deep gradient compression: all_gather, index_put_ ({distributed.get_backend().lower()})"

    @paddle.no_grad()
    def exchange(self):
        """Exchange the gradients of a backward pass. Those of tensors that are not compressed are means from now on."""
        share = density(self._job, self._step)
        counts = [kept(held.length, share) for held in self._held]
        self._step, self.sent_bytes = self._step + 1, 0
        taken = [held.taken(count) for held, count in zip(self._held, counts)]
        values, places = (paddle.concat(parts) for parts in zip(*taken))
        values, places = self._gathered(values), self._gathered(places.astype("int32"))
        by_rank = zip(values, (one.astype("int64") for one in places))
        self._found = list(zip(*(zip(paddle.split(v, counts), paddle.split(p, counts)) for v, p in by_rank)))
        self._average_whole()
        if self._job.trace_steps:
            for held, found in zip(self._held, self._found):
                gradient = held.weight.grad
                gradient.zero_()
                add(gradient, found, 1 / self._ranks)

    @paddle.no_grad()
    def update(self):
        """Update the tensors that are compressed. The optimizer then finds no gradients of theirs, and updates the
        others."""
        for held, found in zip(self._held, self._found):
            held.weight.clear_gradient(False)
            add(held.weight, found, -self._rate / self._ranks)

    def _gathered(self, own):
        """Of each rank."""
        others = []
        distributed.all_gather(others, own)
        self._sent(own)
        return others

    def _average_whole(self):
        gradients = [weight.grad for weight in self._whole]
        if not gradients:
            return
        flat = paddle.concat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        self._sent(flat)
        means = paddle.split(flat.scale_(1 / self._ranks), [int(gradient.size) for gradient in gradients])
        for gradient, mean in zip(gradients, means):
            gradient.copy_(mean, False)

    def _sent(self, tensor):
        self.sent_bytes += int(tensor.size) * tensor.element_size()


class Held:
    """What one weight keeps from step to step: u and v, in the order of its memory."""

    def __init__(self, job, weight, decay, momentum):
        self.weight, self.length = weight, int(weight.size)
        self._decay, self._momentum = decay, momentum
        self._u, self._v = (paddle.zeros([self.length], weight.dtype) for _ in "uv")
        self._zero = paddle.zeros([], weight.dtype)
        if job.trace_steps:
            values = first(weight.shape, (1, 0) if weight.ndim == 2 else ())
            self._v.set_value(values.ravel().astype(job.weights_dtype))

    def taken(self, count):
        """Accumulate the gradient. Returns what is sent, and its places; u and v are zero there from now on."""
        gradient, shape = self.weight.grad, self.weight.shape
        self._u.reshape_(shape).scale_(self._momentum).add_(gradient)
        if self._decay:
            self._u.add_(self.weight.scale(self._decay))
        self._v.add_(self._u.reshape_([-1]))
        places = largest(self._v, count)
        values = self._v.gather(places)
        for held in (self._u, self._v):
            paddle.index_put_(held, (places,), self._zero)
        return values, places


def add(tensor, found, times):
    """Add what ranks sent, times a factor, to a tensor. found: of each rank its values and their places."""
    shape = tensor.shape
    tensor.reshape_([-1])
    for values, places in found:
        paddle.index_put_(tensor, (places,), values.scale(times), True)  # places of one rank are there once
    tensor.reshape_(shape)


def largest(values, count):
    """The places of the `count` values that are furthest from zero.

    paddle.topk copies all that it is given into pairs with their places. So it is given what is furthest in each block:
    the `count` blocks where that is most have at least as many values that reach the least of it, and others have none
    that exceeds it.
    """
    width = block(len(values), count)
    if width == 1:
        return values.abs().topk(count, sorted=False)[1]
    blocks = values.reshape_([-1, width])
    furthest, chosen = paddle.linalg.norm(blocks, float("inf"), 1).topk(count, sorted=False)
    sizes = blocks.gather(chosen).abs_().flatten_()
    values.reshape_([-1])
    beyond = (sizes >= furthest.min().item()).nonzero().flatten_()
    if len(beyond) < count:  # some are not numbers, and each rank must send as many
        return values.abs().topk(count, sorted=False)[1]
    if len(beyond) > count:
        beyond = beyond.gather(sizes.gather(beyond).topk(count, sorted=False)[1])
    return chosen.gather(beyond // width) * width + beyond % width


@functools.lru_cache(None)
def block(length, count):
    """The length of a block, of which there are several for each value that is wanted."""
    return max(width for width in range(1, 65) if length % width == 0 and (width == 1 or width * count * 4 <= length))
