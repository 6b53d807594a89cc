"""PaddleNLP 2.x: BERT."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, mean_of, per_device

LINE = r"(?:total|global) step:? (?P<step>\d+),.*?loss: (?P<loss>[^\s,]+).*?ips ?: ?(?P<rate>[\d.]+) sequences/s"
FORMAT = Format(
    name="paddle-nlp",
    title="PaddleNLP 2.x's BERT",
    framework="paddle",
    unit="sentences/s",
    needle=b"sequences/s",
    logs=(Log(re.compile(LINE), first=1, rate_of="device"),),
    publisher=mean_of(0, 10**9, per_device),
    estimator="mean_of_rates",
    whole=True,
    who="the mean of its lines' rates per card, times cards",
    facts={"batch": "batch_size", "steps": "max_steps"},
)
