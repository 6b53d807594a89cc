"""The precisions: the words by which they are asked for, what each means, and how it rounds. The one table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlperf.adapters.api import PRECISIONS

#: the words that --precision takes; amp means something else on each kind of device
ASKED = ("fp32", "tf32", "amp", "fp16", "bf16")


@dataclass(frozen=True)
class Precision:
    """meaning: for readers. dtype: of the large products, as Trainer.effective["compute_dtype"] has it. roundoff: the
    unit roundoff of that type, half the distance from 1 to the next number. kernels: of a GPU, as
    dlperf.adapters.cpu.kernels takes them; empty where any will do."""

    meaning: str
    dtype: str
    roundoff: float
    kernels: Sequence[Mapping[str, Any]] = ()


_ROUNDING = {
    "fp64": ("float64", 2.0**-53),
    "fp32": ("float32", 2.0**-24),
    "tf32": ("tf32", 2.0**-11),
    "amp_fp16": ("float16", 2.0**-11),
    "amp_bf16": ("bfloat16", 2.0**-8),
}
#: elsewhere it would be float32 under another name
TENSOR_CORES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "tf32": (
        {"needs": ["compute_80"], "kernels": "native", "why": ""},
        {"needs": [], "kernels": "none", "why": "TF32 is a mode of tensor cores from sm_80 on"},
    )
}
#: by the name under which adapters and records have them
TABLE: Mapping[str, Precision] = {
    name: Precision(PRECISIONS[name], *_ROUNDING[name], kernels=TENSOR_CORES.get(name, ())) for name in PRECISIONS
}


def resolve(asked: str, device: str) -> str:
    """fp32 and tf32 stay; amp is float16 with dynamic loss scaling on CUDA and bfloat16 on CPU."""
    if asked == "amp":
        return "amp_fp16" if device == "cuda" else "amp_bf16"
    return {"fp16": "amp_fp16", "bf16": "amp_bf16"}.get(asked, asked)
