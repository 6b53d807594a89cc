"""How ranks average their gradients in PyTorch: DistributedDataParallel, or Horovod."""

import contextlib
import itertools
import os
import warnings

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from dlperf.adapters import compression, horovod
from dlperf.adapters.pytorch.compression import Deep
from dlperf.adapters.ranks import interface


def join(job, ranks, device):
    """Make the group of all ranks, before the first tensor."""
    if uses_horovod(job):
        import horovod.torch as hvd

        horovod.prepare(ranks, job.meeting_seconds)
        hvd.init()
        return
    network = interface(ranks.addresses[ranks.rank])  # else Gloo takes what the host's own name resolves to
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if network and ranks.nnodes > 1:
            os.environ.setdefault(name, network)
    store = distributed.TCPStore(ranks.addresses[0], ranks.ports[0], ranks.world_size, is_master=ranks.rank == 0)
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.world_size)


def uses_horovod(job):
    return job.options["communication"] == "horovod"


def between(job, ranks):
    """What averages the gradients of these ranks."""
    if ranks.world_size == 1:
        return OneRank()
    compression.check(job)
    kind = compression.asked(job)
    if uses_horovod(job):
        return Horovod()
    return Deep(job, ranks) if kind == "dgc" else DataParallel(kind)


class OneRank:
    """Nothing to average. replica: a module from a batch to its loss, and what else the step needs."""

    description = None

    def spread(self, replica, network, optimizer):
        """The replica and the optimizer that average over the ranks."""
        return replica, optimizer

    def averaged(self, optimizer):
        """Called between the backward pass and whatever reads the gradients. Returns the context of the update."""
        return contextlib.nullcontext()

    def sent_bytes(self, gradients):
        """Of a step, those that a rank hands over. gradients: the bytes of all gradients."""
        return gradients

    def close(self):
        pass


class DataParallel(OneRank):
    """backward() averages while it goes on computing. kind: of compression, "none", "fp16" or "powersgd"."""

    def __init__(self, kind):
        self._kind = kind

    @property
    def description(self):
        return f"DistributedDataParallel ({distributed.get_backend()}{HOOKS[self._kind]})"

    def spread(self, replica, network, optimizer):
        device = next(network.parameters()).device
        with warnings.catch_warnings():
            # what is to follow broadcast_buffers is not there yet for buffers that differ from the start
            warnings.simplefilter("ignore", FutureWarning)
            parallel = nn.parallel.DistributedDataParallel(
                replica,
                device_ids=[device] if device.type == "cuda" else None,
                broadcast_buffers=False,  # BatchNorm's statistics stay each rank's own
                gradient_as_bucket_view=True,
                bucket_cap_mb=self._bucket(network),
            )
        if self._kind == "fp16":
            parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif self._kind == "powersgd":
            self._weights = list(network.parameters())
            state = powerSGD_hook.PowerSGDState(
                None,
                matrix_approximation_rank=compression.RANK,
                start_powerSGD_iter=compression.WHOLE,
                orthogonalization_epsilon=EPSILON,
            )
            names = {weight: name for name, weight in network.named_parameters()}
            parallel.register_comm_hook((state, names), _low_rank)
        return parallel, optimizer

    def _bucket(self, network):
        """PowerSGD's hook goes on with its second and third exchange when the one before is there. With Gloo these of
        several buckets come in another order in each rank, which ends it: so there is one. None: the usual, in MiB."""
        if self._kind != "powersgd" or distributed.get_backend() != "gloo":
            return None
        return 1 + sum(weight.numel() * weight.element_size() for weight in network.parameters()) // 2**20

    def sent_bytes(self, gradients):
        if self._kind == "fp16":
            return gradients * torch.float16.itemsize // torch.float32.itemsize
        if self._kind == "powersgd":
            sent, whole = (sum(sizes) for sizes in zip(*map(_sizes, self._weights)))
            return gradients * sent // whole
        return gradients

    def add_up(self, values):
        distributed.all_reduce(values)

    def close(self):
        distributed.destroy_process_group()


#: kind of compression -> the hook of DistributedDataParallel, in words
HOOKS = {
    "none": "",
    "fp16": ", gradients in float16 (fp16_compress_hook)",
    "powersgd": f", matrices of rank {compression.RANK} (powerSGD_hook)",
}
#: what the hook adds to lengths before it divides by them: some gradients are zero
EPSILON = 1e-8


def _low_rank(known, bucket):
    """The hook, with each Q from dlperf.adapters.compression.basis, in the order of its weight's memory: what the hook
    draws depends on which weights share a bucket."""
    (state, names), index = known, bucket.index()
    if state.iter >= state.start_powerSGD_iter and index not in state.q_memory_dict:
        gradients = bucket.buffer()
        ps, qs = 0, {}  # the hook has those of one shape together
        for weight in bucket.parameters():
            rows, columns, rank, compressed = _matrix(weight)
            if compressed:
                q = torch.from_numpy(compression.basis(names[weight], weight.shape)).to(gradients)
                inner = sorted(range(1, weight.dim()), key=weight.stride, reverse=True)
                q = q.permute(*(axis - 1 for axis in inner), -1).reshape(-1)
                qs.setdefault((rows, columns), []).append(q)
                ps += rows * rank
        state.p_memory_dict[index] = gradients.new_empty(ps)
        state.q_memory_dict[index] = torch.cat([gradients.new_empty(0), *itertools.chain(*qs.values())])
    return powerSGD_hook.powerSGD_hook(state, bucket)


def _matrix(weight):
    """Rows, columns and rank of its gradient, and whether the hook compresses it."""
    rows, columns = weight.shape[0], weight[0].numel()
    rank = min(rows, columns, compression.RANK)
    return rows, columns, rank, rows * columns > 2 * (rows + columns) * rank


def _sizes(weight):
    """Values that are exchanged of its gradient, and that it has."""
    rows, columns, rank, compressed = _matrix(weight)
    return (rows + columns) * rank if compressed else weight.numel(), weight.numel()


class InOrder:
    """A view of a channels_last gradient in the order of its memory: Horovod takes no other. Nothing is compressed."""

    @staticmethod
    def compress(tensor):
        plain = tensor.is_contiguous()
        return tensor if plain else tensor.permute(0, 2, 3, 1), plain

    @staticmethod
    def decompress(tensor, plain):
        return tensor if plain else tensor.permute(0, 3, 1, 2)


class Horovod(OneRank):
    """An optimizer whose hooks average each gradient while the backward pass goes on."""

    def __init__(self):
        import horovod.torch as hvd

        self._hvd = hvd
        self.description = f"horovod.torch.DistributedOptimizer ({'nccl' if hvd.nccl_built() else 'gloo'})"

    def spread(self, replica, network, optimizer):
        names = network.named_parameters()
        return replica, self._hvd.DistributedOptimizer(optimizer, named_parameters=names, compression=InOrder)

    def averaged(self, optimizer):
        optimizer.synchronize()
        return optimizer.skip_synchronize()

    def add_up(self, values):
        self._hvd.allreduce_(values, op=self._hvd.Sum, name="sum")

    def close(self):
        self._hvd.shutdown()


def all_reduce(communication, count, device):
    """See dlperf.adapters.api.Trainer.all_reduce."""
    values = torch.empty(count, device=device)

    def add_up():
        values.fill_(1)
        communication.add_up(values)
        return values[0].item()

    return add_up
