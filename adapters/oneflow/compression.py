"""Deep gradient compression in OneFlow, see dlperf.adapters.compression.

A gradient is a global tensor, of which each rank has a summand: the loss is the mean over the global batch, so that is
the gradient of this rank's own loss, divided by the number of ranks. A Graph of several ranks has global tensors alone,
and none of them lets a rank choose for itself. So what a rank keeps and chooses are local tensors, outside of it.
"""

import numpy
import oneflow as flow

from dlperf.adapters import compression
from dlperf.adapters.compression import deep, density, first, kept
from dlperf.adapters.oneflow import communication

#: a tensor's largest values are in the blocks whose largest are largest, as many as are looked for: the lengths of such
#: blocks, the best first, and the share of a tensor that is worth looking through then
BLOCKS, SHARE = (32, 16, 8), 0.25


def wanted(job):
    return compression.asked(job) == "dgc" and flow.env.get_world_size() > 1


class Deep:
    """What exchanges gradients, and updates the weights that are compressed. What it keeps of these is divided by the
    number of ranks, as gradients are, and lies one weight after the other, since an eager operation costs 20 us.

    groups: of weights, as optimizers take them. whole: of these, what is left to an optimizer. sent_bytes: by this rank
    in the last step.
    """

    def __init__(self, job, groups, recipe):
        compression.check(job)
        self._job, self._recipe, self._step, self._choice = job, recipe, 0, None
        self._ranks, self.sent_bytes = flow.env.get_world_size(), 0
        decays = {weight: group["weight_decay"] for group in groups for weight in group["params"]}
        self._weights = [weight for weight in decays if deep(weight)]
        self._averaged = [weight for weight in decays if not deep(weight)]
        apart = [{**group, "params": [one for one in group["params"] if not deep(one)]} for group in groups]
        self.whole = [group for group in apart if group["params"]]
        (decay,) = {decays[weight] for weight in self._weights}
        self._decay = decay / self._ranks
        self._lengths = [weight.numel() for weight in self._weights]
        # to be added to gradients; it is changed as the weights are, since to put them together takes a pass over all
        self._decays = flow.cat([flat(weight) for weight in self._weights]) * self._decay
        self._u, self._v = (flow.zeros_like(self._decays) for _ in "uv")
        if job.trace_steps:
            values = numpy.concatenate([first(weight.shape).ravel() for weight in self._weights]) / self._ranks
            self._v.copy_(flow.tensor(values, dtype=self._v.dtype, device=self._v.device))
        transport = communication.transport(self._decays.device)
        self.description = f"deep gradient compression: global tensors, split to broadcast, index_add_ ({transport})"

    def results(self, loss, logits):
        """Of a step, in a Graph too, after the backward pass: the loss, summands of the gradients of weights that are
        compressed, and with trace_steps logits and the other gradients, averaged in one message, for the optimizer."""
        apart = flow._oneflow_internal.GlobalParamGradSyncMode(False)  # else gradients are added up over the ranks
        loss.backward()
        del apart
        sizes = [weight.numel() for weight in self._averaged]
        means = flow.cat([weight.grad for weight in self._averaged]).to_global(sbp=flow.sbp.broadcast).split(sizes)
        for weight, mean in zip(self._averaged, means):
            weight.grad = mean
        own = flow.cat([weight.grad.reshape(-1) for weight in self._weights])
        return (loss, own, logits, list(means)) if self._job.trace_steps else (loss, own)

    def update(self, gradients):
        """Add this rank's summands to what it kept, hand over the largest values and update the weights by those of all
        ranks. Returns, with trace_steps, the sums of what they handed over."""
        share = density(self._job, self._step)
        self._step += 1
        if self._choice is None or self._choice.share != share:
            self._choice = Choice(self._lengths, share, self._ranks, self._v.device)
        with flow.no_grad():
            # by plain kernels, which are vectorised: those of OneFlow's optimizers are one pass, and take longer
            self._u.mul_(self._recipe.momentum).add_(flat(gradients)).add_(self._decays)
            self._v.add_(self._u)
            self.sent_bytes = sum(weight.numel() * weight.element_size() for weight in self._averaged)
            values, places = (self._gathered(own) for own in self._taken())
            changes = values * -self._recipe.learning_rate
            self._decays.index_add_(0, places, changes * self._decay)
            self._change([flat(weight) for weight in self._weights], changes, places)
            if not self._job.trace_steps:
                return []
            sums = flow.zeros_like(self._v).index_add_(0, places, values).split(self._lengths)
            return [one.reshape(weight.shape) for one, weight in zip(sums, self._weights)]

    def _taken(self):
        """What is sent, and its places; it is zero from now on."""
        places = self._choice.places(self._v.abs()).to(flow.int32)
        values = flow._C.gather(self._v, places, 0)
        for held in (self._u, self._v):
            flow._C.scatter(held, 0, places, 0.0, inplace=True)
        return values, places

    def _gathered(self, own):
        """Of all ranks, one behind the other."""
        self.sent_bytes += own.numel() * own.element_size()
        rows = own.to_global(flow.placement.all(own.device.type), flow.sbp.split(0), check_meta=False)
        return rows.to_global(sbp=flow.sbp.broadcast).to_local()

    def _change(self, weights, changes, places):
        """Rank by rank, so that all round alike."""
        counts = self._choice.counts * self._ranks
        pieces = zip((places - self._choice.starts).split(counts), changes.split(counts))
        for weight, (place, change) in zip(weights * self._ranks, pieces):
            weight.index_add_(0, place, change)

    def ordered(self, weights, means, sums):
        """Of these weights, the gradients: means that `results` returned, and what `update` did."""
        found = dict(zip([*self._averaged, *self._weights], [*means, *sums]))
        return [found[weight] for weight in weights]

    def wait(self):
        """Until the update is done: OneFlow's own Sync returns before, see word2vec.Trainer."""
        flat(self._weights[-1])[0].item()


