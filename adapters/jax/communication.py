"""How ranks average their gradients in JAX: lax.pmean in a program of all ranks, over a mesh of their devices."""

import math
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from dlperf.adapters.ranks import interface

#: the mesh's one axis, over the ranks; and what lies there of an array: the same in all ranks, or each rank's own rows
RANKS = "ranks"
COMMON, OWN = Spec(), Spec(RANKS)


def join(job, ranks):
    """Make the group of all ranks: NCCL between GPUs, Gloo between CPUs. A rank sees one GPU, its own."""
    address = ranks.addresses[ranks.rank]
    network = interface(address)
    if network and ranks.nnodes > 1:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", network)
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for a notice, and go on
    jax.distributed.initialize(
        coordinator_address=ranks.endpoints[0],
        coordinator_bind_address=ranks.endpoints[0],
        num_processes=ranks.world_size,
        process_id=ranks.rank,
        local_device_ids=[ranks.local_rank],
        initialization_timeout=math.ceil(job.meeting_seconds),
    )
    if job.device == "cpu":
        use_gloo(address)
    # The first collective makes the connections. Gloo waits half a minute for them, and ranks that compile longer
    # than each other would miss that
    multihost_utils.sync_global_devices("connected")


def use_gloo(address):
    """Have Gloo bind this address. JAX has no option for that, and Gloo takes what the host's own name resolves to."""
    from jax._src import distributed, xla_bridge
    from jax._src.lib import _jax

    gloo = _jax.make_gloo_tcp_collectives(distributed.global_state.client, hostname=address)
    xla_bridge.register_backend_factory("cpu", partial(xla_bridge.make_cpu_client, gloo), fail_quietly=False)


class Devices:
    """One device of each rank as a mesh, over which data parallelism spreads arrays and programs. With one rank there
    is no mesh."""

    def __init__(self, ranks):
        self.mesh = jax.make_mesh((ranks.world_size,), (RANKS,)) if ranks.world_size > 1 else None

    def spread(self, spec, tree):
        """This rank's arrays as its part of the ranks' arrays, without a copy. Scalars are the same in all ranks."""
        if self.mesh is None:
            # A program is compiled again for arrays that are bound to their device, as DALI's are and results of them
            return jax.device_put(tree, jax.local_devices()[0])
        return jax.tree.map(lambda array: self._spread(spec if array.ndim else COMMON, array), tree)

    def _spread(self, spec, array):
        shape = array.shape if spec == COMMON else (self.mesh.size * array.shape[0], *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self.mesh, spec), [array])

    def compiled(self, function, out_specs, **options):
        """A function of one rank's arrays, compiled as a program of all ranks."""
        if self.mesh is not None:
            function = jax.shard_map(function, mesh=self.mesh, out_specs=out_specs)
        return jax.jit(function, **options)

    def own_key(self, key):
        """In a program: a random key that differs between the ranks."""
        return key if self.mesh is None else jax.random.fold_in(key, lax.axis_index(RANKS))

    def own_row(self, scalar):
        """In a program: a scalar that differs between the ranks, as OWN wants it."""
        return scalar if self.mesh is None else scalar[None]

    def gradients(self, function, weights):
        """In a program: the gradients of `function`, averaged over the ranks, and what else it returns."""
        gradients, rest = self.own_gradients(function, weights)
        return gradients if self.mesh is None else self._mean(gradients), rest

    def own_gradients(self, function, weights):
        """In a program: the gradients of `function` in this rank, and what else it returns."""
        if self.mesh is not None:
            # as each rank's own: of common weights JAX itself would add up the gradients, at each use of a weight
            weights = lax.pcast(weights, RANKS, to="varying")
        return jax.grad(function, has_aux=True)(weights)

    def _mean(self, gradients):
        if self._on_gpu:
            return lax.pmean(gradients, RANKS)  # XLA combines them, and can run them beside the backward pass
        # On a CPU it combines them too, but then calls Gloo for each array, and that is slow for the many small ones
        flat, unravel = ravel_pytree(gradients)
        return unravel(lax.pmean(flat, RANKS))

    def description(self, weights):
        """What averages the gradients of these weights, in words."""
        dtypes = {str(weight.dtype) for weight in weights.values()}
        return f"lax.pmean in shard_map, {', '.join(dtypes)} ({'nccl' if self._on_gpu else 'gloo'})"

    @property
    def _on_gpu(self):
        return self.mesh.devices.item(0).platform == "gpu"

    def close(self):
        if self.mesh is not None:
            jax.distributed.shutdown()


def here(array):
    """This rank's part of an array, in numpy's memory."""
    return numpy.asarray(array.addressable_data(0))


def all_reduce(devices, count):
    """See dlperf.adapters.api.Trainer.all_reduce."""
    ones = devices.spread(OWN, jnp.ones(count, jnp.float32))

    def add_up(values):
        total = lax.psum(values, RANKS)
        return total[0], total  # all of it, or XLA might add up the first only

    compiled = devices.compiled(add_up, COMMON)
    return lambda: here(compiled(ones)[0]).item()
