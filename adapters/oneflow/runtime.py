"""What all networks share in OneFlow: set-up, weights, batches, and the training step."""

import contextlib
import os

import oneflow as flow

from dlperf.adapters import base, compression
from dlperf.adapters.oneflow import PRODUCTS, communication
from dlperf.adapters.oneflow.communication import averaged, of_all_ranks, own
from dlperf.adapters.oneflow.graph import Graph, asked, compute_dtype, exchanged_dtypes, kernels
from dlperf.adapters.oneflow.optimizers import kernel
from dlperf.models.parameters import initial

#: of the large products
DTYPES = {
    "fp64": flow.float64,
    "fp32": flow.float32,
    "tf32": flow.float32,
    "amp_fp16": flow.float16,
    "amp_bf16": flow.bfloat16,
}

#: how a Graph marks Adam's moments, behind the names of weights
MOMENTS = {"mean": "-m", "square": "-v"}


def versions():
    found = {"oneflow": flow.__version__}
    if flow.cuda.is_available():
        found["cuda"] = str(flow._oneflow_internal.flags.cuda_version())
    return found


def product(job, size):
    """A product of two matrices of size x size in the type of the network's large ones, as a call."""
    ones = flow.ones(size, size, dtype=DTYPES[job.precision], device=job.device)
    return lambda: done(flow.matmul(ones, ones))


def copy(job, count):
    """Reads count values of float32 and writes as many, as a call."""
    ones = flow.ones(count, device=job.device)
    return lambda: done(ones + 1)


def done(tensor):
    """When its device has done all that was enqueued."""
    flow._oneflow_internal.eager.Sync()


def configure(job, ranks):
    """Threads, random numbers, TF32 and the network of the ranks, before the first tensor on the device. Returns the
    device of this rank."""
    _use_processors(job.threads, ranks.local_rank)
    flow.manual_seed(job.dropout_seed + ranks.rank)  # of dropout
    if ranks.world_size > 1:
        communication.join(ranks)
    if job.device == "cpu":
        return flow.device("cpu")
    has_cuda = flow._oneflow_internal.flags.with_cuda()
    base.need_gpu(f"OneFlow {flow.__version__}", has_cuda, flow.cuda.device_count, ranks)
    # matrix products; cuDNN's convolutions are at their default, which the worker's switch turns off
    os.environ["ONEFLOW_EP_CUDA_ENABLE_TF32_EXECUTION"] = str(int(job.precision == "tf32"))
    return flow.device("cuda", ranks.local_rank)


def _use_processors(threads, local_rank):
    """A Graph spreads its operations over as many threads as there are processors, and each runs on one: OpenBLAS and
    the kernels of the wheel were built sequential, so flow.set_num_threads and OMP_NUM_THREADS change nothing. What
    can be chosen is the processors."""
    available = sorted(os.sched_getaffinity(0))
    if threads < len(available):
        first = local_rank * threads % len(available)
        chosen = (available + available)[first : first + threads]
        for thread in os.listdir("/proc/self/task"):  # OneFlow's own have started with its import
            with contextlib.suppress(OSError):  # it has ended, or a container forbids it: effective["threads"] tells
                os.sched_setaffinity(int(thread), chosen)


def load(network, job):
    """Copy the initial weights of dlperf.models into a network whose names and layouts are the canonical ones, and
    give it to all ranks."""
    state = network.state_dict()
    with flow.no_grad():
        for parameter in base.parameters(job):
            tensor = state[parameter.name]
            value = flow.tensor(initial(parameter, job.seed, "float64"), dtype=tensor.dtype, device=tensor.device)
            tensor.copy_(value)
    communication.spread(network, job.device)


class Feed(base.Feed):
    def __init__(self, job, ranks, device):
        self._device, self._dtype = device, getattr(flow, job.weights_dtype)
        super().__init__(job, ranks)

    def _tensor(self, array):
        tensor = flow.tensor(array)  # a copy: rows are read-only views of a file
        if tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        return of_all_ranks(tensor.to(self._device))


