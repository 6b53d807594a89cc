# ruff: noqa: E501 - lines of logs
"""Logs of each format: the publisher's figure and samples over seconds against a count by hand."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import PurePath

import numpy
import pytest
from commands import call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invented_logs import (
    CASES,
    FORMS,
    clock,
    dll,
    figures,
    moments,
    oneflow,
    refused,
    seconds,
    stamp,
    tensorflow1,
    written,
)
from processes import wait_for, working_in

from dlperf.errors import RunError
from dlperf.figures import published
from dlperf.importlogs import many, read, runs, size
from dlperf.importlogs.format import THEIRS
from dlperf.importlogs.recognise import Refused


@pytest.mark.parametrize("name", CASES)
def test_a_log_gives_the_publishers_figure_and_samples_over_seconds(name, tmp_path):
    lines, theirs, ours = CASES[name]
    found = figures(written(tmp_path, lines))
    assert {one.options["format"] for one in found.values()} == {name}
    if theirs:
        assert found[FORMS[name].column].printed == f"{round(theirs, 2):.2f}"
    assert found[read.OURS].value == pytest.approx(ours, rel=1e-3)
    assert (found[read.OURS].nodes, found[read.OURS].devices, found[read.OURS].batch) == (4, 32, "32")
    since, until = found[read.OURS].options["lines"].split("-")
    assert 1 <= int(since) < int(until) == found[read.OURS].line <= len(lines)


def test_every_format_has_a_test():
    summed = {"lightning", "transformers", "tf-cnn-benchmarks", "mllog", "ngc-tensorflow1-benchmark"}
    assert set(FORMS) == {*CASES, *summed, "paddle-clas-static"}


def test_what_a_log_sums_up_itself(tmp_path):
    cnn = ["Model:       resnet50_v1.5", "Mode:        training", "             64 per device", "Num batches: 100"]
    cnn += [
        "Devices:     ['/gpu:0', '/gpu:1']",
        "1\timages/sec: 245.6 +/- 0.0 (jitter = 0.0)\t8.1",
        "total images/sec: 244.89",
    ]
    found = figures(written(tmp_path, cnn, "1n2g"), precision="fp32")
    ours = found[read.OURS]
    assert (ours.printed, ours.batch, ours.model, ours.steps) == ("244.890", "64", "resnet50", "100")
    hf = [
        "  Instantaneous batch size per device = 32",
        "  Gradient Accumulation steps = 2",
        "  Total optimization steps = 500",
    ]
    hf += ["{'train_runtime': 100.0, 'train_samples_per_second': 10200.5, 'train_loss': 1.1, 'epoch': 1.0}"]
    found = figures(written(tmp_path, hf))
    assert found[read.OURS].value == 1024 * 2 * 500 / 100
    assert found["train_samples_per_second"].value == 10200.5
    metrics = ["  train_runtime            = 1:01:01.25", "  train_samples_per_second =    10200.5"]
    found = figures(written(tmp_path, [*hf[:-1], *metrics]))
    assert found[read.OURS].value == pytest.approx(1024 * 2 * 500 / 3661.25)
    assert figures(written(tmp_path, [*hf, *metrics]))[read.OURS].value == 1024 * 2 * 500 / 100


def test_mllog(tmp_path):
    def event(at, key, value="null", more="{}"):
        return f':::MLLOG {{"time_ms": {at}, "key": "{key}", "value": {value}, "metadata": {more}}}'

    lines = [event(1000, "train_samples", "50000"), event(2000, "run_start"), event(3000, "epoch_start")]
    lines += [event(13000, "epoch_stop"), event(13500, "epoch_start"), event(23000, "epoch_stop")]
    lines += [event(62000, "run_stop", more='{"status": "success"}')]
    found = figures(written(tmp_path, lines))
    assert found[read.OURS].value == 100000 / 20
    assert (found["run_start to run_stop"].value, found["run_start to run_stop"].quantity) == (1.0, "time_to_train")


def test_a_progress_bar(tmp_path):
    bar = "\r".join(
        f"Epoch 0:  10%|█  | {step}/9000 [{step // 5 // 60:02d}:{step // 5 % 60:02d}<03:00,  5.00it/s, v_num=0]"
        for step in range(5, 6001, 5)
    )
    found = figures(written(tmp_path, [bar]))
    assert found[read.OURS].value == pytest.approx(1024 * 5, rel=1e-3)
    assert found["it/s of its last line"].value == 1024 * 5
    assert "tell a step again" not in found[read.OURS].doubt
    assert "1000000000" not in found[read.OURS].doubt


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["python run_squad.py", *CASES["ngc-tensorflow1-bert"][0]], "fine-tuning, which is not pre-training"),
        ([line.replace("mlm_loss", "start_loss") for line in oneflow(bert=True)], "fine-tuning"),
        ([dll(1, "Epoch: 0 Iteration: 1  step_loss : 5.9  learning_rate : 3e-05")], "fine-tuning"),
        (["mode: inference_benchmark", *tensorflow1("total_ips")], "evaluation or inference"),
        (
            [dll(1, "Epoch: 0 Validation Iteration: 4  val.ips : 900.1 images/s")],
            "of evaluation, which is not training",
        ),
        (["Test: [ 0/196]\tTime 1.1"], "of evaluation, which is not training"),
        ([" iteration 1/ 100 | consumed samples: 16 | elapsed time per iteration (ms): 99.1"], "Megatron-LM"),
        ([dll(1, "epoch 1 | iter 1/48 | loss 40.97 | 5730.98 frames/s | took 24.54 s")], "speech synthesis"),
        (["hello", "world"], "no line is of a format that is known"),
        (oneflow()[:5], "ends after step 20"),
        ([], "no line is of"),
    ],
)
def test_what_is_something_else_is_refused(lines, says, tmp_path):
    with pytest.raises(Refused, match=says):
        figures(written(tmp_path, lines))


def test_another_format_than_the_one_that_is_named_is_refused(tmp_path):
    with pytest.raises(Refused, match="no line of --format gluon-nlp; it looks like OneFlow"):
        figures(written(tmp_path, oneflow()), named="gluon-nlp")


def test_what_nobody_tells_is_asked_for(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("\n".join(CASES["gluon-cv"][0]) + "\n")
    with pytest.raises(Refused, match="nodes, devices per node, batch, precision; give --nnodes, --nproc-per-node, "):
        read.read(path, "a.log", FORMS, None, {})
    given = {"nodes": "4", "devices_per_node": "8", "batch": "32", "precision": "fp32"}
    assert read.read(path, "a.log", FORMS, None, given).size.nodes == 4


def test_what_log_and_path_do_not_agree_on_is_a_doubt(tmp_path):
    found = figures(written(tmp_path, oneflow(), "1n8g"))
    assert found[read.OURS].nodes == 4
    assert "nodes: log 4, path 1" in found[read.OURS].doubt


def test_fewer_steps_than_claimed_and_steps_that_were_skipped_are_doubts(tmp_path):
    found = figures(written(tmp_path, oneflow()[:-2]))
    assert "60 steps were logged of the 100" in found[read.OURS].doubt
    found = figures(written(tmp_path, CASES["ngc-tensorflow1-bert"][0]))
    assert "2 lines tell a step again" in found[read.OURS].doubt


def test_a_tree_of_ten_nodes_and_more_with_medians_and_speedups(tmp_path):
    for case, nodes, each in (("1n1g", 1, 1), ("10n8g", 10, 8)):
        for run, slow in enumerate((1.0, 1.1, 1.3), 1):
            lines = [
                f"Epoch[0] Batch[{step}]\tSpeed: {nodes * each * 100 / slow:.6f} samples/sec" for step in range(120)
            ]
            written(tmp_path / "logs", lines, case, f"rn50_b32_fp32_{run}.log")
    (tmp_path / "logs" / "notes.txt").write_text("nothing\n")
    (tmp_path / "logs" / "loop").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "out").symlink_to("/etc/passwd")
    ended = call("importlogs", tmp_path / "logs", "-o", tmp_path / "made")
    assert ended.returncode == 0, ended.stderr
    assert "notes.txt: not read: no line is of a format" in ended.stderr
    assert "out: not read: a link that leaves the tree" in ended.stderr
    assert "loop: not read: a link" in ended.stderr
    found = published.read((tmp_path / "made" / "figures.csv").read_text().splitlines(keepends=True))
    runs = [one for one in found if one.estimator == "median_of_runs" and one.column == THEIRS]
    assert [(one.row, one.quantity, one.printed) for one in runs] == [
        ("10n8g gluon-cv resnet50 b32 fp32", "throughput", "7272.73"),
        ("10n8g gluon-cv resnet50 b32 fp32", "speedup", "80.00"),
        ("1n1g gluon-cv resnet50 b32 fp32", "throughput", "90.91"),
    ]


def test_the_table_has_what_was_measured(tmp_path):
    ended = call("importlogs", written(tmp_path, oneflow()), "--precision", "fp32")
    head, *rows = [line.split() for line in ended.stdout.splitlines()]
    assert head[:5] == ["case", "model", "framework", "devices", "batch"]
    assert [row[1:5] for row in rows] == [["resnet50", "oneflow", "32", "32"]] * 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--format", "oneflo"], 2, "--format: 'oneflo' is not usable; allowed: "),
        (["--nnodes", "0"], 2, "--nnodes: '0' is not usable; allowed: a whole number"),
        (["--precision", "fp8"], 2, "--precision: 'fp8'"),
        ([], 1, "There is no file in it."),
    ],
)
def test_wrong_requests_and_an_empty_tree(words, code, says, tmp_path):
    (tmp_path / "empty").mkdir()
    ended = call("importlogs", tmp_path / "empty", *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert says in ended.stderr


def test_names_that_are_not_utf_8_are_shown_and_written_whole(tmp_path):
    """One is in a doubt, too: of the model that it and its log tell."""
    tree = tmp_path / "logs"
    written(tree, oneflow())
    for name in (b"r\xff50_b32_fp32_1.log", b"a\xe9.log"):
        place = os.path.join(os.fsencode(tree / "bz32" / "4n8g"), name)
        with open(place, "wb") as file:
            file.write("\n".join(oneflow()).encode() + b"\n" + name)
    ended = call("importlogs", tree, "-o", tmp_path / "made", "--precision", "fp32")
    assert ended.returncode == 0, ended.stderr
    made = tmp_path / "made"
    assert sorted(os.listdir(made)) == ["figures.csv", "source.toml"]
    found = published.read((made / "figures.csv").read_text().splitlines(keepends=True))
    assert {one.path.rpartition("/")[2] for one in found} == {
        "r50_b32_fp32_1.log",
        r"a\udce9.log",
        r"r\udcff50_b32_fp32_1.log",
    }
    assert any(r"model: resnet50, r\udcff50; the first" in one.doubt for one in found)
    assert tomllib.loads((made / "source.toml").read_text())["id"] == "made"


HOSTILE = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([line for lines, _, _ in CASES.values() for line in lines[-3:]])
    .flatmap(
        lambda line: st.tuples(
            st.just(line),
            st.integers(0, len(line)),
            st.sampled_from(["1e999", "nan", "-", "<b>", "\x1b[2J", "\r", "\0", "9" * 400]),
        )
    )
    .map(lambda made: (made[0][: made[1]] + made[2] + made[0][made[1] :]).encode()),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HOSTILE, max_size=6))
def test_whatever_a_log_holds_nothing_else_is_raised(tmp_path, lines):
    path = tmp_path / "1n1g" / "r50_b32_fp32_1.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\n".join(lines) + b"\n")
    try:
        made = read.read(path, "1n1g/r50_b32_fp32_1.log", FORMS, None, {})
    except Refused:
        return
    published.read(published.text(made.figures).splitlines(keepends=True))


BROKEN = [
    b"",
    b"\r",
    b"\0",
    b"\x1b[2J",
    b"\xff\xfe",
    b"<script>",
    b"9" * 30,
    b"nan",
    b"-1",
    b"1e400",
    b"[1,3]<stdout>:",
    b"0",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(CASES)),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["cut", "twice", "swap", "put"]), st.integers(0, 60), st.sampled_from(BROKEN)), max_size=8),
)  # fmt: skip
def test_of_sound_logs_that_were_damaged_figures_are_numbers(tmp_path, name, damages):
    text = "\n".join(CASES[name][0][:400]).encode() + b"\n"
    for where, what, count, put in damages:
        at = int(where * len(text))
        part = text[at : at + count]
        more = {"cut": b"", "twice": part + part, "swap": part[::-1], "put": put + part}[what]
        text = text[:at] + more + text[at + count :]
    path = tmp_path / "4n8g" / "r50_b32_fp32_1.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    try:
        made = read.read(path, "4n8g/r50_b32_fp32_1.log", FORMS, None, {})
    except Refused:
        return
    assert all(math.isfinite(one) and one > 0 for one in made.values)
    assert all(1 <= one.line <= text.count(b"\n") for one in made.figures)
    found = list(made.figures) + list(runs.medians([made, made]))
    assert [one.printed for one in published.read(published.text(found).splitlines(keepends=True))]


def test_logs_of_one_name_are_not_mixed_up(tmp_path):
    one, other = written(tmp_path / "a", oneflow()), written(tmp_path / "b", oneflow())
    ended = call("importlogs", one, other)
    assert ended.returncode == 0
    assert "4n8g/r50_b32_fp32_1.log: not read: another log of this name was read" in ended.stderr


def test_many_beginnings_of_a_line_take_no_time(tmp_path):
    line = dll(1, "Epoch: 0 Iteration: 1  ") * 10_000 + "\r"
    assert figures(written(tmp_path, [line, *CASES["ngc-pytorch-resnet50"][0]]))[read.OURS].value


def test_a_line_without_end_is_left_out(tmp_path):
    path = written(tmp_path, [*oneflow(), "x" * (3 * 2**20)])
    assert figures(path)[read.OURS].value


def ngc_bert(step, more=""):
    return dll(step, f"Training Epoch: 0 Training Iteration: {step}  average_loss : 9.1  learning_rate : 0.001 {more}")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("a_gpu1_bs96_fp16.txt", (1, 1, "96", "fp16")),
        ("PaddleNLP_bert_base_seqlen128_bs96_fp32_DP_N1C8_log", (1, 8, "96", "fp32")),
        ("rn50_b64_amp_3.log", (None, None, "64", "amp")),
        ("efficientnet-b7_fp32.log", (None, None, None, "fp32")),
        ("resnet50_2n8g/bs96/log", (2, 8, "96", None)),
        ("resnet50_2n8g_bs96_fp32/workerlog.0", (2, 8, "96", "fp32")),
        ("N4C8/bert_bs32_fp16.log", (4, 8, "32", "fp16")),
    ],
)
def test_what_a_files_name_tells(named, told):
    found = size.of_path(PurePath(f"/logs/{named}"), [])
    nodes = found.get("nodes") or found.get("devices")
    each = found.get("devices_per_node") or found.get("devices")
    assert (nodes and int(nodes), each and int(each), found.get("batch"), found.get("precision")) == told


def test_what_a_path_contradicts_itself_in_is_a_doubt(tmp_path):
    place = tmp_path / "bz256" / "4n8g" / "r50_b32_fp32_1.log"
    place.parent.mkdir(parents=True)
    place.write_text("\n".join(CASES["gluon-cv"][0]) + "\n")
    assert "batch: its path tells 32 and 256" in figures(place)[read.OURS].doubt


def test_the_batch_of_accumulated_passes(tmp_path):
    """NVIDIA's flag has that of all passes, its arguments as they are printed that of one."""
    lines = [ngc_bert(step) for step in range(1, 151)]
    wanted = 8448 * 32 * 100 / moments(25, 125)
    for head in (
        ["python3 run_pretraining.py --train_batch_size=8448 --gradient_accumulation_steps=88"],
        ['PARAMETER Config : ["Namespace(gradient_accumulation_steps=88, seed=1, train_batch_size=96, x=1)"]'],
    ):
        found = figures(written(tmp_path, [*head, *lines]))
        assert found[read.OURS].value == pytest.approx(wanted, rel=1e-3)
        assert (found[read.OURS].batch, found[read.OURS].options["accumulation"]) == ("96", "88")


