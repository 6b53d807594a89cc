"""The JAX adapter's training step as XLA compiles it for an H200, which need not be there: its kernels, and each one's
bytes and FLOPs against that GPU's limits.

    python jax_step.py bert_base amp_bf16 64     # one step, by kinds of kernels
    python jax_step.py --table                   # JAX's rows of the table of all systems

Needs JAX with its CUDA plug-in (jax[cuda13]), and no driver. XLA works from the GPU's description (h200.txtpb), and is
stopped when its optimised program is written down: machine code of it takes minutes and tells nothing more. Bytes are
those of operands and results, each moved once. Which kernel of cuDNN's and cuBLAS's is fastest only a GPU can tell, so
nothing is tuned (--xla_gpu_autotune_level=0), and products are cuBLAS's, not Triton's (CUBLAS). `likely` is a model,
see LIKELY; nothing here was measured.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: of an H200, as measured on large products of random bfloat16 and on copies: FLOP/s, bytes/s
PEAK, BANDWIDTH = 790e12, 4.3e12
#: of products of other types, by datasheet ratios to bfloat16's
RATE = {"fp32": PEAK / 15, "fp64": PEAK / 15, "tf32": PEAK / 2}
#: a kernel takes at least so many seconds, however small: an assumption, typical of small kernels in a replayed graph
LEAST = 2e-6
#: shares of the limits: that products reach, by model, and that the rest reaches. ResNet's give what was measured of
#: PyTorch on an H200 (4,868 img/s, eager, float16, batch 256); BERT's is an assumption.
LIKELY, LIKELY_REST = {"resnet": 0.45, "bert": 0.70}, 0.75
#: or XLA writes some products as Triton kernels; which is faster, its autotuner asks the GPU
CUBLAS = "--xla_gpu_enable_triton_gemm=false"
#: rows of the table: model, precision, batch
TABLE = (
    ("resnet50", "amp_bf16", 256),
    ("resnet50", "amp_fp16", 256),
    ("bert_base", "amp_bf16", 64),
    ("bert_base", "amp_fp16", 64),
    ("bert_base", "amp_bf16", 512),
    ("bert_base_512", "amp_bf16", 64),
)


def main() -> int:
    asked = _parser().parse_args()
    if asked.losses:
        print(json.dumps({device: losses(asked.model, asked.precision, device) for device in ("cpu", "cuda")}))
    elif asked.dump:
        compile_step(asked.model, asked.precision, asked.batch)
    elif asked.table:
        print("| model | precision | batch | kernels | GB | ms at limits (products) | bound /s | likely /s |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for model, precision, batch in TABLE:
            print(Step(model, precision, batch, optimised(model, precision, batch, asked.flags)).row(), flush=True)
    else:
        text = asked.hlo.read_text() if asked.hlo and asked.hlo.exists() else ""
        text = text or optimised(asked.model, asked.precision, asked.batch, asked.flags)
        if asked.hlo:
            asked.hlo.write_text(text)
        step = Step(asked.model, asked.precision, asked.batch, text)
        print(step.row(), *step.kinds(), *step.largest(asked.largest), sep="\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("model", nargs="?", default="resnet50")
    made.add_argument("precision", nargs="?", default="amp_bf16")
    made.add_argument("batch", nargs="?", type=int, default=256)
    made.add_argument("--table", action="store_true", help="the rows of TABLE, minutes each")
    made.add_argument("--flags", default=CUBLAS, help="for XLA, besides; default: %(default)s")
    made.add_argument("--largest", type=int, default=0, help="show so many kernels with the most bytes")
    made.add_argument(
        "--hlo", type=Path, help="a file that keeps the optimised program; read, not made, if it is there"
    )
    made.add_argument("--losses", action="store_true", help="of steps as for CUDA and as for a CPU, both run on a CPU")
    made.add_argument("--dump", action="store_true", help=argparse.SUPPRESS)
    return made


# --- the program ------------------------------------------------------------------------------------------------------


def optimised(model: str, precision: str, batch: int, flags: str = CUBLAS, python: str = sys.executable) -> str:
    """The text of the program. python: one that has JAX and its CUDA plug-in."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            "XLA_FLAGS": f"--xla_dump_to={folder}/hlo --xla_dump_hlo_as_text --xla_gpu_autotune_level=0 {flags}",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": package(Path(folder)),
        }
        command = [python, __file__, model, precision, str(batch), "--dump"]
        child = subprocess.Popen(command, env={**os.environ, **variables})
        try:
            return _written(Path(folder) / "hlo", child)
        finally:
            child.kill()
            child.wait()


