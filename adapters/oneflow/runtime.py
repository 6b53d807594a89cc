"""What ResNet and BERT share in OneFlow: set-up, weights, batches, and the training step."""

import os
import time

import oneflow as flow
from oneflow.core.common import data_type_pb2

from dlperf import models
from dlperf.adapters import base
from dlperf.adapters.oneflow.optimizers import clipped, kernel
from dlperf.adapters.ranks import interface
from dlperf.models.parameters import initial

DTYPES = {"amp_fp16": flow.float16, "amp_bf16": flow.bfloat16}
#: a Graph's names of types -> ours
DTYPE_NAMES = {"kFloat": "float32", "kFloat16": "float16", "kBFloat16": "bfloat16"}


def versions():
    found = {"oneflow": flow.__version__}
    if flow.cuda.is_available():
        found["cuda"] = str(flow._oneflow_internal.flags.cuda_version())
    return found


def product(job, size):
    """A product of two matrices of size x size in the type of the network's large ones, as a call."""
    dtype = flow.float64 if job.precision == "fp64" else DTYPES.get(job.precision, flow.float32)
    ones = flow.ones(size, size, dtype=dtype)
    return lambda: flow.matmul(ones, ones).numpy()


def configure(job, ranks):
    """Threads, random numbers and TF32, before the first tensor on the device. Returns the device of this rank."""
    _use_processors(job.threads, ranks.local_rank)
    flow.manual_seed(job.seed + ranks.rank)  # of dropout
    if job.device == "cpu":
        return flow.device("cpu")
    tf32 = job.precision == "tf32"
    os.environ["ONEFLOW_EP_CUDA_ENABLE_TF32_EXECUTION"] = str(int(tf32))  # matrix products
    if not tf32:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # cuDNN's convolutions too, which OneFlow leaves at their default
    network = interface(ranks.addresses[ranks.rank]) if ranks.nnodes > 1 else None
    if network:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", network)
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
            os.sched_setaffinity(int(thread), chosen)


def load(network, job):
    """Copy the initial weights of dlperf.models into a network whose names and layouts are the canonical ones. With
    several ranks they become global tensors, all of which each rank has."""
    state = network.state_dict()
    with flow.no_grad():
        for parameter in models.family(job.model).parameters(models.config(job.model)):
            tensor = state[parameter.name]
            value = flow.tensor(initial(parameter, job.seed, "float64"), dtype=tensor.dtype, device=tensor.device)
            tensor.copy_(value)
    if flow.env.get_world_size() > 1:
        network.to_global(flow.placement.all(job.device), flow.sbp.broadcast)


def averaged(gradients):
    """Over the ranks. The loss is the mean over the global batch, of which each rank's gradient is its summand."""
    return [gradient.to_global(sbp=flow.sbp.broadcast) if gradient.is_global else gradient for gradient in gradients]


def filled(shape, value, like):
    """A constant of the type of another tensor, where that one is."""
    if like.is_global:
        return flow._C.global_constant(
            shape, value, dtype=like.dtype, placement=like.placement, sbp=[flow.sbp.broadcast]
        )
    return flow._C.constant(shape, value, dtype=like.dtype, device=like.device)


def counted(count, like):
    """0, 1 ... as int32, where another tensor is."""
    if like.is_global:
        return flow.arange(count, dtype=flow.int32, placement=like.placement, sbp=flow.sbp.broadcast)
    return flow.arange(count, dtype=flow.int32, device=like.device)


def own(tensor):
    """This rank's part of a global tensor."""
    return tensor.to_local() if tensor.is_global else tensor


def part_of_global(batch):
    """Each rank's batch -> the global batch."""
    everywhere = flow.placement.all(batch.device.type)
    return batch.to_global(everywhere, flow.sbp.split(0), check_meta=False)  # all ranks' batches have one size


class Feed(base.Feed):
    """With several ranks, batches are global tensors: the global batch, of which each rank has its own."""

    def __init__(self, job, ranks, device):
        self._device, self._dtype = device, getattr(flow, job.weights_dtype)
        self._world_size = ranks.world_size
        super().__init__(job, ranks)

    def _tensor(self, array):
        tensor = flow.tensor(array)  # a copy: rows are read-only views of a file
        if tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        tensor = tensor.to(self._device)
        if self._world_size == 1:
            return tensor
        if tensor.ndim == 0:  # a total's mean over the ranks
            return (tensor * self._world_size).to_global(flow.placement.all(self._device.type), flow.sbp.broadcast)
        return part_of_global(tensor)


class Graph(flow.nn.Graph):
    """The whole step, compiled: forward, backward, clipping and update.

    With trace_steps it gives back the logits too, and the gradients as the backward pass leaves them.
    """

    def __init__(self, job, network, loss, optimizer):
        super().__init__()
        self.network, self.loss, self.traced = network, loss, job.trace_steps > 0
        self.weights = list(network.parameters())
        self.clip_norm = getattr(optimizer, "graph_clip_norm", None)
        self.add_optimizer(optimizer)
        if job.precision in DTYPES:
            self.config.enable_amp(True, dtype=DTYPES[job.precision])
        if job.precision == "amp_fp16":
            self.set_grad_scaler(flow.amp.GradScaler())

    def build(self, batch):
        loss, logits = self.loss(self.network, batch)
        loss.backward()
        gradients = averaged(weight.grad for weight in self.weights)
        for weight, gradient in zip(self.weights, clipped(gradients, self.clip_norm)):
            weight.grad = gradient  # the optimizer takes what stands here at the end
        return (loss, logits, gradients) if self.traced else loss


class Sum(flow.nn.Graph):
    """The first of some values that are summed over the ranks."""

    def build(self, values):
        return averaged([values])[0][:1]