def test_training_goes_before_evaluation(tmp_path):
    """NVIDIA's BERT for TensorFlow 1 ends with the same line for both."""
    lines = [*CASES["ngc-tensorflow1-bert"][0], dll(130, " throughput_train : 3353.673 sequences/s")]
    lines += ["Throughput Average (sentences/sec) = 765.95", dll(140, " throughput_val : 765.950 sequences/s")]
    assert figures(written(tmp_path, lines))["throughput_train"].printed == "3353.67"


def test_a_benchmark_that_nvidia_calls_so(tmp_path):
    lines = [f"DLL {stamp(1)} - PARAMETER arch : resnet50  mode : training_benchmark  batch_size : 32 ", "Num GPUs 32"]
    lines += [dll(step, f"(0, {step}) total_ips : {1024 / seconds(step)} ") for step in range(200, 500, 10)]
    lines += [dll(500, "() train_throughput : 3166.55 images/s")]
    found = figures(written(tmp_path, lines))
    assert found["train_throughput"].value == 3166.55
    assert found[read.OURS].value == pytest.approx(1024 * 290 / moments(200, 490), rel=1e-3)
    said = refused(written(tmp_path, [lines[0].replace("training", "inference"), *lines[1:]]))
    assert "1: evaluation or inference" in said


def test_the_epochs_of_nvidias_mxnet_without_the_first(tmp_path):
    lines = CASES["ngc-mxnet-dllogger"][0]
    lines = [
        *lines,
        *(
            dll(200 + at, f"Epoch: {at}  train.loss : 6.4  train.ips : {ips} images/s")
            for at, ips in enumerate((11596.0, 10213.25, 10461.5))
        ),
    ]
    assert figures(written(tmp_path, lines))[THEIRS].value == round(2 / (1 / 10213.25 + 1 / 10461.5), 2)


