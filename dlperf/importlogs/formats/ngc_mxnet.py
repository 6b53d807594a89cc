"""NVIDIA's convolutional networks for MXNet, as of 2019, where each rank logs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlperf.importlogs.facts import Said, argument, said
from dlperf.importlogs.format import Format, ordinals


def told(head: str) -> Mapping[str, str]:
    """Of its arguments, the network with its layers, and the devices of a node: runner, in NVIDIA's
    MxNet/Classification/RN50v1.5, gives train.py all of them. [0] is what train.py takes where it is not told."""
    found = {}
    if cards := re.search(r"\bgpus(?:=| : )\[(\d+(?:, \d+)+)\]", head):
        found["devices_per_node"] = said(cards, str(cards[1].count(",") + 1))
    if arch := argument("arch", head):
        layers = argument("num_layers", head) or ""
        name = f"{'resnet' if arch == 'resnetv15' else arch + '-'}{layers}" if layers else arch
        found["model"] = Said(name, arch.at)
    return found


FORMAT = Format(
    name="ngc-mxnet",
    title="NVIDIA's convolutional networks for MXNet (2019)",
    framework="mxnet",
    unit="img/s",
    needle=b":INFO: Epoch[0] Batch [",
    begins=re.compile(r"Start with arguments Namespace\("),
    logs=("ngc-mxnet/resnet50",),
    publisher=ordinals(20, 120, every_rank=True),
    who="DLPerf's extract_mxnet_logs_time.py",
    facts={"batch": "batch_size", "steps": "benchmark_iters", "type": "dtype"},
    amp=("amp",),
    process="device",
    told=(told,),
    batch="global",
)
