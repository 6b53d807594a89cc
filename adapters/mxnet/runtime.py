"""What all networks share in MXNet: set-up, weights, batches, and the training step."""

import contextlib
import ctypes
import json
from importlib import metadata

import mxnet as mx
import numpy as np
from mxnet import autograd, nd
from mxnet.contrib.amp.loss_scaler import LossScaler
from mxnet.gluon import HybridBlock

from dlperf import models
from dlperf.adapters import base, compression
from dlperf.adapters.mxnet import communication
from dlperf.models.parameters import initial

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # as MXNet calls the type that numpy lacks
#: of the large products
DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "amp_fp16": "float16", "amp_bf16": BFLOAT16}
# gluon's words for the scale and shift of a normalisation, which torchvision and Hugging Face call weight and bias
GLUON = {"scale": "gamma", "shift": "beta"}
#: of this rank, as `configure` chose it
DEVICE = [mx.cpu()]


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
    ones = precision.down(nd, nd.ones((size, size), dtype=precision.dtype, ctx=DEVICE[0]))
    return lambda: nd.FullyConnected(ones, ones, num_hidden=size, no_bias=True).wait_to_read()


def copy(job, count):
    """Reads count values of float32 and writes as many, as a call."""
    ones = nd.ones(count, ctx=DEVICE[0])
    return lambda: (ones + 1).wait_to_read()


def configure(job, ranks):
    """Random numbers. Returns the device of this rank. MXNet asks for TF32 wherever a GPU has it: only the switch of
    NVIDIA's libraries, which the worker sets, turns it off."""
    mx.random.seed(job.dropout_seed + ranks.rank)  # of dropout
    if job.device == "cuda":
        base.need_gpu(f"MXNet {mx.__version__}", built_with("CUDA"), mx.context.num_gpus, ranks)
        DEVICE[0] = mx.gpu(ranks.local_rank)
    return DEVICE[0]


def built_with(feature):
    """Whether this build of MXNet has a library: "CUDA", "CUDNN"."""
    return mx.runtime.Features().is_enabled(feature)


class Precision:
    """Where a network computes in which type. `dtype` is that of its weights.

    The networks cast by hand. MXNet's amp.init casts each input of each operator of its lists: a thousand casts in a
    step of BERT in bfloat16, where 400 do; it fails for an operator without inputs and for global pooling in bfloat16.
    """

    def __init__(self, job):
        self.dtype, self.device = job.weights_dtype, job.device
        self.low = DTYPES[job.precision] if job.mixed else None

    def down(self, F, *arrays):
        """Cast to 16 bits, with mixed precision."""
        cast = arrays if self.low is None else tuple(F.amp_cast(array, dtype=self.low) for array in arrays)
        return cast if len(cast) > 1 else cast[0]

    def up(self, F, *arrays):
        """Cast to float32, with mixed precision."""
        cast = arrays if self.low is None else tuple(F.amp_cast(array, dtype="float32") for array in arrays)
        return cast if len(cast) > 1 else cast[0]

    def without_bfloat16(self, F, layer, *arrays):
        """Between activations of 16 bits, a layer for which MXNet has no kernel in bfloat16, such as dropout, or a slow
        one."""
        return self.down(F, layer(*[self.up(F, one) for one in arrays])) if self.low == BFLOAT16 else layer(*arrays)


def load(network, job, device):
    """Give a network, whose parameters have canonical layouts, the initial weights of dlperf.models."""
    network.cast(job.weights_dtype)
    network.initialize(ctx=device)
    for parameter, gluon in pairs(network, job):
        gluon.set_data(nd.array(initial(parameter, job.seed, "float64"), ctx=device, dtype=job.weights_dtype))


def pairs(network, job):
    """What dlperf.models says of each parameter, and gluon's parameter."""
    own = network._collect_params_with_prefix()
    for parameter in base.parameters(job):
        stem, _, last = parameter.name.rpartition(".")
        yield parameter, own[stem + "." + GLUON.get(parameter.kind, last)]


