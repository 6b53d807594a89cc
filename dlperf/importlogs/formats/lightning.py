"""PyTorch Lightning's progress bar."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import said
from dlperf.importlogs.format import EVERY, Format, Total

LINE = r"Epoch \d+:\s+\d+%\|[^|\r\n]*\|\s+(?P<step>\d+)/\d+ \[(?P<timestamp>(?:\d+:)?\d\d:\d\d)<[^,\]]*,"
#: it says how many bits, and in some versions by which means
PRECISION = re.compile(r"Using (16|bfloat16|bf16)[- ]?(?:bits?|true)?[ ,][^\n]{0,40}(?:[Pp]recision|AMP|amp)")


def told(head: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if members := re.search(r"MEMBER: \d{1,5}/(\d{1,5})\b|Starting with (\d{1,5}) processes", head):
        found["devices"] = said(members, members[1] or members[2])
    if half := PRECISION.search(head):
        found["precision"] = said(half, "amp" if half[1] == "16" else "bf16")
    return found


FORMAT = Format(
    name="lightning",
    title="PyTorch Lightning's progress bar",
    framework="pytorch",
    unit="samples/s",
    needle=b"%|",
    begins=re.compile(r"\bGPU available: (?:True|False)"),
    logs=(Log(re.compile(LINE), first=1, timestamp="elapsed"),),
    steps=EVERY,
    told=(told,),
    totals=(
        Total(
            "it/s of its last line",
            re.compile(r"Epoch \d+:\s+\d+%\|[^|\r\n]*\|\s+\d+/\d+ \[[^,\]]*, +(?P<value>[\d.]+)it/s"),
            b"it/s",
            "last_printed",
            of="step",
            doubt="steps per second, times the batch of all devices; the bar smooths it or not, by its version",
        ),
    ),
    demands=re.compile(r"v_num[=:]|[Ll]ightning|Trainer\.fit|GPU available: |Sanity Checking|Params? size \(MB\)"),
    otherwise="nothing in it tells that it is: others draw such bars, too",
)
