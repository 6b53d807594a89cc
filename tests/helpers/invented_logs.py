# ruff: noqa: E501 - lines of logs
"""Logs of each format, with invented values."""

import math
from datetime import datetime, timedelta

import numpy
import pytest

from dlperf.importlogs import read
from dlperf.importlogs.formats import formats
from dlperf.importlogs.recognise import Refused

FORMS = formats()
START = datetime(2020, 9, 15, 23, 59, 50)


def seconds(step):
    """Of a step, which vary."""
    return 0.3 + 0.01 * (step % 7)


def clock(step):
    """After so many steps."""
    return math.fsum(seconds(one) for one in range(1, step + 1))


def stamp(step, mark="."):
    return (START + timedelta(seconds=round(clock(step), 3))).strftime(f"%Y-%m-%d %H:%M:%S{mark}%f")


def moments(start, end):
    """The time between two steps as the log has it."""
    return (round(clock(end), 3) * 1000 - round(clock(start), 3) * 1000) / 1000


def written(folder, lines, case="4n8g", name="r50_b32_fp32_1.log"):
    place = folder / "bz32" / case / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(lines) + "\n")
    return place


def figures(path, named=None, **sizes):
    made = read.read(path, f"{path.parent.name}/{path.name}", FORMS, named, sizes)
    return {one.column: one for one in made.figures}


def oneflow(bert=False):
    head = ["model = resnet50", "batch_size_per_device = 32", "gpu_num_per_node = 8", "num_nodes = 4"]
    if bert:
        return head[1:] + [
            f"step: {step - 1}, total_loss: 9.1, mlm_loss: 8.0, nsp_loss: 0.7, throughput: 3155.1 {1597e6 + clock(step):.7f}"
            for step in range(20, 141, 20)
        ]
    return head + [
        f"train: epoch 0, iter {step}, loss: 7.0, top_1: 0.0, top_k: 0.1, samples/s: 5917.583 {1597e6 + clock(step):.7f}"
        for step in range(20, 121, 20)
    ]


def dll(step, text):
    return f"DLL {stamp(step)} - {text}"


def mxnet():
    """32 ranks, tagged."""
    return [
        f"[1,{rank}]<stderr>:{stamp(step, ',')[:-3]}:INFO: Epoch[0] Batch [{step - 1}-{step - 1}]\tSpeed: 392.2 samples/sec"
        for step in range(1, 121)
        for rank in range(32)
    ]


def tensorflow1(name="imgs_per_sec"):
    return [
        dll(step, f"(0, {step}) {name} : {1024 / seconds(step):.6f}  cross_entropy : 7.0  total_loss : 8.1 ")
        for step in range(20, 120)
    ]


