"""PaddleClas 2.x."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, mean_of, per_device

NEW = r"\[Train\]\[Epoch \d+/\d+\]\[Iter: (?P<step>\d+)/\d+\].*?ips: (?P<rate>[\d.]+) (?:images|samples)/s"
OLD = r"epoch:\s*\d+\s*,?\s*train\s+step:\s*(?P<step>\d+)\s*,?.*?ips: (?P<rate>[\d.]+) (?:images|samples)/s"
FORMAT = Format(
    name="paddle-clas",
    title="PaddleClas 2.x",
    framework="paddle",
    unit="img/s",
    needle=b"ips:",
    logs=(Log(re.compile(NEW), rate_of="device"), Log(re.compile(OLD), rate_of="device")),
    publisher=mean_of(0, 10**9, per_device),
    estimator="mean_of_rates",
    whole=True,
    who="the mean of its lines' rates per card, times cards",
)
