"""Workers whose pushes parameter servers apply as they come have no one result: which other worker's push came before
depends on the machine. What they may have is a band. NumPy's network trains, in float64, in many orders of their pulls
and pushes; at each step the mean of the workers' losses must be between the least and the most of all these orders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlperf.proof.bars import BARS
from dlperf.proof.judge import Evidence, refusal
from dlperf.schema import Bound, Certificate, Trajectory

#: by model, as tests/helpers/oracle_async.py makes them
BANDS = Path(__file__).parent / "reference" / "async_bands.json"
#: how far from its middle a loss may be, in half widths of the band: a tenth more for orders that were not drawn. Of
#: 60 others in tiny Word2Vec, Simnet-BOW, CTR-DNN and VGG16 none was beyond 1.04; where servers lost every second push
#: it was 1.2 to 2.2
MOST = 1.1


@dataclass(frozen=True)
class Band:
    """The least and the most of each step's loss, over so many orders."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    orders: int

    def share(self, losses: tuple[float, ...], bar: float) -> tuple[float, int]:
        """Of the step that is farthest out: its distance from the middle, of half the band's width, and its number from
        1. bar: the relative error that a loss may have besides."""
        found = []
        for step, (low, high, loss) in enumerate(zip(self.low, self.high, losses, strict=True), 1):
            middle = (low + high) / 2
            found.append((abs(loss - middle) / ((high - low) / 2 + bar * abs(middle)), step))
        return max(found)


def known(model: str) -> bool:
    """Whether there is a band of a model."""
    return model in _bands()


def of(like: Trajectory) -> Band | None:
    """That of the same job; None where there is none, or where dlperf.models has changed since."""
    found = _bands().get(like.model, {})
    asked = {name: getattr(like, name) for name in ("definition", "batch_size", "steps", "seed", "ranks")}
    if not found or asked != {name: found[name] for name in asked}:
        return None
    return Band(tuple(found["low"]), tuple(found["high"]), found["orders"])


def _bands() -> dict[str, Any]:
    return dict(json.loads(BANDS.read_text(encoding="utf-8")))


def judge(one: Evidence, band: Band | None) -> Certificate:
    """The certificate of several workers' float64 trajectory."""
    if refused := refusal(one):
        return refused
    trajectory = one.trajectory
    if band is None:
        return Certificate(trajectory, "unproven", "there is no band of losses for its model as it is")
    narrow = trajectory.effective.get("server_dtype") == "float32"
    share, step = band.share(trajectory.losses, BARS["fp32" if narrow else "fp64"].loss)
    bounds = (Bound("losses", float32=0.0, found=share, least=0.0, most=MOST),)
    if share <= MOST:
        return Certificate(trajectory, "same", bounds=bounds)
    why = (
        f"the mean of its workers' losses at step {step}, {trajectory.losses[step - 1]:.6g}, is not from "
        f"{band.low[step - 1]:.6g} to {band.high[step - 1]:.6g}, as in {band.orders} orders of pulls and pushes "
        f"({share:.2g} times half of that from the middle)"
    )
    return Certificate(trajectory, "different", why, bounds=bounds)