def test_lines_that_are_ten_steps_apart(tmp_path):
    """The first figure of pytorch/examples is of one step, the second the mean of all steps of the epoch so far."""
    lines = [
        f"Epoch: [0][{step:3d}/313]\tTime {0.9:6.3f} ({clock(step) / step:6.3f})\tData  0.1 ( 0.1)\tLoss 6.9e+00 (6.9e+00)\tAcc@1 0.1"
        for step in range(1, 202, 10)
    ]
    found = figures(written(tmp_path, [line.replace("[  ", "[ ", 1) for line in lines], "1n1g"))
    assert found[read.OURS].value == pytest.approx(32 * 100 / (clock(132) - clock(32)), rel=0.02)
    lines = [
        f"[Pass 0, train batch {step}] \tloss 7.0, acc1 0.0, acc5 0.0, lr 0.1, elapse 0.4000 sec"
        for step in range(0, 130, 10)
    ]
    found = figures(written(tmp_path, lines, "1n1g"))
    assert found[read.OURS].value == pytest.approx(32 / 0.4)
    assert "one step in 10" in found[read.OURS].doubt


def test_a_publisher_that_counts_lines_is_held_against_the_steps_of_these(tmp_path):
    lines = [
        f"I0915 14:29:13.47 1 keras_utils.py:145] TimeHistory: {6 + at:.2f} seconds, {20480 / (6 + at):.2f} examples/second between steps {20 * at} and {20 * at + 20}"
        for at in range(14)
    ]
    found = figures(written(tmp_path, lines))
    assert {one.steps for one in found.values()} == {"100"}
    assert {one.options["lines"] for one in found.values()} == {"2-6"}
    assert found[read.OURS].value == pytest.approx(1024 * 100 / sum(range(7, 12)), rel=1e-5)
    assert "counts lines: of this log they are 100 steps, not 500" in found["publisher's estimator"].doubt
    lines = [
        f"epoch: 1, progress: 1/1, step: {20 * at}, loss: 9.0, ppl: 9, next_sent_acc: 0.5, speed: {4 / seconds(at):.6f} steps/s, file: a"
        for at in range(1, 131)
    ]
    found = figures(written(tmp_path, lines))
    assert found["publisher's estimator"].value == pytest.approx(
        numpy.mean([4 / seconds(at) * 256 for at in range(21, 121)]), rel=1e-5
    )
    assert {one.steps for one in found.values()} == {"2000"}
    assert found[read.OURS].value == pytest.approx(1024 * 100 / (clock(120) - clock(20)), rel=1e-5)


