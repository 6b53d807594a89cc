# ruff: noqa: E501 - lines of logs
"""What is no log of training that can be read, and what is said of it."""

import re

import pytest
from commands import call
from invented_logs import CASES, figures, oneflow, refused, written

from dlperf.figures import published
from dlperf.importlogs import read

CNN = ["Model:       resnet50_v1.5", "Mode:        training", "SingleSess:  False", "             64 per device"]


@pytest.mark.parametrize("name", ["pytorch-examples", "oneflow-resnet50", "ngc-tensorflow1-bert", "ngc-mxnet"])
def test_what_a_mail_quotes_is_no_log(name, tmp_path):
    quoted = written(tmp_path, ["Hi,", "it is slow:", *(f"> {line}" for line in CASES[name][0]), "Why?"])
    assert "it quotes lines of" in refused(quoted, precision="fp32")


def test_a_sum_in_a_sentence_is_no_log(tmp_path):
    said = ['We got "total images/sec: 372.11".', "training_sequences_per_second : 4011.5 is what NVIDIA has."]
    for line in said:
        assert refused(written(tmp_path, [line]))
    assert "neither its head nor a step" in refused(written(tmp_path, ["total images/sec: 372.11"]))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (["Running resnet50: num_gpu_per_node = 8, num_nodes = 1.", "model = resnet50", "Loading data"], "OneFlow-Benchmark's convolutional networks, but has no line of a step"),
        (["Running BERT Pretrain: num_gpu_per_node = 8, num_nodes = 1."], "OneFlow-Benchmark's BERT, but"),
        ([*CNN, "tensorflow.ResourceExhaustedError: OOM when allocating tensor"], "tf_cnn_benchmarks, but has no line of a step; it ran out of memory"),
        (["INFO:tensorflow:  num_accumulation_steps: 1", "***** Running training *****"], "NVIDIA's BERT for TensorFlow 1, but"),
        (["DLL 2020-09-15 14:28:44.498443 - PARAMETER arch : resnet50  batch_size : 256  optimizer_batch_size : -1 "], "NVIDIA's convolutional networks for PyTorch, but"),
        (["=> creating model 'resnet50'", "RuntimeError: CUDA out of memory."], "pytorch/examples' imagenet, but has no line of a step; it ran out of memory"),
        (["==        PaddleClas is powered by PaddlePaddle !        =="], "PaddleClas 2.x, but"),
    ],
)  # fmt: skip
def test_a_log_that_ends_before_its_first_step(head, says, tmp_path):
    assert says in refused(written(tmp_path, head))


def mllog(key, value, at=1000, **metadata):
    metadata = ", ".join(f'"{name}": {one}' for name, one in metadata.items())
    return f':::MLLOG {{"time_ms": {at}, "key": "{key}", "value": {value}, "metadata": {{{metadata}}}}}'


