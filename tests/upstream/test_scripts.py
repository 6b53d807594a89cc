"""Scripts of others: commands against DLPerf's, figures from logs of known speed, the path with a stand-in."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy
import places
import pytest
from commands import call, records

from dlperf import models
from dlperf.catalog import checkout as checkout_
from dlperf.catalog import reader
from dlperf.catalog.environment import Replacement
from dlperf.envs import kinds
from dlperf.errors import RunError, UsageError
from dlperf.figures import rates
from dlperf.flags import DEFAULTS
from dlperf.planning import checks, plan, scripts
from dlperf.planning.spec import PROTOCOLS
from dlperf.runs.events import Stream
from dlperf.runs.execute import Exit
from dlperf.systems.upstream import Upstream
from dlperf.upstream import commands, logs, setup

compare = partial(call, "compare")
ADAPTERS = reader.adapters()
UPSTREAM = {name: adapter for name, adapter in ADAPTERS.items() if adapter.source}
GOLDEN = places.GOLDEN / "scripts"
PROTOCOL = PROTOCOLS["dlperf"]


def planned(name, model="resnet50", **given):
    """The spec and the one job of a comparison of one upstream system."""
    arguments = {**DEFAULTS, "frameworks": name, "model": model, "device": "cuda", "dry_run": True, **given}
    made = checks.from_arguments(arguments, ADAPTERS)
    rows = plan.from_spec(made, ADAPTERS)
    assert not rows.skips, rows.skips
    (job,) = rows.jobs
    return made, job


def words_of(name, model="resnet50", **given):
    made, job = planned(name, model, **given)
    return commands.command(ADAPTERS[name], job, made, "/source", "python3", "/data")


# --- commands ---------------------------------------------------------------------------------------------------------


def options(words):
    """Option -> value; True for a flag. Words that are no option, such as the program and the data, are left out."""
    found, rest = {}, list(words)
    while rest:
        name, sign, value = rest.pop(0).partition("=")
        if name.startswith("-"):
            if name == "-mca":
                name = f"-mca {rest.pop(0)}"
            following = rest[0] if rest else "-"
            flag = following.startswith("-") and not following[1:].isdigit() and " " not in following
            value = value if sign else True if flag or name in FLAGS else rest.pop(0)
            found[name] = f"{found[name]} {value}" if name in found else value
    return found


#: options without a value that stand before a word which is no option
FLAGS = {"--dynamic-loss-scale"}

RN50 = "NVIDIADeepLearningExamples/PyTorch/resnet50v1.5/scripts/single_node_train.sh"
MX50 = "NVIDIADeepLearningExamples/MxNet/Classification/RN50v1.5/runner.sh"
TF50 = "NVIDIADeepLearningExamples/TensorFlow/Classification/ConvNets/resnet50v1.5/scripts/single_node_train.sh"
TF50N = TF50.replace("single_node", "multi_node")
PTB = "NVIDIADeepLearningExamples/PyTorch/BERT/scripts/single_node_train.sh"
TFB = "NVIDIADeepLearningExamples/TensorFlow/LanguageModeling/BERT/scripts/run_pretraining_adam.sh"
#: options of MXNet's ResNet script in every run
MX50_ALWAYS = {
    "-p": "10001",
    "--start-timeout": "600",
    "--arch": "resnetv15",
    "--num-layers": "50",
    "--num-classes": "1000",
    "--mode": "train",
    "--data-train": "/data/train.rec",
    "--data-train-idx": "/data/train.idx",
    "--image-shape": "3,224,224",
    "--lr": "0.256",
    "--lr-schedule": "cosine",
    "--optimizer": "sgd",
    "--mom": "0.875",
    "--wd": "3.0517578125e-05",
    "--label-smoothing": "0.1",
    "--kv-store": "horovod",
    "--data-backend": "dali-gpu",
    "--benchmark-iters": "120",
    "--no-metrics": True,
    "--disp-batches": "1",
    "--save-frequency": "0",
    "--num-epochs": "1",
}

#: adapter, model, what is asked -> where DLPerf documents it, and every option of the command
DOCUMENTED = [
    (
        ("ngc-pytorch", "resnet50", {"precision": "amp", "nproc_per_node": "8"}),
        RN50,
        {
            "--nnodes": "1",
            "--node_rank": "0",
            "--nproc_per_node": "8",
            "--master_addr": "127.0.0.1",
            "--master_port": "29500",
            "--data-backend": "dali-cpu",
            "--raport-file": "raport.json",
            "-j8": True,
            "-p": "1",
            "--lr": "2.048",
            "--optimizer-batch-size": "-1",
            "--warmup": "8",
            "--arch": "resnet50",
            "-c": "fanin",
            "--label-smoothing": "0.1",
            "--lr-schedule": "cosine",
            "--mom": "0.125",
            "--wd": "3.0517578125e-05",
            "--workspace": ".",
            "-b": "256",
            "--epochs": "1",
            "--prof": "150",
            "--training-only": True,
            "--no-checkpoints": True,
            "--amp": True,
            "--dynamic-loss-scale": True,
        },
    ),
    (
        ("ngc-mxnet", "resnet50", {"precision": "amp", "nproc_per_node": "8"}),
        MX50,
        {
            **MX50_ALWAYS,
            "-np": "8",
            "-H": "localhost:8",
            "--dtype": "float16",
            "--amp": True,
            "--fuse-bn-relu": "1",
            "--fuse-bn-add-relu": "1",
            "--input-layout": "NCHW",
            "--conv-layout": "NHWC",
            "--batchnorm-layout": "NHWC",
            "--pooling-layout": "NHWC",
            "--gpus": "0,1,2,3,4,5,6,7",
            "--batch-size": "2048",
        },
    ),
    (
        ("ngc-mxnet", "resnet50", {"precision": "fp32"}),
        MX50,
        {
            **MX50_ALWAYS,
            "-np": "1",
            "-H": "localhost:1",
            "--dtype": "float32",
            "--input-layout": "NHWC",
            "--fuse-bn-relu": "0",
            "--fuse-bn-add-relu": "0",
            "--gpus": "0",
            "--batch-size": "128",
        },
    ),
    (
        ("ngc-tensorflow1", "resnet50", {"precision": "amp", "batch_size": "224", "compile": "on"}),
        TF50,
        {
            "--arch": "resnet50",
            "--mode": "train",
            "--iter_unit": "batch",
            "--num_iter": "120",
            "--batch_size": "224",
            "--warmup_steps": "10000",
            "--use_cosine_lr": True,
            "--label_smoothing": "0.1",
            "--lr_init": "0.001",
            "--lr_warmup_epochs": "8",
            "--momentum": "0.875",
            "--weight_decay": "3.0517578125e-05",
            "--precision": "fp32",
            "--use_tf_amp": True,
            "--use_static_loss_scaling": True,
            "--loss_scale": "128",
            "--data_dir": "/data/tfrecords",
            "--use_dali": True,
            "--data_idx_dir": "/data/dali_idx",
            "--use_xla": True,
            "--results_dir": "results",
            "--weight_init": "fan_in",
            "--display_every": "1",
        },
    ),
    (
        ("ngc-tensorflow1", "resnet50", {"nnodes": "2", "nproc_per_node": "8", "hosts": "a,b"}),
        TF50N,
        {
            "--allow-run-as-root": True,
            "-np": "16",
            "-H": "a:8,b:8",
            "-bind-to": "none",
            "-map-by": "slot",
            "-x": "LD_LIBRARY_PATH PATH",
            "-mca pml": "ob1",
            "-mca btl": "^openib",
            "-mca plm_rsh_args": "-p 12345 -q -o StrictHostKeyChecking=no",
            "-mca btl_tcp_if_include": "ib0",
            "--arch": "resnet50",
            "--mode": "train",
            "--iter_unit": "batch",
            "--num_iter": "120",
            "--batch_size": "128",
            "--warmup_steps": "0",
            "--use_cosine_lr": True,
            "--label_smoothing": "0.1",
            "--lr_init": "0.256",
            "--lr_warmup_epochs": "8",
            "--momentum": "0.875",
            "--weight_decay": "3.0517578125e-05",
            "--precision": "fp32",
            "--data_dir": "/data/tfrecords",
            "--use_dali": True,
            "--data_idx_dir": "/data/dali_idx",
            "--results_dir": "results",
            "--weight_init": "fan_in",
            "--display_every": "1",
            "--gpu_memory_fraction": "0.98",
        },
    ),
    (
        ("ngc-pytorch", "bert_base", {"precision": "amp", "batch_size": "96"}),
        PTB,
        {
            "-m": "torch.distributed.launch",
            "--nproc_per_node": "1",
            "--nnodes": "1",
            "--node_rank": "0",
            "--master_addr": "127.0.0.1",
            "--master_port": "29500",
            "--input_dir": "/data",
            "--output_dir": "results",
            "--config_file": "/source/bert_config.json",
            "--bert_model": "bert-base-uncased",
            "--train_batch_size": "96",
            "--max_seq_length": "128",
            "--max_predictions_per_seq": "20",
            "--max_steps": "150",
            "--warmup_proportion": "1",
            "--num_steps_per_checkpoint": "1000",
            "--learning_rate": "6e-3",
            "--seed": "42",
            "--fp16": True,
            "--do_train": True,
            "--json-summary": "dllogger.json",
        },
    ),
    (
        ("ngc-tensorflow1", "bert_base", {"precision": "amp", "nproc_per_node": "8"}),
        TFB,
        {
            "--allow-run-as-root": True,
            "-np": "8",
            "--bind-to": "socket",
            "--input_files_dir": "/data/tfrecord",
            "--eval_files_dir": "/data/tfrecord",
            "--output_dir": "results",
            "--bert_config_file": "/data/bert_config.json",
            "--do_train": "True",
            "--do_eval": "False",
            "--train_batch_size": "64",
            "--eval_batch_size": "16",
            "--max_seq_length": "128",
            "--max_predictions_per_seq": "20",
            "--num_train_steps": "120",
            "--num_warmup_steps": "10000",
            "--num_accumulation_steps": "1",
            "--save_checkpoints_steps": "10000",
            "--learning_rate": "1e-4",
            "--optimizer_type": "adam",
            "--horovod": True,
            "--use_fp16": True,
            "--allreduce_post_accumulation": "False",
        },
    ),
    (
        ("pytorch-examples", "resnet50", {"nproc_per_node": "8"}),
        "PyTorch/resnet50v1.5/scripts/single_node_train.sh",
        {
            "--arch": "resnet50",
            "--epochs": "1",
            "--batch-size": "1024",
            "--lr": "1.024",
            "--workers": "8",
            "--momentum": "0.125",
            "--print-freq": "1",
            "--multiprocessing-distributed": True,
            "--dist-backend": "nccl",
            "--dist-url": "tcp://127.0.0.1:11222",
            "--world-size": "1",
            "--rank": "0",
        },
    ),
    (
        ("gluon-nlp", "bert_base", {"precision": "fp16", "nproc_per_node": "4"}),
        "MxNet/BERT/pretrain.sh",
        {
            "-oversubscribe": True,
            "-np": "4",
            "-H": "localhost:4",
            "-bind-to": "none",
            "-map-by": "slot",
            "-x": "LD_LIBRARY_PATH PATH",
            "-mca pml": "ob1",
            "-mca btl": "^openib",
            "-mca plm_rsh_args": "-p 22 -q -o StrictHostKeyChecking=no",
            "-mca btl_tcp_if_include": "ib0",
            "--model": "bert_12_768_12",
            "--dtype": "float16",
            "--warmup_ratio": "1",
            "--comm_backend": "horovod",
            "--total_batch_size": "256",
            "--total_batch_size_eval": "256",
            "--accumulate": "1",
            "--lr": "1e-4",
            "--max_seq_length": "128",
            "--max_predictions_per_seq": "20",
            "--num_steps": "200",
            "--log_interval": "1",
            "--ckpt_interval": "1000",
            "--no_compute_acc": True,
            "--data": "/data/*",
        },
    ),
]


@pytest.mark.parametrize(("asked", "document", "expected"), DOCUMENTED, ids=lambda value: str(value)[:70])
def test_commands_agree_with_those_that_dlperf_documents(asked, document, expected):
    name, model, given = asked
    assert options(words_of(name, model, **given)) == expected, document


#: adapter, model -> what its batch argument is, with 32 on each of 8 devices of each of 2 nodes
BATCH_ARGUMENTS = {
    ("ngc-pytorch", "resnet50"): ("-b", "32"),
    ("ngc-pytorch", "bert_base"): ("--train_batch_size", "32"),
    ("ngc-pytorch", "bert_large"): ("--train_batch_size", "32"),
    ("ngc-mxnet", "resnet50"): ("--batch-size", "512"),
    ("ngc-tensorflow1", "resnet50"): ("--batch_size", "32"),
    ("ngc-tensorflow1", "bert_base"): ("--train_batch_size", "32"),
    ("pytorch-examples", "resnet50"): ("--batch-size", "256"),
    ("gluon-cv", "resnet50"): ("--batch-size", "32"),
    ("gluon-nlp", "bert_base"): ("--total_batch_size", "512"),
    ("oneflow-benchmark", "resnet50"): ("--batch_size_per_device", "32"),
    ("oneflow-benchmark", "bert_base"): ("--batch_size_per_device", "32"),
    ("paddle-models", "resnet50"): ("--batch_size", "256"),
    ("paddle-models", "se_resnext50"): ("--batch_size", "256"),
    ("ngc-pytorch", "transformer_big"): ("--max-tokens", "2048"),
    ("paddle-models", "vgg16"): ("--batch_size", "256"),
    ("paddle-models", "bert_base"): ("--batch_size", "4096"),
    ("tensorflow-models", "bert_base"): ("--train_batch_size", "512"),
    ("nanogpt", "gpt2"): ("--batch_size", "32"),
    ("nanogpt", "gpt2_256"): ("--batch_size", "32"),
}
MEANS = {"device": 32, "node": 256, "global": 512}
EVERY = [(name, model) for name, adapter in UPSTREAM.items() for model in adapter.scripts]
SIZE = {"batch_size": "32", "nnodes": "2", "nproc_per_node": "8", "hosts": "a,b"}


@pytest.mark.parametrize(("name", "model"), EVERY)
def test_a_batch_argument_is_of_what_the_script_means(name, model):
    words = words_of(name, model, **SIZE)
    batch = ADAPTERS[name].scripts[model].batch
    meant = 32 * models.config(model).sequence if batch == "tokens" else MEANS[batch]
    if (name, model) == ("tensorflow-models", "resnet50"):
        assert any(f"train_dataset.batch_size={meant}," in word for word in words)
        return
    option, value = BATCH_ARGUMENTS[name, model]
    assert options(words)[option] == value == str(meant)


@pytest.mark.parametrize(("name", "model"), EVERY)
@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("size", [{}, SIZE], ids=["1", "2x8"])
def test_golden_launch_scripts(name, model, precision, size, request):
    if precision == "amp" and name == "pytorch-examples":
        return
    made, job = planned(name, model, precision=precision, **size)
    adapter = ADAPTERS[name]
    environment = dataclasses.replace(setup.planned(adapter, job, made), python=Path("/environment/bin/python"))
    text = Upstream().script(adapter, job, made, 0, environment)
    file = GOLDEN / f"{name}-{model}-{precision}-{job.nnodes}n{job.nproc_per_node}d.sh"
    if request.config.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0
    assert "{" not in text.replace("${", "")


def test_the_command_of_the_issue_prints_commands_on_a_machine_without_a_gpu():
    words = ["--frameworks", "ngc-pytorch,ngc-mxnet,ngc-tensorflow1", "--model", "resnet50", "--precision", "amp"]
    ended = call("compare", *words, "--dry-run=full", PATH="/usr/bin:/bin")
    assert ended.returncode == 0, ended.stderr
    for image in ("pytorch:20.03-py3", "mxnet:20.03-py3", "tensorflow:20.03-tf1-py3"):
        assert f"docker pull nvcr.io/nvidia/{image}" in ended.stdout
        assert (
            f"    nvcr.io/nvidia/{image} \\\n" in ended.stdout.replace("  nvcr", "    nvcr", 1) or image in ended.stdout
        )
    for flag in ("--shm-size=16g", "--ulimit memlock=-1", "--privileged", "--net=host"):
        assert flag in ended.stdout
    assert "not run" not in ended.stdout


def test_steps_are_dlperfs_under_its_protocol():
    """So many it ran of each script."""
    ran = {"ngc-pytorch": 150, "gluon-nlp": 200, "tensorflow-models": 600, "oneflow-benchmark": 120, "gluon-cv": 120}
    for name, count in ran.items():
        script = next(iter(ADAPTERS[name].scripts.values()))
        assert commands.steps(script, PROTOCOL).total == count
    assert commands.steps(ADAPTERS["oneflow-benchmark"].scripts["bert_base"], PROTOCOL).total == 140


@pytest.mark.parametrize(("image", "expected"), [("25.12", "nvcr.io/nvidia/pytorch:25.12-py3"), ("mine:1", "mine:1")])
def test_an_option_chooses_the_image(image, expected):
    adapter = ADAPTERS["ngc-pytorch"]
    made, job = planned("ngc-pytorch", set=[f"image={image}"])
    assert f" {expected} " in Upstream().script(adapter, job, made, 0, setup.planned(adapter, job, made))
    assert job.about["image"] == job.image == expected


def test_options_change_command_and_declaration_alike():
    for value, flag, scale in [
        ("dynamic", "--dynamic-loss-scale", "dynamic"),
        ("static", "--static-loss-scale", "128, static"),
    ]:
        _, job = planned("ngc-pytorch", precision="amp", set=[f"loss_scale={value}"])
        assert flag in words_of("ngc-pytorch", precision="amp", set=[f"loss_scale={value}"])
        effective = scripts.declared(ADAPTERS["ngc-pytorch"].scripts["resnet50"].effective, job)
        assert effective["loss_scale"] == scale


#: adapter, model -> words that its command on a CPU has
ON_CPU = {
    ("pytorch-examples", "resnet50"): "python3 /source/main.py --arch resnet50",
    ("paddle-models", "resnet50"): "python3 /source/train.py --use_gpu=False --data_format=NCHW",
    ("paddle-models", "vgg16"): "--validate=False --model=VGG16 --batch_size=4 --print_step=1",
    ("paddle-models", "bert_base"): "--is_distributed false --use_cuda false --use_fast_executor true",
    ("tensorflow-models", "resnet50"): "distribution_strategy=mirrored,runtime.num_gpus=0,",
    ("tensorflow-models", "bert_base"): "--optimizer_type=adamw --num_gpus=0 --datasets_num_private_threads=8",
    ("gluon-cv", "resnet50"): "python3 /source/train_horovod.py --model=resnet50_v1b --use-rec",
    ("gluon-nlp", "bert_base"): "--dtype float32 --warmup_ratio 1 --comm_backend device --total_batch_size 4",
    ("nanogpt", "gpt2_256"): "/train.py --device=cpu --dtype=float32 --compile=False --dataset=/data --block_size=256 ",
}
NEEDS_GPUS = ("nccl", "distributed.launch", "mpirun", "cuda true", "gpus=1", "backend horovod")


@pytest.mark.parametrize(("name", "model"), ON_CPU)
def test_commands_on_a_cpu_have_nothing_that_needs_a_gpu(name, model):
    made, job = planned(name, model, device="cpu", threads="3")
    words = " ".join(commands.command(ADAPTERS[name], job, made, "/source", "python3", "/data"))
    assert ON_CPU[name, model] in words
    assert not [one for one in NEEDS_GPUS if one in words]
    variables = commands.variables(ADAPTERS[name], job, made, "/source", "python3", "/data")
    assert variables["OMP_NUM_THREADS"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in variables


def test_a_script_is_skipped_where_it_cannot_run():
    given = {**DEFAULTS, "frameworks": "ngc-pytorch,ngc-mxnet", "model": "bert,resnet_tiny", "dry_run": True}
    on_cpu = plan.from_spec(checks.from_arguments({**given, "device": "cpu"}, ADAPTERS), ADAPTERS)
    assert not on_cpu.jobs
    assert "needs CUDA" in on_cpu.skips[0].why
    on_gpu = plan.from_spec(checks.from_arguments({**given, "device": "cuda"}, ADAPTERS), ADAPTERS)
    assert [job.adapter for job in on_gpu.jobs] == ["ngc-pytorch"]
    assert {skip.why for skip in on_gpu.skips if skip.model == "resnet_tiny"} == {
        "its scripts train resnet50, bert_base, bert_large and transformer_big",
        "its scripts train resnet50",
    }


# --- logs -------------------------------------------------------------------------------------------------------------

BEGAN = datetime(2020, 9, 15, 23, 59, 30)
#: seconds of a step; slow at first, as compiling makes it, then in turn
SECONDS = [9.0] + [0.25, 0.5] * 400


def moments(count):
    """When each of so many steps ended, and how long it took."""
    now = 0.0
    for index in range(count):
        now += SECONDS[index]
        yield index, BEGAN + timedelta(seconds=now), SECONDS[index]


def dll(moment):
    return f"DLL {moment:%Y-%m-%d %H:%M:%S.%f} -"


def ngc_pytorch_resnet(count, batch):
    for i, at, seconds in moments(count):
        rate = batch / seconds
        yield f"{dll(at)} Epoch: 0 Iteration: {i}  train.loss : 6.80420  train.total_ips : {rate:.2f} img/s"


def ngc_pytorch_resnet_newer(count, batch):
    for i, at, seconds in moments(count):
        rates = f"train.compute_ips : {batch / seconds:.2f} images/s train.total_ips : {batch / seconds:.2f} images/s"
        yield f"{dll(at)} Epoch: 0 Iteration: {i}  train.loss : 6.8 None {rates} train.lr : 0.1"


def ngc_pytorch_bert(count, batch):
    """With the bar of progress before the line, which a carriage return ends."""
    for i, at, _ in moments(count):
        line = (
            f"Training Epoch: 0 Training Iteration: {i + 1}  average_loss : 9.1  step_loss : 9.0  learning_rate : 1e-05"
        )
        yield f"\rIteration:  {i}%|##   | {i}/9999 [00:01<00:09,  1.1it/s]\r{dll(at)} {line}"


def ngc_tensorflow1_resnet(count, batch):
    """The first twenty steps are not there."""
    for i, at, seconds in moments(count):
        if i >= 20:
            more = "cross_entropy : 6.9  l2_loss : 0.8  total_loss : 7.7  learning_rate : 0.001"
            yield f"{dll(at)} (0, {i}) imgs_per_sec : {batch / seconds!r}  {more}"


def ngc_pytorch_transformer(count, batch):
    """Every second batch has fewer tokens by half, and the others more."""
    yield "Transformer | epoch 0 | step RUN |walltime 4.100 |"
    for i, at, seconds in moments(count):
        tokens = 56 * batch * (1.5 if i % 2 else 0.5)
        speed = f"avg loss 13.912 |avg tokens {tokens:.3f} |tokens/s {tokens / seconds:.3f}"
        yield f"Transformer | epoch 0 | step {i + 1} |{speed} |walltime {(at - BEGAN).total_seconds():.3f} |"


def ngc_tensorflow1_bert(count, batch):
    """Every ten steps; the first is told three times, since two overflowed."""
    for i, at, seconds in moments(count):
        text = f"throughput_train : {batch / seconds:.3f} seq/s mlm_loss : 10.4 nsp_loss : 0.7 total_loss : 11.1"
        if i == 0:
            yield from [f"{dll(at - timedelta(seconds=one))} Iteration: 1  {text} loss_scaler : 1" for one in (4, 2, 0)]
        if (i + 1) % 10 == 0:
            yield f"{dll(at)} Iteration: {i + 1}  {text} avg_loss_step : 11.1 learning_rate : 1e-08 loss_scaler : 65536"


def ngc_mxnet(count, batch, tag="[1,0]<stderr>:"):
    for i, at, seconds in moments(count):
        time = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"
        yield f"{tag}{time}:INFO: Epoch[0] Batch [{i}-{i}]\tSpeed: {batch / seconds} samples/sec\tLR: 0.001\t"


def gluon_cv(count, batch):
    for i, _, seconds in moments(count):
        yield f"INFO:root:Epoch[0] Batch[{i + 1}] Loss[6.907]"
        yield f"INFO:root:Epoch[0] Batch[{i + 1}]\tSpeed: {batch / seconds:.2f} samples/sec"


def gluon_nlp(count, batch):
    for i, _, seconds in moments(count):
        time = f"time={seconds:.2f}, latency={1000 * seconds:.1f} ms/batch"
        yield f"INFO:root:[step {i + 1}]\tmlm_loss=10.41\tnsp_loss= 0.71\tthroughput=19.2K tks/s\tlr=0.0000010 {time}"


def oneflow_resnet(count, batch):
    for i, at, seconds in moments(count):
        if (i + 1) % 20 == 0:
            text = f"train: epoch 0, iter {i + 1}, loss: 6.98, top_1: 0.001, top_k: 0.005"
            yield f"{text}, samples/s: {batch / seconds:.3f} {(at - datetime(1970, 1, 1)).total_seconds()}"


def oneflow_bert(count, batch):
    for i, at, seconds in moments(count):
        if (i + 1) % 20 == 0:
            text = f"step: {i}, total_loss: 8.01, mlm_loss: 7.33, nsp_loss: 0.68, throughput: {batch / seconds:.3f}"
            yield f"{text} {(at - datetime(1970, 1, 1)).total_seconds()}"


def paddle_resnet(count, batch):
    for i, _, seconds in moments(count):
        yield f"[Pass 0, train batch {i}] \tloss 7.0, acc1 0.00781, acc5 0.02344, lr 0.00100, elapse {seconds:.4f} sec"


def paddle_bert(count, batch):
    for i, _, seconds in moments(count):
        text = f"epoch: 1, progress: 1/1, step: {i + 1}, loss: 9.9, ppl: 21000.0, next_sent_acc: 0.5"
        yield f"{text}, speed: {1 / seconds:f} steps/s, file: demo.gz"


def model_garden_resnet(count, batch):
    """Every hundred steps, with the seconds of all of them."""
    for i, _, _ in moments(count):
        if (i + 1) % 100 == 0:
            total = sum(SECONDS[i - 99 : i + 1])
            text = f"{total:.2f} seconds, {100 * batch / total:.2f} examples/second between steps {i - 99} and {i + 1}"
            yield f"I0915 14:29:13.473765 140000000 keras_utils.py:145] TimeHistory: {text}"


def model_garden_bert(count, batch):
    for i, at, _ in moments(count):
        yield f"I{at:%m%d %H:%M:%S.%f} 1400 model_training_utils.py:444] Train Step: {i + 1}/120  / loss = 7.86"


def pytorch_examples(count, batch):
    yield "=> creating model 'resnet50'"
    for i, _, seconds in moments(count):
        times = f"Time  {seconds:.3f} ( 2.620)\tData  0.106 ( 0.075)"
        yield f"Epoch: [0][{i:3}/313]\t{times}\tLoss 6.9782e+00 (7.0e+00)\tAcc@1   0.00 (  0.00)\tAcc@5   0.78 (  0.78)"


def nanogpt(count, batch):
    yield "step 0: train loss 10.9886, val loss 10.9881"
    for i, _, seconds in moments(count):
        yield f"iter {i}: loss 10.9886, time {1000 * seconds:.2f}ms, mfu -100.00%"


FORMATS = {
    ("ngc-pytorch", "resnet50"): [ngc_pytorch_resnet, ngc_pytorch_resnet_newer],
    ("ngc-pytorch", "bert_base"): [ngc_pytorch_bert],
    ("ngc-pytorch", "bert_large"): [ngc_pytorch_bert],
    ("ngc-pytorch", "transformer_big"): [ngc_pytorch_transformer],
    ("ngc-tensorflow1", "resnet50"): [ngc_tensorflow1_resnet],
    ("ngc-tensorflow1", "bert_base"): [ngc_tensorflow1_bert],
    ("ngc-mxnet", "resnet50"): [ngc_mxnet],
    ("gluon-cv", "resnet50"): [gluon_cv],
    ("gluon-nlp", "bert_base"): [gluon_nlp],
    ("oneflow-benchmark", "resnet50"): [oneflow_resnet],
    ("oneflow-benchmark", "bert_base"): [oneflow_bert],
    ("paddle-models", "resnet50"): [paddle_resnet],
    ("paddle-models", "se_resnext50"): [paddle_resnet],
    ("paddle-models", "vgg16"): [paddle_resnet],
    ("paddle-models", "bert_base"): [paddle_bert],
    ("tensorflow-models", "resnet50"): [model_garden_resnet],
    ("tensorflow-models", "bert_base"): [model_garden_bert],
    ("pytorch-examples", "resnet50"): [pytorch_examples],
    ("nanogpt", "gpt2"): [nanogpt],
    ("nanogpt", "gpt2_256"): [nanogpt],
}
CASES = [(name, model, written) for (name, model), several in FORMATS.items() for written in several]


def stream(tmp_path, job, text, protocol=PROTOCOL):
    """What is read from a log; a list of lines, or a text."""
    (tmp_path / "stdout.log").write_text(text if isinstance(text, str) else "".join(line + "\n" for line in text))
    return logs.read(tmp_path, ADAPTERS[job.adapter].scripts[job.model], job, protocol, {})


def rate(found):
    return sum(window.samples for window in found.windows) / sum(window.seconds for window in found.windows)


def test_every_log_format_has_a_test():
    assert set(FORMATS) == set(EVERY)


@pytest.mark.parametrize(("name", "model", "written"), CASES)
def test_a_log_of_known_speed_gives_that_speed(tmp_path, name, model, written):
    """Steps take 0.25 and 0.5 s in turn: 8/3 steps a second. A mean of rates would say 3."""
    _, job = planned(name, model, batch_size="32")
    total = commands.steps(ADAPTERS[name].scripts[model], PROTOCOL).total
    found = stream(tmp_path, job, written(total, 32))
    assert found.failure is None
    assert rate(found) == pytest.approx(32 * 8 / 3 * models.units(model), rel=1e-3)
    assert sum(window.steps for window in found.windows) in (100, 500)
    assert all(window.cpu_seconds is None for window in found.windows)


@pytest.mark.parametrize(("name", "model", "written"), CASES)
def test_the_lines_that_a_window_names_are_those_that_it_is_of(tmp_path, name, model, written):
    """With these lines alone, and what stands before the measured steps cut to nothing, the figure is the same."""
    _, job = planned(name, model, batch_size="32")
    script = ADAPTERS[name].scripts[model]
    text = list(written(commands.steps(script, PROTOCOL).total, 32))
    found = stream(tmp_path, job, text)
    for window in found.windows:
        file, _, span = window.source.rpartition(":")
        first, last = map(int, span.split("-"))
        assert file == "stdout.log"
        assert 1 <= first <= last <= len(text)
        (tmp_path / "part").write_text("\n".join(text[first - 1 : last]) + "\n")
        steps = [line.step for line in logs.lines(tmp_path / "part", script.log, job)]
        covered = steps[-1] - steps[0] + (0 if script.log.timestamp else script.log.every)
        assert covered == window.steps


def test_the_tokens_that_a_log_tells_are_counted(tmp_path):
    """Not those of a mean batch: here the steps that took 0.5 s had a third of the tokens of the others."""
    _, job = planned("ngc-pytorch", "transformer_big", batch_size="32")
    text = [line.replace("avg tokens 2688", "avg tokens 8064") for line in ngc_pytorch_transformer(150, 32)]
    found = stream(tmp_path, job, text)
    assert found.failure is None
    assert rate(found) == pytest.approx((8064 + 896) / 0.75, rel=1e-3)


def test_the_first_step_is_in_no_window_and_told_apart(tmp_path):
    _, job = planned("pytorch-examples")
    found = stream(tmp_path, job, pytorch_examples(120, 128))
    assert found.warm["first_step_seconds"] == 9.0
    assert max(window.seconds for window in found.windows) < 9.0


def test_ranks_that_tag_their_lines_are_told_apart_and_the_slowest_counts(tmp_path):
    """Rank 1 begins with rank 0, and takes a tenth more."""
    _, job = planned("ngc-mxnet", nproc_per_node="2", batch_size="16")
    zero = list(ngc_mxnet(120, 32, "[1,0]<stderr>:"))
    one = []
    for line, (_, at, _) in zip(ngc_mxnet(120, 32, "[1,1]<stdout>:"), moments(120), strict=True):
        later = BEGAN + (at - BEGAN) * 1.1
        head, mid, tail = line.partition(":INFO:")
        one.append(f"[1,1]<stdout>:{later:%Y-%m-%d %H:%M:%S},{later.microsecond // 1000:03}{mid}{tail}")
        assert head
    mixed = [line for pair in zip(zero, one, strict=True) for line in pair]
    found = stream(tmp_path, job, mixed)
    assert found.failure is None
    assert rate(found) == pytest.approx(32 * 8 / 3 / 1.1, rel=1e-3)
    assert sum(window.skew_seconds for window in found.windows) == pytest.approx(0.1 * 37.5, rel=1e-2)
    silent = stream(tmp_path, job, zero)
    assert "of 2 ranks, 1 printed no line" in silent.failure.message


def test_ranks_that_nothing_tells_apart_end_a_step_together(tmp_path):
    """DLPerf took lines 21 to 120 of eight mixed processes for a hundred steps; they are twelve. A step took the mean
    of what its ranks tell: those that wait for others cannot be slower than these for long."""
    _, job = planned("pytorch-examples", nproc_per_node="8", batch_size="4")
    lines = list(pytorch_examples(120, 32))[1:]
    slow = [line.replace("Time  0.250", "Time  0.300").replace("Time  0.500", "Time  0.600") for line in lines]
    mixed = [line for pair in zip(lines, slow, strict=True) for line in [pair[0]] * 7 + [pair[1]]]
    found = stream(tmp_path, job, mixed)
    assert found.failure is None
    assert sum(window.steps for window in found.windows) == 100
    assert rate(found) == pytest.approx(32 / (0.375 * (7 + 1.2) / 8), rel=1e-3)
    half = stream(tmp_path, job, mixed[: 8 * 60 + 3])
    assert "the log ends after step 60" in half.failure.message


@pytest.mark.parametrize(("of", "devices", "factor"), [("all", 1, 1), ("device", 16, 16), ("node", 2, 2)])
def test_a_rate_is_of_all_of_a_node_or_of_a_device(tmp_path, of, devices, factor):
    _, job = planned("gluon-cv", **SIZE)
    script = ADAPTERS["gluon-cv"].scripts["resnet50"]
    script = dataclasses.replace(script, log=dataclasses.replace(script.log, rate_of=of))
    (tmp_path / "stdout.log").write_text("".join(line + "\n" for line in gluon_cv(120, 512 / devices)))
    found = logs.read(tmp_path, script, job, PROTOCOL, {})
    assert rate(found) == pytest.approx(512 * 8 / 3, rel=1e-3)
    assert factor == devices


def test_steps_per_second_of_a_script_that_counts_nodes_already(tmp_path):
    """PaddleNLP prints, on each node, steps per second times nodes."""
    _, job = planned("paddle-models", "bert_base", **SIZE)
    twice = {"speed: 4.0": "speed: 8.0", "speed: 2.0": "speed: 4.0"}
    lines = [re.sub("speed: [24].0", lambda found: twice[found[0]], line) for line in paddle_bert(120, 0)]
    assert rate(stream(tmp_path, job, [line for line in lines for _ in "ab"])) == pytest.approx(512 * 8 / 3, rel=1e-3)


def test_a_log_in_which_a_rank_is_missing_says_so(tmp_path):
    _, job = planned("paddle-models", "bert_base", **SIZE)
    assert "no step is told 2 times" in stream(tmp_path, job, paddle_bert(120, 0)).failure.message


def test_steps_that_loss_scaling_skips_are_time_without_a_step(tmp_path):
    """After step 50, five attempts of 2 s each do not count as steps: 100 steps in 37.5 + 10 s."""
    _, job = planned("ngc-tensorflow1", "bert_base", batch_size="32", precision="amp")
    text = []
    for line in ngc_tensorflow1_bert(120, 32):
        at = datetime.strptime(" ".join(line.split()[1:3]), "%Y-%m-%d %H:%M:%S.%f")
        step = int(line.partition("Iteration: ")[2].split()[0])
        later = at + timedelta(seconds=10 if step > 50 else 0)
        text.append(f"{dll(later)} Iteration: {step} " + line.partition(f"Iteration: {step} ")[2])
        if step == 50:
            text += [f"{dll(at + timedelta(seconds=2 * n))} Iteration: 50  total_loss : 11.1" for n in range(1, 6)]
    found = stream(tmp_path, job, text)
    assert found.failure is None
    assert sum(window.seconds for window in found.windows) == pytest.approx(47.5, rel=1e-3)
    assert sum(window.samples for window in found.windows) == 100 * 32


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path):
    _, job = planned("paddle-models", batch_size="32")
    text = "".join(line + "\n" for line in paddle_resnet(120, 32))
    found = stream(tmp_path, job, text[:-8])  # "elapse 0.50" of "elapse 0.5000 sec"
    assert "the log ends after step 119 (stdout.log:119); the protocol needs 120" in found.failure.message


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ([], "no_figures", "no line of stdout.log is of the form"),
        (["\x00\xff binary", "Epoch: [0][ x/313]"], "no_figures", "no line of stdout.log is of the form"),
        (
            list(pytorch_examples(60, 32)),
            "no_figures",
            "the log ends after step 60 (stdout.log:61); the protocol needs 120",
        ),
        (
            [
                line.replace("6.9782e+00 (", "nan (") if i > 50 else line
                for i, line in enumerate(pytorch_examples(120, 32))
            ],
            "nan",
            "the loss is nan after step 51 (stdout.log:52)",
        ),
        (
            [
                line.replace("Time  0.250", "Time  0.000").replace("Time  0.500", "Time  0.000")
                for line in pytorch_examples(120, 32)
            ],
            "no_figures",
            "no time passes in stdout.log:22-41",
        ),
    ],
    ids=["empty", "binary", "short", "nan", "no time"],
)
def test_a_log_without_figures_is_a_failure_that_says_so(tmp_path, text, kind, says):
    _, job = planned("pytorch-examples", batch_size="32")
    found = stream(tmp_path, job, text)
    assert found.failure.kind == kind
    assert says in found.failure.message


def test_a_loss_that_is_nan_while_the_loss_scale_is_found_is_none_of_ours(tmp_path):
    _, job = planned("pytorch-examples", batch_size="32")
    text = [
        line.replace("6.9782e+00 (", "inf (") if i < 5 else line for i, line in enumerate(pytorch_examples(120, 32))
    ]
    assert stream(tmp_path, job, text).failure is None


def test_training_that_starts_over_ends_the_log(tmp_path):
    _, job = planned("pytorch-examples", batch_size="32")
    found = stream(tmp_path, job, [*pytorch_examples(60, 32), *pytorch_examples(120, 32)])
    assert found.failure is not None


@pytest.mark.parametrize(
    ("code", "timed_out", "printed", "kind", "says"),
    [
        (1, False, "python: can't open file\n", "crash", "exit code 1: python: can't open file; no line of"),
        (1, False, "RuntimeError: CUDA out of memory. Tried to allocate\n", "out_of_memory", "exit code 1"),
        (-9, False, "", "killed", "SIGKILL"),
        (0, True, "", "timeout", "timed out after 5 s"),
        (0, False, "", "no_figures", "no line of stdout.log"),
    ],
)
def test_what_ended_a_script_is_in_its_row(tmp_path, code, timed_out, printed, kind, says):
    _, job = planned("pytorch-examples")
    found = stream(tmp_path, job, printed)
    failure = logs.failure(Exit(code, timed_out, 5.0, False), found, tmp_path)
    assert failure.kind == kind
    assert says in failure.message


def test_a_log_that_is_larger_than_memory_is_read_in_pieces(tmp_path, monkeypatch):
    """Without ends of lines too: what stands between carriage returns is read, and no number in part."""
    _, job = planned("pytorch-examples")
    log = ADAPTERS[job.adapter].scripts[job.model].log
    text = list(pytorch_examples(120, 128))
    whole = stream(tmp_path, job, text)
    assert whole.failure is None
    monkeypatch.setattr(logs, "LONG", 200)
    (tmp_path / "stdout.log").write_text("\n".join(["x" * 10_000, *text, "x" * 10_000]) + "\n")
    noisy = [line._replace(number=line.number - 1) for line in logs.lines(tmp_path / "stdout.log", log, job)]
    (tmp_path / "stdout.log").write_text("\r".join(text) + "\n")
    one_line = list(logs.lines(tmp_path / "stdout.log", log, job))
    (tmp_path / "stdout.log").write_text("\n".join(text) + "\n")
    plain = list(logs.lines(tmp_path / "stdout.log", log, job))
    assert noisy == plain
    assert [line._replace(number=0) for line in one_line] == [line._replace(number=0) for line in plain]


@pytest.mark.parametrize("wrong", ["1e400", "nan", "9" * 5000])
def test_a_number_that_is_none_is_no_line(tmp_path, wrong):
    _, job = planned("pytorch-examples")
    text = list(pytorch_examples(120, 128))
    found = stream(tmp_path, job, [re.sub(r"Time +[0-9.]+", f"Time {wrong}", line) for line in text])
    assert found.failure.kind == "no_figures"


def test_figures_of_a_script_that_fails_afterwards_are_a_failure(tmp_path):
    _, job = planned("pytorch-examples")
    found = stream(tmp_path, job, pytorch_examples(120, 128))
    assert logs.failure(Exit(0, False, 5.0, False), found, tmp_path) is None
    assert logs.failure(Exit(3, False, 5.0, False), found, tmp_path).kind == "crash"
    assert isinstance(found, Stream)


# --- sources ----------------------------------------------------------------------------------------------------------


def git(folder, *words):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository with two commits, and an adapter of the first."""
    folder = tmp_path / "checkout"
    (folder / "imagenet").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(folder))
    (folder / "imagenet" / "main.py").write_text("print('one')\n")
    (folder / "other.py").write_text("print('other')\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    commit = git(folder, "rev-parse", "HEAD")
    adapter = ADAPTERS["pytorch-examples"]
    adapter = dataclasses.replace(adapter, source=dataclasses.replace(adapter.source, commit=commit))
    return folder, adapter


def test_a_clean_checkout_of_the_commit_is_copied(checkout, tmp_path):
    folder, adapter = checkout
    (folder / "notes.txt").write_text("untracked")
    assert checkout_.problem(adapter, folder, ["resnet50"]) is None
    checkout_.copy(adapter, folder, tmp_path / "copy", ["resnet50"])
    assert sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*.py")) == [
        "imagenet/main.py"
    ]


