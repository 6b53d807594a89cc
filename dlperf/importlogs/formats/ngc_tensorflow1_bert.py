"""NVIDIA's BERT pre-training for TensorFlow 1, by dllogger."""

from __future__ import annotations

import re

from dlperf.importlogs.format import Format, Total, labels

FORMAT = Format(
    name="ngc-tensorflow1-bert",
    title="NVIDIA's BERT for TensorFlow 1",
    framework="tensorflow",
    unit="sentences/s",
    needle=b"throughput_train :",
    logs=("ngc-tensorflow1/bert_base",),
    publisher=labels(20, 120),
    who="DLPerf's extract_tensorflow_logs_time.py",
    facts={"batch": "train_batch_size", "accumulation": "num_accumulation_steps", "steps": "num_train_steps"},
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
    amp=re.compile(r"\b(amp|use_fp16)\s*[:=]\s*True"),
)