def exchanged(graph):
    """Descriptions of the tensors that a compiled Graph sums over the ranks: gradients, of which mixed precision may
    exchange some before it casts them to float32."""
    job = graph._full_graph_proto
    sbp = job.job_parallel_view_conf.op_name2nd_sbp_signature_conf

    def is_partial(op, name):
        return sbp[op].bn_in_op2nd_sbp[name].sbp_parallel[0].HasField("partial_sum_parallel")

    for op in job.net.op:
        for argument, names in op.user_conf.input.items():
            for index, name in enumerate(names.s):
                if is_partial(*name.split("/")) and not is_partial(op.name, f"{argument}_{index}"):
                    yield job.helper.lbn2logical_blob_desc[name]


class Trainer:
    """One network, its loss and its optimizer, stepped by an nn.Graph; eagerly in float64.

    loss: network, batch -> scalar, logits. effective: what the family adds to the facts that this class reads back.
    """

    def __init__(self, job, device, network, loss, optimizer, feed, effective):
        self._job, self._device, self._network, self._loss, self._feed = job, device, network, loss, feed
        self._optimizer = optimizer
        self._graph = None if job.precision == "fp64" else Graph(job, network, loss, optimizer)
        self._steps = 0
        self._logits, self._gradients = (), []
        self._weights = list(network.parameters())
        self.shapes = network.shapes
        self.parameter_count = sum(weight.numel() for weight in self._weights)
        self.gradient_bytes = sum(weight.numel() * weight.element_size() for weight in self._weights)
        self.effective = {
            "precision": job.precision,
            "compile": "nn.Graph" if self._graph else "none",
            "threads": str(len(os.sched_getaffinity(0))),
            "optimizer": kernel(optimizer),
            "loss_scale": "dynamic from 65536" if job.precision == "amp_fp16" else "none",
            **feed.effective,
        }
        self.effective.update(effective)

    def step(self):
        batch = self._feed[self._steps]
        self._steps += 1
        loss = self._graph(batch) if self._graph else self._eager_step(batch)
        if self._graph and self._job.trace_steps:
            loss, self._logits, self._gradients = loss
        if self._steps == 1:
            self.effective["compute_dtype"] = self._compute_dtype()
            if loss.is_global:
                self.effective["communication"] = self._communication()
        return loss

    def _eager_step(self, batch):
        loss, logits = self._loss(self._network, batch)
        loss.backward()
        for weight, gradient in zip(self._weights, averaged(weight.grad for weight in self._weights)):
            weight.grad = gradient
        self._optimizer.step()
        if self._job.trace_steps:
            # the update left the gradients alone, and zero_grad lets go of them
            self._logits = [value.detach() for value in logits]
            self._gradients = [weight.grad for weight in self._weights]
        self._optimizer.zero_grad()
        return loss.detach()

    def _compute_dtype(self):
        if self._graph is None:
            return str(self._network.observed["dtype"]).replace("oneflow.", "")
        job = self._graph._full_graph_proto  # compiled: mixed precision's casts are in it
        products = [op for op in job.net.op if op.user_conf.op_type_name in ("broadcast_matmul", "conv2d")]
        output = products[0].user_conf.output["out"].s[0]
        name = DTYPE_NAMES[data_type_pb2.DataType.Name(job.helper.lbn2logical_blob_desc[output].data_type)]
        return "tf32" if self._job.precision == "tf32" else name

    def _communication(self):
        dtypes = ["float64"]
        if self._graph:
            dtypes = sorted({DTYPE_NAMES[data_type_pb2.DataType.Name(one.data_type)] for one in exchanged(self._graph)})
        transport = "nccl" if self._device.type == "cuda" else "epoll"
        return f"global tensors, partial_sum to broadcast in {' and '.join(dtypes)} ({transport})"

    @property
    def input_seconds(self):
        return self._feed.input_seconds

    def fetch(self):
        self._feed[self._steps]
        self.wait()

    def wait(self):
        flow._oneflow_internal.eager.Sync()

    def read(self, loss):
        if loss.is_global:  # that of the global batch, a mean: a rank's part is its own loss / world_size
            return loss.to_local().item() * flow.env.get_world_size()
        return loss.item()

    def all_reduce(self, count):
        everywhere = flow.placement.all(self._device.type)
        ones = flow.ones(count, device=self._device).to_global(everywhere, flow.sbp.partial_sum)
        add_up = Sum()
        return lambda: add_up(ones).to_local().item()

    def parameters(self):
        state = self._network.state_dict()
        for parameter in models.family(self._job.model).parameters(models.config(self._job.model)):
            yield parameter.name, own(state[parameter.name].detach()).cpu().numpy()

    def logits(self):
        shapes = models.family(self._job.model).logits(self._network.config)
        dtype = flow.float64 if self._job.precision == "fp64" else flow.float32
        for (name, shape), value in zip(shapes.items(), self._logits):
            yield name, own(value).to(dtype).cpu().numpy().reshape(-1, *shape)

    def gradients(self):
        if self._job.precision == "amp_fp16":
            return  # a Graph keeps its dynamic loss scale to itself, so that it cannot be taken out
        for (name, _), gradient in zip(self._network.named_parameters(), self._gradients):
            yield name, own(gradient).cpu().numpy()

    def peak_memory(self):
        return None  # OneFlow 0.9 has no count of its allocator, only the free memory of the whole device

    def close(self):
        if flow.env.get_world_size() > 1:
            flow.comm.barrier()  # ranks end badly when one that still has something for them is gone
            if flow.env.get_rank() == 0:
                time.sleep(0.5)  # it answers the others at the barrier, and knows only that it was answered itself
