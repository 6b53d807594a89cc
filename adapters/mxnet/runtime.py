"""What ResNet and BERT share in MXNet: set-up, weights, batches, optimizers, and the training step."""

import contextlib
import ctypes
import os
from importlib import metadata

from dlperf.adapters import cpu

# These are read when the libraries of MXNet's wheel are loaded, as is OMP_NUM_THREADS, which the launcher sets.
# libgomp's threads spin for some milliseconds at each of a step's thousands of barriers: beside one other busy process
# on two cores, a step took up to four times as long as with this setting; alone, both took the same time
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
if "avx2" in (cpu.flags() or ()):
    # OpenBLAS 0.3.13 takes SSE3 kernels on processors that it does not know; its best, in this wheel, are AVX2's
    os.environ.setdefault("OPENBLAS_CORETYPE", "HASWELL")
if "amx_bf16" in (cpu.flags() or ()) and not ctypes.CDLL(None).syscall(158, 0x1023, 18):
    # oneDNN 2.4.4 uses AMX only if told, and does not ask Linux for it: arch_prctl(ARCH_REQ_XCOMP_PERM,
    # XFEATURE_XTILEDATA). Without AMX its bfloat16 kernels are no faster than its float32 ones, or half as fast
    os.environ.setdefault("DNNL_MAX_CPU_ISA", "AVX512_CORE_AMX")

import mxnet as mx
import numpy as np
from mxnet import autograd, nd
from mxnet.contrib.amp.loss_scaler import LossScaler
from mxnet.gluon import HybridBlock, nn  # noqa: F401

from dlperf import models
from dlperf.adapters.api import described
from dlperf.models.batches import Batches
from dlperf.models.parameters import initial

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # as MXNet calls the type that numpy lacks
# gluon's words for the scale and shift of a normalisation, which torchvision and Hugging Face call weight and bias
GLUON = {"scale": "gamma", "shift": "beta"}


