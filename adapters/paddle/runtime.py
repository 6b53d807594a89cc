"""What all networks share in PaddlePaddle: set-up, weights, batches, and the training step."""

import contextlib
import os
from importlib import metadata

import paddle
from paddle import nn

from dlperf.adapters import base, compression
from dlperf.adapters.api import Sparse, Unsupported
from dlperf.adapters.paddle import communication
from dlperf.adapters.paddle.compression import Deep
from dlperf.adapters.paddle.optimizers import kernel
from dlperf.models.parameters import initial

#: of the large products
DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "amp_fp16": "float16", "amp_bf16": "bfloat16"}
#: whether products of float16 are summed up in it; the default differs between versions
HALF_SUMS = "FLAGS_gemm_use_half_precision_compute_type"


#: of MKL before 2020.1, and not documented: the kernels that it takes, by option mkl
MKL_TYPES = {"avx512": "7", "avx2": "5"}


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
    if not paddle.in_dynamic_mode():  # with parameter servers
        return static_product(size, DTYPES[job.precision])
    ones = paddle.ones([size, size], DTYPES[job.precision])
    return lambda: done(paddle.matmul(ones, ones))


def static_product(size, dtype):
    """The same on a CPU, of which one value comes back."""
    program, executor = paddle.static.Program(), paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.program_guard(program, paddle.static.Program()):
        ones = paddle.ones([size, size], dtype)
        found = paddle.matmul(ones, ones)[0, 0]
    return lambda: executor.run(program, fetch_list=[found])


def copy(job, count):
    """Reads count values of float32 and writes as many, as a call."""
    ones = paddle.ones([count], "float32")
    return lambda: done(ones + 1)


def done(tensor):
    """When its device has done all that was enqueued."""
    if tensor.place.is_gpu_place():  # on a CPU dygraph returns when a kernel is done
        paddle.device.cuda.synchronize()


def configure(job, ranks):
    """Device, float type, random numbers, threads, TF32 and the group of ranks, before the first tensor."""
    paddle.set_default_dtype(job.weights_dtype)
    core = paddle.base.core
    # Importing paddle sets MKL and OpenMP to FLAGS_paddle_num_threads, 1, whatever OMP_NUM_THREADS says. This sets
    # them again, for the calling thread, which in dygraph runs all kernels.
    core.set_num_threads(job.threads)
    if job.device == "cpu":
        paddle.set_device("cpu")
        if job.options["mkl"] in MKL_TYPES:  # read at the first product
            os.environ["MKL_DEBUG_CPU_TYPE"] = MKL_TYPES[job.options["mkl"]]
        # Otherwise transpose is a view, and whoever reads it copies element by element: 12 % of a BERT step.
        paddle.set_flags({"FLAGS_use_stride_kernel": False})
    else:
        build = f"PaddlePaddle {paddle.__version__}"
        base.need_gpu(build, paddle.is_compiled_with_cuda(), paddle.device.cuda.device_count, ranks)
        paddle.set_device(f"gpu:{ranks.local_rank}")
        core.set_cublas_switch(job.precision == "tf32")  # both are on by default
        core.set_cudnn_switch(job.precision == "tf32")
        # the second as PaddleClas sets it for NHWC in 16 bits
        flags = {"FLAGS_cudnn_exhaustive_search": True, "FLAGS_cudnn_batchnorm_spatial_persistent": job.mixed}
        paddle.set_flags({**flags, HALF_SUMS: False})
    paddle.seed(job.dropout_seed + ranks.rank)
    if ranks.world_size > 1:
        communication.join(ranks, "gloo" if job.device == "cpu" else "nccl")


def load(network, job):
    """Copy the initial weights of dlperf.models. Paddle keeps dense weights as (in, out)."""
    for parameter, tensor in tensors(network, job):
        value = initial(parameter, job.seed, job.weights_dtype)
        tensor.set_value(value.T if parameter.kind == "dense" else value)


