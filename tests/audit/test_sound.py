"""Tables in which nothing is wrong: no error and no warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlperf.audit import reading
from dlperf.audit.findings import LAST_DIGIT
from dlperf.audit.rules import audit

SOUND = {
    "each device of a machine": """\
| GPU | throughput (img/s) |
|---|---|
| 0 | 401.2 |
| 1 | 402.3 |
| 2 | 399.8 |
| 3 | 400.7 |
""",
    "rates of other things in the text": """\
Before the fix 8 GPUs did 9,102 images/s. The linear target of 8 GPUs is 9,480 images/s.
Our 8-GPU run does 9,240 images/s (AMP, batch 192 per GPU).

| GPUs | images/s (AMP, batch 192 per GPU) |
|---|---|
| 1 | 1,185 |
| 8 | 9,241 |
""",
    "steps of equal times": """\
| step | step time (s) | img/s |
|---|---|---|
| 1 | 0.352 | 363.6 |
| 2 | 0.349 | 366.8 |
| 3 | 0.351 | 364.7 |
| 4 | 0.349 | 366.8 |
| 5 | 0.351 | 364.7 |
| 6 | 0.352 | 363.6 |

All steps: 365.0 images/s
""",
    "a benchmark with its own unit": """\
| Framework | Task | GPUs | Throughput |
|---|---|---|---|
| JAX | vision | 4 | 411.8 images/s |
| PyTorch | language | 4 | 40,231 tokens/s |
""",
    "two units of each framework": """\
| Framework | GPUs | Quantity | Throughput |
|---|---|---|---|
| JAX | 4 | rows | 411.8 sequences/s |
| JAX | 4 | words | 52,710 tokens/s |
| PyTorch | 4 | rows | 402.3 sequences/s |
| PyTorch | 4 | words | 51,494 tokens/s |
""",
    "a run that failed": """\
| nodes | run 1 | run 2 | run 3 | run 4 | mean (img/s) |
|---|---|---|---|---|---|
| 1 | 402.0 | 403.1 | 401.7 | 402.4 | 402.3 |
| 2 | 791.0 | 790.2 | - | 792.3 | 791.2 |
""",
    "copies of a pipeline": """\
| model | TP | PP | DP | GPUs | micro-batch | global batch | tokens/s |
|---|---|---|---|---|---|---|---|
| A | 4 | 1 | 8 | 32 | 4 | 512 | 101,200 |
| B | 4 | 2 | 8 | 64 | 2 | 768 | 91,350 |
""",
    "minutes of several sizes": """\
| GPUs | batch per GPU | minutes to train | speed-up |
|---|---|---|---|
| 4 | 512 | 88.0 | 1.00 |
| 8 | 256 | 45.6 | 1.93 |
| 16 | 128 | 24.4 | 3.61 |
""",
    "a batch of each device in a heading": """\
| GPUs | images/s, 96 per GPU | samples/s (bs32/GPU) |
|---|---|---|
| 1 | 244.1 | 201.3 |
| 4 | 951.7 | 790.2 |
| 8 | 1890.4 | 1571.8 |
""",
    "the mean beside the median": """\
| case | run1 | run2 | run3 | median | mean |
|---|---|---|---|---|---|
| 1n8g | 915.2 | 922.7 | 917.4 | 917.4 | 918.4 |
| 2n8g | 1702.3 | 1709.8 | 1711.4 | 1709.8 | 1707.8 |
""",
    "a place in an order": """\
Pre-training of BERT-base, 8x V100, AMP, batch 64 per GPU

| Framework | sequences/s | Rank |
|---|---|---|
| MXNet | 1,107.1 | 2 |
| PyTorch | 1,251.7 | 1 |
| TensorFlow | 942.6 | 3 |
""",
    "noise of two runs": """\
| GPUs | img/s |
|---|---|
| 1 | 402.1 |
| 2 | 809.6 |
| 4 | 1631.0 |
| 8 | 3262.4 |
""",
    "two bases of a strong scaling": """\
| Batch size / GPU | Grad accumulation | GPUs | tokens/s | Strong scaling |
|---|---|---|---|---|
| 64 | 4 | 1 | 3,102 | 1.00 |
| 128 | 2 | 1 | 3,540 | 1.00 |
| 64 | 1 | 4 | 12,036 | 3.40 |
| 32 | 1 | 8 | 21,410 | 6.05 |
""",
    "sizes of a model": """\
| Model | GPUs | batch per GPU | T/s |
|---|---|---|---|
| 7b | 64 | 8 | 702,114 |
| 7b | 128 | 8 | 1,398,220 |
| 30b | 64 | 4 | 158,310 |
| 30b | 128 | 4 | 311,946 |
""",
    "one rate of each device": """\
