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
    needle=b"Epoch ",
    logs=(Log(re.compile(LINE), first=1, timestamp="elapsed"),),
    steps=10**9,
    totals=(),
    batch="device",
)
