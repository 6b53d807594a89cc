"""Deep gradient compression in PyTorch, see dlperf.adapters.compression."""

import contextlib
import math

import torch
from torch import distributed

from dlperf.adapters.compression import deep, density, first, kept

#: of larger tensors a sample tells a threshold that a few more than those wanted exceed
SAMPLED, STRIDE, MORE = 100_000, 100, 1.5


class Deep:
    """What exchanges gradients in place of DistributedDataParallel, over the same process group. A weight's u and v lie
    one after the other in two buffers, in the order of its memory."""

    def __init__(self, job, ranks):
        self._job, self._size, self._step, self._sent = job, ranks.world_size, 0, 0
        self.description = f"deep gradient compression: all_gather, index_add_ ({distributed.get_backend()})"

    def spread(self, replica, network, optimizer):
        groups = [(weight, group) for group in optimizer.param_groups for weight in group["params"]]
        self._whole = [weight for weight, _ in groups if not deep(weight)]
        self._weights = [weight for weight, _ in groups if deep(weight)]
        self._groups = [group for weight, group in groups if deep(weight)]
        self._lengths = [weight.numel() for weight in self._weights]
        like = self._weights[0].detach()
        self._u, self._v = (like.new_zeros(sum(self._lengths)) for _ in "uv")
        self._us, self._vs = self._u.split(self._lengths), self._v.split(self._lengths)
        self._shaped = [u.as_strided(w.shape, w.stride()) for u, w in zip(self._us, self._weights)]
        if self._job.trace_steps:
            for v, w in zip(self._vs, self._weights):
                v.as_strided(w.shape, w.stride()).copy_(torch.from_numpy(first(w.shape)))
        return replica, optimizer

    @torch.no_grad()
    def averaged(self, optimizer):
        """Exchange the gradients of a backward pass. Within what this returns the optimizer updates the tensors that
        are not compressed; the others are when it is left."""
        share = density(self._job, self._step)
        self._step += 1
        self._accumulate()
        values, places = self._take([kept(length, share) for length in self._lengths])
        self._sent = 0
        found = list(zip(self._gathered(values), self._gathered(places.int())))
        self._average_whole()
        if self._job.trace_steps:
            for weight, parts in zip(self._weights, self._by_weight(found, share)):
                weight.grad.zero_()
                self._add(weight.grad, parts, 1.0)
        return self._update(found, share)

    def _accumulate(self):
        momentum = {group["momentum"] for group in self._groups}
        assert len(momentum) == 1, momentum
        self._u.mul_(momentum.pop())
        torch._foreach_add_(self._shaped, [weight.grad for weight in self._weights])
        for u, weight, group in zip(self._shaped, self._weights, self._groups):
            if group["weight_decay"]:
                u.add_(weight, alpha=group["weight_decay"])
        self._v.add_(self._u)

    def _take(self, counts):
        """What is sent, and its places in each weight's memory; it is zero from now on."""
        sizes = self._v.abs().split(self._lengths)
        places = [largest(size, count) for size, count in zip(sizes, counts)]
        values = [v[place] for v, place in zip(self._vs, places)]
        for held in (self._us, self._vs):
            for one, place in zip(held, places):
                one.index_fill_(0, place, 0.0)
        return torch.cat(values), torch.cat(places)

    def _gathered(self, own):
        """Of all ranks."""
        others = [torch.empty_like(own) for _ in range(self._size)]
        distributed.all_gather(others, own)
        self._sent += own.numel() * own.element_size()
        return others

    def _average_whole(self):
        if not self._whole:
            return
        gradients = [weight.grad for weight in self._whole]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        distributed.all_reduce(flat)
        flat.div_(self._size)
        self._sent += flat.numel() * flat.element_size()
        for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
            gradient.copy_(mean.view_as(gradient))

    def _by_weight(self, found, share):
        """Of each weight, what each rank sent of it: values, places."""
        counts = [kept(length, share) for length in self._lengths]
        return zip(*(zip(values.split(counts), places.split(counts)) for values, places in found))

    def _add(self, tensor, parts, times):
        """Add the ranks' mean, times a factor, to a tensor that lies in memory as its weight does."""
        flat = tensor.as_strided((tensor.numel(),), (1,))
        for values, places in parts:
            flat.index_add_(0, places, values, alpha=times / self._size)

    @contextlib.contextmanager
    def _update(self, found, share):
        for weight in self._weights:
            weight.grad = None  # so the optimizer passes it over
        yield
        with torch.no_grad():
            for weight, group, parts in zip(self._weights, self._groups, self._by_weight(found, share)):
                self._add(weight, parts, -group["lr"])

    def sent_bytes(self, gradients):
        """Counted in the last step."""
        return self._sent

    def add_up(self, values):
        distributed.all_reduce(values)

    def close(self):
        distributed.destroy_process_group()


def largest(values, count):
    """The places of the `count` largest of some values that are not negative."""
    if len(values) > SAMPLED:
        sample = values[::STRIDE]
        wanted = min(len(sample), math.ceil(MORE * count * len(sample) / len(values)))
        beyond = (values >= sample.topk(wanted, sorted=False).values.min()).nonzero().squeeze(1)
        if len(beyond) >= count:
            return beyond[values[beyond].topk(count, sorted=False).indices]
    return values.topk(count, sorted=False).indices