def test_what_a_script_does_not_need_may_be_missing(checkout, tmp_path):
    folder, adapter = checkout
    (folder / "other.py").unlink()
    assert checkout_.problem(adapter, folder, ["resnet50"]) is None
    script = dataclasses.replace(adapter.scripts["resnet50"], folder="other.py")
    both = dataclasses.replace(adapter, scripts={**adapter.scripts, "bert_base": script})
    assert checkout_.problem(both, folder, ["resnet50"]) is None
    assert "it has changes (D other.py)" in str(checkout_.problem(both, folder, ["resnet50", "bert_base"]))


def test_edits_are_made_in_the_copy_alone(checkout, tmp_path):
    folder, adapter = checkout
    change = Replacement("imagenet/main.py", "'one'", "'two'")
    copies = {"imagenet/main.py": "imagenet/other.py"}
    adapter = dataclasses.replace(adapter, source=dataclasses.replace(adapter.source, replace=(change,), copies=copies))
    checkout_.copy(adapter, folder, tmp_path / "copy", ["resnet50"])
    assert (tmp_path / "copy/imagenet/main.py").read_text() == "print('two')\n"
    assert (tmp_path / "copy/imagenet/other.py").read_text() == "print('one')\n"
    assert (folder / "imagenet/main.py").read_text() == "print('one')\n"
    assert checkout_.edited(adapter, "resnet50") == ["imagenet/main.py"]
    gone = dataclasses.replace(adapter.source, replace=(dataclasses.replace(change, old="'three'"),))
    with pytest.raises(Exception, match="has no text \"'three'\" to replace"):
        checkout_.copy(dataclasses.replace(adapter, source=gone), folder, tmp_path / "again", ["resnet50"])
    gone = dataclasses.replace(adapter.source, copies={"imagenet/none.py": "imagenet/other.py"})
    with pytest.raises(Exception, match=r"there is no imagenet/none\.py at .* to copy"):
        checkout_.copy(dataclasses.replace(adapter, source=gone), folder, tmp_path / "third", ["resnet50"])


