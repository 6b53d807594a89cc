"""What ResNet and BERT share in JAX: set-up, ranks, weights, batches, matrix products, and the training step."""

import contextlib
import math
import os
from functools import partial
from importlib import metadata

import jax
import jax.numpy as jnp
import jaxlib
import numpy
from jax import lax
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from dlperf import models
from dlperf.adapters.api import described
from dlperf.adapters.ranks import interface
from dlperf.models.batches import Batches
from dlperf.models.parameters import initial

DTYPES = {"fp64": jnp.float64, "amp_fp16": jnp.float16, "amp_bf16": jnp.bfloat16}
#: of float32 products on CUDA, where XLA takes TF32 unless told otherwise
MATMUL_PRECISION = {"fp32": "highest", "tf32": "tensorfloat32"}
#: dynamic loss scaling as torch.amp.GradScaler has it
FIRST_SCALE, GROWTH_STEPS = 2.0**16, 2000
#: beyond, transposing costs a CPU more than a bfloat16 product saves (ResNet's many pixels; BERT has few tokens)
MOST_ROWS_TRANSPOSED = 2048
#: the mesh's one axis, over the ranks; and what lies there of an array: the same in all ranks, or each rank's own rows
RANKS = "ranks"
COMMON, OWN = Spec(), Spec(RANKS)


def versions():
    found = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    # by the packages: asking JAX would start its backend, before `configure`
    readers = ("grain", "opencv-python-headless", "nvidia-dali-cuda120")
    for package in ("jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", *readers):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def product(job, size):
    """A product of two matrices of size x size in the type of the network's large ones, as a call."""
    ones = jnp.ones((size, size), DTYPES.get(job.precision, jnp.float32))
    multiply = jax.jit(jnp.matmul)
    return lambda: multiply(ones, ones).block_until_ready()


def configure(job, ranks):
    """Device, threads, float64, TF32 and the group of ranks, before the first array."""
    # XLA's CPU client reads its number of threads from here when it is made, else it takes all CPUs it may use.
    os.environ["NPROC"] = str(job.threads)
    jax.config.update("jax_platforms", job.device)
    jax.config.update("jax_enable_x64", job.precision == "fp64")
    # XLA's own generator draws dropout's bits; threefry, JAX's default, costs a CPU about the same.
    jax.config.update("jax_default_prng_impl", "rbg")
    if job.device == "cuda":
        jax.config.update("jax_default_matmul_precision", MATMUL_PRECISION.get(job.precision))
    if ranks.world_size > 1:
        join(job, ranks)
    if job.device == "cuda":
        jax.config.update("jax_default_device", jax.local_devices()[0])


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
            # A program is compiled anew for arrays that are bound to their device, as DALI's are and results of them
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
        differentiated = jax.grad(function, has_aux=True)
        if self.mesh is None:
            return differentiated(weights)
        # as each rank's own: of common weights JAX itself would add up the gradients, at each use of a weight
        gradients, rest = differentiated(lax.pcast(weights, RANKS, to="varying"))
        return self._mean(gradients), rest

    def _mean(self, gradients):
        if self.mesh.devices.item(0).platform == "gpu":
            return lax.pmean(gradients, RANKS)  # XLA combines them, and can run them beside the backward pass
        # On a CPU it combines them too, but then calls Gloo for each array, and that is slow for the many small ones
        flat, unravel = ravel_pytree(gradients)
        return unravel(lax.pmean(flat, RANKS))


def compute_dtype(job):
    """Of activations, and of weights where a product takes them."""
    return DTYPES.get(job.precision, jnp.float32)


