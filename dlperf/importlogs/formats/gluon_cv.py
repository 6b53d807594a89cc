"""gluon-cv's image classification."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import Said, argument
from dlperf.importlogs.format import Format, Total, counted_from, mean_of, printed

#: others that log by MXNet's Speedometer have no learning rate, gluon-cv's other scripts a loss besides
LINE = (
    r"Epoch\[\d+\] Batch \[(?P<step>\d+)\]\s+Speed: (?P<rate>[\d.]+) samples/sec"
    r"\s+(?!loss)[\w-]+=[\d.]+\s+lr=[\d.e-]+\s*$"
)


def told(head: str) -> dict[str, str]:
    """One process has all devices; the script for Horovod has no such argument."""
    every = argument("num_gpus", head)
    return {"nodes": Said("1", every.at), "devices_per_node": every} if every and every != "0" else {}


FORMAT = Format(
    name="gluon-cv",
    title="gluon-cv's image classification",
    framework="mxnet",
    unit="img/s",
    needle=b"Speed: ",
    begins=re.compile(r"\brec_train_idx="),
    logs=("gluon-cv/resnet50", Log(re.compile(LINE), first=1)),
    publisher=mean_of(20, 120, printed, digits=2, exact=True),
    estimator="mean_of_rates",
    who="DLPerf's extract_mxnet_logs.py",
    first=counted_from,
    facts={"batch": "batch_size", "model": "model", "type": "dtype"},
    told=(told,),
    totals=(
        Total(
            "speed of an epoch",
            re.compile(
                r"(?:Epoch\[|\[Epoch )\d+\]\s+[Ss]peed: (?P<value>[\d.]+) samples/sec(?:\s+time cost: [\d.]+)?\s*$"
            ),
            b"samples/sec",
            "last_printed",
            doubt="of a whole epoch, its first steps too",
        ),
    ),
)