@pytest.mark.parametrize("benchmark", ["maskrcnn", "ssd", "dlrm_dcnv2", "rnnt", "gpt3"])
def test_other_benchmarks_of_mlperf_are_named(benchmark, tmp_path):
    lines = [mllog("submission_benchmark", f'"{benchmark}"'), mllog("run_start", "null", 2000)]
    lines += [mllog("run_stop", "null", 62000, status='"success"')]
    assert f"it is MLPerf's {benchmark}; of MLPerf's benchmarks only resnet and bert" in refused(
        written(tmp_path, lines)
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("=> using pre-trained model 'resnet50'\nTest: [  0/196]\tTime 1.1", "2: evaluation, which is not training"),
        ("task_name: XNLI", "fine-tuning"),
        ("Model:       resnet50_v1.5\nMode:        forward only\ntotal images/sec: 1053.18", "2: evaluation or inference, which is not training"),
        ("torchrun run_squad.py\nTraining Iteration: -\nDLL 1 - training_sequences_per_second : 1054.1  final_loss : 6.0", "1: fine-tuning, which is not pre-training"),
        ("Namespace(num_segments=1, use_tsn=False, video_loader=True)\n[Epoch 000] speed: 71.4 samples/sec", "it looks like the log of gluon-cv's action recognition"),
        ("<!DOCTYPE html>\n<html><pre>total images/sec: 2840.11</pre></html>", "it is a web page, not a log"),
        ("Testbatch 10,loss 1.0, acc1 0.7,acc5 0.9,time 0.2 sec", "evaluation"),
        ("validation: epoch 0, iter 20, top_1: 0.001, top_k: 0.005, samples/s: 900.1 1597934844.1", "evaluation"),
        ("[09/15/2022-14:28:53] [I] === Performance summary ===", "trtexec"),
        ("Namespace(mode='train', test_io=True)", "test_io"),
        ("DLL 2020 - Epoch: 0 Iteration: 5 train_loss : 4.3 train_items_per_sec : 300.1 items/s", "speech synthesis"),
        ("Done benchmarking. Total images: 12800\ttotal time: 31.2\tAverage images/sec: 410.2\tMedian images/sec: 411.9", "object detection"),
        ("900 time 1602836865.74 loss 0.5900", "Wide & Deep"),
        ("2021-02-22 10:14:58,497 - INFO - Run Worker Begin", "parameter servers"),
        ("LOG (nnet3-train[5.5]:Print():nnet-training.cc:348) Average objective", "Kaldi"),
        ("2020/09/15 14:28:56.123, Tesla V100-SXM2-16GB, 96 %, 14321 MiB, 281.12 W", "nvidia-smi"),
        ('{"bert": {"1n1g": {"average_speed": 112.67}}}', "it is JSON, not a log"),
        ("\n".join(f"INFO:root:[Epoch 1 Batch {at}0/115] loss=0.05, lr=0.1, metrics:accuracy:0.6" for at in range(9)), "no line is of a format"),
        ("\n".join(f"step {at}, Epoch 1, loss 12.3, Throughput 12.0 utt/s" for at in range(9)), "no line is of a format"),
        ("name,gpus,rate\nA,8,5600.0\nB,8,5700.0", "it is a table of values between commas, not a log"),
    ],
)  # fmt: skip
def test_what_else_a_file_is(line, says, tmp_path):
    assert says in refused(written(tmp_path, [line]))


CODE = """import argparse
from extract_util import extract_result

parser = argparse.ArgumentParser()

def extract_info_from_file(log_file):
    '''
    {}
    '''
    return log_file

if __name__ == "__main__":
    extract_result(args, extract_info_from_file)
"""
PAGE = "# ResNet50\n\n## How to run\n\n```\n{}\n```\n\n## Figures\n\n```\nnone\n```\n"
TRACE = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    import torch
from the fork: def main():
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [(CODE, "it is source code"), (PAGE, "it is a page in Markdown"), ("#!/bin/sh\n{}", "it is a script")],
)
def test_what_quotes_lines_of_a_log(text, says, tmp_path):
    place = written(tmp_path, [text.format("\n".join(oneflow()))])
    assert f"{says}, not a log; give --format if it is one" in refused(place)
    assert figures(place, named="oneflow-resnet50")
    assert figures(written(tmp_path, [TRACE, *oneflow()]))


@pytest.mark.parametrize(
    "end",
    [
        "F0820 cuda_util.cpp:88] Check failed: error == cudaSuccess : out of memory (2)\nAborted (core dumped)",
        'Traceback (most recent call last):\n  File "a.py", line 9\nValueError: x',
        "Killed",
        "mpirun noticed that process rank 3 exited on signal 9 (Killed).",
    ],
)
def test_a_log_that_ends_in_a_crash(end, tmp_path):
    found = figures(written(tmp_path, [*oneflow(), end]))[read.OURS]
    assert f"it ends in a crash: {end.splitlines()[0][:20]!r}"[:-1] in found.doubt
    assert "crash" not in figures(written(tmp_path, [end, *oneflow()]))[read.OURS].doubt
    stopped = [*oneflow(), "Traceback (most recent call last):", "KeyboardInterrupt"]
    assert "crash" not in figures(written(tmp_path, stopped))[read.OURS].doubt


