"""A step of the PyTorch adapter on the null GPU: what it launches, waits for, and moves at an H200's limits, as JSON.

torch_step.py MODEL PRECISION BATCH_SIZE [OPTION=VALUE ...]; options are the adapter's, at their defaults on CUDA.
"""

import collections
import ctypes
import importlib
import json
import os
import re
import sys
import tempfile
import time

os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import numpy
import torch
import torch._dynamo
import torch._inductor.async_compile as compiling
import torch._inductor.graph
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from dlperf import models
from dlperf.adapters.api import Job
from dlperf.adapters.pytorch import runtime
from dlperf.adapters.ranks import Ranks
from dlperf.models import resnet

#: of an H200, as measured on large products of random bfloat16 and on copies: FLOP/s, bytes/s
PEAK, BANDWIDTH = 790e12, 4.3e12
#: of other types: the datasheet's ratios to bfloat16
RATE = {"float32": PEAK / 15, "float64": PEAK / 15, "tf32": PEAK / 2}
#: a model, not a measurement: shares of the peak that products reach, of the bandwidth that the rest does, and the
#: seconds of the smallest kernel. Those of ResNet fit milabench's 4,868 img/s (H200, eager, fp16, batch 256)
SHARE, COPIES, LEAST = {"resnet": 0.45, "bert": 0.7}, 0.75, 2e-6
STEPS = 5
VIEWS = """
    view _unsafe_view t transpose permute expand slice select unsqueeze squeeze as_strided detach alias split unbind
    _reshape_alias is_same_size empty empty_like empty_strided resize_ set_
"""
#: calls of libraries that run on the device, and calls that wait for it
WORKS = re.compile(r"cublas\w*(Gemm|Matmul$|gemm)|cudnnBackendExecute|cudnn\w+(Forward|Backward)\w*$")
WAITS = re.compile(r"Synchronize|device to host|^cudaMemcpy$|REFUSED")
GPU = ctypes.CDLL(None)

Row = collections.namedtuple("Row", "name moved flops dtype")


def launches():
    """Calls since the last reset, by kind; a captured graph is one."""
    with tempfile.NamedTemporaryFile("r") as file:
        GPU.nullgpu_dump(file.name.encode())
        rows = [line.rstrip("\n").split(" ", 2) for line in file]
    found = collections.Counter()
    for kind, number, name in rows:
        if kind == "K":
            found["kernels"] += int(number)
        elif name.startswith("triton:"):
            found["triton"] += int(number)
        elif name == "cudaGraphLaunch":
            found["graphs"] += int(number)
        elif WORKS.search(name):
            found["libraries"] += int(number)
        elif WAITS.search(name):
            found["waits"] += int(number)
        elif re.match("cudaMalloc|cudaFree$", name):
            found["allocations"] += int(number)
        elif re.match("memcpy|memset", name):
            found["copies"] += int(number)
    return found


def counted(step):
    """What one of STEPS calls launches, and the milliseconds of the host in the fastest."""
    GPU.nullgpu_reset()
    seconds = []
    for _ in range(STEPS):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return {name: number / STEPS for name, number in launches().items()}, min(seconds) * 1e3


def tensors(x):
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple, dict)):
        for one in x.values() if isinstance(x, dict) else x:
            yield from tensors(one)


def size(tensor):
    """Bytes behind a tensor, an expanded axis counted once."""
    number = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        number *= length if stride else 1
    return number


class Log(TorchDispatchMode):
    """Rows of the ATen operations that run in it: each operand and each result moves once."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name in VIEWS.split():
            return out
        read, written = list(tensors([args, kwargs or {}])), list(tensors(out))
        moved = sum(map(size, read)) + sum(map(size, written))
        if name.endswith("_") and not written:  # _foreach_ and fused optimizers write what they read
            moved += sum(map(size, read))
        if "batch_norm" in name or "native_layer_norm" in name:  # statistics first, then the values
            moved += size(read[0]) + (size(read[1]) if "backward" in name else 0)
        if name == "convolution_backward":  # two products, each of which reads the gradient
            moved += size(read[0])
        packet = func._overloadpacket
        flops = flop_registry[packet](*args, **(kwargs or {}), out_val=out) if packet in flop_registry else 0
        self.rows.append(Row(name, moved, flops, str(read[0].dtype)[6:] if read else ""))
        return out


class Inductor:
    """Rows of the graphs that Inductor makes. A launcher that only counts stands for each of Triton's kernels."""

    def __init__(self):
        self.rows = []
        plain = torch._inductor.graph.GraphLowering.compile_to_module

        def compile_to_module(graph):
            module = plain(graph)
            self.rows += map(self._row, graph.scheduler.nodes)
            return module

        torch._inductor.graph.GraphLowering.compile_to_module = compile_to_module
        compiling.AsyncCompile.triton = lambda self, name, *args, **kwargs: Launcher(name)

    def _row(self, node):
        extern = type(node).__name__.startswith("Extern") and node.node is not None
        if not extern:
            return Row("generated", int(node.get_read_write_buffers_sizes()), 0, "")
        name = str(getattr(node.node, "python_kernel_name", "") or "").replace("torch.ops.aten.", "")
        if not name:
            return Row("", 0, 0, "")
        moved, flops = int(node.get_read_write_buffers_sizes()), self._flops(node)
        if not flops:
            return Row(name, moved, 0, "")
        first = node.node.inputs[0]
        if name.startswith("convolution_backward"):
            moved += int(first.get_numel()) * first.get_dtype().itemsize
        return Row(name, moved, flops, str(first.get_dtype())[6:])

    def _flops(self, node):
        """Of the ATen operation that became a call of a library."""
        for operation in node.node.get_origins():
            packet = getattr(operation.target, "_overloadpacket", None)
            if packet in flop_registry:
                args, kwargs = torch.fx.map_arg((operation.args, operation.kwargs), lambda one: one.meta["val"])
                return int(flop_registry[packet](*args, **kwargs, out_val=operation.meta["val"]))
        return 0


