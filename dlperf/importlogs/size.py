"""How large a logged run was: from the log's arguments, else from its path, else from flags. Never guessed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from dlperf.errors import whole_number
from dlperf.importlogs.format import Format, argument

#: folders of DLPerf's tree, 4n8g and bz128; of all names, what stands between underlines, dots and hyphens
FOLDERS = (
    re.compile(r"(?P<nodes>\d{1,5})n(?P<devices_per_node>\d{1,5})[gd]"),
    re.compile(r"(?:bz|b|bs)(?P<batch>\d{1,7})"),
    re.compile(r"(?P<precision>fp32|tf32|fp16|amp|bf16)"),
)
WORDS = (
    *(FOLDERS[0], re.compile(r"n(?P<nodes>\d{1,5})c(?P<devices_per_node>\d{1,5})"), FOLDERS[2]),
    *(re.compile(r"(?:bz|bs)(?P<batch>\d{1,7})"), re.compile(r"gpus?(?P<devices>\d{1,6})")),
)
#: files of DLPerf's tree: r50_b128_fp32_5.log
FILE = re.compile(r"(?P<model>.+?)_b(?P<batch>\d{1,7})_(?P<precision>fp32|tf32|fp16|amp|bf16)(?:_(?P<run>\d{1,6}))?")
#: what files and scripts call models
MODELS = {
    **dict.fromkeys(("r50", "rn50", "resnet50", "resnet50_v1.5", "resnet50_v1b"), "resnet50"),
    **dict.fromkeys(("bert", "bert-base", "bert_base", "bert-base-adam-training", "bert-base-uncased"), "bert_base"),
    **dict.fromkeys(("bert-large", "bert_large", "bert-large-uncased"), "bert_large"),
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


def of_path(path: PurePath, doubts: list[str]) -> dict[str, str]:
    """What folders and file tell, the nearest first."""
    told: dict[str, list[str]] = {}
    stem = path.name.removesuffix(".log").removesuffix(".txt")
    name = FILE.fullmatch(stem)
    words = re.split(r"[_.-]+", stem.lower())
    places = [name, *(one.fullmatch(word) for word in words for one in WORDS)]
    for part in reversed(path.parts[:-1]):
        places += [one.fullmatch(part) for one in FOLDERS]
        places += [one.fullmatch(word) for word in re.split(r"[_.-]+", part.lower()) for one in WORDS]
    for found in filter(None, places):
        for key, value in found.groupdict().items():
            if value:
                told.setdefault(key, []).append(value)
    for key, values in told.items():
        if len(set(values)) > 1 and key in FLAGS:
            doubts.append(f"{_words(key)}: its path tells {' and '.join(dict.fromkeys(values))}")
    return {key: values[0] for key, values in told.items()}


def of_log(form: Format, head: str) -> dict[str, str]:
    found = {key: value for key, name in form.facts.items() if (value := argument(name, head))}
    found |= form.told(head) if form.told else {}
    if form.amp and form.amp.search(head):
        found["precision"] = "amp"
    return found


def size(form: Format, path: PurePath, head: str, ranks: int, given: Mapping[str, str]) -> Size | list[str]:
    """ranks: how many the log's tags tell, 0 if none. A list of what is missing where it does not suffice."""
    doubts: list[str] = []
    told, placed = of_log(form, head), of_path(path, doubts)
    nodes, each = _devices(told, placed, given, ranks, doubts)
    accumulated = whole_number(told.get("accumulation", "1")) or 1
    batch = _number("batch", {**told, **_batch(form, told, nodes, each, accumulated, doubts)}, placed, given, doubts)
    precision = told.get("precision") or placed.get("precision") or given.get("precision", "")
    if {told.get("precision", precision), placed.get("precision", precision)} not in ({precision}, {"amp", "fp16"}):
        doubts.append(f"the log says precision {told['precision']}, the path {placed['precision']}")
    known = {"nodes": nodes, "devices_per_node": each, "batch": batch, "precision": precision}
    if missing := [name for name, value in known.items() if not value]:
        return missing
    return Size(
        nodes=nodes or 0,
        devices_per_node=each or 0,
        batch=batch or 0,
        precision=precision,
        model=_model(told, placed, given, doubts) or form.model,
        accumulation=accumulated,
        claimed=whole_number(told.get("steps", "").removesuffix(".0")),
        run=placed.get("run", ""),
        doubts=tuple(doubts),
    )


def _devices(
    told: Mapping[str, str], placed: Mapping[str, str], given: Mapping[str, str], ranks: int, doubts: list[str]
) -> tuple[int | None, int | None]:
    """Nodes, and devices of each."""
    nodes = _number("nodes", told, placed, given, doubts)
    each = _number("devices_per_node", told, placed, given, doubts)
    every = _number("devices", told, placed, {}, doubts) or ranks
    if every == 1:
        nodes, each = nodes or 1, each or 1
    if every and nodes and not each and every % nodes == 0:
        each = every // nodes
    if every and each and not nodes and every % each == 0:
        nodes = every // each
    if every and nodes and each and every != nodes * each:
        doubts.append(f"it tells of {every} devices, not {nodes * each}")
    return nodes, each


def _batch(
    form: Format, told: Mapping[str, str], nodes: int | None, each: int | None, accumulated: int, doubts: list[str]
) -> dict[str, str]:
    """The batch of a device and step, of what the log says of another; empty where it cannot be told."""
    if "batch" not in told or form.batch == "device":
        return {}
    if not (nodes and each):
        return {"batch": ""}
    parts = {"global": nodes * each * accumulated, "node": each, "tokens": 128}[form.batch]
    whole = whole_number(told["batch"])
    if whole is None or whole % parts:
        doubts.append(f"its batch of {told['batch']} is not that of {parts} equal parts")
        return {"batch": ""}
    return {"batch": str(whole // parts)}


def _model(told: Mapping[str, str], placed: Mapping[str, str], given: Mapping[str, str], doubts: list[str]) -> str:
    """The first that tells it. A word that no file can have as a name is none."""
    named = [MODELS.get(one.lower(), one) for of in (told, placed, given) if (one := of.get("model", ""))]
    if len(set(named)) > 1:
        doubts.append(f"model: {', '.join(dict.fromkeys(named))}; the first is taken")
    return next((one for one in named if re.fullmatch(r"[\w.+-]{1,80}", one)), "")


def _number(
    name: str, told: Mapping[str, str], placed: Mapping[str, str], given: Mapping[str, str], doubts: list[str]
) -> int | None:
    values = {
        where: number
        for where, of in (("log", told), ("path", placed), (FLAGS.get(name, ""), given))
        if (number := whole_number(of.get(name, ""), most=10**7))
    }
    if len(set(values.values())) > 1:
        doubts.append(f"{_words(name)}: " + ", ".join(f"{where} {value}" for where, value in values.items()))
    return next(iter(values.values()), None)


def _words(name: str) -> str:
    return name.replace("_", " ")


def missing(names: Sequence[str]) -> str:
    """What to do where a size is not known."""
    words = ", ".join(map(_words, names))
    return f"neither the log nor its path tells {words}; give {', '.join(FLAGS[name] for name in names)}"