def tensors(network, job):
    """Pairs of a parameter of dlperf.models and the network's tensor, in the order of dlperf.models."""
    state = network.state_dict()
    for parameter in base.parameters(job):
        layer, _, last = parameter.name.rpartition(".")
        yield parameter, state[f"{layer}.{STATISTICS.get(last, last)}"]


#: what paddle.optimizer calls Adam's moments
MOMENTS = {"mean": "moment1", "square": "moment2"}
#: what Paddle calls BatchNorm's statistics; all other names are the canonical ones
STATISTICS = {"running_mean": "_mean", "running_var": "_variance"}


def canonical(pair):
    """A parameter of dlperf.models and a tensor of Paddle's, or rows of it -> its name and its canonical values."""
    parameter, tensor = pair
    if isinstance(tensor, Sparse):
        return parameter.name, tensor
    value = tensor.numpy()
    return parameter.name, value.T.copy() if parameter.kind == "dense" else value


def kept(gradient):
    """A copy of a gradient: of SelectedRows, which have no clone, its rows."""
    return base.summed(gradient.rows(), gradient.numpy()) if gradient.is_selected_rows() else gradient.clone()


class Feed(base.Feed):
    def __init__(self, job, ranks, layout=None):
        self._cuda, self._layout, self._dtype = job.device == "cuda", layout, job.weights_dtype
        self._pinned = []  # sources of copies that may still be under way
        super().__init__(job, ranks)

    def copied(self):
        """To be called when the device has done all that was enqueued."""
        self._pinned.clear()

    def _tensor(self, array):
        if array.ndim == 4 and self._layout == "NHWC":
            array = array.transpose(0, 2, 3, 1)
        if array.dtype.kind == "f":
            array = array.astype(self._dtype, copy=False)
        if not self._cuda:
            return paddle.to_tensor(array)
        self._pinned.append(paddle.to_tensor(array, place=paddle.CUDAPinnedPlace()))
        return self._pinned[-1].cuda(blocking=False)


class Replica(nn.Layer):
    """A network and its loss as one layer, which to_static and DataParallel follow. Its outputs are the loss, what the
    network has seen, and with trace_steps the logits.

    seen: names of Trainer.shapes -> tensors, a large product first. They are returned, not noted while the graph is
    traced: PaddlePaddle 2.6, which is CUDA's lock, applies auto_cast to the finished graph.
    """

    def __init__(self, network, loss, traced):
        super().__init__()
        self.network, self.loss, self.traced = network, loss, traced

    def forward(self, batch):
        loss, logits = self.loss(self.network, batch)
        seen, self.network.seen = self.network.seen, {}
        return loss, seen, logits if self.traced else ()


def compiled(layer, job):
    """The layer as a program where the job asks for one, and what makes it, in words."""
    if job.options.get("compile") == "on":
        if not paddle.is_compiled_with_cinn():  # to_static would run on without a word
            raise Unsupported("this build of PaddlePaddle has no CINN: paddle.is_compiled_with_cinn() is False")
        return paddle.jit.to_static(layer, backend="CINN", full_graph=True), "cinn (forward and backward)"
    if job.options.get("graph") == "on":
        return paddle.jit.to_static(layer, backend=None, full_graph=True), "to_static (forward and backward)"
    return layer, "none"


