"""How ranks average their gradients in PaddlePaddle: DataParallel, over NCCL between GPUs, over Gloo between CPUs."""

import os
import socket

import paddle
from paddle import distributed

from dlperf.adapters.ranks import interface


def join(ranks, backend):
    """Make the group of all ranks, before the first tensor. Paddle reads the variables of its launcher.

    Gloo gives up where one rank is 30 seconds later than another; Paddle has no setting for it.
    """
    os.environ.update(
        PADDLE_TRAINER_ID=str(ranks.rank),
        PADDLE_TRAINERS_NUM=str(ranks.world_size),
        PADDLE_TRAINER_ENDPOINTS=",".join(ranks.endpoints),
        PADDLE_CURRENT_ENDPOINT=ranks.endpoints[ranks.rank],
        PADDLE_MASTER=ranks.endpoints[0],
        PADDLE_DISTRI_BACKEND=backend,
        FLAGS_selected_gpus=str(ranks.local_rank),
    )
    network = interface(ranks.addresses[ranks.rank])
    if network:  # else Gloo fails where the host's own name leads elsewhere or, even within one host, nowhere
        os.environ.setdefault("GLOO_SOCKET_IFNAME", network)
    if network and ranks.nnodes > 1:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", network)
    if ranks.rank == 0:
        with socket.socket() as probe:
            probe.bind(("", ranks.ports[0]))  # a taken port is an error here; Paddle's store would abort the process
    distributed.init_parallel_env()


def spread(layer):
    """The layer whose backward() averages the gradients, in buckets: NCCL meanwhile goes on computing, Gloo waits."""
    return paddle.DataParallel(layer)


def description():
    return f"DataParallel ({distributed.get_backend().lower()})"


def all_reduce(count):
    """See dlperf.adapters.api.Trainer.all_reduce."""
    values = paddle.empty([count], "float32")

    def add_up():
        distributed.all_reduce(values.fill_(1.0))
        return values[0].item()

    return add_up


def close():
    if distributed.is_initialized():
        distributed.destroy_process_group()
