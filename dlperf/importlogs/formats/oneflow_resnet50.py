"""OneFlow-Benchmark's convolutional networks."""

from __future__ import annotations

from dlperf.importlogs.format import Format, labels, unrounded

FACTS = {"nodes": "num_nodes", "devices_per_node": "gpu_num_per_node", "batch": "batch_size_per_device"}
FORMAT = Format(
    name="oneflow-resnet50",
    title="OneFlow-Benchmark's convolutional networks",
    framework="oneflow",
    unit="img/s",
    needle=b"samples/s:",
    logs=("oneflow-benchmark/resnet50",),
    rounded=unrounded,
    publisher=labels(20, 120, unrounded),
    who="DLPerf's extract_cnn_result.py",
    facts={**FACTS, "model": "model"},
)
