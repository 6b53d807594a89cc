"""PaddleClas 2.x."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.errors import ESCAPES
from dlperf.importlogs.facts import Said, argument, said
from dlperf.importlogs.format import EVERY, MEAN, Format, mean_of, per_device

LINE = r"\[Train\]\[Epoch \d+/\d+\]\[Iter: (?P<step>\d+)/\d+\].*?ips: (?P<rate>[\d.]+) (?:images|samples)/s"


def told(head: str) -> dict[str, str]:
    """The batch of a training step, not that of evaluation, and the network."""
    found: dict[str, str] = {}
    if each := re.search(r"Train\.sampler\.batch_size=(\d{1,7})\b", head):
        found["batch"] = said(each)
    else:
        train = re.search(r"\bTrain : (?!\[)", head[: 2**18])
        sampler = head[train.end() :].partition("Eval : ")[0].partition("sampler") if train else ("", "", "")
        if batch := argument("batch_size", sampler[2]):
            found["batch"] = Said(batch, head.find(sampler[2]) + batch.at)
    if name := _network(head):
        found["model"] = name
    return found | _precision(head)


def _network(head: str) -> Said | None:
    """What its part Arch names, wherever in it: print_dict of ppcls/utils/config.py sorts arguments in some versions.
    Each part within another has four spaces."""
    arch = re.search(r"\bArch : ?\n", head)
    for line in re.finditer(r"[^\n]+", head[arch.end() : arch.end() + 2**14]) if arch else ():
        told = ESCAPES.sub("", line[0]).rpartition("INFO: ")[2]
        if not told.startswith(" " * 4):
            return None
        if arch and (name := re.match(r" {4}name : (\w{1,80})", told)):
            return Said(name[1], arch.end() + line.start())
    return None


def _precision(head: str) -> dict[str, str]:
    """By its part AMP, which newer versions always print and older ones where it is on; O2 is half in all."""
    if amp := re.search(r"\bAMP : ?\n", head):
        part = re.split(r"-{20}|\bArch : ?\n", head[amp.end() : amp.end() + 2000])[0]
        level = re.search(r"\blevel : (\w+)", part)
        off = re.search(r"\buse_amp : False", part)
        return {"precision": Said("single" if off else "fp16" if level and level[1] == "O2" else "amp", amp.start())}
    arch = re.search(r"\bArch : ?\n", head)
    return {"precision": Said("single", arch.start())} if arch else {}


FORMAT = Format(
    name="paddle-clas",
    title="PaddleClas 2.x",
    framework="paddle",
    unit="img/s",
    needle=b"ips:",
    begins=re.compile(r"PaddleClas is powered by PaddlePaddle"),
    logs=(Log(re.compile(LINE), rate_of="device"),),
    column=MEAN,
    publisher=mean_of(0, None, per_device),
    estimator="mean_of_rates",
    whole=True,
    steps=EVERY,
    who="the mean of its lines' rates per card, times cards",
    told=(told,),
)
