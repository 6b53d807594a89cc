"""The training step of PyTorch's tutorials, for both networks."""

import torch
import transformers

from dlperf.models.batches import Batches


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__}


class Trainer:
    """loss: network, batch -> scalar."""

    def __init__(self, job, ranks, network, loss, optimizer, prepare, clip_norm=None, note=""):
        self._network, self._loss, self._optimizer, self._clip_norm = network, loss, optimizer, clip_norm
        self._batches = [prepare(batch) for batch in Batches(job, ranks).pool()]
        self._amp = job.precision == "amp_bf16"
        self._steps = 0
        self.shapes = {}
        self.parameter_count = sum(weight.numel() for weight in network.parameters())
        self.effective = {
            "precision": job.precision,
            "compute_dtype": "bfloat16" if self._amp else "float32",
            "threads": torch.get_num_threads(),
            "data": "synthetic",
            "note": note,
        }

    def step(self):
        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        self._optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self._amp):
            loss = self._loss(self._network, batch)
        loss.backward()
        if self._clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._clip_norm)
        self._optimizer.step()
        return loss.detach()

    def wait(self):
        pass  # on CPU a step is done when it returns

    def read(self, loss):
        return loss.item()

    def parameters(self):
        raise NotImplementedError

    def peak_memory(self):
        return None

    def close(self):
        pass
