"""PaddleNLP 2.x: BERT."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import Said, argument, switched
from dlperf.importlogs.format import EVERY, MEAN, Format, mean_of, per_device

#: it was `tobal` once
LINE = (
    r"(?:total|global|tobal) step:? (?P<step>\d+),.*?loss: (?P<loss>[^\s,]+)"
    r".*?ips ?: ?(?P<rate>[\d.]+) sequences/s"
)


def told(head: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if name := argument("model_name_or_path", head):
        found["model"] = name
    if (pure := switched(["use_pure_fp16"], head)) and pure == "amp":
        found["precision"] = Said("fp16", pure.at)
    return found


FORMAT = Format(
    name="paddle-nlp",
    title="PaddleNLP 2.x's BERT",
    framework="paddle",
    unit="sentences/s",
    needle=b"sequences/s",
    logs=(Log(re.compile(LINE), first=1, rate_of="device"),),
    column=MEAN,
    publisher=mean_of(0, None, per_device),
    estimator="mean_of_rates",
    whole=True,
    steps=EVERY,
    who="the mean of its lines' rates per card, times cards",
    facts={"batch": "batch_size", "steps": "max_steps"},
    told=(told,),
    amp=("use_amp", "use_pure_fp16"),
    demands=re.compile(r"max_predictions_per_seq|run_pretrain|mlm_loss|^(?:total|global|tobal) step", re.MULTILINE),
    otherwise="nothing in it tells that it is of pre-training",
)
