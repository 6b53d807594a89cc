"""NVIDIA's BERT pre-training for PyTorch, by dllogger."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlperf.catalog.script import Log
from dlperf.errors import whole_number
from dlperf.importlogs.facts import Said, argument, bert
from dlperf.importlogs.format import Format, ended, ordinals

LINE = (
    r"DLL (?P<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) - "
    r"Training Epoch: \d+ Training Iteration: (?P<step>\d+)  average_loss : "
)


def told(head: str) -> Mapping[str, str]:
    """The batch of one pass: its flag has that of all that are accumulated, the script prints the arguments after it
    has divided it."""
    if each := argument("batch_size_per_gpu", head):
        return {"batch": each}
    printed = head.partition("Namespace(")[2].partition("\n")[0]
    if divided := re.search(r"\btrain_batch_size=(\d{1,9})\b", printed):
        return {"batch": Said(divided[1], head.find("Namespace("))}
    whole = whole_number(argument("train_batch_size", head))
    parts = whole_number(argument("gradient_accumulation_steps", head) or "1")
    return {"batch": str(whole // parts)} if whole and parts and whole % parts == 0 else {}


FORMAT = Format(
    name="ngc-pytorch-bert",
    title="NVIDIA's BERT for PyTorch",
    framework="pytorch",
    unit="sequences/s",
    needle=b"Training Iteration:",
    begins=re.compile(r"\b(?:allreduce_post_accumulation|num_steps_per_checkpoint)="),
    logs=(Log(re.compile(LINE), first=1, timestamp="%Y-%m-%d %H:%M:%S.%f"),),
    publisher=ordinals(20, 120, after=5),
    who="DLPerf's extract_pytorch_logs_time.py --train_batches 120",
    warmup=25,
    facts={
        "accumulation": "gradient_accumulation_steps",
        "steps": "max_steps",
        "devices_per_node": "nproc_per_node",
        "nodes": "nnodes",
    },
    told=(bert, told),
    totals=(ended("training_sequences_per_second", "by the script's own clock, over all its steps"),),
    amp=("fp16", "amp", "16-bits training"),
    process="device",
)
