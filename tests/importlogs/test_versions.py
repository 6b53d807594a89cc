# ruff: noqa: E501 - lines of logs
"""What versions of one script print otherwise."""

import math
import re

import pytest
from invented_logs import CASES, clock, figures, oneflow, seconds, written

from dlperf.importlogs import read
from dlperf.importlogs.formats import pytorch_examples

#: seconds of the first step more
SLOW = 12.0


def test_pytorch_examples_that_count_from_1(tmp_path):
    """The mean of a line is of as many steps as its number says, of the first of that slow step alone."""

    def line(step):
        mean = (SLOW + clock(step)) / step
        own = mean if step == 1 else seconds(step)
        return f"Epoch: [0][{step:4d}/5004]\tTime {own:.5f} ({mean:.5f})\tData  0.001 ( 0.011)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.78 (  0.50)"

    found = figures(written(tmp_path, [line(step) for step in range(1, 202, 10)], "1n1g"))
    assert found[read.OURS].value == pytest.approx(32 * 100 / (clock(131) - clock(31)), rel=1e-3)
    assert "clock goes back" not in found[read.OURS].doubt


@pytest.mark.parametrize("first", [0, 1])
def test_dlperfs_figure_of_pytorch_examples_is_of_what_its_lines_call_their_steps(first, tmp_path):
    """Its script counts lines of steps over 5, and takes the 21st to the 120th of them: 26 to 125."""

    def line(step):
        mean = (SLOW + clock(step)) / step
        own = mean if step == 1 else seconds(step)
        return f"Epoch: [0][{step - 1 + first:4d}/5004]\tTime {own:.5f} ({mean:.5f})\tData  0.001 ( 0.011)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.78 (  0.50)"

    lines = [line(step) for step in range(1, 127 - first)]
    found = figures(written(tmp_path, lines, "1n1g"))
    taken = [seconds(step + 1 - first) for step in range(26, 126)]
    theirs = found["publisher's estimator"]
    assert theirs.printed == f"{32 / (math.fsum(taken) / 100):.2f}"
    assert (found[read.OURS].steps, theirs.doubt) == ("100", "")
    few = figures(written(tmp_path, lines[:-1], "1n1g"))
    assert list(few) == [read.OURS]
    assert "not all of its steps 25 to 125 are told" in few[read.OURS].doubt


@pytest.mark.parametrize(
    ("own", "mean", "first"), [("3.253", "3.262", 1), ("3.253", "3.253", 1), ("0.351", "2.807", 0)]
)
def test_whether_the_first_line_of_pytorch_examples_is_of_one_step(own, mean, first):
    assert pytorch_examples.first({"step": "1", "seconds": own, "mean": mean}) == first
    assert pytorch_examples.first({"step": "0", "seconds": own, "mean": own}) == 0


def test_ranks_that_nothing_tells_apart_take_as_long_as_one_of_them_in_all(tmp_path):
    """Of each step another is the slowest."""

    def line(step, rank):
        own = 0.4 if step % 8 == rank else 0.3
        return f"Epoch: [0][{step}/5004]\tTime {own:.3f} ({own:.3f})\tData 0.001 (0.011)\tLoss 6.9000 (7.0000)\tAcc@1 0.1 (0.2)"

    lines = [line(step, rank) for step in range(140) for rank in range(8)]
    found = figures(written(tmp_path, lines, "1n8g"))
    assert found[read.OURS].value == pytest.approx(32 * 8 * 8 / (7 * 0.3 + 0.4), rel=1e-6)


def test_pytorch_examples_that_count_from_0(tmp_path):
    def line(step):
        mean = (SLOW + clock(step + 1)) / (step + 1)
        return f"Epoch: [0][{step}/5004]\tTime {seconds(step + 1):.5f} ({mean:.5f})\tData 0.001 (0.011)\tLoss 6.9000 (7.0000)\tPrec@1 0.100 (0.200)"

    found = figures(written(tmp_path, [line(step) for step in range(0, 201, 10)], "1n1g"))
    assert found[read.OURS].value == pytest.approx(32 * 100 / (clock(131) - clock(31)), rel=1e-3)


def gluon_nlp(first, last, apart=1):
    """Of one process, whose steps it calls by one less than are complete."""
    return [
        f"INFO:root:[step {step - 1}]\tmlm_loss=9.1\tnsp_loss=0.7\tthroughput=19.2K tks/s\tlr=0.1 time=0.2, latency={1000 * (clock(step) - clock(step - apart)) / apart:.1f} ms/batch"
        for step in range(first, last + 1, apart)
    ]


