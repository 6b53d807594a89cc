"""OneFlow-Benchmark's BERT."""

from __future__ import annotations

import re

from dlperf.importlogs.format import Format, labels, unrounded

FORMAT = Format(
    name="oneflow-bert",
    title="OneFlow-Benchmark's BERT",
    framework="oneflow",
    unit="sentences/s",
    needle=b"total_loss:",
    logs=("oneflow-benchmark/bert_base",),
    rounded=unrounded,
    publisher=labels(20, 120, unrounded),  # it calls its first step 0
    who="DLPerf's extract_bert_result.py",
    facts={"nodes": "num_nodes", "devices_per_node": "gpu_num_per_node", "batch": "batch_size_per_device"},
    demands=re.compile("mlm_loss:"),
    otherwise="it has no loss of masked words: fine-tuning, which is not pre-training",
)
