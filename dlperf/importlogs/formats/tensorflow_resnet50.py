"""TensorFlow's model garden: ResNet."""

from __future__ import annotations

import re

from dlperf.catalog.script import Log
from dlperf.errors import whole_number
from dlperf.importlogs.facts import Said, argument, said
from dlperf.importlogs.format import Format, mean_of, printed

LINE = r"TimeHistory: (?P<seconds>[\d.]+) seconds, (?P<rate>[\d.]+) examples/second between steps \d+ and (?P<step>\d+)"

#: what other scripts that print such lines train: other data, other networks, other tasks; BERT's print its own besides
OTHERS = re.compile(
    r"\b(?:cifar|mnist|fashion_mnist|movielens|coco)(?![a-z])|\b(?:efficientnet|mobilenet|densenet|inception_?v\d|vgg_?1\d)"
    r"|\bresnet_?(?:18|34|56|101|110|152|200)\b|\b(?:resnet|keras)_cifar|\b(?:ncf|transformer)_\w{0,40}main\.py"
    r"|\b(?:d|g|disc|gen|discriminator|generator)_loss|Train Step: \d+",
    re.IGNORECASE,
)


#: its devices are those of its own worker
SEVERAL = re.compile(
    r"MultiWorkerMirroredStrategy with .{0,9999}?num_workers = (\d{1,5}), local_devices = \(([^)\n]{0,9999})"
)
#: in its configuration: MirroredStrategy is of one machine
ALONE = re.compile(r"'distribution_strategy': '(?:mirrored|one_device)'")
MIRRORED = re.compile(r"Using MirroredStrategy with devices \((?=[^)\n]{0,40}/job:localhost)([^)\n]{1,9999})")


def strategy(head: str) -> dict[str, str]:
    """Nodes and their devices, as TensorFlow's strategies tell them: one that mirrors has one node."""
    found: dict[str, str] = {}
    if cards := argument("num_gpus", head):
        found["devices_per_node"] = cards
    if several := SEVERAL.search(head):
        found["nodes"] = said(several)
    elif mirrored := MIRRORED.search(head):
        found |= {"nodes": said(mirrored, "1"), "devices_per_node": said(mirrored, str(mirrored[1].count("GPU:")))}
    elif alone := ALONE.search(head):
        found["nodes"] = said(alone, "1")
    if several and (cards_of_one := several[2].count("GPU:")):
        found["devices_per_node"] = said(several, str(cards_of_one))
    return found


def told(head: str) -> dict[str, str]:
    """The batch of all devices, where the script is told that of one, or in official/core/config_definitions.py's words
    "the global batch size across all replicas"."""
    found = strategy(head)
    nodes, cards = whole_number(found.get("nodes")), whole_number(found.get("devices_per_node"))
    if each := re.search(r"'train_dataset': \{[^{}]{0,2000}", head):
        batch, part = whole_number(argument("batch_size", each[0])), argument("use_per_replica_batch_size", each[0])
        if batch and (part == "True" or nodes == cards == 1):  # else nobody could tell it from that of all
            found["batch"] = said(each, str(batch * nodes * cards) if nodes and cards else "")
    if (data := re.search(r"'train_data': \{[^{}]{0,2000}", head)) and (
        all_of := argument("global_batch_size", data[0])
    ):
        found["batch"] = Said(all_of, data.start() + all_of.at)
    return found


def other(head: str) -> str:
    """What in it is of another network, other data or another task."""
    found = OTHERS.search(head)
    return f"it tells of {found[0]!r}, and only ImageNet's ResNet-50 is read of such lines" if found else ""


FORMAT = Format(
    name="tensorflow-resnet50",
    title="the TensorFlow model garden's ResNet",
    framework="tensorflow",
    model="resnet50",
    facts={"batch": "batch_size", "type": "dtype"},
    told=(told,),
    demands=re.compile("imagenet|resnet", re.IGNORECASE),
    otherwise="nothing in it tells that it is of ResNet-50; --model resnet50 says that it is",
    other=other,
    batch="global",
    unit="img/s",
    needle=b"TimeHistory:",
    begins=re.compile(r"\bclassifier_trainer\.py:\d+\]"),
    logs=(Log(re.compile(LINE), first=1, every=100, ranks="node"),),
    publisher=mean_of(1, 6, printed),
    estimator="mean_of_rates",
    who="DLPerf's extract_tensorflow_logs.py",
    warmup=100,
    steps=500,
)