| GPUs | img/s | img/s/GPU |
|---|---|---|
| 8 | 3130.34 | 391.3 |
| 16 | 6260.30 | 391.3 |
""",
    "steps of more samples": """\
| GPUs | global batch | seq/s | it/s |
|---|---|---|---|
| 1 | 64 | 540.8 | 8.450 |
| 4 | 256 | 2110.6 | 8.245 |
| 8 | 512 | 4120.3 | 8.047 |
""",
    "a median that is a run": """\
| repeat | tokens/s |
|---|---|
| 1 | 1497.2 |
| 2 | 1501.9 |
| 3 | 1489.0 |
| median | 1497.2 |
""",
    "a batch in each column": """\
## One thread, samples/s

| Batch size | 32 | 64 | 128 |
|---|---|---|---|
| Old | 15.44 | 16.32 | 16.74 |
| New v2 | 15.97 | 17.04 | 17.60 |
""",
    "convolutions of 3 x 3 in float32": """\
| Model | GPU | Precision | GPUs | img/s |
|---|---|---|---|---|
| VGG-16 | V100-SXM2-16GB | FP32 | 1 | 221.3 |
| VGG16 | P100-SXM2-16GB | FP32 | 1 | 154.0 |
""",
    "rates before rounding": """\
| GPUs | tok/s | Weak scaling |
|---|---|---|
| 1 | 5,169 | 1.000 |
| 2 | 9,977 | 1.930 |
| 16 | 77,568 | 15.008 |
""",
    "printed again": """\
# Report

## FP32

| GPUs | img/s |
|---|---|
| 1 | 397.6 |
| 8 | 3130.3 |
| 32 | 12412.0 |

## FP32 and AMP

| GPUs | FP32 | AMP | ratio |
|---|---|---|---|
| 1 | 397.6 | 1472.7 | 3.70 |
| 8 | 3130.3 | 10629.3 | 3.40 |
| 32 | 12412.0 | 33141.0 | 2.67 |
""",
    "another network between hosts": """\
## InfiniBand

| GPUs | images/s |
|---|---|
| 1 | 401.9 |
| 16 | 6104.2 |

## TCP

| GPUs | images/s |
|---|---|
| 1 | 401.9 |
| 16 | 3920.7 |
""",
    "parameters and small images": """\
# CIFAR-10 on a V100

| Network | GPU | GPUs | Precision | images/s |
|---|---|---|---|---|
| ResNet-18 | V100 | 1 | AMP | 31,200 |
""",
    "adapters train less": """\
# LoRA fine-tuning of Llama-2 70B, A100 80GB, BF16

| GPUs | tokens/s |
|---|---|
| 8 | 9,100 |
""",
    "activations computed twice": """\
| GPUs | model | tokens/s | TFLOP/s per GPU |
|---|---|---|---|
| 8 | q-3b | 101,200 | 232.8 |
| 16 | q-3b | 199,600 | 229.5 |
| 32 | q-3b | 392,400 | 300.8 |
| 64 | q-3b | 771,000 | 221.6 |
""",
    "prose that rounds, and speaks of others": """\
On 8 GPUs we see about 21,700 images/s in BF16, and 9,180 images/s in TF32.

| GPUs | BF16 images/s |
|---|---|
| 1 | 2,790 |
| 8 | 21,730 |
""",
    "a change that is shown": """\
## Before the fix

| GPUs | tokens/s |
|---|---|
| 1 | 12,480 |
| 2 | 24,610 |
| 4 | 40,120 |

## After the fix

| GPUs | tokens/s |
|---|---|
| 1 | 12,480 |
| 2 | 24,610 |
| 4 | 48,900 |
""",
    "a ratio of what is not printed": """\
| GPUs | images/s | loader/GPU ratio |
|---|---|---|
| 1 | 402 | 1.00 |
| 2 | 799 | 0.98 |
| 4 | 1590 | 0.91 |
| 8 | 3020 | 0.80 |
""",
    "a ratio that heads name otherwise": """\
| gpus | img/s | images/J |
|---|---|---|
| 1 | 402.5 | 1.00 |
| 2 | 795.6 | 0.96 |
| 4 | 1570.8 | 0.91 |
| 8 | 3090.2 | 0.84 |
""",
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_table_has_neither_error_nor_warning(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    path.write_text(SOUND[name], encoding="utf-8")
    assert [one for one in audit(reading.file(path)) if one.severity != LAST_DIGIT] == []
