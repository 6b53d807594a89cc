"""What ResNet and BERT share in PaddlePaddle: set-up, weights, batches, and the training step."""

import contextlib
import os
import socket
from importlib import metadata

import paddle
from paddle import distributed, nn

from dlperf import models
from dlperf.adapters.api import SHAPES_OF, Unsupported, described
from dlperf.adapters.ranks import interface
from dlperf.models.batches import Batches
from dlperf.models.parameters import initial

AMP = {"amp_fp16": "float16", "amp_bf16": "bfloat16"}
#: what Paddle calls BatchNorm's statistics; all other names are the canonical ones
STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}


def versions():
    found = {"paddlepaddle": paddle.__version__}
    for name, package in (("opencv", "opencv-python-headless"), ("dali", "nvidia-dali-cuda120")):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(package)
    if paddle.is_compiled_with_cuda():
        found["cuda"] = str(paddle.version.cuda())
        found["cudnn"] = str(paddle.version.cudnn())
    return found


def product(job, size):
    """A product of two matrices of size x size in the type of the network's large ones, as a call."""
    ones = paddle.ones([size, size], "float64" if job.precision == "fp64" else AMP.get(job.precision, "float32"))
    return lambda: paddle.matmul(ones, ones).numpy()


def configure(job, ranks):
    """Device, float type, random numbers, threads, TF32 and the group of ranks, before the first tensor."""
    paddle.set_default_dtype("float64" if job.precision == "fp64" else "float32")
    core = paddle.base.core
    # Importing paddle sets MKL and OpenMP to FLAGS_paddle_num_threads, 1, whatever OMP_NUM_THREADS says. This sets
    # them anew, for the calling thread, which in dygraph runs all kernels.
    core.set_num_threads(job.threads)
    if job.device == "cpu":
        paddle.set_device("cpu")
        # Otherwise transpose is a view, and whoever reads it copies element by element: 12 % of a BERT step.
        paddle.set_flags({"FLAGS_use_stride_kernel": False})
    else:
        paddle.set_device(f"gpu:{ranks.local_rank}")
        core.set_cublas_switch(job.precision == "tf32")  # both are on by default
        core.set_cudnn_switch(job.precision == "tf32")
        paddle.set_flags({"FLAGS_cudnn_exhaustive_search": True})
    paddle.seed(job.seed + ranks.rank)
    if ranks.world_size > 1:
        join(ranks, "gloo" if job.device == "cpu" else "nccl")


def with_cinn(job):
    """Whether to compile with CINN. A build without it would run on without a word."""
    if job.options["compile"] == "on" and not paddle.is_compiled_with_cinn():
        raise Unsupported("this build of PaddlePaddle has no CINN: paddle.is_compiled_with_cinn() is False")
    return job.options["compile"] == "on"


def compiled(job):
    """What turns the step into a program, in words."""
    if job.options["compile"] == "on":
        return "cinn (forward and backward)"
    return "to_static (forward and backward)" if job.options["graph"] == "on" else "none"


def join(ranks, backend):
    """Make the group of all ranks: NCCL between GPUs, Gloo between CPUs. Paddle reads the variables of its launcher.

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


def tensors(network, job):
    """Pairs of a parameter of dlperf.models and the network's tensor, in the order of dlperf.models."""
    state = network.state_dict()
    for parameter in models.family(job.model).parameters(models.config(job.model)):
        layer, _, last = parameter.name.rpartition(".")
        yield parameter, state[f"{layer}.{STATISTICS.get(last, last)}"]


def canonical(pair):
    """A parameter of dlperf.models and a tensor of Paddle's -> its name, and the values in the canonical layout."""
    parameter, tensor = pair
    value = tensor.numpy()
    return parameter.name, value.T.copy() if parameter.kind == "dense" else value


def load(network, job):
    """Copy the initial weights of dlperf.models. Paddle keeps dense weights as (in, out)."""
    for parameter, tensor in tensors(network, job):
        value = initial(parameter, job.seed, paddle.get_default_dtype())
        tensor.set_value(value.T if parameter.kind == "dense" else value)


class Feed:
    """Batches as tensors: synthetic ones wait on the device, rows of a data folder are copied at each step."""

    def __init__(self, job, ranks, layout):
        self._batches = Batches(job, ranks)
        self._cuda, self._layout = job.device == "cuda", layout
        self._pinned = []  # sources of copies that may still be under way
        self._ready = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        self.input_seconds = None
        count = len(self._ready)
        self.description = f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"

    def __getitem__(self, step):
        return self._ready[step % len(self._ready)] if self._ready else self._place(self._batches[step])

    def copied(self):
        """To be called when the device has done all that was enqueued."""
        self._pinned.clear()

    def _place(self, batch):
        return {name: self._tensor(array) for name, array in batch.items()}

    def _tensor(self, array):
        if array.ndim == 4 and self._layout == "NHWC":
            array = array.transpose(0, 2, 3, 1)
        if array.dtype.kind == "f":
            array = array.astype(paddle.get_default_dtype(), copy=False)
        if not self._cuda:
            return paddle.to_tensor(array)
        self._pinned.append(paddle.to_tensor(array, place=paddle.CUDAPinnedPlace()))
        return self._pinned[-1].cuda(blocking=False)