def test_a_log_that_ends_before_any_step_can_be_timed(tmp_path):
    lines = [
        f"Epoch: [0][{step:3d}/100]\tTime  0.710 ( 0.720)\tData  0.1 ( 0.1)\tLoss 7.0e+00 (6.9e+00)"
        for step in range(0, 31, 10)
    ]
    for last, says in (
        (4, "ends after step 31, and is left with no two lines after"),
        (3, "step 21, within the first 26"),
    ):
        with pytest.raises(Refused, match=says):
            figures(written(tmp_path, lines[:last], "1n1g"))


def test_devices_of_one_node_by_the_list_of_tf_cnn_benchmarks(tmp_path):
    def refused_or_size(devices):
        head = ["Mode:        training", "Batch size:  256 global", "             64 per device", "Num batches: 100"]
        lines = [*head, f"Devices:     [{devices}]", "total images/sec: 390.00", "1\timages/sec: 390.0 +/- 0.1 (j"]
        (tmp_path / "log.txt").write_text("\n".join([*lines, ""]))
        return read.read(tmp_path / "log.txt", "log.txt", FORMS, None, {"precision": "fp32"}).size

    made = refused_or_size(", ".join(f"'/gpu:{at}'" for at in range(4)))
    assert (made.nodes, made.devices_per_node, made.batch) == (1, 4, 64)
    for several in ("'horovod/gpu:{at}'", "'/job:worker/task:{at}/gpu:0'"):
        with pytest.raises(Refused, match=r"tells nodes \(of 4 devices in all\); give --nnodes$"):
            refused_or_size(", ".join(several.format(at=at) for at in range(4)))


