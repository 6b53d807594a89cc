"""What all networks share in JAX: set-up, weights, batches, and the training step."""

import contextlib
import logging
import os
from importlib import metadata

import jax
import jax.numpy as jnp
import jaxlib
import numpy

from dlperf.adapters import base, compression
from dlperf.adapters.jax import asked, communication
from dlperf.adapters.jax.communication import COMMON, OWN, Devices, here
from dlperf.adapters.jax.compression import Deep
from dlperf.adapters.jax.linear import wide
from dlperf.adapters.jax.optimizers import FIRST_SCALE, first_scale, guarded
from dlperf.models.parameters import initial

#: of the large products
DTYPES = {
    "fp64": jnp.float64,
    "fp32": jnp.float32,
    "tf32": jnp.float32,
    "amp_fp16": jnp.float16,
    "amp_bf16": jnp.bfloat16,
}


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
    ones = jnp.ones((size, size), DTYPES[job.precision])
    multiply = jax.jit(jnp.matmul)
    return lambda: multiply(ones, ones).block_until_ready()


def copy(job, count):
    """Reads count values of float32 and writes as many, as a call."""
    ones = jnp.ones(count, jnp.float32)
    add = jax.jit(lambda x: x + 1)
    return lambda: add(ones).block_until_ready()


def configure(job, ranks):
    """Device, threads, float64, TF32 and the group of ranks, before the first array."""
    # XLA's CPU client reads its number of threads from here when it is made, else it takes all CPUs it may use.
    os.environ["NPROC"] = str(job.threads)
    jax.config.update("jax_platforms", job.device)
    jax.config.update("jax_enable_x64", job.precision == "fp64")
    # XLA's own generator draws dropout's bits; threefry, JAX's default, costs a CPU about the same.
    jax.config.update("jax_default_prng_impl", "rbg")
    if job.device == "cpu":
        # Else a thread of XLA's runs each step, and glibc takes the large blocks of all threads but the first from the
        # system each time: 0.6 million page faults in a step of ResNet-50, a quarter of its time.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    if job.device == "cuda":
        if job.trace_steps:  # a proof, beside others: else XLA takes three quarters of the card
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        # of float32 products, where XLA takes TF32 unless told otherwise
        precisions = {"fp32": "highest", "tf32": "tensorfloat32"}
        jax.config.update("jax_default_matmul_precision", precisions.get(job.precision))
    if ranks.world_size > 1:
        communication.join(job, ranks)
    if job.device == "cuda":
        jax.config.update("jax_default_device", _first_gpu())


def _first_gpu():
    """Where its CUDA plug-in fails to start, JAX logs why and raises an error without a word."""
    why = []
    log, handler = logging.getLogger("jax._src.xla_bridge"), logging.Handler(logging.ERROR)
    handler.emit = lambda record: why.append(str(record.exc_info[1] if record.exc_info else record.getMessage()))
    log.addHandler(handler)
    try:
        return jax.local_devices()[0]
    except (AssertionError, RuntimeError) as error:
        missing = "it has no CUDA plug-in here; jax[cuda12] and jax[cuda13] have one"
        raise base.no_gpu(f"JAX {jax.__version__}", "; ".join(why) or str(error) or missing) from error
    finally:
        log.removeHandler(handler)


def load(job):
    """The initial weights of dlperf.models in JAX's layouts: trained ones and statistics, by canonical name."""
    weights, statistics = {}, {}
    for parameter in base.parameters(job):
        array = _to_jax(initial(parameter, job.seed, "float64"))
        target = weights if parameter.trained else statistics
        target[parameter.name] = jax.device_put(numpy.ascontiguousarray(array, job.weights_dtype))
    return weights, statistics


def _to_jax(array):
    """Convolutions (height, width, in, out); those of 1x1 (out, in), since they are matrix products here."""
    if array.ndim != 4:
        return array
    return array[:, :, 0, 0] if array.shape[2:] == (1, 1) else array.transpose(2, 3, 1, 0)


def _from_jax(array, shape):
    return (array.transpose(3, 2, 0, 1) if array.ndim == 4 else array).reshape(shape)


class Feed(base.Feed):
    def __init__(self, job, ranks):
        self._devices, self._dtype = Devices(ranks), job.weights_dtype
        super().__init__(job, ranks)

    def _place(self, batch):
        return self._devices.spread(OWN, super()._place(batch))

    def _tensor(self, array):
        if array.ndim == 4:
            array = array.transpose(0, 2, 3, 1)
        # a copy: rows are read-only views of a file, and on CPU JAX may use numpy's memory as it is
        return jax.device_put(numpy.array(array, self._dtype if array.dtype.kind == "f" else array.dtype, order="C"))