class Feed(base.Feed):
    def __init__(self, job, ranks, device):
        self._device, self._dtype = device, job.weights_dtype
        super().__init__(job, ranks)

    def _tensor(self, array):
        dtype = self._dtype if array.dtype.kind == "f" else array.dtype
        return nd.array(np.atleast_1d(array), ctx=self._device, dtype=dtype)  # without axes a shape is unknown


def asked(graph, job):
    """What the operators of the graph that runs are given: for Trainer.effective."""
    nodes = [(node["op"], node.get("attrs", {})) for node in json.loads(graph.tojson())["nodes"]]
    ops = {op for op, _ in nodes}
    told, found = models.family(job.model).EFFECTIVE, {}
    if "dropout" in told:
        rates = {str(float(attrs["p"])) for op, attrs in nodes if op == "Dropout"}
        found["dropout"] = ", ".join(sorted(rates)) or "0.0"
    if "gelu" in told:
        forms = {"erf (LeakyReLU's kernel)" for op, attrs in nodes if attrs.get("act_type") == "gelu"}
        found["gelu"] = ", ".join(forms | ({"erf"} & ops)) or ", ".join({"tanh"} & ops) or "neither erf nor tanh"
    decays = {attrs["momentum"] for op, attrs in nodes if op == "BatchNorm"}
    if decays:
        found["bn_decay"] = f"{', '.join(sorted(decays))}, as float32"  # the kernel's parameter, in float64 too
    return found


class Replica(HybridBlock):
    """A network and its loss as one block: one graph, one call. Its outputs are the loss alone, or with trace_steps a
    list: the loss and the logits, which a graph gives back only if they are outputs."""

    def __init__(self, network, loss, traced):
        super().__init__()
        self.network, self.loss, self.traced = network, loss, traced

    def __call__(self, batch):
        self.names = tuple(batch)  # a graph takes no dict
        return super().__call__(*batch.values())

    def hybrid_forward(self, F, *arrays):
        loss, logits = self.loss(F, self.network, dict(zip(self.names, arrays)))
        return [loss, *map(F.BlockGrad, logits)] if self.traced else loss