def test_lines_that_tell_the_mean_since_a_start(tmp_path):
    """PaddleClas with static graphs: of an epoch, from the fifth step on."""

    def line(epoch, step):
        cost = math.fsum(seconds(one) for one in range(5, step + 1)) / (step - 4)
        return f"[2023/07/28 07:24:05] ppcls INFO: epoch:{epoch}   train step:{step:<4d} lr: 0.1, loss: 0.7 batch_cost: {cost:.5f} s, reader_cost: 0.0 s, ips: {32 / cost:.5f} samples/sec."

    lines = [line(epoch, step) for epoch in (0, 1) for step in range(10, 101, 10)]
    timed = clock(100) - clock(20) + clock(100) - clock(10)
    found = figures(written(tmp_path, lines))
    assert found[read.OURS].value == pytest.approx(1024 * 170 / timed, rel=1e-3)
    assert found[read.OURS].steps == "170"


def test_tags_timestamps_and_colours(tmp_path):
    """As mpirun --timestamp-output writes them, behind what a progress bar left."""
    lines, theirs, _ = CASES["ngc-pytorch-resnet50"]
    lines = [
        f"Iteration:  7%| | 78/1147 [00:14<03:10]Thu Jun  9 09:15:32 2022[1,0]<stdout>:\x1b[32m{one}\x1b[0m"
        for one in lines
    ]
    assert figures(written(tmp_path, lines))[THEIRS].printed == f"{theirs:.2f}"


