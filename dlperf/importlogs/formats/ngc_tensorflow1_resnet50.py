"""NVIDIA's convolutional networks for TensorFlow 1, --mode=train."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, mean_of, printed

STAMP = r"DLL (?P<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) - \(\d+, (?P<step>\d+)\) .*?"
FACTS = {"batch": "batch_size", "model": "arch", "devices": "Num GPUs"}
AMP = ("use_tf_amp", "amp")
FORMAT = Format(
    name="ngc-tensorflow1-resnet50",
    title="NVIDIA's convolutional networks for TensorFlow 1",
    framework="tensorflow",
    unit="img/s",
    needle=b"imgs_per_sec :",
    begins=re.compile(r"\buse_tf_amp : "),
    logs=(Log(re.compile(STAMP + r"imgs_per_sec : (?P<rate>[\d.e+]+)"), timestamp="%Y-%m-%d %H:%M:%S.%f"),),
    publisher=mean_of(0, 100, printed, digits=2),
    estimator="mean_of_rates",
    who="DLPerf's extract_tensorflow_logs.py",
    warmup=0,
    steps=99,
    facts=FACTS,
    amp=AMP,
    process="device",
)