def test_a_checkout_is_copied_as_it_is_committed(checkout, tmp_path):
    """With its links, modes and ends of lines, whatever the user has set."""
    folder, adapter = checkout
    (folder / "imagenet/run.sh").write_text("echo\n")
    (folder / "imagenet/run.sh").chmod(0o755)
    (folder / "imagenet/link").symlink_to("../imagenet/main.py")
    adapter = committed(folder, adapter)
    git(folder, "config", "tar.umask", "0777")
    git(folder, "config", "core.autocrlf", "true")
    checkout_.copy(adapter, folder, tmp_path / "copy", ["resnet50"])
    assert (tmp_path / "copy/imagenet/link").read_bytes() == b"print('one')\n"
    assert os.access(tmp_path / "copy/imagenet/run.sh", os.X_OK)
    assert not os.access(tmp_path / "copy/imagenet/main.py", os.X_OK)


@pytest.mark.parametrize("links", [{"a": "/etc/hostname"}, {"a": "../../elsewhere"}, {"a": "b/..", "b": ".."}])
def test_a_link_that_leads_out_of_a_checkout_is_refused(checkout, tmp_path, links):
    folder, adapter = checkout
    for name, target in links.items():
        (folder / "imagenet" / name).symlink_to(target)
    adapter = committed(folder, adapter)
    with pytest.raises(RunError, match="imagenet/a of the checkout leads out of it") as caught:
        checkout_.copy(adapter, folder, tmp_path / "copy", ["resnet50"])
    assert caught.value.kind == "environment"
    assert not (tmp_path / "copy").exists()


