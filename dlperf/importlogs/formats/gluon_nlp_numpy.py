"""gluon-nlp's BERT pre-training of 2020 and later, with MXNet as NumPy (scripts/pretraining/run_pretraining.py)."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import EVERY, Format

#: its rate is of tokens without padding, and of the devices of one process: samples over seconds alone are read
LINE = r"\[step (?P<step>\d+)\], Loss mlm/nsp=(?P<loss>[^\s/]+)/\S+ .*?Time cost=(?P<seconds>[\d.]+) s, Throughput="
FORMAT = Format(
    name="gluon-nlp-numpy",
    title="gluon-nlp's BERT of 2020 and later",
    framework="mxnet",
    unit="sentences/s",
    needle=b"Loss mlm/nsp=",
    logs=(Log(re.compile(LINE), first=1),),
    whole=True,
    steps=EVERY,
    facts={"batch": "batch_size", "accumulation": "num_accumulated", "steps": "num_steps"},
)