class Choice:
    """Which of the values are sent at one density, of weights of these lengths that lie one after the other. counts: of
    each weight. starts: the place where the weight of each value that the ranks send begins."""

    def __init__(self, lengths, share, ranks, device):
        self.share, self._lengths = share, lengths
        self.counts = [kept(length, share) for length in lengths]
        starts, firsts = (numpy.cumsum([0, *sizes[:-1]]) for sizes in (lengths, self.counts))
        self.starts = flow.tensor(numpy.tile(self._each(starts), ranks).astype("int32"), device=device)
        fitting = [
            block
            for block in BLOCKS
            if all(n % block == 0 and count * block <= SHARE * n for n, count in zip(lengths, self.counts))
        ]
        self._block = fitting[0] if fitting else 1
        self._first_blocks = flow.tensor(self._each(starts // self._block), device=device)
        self._firsts = flow.tensor(self._each(firsts * self._block), device=device)

    def _each(self, values):
        """For each value that is sent, what holds for its weight."""
        return numpy.repeat(values, self.counts).astype("int64")

    def places(self, sizes):
        """Where the largest are. To compare all with a threshold would take longer than to sort them."""
        block = self._block
        blocks = sizes.reshape(-1, block)
        largest = flow.amax(blocks, 1) if block > 1 else sizes
        chosen = self._largest(largest.split([length // block for length in self._lengths])) + self._first_blocks
        if block == 1:
            return chosen
        looked_at = flow._C.gather(blocks, chosen, 0)
        found = self._largest([one.reshape(-1) for one in looked_at.split(self.counts)]) + self._firsts
        row = flow.floor_divide(found, block)
        return flow._C.gather(chosen, row, 0) * block + (found - row * block)

    def _largest(self, parts):
        return flow.cat([flow.topk(part, count, sorted=False)[1] for part, count in zip(parts, self.counts)])


def flat(tensor):
    """This rank's part of a global tensor, as a view."""
    return tensor.detach().to_local().reshape(-1)
