"""What ResNet and BERT share in PyTorch: set-up, weights, batches, and the training step."""

import contextlib
import os
import warnings
from functools import partial
from importlib import metadata

import torch
from torch import distributed, nn

from dlperf import models
from dlperf.adapters import horovod
from dlperf.adapters.api import Unsupported, described
from dlperf.adapters.ranks import interface
from dlperf.models.batches import Batches
from dlperf.models.parameters import initial

DTYPES = {"amp_fp16": torch.float16, "amp_bf16": torch.bfloat16}


def versions():
    found = {"torch": torch.__version__}
    with contextlib.suppress(metadata.PackageNotFoundError):  # in its own environment only
        found["horovod"] = metadata.version("horovod")
    for name, package in (("opencv", "opencv-python-headless"), ("dali", "nvidia-dali-cuda120")):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(package)
    if torch.backends.mkldnn.is_available():
        found["onednn"] = torch.__config__.show().partition("Intel(R) MKL-DNN v")[2].partition(" ")[0]
    if torch.cuda.is_available():
        found["cuda"] = torch.version.cuda
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def product(job, size):
    """A product of two matrices of size x size in the type of the network's large ones, as a call."""
    dtype = torch.float64 if job.precision == "fp64" else DTYPES.get(job.precision, torch.float32)
    ones = torch.ones(size, size, dtype=dtype)
    return lambda: ones @ ones


def configure(job, ranks):
    """Threads, TF32, cuDNN's search and the group of ranks, before the first tensor. Returns this rank's device."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed + ranks.rank)  # of dropout
    torch.backends.cuda.matmul.allow_tf32 = job.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = job.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda", ranks.local_rank) if job.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if uses_horovod(job, ranks):
        import horovod.torch as hvd

        horovod.prepare(ranks, job.meeting_seconds)
        hvd.init()
    elif ranks.world_size > 1:
        join(ranks, device)
    return device


def apex(job):
    """The optimizers of NVIDIA's apex. FusedLAMB is none of them here: it would be another optimizer."""
    if job.device != "cuda":
        raise Unsupported("optimizer=apex: apex's fused optimizers run on CUDA only")
    try:
        from apex import optimizers
    except ImportError:
        raise Unsupported("optimizer=apex: this environment has no apex; NVIDIA's images of PyTorch have it") from None
    return optimizers


def kernel(optimizer):
    """What updates the weights, in words."""
    name = type(optimizer).__name__
    if type(optimizer).__module__.startswith("apex"):
        return f"apex.optimizers.{name}"
    return f"torch.optim.{name} (fused={optimizer.param_groups[0]['fused']})"


def uses_horovod(job, ranks):
    return ranks.world_size > 1 and job.options["communication"] == "horovod"


def join(ranks, device):
    """Make the group of all ranks: NCCL between GPUs, Gloo between CPUs."""
    network = interface(ranks.addresses[ranks.rank])  # else Gloo takes what the host's own name resolves to
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if network and ranks.nnodes > 1:
            os.environ.setdefault(name, network)
    store = distributed.TCPStore(ranks.addresses[0], ranks.ports[0], ranks.world_size, is_master=ranks.rank == 0)
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.world_size)


def load(network, job):
    """Copy the initial weights of dlperf.models into a network whose names and layouts are the canonical ones."""
    state = network.state_dict()
    with torch.no_grad():
        for parameter in models.family(job.model).parameters(models.config(job.model)):
            state[parameter.name].copy_(torch.from_numpy(initial(parameter, job.seed, "float64")))


def parameter_groups(network, job, weight_decay):
    """Weights that decay, and the rest, as torch.optim takes them."""
    trained = dict(network.named_parameters())
    groups = [{"params": [], "weight_decay": weight_decay}, {"params": [], "weight_decay": 0.0}]
    for parameter in models.family(job.model).parameters(models.config(job.model)):
        if parameter.trained:
            groups[0 if parameter.decayed else 1]["params"].append(trained[parameter.name])
    return groups


class Feed:
    """Batches as tensors: synthetic ones wait on the device, rows of a data folder are copied at each step."""

    def __init__(self, job, ranks, device, layout):
        self._batches = Batches(job, ranks)
        self._device, self._layout = device, layout
        self._dtype = torch.float64 if job.precision == "fp64" else torch.float32
        self._ready = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        self.input_seconds = None
        count = len(self._ready)
        self.description = f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"

    def __getitem__(self, step):
        return self._ready[step % len(self._ready)] if self._ready else self._place(self._batches[step])

    def _place(self, batch):
        return {name: self._tensor(array) for name, array in batch.items()}

    def _tensor(self, array):
        tensor = torch.tensor(array)  # a copy: rows are read-only views of a file
        if tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=self._layout)
        if self._device.type == "cuda":
            tensor = tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor


class Replica(nn.Module):
    """A network and its loss as one module, for DistributedDataParallel, which follows the call of a module."""

    def __init__(self, network, loss):
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, batch):
        return self.loss(self.network, batch)


def data_parallel(network, loss, device):
    """batch -> loss, where backward() averages the gradients over the ranks while it goes on computing."""
    with warnings.catch_warnings():
        # what is to follow broadcast_buffers is not there yet for buffers that differ from the start
        warnings.simplefilter("ignore", FutureWarning)
        return nn.parallel.DistributedDataParallel(
            Replica(network, loss),
            device_ids=[device] if device.type == "cuda" else None,
            broadcast_buffers=False,  # BatchNorm's statistics stay each rank's own
            gradient_as_bucket_view=True,
        )


