"""TensorFlow's model garden: ResNet."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, mean_of, printed

LINE = r"TimeHistory: (?P<seconds>[\d.]+) seconds, (?P<rate>[\d.]+) examples/second between steps \d+ and (?P<step>\d+)"
FORMAT = Format(
    name="tensorflow-resnet50",
    title="the TensorFlow model garden's ResNet",
    framework="tensorflow",
    model="resnet50",
    facts={"batch": "batch_size"},
    batch="global",
    unit="img/s",
    needle=b"TimeHistory:",
    logs=(Log(re.compile(LINE), first=1, every=100, ranks="node"),),
    publisher=mean_of(1, 6, printed),
    estimator="mean_of_rates",
    who="DLPerf's extract_tensorflow_logs.py",
    warmup=100,
    steps=500,
)