class Forward(nn.Layer):
    """Network and loss as one layer, which is what to_static turns into a graph."""

    def __init__(self, network, loss):
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, batch):
        loss, seen, _ = self.loss(self.network, batch)
        return loss, seen


class TracedForward(Forward):
    """Gives back the logits too: in a graph only what is returned can be read."""

    def forward(self, batch):
        return self.loss(self.network, batch)


class Trainer:
    """One network, its loss and its optimizer, stepped eagerly or through a graph of forward and backward pass.

    loss: network, batch -> scalar, tensors whose shapes and float type are observed (those of SHAPES_OF), logits.
    effective: what the family adds to the facts that this class reads back.
    """

    def __init__(self, job, ranks, network, loss, optimizer, feed, effective):
        self._job, self._network, self._optimizer, self._feed = job, network, optimizer, feed
        self._scaler = paddle.amp.GradScaler(enable=job.precision == "amp_fp16", init_loss_scaling=65536.0)
        self._forward = TracedForward(network, loss) if job.trace_steps else Forward(network, loss)
        cinn = with_cinn(job)
        if cinn or job.options["graph"] == "on":
            self._forward = paddle.jit.to_static(self._forward, backend="CINN" if cinn else None, full_graph=True)
        if ranks.world_size > 1:
            # backward() averages the gradients over the ranks, in buckets: NCCL meanwhile goes on computing, Gloo waits
            self._forward = paddle.DataParallel(self._forward)
        self._steps = 0
        self._logits, self._gradients = (), []
        self.shapes = {}
        trained = [weight for weight in network.parameters() if not weight.stop_gradient]
        self.parameter_count = sum(int(weight.size) for weight in trained)
        self.gradient_bytes = sum(int(weight.size) * weight.element_size() for weight in trained)
        self.effective = {
            "precision": job.precision,
            "compile": compiled(job),
            "threads": str(job.threads),
            "optimizer": f"paddle.optimizer.{type(optimizer).__name__}",
            "loss_scale": "none",
            **described(feed, job),
        }
        self.effective.update(effective)
        if ranks.world_size > 1:
            self.effective["communication"] = f"DataParallel ({distributed.get_backend().lower()})"

    def step(self):
        batch = self._feed[self._steps]
        self._steps += 1
        amp = self._job.precision in AMP
        with paddle.amp.auto_cast(enable=amp, level="O1", dtype=AMP.get(self._job.precision, "float16")):
            loss, seen, *logits = self._forward(batch)
        self._scaler.scale(loss).backward()
        if self._job.trace_steps:
            self._keep(*logits)
        self._scaler.step(self._optimizer)  # unscales, clips, updates
        self._scaler.update()
        self._optimizer.clear_grad(set_to_zero=False)
        if self._steps == 1:
            self._observe(seen)
        return loss.detach()

    def _keep(self, logits):
        self._scaler.unscale_(self._optimizer)
        self._logits = logits
        self._gradients = [(p, tensor.grad.clone()) for p, tensor in tensors(self._network, self._job) if p.trained]

    def _observe(self, seen):
        """Read back what the first step really did."""
        names = SHAPES_OF[models.FAMILY_OF[self._job.model]]
        for name, tensor in zip(names, seen):
            shape = tuple(tensor.shape[1:])
            if len(shape) == 3 and self.effective["layout"] == "NHWC":
                shape = (shape[2], shape[0], shape[1])
            self.shapes[name] = shape
        dtype = str(seen[0].dtype).replace("paddle.", "")
        if self._job.device == "cuda" and dtype == "float32" and paddle.base.core.get_cublas_switch():
            dtype = "tf32"
        self.effective["compute_dtype"] = dtype
        if self._scaler.is_enable():
            scale = self._scaler.state_dict()["scale"].item()
            self.effective["loss_scale"] = f"dynamic, {scale:g} after the first step"

    @property
    def input_seconds(self):
        return self._feed.input_seconds

    def fetch(self):
        self._feed[self._steps]
        self.wait()

    def wait(self):
        if self._job.device == "cuda":  # on a CPU dygraph returns when a kernel is done
            paddle.device.cuda.synchronize()
        self._feed.copied()

    def read(self, loss):
        return loss.item()

    def all_reduce(self, count):
        values = paddle.empty([count], "float32")

        def add_up():
            distributed.all_reduce(values.fill_(1.0))
            return values[0].item()

        return add_up

    def parameters(self):
        return map(canonical, tensors(self._network, self._job))

    def logits(self):
        shapes = models.family(self._job.model).logits(self._network.config)
        for (name, shape), value in zip(shapes.items(), self._logits):
            yield name, value.detach().astype(paddle.get_default_dtype()).reshape([-1, *shape]).numpy()

    def gradients(self):
        return map(canonical, self._gradients)

    def peak_memory(self):
        return paddle.device.cuda.max_memory_allocated() if self._job.device == "cuda" else None

    def close(self):
        self._feed = None  # a loader's processes end with it
        if distributed.is_initialized():
            distributed.destroy_process_group()