class Trainer(base.Trainer):
    """One network and its loss in one static graph, and its optimizer; the engine runs both later.

    loss: F, network, batch -> scalar, logits; F is mxnet.sym, the graph being made. network.observed: name in
    Trainer.shapes -> block that computes it, a large product first. effective: what the family adds to the facts that
    this class reads back.
    """

    def __init__(self, job, ranks, network, loss, optimizer, feed, effective):
        super().__init__(job, feed, effective)
        self._network, self._optimizer = network, optimizer
        self._replica = Replica(network, loss, job.trace_steps > 0)
        self._hybridize()
        self._world_size = ranks.world_size
        self._scaler = LossScaler() if job.precision == "amp_fp16" else None
        self._trained = [gluon for parameter, gluon in pairs(network, job) if parameter.trained]
        self._logits, self._grad_scale = (), 1.0
        self.parameter_count = sum(gluon.data().size for gluon in self._trained)
        self.effective["compile"] = "hybridize (static_alloc, static_shape)"
        self.effective["threads"] = str(ctypes.CDLL("libgomp.so.1").omp_get_max_threads())
        self.effective["optimizer"] = optimizer.kernel
        if job.device == "cuda":
            self.effective["device_memory"] = "not known: MXNet counts what its pool holds, not what was used"
        if self._scaler:
            self.effective["loss_scale"] = f"dynamic from {self._scaler.loss_scale:g}"
        trained = [(gluon.data(), gluon.grad(), one.decayed) for one, gluon in pairs(network, job) if one.trained]
        self._communication = optimizer if job.servers else communication.between(job, ranks, trained, optimizer.recipe)
        if job.servers:
            self.effective.update(server_dtype="float32", overlap="none")
        if self._communication.description:
            self.effective["communication"] = self._communication.description
            self.effective.update(compression.effective(job))
        self._gradient_bytes = sum(gradient.size * gradient.dtype().itemsize for _, gradient, _ in trained)

    @property
    def pushes(self):
        """See dlperf.adapters.api.Trainer; None without servers."""
        return getattr(self._communication, "pushes", None)

    @property
    def gradient_bytes(self):
        return self._gradient_bytes if self._job.servers else self._communication.sent_bytes(self._gradient_bytes)

    def _step(self, batch):
        loss_scale = self._scaler.loss_scale if self._scaler else 1.0
        with autograd.record():
            loss = self._replica(batch)
            if self._job.trace_steps:
                loss, *self._logits = loss
            scaled = loss * loss_scale if self._scaler else loss
        scaled.backward()
        self._grad_scale = loss_scale * self._world_size
        self._communication.add_gradients()
        # MXNet's dynamic loss scaling reads on the host whether a gradient overflowed: with float16 a step waits
        if not (self._scaler and self._scaler.has_overflow(self._trained)):
            self._optimizer.step(self._grad_scale)
        return loss

    def _hybridize(self, **sizes):
        self._one_by_one = bool(sizes)
        self._replica.hybridize(static_alloc=True, static_shape=True, **sizes)

    def run_one_by_one(self):
        """From now on the engine is handed each operator of the graph by itself, not up to 15 as one: for a profiler.
        The next step makes the graph again."""
        if not self._one_by_one:
            self._hybridize(forward_bulk_size=0, backward_bulk_size=0)

    def _observe(self, batch):
        """Shapes and types of the graph that runs, as MXNet inferred them from the first batch."""
        inputs, graph = self._replica._cached_graph
        observed = self._network.observed
        names = [block.name + "_fwd_output" for block in observed.values()]
        some = mx.sym.Group([graph.get_internals()[name] for name in names])
        known = {one.name: array for one, array in zip(inputs, batch.values()) if one.name in some.list_inputs()}
        _, shapes, _ = some.infer_shape(**{name: array.shape for name, array in known.items()})
        _, dtypes, _ = some.infer_type(**{name: array.dtype for name, array in known.items()})
        for name, shape in zip(observed, shapes):
            self.shapes[name] = shape[1:]
        tf32 = self._job.device == "cuda" and base.gpu.tf32_allowed()
        names = {BFLOAT16: "bfloat16", np.dtype("float32"): "tf32" if tf32 else "float32"}
        self.effective["compute_dtype"] = names.get(np.dtype(dtypes[0]), np.dtype(dtypes[0]).name)
        self.effective.update(asked(graph, self._job))
        if self.effective["compute_dtype"] == "float16":  # linalg_impl.h asks for the variable at each product
            true_fp16 = mx.util.getenv("MXNET_FC_TRUE_FP16") not in (None, "0", "false")
            self.effective["accumulation"] = "float16" if true_fp16 else "float32"

    def wait(self):
        nd.waitall()

    def read(self, loss):
        return loss.asscalar().item()

    def all_reduce(self, count):
        return self._communication.all_reduce(count)

    def parameters(self):
        for parameter, gluon in pairs(self._network, self._job):
            yield parameter.name, gluon.data().asnumpy()

    def logits(self):
        for name, value in zip(base.logits(self._job), self._logits):
            yield name, value.asnumpy()

    def gradients(self):
        if self._job.servers and self._world_size > 1:  # of several workers nobody has the mean but the servers
            return
        # the optimizers leave them as the backward pass, or a KVStore, wrote them
        for parameter, gluon in pairs(self._network, self._job):
            if parameter.trained:
                yield parameter.name, gluon.grad().asnumpy() / np.asarray(self._grad_scale, gluon.dtype)

    def moments(self):
        trained = [parameter for parameter in base.parameters(self._job) if parameter.trained]
        return {
            moment: ((parameter.name, one.asnumpy()) for parameter, one in zip(trained, held))
            for moment, held in self._optimizer.moments().items()
        }

    def peak_memory(self):
        return None  # MXNet counts what its pool holds, not what was used

    def close(self):
        self.wait()
        self._communication.close()
