"""The dropout that each adapter trains with. Real frameworks."""

import math
import os
import subprocess

import pytest
from trajectories import ADAPTERS

from dlperf.adapters.api import NEXT_TO_NONE
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

#: of BERT-large's 12 million values of a step, TensorFlow's random numbers made one or two zeros
VALUES = 2**25
#: how many of VALUES ones are dropped at a rate
DROPPED = {
    "pytorch": """
import torch
from dlperf.adapters.pytorch.masks import drawn, dropped
ones = torch.ones(VALUES)
print(*(int((drop(ones, RATE, True) == 0).sum()) for drop in (drawn, dropped)))
""",
    "tensorflow": """
import tensorflow as tf
from dlperf.adapters.tensorflow.layers import drop
print(int(tf.function(lambda: tf.reduce_sum(tf.cast(drop(tf.ones(VALUES), RATE) == 0, tf.int64)))()))
""",
    "mxnet": """
import mxnet as mx
print(int((mx.nd.Dropout(mx.nd.ones(VALUES), p=RATE, mode="always").asnumpy() == 0).sum()))
""",
    "paddle": """
import paddle
print(int((paddle.nn.functional.dropout(paddle.ones([VALUES]), RATE, training=True) == 0).astype("int64").sum()))
""",
    "oneflow": """
import oneflow as flow
print(int((flow.nn.functional.dropout(flow.ones(VALUES), RATE, True).numpy() == 0).sum()))
""",
    "jax": """
import jax
from dlperf.adapters.jax.dropout import Dropout
print(int((Dropout(RATE, jax.random.key(7, impl="rbg"), "cpu")(jax.numpy.ones(VALUES)) == 0).sum()))
""",
}


@pytest.fixture
def dropped(environment, tmp_path):
    def dropped(framework, rate):
        """In each of the ways that it has."""
        bundle.copy_code(tmp_path / "code", [ADAPTERS[framework]])
        made = environment(framework)
        script = DROPPED[framework].replace("VALUES", str(VALUES)).replace("RATE", repr(rate))
        asked = {"env": {**os.environ, **made.variables}, "cwd": tmp_path / "code", "timeout": 300}
        ran = subprocess.run([made.python, "-c", script], capture_output=True, text=True, **asked)
        assert ran.returncode == 0, ran.stderr
        return [int(one) for one in ran.stdout.split()]

    return dropped


@pytest.mark.parametrize("framework", DROPPED)
def test_next_to_none_drops_nothing(framework, dropped):
    """A proof takes a run of this rate for one without dropout."""
    found = dropped(framework, NEXT_TO_NONE)
    assert found
    assert not any(found), found


@pytest.mark.parametrize("framework", DROPPED)
def test_a_tenth_is_dropped_at_a_rate_of_a_tenth(framework, dropped):
    """16 random bits make it 6554 of 65536, 6e-6 more, which is not seen."""
    mean, deviation = 0.1 * VALUES, math.sqrt(0.1 * 0.9 * VALUES)
    for found in dropped(framework, 0.1):
        assert found == pytest.approx(mean, abs=5 * deviation)