def test_a_batch_that_what_is_printed_contradicts(tmp_path):
    lines = [line.replace("3100.03", "160000.0") for line in CASES["ngc-tensorflow1-bert"][0]]
    assert "its lines print 160000: 1024 are not the samples of a step" in refused(written(tmp_path, lines))


def test_a_run_that_went_on_drops_its_own_first_steps(tmp_path):
    lines = [
        f"[Pass 0, train batch {step}] \tloss 7.0, acc1 0.0, acc5 0.0, lr 0.1, elapse {9 if step < 1020 else 0.4:.4f} sec"
        for step in range(1000, 1130)
    ]
    found = figures(written(tmp_path, lines))[read.OURS]
    assert found.value == pytest.approx(1024 / 0.4)
    assert "its first step is 1001" in found.doubt


def test_two_formats_in_one_file(tmp_path):
    said = refused(written(tmp_path, [*oneflow(), *CASES["gluon-cv"][0]]))
    assert "Choose one with --format: oneflow-resnet50, gluon-cv" in said or "gluon-cv, oneflow-resnet50" in said


def test_an_older_mllog(tmp_path):
    def event(at, key, more="{}"):
        return f':::MLL {at}.5 {key}: {{"value": null, "metadata": {more}}}'

    lines = [':::MLL 0.5 submission_benchmark: {"value": "resnet", "metadata": {}}', event(100, "run_start")]
    found = figures(written(tmp_path, [*lines, event(1300, "run_stop", '{"status": "success"}')]))
    assert (found["run_start to run_stop"].value, found["run_start to run_stop"].model) == (20.0, "resnet50")
    assert "no line is of" in refused(written(tmp_path, [*lines, event(1300, "run_stop", '{"status": "aborted"}')]))


def test_numbers_with_commas_and_a_run_that_went_on_of_hugging_face(tmp_path):
    lines = ["  Instantaneous batch size per device = 32", "  Gradient Accumulation steps = 1"]
    lines += ["  Total train batch size (w. parallel, distributed & accumulation) = 1,024"]
    lines += ["  Total optimization steps = 10,000", "{'train_runtime': 1000.0, 'train_samples_per_second': 10240.0}"]
    place = written(tmp_path, lines)
    assert figures(place)[read.OURS].value == 10240
    assert figures(place)[read.OURS].devices == 32
    again = written(tmp_path, ["  Continuing training from checkpoint, will skip", *lines])
    assert "it went on from a checkpoint" in refused(again)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("| NVIDIA-SMI 535.104.05    Driver Version: 535.104.05   CUDA Version: 12.2     |", "nvidia-smi"),
        ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED ***", "Slurm"),
        ("NAME    READY   STATUS    RESTARTS   AGE", "kubectl"),
        ('10.0.0.1 - - [10/Oct/2020:13:55:36 +0000] "GET /a HTTP/1.1" 200 612 "-" "curl/7"', "a web server"),
        ("Collecting torch", "pip"),
        ("      Epoch   gpu_mem       box       obj       cls    labels  img_size", "YOLO"),
        ("[INFO] [logging.py:68:log_dist] SamplesPerSec=123.4", "DeepSpeed"),
        ("2021-01-01 | INFO | train | epoch 001:  10 / 100 loss=9, wps=1000.1, ups=2", "fairseq"),
        ("[01/01 12:00:00 d2.utils.events]:  eta: 1:00:00  iter: 19  total_loss: 4.1", "Detectron2"),
        ("2021-01-01 12:00:00,000 - mmdet - INFO - Epoch [1][50/7330] lr: 0.01, time: 0.5", "OpenMMLab"),
        ("iter 10: loss 4.1234, time 100.12ms, mfu 30.12%", "nanoGPT"),
        ("INFO:root:[Epoch 0][Batch 99], Speed: 12.345 samples/sec, CrossEntropy=4.1", "detection"),
        ("INFO:root:Epoch[0] Batch [20]\tSpeed: 1958.00 samples/sec\taccuracy=0.1", "MXNet's Speedometer"),
        ("INFO:root:Epoch[0] Batch [49]\tSpeed: 99.0 samples/sec\tloss=0.1\tlr=0.01\theatmap=0.2", "Speedometer"),
        ('DLLL {"timestamp": "1", "type": "LOG", "step": [0], "data": {"train.ips": 1}}', "dllogger's JSON"),
        ("Img/sec per GPU: 400.1 +-1.0", "Horovod"),
        ("{'interval_runtime': 1.0, 'interval_samples_per_second': 10.0}", "PaddleNLP's Trainer"),
        ("Epoch: [0]  [  10/10010]  eta: 1:00:00  lr: 0.1  img/s: 300.1  loss: 7.0", "torchvision"),
    ],
)  # fmt: skip
def test_other_logs_are_named_for_what_they_look_like(line, says, tmp_path):
    assert says in refused(written(tmp_path, ["first", line, "last"]))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["=> using pre-trained model 'resnet50'", *CASES["pytorch-examples"][0]], "1: fine-tuning"),
        (["+ python run_tf_squad.py", *CASES["ngc-pytorch-bert"][0]], "1: fine-tuning"),
        ([line.replace("lr=0.1", "lr=0.0000000") for line in CASES["gluon-nlp"][0]], "evaluation"),
        (["Epoch 1:  10%|#  | 50/900 [00:10<03:00,  5.00it/s]", "Epoch 1:  20%|## | 100/900 [00:20<03:00,  5.00it/s]"], "others draw such bars"),
        (["\ufeffh\0i\0" * 3000], "binary"),
    ],
)  # fmt: skip
def test_what_only_looks_like_training_is_refused(lines, says, tmp_path):
    assert says in refused(written(tmp_path, lines))