def test_blocks_of_mlperf_where_it_tells_no_epochs_and_the_rates_that_it_tracks(tmp_path):
    lines = [
        mllog("submission_benchmark", '"resnet"'),
        mllog("train_samples", "50000"),
        mllog("run_start", "null", 2000),
    ]
    for at in range(3):
        lines += [mllog("block_start", "null", 3000 + 10000 * at, epoch_count=4, first_epoch_num=1 + 4 * at)]
        lines += [mllog("tracked_stats", f'{{"throughput": {20000 + at}.0}}', 9000 + 10000 * at, step=at)]
        lines += [mllog("block_stop", "null", 12500 + 10000 * at, first_epoch_num=1 + 4 * at)]
    lines += [mllog("run_stop", "null", 62000, status='"success"')]
    found = figures(written(tmp_path, lines))
    assert found[read.OURS].value == pytest.approx(50000 * 12 / 29.5, abs=0.01)
    assert found["publisher's estimator"].value == 20001.0
    assert found["publisher's estimator"].estimator == "mean_of_rates"
    assert found["run_start to run_stop"].value == 1.0


@pytest.mark.parametrize(
    ("batch", "schedule", "samples", "epochs", "wanted"),
    [
        (440, 8103, 3565320, 1137, 2 * 1137 * 440 / 4000),  # Google's BERT of v0.7 counts steps
        (448, 6700, 156725653, 1, None),  # the whole data, of which it took a part
        (None, None, 3565320, 1137, None),
        (440, None, 1281167, 4, 8 * 1281167 / 4000),
        (448, 6700, 1275008, 1, 2 * 1275008 / 4000),
    ],
)
def test_epochs_of_mlperf_that_cannot_be(batch, schedule, samples, epochs, wanted, tmp_path):
    lines = [mllog("submission_benchmark", '"bert"'), mllog("train_samples", samples), mllog("run_start", "null", 1)]
    lines += [mllog("global_batch_size", batch)] if batch else []
    lines += [mllog("opt_learning_rate_training_steps", schedule)] if schedule else []
    for at in range(3):  # the last one does not end
        lines += [mllog("block_start", "null", 1000 + 2000000 * at, epoch_count=epochs, first_epoch_num=1)]
        lines += [mllog("block_stop", "null", 2001000 + 2000000 * at)] if at < 2 else []
    lines += [mllog("run_stop", "null", 5000000, status='"success"')]
    found = figures(written(tmp_path, lines))
    if wanted:
        assert found[read.OURS].value == pytest.approx(wanted, abs=0.01)
        assert ("its epoch_count counts steps: 2274 of 440" in found[read.OURS].doubt) == (epochs == 1137)
    else:
        assert read.OURS not in found
        assert "it cannot have trained on that many" in found["run_start to run_stop"].doubt


def test_copies_of_one_log_are_one_run(tmp_path):
    for run in (1, 2, 3):
        lines = [*oneflow(), *(["the other one"] if run == 3 else [])]
        written(tmp_path, lines, name=f"r50_b32_fp32_{run}.log")
    (tmp_path / "bz32" / "empty.log").touch()
    (tmp_path / "bz32" / "empty2.log").touch()
    for name in ("a.md", "b.md"):
        (tmp_path / "bz32" / name).write_text("# Logs\n")
    ended = call("importlogs", tmp_path / "bz32", "-o", tmp_path / "made")
    assert ended.returncode == 0, ended.stderr
    says = (
        "r50_b32_fp32_2.log: not read: it is the same log as 4n8g/r50_b32_fp32_1.log, byte for byte, which counts once"
    )
    assert says in ended.stderr
    assert ended.stderr.count("byte for byte") == 1
    assert ended.stderr.count("it is empty") == 2
    found = published.read((tmp_path / "made" / "figures.csv").read_text().splitlines(keepends=True))
    assert {one.options["runs"] for one in found if one.estimator == "median_of_runs"} == {"2"}


SIZED = {"nodes": "4", "devices_per_node": "8", "batch": "32", "precision": "fp32"}


@pytest.mark.parametrize("asked", [{}, {"named": "tensorflow-resnet50"}, {"model": "resnet50"}])
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("I0917 12:01:00.244876 139 resnet_cifar_main.py:88] cifar10", "it tells of 'resnet_cifar'"),
        ("468/468 - 12s - d_loss: 0.2 - g_loss: 1.3", "it tells of 'd_loss'"),
        ("'model': {'name': 'EfficientNet', 'model_params': {}}, 'dataset': 'imagenet2012'", "it tells of 'EfficientNet'"),
        ("python official/recommendation/ncf_keras_main.py --model_dir=/resnet", "it tells of 'ncf_keras_main.py'"),
    ],
)  # fmt: skip
def test_time_history_of_another_network_or_task_is_never_read_as_resnet50(line, says, asked, tmp_path):
    place = written(tmp_path, [*CASES["tensorflow-resnet50"][0], line])
    assert says in refused(place, **asked, **SIZED)


