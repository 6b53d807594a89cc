"""PaddleNLP 1.8's BERT."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, Line, mean_of
from dlperf.schema import Job


def rate(line: Line, job: Job) -> float:
    """Steps per second of all nodes together, as the script prints them."""
    return (line.rate or 0.0) * (job.nproc_per_node * job.batch_size)


LINE = r"progress: \d+/\d+, step: (?P<step>\d+), loss: (?P<loss>[^\s,]+), .*speed: (?P<rate>[\d.]+) steps/s"
FORMAT = Format(
    name="paddle-bert",
    title="PaddleNLP 1.8's BERT",
    framework="paddle",
    unit="sentences/s",
    needle=b"steps/s",
    logs=(Log(re.compile(LINE), first=1, rate_of="node step", ranks="node"),),
    publisher=mean_of(20, 120, rate, digits=4),
    estimator="mean_of_rates",
    who="DLPerf's extract_paddle_logs.py",
    facts={"batch": "batch_size"},
    batch="tokens",
    demands=re.compile("next_sent_acc"),
    otherwise="it has no accuracy of next sentences: fine-tuning, which is not pre-training",
)
