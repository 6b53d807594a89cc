"""PaddleCV 1.8's image classification."""

from __future__ import annotations

from dlperf.importlogs.format import Format, from_seconds, mean_of

FORMAT = Format(
    name="paddle-resnet50",
    title="PaddleCV 1.8's image classification",
    framework="paddle",
    unit="img/s",
    needle=b", train batch ",
    logs=("paddle-models/resnet50",),
    publisher=mean_of(20, 120, from_seconds, digits=4),
    estimator="mean_of_rates",
    who="DLPerf's extract_paddle_logs.py",
    facts={"batch": "batch_size", "model": "model", "steps": "max_iter"},
    batch="node",
    seconds="one",
)