TIMED = 1024 * 100 / moments(20, 120)
RATES = [1024 / seconds(step) for step in range(1, 121)]
MEAN = float(numpy.mean([round(one, 2) for one in RATES[20:]]))
#: lines, the format, the publisher's figure, samples over seconds; batch 32 on each of 32 devices
CASES = {
    "oneflow-resnet50": (oneflow(), TIMED, 1024 * 100 / (clock(120) - clock(20))),
    "ngc-paddle-bert": (
        [dll(step, f"Epoch: 0 Iteration: {step}  loss : 10.5  learning_rate : 0.1  step_cost : {moments(step - 10, step)}  step_samples : 320  seqs_per_sec : {320 / moments(step - 10, step)} sequences/s") for step in range(10, 241, 10)],
        float(numpy.mean([320 / moments(step - 10, step) * 32 for step in range(10, 241, 10)])),
        1024 * 240 / clock(240),
    ),
    "tensorflow-resnet50-2019": (
        ["python resnet_imagenet_main.py"] + [
            f"{by}BenchmarkMetric: {{'global step':{at}00, 'time_taken': {31.7 + at:.6f},'examples_per_second': {102400 / (31.7 + at):.6f}}}"
            for at in range(1, 8)
            for by in ("INFO:tensorflow:", "I0915 14:30:22.539302 140 keras_utils.py:86] ")
        ],
        float(numpy.mean([102400 / (31.7 + at) for at in range(2, 8)])),
        1024 * 600 / (31.7 * 6 + sum(range(2, 8))),
    ),
    "oneflow-bert": (oneflow(bert=True), TIMED, 1024 * 100 / (clock(120) - clock(20))),
    "ngc-pytorch-resnet50": (
        [dll(step, f"Epoch: 0 Iteration: {step - 1}  train.loss : 6.8 None train.total_ips : 3100.5 images/s") for step in range(1, 151)],
        1024 * 100 / moments(26, 126),
        1024 * 100 / moments(26, 126),
    ),
    "ngc-pytorch-bert": (
        [dll(step, f"Training Epoch: 0 Training Iteration: {step}  average_loss : 9.1  step_loss : 9.0 ") for step in range(1, 151)],
        1024 * 100 / moments(25, 125),
        1024 * 100 / moments(25, 125),
    ),
    "ngc-tensorflow1-resnet50": (
        tensorflow1(),
        float(numpy.mean([round(1024 / seconds(step), 2) for step in range(20, 120)])),
        1024 * 99 / moments(20, 119),
    ),
    "ngc-tensorflow1-bert": (
        [dll(at, "Iteration: 1  throughput_train : 3100.03 seq/s mlm_loss : 9.0  total_loss : 9.1 ") for at in (1, 2, 3)]
        + [dll(step, f"Iteration: {step}  throughput_train : 3100.03 seq/s mlm_loss : 9.0  total_loss : 9.1 ") for step in range(10, 121, 10)],
        TIMED,
        TIMED,
    ),
    "ngc-mxnet": (mxnet(), TIMED, TIMED),
    "ngc-mxnet-dllogger": (
        [f"[1,0]<stdout>:{dll(step, f'Epoch: 1 Iteration: {step - 1}  train.loss : 6.9  train.ips : {RATES[step - 1]} images/s')}" for step in range(1, 121)],
        None,
        TIMED,
    ),
    "gluon-cv": (
        [f"Epoch[0] Batch[{step - 1}]\tSpeed: {RATES[step - 1]:.6f} samples/sec\tlr=0.1" for step in range(1, 121)],
        MEAN,
        1024 * 100 / (clock(120) - clock(20)),
    ),
    "gluon-nlp": (
        [
            f"[step {step}]\tmlm_loss=9.1\tnsp_loss=0.7\tthroughput=19.2K tks/s\tlr=0.1 time=0.2, latency={1000 * seconds(step):.1f} ms/batch"
            for step in range(1, 201)
            for _ in range(32)
        ],
        float(numpy.mean([1000.0 / round(1000 * seconds(step), 1) * 1024 for step in range(101, 201)])),
        1024 * 100 / (clock(200) - clock(100)),
    ),
    "gluon-nlp-numpy": (
        [
            f"INFO:root:06:06:43 [step {step}], Loss mlm/nsp=9.00000/0.690, Acc mlm/nsp=0.100/0.500,  LR=0.0000100, grad_norm=1.2345. Time cost={clock(step) - clock(step - 20):.2f} s, Throughput=306.1K tks/s, ETA=1.20 h"
            for step in range(20, 241, 20)
        ],
        None,
        1024 * 220 / (clock(240) - clock(20)),
    ),
    "tensorflow-resnet50": (
        [
            f"I0915 14:29:13.47 1 keras_utils.py:145] TimeHistory: {31.7 + at:.2f} seconds, {102400 / (31.7 + at):.2f} examples/second between steps {100 * at} and {100 * at + 100}"
            for at in range(6)
        ],
        float(numpy.mean([round(102400 / (31.7 + at), 2) for at in range(1, 6)])),
        1024 * 500 / (31.7 * 5 + 15),
    ),
    "tensorflow-bert": (
        [
            f"I{(START + timedelta(seconds=round(clock(step), 3))).strftime('%m%d %H:%M:%S.%f')} 140 model_training_utils.py:450] Train Step: {step}/120  / loss = 9.1"
            for step in range(1, 121)
        ],
        TIMED,
        TIMED,
    ),
    "pytorch-examples": (
        [f"Epoch: [0][{step - 1:3d}/313]\tTime  {seconds(step):.3f} ( 2.620)\tData  0.106 ( 0.075)\tLoss 6.9e+00 (6.9e+00)\tAcc@1 0.1" for step in range(1, 151)],
        1024 / (math.fsum(seconds(step) for step in range(27, 127)) / 100),
        1024 * 100 / (clock(126) - clock(26)),
    ),
    "paddle-resnet50": (
        [f"[Pass 0, train batch {step - 1}] \tloss 7.0, acc1 0.0078, acc5 0.02, lr 0.001, elapse {seconds(step):.4f} sec" for step in range(1, 121)],
        float(numpy.mean([round(one, 4) for one in RATES[20:]])),
        1024 * 100 / (clock(120) - clock(20)),
    ),
    "paddle-bert": (
        [f"epoch: 1, progress: 1/1, step: {step}, loss: 9.0, ppl: 9, next_sent_acc: 0.5, speed: {4 / seconds(step):.6f} steps/s, file: a" for step in range(1, 121)],
        float(numpy.mean([round(float(f"{4 / seconds(step):.6f}") * 256, 4) for step in range(21, 121)])),
        1024 * 100 / (clock(120) - clock(20)),
    ),
    "paddle-clas": (
        [f"[2021/06/01 12:00:00] root INFO: [Train][Epoch 1/120][Iter: {step - 1}/5005]lr: 0.1, loss: 7.0, batch_cost: {seconds(step):.5f}s, ips: {32 / seconds(step):.5f} images/sec, eta: 1" for step in range(1, 121)],
        float(numpy.mean(RATES)),
        1024 * 100 / (clock(120) - clock(20)),
    ),
    "paddle-nlp": (
        [f"total step: {step}, epoch: 0, batch: 1, loss: 9.1, avg_reader_cost: 0.00008 sec, avg_batch_cost: 0.3 sec, avg_samples: 32.0, ips: {32 / 0.3:.5f} sequences/sec" for step in range(10, 201, 10)],
        1024 / 0.3,
        1024 / 0.3,
    ),
}  # fmt: skip


def refused(path, named=None, **sizes):
    with pytest.raises(Refused) as why:
        figures(path, named, **sizes)
    return str(why.value)
