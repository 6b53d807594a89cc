"""Hugging Face's Trainer."""

from __future__ import annotations

import re

from dlperf.errors import whole_number
from dlperf.importlogs.facts import Said, argument, bert, said
from dlperf.importlogs.format import Format, Total

#: of a run that went on from a checkpoint the script counts all steps, but the seconds of those since
SOUND = re.compile(
    r"\A(?!.*(?:Continuing training from (?:checkpoint|epoch|global step)|interval_samples_per_second))", re.DOTALL
)
WHOLE = "of the whole run, its first steps too"


def _named(head: str) -> dict[str, str]:
    """Of a configuration that tells no sizes, what its model or the folder of it is called."""
    found = re.search(r"\"_name_or_path\": \"(?:[^\"\n]{0,500}/)?bert-(base|large)\b", head)
    return {"model": said(found, f"bert_{found[1]}")} if found else {}


def told(head: str) -> dict[str, str]:
    """How many devices share the batch of all, bfloat16, and the kind of model, of BERT with its size."""
    each = whole_number(argument("Instantaneous batch size per device", head))
    parts = whole_number(argument("Gradient Accumulation steps", head))
    every = argument("Total train batch size (w. parallel, distributed & accumulation)", head)
    whole = whole_number(every)
    found: dict[str, str] = {}
    if half := re.search(r"\bbf16['\"]?\s{0,9}[=:]\s{0,9}['\"]?True", head):
        found["precision"] = said(half, "bf16")
    if every and each and parts and whole and whole % (each * parts) == 0:
        found["devices"] = Said(str(whole // (each * parts)), every.at)
    if kind := re.search(r"\"model_type\": \"([\w-]{1,40})\"", head):
        found |= bert(head) or _named(head) if kind[1] == "bert" else {"model": said(kind)}
    return found


FORMAT = Format(
    name="transformers",
    title="Hugging Face's Trainer",
    framework="pytorch",
    unit="samples/s",
    needle=b"train_runtime",
    begins=re.compile(r"\bTrainingArguments\(|Instantaneous batch size per device|train_runtime['\"]?\s{0,30}[:=]"),
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
        Total(  # of its metrics, to hundredths
            "samples over seconds",
            re.compile(r"\btrain_runtime\s{1,30}=\s{1,30}(?P<seconds>\d+:\d\d:[\d.]+)"),
            b"train_runtime",
            "samples_over_seconds",
            doubt=WHOLE,
        ),
    ),
)
