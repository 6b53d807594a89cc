"""pytorch/examples: imagenet."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format, by_python, mean_time

LINE = (
    r"Epoch: \[\d+\]\[\s*(?P<step>\d+)/\d+\]\s+Time\s+(?P<seconds>[\d.]+) \(\s*(?P<mean>[\d.]+)\)"
    r".*?\sLoss\s+(?P<loss>\S+) \("
)


def told(head: str) -> dict[str, str]:
    made = re.search(r"=> creating model '(\w{1,80})'", head)
    return {"model": made[1]} if made else {}


def first(groups: Mapping[str, str]) -> int:
    """Later versions, which call `progress.display(i + 1)`, count from 1: the mean of their first line is of one step,
    and nearly that line's own time. Older ones can only begin at 1 after a step 0, which is many times as slow."""
    if groups["step"] != "1":
        return 0
    return int(abs(float(groups["mean"]) - float(groups["seconds"])) <= 0.05 * float(groups["mean"]))


def clock(groups: Mapping[str, str], step: int) -> float:
    """Its second figure is the mean of all steps of the epoch."""
    return float(groups["mean"]) * step


FORMAT = Format(
    name="pytorch-examples",
    title="pytorch/examples' imagenet",
    framework="pytorch",
    unit="img/s",
    needle=b"Epoch: [",
    begins=re.compile(r"=> creating model '"),
    logs=(Log(re.compile(LINE), ranks="all"),),
    publisher=mean_time(20, 120, after=5),
    rounded=by_python,
    who="DLPerf's extract_pytorch_logs_time.py",
    warmup=26,
    named=True,
    facts={"batch": "batch_size"},
    told=(told,),
    batch="node",
    seconds="one",
    clock=clock,
    first=first,
)
