"""What ResNet and BERT share in PaddlePaddle: set-up, weights, batches, and the training step."""

import os

# cuBLAS and cuDNN read this switch when they are loaded: without it PaddlePaddle's float32 is TF32 on new GPUs.
# dlperf runs one job per process, so the precision is known before the import; see `configure`.
import paddle
from paddle import nn

from dlperf import models
from dlperf.models.batches import Batches
from dlperf.models.parameters import initial

DTYPES = {"amp_fp16": "float16", "amp_bf16": "bfloat16"}
#: canonical ending -> Paddle's
ENDINGS = {"running_mean": "_mean", "running_var": "_variance"}


def versions():
    found = {"paddle": paddle.__version__}
    if paddle.is_compiled_with_cuda():
        found["cuda"], found["cudnn"] = paddle.version.cuda(), paddle.version.cudnn()
    return found


def configure(job, ranks):
    paddle.base.core.set_num_threads(job.threads)
    paddle.set_default_dtype("float64" if job.precision == "fp64" else "float32")
    paddle.seed(job.seed + ranks.rank)
    paddle.set_device("cpu" if job.device == "cpu" else "gpu:{}".format(ranks.local_rank))


def tensors(network, job):
    """(parameter of dlperf.models, tensor) in the order of dlperf.models."""
    state = network.state_dict()
    for parameter in models.family(job.model).parameters(models.config(job.model)):
        path, _, ending = parameter.name.rpartition(".")
        yield parameter, state["{}.{}".format(path, ENDINGS.get(ending, ending))]


def load(network, job):
    """Copy the initial weights of dlperf.models. Paddle keeps dense weights as (in, out)."""
    dtype = paddle.get_default_dtype()
    for parameter, tensor in tensors(network, job):
        value = initial(parameter, job.seed, dtype)
        tensor.set_value(value.T if parameter.kind == "dense" else value)


def parameter_groups(network, job, weight_decay):
    """Weights that decay, and the rest, as paddle.optimizer takes them."""
    groups = [{"params": [], "weight_decay": weight_decay}, {"params": [], "weight_decay": 0.0}]
    for parameter, tensor in tensors(network, job):
        if parameter.trained:
            groups[0 if parameter.decayed else 1]["params"].append(tensor)
    return groups


class Feed:
    """Batches as tensors: synthetic ones wait on the device, rows of a data folder are copied at each step."""

    def __init__(self, job, ranks, images):
        self._batches = Batches(job, ranks)
        self._images = images
        self._ready = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        count = len(self._ready)
        self.description = f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"

    def __getitem__(self, step):
        return self._ready[step % len(self._ready)] if self._ready else self._place(self._batches[step])

    def _place(self, batch):
        return {name: self._tensor(array) for name, array in batch.items()}

    def _tensor(self, array):
        if array.ndim == 4 and self._images == "NHWC":
            array = array.transpose(0, 2, 3, 1)
        if array.dtype.kind == "f":
            array = array.astype(paddle.get_default_dtype())
        return paddle.to_tensor(array)


class Graph(nn.Layer):
    def __init__(self, network, loss):
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, batch):
        return self.loss(self.network, batch)


class Trainer:
    def __init__(self, job, network, loss, optimizer, feed, effective):
        self._job, self._network, self._feed, self._optimizer = job, network, feed, optimizer
        self._scaler = paddle.amp.GradScaler(enable=job.precision == "amp_fp16")
        self._loss = Graph(network, loss)
        mode = os.environ.get("PP_GRAPH", "static")
        if mode == "static":
            self._loss = paddle.jit.to_static(self._loss, backend=None, full_graph=True)
        self._steps = 0
        self.shapes = network.shapes
        self.parameter_count = sum(int(w.size) for w in network.parameters() if not w.stop_gradient)
        self.effective = {
            "precision": job.precision,
            "compile": "to_static",
            "threads": str(job.threads),
            "optimizer": f"paddle.optimizer.{type(optimizer).__name__}",
            "loss_scale": "none",
            "data": feed.description,
            **effective,
        }

    def step(self):
        batch = self._feed[self._steps]
        self._steps += 1
        loss = self._loss(batch)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.clear_grad(set_to_zero=False)
        if self._steps == 1:
            self.effective["compute_dtype"] = str(self._network.compute_dtype)
        return loss.detach()

    def wait(self):
        if self._job.device == "cuda":
            paddle.device.cuda.synchronize()

    def read(self, loss):
        return loss.item()

    def parameters(self):
        for parameter, tensor in tensors(self._network, self._job):
            value = tensor.numpy()
            yield parameter.name, value.T.copy() if parameter.kind == "dense" else value

    def peak_memory(self):
        return paddle.device.cuda.max_memory_allocated() if self._job.device == "cuda" else None

    def close(self):
        pass
