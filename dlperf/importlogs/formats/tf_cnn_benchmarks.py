"""tf_cnn_benchmarks."""

from __future__ import annotations

import re

from dlperf.importlogs.format import Format, Total

FORMAT = Format(
    name="tf-cnn-benchmarks",
    title="tf_cnn_benchmarks",
    framework="tensorflow",
    unit="img/s",
    needle=b"images/sec:",
    logs=(),
    warmup=0,
    facts={"model": "Model", "steps": "Num batches"},
    totals=(
        Total(
            "samples over seconds",
            re.compile(r"total images/sec: (?P<value>[\d.]+)"),
            b"total images/sec:",
            "samples_over_seconds",
            doubt="its own count, after its warm-up",
        ),
        Total(
            "images/sec of its last line",
            re.compile(r"^\d+\s+images/sec: (?P<value>[\d.]+) \+/-"),
            b"images/sec:",
            "last_printed",
        ),
    ),
)
