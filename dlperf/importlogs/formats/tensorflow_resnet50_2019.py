"""TensorFlow's model garden of 2019: ResNet, by keras_utils.py before it said between which steps."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.format import EVERY, MEAN, Format, Total, mean_of, printed
from dlperf.importlogs.formats.tensorflow_resnet50 import other, told

#: each stands there twice where TensorFlow's logger and absl's both write
LINE = (
    r"BenchmarkMetric: \{'global step':(?P<step>\d+), 'time_taken': (?P<seconds>[\d.]+),"
    r"'examples_per_second': (?P<rate>[\d.]+)\}"
)
FORMAT = Format(
    name="tensorflow-resnet50-2019",
    title="the TensorFlow model garden's ResNet of 2019",
    framework="tensorflow",
    model="resnet50",
    facts={"batch": "batch_size", "type": "dtype"},
    demands=re.compile("imagenet"),
    otherwise="nothing in it tells that it is of ImageNet: other scripts print such lines, too",
    told=(told,),
    other=other,
    batch="global",
    unit="img/s",
    needle=b"BenchmarkMetric:",
    logs=(Log(re.compile(LINE), first=1, every=100),),
    column=MEAN,
    publisher=mean_of(1, None, printed),
    estimator="mean_of_rates",
    who="the mean of its lines' rates but the first",
    whole=True,
    steps=EVERY,
    totals=(
        Total(
            "avg_exp_per_second",
            re.compile(r"'avg_exp_per_second': (?P<value>[\d.]+)"),
            b"avg_exp_per_second",
            "samples_over_seconds",
            doubt="by the script's own clock, its first steps too",
        ),
    ),
)