def wide(x):
    """In float32 or better: for statistics, softmax and losses."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


@jax.custom_vjp
def linear(x, weight):
    """x (.., n, in) times weight (.., out, in) transposed, in x's dtype; half precision is summed up in float32.

    `weight` may be float32 beside an x of half precision: it is cast here, and has its gradient in float32.
    Written with its derivative, since JAX's own would multiply float32 by bfloat16 where the sums are float32.
    """
    return _product(x, weight.astype(x.dtype), -1, -1).astype(x.dtype)


def _forward(x, weight):
    cast = weight.astype(x.dtype)
    return _product(x, cast, -1, -1).astype(x.dtype), (x, cast, jnp.zeros((), weight.dtype))


def _backward(saved, gradient):
    x, cast, weight = saved
    of_x = _product(gradient, cast, -1, -2).astype(x.dtype)
    return of_x, _weight_gradient(gradient, x).astype(weight.dtype)


def _weight_gradient(gradient, x):
    rows = x.shape[-2]
    if x.dtype.itemsize > 2 or rows > MOST_ROWS_TRANSPOSED:
        return _product(gradient, x, -2, -2)
    # XLA's CPU compiler multiplies bfloat16 as such (AMX) only where the left side is row-major and summed over its
    # last axis; else as float32, five times slower. The reshape makes the transposed gradient row-major.
    shape = (*x.shape[:-2], gradient.shape[-1], rows)
    return _product(jnp.swapaxes(gradient[None], -1, -2).reshape(shape), x, -1, -2)


def _product(a, b, axis_of_a, axis_of_b):
    """Of stacks of matrices, summed over these axes."""
    stack = tuple(range(a.ndim - 2))
    dimensions = (((a.ndim + axis_of_a,), (b.ndim + axis_of_b,)), (stack, stack))
    return lax.dot_general(a, b, dimensions, preferred_element_type=jnp.promote_types(a.dtype, jnp.float32))


linear.defvjp(_forward, _backward)


def arrays(job):
    """The initial weights of dlperf.models in JAX's layouts: trained ones and statistics, by canonical name."""
    dtype = jnp.float64 if job.precision == "fp64" else jnp.float32
    weights, statistics = {}, {}
    for parameter in models.family(job.model).parameters(models.config(job.model)):
        array = _to_jax(initial(parameter, job.seed, "float64"))
        target = weights if parameter.trained else statistics
        target[parameter.name] = jax.device_put(numpy.ascontiguousarray(array, dtype))
    return weights, statistics


def _to_jax(array):
    """Convolutions (height, width, in, out); those of 1x1 (out, in), since they are matrix products here."""
    if array.ndim != 4:
        return array
    return array[:, :, 0, 0] if array.shape[2:] == (1, 1) else array.transpose(2, 3, 1, 0)


def _from_jax(array, shape):
    return (array.transpose(3, 2, 0, 1) if array.ndim == 4 else array).reshape(shape)


class SGD:
    """Momentum and weight decay, as dlperf.models.resnet.Optimizer says."""

    name = "SGD, written in JAX (compiled into the step)"

    def __init__(self, recipe, decayed):
        self._recipe, self._decayed = recipe, decayed

    def initial(self, weights):
        return {"velocity": jax.tree.map(jnp.zeros_like, weights)}

    def update(self, weights, gradients, state, step):
        recipe, velocity, updated = self._recipe, {}, {}
        for name, weight in weights.items():
            gradient = gradients[name]
            if name in self._decayed:
                gradient = gradient + recipe.weight_decay * weight
            velocity[name] = recipe.momentum * state["velocity"][name] + gradient
            updated[name] = weight - recipe.learning_rate * velocity[name]
        return updated, {"velocity": velocity}


