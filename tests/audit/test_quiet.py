"""Sound tables and documents that look like wrong ones: nothing is found in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlperf.audit import reading
from dlperf.audit.rules import audit

#: by file name and what it is about
QUIET = {
    "operators named mean.md": """\
| Operator | Avg Forward Time (ms) | Inputs |
|---|---|---|
| max | 34.2019 | (1024, 1024) |
| max | 36.7382 | (512, 512) |
| mean | 31.9337 | (1024, 1024) |
| min | 30.7008 | (1024, 1024) |
| nansum | 35.4 | (1024, 1024) |
""",
    "accumulation in the text.md": """\
H100, bf16, sequence length 4096, micro batch 4, gradient accumulation 8.

| GPUs | Global batch size | Tokens/s |
|---|---|---|
| 8 | 256 | 90,110 |
| 16 | 512 | 179,200 |
""",
    "other splits of a model.md": """\
| Model | GPUs | TP | PP | DP | MBS | GA | GBS | Seq | Tokens/s/GPU |
|---|---|---|---|---|---|---|---|---|---|
| GPT 70B | 256 | 4 | 4 | 16 | 1 | 32 | 512 | 8192 | 812 |
| GPT 70B | 512 | 8 | 4 | 16 | 1 | 64 | 1024 | 8192 | 838 |
""",
    "a warm-up that is told.jsonl": "".join(
        f'{{"step": {step}, "seconds": {seconds}, "samples": 256, "phase": "{phase}", "loss": {7 - step / 10}}}\n'
        for step, seconds, phase in [
            (1, 7.4, "warmup"),
            (2, 2.4, "warmup"),
            *((n, 0.21, "timed") for n in range(3, 12)),
        ]
    ),
    "a grid.rst": """\
+----------------+--------------------+
| Implementation | Throughput (img/s) |
+================+====================+
| detectron2     | 62                 |
+----------------+--------------------+
| mmdetection    | 53                 |
+----------------+--------------------+
""",
    "speedups in per cent.md": """\
| GPUs | Batch | TF32 (img/s) | Mixed precision (img/s) | Speedup (TF32 - mixed precision) | Weak scaling - TF32 |
|---|---|---|---|---|---|
| 1 | 64 | 364.27 | 662.91 | 182% | 100% |
| 4 | 64 | 1432.73 | 2581.24 | 180% | 393% |
""",
    "servers of one number of trainers.html": """\
{% verbatim %}
<p>60 trainers, images/s</p>
<table><tr><th>PServer Count</th><th>3</th><th>6</th><th>10</th></tr>
<tr><td>PaddlePaddle v2</td><td>593.4</td><td>791.3</td><td>729.7</td></tr></table>
""",
    "shares as scaling.md": """\
| GPUs | images/s | scaling |
|---|---|---|
| 1 | 371.2 | 1.000 |
| 2 | 716.4 | 0.965 |
| 4 | 1410.6 | 0.950 |
""",
    "columns of two systems.md": """\
| GPUs | images/s | images/s |
|---|---|---|
| 1 | 21.16 | 43.2 |
| 2 | 41.23 | 85.0 |
""",
    "how many runs there must be.json": """\
{"min_runs": 3, "model": "resnet50", "series": [
 {"gpus": 1, "runs": [371.0, 372.5, 371.9], "median_images_per_sec": 371.9},
 {"gpus": 8, "runs": [2871.0, 2872.5, 2871.9], "median_images_per_sec": 2871.9}]}
""",
    "tokens in the time of a step.md": """\
| GPUs | Global batch | Seq length | ms/iteration | tokens/s |
|---|---|---|---|---|
| 1 | 8 | 1024 | 188.4 | 43474 |
| 4 | 32 | 1024 | 193.1 | 169693 |
""",
    "which devices ran.tsv": """\
gpus\tgpu_count\tepochs\tbatch_size\tsamples/sec
0\t1\t10\t4096\t9541.44
4,5\t2\t10\t4096\t17416.75
1,2,3,4,5\t5\t10\t4096\t39416.75
""",
    "columns of epochs.md": """\
# Loss by epoch

| type | 0 | 40 | 80 | 240 |
|---|---|---|---|---|
| fp32 | 18.20 | 7.195 | 4.01 | 2.02 |
""",
    "one network, spelt twice.md": """\
## InceptionV3

| GPUs | img/s |
|---|---|
| 1 | 131.2 |
| 2 | 258.4 |
| 4 | 511.7 |
| 8 | 1013.9 |

## inception3

| GPUs | img/s |
|---|---|
| 1 | 131.2 |
| 2 | 258.4 |
| 4 | 511.7 |
| 8 | 1013.9 |
""",
    "EfficientNet in rows.md": """\
| 1 GPU (img/s) | ResNet-50 | EfficientNet-B0 |
|---|---|---|
| A100 | 1204.8 | 1631.7 |
""",
    "a table of one row and blanks.md": """\
