"""How ranks average their gradients in OneFlow: global tensors, over NCCL between GPUs, over epoll between CPUs.

A global tensor is one tensor of all ranks: each has all of it (broadcast), some rows (split) or a summand
(partial_sum), and OneFlow exchanges what turns one into another. With one rank all tensors are local ones.
"""

import ctypes
import os
import signal
import time

import oneflow as flow

from dlperf.adapters.ranks import interface


def join(ranks):
    """The ranks met when OneFlow was imported. Between nodes NCCL takes this rank's own network."""
    network = interface(ranks.addresses[ranks.rank])
    if network and ranks.nnodes > 1:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", network)


def spread(network, device):
    """Make the network's tensors those of all ranks, each of which has all of them."""
    if flow.env.get_world_size() > 1:
        network.to_global(flow.placement.all(device), flow.sbp.broadcast)


def of_all_ranks(tensor):
    """This rank's rows -> those of all ranks, the global batch; a total's mean over the ranks -> the total."""
    world_size = flow.env.get_world_size()
    if world_size == 1:
        return tensor
    everywhere = flow.placement.all(tensor.device.type)
    if tensor.ndim == 0:
        return (tensor * world_size).to_global(everywhere, flow.sbp.broadcast)
    return tensor.to_global(everywhere, flow.sbp.split(0), check_meta=False)  # all ranks' batches have one size


def own(tensor):
    """This rank's part of a global tensor."""
    return tensor.to_local() if tensor.is_global else tensor


def averaged(gradients):
    """Over the ranks. The loss is the mean over the global batch, of which each rank's gradient is its summand."""
    return [gradient.to_global(sbp=flow.sbp.broadcast) if gradient.is_global else gradient for gradient in gradients]


def description(dtypes, device):
    """What averages gradients that are exchanged in these types, in words."""
    return f"global tensors, partial_sum to broadcast in {' and '.join(dtypes)} ({transport(device)})"


def transport(device):
    return "nccl" if device.type == "cuda" else "epoll"


class Sum(flow.nn.Graph):
    """The first of some values that are summed over the ranks."""

    def build(self, values):
        return averaged([values])[0][:1]


def all_reduce(count, device):
    """See dlperf.adapters.api.Trainer.all_reduce."""
    ones = flow.ones(count, device=device).to_global(flow.placement.all(device.type), flow.sbp.partial_sum)
    add_up = Sum()
    return lambda: own(add_up(ones)).item()


def close():
    if flow.env.get_world_size() > 1:
        flow.comm.barrier()  # ranks end badly when one that still has something for them is gone
        _outlive_others()
        if flow.env.get_rank() == 0:
            time.sleep(0.5)  # it answers the others at the barrier, and knows only that it was answered itself


def _outlive_others():
    """From here on other ranks may leave before this one. Every 7 to 13 seconds a thread of OneFlow's asks each whether
    it is there, and aborts the process where one is not ("Machine 1 lost"): now that thread stops alone, in the
    handler of the signal, and the others go on to the end."""
    library = ctypes.CDLL(None)
    library.signal(int(signal.SIGABRT), library.pause)
