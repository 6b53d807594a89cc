"""OneFlow-Benchmark's convolutional networks."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, labels, unrounded

LINE = (
    r"train: epoch \d+, iter (?P<step>\d+), loss: (?P<loss>[^\s,]+), "
    r".*samples/s: (?P<rate>[\d.]+) (?P<timestamp>[\d.]+)"
)
#: as lines are without it, whose rate is of the steps since the line before
UNCLOCKED = LINE.replace(r" (?P<timestamp>[\d.]+)", r"\s*$")
FACTS = {"nodes": "num_nodes", "devices_per_node": "gpu_num_per_node", "batch": "batch_size_per_device"}
FORMAT = Format(
    name="oneflow-resnet50",
    title="OneFlow-Benchmark's convolutional networks",
    framework="oneflow",
    unit="img/s",
    needle=b"samples/s:",
    begins=re.compile(r"Running (?!BERT)\w+: num_gpu_per_node = "),
    logs=(
        Log(re.compile(LINE), first=1, every=20, timestamp="epoch"),
        Log(re.compile(UNCLOCKED), first=1, every=20),
    ),
    rounded=unrounded,
    publisher=labels(20, 120, unrounded),
    who="DLPerf's extract_cnn_result.py",
    facts={**FACTS, "model": "model"},
    amp=("use_fp16",),
)