class Trainer(base.Trainer):
    """One network, its loss and its optimizer as one compiled program, whose state is updated in place (donated).

    loss: network, weights, statistics, batch, key -> scalar, logits, new statistics: JAX differentiates pure functions
    alone, so that what changes goes in and comes out. effective: what the family adds to the facts that this class
    reads back.
    """

    def __init__(self, job, ranks, network, loss, optimizer, feed, effective):
        super().__init__(job, feed, effective)
        self._network, self._loss, self._optimizer = network, loss, optimizer
        self._devices = Devices(ranks)
        state, specs = self._initial(job, optimizer)
        weights = state["weights"]
        compressed = ranks.world_size > 1 and compression.asked(job) == "dgc"
        if compressed:
            state["kept"], specs["kept"] = Deep.initial(job, weights), OWN
            plain = {name: weight for name, weight in weights.items() if name not in state["kept"]["u"]}
            state["optimizer"] = optimizer.initial(plain)
        self._state = self._spread(specs, state)
        if compressed:
            self._compiled = Deep(job, self._devices, optimizer, self._differentiated, specs)
        else:
            specs_of_loss = (OWN, OWN, COMMON) if job.trace_steps else OWN
            self._compiled = self._devices.compiled(self._train, (specs, specs_of_loss), donate_argnums=0)
        self._traced = None
        self.parameter_count = sum(weight.size for weight in weights.values())
        self._gradient_bytes = sum(weight.nbytes for weight in weights.values())
        self.effective["compile"] = "xla"
        if jax.config.jax_compilation_cache_dir:
            self.effective["compilation_cache"] = "repeats take what the first compiled, and what it tuned"
        self.effective["threads"] = str(job.threads)
        self.effective["optimizer"] = optimizer.kernel
        if job.device == "cpu":
            self.effective["dispatch"] = "in the calling thread, whose memory glibc keeps from step to step"
        if job.device == "cuda":
            self.effective["device_memory"] = "peak_bytes_in_use of XLA's allocator, with what autotuning took"
        if ranks.world_size > 1:
            self.effective["communication"] = self._devices.description(weights)
        if compressed:
            self.effective["communication"] = self._compiled.description
            self.effective.update(compression.effective(job))

    def _initial(self, job, optimizer):
        """The state that training starts from, this rank's part of it, and what of it is which rank's."""
        weights, statistics = load(job)
        return self._state_of(job, weights, statistics, optimizer)

    @staticmethod
    def _state_of(job, weights, statistics, optimizer):
        state = {
            "weights": weights,
            "statistics": statistics,
            "optimizer": optimizer.initial(weights),
            "step": jnp.zeros((), jnp.int32),
            "seed": jnp.array(job.dropout_seed, jnp.uint32),  # a constant would make each run another program
        }
        if job.precision == "amp_fp16":
            state["scale"] = first_scale()
        return state, {**dict.fromkeys(state, COMMON), "statistics": OWN}

    def _spread(self, specs, tree):
        """specs: of each part of the tree, or of parts of it."""
        if not isinstance(specs, dict):
            return self._devices.spread(specs, tree)
        return {name: self._spread(specs[name], part) for name, part in tree.items()}

    @property
    def gradient_bytes(self):
        return getattr(self._compiled, "gradient_bytes", self._gradient_bytes)

    def _train(self, state, batch):
        """One step: state, batch -> new state, loss; for checking (loss, logits, gradients) in place of the loss."""
        gradients, (loss, logits, statistics) = self._differentiated(state, batch, self._devices.gradients)
        with jax.named_scope("optimizer"):
            weights, optimizer = self._optimizer.update(state["weights"], gradients, state["optimizer"], state["step"])
        new = {"weights": weights, "statistics": statistics, "optimizer": optimizer, "step": state["step"] + 1}
        new["seed"] = state["seed"]
        if "scale" in state:
            new = guarded(state, new, gradients)
        loss = self._devices.own_row(loss)
        return new, (loss, logits, gradients) if self._job.trace_steps else loss

    def _differentiated(self, state, batch, gradients_of):
        """The gradients of a step, and its loss, logits and new statistics. gradients_of: a method of Devices."""
        key = self._devices.own_key(jax.random.fold_in(jax.random.key(state["seed"]), state["step"]))
        scale = state["scale"]["value"] if "scale" in state else 1.0

        def scaled(weights):
            loss, logits, statistics = self._loss(self._network, weights, state["statistics"], batch, key)
            return loss * scale, (loss, logits, statistics)

        gradients, rest = gradients_of(scaled, state["weights"])
        if "scale" in state:
            gradients = jax.tree.map(lambda gradient: gradient / scale, gradients)
        return gradients, rest

    def _step(self, batch):
        self._traced = None  # room for this step's
        self._state, loss = self._compiled(self._state, batch)
        if self._job.trace_steps:
            loss, *self._traced = loss
        return loss

    def _observe(self, batch):
        self.shapes = self._network.shapes
        dtype = str(jnp.dtype(self._network.compute_dtype))
        tf32 = dtype == "float32" and jax.config.jax_default_matmul_precision == "tensorfloat32"
        self.effective["compute_dtype"] = "tf32" if tf32 else dtype
        self.effective.update(asked.of(self._compiled.trace(self._state, batch).jaxpr, self._job))
        if "scale" in self._state:
            self.effective["loss_scale"] = f"dynamic from {FIRST_SCALE:g}"

    def fetch(self):
        jax.block_until_ready(self._feed[self._steps])

    def wait(self):
        jax.block_until_ready(self._state)

    def read(self, loss):
        return here(loss).item()

    def all_reduce(self, count):
        return communication.all_reduce(self._devices, count)

    def parameters(self):
        return self._canonical(dict(self._state["weights"], **self._state["statistics"]))

    def logits(self):
        for name, value in zip(base.logits(self._job), self._traced[0]):
            yield name, wide(here(value))

    def gradients(self):
        return self._canonical(self._traced[1])

    def moments(self):
        state = self._state["optimizer"]
        return {moment: self._canonical(state[moment]) for moment in ("mean", "square") if moment in state}

    def _canonical(self, held):
        for parameter in base.parameters(self._job):
            if parameter.name in held:
                array = _from_jax(here(held[parameter.name]), parameter.shape)
                yield parameter.name, numpy.ascontiguousarray(array)

    def peak_memory(self):
        if self._job.device == "cpu":
            return None
        device = self._state["step"].devices().pop()
        return (device.memory_stats() or {}).get("peak_bytes_in_use")  # None with CUDA's own allocator

    def close(self):
        self._state = self._feed = self._traced = None
        self._devices.close()
