"""NVIDIA's convolutional networks for MXNet, by dllogger."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import harmonic_mean

from dlperf.catalog.script import Log
from dlperf.importlogs.format import THEIRS, Format, Total
from dlperf.importlogs.formats.ngc_mxnet import told

LINE = (
    r"DLL (?P<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) - Epoch: \d+ Iteration: (?P<step>\d+) "
    r".*?train\.ips : (?P<rate>[\d.]+)"
)


def mean(rates: Sequence[float]) -> float:
    """Of epochs, as NVIDIA's benchmark.py is called: -w 1, without the first."""
    return harmonic_mean(rates[1:] or rates)


FORMAT = Format(
    name="ngc-mxnet-dllogger",
    title="NVIDIA's convolutional networks for MXNet",
    framework="mxnet",
    unit="img/s",
    needle=b"train.ips :",
    begins=re.compile(r"\bkv_store : "),
    logs=(Log(re.compile(LINE), timestamp="%Y-%m-%d %H:%M:%S.%f"),),
    facts={"batch": "batch_size", "type": "dtype"},
    amp=("amp",),
    process="device",
    told=(told,),
    who="NVIDIA's benchmark.py -w 1",
    batch="global",
    totals=(
        Total(
            THEIRS,
            re.compile(r" - Epoch: \d+  +train\.loss : \S+ (?:None)? *train\.ips : (?P<value>[\d.]+)"),
            b"train.ips :",
            "samples_over_seconds",
            doubt="by the script's own clock, of epochs without their first steps",
            several=mean,
        ),
        Total(
            "Summary: train.ips",
            re.compile(r"Summary:.*?train\.ips : (?P<value>[\d.]+)"),
            b"train.ips :",
            "last_printed",
            doubt="by the script's own clock",
        ),
    ),
)
