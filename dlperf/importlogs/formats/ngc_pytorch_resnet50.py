"""NVIDIA's convolutional networks for PyTorch, by dllogger."""

from __future__ import annotations

import re

from dlperf.importlogs.format import Format, Total, ordinals

FORMAT = Format(
    name="ngc-pytorch-resnet50",
    title="NVIDIA's convolutional networks for PyTorch",
    framework="pytorch",
    unit="img/s",
    needle=b"train.loss :",
    logs=("ngc-pytorch/resnet50",),
    publisher=ordinals(20, 120, after=6),
    who="DLPerf's extract_pytorch_logs_time.py",
    warmup=26,
    facts={
        "batch": "batch_size",
        "model": "arch",
        "devices_per_node": "nproc_per_node",
        "nodes": "nnodes",
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
    amp=re.compile(r"\bamp : True|\bamp=True|use_amp=True"),
)