def committed(folder, adapter):
    """Everything in the folder is a new commit, and the adapter is of it."""
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "more")
    return dataclasses.replace(
        adapter, source=dataclasses.replace(adapter.source, commit=git(folder, "rev-parse", "HEAD"))
    )


def another_commit(folder):
    (folder / "other.py").write_text("print('changed')\n")
    git(folder, "commit", "-qam", "two")


def changed(folder):
    (folder / "imagenet/main.py").write_text("print('changed')\n")


def no_repository(folder):
    shutil.rmtree(folder / ".git")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (another_commit, "checkout {commit}"),
        (changed, "it has changes (M imagenet/main.py)"),
        (no_repository, "git clone https://github.com/pytorch/examples && git -C examples checkout {commit}"),
        (shutil.rmtree, "there is no such folder. Make it: git clone"),
    ],
)
def test_another_source_is_one_clear_error(checkout, spoil, says):
    folder, adapter = checkout
    spoil(folder)
    problem = checkout_.problem(adapter, folder, ["resnet50"])
    assert says.format(commit=adapter.source.commit) in str(problem)
    assert str(problem).startswith(f"--source {folder}: ")


def test_a_tag_or_branch_may_stand_for_a_commit(checkout):
    folder, adapter = checkout
    git(folder, "tag", "r1")
    named = dataclasses.replace(adapter, source=dataclasses.replace(adapter.source, commit="r1"))
    assert checkout_.problem(named, folder, ["resnet50"]) is None
    another_commit(folder)
    assert "checkout r1" in str(checkout_.problem(named, folder, ["resnet50"]))