def test_time_history_is_resnet50s_where_log_path_or_flag_tells(tmp_path):
    lines = CASES["tensorflow-resnet50"][0]
    place = written(tmp_path, lines, "logs", "a.log")
    assert "nothing in it tells that it is of ResNet-50; --model resnet50 says" in refused(place, **SIZED)
    assert figures(place, model="rn50", **SIZED)[read.OURS].model == "resnet50"
    assert figures(place, "tensorflow-resnet50", **SIZED)[read.OURS].model == "resnet50"
    told = ["I0915 13:59:45 140 classifier_trainer.py:200] 'model': {'name': 'ResNet'}", *lines]
    assert figures(written(tmp_path, told, "logs", "b.log"), **SIZED)[read.OURS].model == "resnet50"
    assert figures(written(tmp_path, lines, "resnet50", "c.log"), **SIZED)[read.OURS].model == "resnet50"


def test_lines_of_train_steps_make_time_history_berts(tmp_path):
    both = [
        one
        for pair in zip(CASES["tensorflow-bert"][0], CASES["tensorflow-resnet50"][0] * 20, strict=True)
        for one in pair
    ]
    place = written(tmp_path, both, name="bert_b32_fp32_1.log")
    found = figures(place)[read.OURS]
    assert (found.options["format"], found.model) == ("tensorflow-bert", "bert_base")
    assert found.value == pytest.approx(CASES["tensorflow-bert"][2], rel=1e-3)
    assert "it tells of 'Train Step: 1'" in refused(place, named="tensorflow-resnet50")


@pytest.mark.parametrize("sizes", [{}, {"precision": "fp32"}, SIZED])
@pytest.mark.parametrize("lines", [CASES["ngc-pytorch-resnet50"][0], CASES["ngc-pytorch-resnet50"][0][:3]])
def test_lines_of_two_scripts_are_refused_whatever_flags_say_of_their_sizes(lines, sizes, tmp_path):
    place = written(tmp_path, [*oneflow(), *lines], "logs", "a.log")
    said = refused(place, **sizes)
    assert "Choose one with --format: ngc-pytorch-resnet50, oneflow-resnet50" in said
    assert figures(place, "oneflow-resnet50", precision="fp32")


def jumping(steps):
    """Of NVIDIA's BERT, a step each second, these steps an hour earlier."""
    return [
        f"DLL 2020-09-15 {'13' if step in steps else '14'}:{step // 60:02d}:{step % 60:02d}.000 - Training Epoch: 0 Training Iteration: {step}  average_loss : 9.1"
        for step in range(1, 141)
    ]


@pytest.mark.parametrize(
    ("steps", "line"), [(range(60, 70), 60), (range(10, 70), 70), (range(80, 200), 80), (range(100, 101), 100)]
)
def test_a_clock_that_jumps_within_the_steps_that_are_timed(steps, line, tmp_path):
    said = refused(written(tmp_path, jumping(steps)))
    assert said == f"its clock jumps at line {line}, within the steps that are timed"


@pytest.mark.parametrize(("steps", "line"), [(range(4, 9), 4), (range(130, 200), 130)])
def test_a_clock_that_jumps_elsewhere_is_a_doubt(steps, line, tmp_path):
    found = figures(written(tmp_path, jumping(steps)))[read.OURS]
    assert found.value == 1024
    assert f"its clock goes back at line {line}" in found.doubt


def test_rates_that_a_script_prints_are_read_though_the_clock_jumps(tmp_path):
    lines = [line.replace("2020-09-16", "2020-09-14") for line in CASES["ngc-tensorflow1-resnet50"][0]]
    found = figures(written(tmp_path, lines))
    assert list(found) == ["publisher's estimator"]
    assert "its clock jumps at line" in found["publisher's estimator"].doubt


