"""Errors of published tables that are known, each with where it was seen, and that the audit finds them; and sound
tables, in which it finds none."""

from __future__ import annotations

from functools import cache

import pytest
from places import ROOT

from dlperf.audit import reading
from dlperf.audit.findings import ERROR, LAST_DIGIT, WARNING, Finding
from dlperf.audit.rules import audit

PUBLISHED = ROOT / "report" / "published"


@cache
def found(source: str) -> list[Finding]:
    return audit(reading.folder(PUBLISHED / source))


#: source, line of its document, words of the column, rule, severity
KNOWN = [
    # steps that gain more than their devices, and more devices that do less (DLPerf's report; facts, B3)
    ("dlperf-v1.0", 107, "NGC TensorFlow 1.x bsz=224", "step beyond proportional", WARNING),
    ("dlperf-v1.0", 106, "PaddlePaddle", "more devices slower", ERROR),
    ("dlperf-v1.0", 105, "MXNet", "step far below proportional", WARNING),
    # two estimators in one table, other batches, other work in one row (facts, A2 and B3)
    ("dlperf-v1.0", 89, "OneFlow", "estimators mixed", WARNING),
    ("dlperf-v1.0", 104, "OneFlow", "estimators mixed", WARNING),
    ("dlperf-v1.0", 89, "NGC TensorFlow 1.x", "mean of rates", WARNING),
    ("dlperf-v1.0", 104, "OneFlow", "batches mixed", WARNING),
    ("dlperf-v1.0", 140, "OneFlow bsz=96", "batches mixed", WARNING),
    ("dlperf-v1.0", 123, "OneFlow", "work differs", WARNING),
    ("dlperf-v1.0", 104, "NGC TensorFlow 1.x w/XLA", "work differs", WARNING),
    # 8 devices faster than 8 times one; the next table has other figures for the same (NVIDIA's README for Paddle)
    ("nvidia-paddle-resnet50", 907, "Throughput - mixed precision", "super-linear", ERROR),
    ("nvidia-paddle-resnet50", 912, "Throughput - mixed precision", "tables disagree", ERROR),
    ("nvidia-paddle-resnet50", 913, "Throughput - mixed precision", "tables disagree", ERROR),
    ("nvidia-paddle-resnet50", 906, "TF32 Training Time (90E)", "epochs at the printed rate", WARNING),
    ("nvidia-paddle-resnet50", 912, "Overhead", "last digit", LAST_DIGIT),
    # ratios that are not those of their cells, and such that are cut (NVIDIA's README for MXNet)
    ("nvidia-mxnet-resnet50", 652, "Throughput speedup", "not the ratio of its cells", ERROR),
    ("nvidia-mxnet-resnet50", 686, "Weak scaling - FP32", "not the ratio of its cells", ERROR),
    ("nvidia-mxnet-resnet50", 653, "Weak scaling - TF32", "last digit", LAST_DIGIT),
    ("nvidia-mxnet-resnet50", 688, "Throughput speedup", "last digit", LAST_DIGIT),
    # 126 x 64 is not 8192, 256 x 18 not 2048; a speedup that repeats its neighbour's (NVIDIA's README for PyTorch)
    ("nvidia-pytorch-bert", 822, "TF32 Throughput", "batch and global batch", ERROR),
    ("nvidia-pytorch-bert", 824, "Mixed Precision Throughput", "batch and global batch", ERROR),
    ("nvidia-pytorch-bert", 827, "TF32 Throughput", "batch and global batch", ERROR),
    ("nvidia-pytorch-bert", 854, "Weak scaling - FP32", "not the ratio of its cells", WARNING),
    ("nvidia-pytorch-bert", 822, "Mixed Precision Throughput", "tables disagree", WARNING),
    ("nvidia-pytorch-bert", 855, "Throughput - FP32", "above the peak", ERROR),
    ("nvidia-pytorch-bert", 833, "TF32 Strong Scaling", "last digit", LAST_DIGIT),
    ("nvidia-paddle-bert", 934, "TF32 Throughput", "batch and global batch", ERROR),
    ("nvidia-paddle-bert", 926, "Throughput - mixed precision", "implausible share of the peak", WARNING),
    ("nvidia-pytorch-resnet50", 608, "FP32 Strong Scaling", "not the ratio of its cells", WARNING),
    ("nvidia-pytorch-resnet50", 600, "Mixed Precision Strong Scaling", "last digit", LAST_DIGIT),
    ("nvidia-pytorch-resnet50", 600, "Mixed Precision Training Time (90E)", "epochs at the printed rate", WARNING),
    ("nvidia-pytorch-transformer", 427, "Throughput speedup", "last digit", LAST_DIGIT),
    # a figure that is another cell's, and bases of another machine (NVIDIA's README for TensorFlow 1)
    ("nvidia-tensorflow1-bert", 864, "Throughput - mixed precision", "repeated digits", WARNING),
    ("nvidia-tensorflow1-bert", 877, "Throughput - mixed precision", "repeated digits", WARNING),
    ("nvidia-tensorflow1-bert", 861, "Throughput - FP32", "super-linear", ERROR),
    ("nvidia-tensorflow1-bert", 861, "Throughput - FP32", "batch and global batch", ERROR),
    ("nvidia-tensorflow1-bert", 798, "Throughput - mixed precision", "step beyond proportional", ERROR),
    ("nvidia-tensorflow1-bert", 830, "Throughput - mixed precision", "super-linear", ERROR),
    ("nvidia-tensorflow1-bert", 880, "Throughput - FP32", "super-linear", ERROR),
    ("nvidia-tensorflow1-bert", 931, "Throughput - TF32", "batch and global batch", ERROR),
    ("nvidia-tensorflow1-resnet50", 561, "Throughput speedup", "last digit", LAST_DIGIT),
    ("nvidia-tensorflow1-resnet50", 594, "Time to train - mixed precision", "epochs at the printed rate", WARNING),
    ("nvidia-tensorflow1-resnet50", 572, "Throughput speedup", "ratio of unlike batches", WARNING),
    ("nvidia-tensorflow2-bert", 723, "Throughput - FP32", "step beyond proportional", WARNING),
    ("nvidia-tensorflow2-bert", 744, "Throughput - mixed precision", "step beyond proportional", ERROR),
    ("nvidia-tensorflow2-bert", 771, "Throughput - mixed precision", "tables disagree", ERROR),
    ("nvidia-tensorflow2-bert", 767, "Throughput - TF32", "tables disagree", ERROR),
    ("nvidia-tensorflow2-bert", 742, "Throughput - mixed precision", "batch and global batch", ERROR),
    ("nvidia-tensorflow2-bert", 741, "Throughput - FP32", "batch and global batch", ERROR),
    ("nvidia-tensorflow2-bert", 727, "Weak scaling - FP32", "ratio of unlike batches", WARNING),
    # efficiencies that are cut (PaddlePaddle's tables of VGG16)
    ("paddle-vgg16-cpu-ps", 116, "40", "last digit", LAST_DIGIT),
    # 0.0 where nothing ran; 8 GPUs that do more than twice what 4 do (Lambda)
    ("lambda", 15, "transformerxlbase", "no rate", WARNING),
    ("lambda", 40, "bert_base_squad", "step beyond proportional", ERROR),
    ("lambda", 42, "bert_base_squad", "super-linear", ERROR),
    # two rates in one log (MLPerf)
    ("mlperf-training-v4.1", None, "training_sequences_per_second", "two rates of one run", WARNING),
    ("mlperf-training-v5.0", None, "training_sequences_per_second", "two rates of one run", WARNING),
    ("mlperf-training-v4.0", None, "tracked_stats epoch 1", "warm-up or epoch end", WARNING),
]