def package(folder: Path) -> str:
    """Lay links out as the package dlperf, whose folders lie side by side in a checkout; for PYTHONPATH."""
    links = folder / "package" / "dlperf"
    links.mkdir(parents=True)
    for one in (ROOT / "dlperf" / "__init__.py", ROOT / "adapters", ROOT / "models"):
        (links / one.name).symlink_to(one)
    return str(links.parent)


def _written(folder: Path, child: subprocess.Popen[bytes]) -> str:
    """The text, once it is whole."""
    while not (found := list(folder.glob("*jit__train*gpu_after_optimizations.txt"))):
        if child.poll() is not None:
            raise RuntimeError(f"XLA has written no optimised program; the process ended with {child.returncode}")
        time.sleep(0.5)
    size = -1
    while size != found[0].stat().st_size:
        size = found[0].stat().st_size
        time.sleep(1)
    return found[0].read_text()


def built(model: str, precision: str, batch: int, device: str, dropout: float = 1.0) -> Any:
    """The adapter's trainer, its arrays on a CPU, whatever device it is made for."""
    import jax

    from dlperf import models
    from dlperf.adapters.api import Job
    from dlperf.adapters.jax import runtime
    from dlperf.adapters.ranks import Ranks

    runtime._first_gpu = lambda: None
    configure, family = runtime.configure, models.FAMILY_OF[model]

    def without_gpu(job: Job, ranks: Ranks) -> None:
        configure(job, ranks)
        jax.config.update("jax_platforms", "cpu")

    runtime.configure = without_gpu
    options = {"compile": "on", **({"clip_norm": "1.0"} if family == "bert" else {})}
    job = Job(model, device, precision, batch, distinct_batches=1, options=options, dropout=dropout)
    trainer = importlib.import_module(f"dlperf.adapters.jax.{family}").build(job, Ranks())
    runtime.configure = configure
    return trainer


def losses(model: str, precision: str, device: str) -> list[float]:
    """Without dropout, whose masks are of another generator on CUDA."""
    trainer = built(model, precision, 4, device, dropout=0.0)
    return [trainer.read(trainer.step()) for _ in range(4)]


def compile_step(model: str, precision: str, batch: int) -> None:
    """In a process of its own: hand the step to XLA for an H200. Weights and images are zeros, which cost nothing."""
    import jax
    import numpy
    from jax.experimental import topologies
    from jax.sharding import NamedSharding, PartitionSpec

    from dlperf.adapters.jax import runtime
    from dlperf.models import resnet

    def images(config: resnet.Config, batch_size: int, *_: int) -> dict[str, object]:
        shape = (batch_size, 3, config.image_size, config.image_size)
        return {"images": numpy.zeros(shape, "float32"), "labels": numpy.zeros(batch_size, "int32")}

    resnet.batch = images
    runtime.initial = lambda parameter, seed, dtype: numpy.zeros(parameter.shape, dtype)
    trainer = built(model, precision, batch, "cuda")
    target = topologies.get_topology_desc(
        "h200", "cuda", target_config=(HERE / "h200.txtpb").read_text(), topology="1x1x1"
    )
    place = NamedSharding(topologies.make_mesh(target, (1,), ("x",)), PartitionSpec())
    shapes = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype), (trainer._state, trainer._feed[0]))
    step = jax.jit(trainer._train, donate_argnums=0, in_shardings=place, out_shardings=place)
    step.lower(*shapes).compile()


