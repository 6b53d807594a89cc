"""NVIDIA's BERT pre-training for TensorFlow 1, by dllogger."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import Said, argument, bert
from dlperf.importlogs.format import Format, Total, labels

LINE = (
    r"DLL (?P<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) - Iteration: (?P<step>\d+) "
    r" *throughput_train : (?P<rate>[\d.]+) .*?total_loss : (?P<loss>\S+)"
)


def told(head: str) -> dict[str, str]:
    """Passes of a step, by the script's argument or that of NVIDIA's shell script; without Horovod, one device."""
    parts = argument("num_accumulation_steps", head) or argument("num_accumulation_steps_phase1", head)
    found: dict[str, str] = {"accumulation": parts} if parts else {}
    if (horovod := argument("horovod", head)) and horovod == "False":
        found["devices"] = Said("1", horovod.at)
    return found


FORMAT = Format(
    name="ngc-tensorflow1-bert",
    title="NVIDIA's BERT for TensorFlow 1",
    framework="tensorflow",
    unit="sentences/s",
    needle=b"throughput_train :",
    begins=re.compile(r"\b(?:dllog_path|num_accumulation_steps): "),
    logs=(Log(re.compile(LINE), first=1, every=10, timestamp="%Y-%m-%d %H:%M:%S.%f"),),
    publisher=labels(20, 120),
    who="DLPerf's extract_tensorflow_logs_time.py",
    facts={"batch": "train_batch_size", "steps": "num_train_steps"},
    told=(bert, told),
    demands=re.compile("mlm_loss"),
    otherwise="it has no loss of masked words: fine-tuning, which is not pre-training",
    totals=(
        Total(
            "throughput_train",
            re.compile(r"DLL [\d-]+ [\d:.]+ - +throughput_train : (?P<value>[\d.]+)"),
            b"throughput_train :",
            "samples_over_seconds",
            doubt="by the script's own clock, without the first steps after each checkpoint",
        ),
    ),
    amp=("amp", "use_fp16", "manual_fp16"),
    process="device",
)
