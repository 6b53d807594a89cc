"""pytorch/examples: imagenet."""

from __future__ import annotations

from dlperf.importlogs.format import Format, mean_time

FORMAT = Format(
    name="pytorch-examples",
    title="pytorch/examples' imagenet",
    framework="pytorch",
    unit="img/s",
    needle=b"Epoch: [",
    logs=("pytorch-examples/resnet50",),
    publisher=mean_time(20, 120, after=6),
    who="DLPerf's extract_pytorch_logs_time.py",
    warmup=26,
    facts={"batch": "batch_size", "model": "arch"},
    batch="node",
)
