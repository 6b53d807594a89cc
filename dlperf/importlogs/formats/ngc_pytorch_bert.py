"""NVIDIA's BERT pre-training for PyTorch, by dllogger."""

from __future__ import annotations

import re

from dlperf.importlogs.format import Format, Total, ordinals

FORMAT = Format(
    name="ngc-pytorch-bert",
    title="NVIDIA's BERT for PyTorch",
    framework="pytorch",
    unit="sequences/s",
    needle=b"Training Iteration:",
    logs=("ngc-pytorch/bert_base",),
    publisher=ordinals(20, 120, after=5),
    who="DLPerf's extract_pytorch_logs_time.py --train_batches 120",
    warmup=25,
    facts={"batch": "train_batch_size", "accumulation": "gradient_accumulation_steps", "steps": "max_steps"},
    totals=(
        Total(
            "training_sequences_per_second",
            re.compile(r"training_sequences_per_second : (?P<value>[\d.]+)"),
            b"training_sequences_per_second",
            "samples_over_seconds",
            doubt="by the script's own clock, over all its steps",
        ),
    ),
    amp=re.compile(r"\b(fp16|amp)=True"),
)
