"""NVIDIA's ResNet-50 for MXNet, as of 2019, where each rank logs."""

from __future__ import annotations

from dlperf.importlogs.format import Format, ordinals

FORMAT = Format(
    name="ngc-mxnet",
    title="NVIDIA's ResNet-50 for MXNet (2019)",
    framework="mxnet",
    model="resnet50",
    unit="img/s",
    needle=b":INFO: Epoch[0] Batch [",
    logs=("ngc-mxnet/resnet50",),
    publisher=ordinals(20, 120, every_rank=True),
    who="DLPerf's extract_mxnet_logs_time.py",
    facts={"batch": "batch_size", "model": "arch", "steps": "benchmark_iters"},
    batch="global",
)