def test_medians_are_rounded_as_their_publisher_does(tmp_path):
    """numpy's `round` differs from Python's in places: it multiplies first."""
    values = {"1": 1000.01, "2": 1000.02}
    for run, rate in values.items():
        written(
            tmp_path / "t",
            [f"Epoch[0] Batch[{step}]\tSpeed: {rate:.2f} samples/sec" for step in range(120)],
            "1n1g",
            f"m_b32_fp32_{run}.log",
        )
    made = [read.read(one, f"1n1g/{one.name}", FORMS, None, {}) for one in sorted((tmp_path / "t").rglob("*.log"))]
    (middle,) = [one for one in runs.medians(made) if one.column == THEIRS]
    assert middle.printed == f"{numpy.round(numpy.median(list(values.values())), 2):.2f}"


def test_one_name_in_a_case_and_beside_it_are_two_rows(tmp_path):
    written(tmp_path, oneflow())
    (tmp_path / "bz32" / "r50_b32_fp32_1.log").write_text("\n".join(oneflow()) + "\nend\n")
    ended = call("importlogs", tmp_path / "bz32", "-o", tmp_path / "made")
    assert ended.returncode == 0, ended.stderr
    found = published.read((tmp_path / "made" / "figures.csv").read_text().splitlines(keepends=True))
    assert {one.row for one in found} >= {"4n8g/r50_b32_fp32_1.log", "r50_b32_fp32_1.log (4n8g)"}
    again = call("importlogs", tmp_path / "bz32", "-o", tmp_path / "made")
    assert (again.returncode, "it is not empty" in again.stderr) == (2, True)


def test_what_cannot_be_read_is_told_and_the_rest_is_read(tmp_path):
    place = written(tmp_path / "t", oneflow())
    os.mkfifo(place.with_name("pipe.log"))
    (place.with_name("nothing.log")).symlink_to(place.with_name("not there"))
    place.with_name("itself.log").symlink_to(place.with_name("itself.log"))
    ended = call("importlogs", tmp_path / "t")
    assert ended.returncode == 0
    assert "pipe.log: not read: it is no regular file" in ended.stderr
    assert ended.stderr.count("not read: a link to nothing, or to itself") == 2