class Launcher:
    n_regs = 0

    def __init__(self, name):
        self._name = f"triton:{name}".encode()

    def run(self, *args, **kwargs):
        GPU.nullgpu_count(self._name)


def update_rows(trainer, batch):
    """Of what follows the backward pass: clipping and the optimizer, which are outside of Inductor's graphs."""
    log, averaged = Log(), trainer._communication.averaged

    def begin(optimizer):
        log.__enter__()
        return averaged(optimizer)

    trainer._communication.averaged = begin
    trainer._train(batch)
    log.__exit__(None, None, None)
    trainer._communication.averaged = averaged
    return log.rows


def at_limits(rows, job):
    """Gigabytes, TFLOP and milliseconds of a list of kernels, samples/s as `bound` and `likely` have them."""
    share = SHARE[models.FAMILY_OF[job.model]]
    bound = products = likely = 0.0
    for row in rows:
        dtype = "tf32" if (row.dtype, job.precision) == ("float32", "tf32") else row.dtype
        seconds = max(row.moved / BANDWIDTH, row.flops / RATE.get(dtype, PEAK))
        bound += seconds
        products += seconds if row.flops else 0
        likely += seconds / (share if row.flops else COPIES) + max(LEAST - seconds, 0)
    return {
        "gigabytes": sum(row.moved for row in rows) / 1e9,
        "teraflop": sum(row.flops for row in rows) / 1e12,
        "ms": bound * 1e3,
        "products_ms": products * 1e3,
        "bound": job.batch_size / bound,
        "likely": job.batch_size / likely,
        "products_in": sorted({row.dtype for row in rows if row.flops}),
    }


def cheap():
    """Zeros for weights and images: their values are not what is looked at."""

    def images(config, batch_size, seed, index):
        shape = (batch_size, 3, config.image_size, config.image_size)
        return {"images": numpy.zeros(shape, "float32"), "labels": numpy.zeros(batch_size, "int32")}

    runtime.initial = lambda parameter, seed, dtype="float32": numpy.zeros(parameter.shape, dtype)
    resnet.batch = images


def main(model, precision, batch_size, *settings):
    cheap()
    family = models.FAMILY_OF[model]
    options = {"compile": "on", "graph": "auto", "optimizer": "torch", "communication": "ddp"}
    options.update({"layout": "nhwc"} if family == "resnet" else {"clip_norm": "1.0"})
    options.update(setting.split("=", 1) for setting in settings)
    job = Job(model, "cuda", precision, int(batch_size), distinct_batches=2, options=options)
    inductor = Inductor()
    trainer = importlib.import_module(f"dlperf.adapters.pytorch.{family}").build(job, Ranks())
    for _ in range(4):
        trainer.step()
    trainer.wait()
    batch = trainer._feed[0]
    inside, host = counted(lambda: trainer._train(batch))
    outside, _ = counted(trainer.step)
    if options["compile"] == "on":
        rows = [row for row in inductor.rows if row.name] + update_rows(trainer, batch)
    else:
        with Log() as log:
            trainer._train(batch)
        rows = log.rows
    compilations = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    found = {
        "job": [model, precision, int(batch_size), *settings],
        "step": inside,  # of the step itself
        "host": outside,  # of what the host launches when it is replayed
        "host_ms": host,
        "compilations": compilations,
        "graph_breaks": dict(torch._dynamo.utils.counters["graph_break"]),
        **at_limits(rows, job),
        "peak_gib": trainer.peak_memory() / 2**30,
        "effective": dict(trainer.effective),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
    # as the worker ends: a thread of PyTorch's that outlives the interpreter aborted one of forty
    sys.stdout.flush()
    os._exit(0)