class Trainer(base.Trainer):
    """One network, its loss and its optimizer, stepped by an nn.Graph; eagerly in float64.

    loss: network, batch -> scalar, logits. effective: what the family adds to the facts that this class reads back.
    compiled: whether an nn.Graph can step it.
    """

    compiled = True

    def __init__(self, job, device, network, loss, optimizer, feed, effective):
        super().__init__(job, feed, effective)
        self._device, self._network, self._loss, self._optimizer = device, network, loss, optimizer
        self._deep = getattr(optimizer, "deep", None)  # of deep gradient compression
        half = DTYPES[job.precision] if job.mixed else None
        graph = self.compiled and job.precision != "fp64"
        self._graph = Graph(job, network, loss, optimizer, half) if graph else None
        self._weights = list(network.parameters())
        self._logits, self._gradients = (), []
        self.shapes = network.shapes
        self.parameter_count = sum(weight.numel() for weight in self._weights)
        self.gradient_bytes = sum(weight.numel() * weight.element_size() for weight in self._weights)
        self.effective["compile"] = "nn.Graph" if self._graph else "none"
        self.effective["threads"] = str(len(os.sched_getaffinity(0)))
        self.effective["optimizer"] = kernel(optimizer)
        if job.device == "cpu":
            self.effective["openblas"] = PRODUCTS[0]
        if job.device == "cuda":
            self.effective["device_memory"] = "not known: OneFlow 0.9 does not count what its allocator gave out"
        if job.precision == "amp_fp16":
            self.effective["loss_scale"] = "dynamic from 65536"

    def _step(self, batch):
        if self._deep:
            return self._deep_step(batch)
        loss = self._graph(batch) if self._graph else self._eager_step(batch)
        if self._job.trace_steps:
            loss, self._logits, self._gradients = loss
        return loss

    def _eager_step(self, batch):
        """As the Graph's: its loss, or with trace_steps the logits and gradients too."""
        loss, logits = self._loss(self._network, batch)
        self._eager_dtype = logits[0].dtype
        loss.backward()
        gradients = averaged(weight.grad for weight in self._weights)
        for weight, gradient in zip(self._weights, gradients):
            weight.grad = gradient
        self._optimizer.step()
        self._optimizer.zero_grad()  # sets them to None
        loss = loss.detach()
        return (loss, [value.detach() for value in logits], gradients) if self._job.trace_steps else loss

    def _deep_step(self, batch):
        """The Graph's, or an eager one, and then what is outside of both."""
        loss, gradients, *traced = self._graph(batch) if self._graph else self._eager_results(batch)
        sent = self._deep.update(gradients)
        self.gradient_bytes = self._deep.sent_bytes
        if traced:
            self._logits, means = traced
            self._gradients = self._deep.ordered(self._weights, means, sent)
        return loss

    def _eager_results(self, batch):
        """As the Graph's."""
        loss, logits = self._loss(self._network, batch)
        self._eager_dtype = logits[0].dtype
        loss, *results = self._deep.results(loss, [value.detach() for value in logits])
        self._optimizer.step()
        for weight in self._weights:
            weight.grad = None
        return (loss.detach(), *results)

    def _observe(self, batch):
        dtype = compute_dtype(self._graph) if self._graph else str(self._eager_dtype).replace("oneflow.", "")
        tf32 = dtype == "float32" and self._device.type == "cuda" and base.gpu.tf32_allowed()
        self.effective["compute_dtype"] = "tf32" if tf32 else dtype
        if dtype == "float16":  # OneFlow's own switches, which it reads at each product and convolution
            half = [os.environ.get(f"ONEFLOW_{one}_ALLOW_HALF_PRECISION_ACCUMULATION") for one in ("MATMUL", "CONV")]
            self.effective["accumulation"] = "float32" if set(half) <= {None, "0", "false"} else "float16"
        if self._graph and self._device.type == "cuda":
            self.effective["optimizer"] += f" ({kernels(self._graph, '_update')})"
            norms = kernels(self._graph, "normalization")
            self.effective.update({"batch_norm": norms} if norms else {})
        if self._graph:
            self.effective.update(asked(self._graph, self._job))
        if self._deep:
            self.effective["communication"] = self._deep.description
            self.effective.update(compression.effective(self._job))
        elif flow.env.get_world_size() > 1:
            dtypes = sorted(exchanged_dtypes(self._graph)) if self._graph else ["float64"]
            self.effective["communication"] = communication.description(dtypes, self._device)

    def wait(self):
        flow._oneflow_internal.eager.Sync()
        if self._deep:
            self._deep.wait()

    def read(self, loss):
        # that of the global batch is a mean, of which a rank's part is its own loss / world_size
        return own(loss).item() * flow.env.get_world_size()

    def all_reduce(self, count):
        return communication.all_reduce(count, self._device)

    def parameters(self):
        state = self._network.state_dict()
        for parameter in base.parameters(self._job):
            yield parameter.name, own(state[parameter.name].detach()).cpu().numpy()

    def logits(self):
        dtype = getattr(flow, self._job.weights_dtype)
        for (name, shape), value in zip(base.logits(self._job).items(), self._logits):
            yield name, own(value).to(dtype).cpu().numpy().reshape(-1, *shape)

    def gradients(self):
        if self._job.precision == "amp_fp16":
            return  # a Graph keeps its dynamic loss scale to itself, so that it cannot be taken out
        for (name, _), gradient in zip(self._network.named_parameters(), self._gradients):
            yield name, own(gradient).cpu().numpy()

    def moments(self):
        held = self._graph.state_dict() if self._graph and self._steps else {}
        return {
            moment: self._held(held, mark) for moment, mark in MOMENTS.items() if any(n.endswith(mark) for n in held)
        }

    def _held(self, held, mark):
        for name, _ in self._network.named_parameters():
            yield name, own(held[f"network.{name}{mark}"]).cpu().numpy()

    def peak_memory(self):
        return None  # OneFlow 0.9 has no count of its allocator, only the free memory of the whole device

    def close(self):
        communication.close()
