"""gluon-nlp's BERT pre-training, where each rank logs."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.importlogs.facts import bert
from dlperf.importlogs.format import Format, Line, counted_from, mean_of
from dlperf.schema import Job

#: of 0.10; before, it called steps batches
LATER = r"\[step (?P<step>\d+)\]\s+mlm_loss=\s*(?P<loss>\S+)\s.*?latency=(?P<seconds>[\d.]+) ms/step"


def rate(line: Line, job: Job) -> float:
    """Of the latency as DLPerf has it, in tenths of a millisecond."""
    return 1000.0 / round(line.mark.time * 1000, 1) * job.batch_size * job.nnodes * job.nproc_per_node


FORMAT = Format(
    name="gluon-nlp",
    title="gluon-nlp's BERT",
    framework="mxnet",
    unit="sentences/s",
    needle=b"latency=",
    begins=re.compile(r"\bckpt_interval="),
    logs=("gluon-nlp/bert_base", Log(re.compile(LATER), first=1, milliseconds=True, ranks="all")),
    publisher=mean_of(100, 200, rate, every_rank=True, exact=True),
    estimator="mean_of_rates",
    who="DLPerf's extract_mxnet_logs.py",
    warmup=100,
    first=counted_from,
    facts={"batch": "total_batch_size", "accumulation": "accumulate", "steps": "num_steps", "type": "dtype"},
    told=(bert,),
    process="device",
    batch="global",
    seconds="mean",
    demands=re.compile(r"lr=(?!0\.0+ )\d"),
    otherwise="its learning rate is 0: evaluation, which is not training",
)
