"""Whether a certificate's verdict follows from the figures that it has. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dlperf.proof import judge
from dlperf.proof.bars import Bars, bars_for
from dlperf.schema import Certificate


def contradictions(certificate: Certificate) -> Iterator[str]:
    """Where the verdict "same" does not follow from the figures that stand beside it."""
    trajectory = certificate.trajectory
    if certificate.verdict != "same":
        return
    one, bars = judge.Evidence(trajectory, {}), bars_for(trajectory)
    if wrong := judge.fault(one):
        yield f"its verdict is same, and {wrong}"
    elif bars is None or certificate.bounds:
        wide = [bound.what for bound in certificate.bounds if not bound.least <= bound.found <= bound.most]
        yield from (f"its verdict is same, and {what} are outside of their bound" for what in wide)
        if not certificate.bounds:
            yield "its verdict is same, and it has no bounds"
    elif not any(judge.within(found, _widest(one, bars)) for found in certificate.differences):
        yield "its verdict is same, and it is within the bars of no other"


def _widest(one: judge.Evidence, bars: Bars) -> Bars:
    """Those of a pair of which nobody knows whether the other has constants in float32."""
    own = judge.bars_of(one, one, bars)
    return replace(own, statistic=max(own.statistic or 0.0, judge.decay_error(one.trajectory)))
