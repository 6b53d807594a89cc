"""How large a logged run was: from the log's arguments, else from its path, else from flags. Never guessed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from dlperf.errors import whole_number
from dlperf.importlogs.format import Format
from dlperf.words import count

#: folders and files of DLPerf's tree: 4n8g, bz128, r50_b128_fp32_5.log
NODES, BATCH = re.compile(r"(\d{1,5})n(\d{1,5})[gd]"), re.compile(r"(?:bz|b|bs)(\d{1,7})")
FILE = re.compile(r"(?P<model>.+?)_b(?P<batch>\d{1,7})_(?P<precision>fp32|tf32|fp16|amp|bf16)(?:_(?P<run>\d{1,6}))?")
#: what files and scripts call models
MODELS = {
    **dict.fromkeys(("r50", "rn50", "resnet50", "resnetv15", "resnet50_v1.5", "resnet50_v1b"), "resnet50"),
    **dict.fromkeys(("bert", "bert-base", "bert_base", "bert-base-adam-training"), "bert_base"),
    **dict.fromkeys(("bert-large", "bert_large"), "bert_large"),
}
PRECISIONS = ("fp32", "tf32", "amp", "fp16", "bf16")
FLAGS = {
    "nodes": "--nnodes",
    "devices_per_node": "--nproc-per-node",
    "batch": "--batch-size",
    "precision": "--precision",
}


@dataclass(frozen=True)
class Size:
    """batch: per device and step of a device. doubts: what log, path and flags do not agree on."""

    nodes: int
    devices_per_node: int
    batch: int
    precision: str
    model: str = ""
    accumulation: int = 1
    claimed: int | None = None
    run: str = ""
    doubts: tuple[str, ...] = ()


def of_path(path: PurePath) -> dict[str, str]:
    """What folders and file tell, the nearest first."""
    found: dict[str, str] = {}
    stem = path.name.removesuffix(".log").removesuffix(".txt")
    if name := FILE.fullmatch(stem):
        found.update({key: value for key, value in name.groupdict().items() if value})
    for part in (stem, *reversed(path.parts[:-1])):
        if (case := NODES.fullmatch(part)) and "nodes" not in found:
            found |= {"nodes": case[1], "devices_per_node": case[2]}
        elif (batch := BATCH.fullmatch(part)) and "batch" not in found:
            found["batch"] = batch[1]
        elif part in PRECISIONS and "precision" not in found:
            found["precision"] = part
    return found


def argument(name: str, text: str) -> str | None:
    """The value of an argument as a script prints it: name=1, name: 1, "name": 1, --name 1, name = 1."""
    spelled = re.escape(name).replace("_", "[-_]")  # begins with letters, for which re looks fast
    for found in re.finditer(rf"{spelled}['\"]?(?:\s*[:=]\s*|\s+(?=\d))['\"]?([\w.+-]{{1,80}})", text):
        before = text[max(0, found.start() - 3) : found.start()]
        if not before or before.endswith("--") or not (before[-1].isalnum() or before[-1] in "-_"):
            return found[1]
    return None


def of_log(form: Format, head: str) -> dict[str, str]:
    found = {key: value for key, name in form.facts.items() if (value := argument(name, head))}
    if form.name == "tf-cnn-benchmarks":
        if each := re.search(r"(\d{1,7}) per device", head):
            found["batch"] = each[1]
        if devices := re.search(r"Devices:\s+\[(.{1,9999}?)\]", head):
            found["devices_per_node"] = str(devices[1].count(",") + 1)
    if form.amp and form.amp.search(head):
        found["precision"] = "amp"
    return found


def size(form: Format, path: PurePath, head: str, ranks: int, given: Mapping[str, str]) -> Size | list[str]:
    """ranks: how many the log's tags tell, 0 if none. A list of what is missing where it does not suffice."""
    told, placed = of_log(form, head), of_path(path)
    doubts: list[str] = []
    nodes = _number("nodes", told, placed, given, doubts)
    each = _number("devices_per_node", told, placed, given, doubts)
    if nodes and not each and ranks and ranks % nodes == 0:
        each = ranks // nodes
    per_device = dict(told)
    if "batch" in told and form.batch != "device" and nodes and each:
        parts = {"global": nodes * each, "node": each, "tokens": 128}[form.batch]
        whole = whole_number(told["batch"])
        accumulated = whole_number(told.get("accumulation", "1")) or 1
        parts *= accumulated if form.batch == "global" else 1
        if whole is None or whole % parts:
            doubts.append(f"its {form.facts['batch']} of {told['batch']} is not that of {parts} equal parts")
            del per_device["batch"]
        else:
            per_device["batch"] = str(whole // parts)
    elif form.batch != "device":
        per_device.pop("batch", None)
    batch = _number("batch", per_device, placed, given, doubts)
    precision = told.get("precision") or placed.get("precision") or given.get("precision", "")
    if {told.get("precision", precision), placed.get("precision", precision)} not in ({precision}, {"amp", "fp16"}):
        doubts.append(f"the log says precision {told['precision']}, the path {placed['precision']}")
    known = {"nodes": nodes, "devices_per_node": each, "batch": batch, "precision": precision}
    if missing := [name for name, value in known.items() if not value]:
        return missing
    model = told.get("model") or placed.get("model") or ""
    model = MODELS.get(model.lower(), "") or given.get("model") or model or form.model
    if ranks and ranks != (nodes or 0) * (each or 0):
        print_ = "prints" if ranks == 1 else "print"
        doubts.append(f"{count(ranks, 'rank')} {print_}, of {(nodes or 0) * (each or 0)} devices")
    return Size(
        nodes=nodes or 0,
        devices_per_node=each or 0,
        batch=batch or 0,
        precision=precision,
        model=model if re.fullmatch(r"[\w.+-]{1,80}", model) else "",
        accumulation=whole_number(told.get("accumulation", "1")) or 1,
        claimed=whole_number(told.get("steps", "")),
        run=placed.get("run", ""),
        doubts=tuple(doubts),
    )


def _number(
    name: str, told: Mapping[str, str], placed: Mapping[str, str], given: Mapping[str, str], doubts: list[str]
) -> int | None:
    values = {
        where: number
        for where, of in (("log", told), ("path", placed), (FLAGS[name], given))
        if (number := whole_number(of.get(name, ""), most=10**7))
    }
    if len(set(values.values())) > 1:
        doubts.append(f"{name.replace('_', ' ')}: " + ", ".join(f"{where} {value}" for where, value in values.items()))
    return next(iter(values.values()), None)


def missing(names: Sequence[str]) -> str:
    """What to do where a size is not known."""
    words = ", ".join(name.replace("_", " ") for name in names)
    return f"neither the log nor its path tells {words}; give {', '.join(FLAGS[name] for name in names)}"