class _InOrder:
    """A view of a channels_last gradient in the order of its memory: Horovod takes no other. Nothing is compressed."""

    @staticmethod
    def compress(tensor):
        plain = tensor.is_contiguous()
        return tensor if plain else tensor.permute(0, 2, 3, 1), plain

    @staticmethod
    def decompress(tensor, plain):
        return tensor if plain else tensor.permute(0, 3, 1, 2)


class _Horovod:
    """An optimizer whose hooks average each gradient over the ranks while the backward pass goes on, and all else that
    Horovod does here."""

    def __init__(self, optimizer, network):
        import horovod.torch as hvd

        self._hvd = hvd
        self.optimizer = hvd.DistributedOptimizer(
            optimizer, named_parameters=network.named_parameters(), compression=_InOrder
        )
        self.description = f"horovod.torch.DistributedOptimizer ({'nccl' if hvd.nccl_built() else 'gloo'})"

    def add_up(self, values):
        self._hvd.allreduce_(values, op=self._hvd.Sum, name="sum")

    def close(self):
        self._hvd.shutdown()


class Trainer:
    """One network, its loss and its optimizer, stepped eagerly or through torch.compile.

    loss: network, batch -> scalar. effective: what the family adds to the facts that this class reads back.
    """

    def __init__(self, job, ranks, device, network, loss, optimizer, feed, clip_norm, effective):
        self._job, self._device, self._network, self._feed = job, device, network, feed
        self._horovod = _Horovod(optimizer, network) if uses_horovod(job, ranks) else None
        self._optimizer, self._clip_norm = self._horovod.optimizer if self._horovod else optimizer, clip_norm
        self._weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        self._scaler = torch.amp.GradScaler(device.type, enabled=job.precision == "amp_fp16")
        alone = ranks.world_size == 1 or self._horovod
        replica = partial(loss, network) if alone else data_parallel(network, loss, device)
        self._loss = torch.compile(replica) if job.options["compile"] == "on" else replica
        self._steps = 0
        self._logits, self._gradients = (), []
        if job.trace_steps:
            network.register_forward_hook(self._keep_logits)
        self.shapes = network.shapes
        self.parameter_count = sum(weight.numel() for weight in self._weights)
        self.gradient_bytes = sum(weight.numel() * weight.element_size() for weight in self._weights)
        self.effective = {
            "precision": job.precision,
            "compile": "inductor" if job.options["compile"] == "on" else "none",
            "threads": str(torch.get_num_threads()),
            "optimizer": kernel(optimizer),
            "loss_scale": "none",
            **described(feed, job),
            **effective,
        }
        if self._horovod:
            self.effective["communication"] = self._horovod.description
        elif not alone:
            self.effective["communication"] = f"DistributedDataParallel ({distributed.get_backend()})"

    def step(self):
        batch = self._feed[self._steps]
        self._steps += 1
        with self._autocast():
            loss = self._loss(batch)
        self._scaler.scale(loss).backward()
        if self._horovod:
            self._optimizer.synchronize()  # the mean, before it is clipped
        if self._clip_norm is not None or self._job.trace_steps:
            self._scaler.unscale_(self._optimizer)
        if self._job.trace_steps:
            self._gradients = [weight.grad.clone() for weight in self._weights]
        if self._clip_norm is not None:
            self._clip()
        with self._optimizer.skip_synchronize() if self._horovod else contextlib.nullcontext():
            self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()  # sets them to None
        if self._steps == 1:
            self._observe()
        return loss.detach()

    def _autocast(self):
        if self._job.precision not in DTYPES:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, DTYPES[self._job.precision])

    def _clip(self):
        # torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6; the other frameworks, and the paper, by the norm
        gradients = [weight.grad for weight in self._weights]
        norm = torch.nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(gradients, (self._clip_norm / norm).clamp(max=1.0))

    def _observe(self):
        """Read back what the first step really did."""
        name = {torch.float32: "tf32" if self._job.precision == "tf32" else "float32"}
        dtype = self._network.compute_dtype
        self.effective["compute_dtype"] = name.get(dtype, str(dtype).replace("torch.", ""))
        if self._scaler.is_enabled():
            self.effective["loss_scale"] = f"dynamic, {self._scaler.get_scale():g} after the first step"

    @property
    def input_seconds(self):
        return self._feed.input_seconds

    def fetch(self):
        self._feed[self._steps]
        self.wait()

    def wait(self):
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def read(self, loss):
        return loss.item()

    def all_reduce(self, count):
        values = torch.empty(count, device=self._device)

        def add_up():
            values.fill_(1)
            if self._horovod:
                self._horovod.add_up(values)
            else:
                distributed.all_reduce(values)
            return values[0].item()

        return add_up

    def parameters(self):
        state = self._network.state_dict()
        for parameter in models.family(self._job.model).parameters(models.config(self._job.model)):
            yield parameter.name, state[parameter.name].detach().cpu().contiguous().numpy()

    def _keep_logits(self, network, inputs, output):
        self._logits = output if isinstance(output, tuple) else (output,)

    def logits(self):
        for name, value in zip(models.family(self._job.model).logits(self._network.config), self._logits):
            yield name, value.detach().to("cpu", torch.promote_types(value.dtype, torch.float32)).numpy()

    def gradients(self):
        names = {weight: name for name, weight in self._network.named_parameters()}
        for weight, gradient in zip(self._weights, self._gradients):
            yield names[weight], gradient.cpu().contiguous().numpy()

    def peak_memory(self):
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def close(self):
        if self._horovod:
            self._horovod.close()
        elif distributed.is_initialized():
            distributed.destroy_process_group()
