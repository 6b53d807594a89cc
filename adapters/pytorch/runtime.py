"""What all networks share in PyTorch: set-up, weights, batches, and the training step."""

import contextlib
from importlib import metadata

import torch
from torch import nn
from torch.nn.attention import SDPBackend

from dlperf.adapters import base, compression
from dlperf.adapters.api import Sparse, Unsupported
from dlperf.adapters.pytorch import asked, communication, graphs, linear
from dlperf.adapters.pytorch.optimizers import clip, clips, divisor, kernel
from dlperf.models.parameters import initial

#: of the large products
DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "amp_fp16": torch.float16,
    "amp_bf16": torch.bfloat16,
}

#: what torch.optim and apex call Adam's moments
MOMENTS = {"mean": "exp_avg", "square": "exp_avg_sq"}


#: what else computes, or reads -> its package
PACKAGES = {
    "horovod": "horovod",
    "opencv": "opencv-python-headless",
    "dali": "nvidia-dali-cuda120",
    "torchrec": "torchrec",
    "fbgemm": "fbgemm-gpu-cpu",
}


def versions():
    found = {"torch": torch.__version__}
    for name, package in PACKAGES.items():  # some in an environment of their own only
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
    ones = torch.ones(size, size, dtype=DTYPES[job.precision], device=job.device)
    multiply, _ = linear.function(job)
    return lambda: done(multiply(ones, ones))


def copy(job, count):
    """Reads count values of float32 and writes as many, as a call."""
    ones = torch.ones(count, device=job.device)
    return lambda: done(ones + 1)


def done(tensor):
    """When its device has done all that was enqueued."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def configure(job, ranks):
    """Threads, TF32, cuDNN's search and the group of ranks, before the first tensor. Returns this rank's device."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.dropout_seed + ranks.rank)  # of dropout
    torch.backends.cuda.matmul.allow_tf32 = job.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = job.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda", ranks.local_rank) if job.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        base.need_gpu(f"torch {torch.__version__}", torch.version.cuda is not None, torch.cuda.device_count, ranks)
        torch.cuda.set_device(device)
    if ranks.world_size > 1 and not job.servers:
        communication.join(job, ranks, device)
    return device


def by_torchrec(job):
    """Whether TorchRec has the tables of a row. Unsupported where it cannot."""
    if job.options["tables"] != "torchrec":
        return False
    if job.device != "cpu":
        raise Unsupported("tables=torchrec was never tried on a GPU")
    return True


def load(network, job):
    """Copy the initial weights of dlperf.models into a network whose names and layouts are the canonical ones."""
    state = network.state_dict()
    with torch.no_grad():
        for parameter in base.parameters(job):
            state[parameter.name].copy_(torch.from_numpy(initial(parameter, job.seed, "float64")))


def arithmetic(dtype):
    """What of products of this type PyTorch's switches leave to CUDA's libraries: for Trainer.effective."""
    matmul, name = torch.backends.cuda.matmul, str(dtype).replace("torch.", "")
    if dtype == torch.float32:
        return {"compute_dtype": "tf32" if matmul.allow_tf32 and torch.backends.cudnn.allow_tf32 else name}
    reduced = {
        torch.float16: matmul.allow_fp16_reduced_precision_reduction,
        torch.bfloat16: matmul.allow_bf16_reduced_precision_reduction,
    }
    return {"accumulation": f"float32; parts of a sum may be added in {name}"} if reduced.get(dtype) else {}


def attention_kernel(config, tokens, dtype, dropout=0.0, causal=False):
    """What scaled_dot_product_attention chooses, compiled or not, with a mask of padding, or causal: for
    Trainer.effective. tokens: (batch, sequence)."""
    size, length = tokens.shape
    like = {"device": tokens.device, "dtype": dtype, "requires_grad": True}
    parts = torch.empty(size, length, 3, config.heads, config.head_size, **like).unbind(2)
    mask = None if causal else torch.empty(size, 1, 1, length, dtype=torch.bool, device=tokens.device)
    how = {"attn_mask": mask, "dropout_p": dropout, "is_causal": causal}
    chosen = torch._fused_sdp_choice(*(part.transpose(1, 2) for part in parts), **how)
    return {"attention": f"scaled_dot_product_attention ({SDPBackend(chosen).name.lower()})"}


class Feed(base.Feed):
    def __init__(self, job, ranks, device, layout=torch.contiguous_format):
        self._device, self._layout = device, layout
        self._dtype = getattr(torch, job.weights_dtype)
        super().__init__(job, ranks)

    def _tensor(self, array):
        tensor = torch.tensor(array)  # a copy: rows are read-only views of a file
        if tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=self._layout)
        if self._device.type == "cuda":
            tensor = tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor


def autocast(job, device):
    """What makes large products of 16 bits, where they are asked for."""
    return torch.autocast(device, DTYPES[job.precision]) if job.mixed else contextlib.nullcontext()


class Replica(nn.Module):
    """A network and its loss as one module, which DistributedDataParallel and torch.compile follow. Its outputs are the
    loss alone, or with trace_steps the logits too."""

    def __init__(self, network, loss, traced):
        super().__init__()
        self.network, self.loss, self.traced = network, loss, traced

    def forward(self, batch):
        loss, logits = self.loss(self.network, batch)
        return (loss, logits) if self.traced else loss