# --- what is in it ----------------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """what: operation, what is in it, and the type of its result. seconds: at the limits. half: it reads 16 bits."""

    what: str
    bytes: int
    flops: int
    seconds: float
    half: bool
    line: str


BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
BYTES.update({"s8": 1, "u8": 1, "pred": 1})
ARRAY = re.compile(r"\b(" + "|".join(BYTES) + r")\[([\d,]*)\]")
LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|[^ ]+) ([\w\-]+)\((.*)$")
#: what is in a fusion -> what it is called here
SORTS = (("rng-bit", "rng"), (" dot(", "product"), (" scatter(", "scatter"), (" reduce(", "reduce"))
FREE = ("parameter", "get-tuple-element", "tuple", "bitcast", "constant", "after-all")


class Step:
    """The kernels of an optimised program, and what they come to."""

    def __init__(self, model: str, precision: str, batch: int, text: str) -> None:
        self._asked, self._share = (model, precision, batch), LIKELY[model.split("_")[0].rstrip("0123456789")]
        self._rate = RATE.get(precision, PEAK)
        self._parts, entry = computations(text)
        self.kernels = list(self._walk(entry))
        self.gigabytes = sum(kernel.bytes for kernel in self.kernels) / 1e9
        self.seconds = math.fsum(kernel.seconds for kernel in self.kernels)
        self.products = math.fsum(kernel.seconds for kernel in self.kernels if kernel.flops)

    @property
    def likely_seconds(self) -> float:
        small = math.fsum(max(LEAST - kernel.seconds, 0) for kernel in self.kernels)
        return self.products / self._share + (self.seconds - self.products) / LIKELY_REST + small

    def products_in(self, dtype: str) -> list[Kernel]:
        """Products and convolutions that write this type."""
        return [kernel for kernel in self.kernels if kernel.flops and kernel.what.endswith(" " + dtype)]

    def wide_products(self) -> list[Kernel]:
        """Those that read no 16 bits."""
        return [kernel for kernel in self.kernels if kernel.flops and not kernel.half]

    def row(self) -> str:
        model, precision, batch = self._asked
        limits = f"{self.seconds * 1e3:.1f} ({self.products * 1e3:.1f})"
        rates = f"{batch / self.seconds:,.0f} | {batch / self.likely_seconds:,.0f}"
        return (
            f"| {model} | {precision} | {batch} | {len(self.kernels):,} | {self.gigabytes:.1f} | {limits} | {rates} |"
        )

    def kinds(self) -> Iterator[str]:
        seconds: Counter[str] = Counter()
        for kernel in self.kernels:
            seconds[kernel.what] += kernel.seconds  # type: ignore[assignment]
        for what, value in seconds.most_common():
            same = [kernel for kernel in self.kernels if kernel.what == what]
            moved, flops = sum(one.bytes for one in same) / 1e9, sum(one.flops for one in same) / 1e12
            yield f"  {value * 1e3:8.3f} ms {len(same):5d} x {moved:8.2f} GB {flops:7.3f} TFLOP  {what}"

    def largest(self, count: int) -> Iterator[str]:
        for kernel in sorted(self.kernels, key=lambda one: -one.bytes)[:count]:
            name = re.search(r'op_name="([^"]+)"', kernel.line)
            shape = LINE.match(kernel.line)[2][:60]  # type: ignore[index]
            yield f"  {kernel.bytes / 1e6:9.1f} MB {kernel.what:40} {shape:60} {name[1][:90] if name else ''}"

    def _walk(self, name: str) -> Iterator[Kernel]:
        lines = [(line, found) for line in self._parts[name] if (found := LINE.match(line))]
        shapes = {found[1]: found[2] for _, found in lines}
        for line, found in lines:
            called = re.search(r"(?:calls|to_apply)=%?([\w.\-]+)", line)
            if found[3] == "call" and called:
                yield from self._walk(called[1])
            elif found[3] not in FREE:
                named = re.findall(r"%([\w.\-]+)(?:#(\d+))?", re.split(r"\)(?:, |$)", found[4])[0])
                operands = [part(shapes[one], index) for one, index in named if one in shapes]
                fused = self._parts.get(called[1], []) if called and found[3] == "fusion" else []
                yield self._kernel(line, found[2], found[3], operands, fused)

    def _kernel(self, line: str, shape: str, op: str, operands: list[str], fused: list[str]) -> Kernel:
        library = re.search(r'custom_call_target="([^"]+)"', line)
        if library:
            what, flops = library[1], of_library(library[1], line, shape, operands)
        else:
            sort = next((word for sign, word in SORTS if any(sign in one for one in fused)), "")
            what, flops = f"{op} {sort}".strip(), of_fusion(fused)
        dtype = (arrays(shape) or [("", [])])[0][0]
        moved = size(shape) + sum(map(size, operands))
        half = any(kind in ("bf16", "f16") for one in operands for kind, _ in arrays(one))
        seconds = max(moved / BANDWIDTH, flops / (PEAK if half else self._rate))
        return Kernel(f"{what} {dtype}", moved, flops, seconds, half, line)


def computations(text: str) -> tuple[dict[str, list[str]], str]:
    """name -> lines, and the name of the entry"""
    found: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.split("\n"):
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{", line)
        if head:
            name = head[2]
            found[name], entry = [], name if head[1] else entry
        elif line.startswith("}"):
            name = ""
        elif name:
            found[name].append(line)
    return found, entry


def axes(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one]


@functools.cache
def arrays(text: str) -> list[tuple[str, list[int]]]:
    return [(kind, axes(shape)) for kind, shape in ARRAY.findall(text)]


def size(text: str) -> int:
    """Bytes of a shape; cuDNN's and cuBLAS's workspaces, which are large arrays of bytes, left out."""
    return sum(
        math.prod(shape) * BYTES[kind]
        for kind, shape in arrays(text)
        if not (kind in ("s8", "u8") and math.prod(shape) >= 1 << 16)
    )


def part(shape: str, index: str) -> str:
    """`%fusion#2` is the third array of a tuple."""
    if not index:
        return shape
    kind, dimensions = ARRAY.findall(shape)[int(index)]
    return f"{kind}[{dimensions}]"


def of_fusion(lines: list[str]) -> int:
    """FLOPs of the matrix products inside."""
    flops, shapes = 0, {}
    for line in lines:
        head = re.match(r"^\s+(?:ROOT )?%?([\w.\-]+) = \w+\[([\d,]*)\]", line)
        if head:
            shapes[head[1]] = axes(head[2])
        dot = re.search(r"= \w+\[([\d,]*)\]\S* dot\(%?([\w.\-]+), .*?lhs_contracting_dims=\{([\d,]*)\}", line)
        if dot:
            flops += 2 * math.prod(axes(dot[1])) * math.prod(shapes[dot[2]][one] for one in axes(dot[3]))
    return flops


def of_library(target: str, line: str, shape: str, operands: list[str]) -> int:
    """FLOPs of a call of cuBLAS or cuDNN."""
    out = arrays(shape)[0][1]
    given = [arrays(one)[0][1] for one in operands if arrays(one)]
    if "cublas" in target:
        contracted = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', line)
        summed = [int(one) for one in re.findall(r"\d+", contracted[1])] if contracted else []
        return 2 * math.prod(out) * math.prod(given[0][one] for one in summed if one < len(given[0]))
    labels = re.search(r"dim_labels=(\w+?)_(\w+?)->(\w+)", line)
    if not labels:
        return 0
    sizes = re.search(r"window=\{size=([\dx]+)", line)
    window = math.prod(int(one) for one in sizes[1].split("x")) if sizes else 1
    features = labels[1].index("f")
    if "Forward" in target:
        return 2 * math.prod(out) * given[1][labels[2].index("i")] * window
    if "BackwardInput" in target:
        return 2 * math.prod(given[0]) * out[features] * window
    return 2 * math.prod(given[1]) * given[0][features] * window


if __name__ == "__main__":
    sys.exit(main())
