"""What a log tells of its run, whatever script wrote it: arguments, switches, launchers, BERT's sizes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlperf.upstream.logs import TAG

#: float16 in all, by the names that scripts have for types; of float32 nobody can say whether it is TF32
TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "single", "fp16": "fp16", "fp32": "single", "bf16": "bf16"}
#: BERT by layers and hidden size
BERT = {("12", "768"): "bert_base", ("24", "1024"): "bert_large"}
ON = {"true": True, "1": True, "false": False, "0": False, "none": False}
#: in a path, of a vocabulary for instance, it may be another's
SIZES = re.compile(
    r"(?:config|config_file|model|model_name_or_path)['\"]?[ :=]{1,9}['\"]?[\w./-]{0,300}?"
    r"(?:\buncased_L-(\d{1,3})_H-(\d{1,5})_A-|\bbert_(\d{1,3})_(\d{1,5})_\d{1,3}\b|\bbert_configs?[/_](base|large)\.json"
    r"|\bbert[-_](base|large)\b)"
)
#: each with what a log that it fits has, which is many times as fast to look for
LAUNCHERS = (
    ("LAUNCH INFO", r"LAUNCH INFO [\d-]+ [\d:,]+ nnodes: (\d{1,5})\s", "nodes"),
    (
        "--nnodes",
        r"(?:torchrun|torch\.distributed\.(?:launch|run))\b[^\n]{0,500}?--nnodes[ =](\d{1,5})(?![\d:])",
        "nodes",
    ),
    (
        "--nproc",
        r"(?:torchrun|torch\.distributed\.(?:launch|run))\b[^\n]{0,500}?--nproc[-_]per[-_]node[ =](\d{1,5})\b",
        "devices_per_node",
    ),
    *(
        (name, rf"{name}\b(?:(?!python|\.py|\.sh)[^\n]){{0,300}}?\s--?(?:np|n) (\d{{1,6}})\b", "processes")
        for name in ("horovodrun", "mpirun", "mpiexec")
    ),
    ("hvd.size()", r"hvd\.size\(\) = (\d{1,6})\b", "devices"),
)
#: lists of cards, as the launchers of PaddlePaddle tell them, and of nodes; python/paddle/distributed/launch.py starts
#: a process for each of `selected_gpus` on each of `cluster_node_ips`
CARDS = (
    ("LAUNCH INFO", r"LAUNCH INFO [\d-]+ [\d:,]+ devices: ([\d,]{1,999})\s"),
    (
        "distributed.launch",
        r"distributed\.launch [^\n]{0,500}?--(?:gpus|devices|selected_gpus)[ =]['\"]?([\d,]{1,999})",
    ),
    ("gpus: ", r"(?m)^(?:selected_)?gpus: ([\d,]{1,999})$"),
)

#: torchrun's tag of a process, and what NVIDIA's and Hugging Face's scripts say of each process
DEFAULT = re.compile(r"^\[default(?P<rank>\d{1,4})\]:", re.MULTILINE)
CUDA = re.compile(r"device: cuda:(?P<rank>\d{1,4}),? n_gpu: 1,? ?distributed training: True")


class Said(str):
    """What a log tells. at: how many characters of its head stand before it."""

    at: int

    def __new__(cls, value: str, at: int) -> Said:
        made = super().__new__(cls, value)
        made.at = at
        return made


def said(found: re.Match[str], value: str | None = None) -> Said:
    """Its first group, or what it means."""
    return Said(found[1] if value is None else value, found.start())


def argument(name: str, text: str) -> Said | None:
    """The value of an argument as a script prints it: name=1, name: 1, "name": 1, --name 1, name = 1,000."""
    spelled = re.escape(name).replace("_", "[-_]")  # begins with letters, for which re looks fast
    value = r"(\d{1,3}(?:,\d{3})+(?![\w.])|[\w.+-]{1,80})"
    for found in re.finditer(rf"{spelled}['\"]?(?:\s*[:=]\s*|\s+(?=\d))['\"]?{value}", text):
        if _apart(text, found):
            return said(found, found[1].replace(",", "").rstrip("."))
    return None


def _apart(text: str, found: re.Match[str]) -> bool:
    """Whether a name is not the end of another."""
    before = text[max(0, found.start() - 3) : found.start()]
    return not before or before.endswith("--") or not (before[-1].isalnum() or before[-1] in "-_")


def switched(names: Iterable[str], text: str) -> Said | None:
    """ "amp" where one of these arguments is on, "single" where all that are told are off."""
    off = None
    for name in names:
        spelled = re.escape(name).replace("_", "[-_]")  # begins with letters, for which re looks fast
        value = r"['\"]?(?:\s{0,9}[:=]\s{0,9}|\s)['\"]?(True|true|1|False|false|0|None)\b"
        for found in re.finditer(rf"{spelled}(?:{value}|(?=[\s'\",]|$))", text):
            bare = found[1] is None and not text.endswith("--", 0, found.start())
            if bare or not _apart(text, found):
                continue
            if found[1] is None or ON[found[1].lower()]:
                return said(found, "amp")
            off = off or said(found, "single")
    return off


def launched(head: str) -> dict[str, str]:
    """Nodes, and their devices, as launchers tell them."""
    found: dict[str, str] = {}
    for hint, pattern, key in LAUNCHERS:
        if key not in found and hint in head and (told := re.search(pattern, head)):
            found[key] = said(told)
    for hint, pattern in CARDS:
        if "devices_per_node" not in found and hint in head and (cards := re.search(pattern, head)):
            found["devices_per_node"] = said(cards, str(len(cards[1].strip(",").split(","))))
    if "ips: " in head and (nodes := re.search(r"(?m)^(?:cluster_node_)?ips: ([\d.,]{7,9999})$", head)):
        found.setdefault("nodes", said(nodes, str(len(nodes[1].strip(",").split(",")))))
    return found


def processes(head: str) -> dict[str, str]:
    """Of processes that have one device each: how many there are at least. One alone may be the only one that was kept,
    and of mpirun's those of one node."""
    found: dict[str, str] = {}
    for pattern, key in ((TAG, "least"), (DEFAULT, "devices_per_node"), (CUDA, "devices_per_node")):
        ranks = [rank for rank in set(pattern.findall(head)) if len(rank) < 7]
        if (last := max(ranks, key=int, default="0")) and int(last):
            at = next(one.start() for one in pattern.finditer(head) if one["rank"] == last)
            found.setdefault(key, Said(str(int(last) + 1), at))
    return found


def bert(head: str) -> dict[str, str]:
    """Which BERT it is, by what its parts or files are called."""
    layers, hidden = argument("num_hidden_layers", head), argument("hidden_size", head)
    heads, each = argument("num_attention_heads", head), argument("hidden_size_per_head", head)
    if not hidden and heads and each and heads.isdecimal() and each.isdecimal():
        hidden = Said(str(int(heads) * int(each)), each.at)
    if layers and hidden:
        return {"model": Said(BERT.get((layers, hidden), f"bert_{layers}_{hidden}"), layers.at)}
    if found := SIZES.search(head):
        pair, size = (found[1] or found[3], found[2] or found[4]), found[5] or found[6]
        return {"model": said(found, f"bert_{size}" if size else BERT.get(pair, "bert_" + "_".join(pair)))}
    return {}