@pytest.mark.parametrize(
    "part",
    ["Namespace(", "LAUNCH INFO ", "distributed.launch ", "batch_size ", "Mode: ", "PARAMETER mode : ", "9", "eta: ", "Epoch 0: 1%|", "\n", "1/1 [] ", " per device", "Arch : \n name"],
)  # fmt: skip
def test_no_head_takes_minutes(part, tmp_path):
    """Expressions look from each beginning; those without a bound would take minutes here."""
    written(tmp_path, [part * (2**20 // len(part))])
    for name in ("paddle-clas", "ngc-pytorch-bert"):
        assert figures(written(tmp_path, [part * (2**20 // len(part) - 2**13), *CASES[name][0]]))


def test_much_is_read_by_several_processes_to_the_same_end(tmp_path, monkeypatch):
    for run in (1, 2, 3):
        written(tmp_path, [*oneflow(), f"run {run}"], name=f"r50_b32_fp32_{run}.log")
    files = [many.File(path, f"4n8g/{path.name}") for path in sorted(tmp_path.rglob("*.log"))]
    files += [many.File(tmp_path / "none", "none"), many.File(tmp_path, "pipe", "it is no regular file")]
    one = list(many.every(files, None, {}))
    monkeypatch.setattr(many, "MUCH", 0)
    assert list(many.every(files, None, {})) == one
    assert [found if isinstance(found, str) else len(found.figures) for _, found in one] == [
        2,
        2,
        2,
        "cannot be read: No such file or directory",
        "it is no regular file",
    ]


def large(tree):
    """Enough to be read for seconds."""
    return [written(tree, oneflow() * 1000, name=f"r50_b32_fp32_{run}.log") for run in range(40)]


def test_after_ctrl_c_over_a_tree_no_process_is_left(tmp_path):
    large(tmp_path / "tree")
    script = "from dlperf.importlogs import __main__, many; many.MUCH = 0; raise SystemExit(__main__.main(['tree']))"
    started = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(lambda: len(working_in(tmp_path)) > 2 or started.poll() is not None)
    os.killpg(started.pid, signal.SIGINT)
    assert started.communicate(timeout=300) == (None, "")
    assert started.returncode == 130
    wait_for(lambda: not working_in(tmp_path))


def test_a_reader_that_is_killed_is_one_message(tmp_path, monkeypatch):
    monkeypatch.setattr(many, "MUCH", 0)
    found = many.every([many.File(place, place.name) for place in large(tmp_path)], None, {})
    next(found)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(RunError, match="was killed"):
        list(found)


def test_source_code_with_lines_of_a_log_is_no_log(tmp_path):
    place = written(tmp_path, oneflow(), name="test_expected.py")
    assert "source code" in refused(place)
    assert read.OURS in figures(place, named="oneflow-resnet50", precision="fp32")


def test_the_last_batch_of_gluon_cv_is_no_epoch(tmp_path):
    lines = CASES["gluon-cv"][0]
    assert "speed of an epoch" not in figures(written(tmp_path, lines))
    assert (
        figures(written(tmp_path, [*lines, "INFO:root:Epoch[0]\tSpeed: 88.00 samples/sec"]))["speed of an epoch"].value
        == 88
    )


def test_what_all_ranks_doubt_is_said_once(tmp_path):
    lines = []
    for line in CASES["ngc-mxnet"][0]:
        again = int(line.split("Batch [")[1].split("-")[0]) == 50
        lines += [line, line] if again else [line]
    doubt = figures(written(tmp_path, lines))[read.OURS].doubt
    assert doubt.count("tell a step again") == 1
    assert "by loss scaling as a rule (likewise in 31 other ranks)" in doubt


def test_a_mean_that_is_no_number_is_passed_over(tmp_path):
    lines = [
        f"Epoch: [0][{step:3d}/9999]\tTime  0.310 ( {'2.6.0' if step == 200 else '0.310'})\tData  0.106 ( 0.075)\tLoss 6.9e+00 (6.9e+00)"
        for step in range(0, 2000, 10)
    ]
    found = figures(written(tmp_path, lines))
    assert found[read.OURS].value == pytest.approx(32 * 32 / 0.31, rel=1e-3)


@pytest.mark.parametrize(
    ("single", "variables", "devices", "whole"),
    [
        ("False", "replicated", "'/gpu:0', '/gpu:1', '/gpu:2', '/gpu:3'", 390.0),
        ("False", "horovod", "'horovod/gpu:0', 'horovod/gpu:1', 'horovod/gpu:2', 'horovod/gpu:3'", 4 * 390.0),
        ("False", "distributed_replicated", "'/job:worker/task:0/gpu:0', '/job:worker/task:0/gpu:1'", 2 * 390.0),
        ("True", "distributed_all_reduce", "'/gpu:0', '/gpu:1'", 390.0),
    ],
)
def test_lines_of_one_worker_are_of_all(single, variables, devices, whole, tmp_path):
    head = ["Mode:        training", f"SingleSess:  {single}", "Batch size:  256 global", "             64 per device"]
    head += ["Num batches: 100", f"Devices:     [{devices}]", f"Variables:   {variables}"]
    lines = [*head, "100\timages/sec: 390.0 +/- 0.1 (jitter = 0.5)\t7.8"]
    found = figures(written(tmp_path, lines, "1n4g"), precision="fp32")
    assert found["images/sec of its last line"].value == whole


def test_bfloat16_of_a_trainer(tmp_path):
    lines = ["TrainingArguments(bf16=True, per_device_train_batch_size=8)", "  Instantaneous batch size per device = 8"]
    lines += ["  Total optimization steps = 390", "{'train_runtime': 780.0, 'train_samples_per_second': 128.0}"]
    place = tmp_path / "1n8g" / "log.txt"
    place.parent.mkdir()
    place.write_text("\n".join([*lines, ""]))
    made = read.read(place, "1n8g/log.txt", FORMS, None, {})
    assert made.size.precision == "bf16"