def test_a_run_of_mlperfs_that_was_aborted_is_a_doubt(tmp_path):
    lines = [mllog("train_samples", "50000"), mllog("run_start", "null", 2000), mllog("epoch_start", "null", 3000)]
    lines += [mllog("throughput", "4900.0", 9000), mllog("epoch_stop", "null", 13000)]
    ended = {one: [*lines, mllog("run_stop", "null", 62000, status=f'"{one}"')] for one in ("aborted", "success")}
    found = figures(written(tmp_path, ended["aborted"]))
    assert set(found) == {read.OURS, "publisher's estimator"}
    assert all("its run_stop at line 6 tells 'aborted'" in one.doubt for one in found.values())
    whole = figures(written(tmp_path, ended["success"]))
    assert whole[read.OURS].value == found[read.OURS].value == 5000
    assert all("run_stop at" not in one.doubt for one in whole.values())


GLUON = CASES["gluon-cv"][0]
EPOCH = "[Epoch 0] speed: 1613 samples/sec\ttime cost: 794.1"


@pytest.mark.parametrize("number", ["1e400", "nan", "inf", "-5917.583"])
def test_rates_that_cannot_be_are_named_with_their_line(number, tmp_path):
    lines = [line.replace("samples/s: 5917.583", f"samples/s: {number}") for line in oneflow()]
    said = refused(written(tmp_path, lines))
    assert said == f"it looks like OneFlow-Benchmark's convolutional networks, but line 5 tells samples/s: {number}"


def test_times_that_cannot_be_are_named_with_their_line(tmp_path):
    lines = [re.sub(r"elapse [\d.]+", "elapse 0.0000", line) for line in CASES["paddle-resnet50"][0]]
    assert refused(written(tmp_path, lines)) == "line 1 tells elapse 0.0000"
    lines = [re.sub(r" [\d.]+$", f" 1{'0' * 300}.0", line) for line in oneflow()]
    assert "line 5 tells samples/s: 5917.583 100000000000... of 303 characters" in refused(written(tmp_path, lines))


def test_rates_that_are_left_out_are_a_doubt_of_what_is_read(tmp_path):
    lines = [re.sub(r"Speed: [\d.]+", "Speed: 0.000000", line) for line in GLUON]
    found = figures(written(tmp_path, [*lines, EPOCH]))
    assert list(found) == ["speed of an epoch"]
    assert "line 1 tells Speed: 0.000000" in found["speed of an epoch"].doubt
    assert "tells" not in figures(written(tmp_path, [*GLUON, EPOCH]))["speed of an epoch"].doubt


def test_sums_that_cannot_be_are_a_doubt_of_what_is_read(tmp_path):
    lines = [*CNN, "1\timages/sec: 245.6 +/- 0.0 (jitter = 0.0)\t8.1", "total images/sec: -317.29"]
    sized = {"nodes": "1", "devices_per_node": "1", "precision": "fp32"}
    last = figures(written(tmp_path, lines, "logs", "a.log"), **sized)["images/sec of its last line"]
    assert "line 6 tells total images/sec: -317.29" in last.doubt
    run = ["  Instantaneous batch size per device = 32", "  Total optimization steps = 500"]
    run += ["{'train_runtime': 0.0, 'train_samples_per_second': 10200.5}"]
    assert "line 3 tells train_runtime 0.0" in figures(written(tmp_path, run))["train_samples_per_second"].doubt


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("num_nodes = 0", "line 3 of the log ('num_nodes = 0') tells nodes 0, which cannot be; give --nnodes"),
        ("batch_size_per_device = -256", "tells batch -256, which cannot be; give --batch-size"),
        (f"batch_size_per_device = {'9' * 300}", f"tells batch {'9' * 20}, which cannot be; give --batch-size"),
    ],
)
def test_sizes_that_cannot_be_are_named_with_their_line(told, says, tmp_path):
    name = told.partition(" =")[0]
    lines = ["model = resnet50", "gpu_num_per_node = 8", told, *oneflow()]
    lines = [line for line in lines if line is told or not line.startswith(name)]
    lines += [] if name == "num_nodes" else ["num_nodes = 4"]
    place = tmp_path / "a.log"
    place.write_text("\n".join(lines) + "\n")
    assert says in refused(place, precision="fp32")
    given = {"nodes": "4"} if name == "num_nodes" else {"batch": "32"}
    assert says.partition(";")[0] in figures(place, precision="fp32", **given)[read.OURS].doubt


def test_one_log_that_is_not_read_is_told_once(tmp_path):
    place = written(tmp_path, ["hello"])
    assert "Nothing could be read" not in call("importlogs", place).stderr
    assert "Nothing could be read." in call("importlogs", place, written(tmp_path, ["world"], name="b.log")).stderr
