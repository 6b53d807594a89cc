"""NVIDIA's BERT pre-training for PaddlePaddle, by dllogger."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import bert
from dlperf.importlogs.format import EVERY, MEAN, Format, ended, mean_of, per_device

#: `step_samples` are those of one process, of all steps since the line before
LINE = (
    r" - Epoch: \d+ Iteration: (?P<step>\d+) .*?step_cost : (?P<seconds>[\d.]+)"
    r".*?seqs_per_sec : (?P<rate>[\d.]+)"
)


FORMAT = Format(
    name="ngc-paddle-bert",
    title="NVIDIA's BERT for PaddlePaddle",
    framework="paddle",
    unit="sequences/s",
    needle=b"seqs_per_sec :",
    begins=re.compile(r"\bbenchmark[-_]warmup[-_]steps\b"),
    logs=(Log(re.compile(LINE), first=1, every=10, rate_of="device"),),
    column=MEAN,
    publisher=mean_of(0, None, per_device),
    estimator="mean_of_rates",
    who="the mean of its lines' rates per card, times cards",
    whole=True,
    steps=EVERY,
    facts={"batch": "batch_size_per_gpu", "accumulation": "gradient_merge_steps"},
    told=(bert,),
    amp=("amp",),
    totals=(
        ended(
            "training_sequences_per_second",
            "by the script's own clock, after the warm-up of its benchmark if it was one",
        ),
    ),
)
