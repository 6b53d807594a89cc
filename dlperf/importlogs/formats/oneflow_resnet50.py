"""OneFlow-Benchmark's ResNet-50."""

from __future__ import annotations

from dlperf.importlogs.format import Format, labels

FACTS = {"nodes": "num_nodes", "devices_per_node": "gpu_num_per_node", "batch": "batch_size_per_device"}
FORMAT = Format(
    name="oneflow-resnet50",
    title="OneFlow-Benchmark's ResNet-50",
    framework="oneflow",
    model="resnet50",
    unit="img/s",
    needle=b"samples/s:",
    logs=("oneflow-benchmark/resnet50",),
    publisher=labels(20, 120),
    who="DLPerf's extract_cnn_result.py",
    facts={**FACTS, "model": "model"},
)