class Trainer(base.Trainer):
    """One network, its loss and its optimizer, stepped eagerly or through a graph of forward and backward pass.

    loss: network, batch -> scalar, logits. effective: what the family adds to the facts that this class reads back.
    """

    def __init__(self, job, ranks, network, loss, optimizer, feed, effective):
        super().__init__(job, feed, effective)
        self._network, self._optimizer = network, optimizer
        self._scaler = paddle.amp.GradScaler(enable=job.precision == "amp_fp16", init_loss_scaling=65536.0)
        self._replica, self.effective["compile"] = compiled(Replica(network, loss, job.trace_steps > 0), job)
        self._seen, self._logits, self._gradients = {}, (), []
        self._deep = None
        trained = [weight for weight in network.parameters() if not weight.stop_gradient]
        self.parameter_count = sum(int(weight.size) for weight in trained)
        self._gradient_bytes = sum(int(weight.size) * weight.element_size() for weight in trained)
        self.effective["threads"] = str(job.threads)
        self.effective["optimizer"] = kernel(optimizer)
        if job.device == "cuda":
            self.effective["device_memory"] = (
                "max_memory_allocated: most bytes of tensors, not those that the allocator keeps"
            )
        if ranks.world_size > 1 and compression.asked(job) == "dgc":
            self._deep = Deep(job, ranks, network)
            self.effective["communication"] = self._deep.description
            self.effective.update(compression.effective(job))
        elif ranks.world_size > 1:
            self._replica = communication.spread(self._replica)
            self.effective["communication"] = communication.description()

    @property
    def gradient_bytes(self):
        return self._deep.sent_bytes if self._deep else self._gradient_bytes

    def _step(self, batch):
        with self._autocast():
            loss, seen, self._logits = self._replica(batch)
        self._scaler.scale(loss).backward()
        if self._deep:
            self._deep.exchange()
        if self._job.trace_steps:
            self._scaler.unscale_(self._optimizer)
            self._gradients = [(p, kept(tensor.grad)) for p, tensor in tensors(self._network, self._job) if p.trained]
        if self._deep:
            self._deep.update()
        self._scaler.step(self._optimizer)  # unscales, clips, updates
        self._scaler.update()
        self._optimizer.clear_grad(set_to_zero=False)
        if self._steps == 0:
            self._seen = seen
        return loss.detach()

    def _autocast(self):
        if not self._job.mixed:
            return contextlib.nullcontext()
        return paddle.amp.auto_cast(level="O1", dtype=DTYPES[self._job.precision])

    def _observe(self, batch):
        for name, tensor in self._seen.items():
            shape = tuple(tensor.shape[1:])
            channels_last = len(shape) == 3 and self.effective["layout"] == "NHWC"
            self.shapes[name] = (shape[2], *shape[:2]) if channels_last else shape
        product, *_ = self._seen.values()
        dtype = str(product.dtype).replace("paddle.", "")
        self._seen = {}
        if self._job.device == "cuda":
            dtype = self._arithmetic(dtype)
        self.effective["compute_dtype"] = dtype
        if self._scaler.is_enable():
            scale = self._scaler.state_dict()["scale"].item()
            self.effective["loss_scale"] = f"dynamic, {scale:g} after the first step"

    def _arithmetic(self, dtype):
        """What products of this type are on CUDA, and into what they sum up."""
        core = paddle.base.core
        if dtype == "float32":
            return "tf32" if core.get_cublas_switch() and core.get_cudnn_switch() else dtype
        if dtype == "float16":
            self.effective["accumulation"] = "float16" if paddle.get_flags(HALF_SUMS)[HALF_SUMS] else "float32"
        return dtype

    def wait(self):
        if self._job.device == "cuda":  # on a CPU dygraph returns when a kernel is done
            paddle.device.cuda.synchronize()
        self._feed.copied()

    def read(self, loss):
        return loss.item()

    def all_reduce(self, count):
        return communication.all_reduce(count)

    def parameters(self):
        return map(canonical, tensors(self._network, self._job))

    def logits(self):
        for (name, shape), value in zip(base.logits(self._job).items(), self._logits):
            yield name, value.detach().astype(self._job.weights_dtype).reshape([-1, *shape]).numpy()

    def gradients(self):
        return map(canonical, self._gradients)

    def moments(self):
        held = self._optimizer._accumulators
        return {moment: self._accumulated(held[key]) for moment, key in MOMENTS.items() if key in held}

    def _accumulated(self, held):
        """held: what the optimizer keeps, by the names of tensors."""
        trained = ((p, tensor) for p, tensor in tensors(self._network, self._job) if p.trained)
        return map(canonical, ((p, held[tensor.name]) for p, tensor in trained))

    def peak_memory(self):
        return paddle.device.cuda.max_memory_allocated() if self._job.device == "cuda" else None

    def close(self):
        self._feed = None  # a loader's processes end with it
        communication.close()
