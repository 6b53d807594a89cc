"""The certificate of a low precision. Pure.

Low precision is held to what it does to the network written out in NumPy, the same for all systems: if that moved
losses, logits, gradients, changes of parameters or running statistics by r, each as one vector, a system's may be moved
by SLACK * r. Where that is not published, to a bound from the system's own float32 run: rounding error is proportional
to the unit roundoff u, and a product in low precision rounds its two operands and its result, where in float32 it
rounds its result alone. So if float32 moved a system's results by e, low precision may move them by 3 * e * u / 2^-24.
Weight decay of scales is held to half of the model's own: low precision moved it by up to a sixth (`decay`), and
by up to a half that of weights, which is not judged here.
In any case, if it moved logits by less than e * sqrt(u / 2^-24), half way on a logarithmic scale to what its rounding
is worth, low precision did not run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dlperf.precision import TABLE
from dlperf.proof import decay
from dlperf.proof.bars import BARS
from dlperf.proof.judge import Evidence, difference, fault, settled, short, vector_error
from dlperf.schema import Bound, Certificate

#: how much more than NumPy's network another may be moved by low precision; a loss is a number by itself, of which one
#: may be as good as right by chance. Seen in bfloat16, in BERT-base, ResNet-50 and tiny ones, with PyTorch, TensorFlow,
#: MXNet and JAX: 0.7 to 2.0 times as much in vectors (most where a residual stream is in 16 bits), 0.6 to 4.2 in losses
SLACK = {"losses": 10.0, "logits": 3.0, "gradients": 3.0, "changes": 3.0, "statistics": 3.0}
#: by how much of the model's own decay that of scales may be off: half way between decaying and not
DECAY = 0.5
#: roundings of a product in low precision for one in float32
ROUNDINGS = 3


def judge(
    low: Evidence, own_float64: Evidence, own_float32: Evidence, moved: Mapping[str, float] | None = None
) -> Certificate:
    """The certificate of a low-precision trajectory, from the same system's trajectories in float64 and float32.

    moved: what the precision did to NumPy's network, see `published.moved`; None where that is not known.
    """
    low, own_float64, own_float32 = settled(low), settled(own_float64), settled(own_float32)
    at_fault = fault(low) or next(
        (f"its {one.trajectory.precision} run: {fault(one)}" for one in (own_float64, own_float32) if fault(one)), ""
    )
    if at_fault:
        return Certificate(low.trajectory, "different" if not low.trajectory.failure else "unproven", at_fault)
    ratio = TABLE[low.trajectory.precision].roundoff / TABLE["fp32"].roundoff
    bars = BARS["fp64"]
    base, found = difference(own_float32, own_float64, bars), difference(low, own_float64, bars)
    # a loss is itself a float32 number
    errors = {"losses": (max(base.loss, TABLE["fp32"].roundoff), found.loss)}
    for what, prefix in VECTORS.items():
        single, half = (vector_error(one.sketches, own_float64.sketches, prefix) for one in (own_float32, low))
        if single is not None and half is not None:
            errors[what] = single, half
    bounds = [_bound(what, *pair, ratio, moved) for what, pair in errors.items()]
    decays = [decay.off(one.sketches, own_float64.sketches, low.trajectory) for one in (own_float32, low)]
    if all("scales" in one for one in decays):
        single, half = (one["scales"] for one in decays)
        bounds.append(Bound("decays of scales", single, half, 0.0, DECAY))
    wrong = [_outside(bound) for bound in bounds if not bound.least <= bound.found <= bound.most]
    judged = Certificate(low.trajectory, "same", "", found.loss, (found,), bounds=tuple(bounds))
    return replace(judged, verdict="different", why="; ".join(wrong)) if wrong else judged


#: what low precision may move beside losses, and the sketches of it
VECTORS = {"logits": "logits/", "gradients": "gradient/", "changes": "change/", "statistics": "statistic/"}


def _bound(what: str, base: float, found: float, ratio: float, moved: Mapping[str, float] | None) -> Bound:
    reference = moved[what] if moved else None
    most = ROUNDINGS * base * ratio if reference is None else SLACK[what] * reference
    least = base * math.sqrt(ratio) if what == "logits" else 0.0
    return Bound(what, base, found, least, most, reference)


def _outside(bound: Bound) -> str:
    if bound.found < bound.least:
        return f"{bound.what} are off by {short(bound.found)} only, like float32's: low precision did not run"
    whose = "rounding" if bound.reference is None else "rounding, as NumPy's network has it,"
    return f"{bound.what} are off by {short(bound.found)}; {whose} explains {short(bound.most)}"
