"""NVIDIA's convolutional networks for PyTorch, by dllogger."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, Total, ordinals

LINE = (
    r"DLL (?P<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) - Epoch: \d+ Iteration: (?P<step>\d+) "
    r".*?train\.loss : (?P<loss>\S+)(?: .*?train\.total_ips : (?P<rate>[\d.]+))?"
)
FORMAT = Format(
    name="ngc-pytorch-resnet50",
    title="NVIDIA's convolutional networks for PyTorch",
    framework="pytorch",
    unit="img/s",
    needle=b"train.loss :",
    begins=re.compile(r"\boptimizer_batch_size : "),
    logs=(Log(re.compile(LINE), timestamp="%Y-%m-%d %H:%M:%S.%f"),),
    publisher=ordinals(20, 120, after=6),
    who="DLPerf's extract_pytorch_logs_time.py",
    warmup=26,
    facts={
        "batch": "batch_size",
        "model": "arch",
        "devices_per_node": "nproc_per_node",
        "nodes": "nnodes",
        "devices": "world_size",
    },
    demands=re.compile(r"train\.total_ips"),
    otherwise="no line has train.total_ips: it looks like the log of another dllogger script",
    totals=(
        Total(
            "Summary: train.total_ips",
            re.compile(r"Summary:.*?train\.total_ips : (?P<value>[\d.]+)"),
            b"Summary:",
            "mean_of_rates",
        ),
    ),
    amp=("amp", "use_amp", "fp16"),
    process="device",
)