def test_all_steps_that_the_publisher_of_gluon_nlp_takes_are_there(tmp_path):
    found = figures(written(tmp_path, gluon_nlp(1, 200), "1n1g"))[read.OURS]
    assert (found.steps, found.doubt) == ("100", "")
    assert found.value == pytest.approx(32 * 100 / (clock(200) - clock(100)), rel=1e-3)


def test_lines_of_gluon_nlp_that_are_ten_steps_apart(tmp_path):
    found = figures(written(tmp_path, gluon_nlp(10, 300, 10), "1n1g"))[read.OURS]
    assert found.value == pytest.approx(32 * 100 / (clock(200) - clock(100)), rel=1e-3)


def test_gluon_nlp_that_calls_batches_steps(tmp_path):
    lines = [line.replace("ms/batch", "ms/step") for line in gluon_nlp(1, 200)]
    found = figures(written(tmp_path, lines, "1n1g"))[read.OURS]
    assert found.value == pytest.approx(32 * 100 / (clock(200) - clock(100)), rel=1e-3)


def test_all_steps_that_the_publisher_of_gluon_cv_takes_are_there(tmp_path):
    found = figures(written(tmp_path, CASES["gluon-cv"][0]))[read.OURS]
    assert found.steps == "100"
    assert "99 steps" not in found.doubt


def test_paddle_bert_with_brackets(tmp_path):
    lines = [
        f"[epoch: 1, progress: 1/1, step: {step}] loss: 9.0, ppl: 9.0, next_sent_acc: 0.5, feed_queue size: 70, learning_rate: 0.0, loss scaling: 128.0, batch_cost: {seconds(step) / 4:.6f} sec, speed: {4 / seconds(step):.6f} steps/s, file: a.gz"
        for step in range(1, 121)
    ]
    found = figures(written(tmp_path, lines))
    assert found["publisher's estimator"].value == pytest.approx(CASES["paddle-bert"][1], abs=0.01)
    assert found[read.OURS].value == pytest.approx(CASES["paddle-bert"][2], rel=1e-3)
    validation = "[validation_set] epoch: 1, step: 9, loss: 9.0, global ppl: 9, batch-averged ppl: 9, next_sent_acc: 0.5, speed: 900.0 steps/s"
    assert figures(written(tmp_path, [*lines[:60], validation, *lines[60:]]))[read.OURS].value == found[read.OURS].value


@pytest.mark.parametrize("bert", [False, True])
def test_oneflow_without_a_clock_is_read_by_the_rates_that_it_prints(bert, tmp_path):
    """Of the 20 steps since the line before, as its rates are where it prints both."""
    lines = oneflow(bert)
    head, told = [line for line in lines if " = " in line], [line for line in lines if " = " not in line]
    slow = [0.5 + 0.1 * (at % 3) for at in range(len(told))]
    rates = [
        re.sub(r"(samples/s|throughput): .*", rf"\1: {1024 / one:.3f}", line)
        for line, one in zip(told, slow, strict=True)
    ]
    found = figures(written(tmp_path, [*head, *rates]))
    assert list(found) == [read.OURS]
    assert found[read.OURS].value == pytest.approx(1024 * 5 / sum(slow[1:6]), rel=1e-5)
    assert "gives no figure of it: its lines have no time" in found[read.OURS].doubt


@pytest.mark.parametrize(("digits", "says"), [(3, "its averages have few digits: up to 0.2% off"), (5, "")])
def test_averages_of_few_digits_say_how_far_off_they_may_be(digits, says, tmp_path):
    """Half a digit of the averages of 31 and of 131 steps, 0.081 s of 33."""
    lines = [
        f"Epoch: [0][{step - 1}/5004]\tTime {seconds(step):.3f} ({(SLOW + clock(step)) / step:.{digits}f})\tData 0.001 (0.011)\tLoss 6.9000 (7.0000)\tAcc@1 0.1 (0.2)"
        for step in range(1, 202, 10)
    ]
    found = figures(written(tmp_path, lines, "1n1g"))[read.OURS]
    assert found.value == pytest.approx(32 * 100 / (clock(131) - clock(31)), rel=0.003 if says else 1e-4)
    assert ("few digits" in found.doubt, says in found.doubt) == (bool(says), True)