def versions():
    found = {"mxnet": mx.__version__}
    with contextlib.suppress(metadata.PackageNotFoundError):  # in its own environment only
        found["horovod"] = metadata.version("horovod")
    for package in ("nvidia-dali-cuda120", "nvidia-dali-cuda110"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found["dali"] = metadata.version(package)
    return found


def product(job, size):
    """A product of two matrices of size x size in the type of the network's large ones, as a call."""
    precision = Precision(job)
    ones = precision.down(nd, nd.ones((size, size), dtype=precision.dtype))
    return lambda: nd.FullyConnected(ones, ones, num_hidden=size, no_bias=True).wait_to_read()


def configure(job, ranks):
    """Random numbers, and TF32 before the first array on a GPU. Returns the device of this rank."""
    mx.random.seed(job.seed + ranks.rank)  # of dropout
    if job.device == "cpu":
        return mx.cpu()
    if job.precision != "tf32":
        # MXNet asks cuBLAS and cuDNN for TF32 wherever a GPU has it; only NVIDIA's own switch turns it off
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    return mx.gpu(ranks.local_rank)


class Precision:
    """Where a network computes in which type. `dtype` is that of its weights.

    The networks cast by hand. MXNet's amp.init casts each input of each operator of its lists: a thousand casts in a
    step of BERT in bfloat16, where 400 do; it fails for an operator without inputs and for global pooling in bfloat16.
    """

    def __init__(self, job):
        self.dtype = "float64" if job.precision == "fp64" else "float32"
        self.low = {"amp_fp16": "float16", "amp_bf16": BFLOAT16}.get(job.precision)

    def down(self, F, *arrays):
        """Cast to 16 bits, with mixed precision."""
        cast = arrays if self.low is None else tuple(F.amp_cast(array, dtype=self.low) for array in arrays)
        return cast if len(cast) > 1 else cast[0]

    def up(self, F, *arrays):
        """Cast to float32, with mixed precision."""
        cast = arrays if self.low is None else tuple(F.amp_cast(array, dtype="float32") for array in arrays)
        return cast if len(cast) > 1 else cast[0]


def load(network, job, device, dtype):
    """Give a network, whose parameters have canonical layouts, the initial weights of dlperf.models.

    Returns pairs: what dlperf.models says of a parameter, and gluon's parameter.
    """
    network.cast(dtype)
    network.initialize(ctx=device)
    network.hybridize(static_alloc=True, static_shape=True)
    own = network._collect_params_with_prefix()
    pairs = []
    for parameter in models.family(job.model).parameters(models.config(job.model)):
        stem, _, last = parameter.name.rpartition(".")
        gluon = own[stem + "." + GLUON.get(parameter.kind, last)]
        gluon.set_data(nd.array(initial(parameter, job.seed, "float64"), ctx=device, dtype=dtype))
        pairs.append((parameter, gluon))
    return pairs


class Feed:
    """Batches as arrays: synthetic ones wait on the device, rows of a data folder are copied at each step."""

    def __init__(self, job, ranks, device, dtype):
        self._batches = Batches(job, ranks)
        self._device, self._dtype = device, dtype
        self._ready = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        self.input_seconds = None
        count = len(self._ready)
        self.description = f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"

    def __getitem__(self, step):
        return self._ready[step % len(self._ready)] if self._ready else self._place(self._batches[step])

    def _place(self, batch):
        return [self._array(array) for array in batch.values()]

    def _array(self, array):
        dtype = self._dtype if array.dtype.kind == "f" else array.dtype
        return nd.array(np.atleast_1d(array), ctx=self._device, dtype=dtype)  # without axes a shape is unknown


class Optimizer:
    """Weights, gradients and states in groups, each updated by one fused kernel; in float64 by plain arithmetic.

    The fused kernels hold learning rates and the like as float32. On a GPU one takes as many tensors as it may; on the
    CPU, where it walks through all of them in step, one tensor at a time is two to four times faster.

    step(grad_scale): that many times too large are the gradients, by the loss scale and as sums over the ranks.
    """

    def __init__(self, job, device, pairs, recipe, states, group):
        self.recipe, self.exact, self.steps = recipe, job.precision == "fp64", 0
        trained = [(p.data(), p.grad(), parameter.decayed) for parameter, p in pairs if parameter.trained]
        if self.exact:  # by pieces: Linux maps large intermediate results anew each time, half the time of a step
            trained = [(w, g, decayed) for *arrays, decayed in trained for w, g in zip(*map(pieces, arrays))]
        self.gradients = [gradient for _, gradient, _ in trained]
        self.groups = []
        size = group if job.device == "cuda" and not self.exact else 1
        for start in range(0, len(trained), size):
            weights, gradients, decayed = zip(*trained[start : start + size])
            zeros = [[nd.zeros_like(weight) for weight in weights] for _ in range(states)]
            decays = [recipe.weight_decay if one else 0.0 for one in decayed]
            self.groups.append((list(weights), list(gradients), zeros, decays))


class SGD(Optimizer):
    """The kernel keeps learning_rate * v: the same as models.resnet's formula while the learning rate is constant."""

    name = "multi_sgd_mom_update"

    def __init__(self, job, device, pairs, recipe):
        super().__init__(job, device, pairs, recipe, states=1, group=60)

    def step(self, grad_scale):
        recipe = self.recipe
        for weights, gradients, (velocities,), decays in self.groups:
            if self.exact:
                (w,), (g,), (v,), (decay,) = weights, gradients, velocities, decays
                v[:] = recipe.momentum * v + ((g if grad_scale == 1 else g / grad_scale) + decay * w)
                w -= recipe.learning_rate * v
                continue
            nd.multi_sgd_mom_update(
                *[one for member in zip(weights, gradients, velocities) for one in member],
                out=weights,
                num_weights=len(weights),
                lrs=[recipe.learning_rate] * len(weights),
                wds=decays,
                momentum=recipe.momentum,
                rescale_grad=1 / grad_scale,
            )


class AdamW(Optimizer):
    """The kernel has no bias correction, so the learning rate and eps carry it:

    m / c1 / (sqrt(v / c2) + eps) = sqrt(c2) / c1 * m / (sqrt(v) + sqrt(c2) * eps), where c = 1 - beta^t.
    """

    name = "multi_adamw_update"

    def __init__(self, job, device, pairs, recipe, clip_norm):
        super().__init__(job, device, pairs, recipe, states=2, group=50)
        self.clip_norm, self.one = clip_norm, nd.ones(1, ctx=device, dtype="float64" if self.exact else "float32")
        # multi_sum_sq has float32 sums; on the CPU it adds one by one, 5 % off for the word embedding. There BLAS's
        # dot, over views of at most 262144 values, is exact to 1e-7, and four times faster
        fused = job.device == "cuda" and not self.exact
        self.pieces = None if fused else [piece for gradient in self.gradients for piece in pieces(gradient)]

    def step(self, grad_scale):
        self.steps += 1
        recipe, scale = self.recipe, self._scale(grad_scale)
        c1, c2 = 1 - recipe.beta1**self.steps, 1 - recipe.beta2**self.steps
        rate = recipe.learning_rate
        for weights, gradients, (means, squares), decays in self.groups:
            if self.exact:
                (w,), (g,), (m,), (v,), (decay,) = weights, gradients, means, squares, decays
                g = nd.broadcast_mul(g, scale)
                m *= recipe.beta1
                m += (1 - recipe.beta1) * g
                v *= recipe.beta2
                v += (1 - recipe.beta2) * (g * g)
                w -= rate * (m / c1 / (nd.sqrt(v / c2) + recipe.eps) + decay * w)
                continue
            count = len(weights)
            nd.contrib.multi_adamw_update(
                weights,
                gradients,
                means,
                squares,
                scale,
                out=weights,
                size=count,
                lrs=[rate * c2**0.5 / c1] * count,
                etas=[1.0] * count,
                wds=[rate * decay for decay in decays],
                beta1=recipe.beta1,
                beta2=recipe.beta2,
                epsilon=recipe.eps * c2**0.5,
            )

    def _scale(self, grad_scale):
        """What gradients are multiplied by, on the device: grad_scale taken out, the global norm clipped."""
        if self.clip_norm is None:
            return self.one / grad_scale
        if self.pieces is None:
            squares = nd.multi_sum_sq(*self.gradients, num_arrays=len(self.gradients))
        else:
            squares = nd.concat(*[nd.dot(piece, piece) for piece in self.pieces], dim=0)
        return nd.minimum(self.clip_norm / nd.sqrt(nd.sum(squares)), 1 / grad_scale)


def pieces(array, size=2**18):
    """Flat views of an array."""
    flat = array.reshape(-1)
    return [flat[start : start + size] for start in range(0, flat.size, size)]


def sums(job, ranks, device, gradients):
    """What adds up the gradients over the ranks."""
    if job.options["communication"] == "horovod":
        from dlperf.adapters.mxnet.allreduce import Sums
    else:
        from dlperf.adapters.mxnet.kvstore import Sums
    return Sums(job, ranks, device, gradients)


class Trainer:
    """One network whose output is the loss, in one static graph, and its optimizer; the engine runs both later.

    With trace_steps the network's output is a list: the loss and the logits.
    observed: name in Trainer.shapes -> block that computes it. effective: what the family adds.
    """

    def __init__(self, job, ranks, device, network, pairs, optimizer, feed, observed, effective):
        self._job, self._network, self._pairs, self._feed = job, network, pairs, feed
        self._optimizer, self._observed = optimizer, observed
        self._world_size = ranks.world_size
        self._scaler = LossScaler() if job.precision == "amp_fp16" else None
        self._trained = [gluon for parameter, gluon in pairs if parameter.trained]
        self._steps = 0
        self._logits, self._grad_scale = (), 1.0
        self.shapes = {}
        self.parameter_count = sum(gluon.data().size for gluon in self._trained)
        self.effective = {
            "precision": job.precision,
            "compile": "hybridize (static_alloc, static_shape)",
            "threads": str(ctypes.CDLL("libgomp.so.1").omp_get_max_threads()),
            "optimizer": "plain arithmetic" if optimizer.exact else optimizer.name,
            "loss_scale": f"dynamic from {self._scaler.loss_scale:g}" if self._scaler else "none",
            **described(feed, job),
        }
        self.effective.update(effective)
        gradients = [gluon.grad() for gluon in self._trained]
        self.gradient_bytes = sum(gradient.size * gradient.dtype().itemsize for gradient in gradients)
        self._sums = sums(job, ranks, device, gradients) if ranks.world_size > 1 else None
        if self._sums:
            self.effective["communication"] = self._sums.description

    def step(self):
        batch = self._feed[self._steps]
        loss_scale = self._scaler.loss_scale if self._scaler else 1.0
        with autograd.record():
            loss = self._network(*batch)
            if self._job.trace_steps:
                loss, *self._logits = loss
            scaled = loss * loss_scale if self._scaler else loss
        scaled.backward()
        self._grad_scale = loss_scale * self._world_size
        if self._sums:
            self._sums.add_gradients()
        # MXNet's dynamic loss scaling reads on the host whether a gradient overflowed: with float16 a step waits
        if not (self._scaler and self._scaler.has_overflow(self._trained)):
            self._optimizer.step(self._grad_scale)
        if self._steps == 0:
            self._observe(batch)
        self._steps += 1
        return loss

    def _observe(self, batch):
        """Shapes and types of the graph that runs, as MXNet inferred them from the first batch."""
        inputs, graph = self._network._cached_graph
        names = [block.name + "_fwd_output" for block in self._observed.values()]
        some = mx.sym.Group([graph.get_internals()[name] for name in names])
        known = {one.name: array for one, array in zip(inputs, batch) if one.name in some.list_inputs()}
        _, shapes, _ = some.infer_shape(**{name: array.shape for name, array in known.items()})
        _, dtypes, _ = some.infer_type(**{name: array.dtype for name, array in known.items()})
        for name, shape in zip(self._observed, shapes):
            self.shapes[name] = shape[1:]
        names = {BFLOAT16: "bfloat16", np.dtype("float32"): "tf32" if self._job.precision == "tf32" else "float32"}
        self.effective["compute_dtype"] = names.get(np.dtype(dtypes[0]), np.dtype(dtypes[0]).name)

    @property
    def input_seconds(self):
        return self._feed.input_seconds

    def fetch(self):
        self._feed[self._steps]
        self.wait()

    def wait(self):
        nd.waitall()

    def read(self, loss):
        return loss.asscalar().item()

    def all_reduce(self, count):
        return self._sums.of_ones(count)

    def parameters(self):
        for parameter, gluon in self._pairs:
            yield parameter.name, gluon.data().asnumpy()

    def logits(self):
        for name, value in zip(models.family(self._job.model).logits(self._network.config), self._logits):
            yield name, value.asnumpy()

    def gradients(self):
        # the optimizers leave them as the backward pass, or the servers, wrote them
        for parameter, gluon in self._pairs:
            if parameter.trained:
                yield parameter.name, gluon.grad().asnumpy() / np.asarray(self._grad_scale, gluon.dtype)

    def peak_memory(self):
        return None  # MXNet counts what its pool holds, not what was used

    def close(self):
        self.wait()
        if self._sums:
            self._sums.close()