@pytest.mark.parametrize(
    ("frameworks", "given", "says"),
    [
        ("ngc-pytorch,ngc-mxnet", "somewhere", "Name one for each: ngc-pytorch=DIR,ngc-mxnet=DIR."),
        ("ngc-pytorch", "ngc-pytorhc=somewhere", "Did you mean 'ngc-pytorch'?"),
        ("ngc-pytorch", "somewhere", "there is no such folder. Make it: git clone"),
        ("fake", "somewhere", "no framework in --frameworks runs a third-party script"),
    ],
)
def test_a_source_must_be_of_a_chosen_script(frameworks, given, says):
    arguments = {**DEFAULTS, "frameworks": frameworks, "model": "resnet50", "source": given, "dry_run": True}
    with pytest.raises(UsageError) as caught:
        checks.from_arguments({**arguments, "device": "auto"}, ADAPTERS)
    assert says in str(caught.value)


# --- the whole path, with a stand-in for the image --------------------------------------------------------------------

ENGINE = """#!/bin/sh
# a container engine that has one image, in which every command prints a log
case "$1" in
image) echo sha256:0123456789abcdef; exit 0 ;;
run) echo "$@" > "$STAND_IN/asked"; cat "$STAND_IN/log"; exit $(cat "$STAND_IN/code") ;;
esac
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"docker": ENGINE, "nvidia-smi": "#!/bin/sh\necho 'Stand-in GPU, 81559, 580.0'\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", str(tmp_path))

    def says(lines, code=0):
        (tmp_path / "log").write_text("".join(line + "\n" for line in lines))
        (tmp_path / "code").write_text(str(code))

    return says


def test_an_image_that_prints_a_log_becomes_a_record_and_a_row_of_its_own(tmp_path, stand_in):
    out = tmp_path / "out"
    stand_in(ngc_tensorflow1_resnet(120, 256))
    ended = compare("-f", "ngc-tensorflow1", "-m", "resnet50", "-p", "amp", "-r", 2, "-o", out, "--no-verify")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for record in records(out):
        assert record.done
        assert rates.throughput(record) == pytest.approx(256 * 8 / 3, rel=1e-3)
        assert record.environment["image"] == "nvcr.io/nvidia/tensorflow:20.03-tf1-py3"
        assert record.environment["digest"] == "sha256:0123456789abcdef"
        assert record.effective["loss_scale"] == "128, static"
        place, _, span = rates.source(record).rpartition(":")
        first, last = span.split("-")
        assert len((out / place).read_text().splitlines()[int(first) - 1 : int(last)]) == 100
        assert not (out / record.folder / "work").exists()
    asked = (tmp_path / "asked").read_text()
    assert "--num_iter=120" in asked
    report = (out / "report.md").read_text()
    assert "### Upstream systems" in report
    assert "stdout.log:1-100" in report
    assert "1001 classes in place of 1000" in report
    assert "NVIDIA/DeepLearningExamples at fed7ba9" in report
    assert "| relative to fastest |" not in report
    page = (out / "report.html").read_text()
    assert "<h3>Upstream systems</h3>" in page
    assert "1001 classes in place of 1000" in page
    results = json.loads((out / "results.json").read_text())
    assert results["records"][0]["windows"][0]["source"].startswith("stdout.log:")
    assert "figures_from" in (out / "results.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("lines", "code", "kind"),
    [
        (["RuntimeError: CUDA out of memory."], 1, "out_of_memory"),
        (list(ngc_tensorflow1_resnet(80, 256)), 0, "no_figures"),
        (list(ngc_tensorflow1_resnet(120, 256)), 2, "crash"),
    ],
)
def test_an_image_that_fails_is_a_row_with_its_kind(tmp_path, stand_in, lines, code, kind):
    stand_in(lines, code)
    ended = compare("-f", "ngc-tensorflow1", "-m", "resnet50", "-r", 1, "-o", tmp_path / "out")
    assert ended.returncode == 1
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == kind
    assert "Traceback" not in ended.stderr


def test_without_the_images_rows_say_what_to_pull(tmp_path):
    words = ["-f", "ngc-pytorch,ngc-mxnet,ngc-tensorflow1", "-m", "resnet50", "-p", "amp", "-r", 1]
    ended = compare(*words, "-o", tmp_path / "out", PATH="/nowhere")
    assert ended.returncode == 1, ended.stderr
    report = (tmp_path / "out" / "report.md").read_text()
    for image in ("pytorch:20.03-py3", "mxnet:20.03-py3", "tensorflow:20.03-tf1-py3"):
        pull = f"image nvcr.io/nvidia/{image} is not here: docker pull nvcr.io/nvidia/{image}"
        assert pull in ended.stdout
        assert pull in report


def test_a_script_without_an_image_says_so_where_one_is_asked_for(tmp_path):
    words = ["-f", "pytorch-examples", "-m", "resnet50", "--device", "cpu", "--env", "docker"]
    ended = compare(*words, "-o", tmp_path / "out")
    assert ended.returncode == 1
    assert "pytorch-examples runs in no image: leave out --env docker" in ended.stdout


def test_a_script_that_needs_edits_must_be_given(tmp_path, stand_in):
    stand_in([])
    ended = compare("-f", "ngc-mxnet", "-m", "resnet50", "-r", 1, "-o", tmp_path / "out")
    assert "ngc-mxnet needs its script: git clone https://github.com/NVIDIA/DeepLearningExamples" in ended.stdout


TRAIN = """
import itertools, time
print("=> creating model")
for i in itertools.count():
    time.sleep(0.002)
    print(f"Epoch: [0][{i:3}/999]\\tTime  0.020 ( 0.020)\\tData  0.0 ( 0.0)\\tLoss 6.9e+00 (7.0e+00)\\tAcc", flush=True)
