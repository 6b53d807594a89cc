"""OneFlow-Benchmark's BERT."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import bert
from dlperf.importlogs.format import Format, labels, unrounded
from dlperf.importlogs.formats.oneflow_resnet50 import FACTS

LINE = (
    r"step: (?P<step>\d+), total_loss: (?P<loss>[^\s,]+), "
    r".*throughput: (?P<rate>[\d.]+) (?P<timestamp>[\d.]+)"
)
#: as lines are without it, whose rate is of the steps since the line before
UNCLOCKED = LINE.replace(r" (?P<timestamp>[\d.]+)", r"\s*$")
FORMAT = Format(
    name="oneflow-bert",
    title="OneFlow-Benchmark's BERT",
    framework="oneflow",
    unit="sentences/s",
    needle=b"total_loss:",
    begins=re.compile(r"Running BERT Pretrain: num_gpu_per_node = "),
    logs=(Log(re.compile(LINE), every=20, timestamp="epoch"), Log(re.compile(UNCLOCKED), every=20)),
    rounded=unrounded,
    publisher=labels(20, 120, unrounded),  # it calls its first step 0
    who="DLPerf's extract_bert_result.py",
    facts=FACTS,
    told=(bert,),
    amp=("use_fp16",),
    demands=re.compile("mlm_loss:"),
    otherwise="it has no loss of masked words: fine-tuning, which is not pre-training",
)
