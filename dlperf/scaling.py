"""Holds the model of scaling against DLPerf's published tables: fitted on 1 and 8 devices, it predicts 16 and 32."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from dlperf.cli import Parser, exit_code
from dlperf.figures.dlperf2020 import Published, read_published
from dlperf.figures.prediction import Link, Step, bracket
from dlperf.sources import dlperf_v1

#: DLPerf's machines as NCCL 2.7 counts them (src/graph/topo.h and tuning.cc): six NVLinks of 21 GB/s at each V100, and
#: 12 GB/s for the 100 Gb/s of InfiniBand at each node; latencies of a ring with the simple protocol.
NVLINK = Link(latency=3.4e-6, bandwidth=6 * 21e9)
INFINIBAND = Link(latency=9.6e-6, bandwidth=12e9)
FITTED, PREDICTED = ((1, 1), (1, 8)), ((2, 8), (4, 8))


@dataclass(frozen=True)
class Check:
    """A prediction beside what was published; rates in samples/s. kept: as if the efficiency of 8 devices were kept."""

    published: Published
    devices: int
    rate: float
    predicted: float
    low: float
    high: float
    kept: float

    @property
    def error(self) -> float:
        return self.predicted / self.rate - 1


def check(published: Published, algorithm: str = "ring") -> list[Check]:
    """Fit a system's figures on 1 and 8 devices, predict 16 and 32."""
    rates, batch = published.rates, published.batch_size
    steps = [Step(m, k, m * k * batch / rates[m * k]) for m, k in FITTED]
    fits = bracket(steps, published.gradient_bytes, within=NVLINK, between=INFINIBAND, algorithm=algorithm)
    checks = []
    for m, k in PREDICTED:
        predicted, *ends = [m * k * batch / one.model.seconds(m, k) for one in fits]
        low, high = min(predicted, *ends), max(predicted, *ends)
        checks.append(Check(published, m * k, rates[m * k], predicted, low, high, kept=rates[8] * m))
    return checks


def table(published: Sequence[Published]) -> str:
    """The check of every system, and what the errors are like."""
    checks = {name: [one for row in published for one in check(row, name)] for name in ("ring", "hierarchical")}
    lines = [*_about()]
    group = ""
    for one in checks["ring"]:
        title = f"{one.published.model} {one.published.precision}"
        if title != group:
            group = title
            lines += ["", f"{title:24} batch devices  published  predicted   error  range"]
        lines.append(_line(one))
    return "\n".join([*lines, "", *_cautions(published), "", *_errors(checks)]) + "\n"


def _about() -> Iterator[str]:
    within, between = (f"{link.bandwidth / 1e9:.0f} GB/s" for link in (NVLINK, INFINIBAND))
    yield "Fitted on 1 and 8 devices: the compute of a step, and what 8 devices cost beside it: overhead where that is"
    yield "more than the links explain, overlap where it is less. Predicted: 16 and 32 devices. Known beforehand:"
    yield f"gradient bytes; a ring all-reduce; {within} within a node and {between} between, as NCCL counts them."
    yield "error: predicted over published, less 1. range: from nothing hidden behind the backward pass to all of it."
    yield "*: a caution, see below."


def _line(one: Check) -> str:
    inside = "" if one.low <= one.rate <= one.high else "  published is outside"
    name = one.published.system + (" *" if one.published.caution else "")
    sizes = f"{name:24} {one.published.batch_size:5} {one.devices:7}"
    rates = f"{one.rate:10,.1f} {one.predicted:10,.1f} {one.error:+7.1%}"
    return f"{sizes} {rates}  {one.low:,.0f} to {one.high:,.0f}{inside}"


def _cautions(published: Iterable[Published]) -> Iterator[str]:
    return (f"* {row.title}: {row.caution}" for row in published if row.caution)


def _errors(checks: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    ring = checks["ring"]
    sound = [one for one in ring if not one.published.caution]
    yield _summary("all", [one.error for one in ring])
    yield _summary("without those with a caution", [one.error for one in sound])
    for devices in (16, 32):
        yield _summary(f"{devices} devices, without a caution", [one.error for one in sound if one.devices == devices])
    inside = sum(one.low <= one.rate <= one.high for one in sound)
    yield f"published within the range, without a caution: {inside} of {len(sound)}"
    yield _summary("hierarchical all-reduce instead, without a caution", _sound_errors(checks["hierarchical"]))
    yield _summary("no model: efficiency of 8 devices kept, without a caution", [o.kept / o.rate - 1 for o in sound])


def _sound_errors(checks: Iterable[Check]) -> list[float]:
    return [one.error for one in checks if not one.published.caution]


def _summary(what: str, errors: Sequence[float]) -> str:
    sizes = [abs(error) for error in errors]
    absolute = f"absolute error {median(sizes):.1%} median, {max(sizes):.1%} worst"
    return f"{what}: n={len(sizes)}, {absolute}; mean error {fmean(errors):+.1%}"


def parser() -> argparse.ArgumentParser:
    return Parser(prog="python -m dlperf.scaling", description=__doc__)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m dlperf.scaling`; returns the exit status."""
    parser().parse_args(arguments)
    return exit_code(lambda: print(table(read_published(dlperf_v1().figures)), end=""))


if __name__ == "__main__":
    sys.exit(main())
