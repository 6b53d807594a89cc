"""PaddleClas 2.x, static graphs: its lines tell the mean since the fifth step of an epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlperf.catalog.script import Log
from dlperf.importlogs.format import EVERY, MEAN, Format, mean_of, per_device
from dlperf.importlogs.formats.paddle_clas import told

LINE = (
    r"epoch:\s*\d+\s*,?\s*train\s+step:\s*(?P<step>\d+)\s*,?.*?batch_cost: (?P<cost>[\d.]+) s"
    r".*?ips: (?P<rate>[\d.]+) (?:images|samples)/s"
)


def clock(groups: Mapping[str, str], step: int) -> float:
    return float(groups["cost"]) * (step - 4)


FORMAT = Format(
    name="paddle-clas-static",
    title="PaddleClas 2.x, static graphs",
    framework="paddle",
    unit="img/s",
    needle=b"ips:",
    logs=(Log(re.compile(LINE), first=1, rate_of="device"),),
    column=MEAN,
    publisher=mean_of(0, None, per_device),
    estimator="mean_of_rates",
    whole=True,
    steps=EVERY,
    who="the mean of its lines' rates per card, times cards",
    told=(told,),
    clock=clock,
)
