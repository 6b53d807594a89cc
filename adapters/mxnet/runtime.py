"""What ResNet and BERT share in MXNet: set-up, weights, batches, optimizers, and the training step."""

import ctypes
import os

# OpenBLAS 0.3.13, inside MXNet's wheel, takes SSE3 kernels on processors younger than itself; it looks once, when loaded
with open("/proc/cpuinfo", encoding="utf-8") as _cpuinfo:
    if " avx512vl " in _cpuinfo.read():
        os.environ.setdefault("OPENBLAS_CORETYPE", "SKYLAKEX")

import mxnet as mx  # noqa: E402
from mxnet import autograd, nd  # noqa: E402
from mxnet.contrib import amp  # noqa: E402
from mxnet.contrib.amp.loss_scaler import LossScaler  # noqa: E402

from dlperf import models  # noqa: E402
from dlperf.models.batches import Batches  # noqa: E402
from dlperf.models.parameters import initial  # noqa: E402

AMP = {"amp_fp16": "float16", "amp_bf16": "bfloat16"}
# gluon's words for the scale and shift of a normalisation, which torchvision and Hugging Face call weight and bias
GLUON = {"scale": "gamma", "shift": "beta"}


def versions():
    return {"mxnet": mx.__version__}


def configure(job, ranks):
    """Mixed precision and TF32, before the first array. Returns the device of this rank."""
    if job.precision in AMP:
        amp.init(target_dtype=AMP[job.precision])
    if job.device == "cpu":
        return mx.cpu()
    if job.precision != "tf32":
        # MXNet asks cuBLAS and cuDNN for TF32 wherever a GPU has it; only NVIDIA's own switch turns it off
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    return mx.gpu(ranks.local_rank)


def dtype_of(job):
    return "float64" if job.precision == "fp64" else "float32"


def load(network, job, device):
    """Give a network, whose parameters have canonical layouts, the initial weights of dlperf.models.

    Returns pairs: what dlperf.models says of a parameter, and gluon's parameter.
    """
    network.cast(dtype_of(job))
    network.initialize(ctx=device)
    network.hybridize(static_alloc=True, static_shape=True)
    own = network._collect_params_with_prefix()
    pairs = []
    for parameter in models.family(job.model).parameters(models.config(job.model)):
        stem, _, last = parameter.name.rpartition(".")
        gluon = own[stem + "." + GLUON.get(parameter.kind, last)]
        gluon.set_data(nd.array(initial(parameter, job.seed, "float64"), ctx=device, dtype=dtype_of(job)))
        pairs.append((parameter, gluon))
    return pairs


class Feed:
    """Batches as arrays: synthetic ones wait on the device, rows of a data folder are copied at each step."""

    def __init__(self, job, ranks, device):
        self._batches = Batches(job, ranks)
        self._device, self._dtype = device, dtype_of(job)
        self._ready = [self._place(batch) for batch in self._batches.pool()] if self._batches.synthetic else []
        count = len(self._ready)
        self.description = f"synthetic, {count} batches on the device" if count else f"rows of {job.data_dir}"

    def __getitem__(self, step):
        return self._ready[step % len(self._ready)] if self._ready else self._place(self._batches[step])

    def _place(self, batch):
        return [self._array(array) for array in batch.values()]

    def _array(self, array):
        dtype = self._dtype if array.dtype.kind == "f" else array.dtype
        return nd.array(array, ctx=self._device, dtype=dtype)


class Optimizer:
    """Weights, gradients and state in groups, each updated by one fused kernel.

    On a GPU a kernel takes as many tensors as it may. On the CPU, where it walks through all of them in step, one
    tensor at a time is up to four times faster.
    """

    STATES, GROUP = 0, 0

    def __init__(self, job, device, pairs, recipe, clip_norm=None):
        self.recipe, self.clip_norm, self.exact = recipe, clip_norm, job.precision == "fp64"
        trained = [(p.data(), p.grad(), parameter.decayed) for parameter, p in pairs if parameter.trained]
        size = self.GROUP if job.device == "cuda" and not self.exact else 1
        self.groups = [self._group(trained[start : start + size]) for start in range(0, len(trained), size)]
        self.gradients = [gradient for _, gradient, _ in trained]
        self.one = nd.ones(1, ctx=device)
        self.steps = 0

    def _group(self, members):
        weights, gradients, decays = zip(*members)
        states = [[nd.zeros_like(weight) for weight in weights] for _ in range(self.STATES)]
        decays = [self.recipe.weight_decay if decay else 0.0 for decay in decays]
        return list(weights), list(gradients), states, decays

    def step(self, loss_scale):
        self.steps += 1
        for weights, gradients, states, decays in self.groups:
            if self.exact:
                self._update_exactly(weights[0], gradients[0], *[state[0] for state in states], decays[0])
            else:
                self._update(weights, gradients, *states, decays)


class SGD(Optimizer):
    """The kernel keeps learning_rate * v; that is models.resnet's formula, since the learning rate is constant."""

    STATES, GROUP, kernel = 1, 60, "multi_sgd_mom_update"