"""


@pytest.mark.slow
def test_a_script_that_does_not_stop_is_ended_when_it_has_told_enough(tmp_path, checkout, monkeypatch):
    """An adapter in a folder of its own, and a checkout: no line of the core knows it."""
    folder, _ = checkout
    (folder / "imagenet" / "main.py").write_text(TRAIN)
    git(folder, "commit", "-qam", "a script that prints")
    (tmp_path / "adapters" / "theirs").mkdir(parents=True)
    toml = (ADAPTERS["pytorch-examples"].folder / "adapter.toml").read_text()
    toml = toml.replace(ADAPTERS["pytorch-examples"].source.commit, git(folder, "rev-parse", "HEAD"))
    toml = toml.replace('distribution = ["torch", "torchvision"]', 'distribution = "numpy"')
    (tmp_path / "adapters" / "theirs" / "adapter.toml").write_text(toml)
    monkeypatch.setenv("DLPERF_ADAPTERS", str(tmp_path / "adapters"))
    (tmp_path / "images").mkdir()
    words = ["-f", "theirs", "-m", "resnet50", "--device", "cpu", "--env", "current", "-b", 4, "-r", 1]
    more = ["--source", folder, "--data", tmp_path / "images", "-o", tmp_path / "out", "--timeout", 60, "--no-verify"]
    ended = compare(*words, *more)
    (theirs,) = records(tmp_path / "out")
    assert theirs.failure is None, theirs.failure
    assert rates.throughput(theirs) == pytest.approx(4 / 0.02)
    assert theirs.job.about["script"].endswith("imagenet")
    copied = tmp_path / "out" / "source" / "theirs" / "imagenet" / "main.py"
    assert copied.read_text() == TRAIN
    assert "theirs" in ended.stdout


# --- the real thing ---------------------------------------------------------------------------------------------------


def image_folders(python, given, folder):
    """Twenty images for each of two classes."""
    code = (
        "import os, sys; from PIL import Image\n"
        "for part, count in (('train', 20), ('val', 2)):\n"
        "    for name in 'ab':\n"
        "        folder = os.path.join(sys.argv[1], part, name); os.makedirs(folder)\n"
        "        for i in range(count):\n"
        "            image = Image.frombytes('RGB', (256, 256), os.urandom(3 * 256 * 256))\n"
        "            image.save(os.path.join(folder, '%d.jpg' % i))\n"
    )
    subprocess.run([python, "-c", code, folder], check=True, timeout=600)
    return folder


def image_list(python, given, folder):
    """The same, with the list that PaddleCV reads."""
    image_folders(python, given, folder)
    listed = [f"train/{name}/{i}.jpg {label}\n" for label, name in enumerate("ab") for i in range(20)]
    (folder / "train_list.txt").write_text("".join(listed))
    return folder


def demo_sentences(python, given, folder):
    """What PaddleNLP validates its demo with."""
    return Path(given) / "PaddleNLP/pretrain_language_models/BERT/data/validation"


def record_files(python, given, folder):
    """As gluon-cv reads them."""
    photos = folder.with_name("photos")
    source = ["photos", "--output", photos, "--classes", "2", "--per-class", "20"]
    packed = ["imagenet", "--source", photos, "--output", folder, "--format", "recordio"]
    for words in (source, packed):
        subprocess.run([sys.executable, "-m", "dlperf.data", *words], check=True, timeout=600)
    for name in ("rec", "idx"):
        shutil.copy(folder / "recordio" / f"train.{name}", folder / "recordio" / f"val.{name}")
    return folder / "recordio"


def rows_of_words(python, given, folder):
    """As gluon-nlp reads them: 32 rows of 128 words, of which 20 are masked."""
    folder.mkdir()
    draw = numpy.random.RandomState(1)
    numpy.savez(
        folder / "part-000.npz",
        input_ids=draw.randint(30522, size=(32, 128)),
        segment_ids=numpy.tile(numpy.arange(128) // 64, (32, 1)),
        masked_lm_positions=draw.randint(128, size=(32, 20)),
        masked_lm_ids=draw.randint(30522, size=(32, 20)),
        masked_lm_weights=numpy.ones((32, 20), "float32"),
        next_sentence_labels=draw.randint(2, size=32),
        valid_lengths=numpy.full(32, 128),
    )
    return folder


def random_tokens(python, given, folder):
    """As nanoGPT reads them."""
    folder.mkdir()
    for name in ("train", "val"):
        numpy.random.RandomState(1).randint(50257, size=10_000).astype("uint16").tofile(folder / f"{name}.bin")
    return folder


def number_after(mark):
    return lambda line: float(re.search(re.escape(mark) + r"\s*([\d.]+)", line)[1])


milliseconds = number_after("latency=")
TORCH, PADDLE = {"torch": "1.6.0", "torchvision": "0.7.0"}, {"paddlepaddle": "1.8.5"}
#: adapter, model, options, versions; what makes its data; the seconds of a step, from a line that tells them
REAL = [
    ("pytorch-examples", "resnet50", ["--set", "workers=1"], TORCH, image_folders, number_after("Time")),
    ("paddle-models", "resnet50", [], PADDLE, image_list, number_after("elapse")),
    ("paddle-models", "se_resnext50", [], PADDLE, image_list, number_after("elapse")),
    ("paddle-models", "vgg16", [], PADDLE, image_list, number_after("elapse")),
    ("paddle-models", "bert_base", [], PADDLE, demo_sentences, lambda line: 1 / number_after("speed:")(line)),
    ("gluon-cv", "resnet50", [], {"mxnet": "1.9.1"}, record_files, lambda line: 2 / number_after("Speed:")(line)),
    ("gluon-nlp", "bert_base", [], {"mxnet-mkl": "1.6.0"}, rows_of_words, lambda line: milliseconds(line) / 1000),
    ("nanogpt", "gpt2_256", [], {"torch": "2.13.0+cpu"}, random_tokens, lambda line: number_after("time")(line) / 1000),
]


@pytest.mark.framework
@pytest.mark.parametrize(
    ("name", "model", "more", "versions", "make", "seconds"), REAL, ids=[f"{one[0]}-{one[1]}" for one in REAL]
)
def test_a_script_of_others_runs_on_the_cpu(tmp_path, name, model, more, versions, make, seconds):
    """Needs a checkout at the adapter's commit, e.g. in DLPERF_PADDLE_MODELS; the environment is made if missing."""
    variable = "DLPERF_" + name.upper().replace("-", "_")
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} names no checkout of {ADAPTERS[name].source.repository}")
    environment = kinds.ensure(ADAPTERS[name], "cpu", progress=print)
    data = make(environment.python, given, tmp_path / "data")
    words = ["-f", name, "-m", model, "--device", "cpu", "-b", 2, "-r", 1, *more]
    ended = compare(*words, "--source", given, "--data", data, "-o", tmp_path / "out", "--timeout", 500)
    (record,) = records(tmp_path / "out")
    assert record.failure is None, ended.stdout + ended.stderr
    assert record.versions == versions
    log = ADAPTERS[name].scripts[model].log
    assert "loss" not in log.line.groupindex or 0 < record.windows[-1].loss < 100  # of random pixels, at a rate of 0.1
    place, _, span = rates.source(record).rpartition(":")
    first, last = map(int, span.split("-"))
    lines = (tmp_path / "out" / place).read_text().splitlines()[first - 1 : last]
    told = [seconds(line) for line in lines if log.line.search(line)]
    assert len(told) == 6
    assert rates.throughput(record) == pytest.approx(6 * 2 * models.units(model) / sum(told))
