"""How large a logged run was: from the log's arguments, else from its path, else from flags. Never guessed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from dlperf.errors import whole_number
from dlperf.importlogs.facts import TYPES, Said, argument, launched, processes, switched
from dlperf.importlogs.format import Format
from dlperf.importlogs.recognise import Unusable
from dlperf.words import count

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
    **dict.fromkeys(("r50", "rn50", "resnet50", "resnet50_v1.5", "resnet50_v1b", "resnetv15"), "resnet50"),
    **dict.fromkeys(("bert", "bert-base", "bert_base", "bert-base-adam-training", "bert-base-uncased"), "bert_base"),
    **dict.fromkeys(("bert-large", "bert_large", "bert-large-uncased"), "bert_large"),
}
NUMBER = re.compile(r"[-+]?\d+")
#: of a row, where a log that counts its batch in tokens does not tell it
TOKENS = 128
PRECISIONS = ("fp32", "tf32", "amp", "fp16", "bf16")
FLAGS = {
    "nodes": "--nnodes",
    "devices_per_node": "--nproc-per-node",
    "batch": "--batch-size",
    "precision": "--precision",
    "model": "--model",
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


def named_models(path: PurePath, given: Mapping[str, str]) -> str:
    """Models that its path, as far as they are known, or a flag names, as figures call them."""
    parts = [*path.parts, of_path(path, []).get("model", "")]
    return " ".join([*(MODELS[one.lower()] for one in parts if one.lower() in MODELS), _called(given.get("model", ""))])


def of_log(form: Format, head: str) -> dict[str, str]:
    """Of precision "single" where it tells no more than that it is no half one."""
    return _possible(_all_of_log(form, head))


def _possible(told: Mapping[str, str]) -> dict[str, str]:
    sizes = ("batch", "nodes", "devices_per_node", "devices", "accumulation", "least")
    return {key: value for key, value in told.items() if key not in sizes or whole_number(value)}


def _all_of_log(form: Format, head: str) -> dict[str, str]:
    """With sizes that cannot be."""
    found = launched(head)
    if started := found.pop("processes", ""):
        found |= {"devices": started} if form.process == "device" else {}
    found |= processes(head) if form.process == "device" else {}
    found |= {key: value for key, name in form.facts.items() if (value := argument(name, head))}
    kind = found.pop("type", "")
    if isinstance(kind, Said) and kind in TYPES:
        found["precision"] = Said(TYPES[kind], kind.at)
    if (amp := switched(form.amp, head)) and (amp == "amp" or "precision" not in found):
        found["precision"] = amp
    for told in form.told:
        found |= told(head)
    return found


def size(form: Format, path: PurePath, head: str, ranks: int, given: Mapping[str, str]) -> Size:
    """ranks: how many the log's tags tell, 0 if none. Unusable where all that does not suffice, or the log tells
    something else than is given."""
    doubts: list[str] = []
    every, placed = _all_of_log(form, head), of_path(path, doubts)
    told = _possible(every)
    wrong = {key: one for key, one in every.items() if key in FLAGS and key not in told and NUMBER.fullmatch(one)}
    absurd = {key: f"{_where(one, head)} tells {_words(key)} {one[:20]}, which cannot be" for key, one in wrong.items()}
    if ranks > 1:
        told.setdefault("devices", str(ranks))
    nodes, each = _devices(told, placed, given, doubts)
    accumulated = whole_number(told.get("accumulation", "1")) or 1
    shared = _batch(form, told, nodes, each, accumulated, doubts)
    whole = shared.get("batch") == "" and not (nodes and each)  # nobody tells yet what it is divided by
    told |= shared
    if against := _contradicted(told, given, head):
        raise Unusable(f"{'; '.join(against)}. Leave out what the log tells itself, or import this log apart")
    batch = _number("batch", told, placed, given, doubts)
    precision = _precision(told, placed, given, doubts)
    known = {"nodes": nodes, "devices_per_node": each, "batch": batch, "precision": precision}
    # what follows from the others is not asked for
    follows = {"batch": whole, "devices_per_node": not nodes and "devices" in told}
    if missing := [name for name, value in known.items() if not (value or follows.get(name))]:
        said = "".join(f"{absurd[one]}; " for one in missing if one in absurd)
        raise Unusable(f"it looks like {form.title}, but {said}{_missing(missing, told | absurd, placed)}")
    doubts += absurd.values()
    if not (model := _model(told, placed, given, doubts) or form.model):
        doubts.append("neither the log nor its path tells which model it is; --model names it")
    return Size(
        nodes=nodes or 0,
        devices_per_node=each or 0,
        batch=batch or 0,
        precision=precision,
        model=model,
        accumulation=accumulated,
        claimed=whole_number(told.get("steps", "").removesuffix(".0")),
        run=placed.get("run", ""),
        doubts=tuple(doubts),
    )


def _contradicted(told: Mapping[str, str], given: Mapping[str, str], head: str) -> list[str]:
    """What flags say that the log tells otherwise."""
    wrong = []
    for name, flag in FLAGS.items():
        if name in given and told.get(name) and not _alike(name, told[name], given[name]):
            value = "fp32 or tf32" if told[name] == "single" else told[name]
            wrong.append(f"{flag} {given[name]}: {_where(told[name], head)} tells {_words(name)} {value}")
    flags = [f"{FLAGS[name]} {given[name]}" for name in ("nodes", "devices_per_node") if name in given]
    if wrong or not flags:
        return wrong
    nodes, each = (whole_number(told.get(name) or given.get(name)) for name in ("nodes", "devices_per_node"))
    product = (nodes or 1) * (each or 1)
    every, least = whole_number(told.get("devices")), whole_number(told.get("least")) or 1
    if every and (product > every or every % product or (nodes and each and product != every)):
        wrong.append(f"{' '.join(flags)}: {_where(told['devices'], head)} tells {count(every, 'device')} in all")
    elif not every and nodes and each and product < least:
        wrong.append(f"{' '.join(flags)}: {_where(told['least'], head)} tells {least} devices or more")
    return wrong


def _alike(name: str, one: str, other: str) -> bool:
    if name == "precision":
        same = {"single": {"fp32", "tf32"}, "amp": {"amp", "fp16"}, "fp16": {"amp", "fp16"}}
        return other in same.get(one, {one})
    return _called(one) == _called(other) if name == "model" else int(one) == int(other)


def _called(model: str) -> str:
    return MODELS.get(model.lower(), model)


def _where(value: str, head: str) -> str:
    if not isinstance(value, Said):
        return "the log"
    text = head[value.at : value.at + 50].partition("\n")[0].strip()
    return f"line {head.count(chr(10), 0, value.at) + 1} of the log ({text!r})"


def _precision(told: Mapping[str, str], placed: Mapping[str, str], given: Mapping[str, str], doubts: list[str]) -> str:
    """What the log tells, else its path, else the flag; empty where that is not enough."""
    mine = told.get("precision", "")
    others = [one for one in (placed.get("precision"), given.get("precision")) if one]
    if others and mine and not _alike("precision", mine, others[0]):
        doubts.append(f"the log says precision {'fp32 or tf32' if mine == 'single' else mine}, the path {others[0]}")
    if mine != "single":
        return mine or next(iter(others), "")
    return next((one for one in others if one in ("fp32", "tf32")), "")


def _devices(
    told: Mapping[str, str], placed: Mapping[str, str], given: Mapping[str, str], doubts: list[str]
) -> tuple[int | None, int | None]:
    """Nodes, and devices of each."""
    nodes = _number("nodes", told, placed, given, doubts)
    each = _number("devices_per_node", told, placed, given, doubts)
    every = _number("devices", told, placed, {}, doubts)
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
    whole, row = whole_number(told["batch"]), whole_number(told.get("row", "")) or TOKENS
    of_rows = told.get("row") == "0"
    if form.batch == "tokens" and (of_rows or (whole and whole < row)):
        if not of_rows:
            doubts.append(f"its batch of {whole} is taken to be rows: one has {row} tokens, and in_tokens is not told")
        return {}
    every = nodes * each if nodes and each else whole_number(told.get("devices"))
    if not every or (form.batch == "node" and not each):
        return {"batch": ""}
    parts = {"global": every * accumulated, "node": each or 0, "tokens": row}[form.batch]
    if whole is None or whole % parts:
        tokens = f"{told['batch']} tokens is not that of whole rows of {row}"
        said = tokens if form.batch == "tokens" else f"{told['batch']} is not that of {parts} equal parts"
        doubts.append(f"its batch of {said}")
        return {"batch": ""}
    part = str(whole // parts)
    return {"batch": Said(part, told["batch"].at) if isinstance(told["batch"], Said) else part}


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


def _missing(names: Sequence[str], told: Mapping[str, str], placed: Mapping[str, str]) -> str:
    """What to do where a size is not known."""
    half = ""
    if "precision" in names and told.get("precision") == "single":
        path = f", its path {placed['precision']}" if "precision" in placed else ""
        half = f"it tells of precision that it is fp32 or tf32{path}; "
    every = {"nodes": f" (of {told['devices']} devices in all)"} if "devices" in told else {}
    known = {"precision"} if half else set[str]()
    wanted = [_words(name) + every.get(name, "") for name in names if name not in known | told.keys() - {"precision"}]
    lacks = f"neither the log nor its path tells {', '.join(wanted)}; " if wanted else ""
    return f"{lacks}{half}give {', '.join(FLAGS[name] for name in names)}"
