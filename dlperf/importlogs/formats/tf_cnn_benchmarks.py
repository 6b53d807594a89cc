"""tf_cnn_benchmarks."""

from __future__ import annotations

import re

from dlperf.errors import whole_number
from dlperf.importlogs.facts import said
from dlperf.importlogs.format import Format, Total


def told(head: str) -> dict[str, str]:
    """The batch of a device, and how many devices share that of all; one node where its list has all of them, and
    names no jobs."""
    each = re.search(r"(?<![\w.])(\d{1,7})(?:\.0)? per device", head)  # a float under Python 3
    every = re.search(r"Batch size: +(\d{1,9}) global", head)
    found: dict[str, str] = {"batch": said(each)} if each else {}
    if each and every and (part := whole_number(each[1])) and int(every[1]) % part == 0:
        found["devices"] = said(every, str(int(every[1]) // part))
        mine = re.search(r"Devices: +\[([^\]\n]*)\]", head)
        if mine and not re.search("job:|horovod", mine[1]) and str(mine[1].count(",") + 1) == found["devices"]:
            found |= {"nodes": said(mine, "1"), "devices_per_node": said(mine, found["devices"])}
    return found


def workers(head: str) -> int:
    """Those that print rates of their own, but the total of all: with Horovod each has one device, else those of its
    list."""
    devices = whole_number(told(head).get("devices", "")) or 1
    if re.search(r"SingleSess: +True", head):
        return 1
    if re.search(r"Variables: +horovod|horovod/\w+:\d", head):
        return devices
    mine = re.search(r"Devices: +\[([^\]\n]*)\]", head)
    return max(1, devices // (mine[1].count(",") + 1)) if mine else 1


FORMAT = Format(
    name="tf-cnn-benchmarks",
    title="tf_cnn_benchmarks",
    framework="tensorflow",
    unit="img/s",
    needle=b"images/sec:",
    begins=re.compile(r"\b(?:SingleSess|Mode|Num batches): +\w|images/sec: [\d.]+ \+/-"),
    logs=(),
    warmup=0,
    facts={"model": "Model", "steps": "Num batches"},
    told=(told,),
    workers=workers,
    totals=(
        Total(
            "samples over seconds",
            re.compile(r"(?:^|[\s>:])total images/sec: (?P<value>[\d.]+)\s*$"),
            b"images/sec:",
            "samples_over_seconds",
            doubt="its own count, after its warm-up",
        ),
        Total(
            "images/sec of its last line",
            re.compile(r"(?:^|[\s>:])\d+\s+images/sec: (?P<value>[\d.]+) \+/-"),
            b"images/sec:",
            "last_printed",
            of="worker",
        ),
    ),
)
