"""PyTorch Lightning's progress bar."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import Format

LINE = r"Epoch \d+:\s+\d+%\|[^|\r\n]*\|\s+(?P<step>\d+)/\d+ \[(?P<timestamp>(?:\d+:)?\d\d:\d\d)<[^,\]]*,"
FORMAT = Format(
    name="lightning",
    title="PyTorch Lightning's progress bar",
    framework="pytorch",
    unit="samples/s",
    needle=b"%|",
    logs=(Log(re.compile(LINE), first=1, timestamp="elapsed"),),
    steps=10**9,
    demands=re.compile(r"v_num[=:]|[Ll]ightning|Trainer\.fit|GPU available: |Sanity Checking|Params? size \(MB\)"),
    otherwise="nothing in it tells that it is: others draw such bars, too",
)
