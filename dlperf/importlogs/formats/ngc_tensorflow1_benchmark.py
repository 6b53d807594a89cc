"""NVIDIA's convolutional networks for TensorFlow 1, --mode=training_benchmark."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import EVERY, Format, Total
from dlperf.importlogs.formats.ngc_tensorflow1_resnet50 import AMP, FACTS, STAMP

FORMAT = Format(
    name="ngc-tensorflow1-benchmark",
    title="NVIDIA's convolutional networks for TensorFlow 1 (training_benchmark)",
    framework="tensorflow",
    unit="img/s",
    needle=b"total_ips :",
    logs=(Log(re.compile(STAMP + r"\btotal_ips : (?P<rate>[\d.e+]+)"), timestamp="%Y-%m-%d %H:%M:%S.%f"),),
    warmup=0,
    steps=EVERY,
    whole=True,
    facts=FACTS,
    totals=(
        Total(
            "train_throughput",
            re.compile(r"DLL [\d-]+ [\d:.]+ - \(\) *train_throughput : (?P<value>[\d.]+)"),
            b"train_throughput :",
            "mean_of_rates",
            doubt="the mean of its steps' rates after its warm-up",
        ),
    ),
    amp=AMP,
    process="device",
)
