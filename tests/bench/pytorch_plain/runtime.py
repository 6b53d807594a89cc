"""The training step of PyTorch's tutorials, for both networks."""

import torch
import transformers

from dlperf.models.batches import Batches

#: by autocast
DTYPES = {"amp_fp16": torch.float16, "amp_bf16": torch.bfloat16}


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def configure(job):
    """The device, with its kernels chosen as for training."""
    torch.set_num_threads(job.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    return torch.device(job.device)


class Trainer:
    """network: on its device. loss: network, batch -> scalar. prepare: a batch of arrays -> tensors."""

    input_seconds = None

    def __init__(self, job, ranks, network, loss, optimizer, prepare, clip_norm=None, note=""):
        self._optimizer, self._clip_norm = optimizer, clip_norm
        self._weights = list(network.parameters())
        self._device = self._weights[0].device
        compiled = job.options["compile"] == "on"
        self._network, self._loss = torch.compile(network) if compiled else network, loss
        self._batches = [_moved(prepare(batch), self._device) for batch in Batches(job, ranks).pool()]
        self._dtype = DTYPES.get(job.precision)
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=self._dtype is torch.float16)
        self._steps = 0
        self.shapes = {}
        self.parameter_count = sum(weight.numel() for weight in self._weights)
        self.effective = {
            "precision": job.precision,
            "compute_dtype": str(self._dtype or torch.float32).replace("torch.", ""),
            "compile": "inductor" if compiled else "none",
            "threads": torch.get_num_threads(),
            "data": "synthetic",
            "note": note,
        }

    def step(self):
        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        self._optimizer.zero_grad()
        with torch.autocast(self._device.type, self._dtype, enabled=self._dtype is not None):
            loss = self._loss(self._network, batch)
        self._scaler.scale(loss).backward()
        if self._clip_norm is not None:
            self._scaler.unscale_(self._optimizer)
            torch.nn.utils.clip_grad_norm_(self._weights, self._clip_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.detach()

    def wait(self):
        if self._device.type == "cuda":  # on CPU a step is done when it returns
            torch.cuda.synchronize()

    def read(self, loss):
        return loss.item()

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def close(self):
        pass


def _moved(batch, device):
    if isinstance(batch, dict):
        return {name: tensor.to(device) for name, tensor in batch.items()}
    return tuple(tensor.to(device) for tensor in batch)
