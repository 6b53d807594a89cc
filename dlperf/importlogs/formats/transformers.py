"""Hugging Face's Trainer."""

from __future__ import annotations

import re

from dlperf.importlogs.format import Format, Total

FORMAT = Format(
    name="transformers",
    title="Hugging Face's Trainer",
    framework="pytorch",
    unit="samples/s",
    needle=b"train_runtime",
    logs=(),
    warmup=0,
    facts={
        "batch": "Instantaneous batch size per device",
        "accumulation": "Gradient Accumulation steps",
        "steps": "Total optimization steps",
    },
    totals=(
        Total(
            "train_samples_per_second",
            re.compile(r"train_samples_per_second['\"]?\s*[:=]\s*(?P<value>[\d.]+)"),
            b"train_samples_per_second",
            "last_printed",
            doubt="of the whole run, its first steps too",
        ),
        Total(
            "samples over seconds",
            re.compile(r"train_runtime['\"]?\s*[:=]\s*(?P<seconds>[\d.]+)"),
            b"train_runtime",
            "samples_over_seconds",
            doubt="of the whole run, its first steps too",
        ),
    ),
)
