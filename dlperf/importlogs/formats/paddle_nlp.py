"""PaddleNLP 2.x: BERT."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import MEAN, Format, argument, mean_of, per_device

#: it was `tobal` once
LINE = (
    r"(?:total|global|tobal) step:? (?P<step>\d+),.*?loss: (?P<loss>[^\s,]+)"
    r".*?ips ?: ?(?P<rate>[\d.]+) sequences/s"
)


def launched(head: str) -> dict[str, str]:
    """Nodes and their devices, as paddle.distributed.launch says them."""
    found = {}
    if nodes := re.search(r"LAUNCH INFO [\d-]+ [\d:,]+ nnodes: (\d{1,5})\s", head):
        found["nodes"] = nodes[1]
    devices = re.search(r"LAUNCH INFO [\d-]+ [\d:,]+ devices: ([\d,]{1,999})\s", head) or re.search(
        r"distributed\.launch [^\n]{0,500}?--(?:gpus|devices)[ =]['\"]?([\d,]{1,999})", head
    )
    if devices:
        found["devices_per_node"] = str(len(devices[1].strip(",").split(",")))
    return found


def told(head: str) -> dict[str, str]:
    found = launched(head)
    if name := argument("model_name_or_path", head):
        found["model"] = name
    if re.search(r"use_(?:amp|pure_fp16)['\"]?\s{0,9}[:=]\s{0,9}True|--use_(?:amp|pure_fp16)[ =]True", head):
        found["precision"] = "amp"
    return found


FORMAT = Format(
    name="paddle-nlp",
    title="PaddleNLP 2.x's BERT",
    framework="paddle",
    unit="sentences/s",
    needle=b"sequences/s",
    logs=(Log(re.compile(LINE), first=1, rate_of="device"),),
    column=MEAN,
    publisher=mean_of(0, 10**9, per_device),
    estimator="mean_of_rates",
    whole=True,
    steps=10**9,
    who="the mean of its lines' rates per card, times cards",
    facts={"batch": "batch_size", "steps": "max_steps"},
    told=told,
    demands=re.compile(r"max_predictions_per_seq|run_pretrain|mlm_loss|^(?:total|global|tobal) step", re.MULTILINE),
    otherwise="nothing in it tells that it is of pre-training",
)
