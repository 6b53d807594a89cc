"""NVIDIA's ResNet-50 for MXNet, by dllogger."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, mean_of, printed

LINE = (
    r"DLL (?P<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) - Epoch: \d+ Iteration: (?P<step>\d+) "
    r".*?train\.ips : (?P<rate>[\d.]+)"
)
FORMAT = Format(
    name="ngc-mxnet-dllogger",
    title="NVIDIA's ResNet-50 for MXNet (dllogger)",
    framework="mxnet",
    model="resnet50",
    unit="img/s",
    needle=b"train.ips :",
    logs=(Log(re.compile(LINE), timestamp="%Y-%m-%d %H:%M:%S.%f"),),
    publisher=mean_of(20, 120, printed),
    estimator="mean_of_rates",
    who="as NVIDIA's script does: rates of lines after the first 20",
    facts={"batch": "batch_size", "model": "arch", "steps": "benchmark_iters"},
    batch="global",
)