class Trainer(base.Trainer):
    """One network, its loss and its optimizer, stepped eagerly or through torch.compile.

    loss: network, batch -> scalar, logits. effective: what the family adds to the facts that this class reads back.
    """

    def __init__(self, job, ranks, network, loss, optimizer, feed, effective):
        compiled = job.options["compile"] == "on"
        super().__init__(job, feed, effective)
        self._network = network
        self._device = next(network.parameters()).device
        self._communication = communication.between(job, ranks)
        replica = self._written = Replica(network, loss, job.trace_steps > 0)
        replica, self._optimizer = self._communication.spread(replica, network, optimizer)
        self._replica = torch.compile(replica) if compiled else replica
        self._weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=job.precision == "amp_fp16")
        self._run = graphs.Replayed(self._train, feed.fixed) if graphs.wanted(job, ranks, feed) else self._train
        self._logits, self._gradients = (), []
        self.parameter_count = sum(weight.numel() for weight in self._weights)
        self._gradient_bytes = sum(weight.numel() * weight.element_size() for weight in self._weights)
        self.effective["compile"] = "inductor" if compiled else "none"
        self.effective["threads"] = str(torch.get_num_threads())
        self.effective["optimizer"] = kernel(optimizer)
        if job.device == "cuda":
            self.effective["device_memory"] = (
                "max_memory_allocated: most bytes of tensors, not those that the allocator keeps"
            )
        if self._device.type == "cuda":
            self.effective["graph"] = "whole step" if isinstance(self._run, graphs.Replayed) else "none"
        if self._communication.description:
            self.effective["communication"] = self._communication.description
            self.effective.update(compression.effective(job))

    @property
    def gradient_bytes(self):
        return self._communication.sent_bytes(self._gradient_bytes)

    def _step(self, batch):
        loss, self._logits, self._gradients = self._run(batch)
        return loss

    def _train(self, batch):
        """Loss, logits and gradients; the last two with trace_steps alone."""
        job = self._job
        logits, gradients = (), []
        with autocast(job, self._device.type):
            loss = self._replica(batch)
            if job.trace_steps:
                loss, logits = loss
        self._scaler.scale(loss).backward()
        update = self._communication.averaged(self._optimizer)
        inside = job.clip_norm is not None and clips(job)
        unscaled = job.trace_steps > 0 or (job.clip_norm is not None and not inside)
        if unscaled:
            self._scaler.unscale_(self._optimizer)
        if job.trace_steps:
            gradients = [weight.grad.clone() for weight in self._weights]
        if inside:
            scale = torch.ones((), device=self._device)
            scale = scale if unscaled else self._scaler.scale(scale)
            self._optimizer.grad_scale = divisor([weight.grad for weight in self._weights], job.clip_norm, scale)
        elif job.clip_norm is not None:
            clip([weight.grad for weight in self._weights], job.clip_norm)
        with update:
            self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()  # sets them to None
        return loss.detach(), logits, gradients

    def _observe(self, batch):
        self.shapes = self._network.shapes
        self.effective["compute_dtype"] = str(self._network.compute_dtype).replace("torch.", "")
        if self._device.type == "cuda" or "attention" in self.effective:  # on a CPU dropout decides, too
            self.effective.update(self._network.kernels(batch, self.effective["compile"] != "none"))
        if self._device.type == "cuda":
            self.effective.update(arithmetic(self._network.compute_dtype))
        if self._scaler.is_enabled():
            self.effective["loss_scale"] = f"dynamic, {self._scaler.get_scale():g} after the first step"
        self.effective.update(asked.of(self._written, batch, self._job))

    def wait(self):
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def read(self, loss):
        return loss.item()

    def all_reduce(self, count):
        return communication.all_reduce(self._communication, count, self._device)

    def parameters(self):
        state = self._network.state_dict()
        for parameter in base.parameters(self._job):
            yield parameter.name, state[parameter.name].detach().cpu().contiguous().numpy()

    def logits(self):
        for name, value in zip(base.logits(self._job), self._logits):
            yield name, value.detach().to("cpu", torch.promote_types(value.dtype, torch.float32)).numpy()

    def gradients(self):
        names = {weight: name for name, weight in self._network.named_parameters()}
        for weight, gradient in zip(self._weights, self._gradients):
            if gradient.is_sparse:
                rows = gradient.cpu().coalesce()
                yield names[weight], Sparse(rows.indices()[0].numpy(), rows.values().numpy())
            else:
                yield names[weight], gradient.cpu().contiguous().numpy()

    def moments(self):
        return {moment: self._state(key) for moment, key in MOMENTS.items() if self._keeps(key)}

    def _keeps(self, key):
        return all(key in self._optimizer.state[weight] for weight in self._weights)

    def _state(self, key):
        """What the optimizer keeps under a key for each weight."""
        for name, weight in self._network.named_parameters():
            yield name, self._optimizer.state[weight][key].cpu().contiguous().numpy()

    def peak_memory(self):
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def close(self):
        self._communication.close()


class LookedUp(base.Trainer):
    """Of a network over rows that were looked up, on a CPU: what is so wherever its tables are."""

    def __init__(self, job, network, feed, effective):
        super().__init__(job, feed, effective)
        self._network, self._logits = network, ()

    def _observe(self, batch):
        self.shapes = self._network.shapes
        self.effective["compute_dtype"] = str(self._network.compute_dtype).replace("torch.", "")

    def read(self, loss):
        return loss.item()

    def logits(self):
        return ((name, value.detach().numpy()) for name, value in zip(base.logits(self._job), self._logits))

    def peak_memory(self):
        return None
