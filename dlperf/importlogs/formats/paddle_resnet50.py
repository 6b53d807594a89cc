"""PaddleCV 1.8's image classification."""

from __future__ import annotations

import re

from dlperf.importlogs.facts import said
from dlperf.importlogs.format import Format, from_seconds, mean_of


def cards(head: str) -> dict[str, str]:
    """Those of its one process. Where a launcher started several, each of these has one, and may not say so."""
    found = re.search(r"using ParallelExecutor, (\d{1,4}) cards are used", head)
    several = re.search(r"distributed\.launch|PADDLE_TRAINER|LAUNCH INFO|selected_gpus", head)
    return {"devices_per_node": said(found)} if found and not (several and found[1] == "1") else {}


FORMAT = Format(
    name="paddle-resnet50",
    title="PaddleCV 1.8's image classification",
    framework="paddle",
    unit="img/s",
    needle=b", train batch ",
    begins=re.compile(r"\bresize_short_size : "),
    logs=("paddle-models/resnet50",),
    publisher=mean_of(20, 120, from_seconds, digits=4),
    estimator="mean_of_rates",
    who="DLPerf's extract_paddle_logs.py",
    facts={"batch": "batch_size", "model": "model", "steps": "max_iter"},
    told=(cards,),
    amp=("use_fp16",),
    batch="node",
    seconds="one",
)