class AdamW:
    """Decoupled weight decay, bias correction and clipping, as dlperf.models.bert.Optimizer says."""

    name = "AdamW, written in JAX (compiled into the step)"

    def __init__(self, recipe, decayed, clip_norm):
        self._recipe, self._decayed, self._clip_norm = recipe, decayed, clip_norm

    def initial(self, weights):
        return {moment: jax.tree.map(jnp.zeros_like, weights) for moment in ("mean", "square")}

    def update(self, weights, gradients, state, step):
        recipe, updated, mean, square = self._recipe, {}, {}, {}
        factor = 1.0
        if self._clip_norm is not None:
            norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients.values()))
            factor = jnp.minimum(1.0, self._clip_norm / norm)
        for name, weight in weights.items():
            gradient = gradients[name] * factor
            mean[name] = recipe.beta1 * state["mean"][name] + (1 - recipe.beta1) * gradient
            square[name] = recipe.beta2 * state["square"][name] + (1 - recipe.beta2) * jnp.square(gradient)
            # 1 - beta^t without the digits that float32 loses there
            steps = (step + 1).astype(weight.dtype)
            unbiased_mean = mean[name] / -jnp.expm1(steps * math.log(recipe.beta1))
            unbiased_square = square[name] / -jnp.expm1(steps * math.log(recipe.beta2))
            change = unbiased_mean / (jnp.sqrt(unbiased_square) + recipe.eps)
            if name in self._decayed:
                change = change + recipe.weight_decay * weight
            updated[name] = weight - recipe.learning_rate * change
        return updated, {"mean": mean, "square": square}


def decayed(job):
    """Names of the weights that decay."""
    parameters = models.family(job.model).parameters(models.config(job.model))
    return {parameter.name for parameter in parameters if parameter.decayed}


class Feed:
    """Batches as arrays: synthetic ones wait on the device, rows of a data folder are copied at each step."""

    def __init__(self, job, ranks):
        self._batches, self._devices = Batches(job, ranks), Devices(ranks)
        self._dtype = numpy.float64 if job.precision == "fp64" else numpy.float32
        self._ready = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        self.input_seconds = None
        count = len(self._ready)
        self.description = f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"

    def __getitem__(self, step):
        return self._ready[step % len(self._ready)] if self._ready else self._place(self._batches[step])

    def _place(self, batch):
        return self._devices.spread(OWN, {name: jax.device_put(self._array(array)) for name, array in batch.items()})

    def _array(self, array):
        if array.ndim == 4:
            array = array.transpose(0, 2, 3, 1)
        # a copy: rows are read-only views of a file, and on CPU JAX may use numpy's memory as it is
        return numpy.array(array, self._dtype if array.dtype.kind == "f" else array.dtype, order="C")