| GPUs | FP32 (img/s) | AMP (img/s) |
|---|---|---|
| 1 | 975.374 | 2064.8 |
| 8 | - | - |
""",
    "decimal commas.tsv": "GPUs\tBilder/s\tBeschleunigung\n1\t367,29\t1,00\n8\t2887,65\t7,86\n32\t10917,09\t29,72\n",
    "whole numbers that are cut.md": """\
| # GPUs | GlobalBatchSize | Throughput (S/s) | Throughput (T/s) |
|---|---|---|---|
| 8 | 16 | 18 | 38336 |
| 32 | 64 | 75 | 153960 |
| 64 | 128 | 150 | 307209 |
""",
    "step_ms of two back ends.csv": "gpus,backend,step_ms,efficiency\n1,nccl,210.0,1.000\n8,nccl,221.0,0.950\n",
    "frameworks below one interface.md": """\
| GPUs | Batch Size | Keras-MXNet (img/sec) | Keras-TensorFlow (img/sec) |
|---|---|---|---|
| 1 | 32 | 135 | 52 |
| 4 | 128 | 536 | 162 |
""",
    "global batches with commas.md": """\
| GPUs | Batch / GPU | Global batch | img/s |
|---|---|---|---|
| 8 | 256 | 2,048 | 7,908 |
| 32 | 256 | 8,192 | 30,216 |
""",
    "efficiencies of rates beside those of each.md": """\
| GPUs | samples/s | Speedup | Scaling efficiency | samples/s per GPU |
|---|---|---|---|---|
| 1 | 397.64 | 1.00 | 100.0% | 397.6 |
| 8 | 3130.34 | 7.87 | 98.4% | 391.3 |
| 32 | 12411.97 | 31.21 | 97.5% | 387.9 |
""",
    "an average of totals.csv": "step,samples,seconds\n1,256,0.5\n2,256,0.25\n3,256,1.0\naverage,768,1.75\n",
    "times past midnight.csv": "run,start,end,images/s\na,23:58:10,00:02:02,120.2\nb,00:05:40,00:09:33,120.4\n",
    "steps past midnight.csv": "step,written at,img/s\n1,23:59:10,99.1\n2,00:00:02,99.4\n3,00:00:54,99.0\n",
    "doubling batches.csv": "batch,loss,img/s\n8,6.1,100.2\n16,6.2,190.1\n32,6.3,350.8\n64,6.4,610.0\n",
    "an example of the log.md": """\
The output should look like this, in this format:

```
step 10 loss 7.1 images/sec 301.2
step 20 loss 7.0 images/sec 302.0
Training finished
```

| GPUs | steps | images/sec |
|---|---|---|
| 1 | 60 | 371.0 |
""",
    "the log of another run.md": """\
One GPU of an older machine:

    step 100 loss 7.1 images/sec 91.2
    step 200 loss 7.0 images/sec 92.0

| GPUs | images/sec |
|---|---|
| 8 | 2958.0 |
""",
    "claims of warm-up and of logging.md": """\
Every case runs for 400 steps after a warm-up of 40 steps, and prints every 20 steps.

| GPUs | steps | images/sec |
|---|---|---|
| 1 | 400 | 371.0 |
| 2 | 400 | 738.2 |
""",
    "times that grow with the batch.csv": "batch,time (ms),img/s\n1,2.1,476\n8,4.9,1633\n64,28.1,2278\n512,231,2216\n",
    "a CPU among GPUs.csv": "device,img/s\nXeon CPU,0.81\nV100,380.2\nA100,790.4\nT4,180.9\n",
    "frameworks of two models.csv": (
        "framework,model,layers,GPUs,seq/s\nPyTorch,BERT-base,12,8,1012.2\nMXNet,BERT-large,24,8,333.0\n"
        "PyTorch,BERT-large,24,8,340.9\nMXNet,BERT-base,12,8,990.4\n"
    ),
    "samples of steps and tokens of samples.csv": (
        "GPUs,global batch,it/s,tokens/s\n1,8,2.0,16384\n1,16,1.5,24576\n1,32,1.0,32768\n"
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_found_in(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(QUIET[name], encoding="utf-8")
    assert [(one.rule, one.row, one.column, one.found) for one in audit(reading.file(path))] == []


@pytest.mark.parametrize(
    "text",
    [
        "| GPUs | batch | global batch - FP32 | AMP (img/s) |\n|---|---|---|---|\n| 8 | 32 | 256 | 9500.0 |\n",
        "| model | TP | PP | DP | GPUs | batch | global batch | tokens/s |\n|---|---|---|---|---|---|---|---|\n"
        "| A | 4 | 1 | 8 | 32 | 0 | 512 | 9500 |\n",
        "| model | baseline img/s | cudnn img/s | gain |\n|---|---|---|---|\n"
        "| a | 1180 | 1410 | +19.5% |\n| b | -1 | 1410 | +29.5% |\n| c | 705 | 806 | +14.3% |\n",
    ],
)
def test_odd_numbers_end_in_no_exception(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.md").write_text(text)
    audit(reading.file(tmp_path / "odd.md"))
