"""PaddleClas 2.x."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import MEAN, Format, argument, mean_of, per_device
from dlperf.importlogs.formats.paddle_nlp import launched

LINE = r"\[Train\]\[Epoch \d+/\d+\]\[Iter: (?P<step>\d+)/\d+\].*?ips: (?P<rate>[\d.]+) (?:images|samples)/s"


def told(head: str) -> dict[str, str]:
    """The batch of a training step, not that of evaluation, and the network."""
    found = launched(head)
    if each := re.search(r"Train\.sampler\.batch_size=(\d{1,7})\b", head):
        found["batch"] = each[1]
    else:
        train = re.search(r"\bTrain : (?!\[)", head[: 2**18])
        sampler = head[train.end() :].partition("Eval : ")[0].partition("sampler") if train else ("", "", "")
        if batch := argument("batch_size", sampler[2]):
            found["batch"] = batch
    if name := re.search(r"\bArch : ?\n.{0,200}\bname : (\w{1,80})", head):
        found["model"] = name[1]
    return found


FORMAT = Format(
    name="paddle-clas",
    title="PaddleClas 2.x",
    framework="paddle",
    unit="img/s",
    needle=b"ips:",
    logs=(Log(re.compile(LINE), rate_of="device"),),
    column=MEAN,
    publisher=mean_of(0, 10**9, per_device),
    estimator="mean_of_rates",
    whole=True,
    steps=10**9,
    who="the mean of its lines' rates per card, times cards",
    told=told,
)