class Trainer:
    """One network, its loss and its optimizer as one compiled program, whose state is updated in place (donated).

    loss: network, weights, statistics, batch, key -> scalar, new statistics, logits. effective: what the family adds.
    """

    def __init__(self, job, ranks, network, loss, optimizer, feed, effective):
        self._job, self._network, self._loss, self._optimizer, self._feed = job, network, loss, optimizer, feed
        self._devices = Devices(ranks)
        weights, statistics = arrays(job)
        state = {
            "weights": weights,
            "statistics": statistics,
            "optimizer": optimizer.initial(weights),
            "step": jnp.zeros((), jnp.int32),
        }
        if job.precision == "amp_fp16":
            state["scale"] = {"value": jnp.float32(FIRST_SCALE), "good_steps": jnp.zeros((), jnp.int32)}
        specs = dict.fromkeys(state, COMMON)
        specs["statistics"] = OWN
        self._state = {name: self._devices.spread(specs[name], tree) for name, tree in state.items()}
        specs_of_loss = (OWN, OWN, COMMON) if job.trace_steps else OWN
        self._compiled = self._devices.compiled(self._train, (specs, specs_of_loss), donate_argnums=0)
        self._steps = 0
        self._traced = None
        self.shapes = network.shapes
        self.parameter_count = sum(weight.size for weight in weights.values())
        self.gradient_bytes = sum(weight.nbytes for weight in weights.values())
        self.effective = {
            "precision": job.precision,
            "compile": "xla",
            "threads": str(job.threads),
            "optimizer": optimizer.name,
            "loss_scale": "none",
            **described(feed, job),
            **effective,
        }
        if ranks.world_size > 1:
            dtypes = {str(weight.dtype) for weight in weights.values()}
            transport = "nccl" if job.device == "cuda" else "gloo"
            self.effective["communication"] = f"lax.pmean in shard_map, {', '.join(dtypes)} ({transport})"

    def _train(self, state, batch):
        """One step: state, batch -> new state, loss; for checking (loss, logits, gradients) in place of the loss."""
        key = self._devices.own_key(jax.random.fold_in(jax.random.key(self._job.seed), state["step"]))
        scale = state["scale"]["value"] if "scale" in state else 1.0

        def scaled(weights):
            loss, statistics, logits = self._loss(self._network, weights, state["statistics"], batch, key)
            return loss * scale, (loss, statistics, logits)

        gradients, (loss, statistics, logits) = self._devices.gradients(scaled, state["weights"])
        if "scale" in state:
            gradients = jax.tree.map(lambda gradient: gradient / scale, gradients)
        weights, optimizer = self._optimizer.update(state["weights"], gradients, state["optimizer"], state["step"])
        new = {"weights": weights, "statistics": statistics, "optimizer": optimizer, "step": state["step"] + 1}
        if "scale" in state:
            new = _guarded(state, new, gradients)
        loss = self._devices.own_row(loss)
        return new, (loss, logits, gradients) if self._job.trace_steps else loss

    def step(self):
        self._traced = None  # room for this step's
        batch = self._feed[self._steps]
        self._state, loss = self._compiled(self._state, batch)
        if self._job.trace_steps:
            loss, *self._traced = loss
        self._steps += 1
        if self._steps == 1:
            self._observe()
        return loss

    def _observe(self):
        """Read back what the first step's trace really did."""
        name = str(jnp.dtype(self._network.compute_dtype))
        self.effective["compute_dtype"] = "tf32" if self._job.precision == "tf32" else name
        if "scale" in self._state:
            self.effective["loss_scale"] = f"dynamic from {FIRST_SCALE:g}"

    @property
    def input_seconds(self):
        return self._feed.input_seconds

    def fetch(self):
        jax.block_until_ready(self._feed[self._steps])

    def wait(self):
        jax.block_until_ready(self._state)

    def read(self, loss):
        return _here(loss).item()

    def all_reduce(self, count):
        ones = self._devices.spread(OWN, jnp.ones(count, jnp.float32))

        def add_up(values):
            total = lax.psum(values, RANKS)
            return total[0], total  # all of it, or XLA might add up the first only

        compiled = self._devices.compiled(add_up, COMMON)
        return lambda: _here(compiled(ones)[0]).item()

    def parameters(self):
        return self._canonical(dict(self._state["weights"], **self._state["statistics"]))

    def logits(self):
        names = models.family(self._job.model).logits(self._network.config)
        for name, value in zip(names, self._traced[0]):
            yield name, wide(_here(value))

    def gradients(self):
        return self._canonical(self._traced[1])

    def _canonical(self, held):
        for parameter in models.family(self._job.model).parameters(self._network.config):
            if parameter.name in held:
                array = _from_jax(_here(held[parameter.name]), parameter.shape)
                yield parameter.name, numpy.ascontiguousarray(array)

    def peak_memory(self):
        if self._job.device == "cpu":
            return None
        device = self._state["step"].devices().pop()
        return device.memory_stats()["peak_bytes_in_use"]

    def close(self):
        self._state = self._feed = self._traced = None
        if self._devices.mesh is not None:
            jax.distributed.shutdown()


def _here(array):
    """This rank's part of an array, in numpy's memory."""
    return numpy.asarray(array.addressable_data(0))


def _guarded(old, new, gradients):
    """Loss scaling: the old state where a gradient is not finite, then half the scale; double after enough steps.

    Selected, not branched: a branch would wait for the device.
    """
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(gradient)) for gradient in gradients.values()]))
    scale, good_steps = old["scale"]["value"], old["scale"]["good_steps"] + 1
    grown = jnp.where(good_steps == GROWTH_STEPS, scale * 2, scale)
    kept = {name: value for name, value in old.items() if name != "scale"}
    new = jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, kept)
    new["scale"] = {
        "value": jnp.where(finite, grown, scale / 2),
        "good_steps": jnp.where(finite & (good_steps < GROWTH_STEPS), good_steps, 0),
    }
    return new