@pytest.mark.parametrize(("source", "line", "column", "rule", "severity"), KNOWN)
def test_a_known_error_is_found(source: str, line: int | None, column: str, rule: str, severity: str) -> None:
    several = [
        one
        for one in found(source)
        if one.rule == rule and column in one.column and (line is None or one.where.endswith(f":{line}"))
    ]
    assert several, [one for one in found(source) if line is None or one.where.endswith(f":{line}")]
    assert several[0].severity == severity
    assert several[0].basis
    assert several[0].expected
    assert several[0].found


#: tables of sources in which nothing is known to be wrong
SOUND = [
    *(f"mlperf-training-v{number}" for number in ("2.0", "2.1", "3.0", "3.1", "4.0", "4.1", "5.0")),
    *("milabench", "oneflow-v0.3-dynamic-loss-scaling", "nvidia-pytorch-transformer", "nvidia-tensorflow1-resnet50"),
    *("paddle-collective-2020", "paddle-parameter-server-2020", "paddle-vgg16-cpu-ps", "tf-benchmarks-2017"),
]


def test_sound_tables_have_no_error() -> None:
    errors = [one for source in SOUND for one in found(source) if one.severity == ERROR]
    assert errors == []
    tables = {
        (source, one.figure.table)
        for source in SOUND
        for one in reading.folder(PUBLISHED / source).cells
        if one.figure.quantity in ("throughput", "time_to_train") and one.value
    }
    assert len(tables) >= 50


def test_of_dlperfs_six_tables_one_has_an_error() -> None:
    errors = [one for one in found("dlperf-v1.0") if one.severity == ERROR]
    assert [(one.table, one.rule) for one in errors] == [("resnet50-amp-b256", "more devices slower")]


def test_what_was_read_off_a_chart_is_in_no_arithmetic() -> None:
    for source in ("paddle-collective-2020", "paddle-parameter-server-2020"):
        assert all(one.value is None for one in reading.folder(PUBLISHED / source).cells)
        assert found(source) == []
