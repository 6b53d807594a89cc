"""PaddleNLP 1.8's BERT."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import Said, argument, bert, said
from dlperf.importlogs.format import Format, Line, mean_of
from dlperf.schema import Job


def rate(line: Line, job: Job) -> float:
    """Steps per second of all nodes together, as the script prints them."""
    return (line.rate or 0.0) * (job.nproc_per_node * job.batch_size)


#: of 2020 without, later with brackets; with verbose more stands between
LINE = r"progress: \d+/\d+, step: (?P<step>\d+)[,\]] loss: (?P<loss>[^\s,]+), .*speed: (?P<rate>[\d.]+) steps/s"


def told(head: str) -> dict[str, str]:
    """`row`: tokens of one row, 0 where its batch is of rows, by its argument in_tokens."""
    found: dict[str, str] = {}
    if length := argument("max_seq_len", head):
        found["row"] = length
    if argument("in_tokens", head) == "False":
        found["row"] = "0"
    if cards := re.search(r"^Device count:? (\d{1,4})\s", head, re.MULTILINE):
        found["devices_per_node"] = said(cards)
    if (several := argument("is_distributed", head)) and several == "False":
        found["nodes"] = Said("1", several.at)
    return found


FORMAT = Format(
    name="paddle-bert",
    title="PaddleNLP 1.8's BERT",
    framework="paddle",
    unit="sentences/s",
    needle=b"steps/s",
    begins=re.compile(r"^in_tokens: ", re.MULTILINE),
    logs=(Log(re.compile(LINE), first=1, rate_of="node step", ranks="node"),),
    publisher=mean_of(20, 120, rate, digits=4),
    estimator="mean_of_rates",
    who="DLPerf's extract_paddle_logs.py",
    facts={"batch": "batch_size"},
    told=(bert, told),
    amp=("use_fp16",),
    batch="tokens",
    demands=re.compile("next_sent_acc"),
    otherwise="it has no accuracy of next sentences: fine-tuning, which is not pre-training",
)
