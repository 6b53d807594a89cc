"""Hugging Face's Trainer."""

from __future__ import annotations

import re

from dlperf.errors import whole_number
from dlperf.importlogs.facts import argument
from dlperf.importlogs.format import Format, Total

#: of a run that went on from a checkpoint the script counts all steps, but the seconds of those since
SOUND = re.compile(
    r"\A(?!.*(?:Continuing training from (?:checkpoint|epoch|global step)|interval_samples_per_second))", re.DOTALL
)
WHOLE = "of the whole run, its first steps too"


def told(head: str) -> dict[str, str]:
    """How many devices share the batch of all, and bfloat16."""
    each = whole_number(argument("Instantaneous batch size per device", head))
    parts = whole_number(argument("Gradient Accumulation steps", head))
    every = whole_number(argument("Total train batch size (w. parallel, distributed & accumulation)", head))
    found = {"precision": "bf16"} if re.search(r"\bbf16['\"]?\s{0,9}[=:]\s{0,9}['\"]?True", head) else {}
    if each and parts and every and every % (each * parts) == 0:
        found["devices"] = str(every // (each * parts))
    return found


FORMAT = Format(
    name="transformers",
    title="Hugging Face's Trainer",
    framework="pytorch",
    unit="samples/s",
    needle=b"train_runtime",
    begins=re.compile(r"\bTrainingArguments\(|Instantaneous batch size per device"),
    logs=(),
    warmup=0,
    facts={
        "batch": "Instantaneous batch size per device",
        "accumulation": "Gradient Accumulation steps",
        "steps": "Total optimization steps",
    },
    told=(told,),
    amp=("fp16", "16-bits training"),
    process="device",
    demands=SOUND,
    otherwise="it went on from a checkpoint, and divides all steps by the seconds since, or is PaddleNLP's",
    totals=(
        Total(
            "train_samples_per_second",
            re.compile(r"train_samples_per_second['\"]?\s{0,30}[:=]\s{0,30}['\"]?(?P<value>[\d.]+)"),
            b"train_samples_per_second",
            "last_printed",
            doubt=WHOLE,
        ),
        Total(
            "samples over seconds",
            re.compile(r"\btrain_runtime['\"]?\s{0,9}[:=]\s{0,9}['\"]?(?P<seconds>[\d.]+)(?![\d.:])"),
            b"train_runtime",
            "samples_over_seconds",
            doubt=WHOLE,
        ),
    ),
)
