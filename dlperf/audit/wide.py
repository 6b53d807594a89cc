"""Plain tables, as pages and spreadsheets have them: a row for each size, a column for each rate. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlperf.audit.cells import model_of
from dlperf.figures.published import NUMBER, Figure

#: what a column is, by its heading, the first that fits; all others are rates
KINDS = (
    ("global_batch", r"global.*batch|total.*batch|effective batch"),
    ("accumulated", r"accumulated.*batch"),
    ("accumulation", r"accumulat"),
    ("batch", r"batch|\bbs\b|\bbsz\b"),
    ("per_node", r"(gpus?|devices?|accelerators?|cards?|ranks?)\s*(/|per)\s*(node|machine|host)"),
    ("nodes", r"\bnodes?\b|\bnum_nodes\b|machines?|hosts?"),
    ("devices", r"^(num|number|no|n|#|\s|_|of|\.)*(gpus?|devices?|accelerators?|cards?|trainers?|workers?|chips?)\.?$"),
    ("device", r"^(gpu|device|accelerator|hardware)\s*(type|name|model)$|^hardware$"),
    ("sequence", r"seq(uence)?[ _]?len|^seq(uence)?$"),
    ("model", r"^model$|^network$"),
    ("framework", r"^framework$"),
    ("system", r"^(system|implementation)$"),
    ("precision", r"^(precision|dtype|data ?type)$"),
    ("estimator", r"^estimator$"),
    ("ran", r"steps? (run|ran|logged|measured|executed)|(ran|logged|executed) steps?"),
    ("steps", r"^(num |number of )?(steps|iterations|iters)$"),
    ("runs", r"^(runs|repeats|repetitions|n)$"),
    ("unit", r"^units?$"),
)
QUANTITIES = (
    ("efficiency", r"efficien"),
    ("speedup", r"speed ?-?up|scaling|\baccel"),
    ("time_to_train", r"time.to.(train|accuracy)|training time|\btime\b.*\(?(h|min|hours?|minutes)\)?$"),
    (
        "other",
        r"latency|overhead|memory|loss|accuracy|\bauc\b|(ms|s|sec|seconds)\s*(/|per)\s*(step|it|batch)|step time",
    ),
)
SIZE = re.compile(r"(\d+)\s*n(?:odes?)?\s*[x_\- ]*\s*(\d+)\s*([gd])(?:pus?|evices?)?", re.IGNORECASE)
PRECISION = (
    ("tf32", r"\btf32\b"),
    ("amp", r"\bamp\b|mixed"),
    ("bf16", r"\bbf(loat)?16\b"),
    ("fp16", r"\b(fp|float)16\b"),
    ("fp32", r"\b(fp|float)32\b"),
)
UNITS = re.compile(
    r"\b(img|imgs|images?|samples?|sentences?|sequences?|seqs?|tokens?|words?|steps?|lines?|examples?|it|iters?)\s*"
    r"(?:/|per)\s*(?:s|sec|second)\b(?:\s*(?:/|per)\s*(gpu|device|card|chip))?",
    re.IGNORECASE,
)
TIMES = re.compile(r"\b(ms|sec(?:onds)?|s|min(?:utes)?|h(?:ours)?)\b", re.IGNORECASE)
SYNONYMS = {"sec": "s", "seconds": "s", "minutes": "min", "hours": "h"}
MODELS = re.compile(
    r"resnet[- _]?50|bert[- _]?(?:base|large)|vgg[- _]?16|gpt[- _]?2|transformer|word2vec|ctr|simnet", re.IGNORECASE
)
DEVICES = re.compile(
    r"\b(GB200|B200|H200|H100|A100|A800|H800|V100|P100|K80|T4|L40S|L40|L4|A30|A10G?|RTX ?\w+)\b"
    r"(?:[- ]?(?:SXM\d?|PCIe?))?(?:[- ]?\d+ ?GB?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Table:
    """title: what stands above it. head: its columns. rows: with their line in the file."""

    title: str
    head: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]


def tables(lines: Sequence[str], suffix: str) -> list[Table]:
    """Of a file in CSV, or of all tables of a page. ValueError, with the line, where there is none."""
    piped = [number for number, line in enumerate(lines, 1) if line.lstrip().startswith("|")]
    found = _markdown(lines) if suffix in (".md", ".markdown") or len(piped) > 2 else _csv(lines)
    if not found:
        raise ValueError("no table is in it: a first line of column names and a row of figures are needed")
    return found


def _csv(lines: Sequence[str]) -> list[Table]:
    text = [line for line in lines if not line.startswith("#")]
    first = len(lines) - len(text)
    try:
        delimiter = "\t" if text and "\t" in text[0] else ";" if text and ";" in text[0] and "," not in text[0] else ","
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        rows = [(reader.line_num + first, [one.strip() for one in row]) for row in reader if any(row)]
    except csv.Error as error:
        raise ValueError(f"line {first + 1} or below: {error}") from None
    if len(rows) < 2 or len(rows[0][1]) < 2:
        return []
    head = rows[0][1]
    _whole(head, rows[1:])
    return [Table("", head, rows[1:])]


def _whole(head: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]]) -> None:
    for number, row in rows:
        if len(row) != len(head):
            raise ValueError(f"line {number}: it has {len(row)} columns, the first line {len(head)}")


def _markdown(lines: Sequence[str]) -> list[Table]:
    found, title, block = [], "", []
    for number, line in enumerate([*lines, ""], 1):
        if line.lstrip().startswith("|"):
            cells = [one.strip().strip("*` ") for one in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            block.append((number, cells))
            continue
        if len(block) > 2 and all(re.fullmatch(r":?-+:?", one) for one in block[1][1]):
            _whole(block[0][1], block[2:])
            found.append(Table(title, block[0][1], block[2:]))
        if block:
            block = []
        elif line.strip():
            title = line.strip("#* \n") if line.startswith(("#", "**")) or not found else title
    return found


def figures(made: Sequence[Table], path: Path) -> tuple[list[Figure], dict[str, str]]:
    """A figure for each cell, and what the parts of row labels are. ValueError where a table has no rates."""
    found: list[Figure] = []
    labels: dict[str, str] = {}
    for number, table in enumerate(made, 1):
        name = f"{path.stem}-{number}" if len(made) > 1 else path.stem
        kinds = _kinds(table)
        labels[name] = " | ".join(table.head[at] for at, kind in enumerate(kinds) if kind != "figure")
        seen: dict[str, int] = {}
        for line, row in table.rows:
            label = " | ".join(row[at] for at, kind in enumerate(kinds) if kind != "figure")
            seen[label] = seen.get(label, 0) + 1
            told = _told(table, kinds, row)
            label += f" ({seen[label]})" if seen[label] > 1 else ""
            for at, kind in enumerate(kinds):
                if kind == "figure":
                    found.append(_figure(name, label, table, at, row[at], told, path, line))
    if not any(one.value is not None for one in found):
        raise ValueError("its tables have no numbers beside their labels, so nothing can be audited")
    return found, labels


def _kinds(table: Table) -> list[str]:
    """What each column is: a name of KINDS, `label`, or `figure`."""
    found = []
    for at, head in enumerate(table.head):
        kind = next((kind for kind, pattern in KINDS if re.search(pattern, head.strip(), re.IGNORECASE)), "")
        if UNITS.search(head) or re.search(r"throughput|speed|scaling|efficien|samples?/s", head, re.IGNORECASE):
            kind = "figure"
        numbers = sum(bool(NUMBER.fullmatch(row[at])) for _, row in table.rows)
        found.append(kind or ("figure" if at and numbers else "label"))
    return found


def _told(table: Table, kinds: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """What a row says of all its figures."""
    told: dict[str, str] = {}
    for at, kind in enumerate(kinds):
        if kind not in ("figure", "label") and row[at]:
            told.setdefault(kind, row[at])
        elif kind == "label" and (size := SIZE.search(row[at])):
            told["nodes"], told["per_node"] = size[1], size[2]
            if size[3] in "dD":
                told["devices"] = told.pop("per_node")
        elif kind == "label" and not at and (number := re.fullmatch(r"x?(\d+)\s*(x|gpus?|devices?)?", row[at], re.I)):
            told.setdefault("devices", number[1])
    return told


def _figure(
    name: str, label: str, table: Table, at: int, printed: str, told: Mapping[str, str], path: Path, line: int
) -> Figure:
    head = table.head[at]
    words = f"{head} {label}"
    options = {key: told[key] for key in ("sequence", "global_batch", "accumulated", "runs", "ran") if key in told}
    made = Figure(
        table=name,
        row=label,
        column=head,
        printed=printed,
        quantity="",
        unit=told.get("unit", ""),
        estimator=told.get("estimator", "").lower().replace(" ", "_"),
        model=model_of(told.get("model", "")),
        system=told.get("system", ""),
        framework=told.get("framework", ""),
        version="",
        precision="",
        options=options,
        nodes=_whole_number(told.get("nodes", "")),
        devices=_devices(told),
        device=told.get("device", ""),
        batch="",
        batch_of="",
        steps=_digits(told.get("steps", "")),
        origin="table",
        path=path.name,
        line=line,
        doubt="",
    )
    made = completed(made, f"{table.title} {path.stem}")
    made = replace(made, precision=precision(told.get("precision", "")) or made.precision)
    if "accumulation" in told:
        made = replace(made, options={**made.options, "accumulation": _of(made, told["accumulation"], table, at)})
    if "batch" in told:
        batch = _of(made, told["batch"], table, at)
        heading = next((one for one in table.head if re.search(r"batch", one, re.IGNORECASE)), "")
        is_global = re.search("global|total", heading, re.IGNORECASE)
        made = replace(made, batch=batch, batch_of="global" if is_global else "device" if batch else "")
    elif found := re.search(r"\b(?:bsz?|batch(?: size)?)\s*[=:]?\s*(\d+)", words, re.IGNORECASE):
        made = replace(made, batch=found[1], batch_of="device")
    return made


def completed(figure: Figure, title: str = "") -> Figure:
    """A figure with what its labels say where its fields are empty: quantity, unit, precision, size, model, device, and
    other names of models."""
    words = f"{figure.column} {figure.row}"
    quantity = figure.quantity or next(
        (kind for kind, pattern in QUANTITIES if re.search(pattern, figure.column, re.IGNORECASE)), "throughput"
    )
    nodes, devices = figure.nodes, figure.devices
    if devices is None and (size := SIZE.search(words)):
        nodes = nodes or int(size[1])
        devices = int(size[2]) * (int(size[1]) if size[3] in "gG" else 1)
    elif devices is None and nodes is None:
        number = re.match(r"(?:x ?)?(\d{1,5})\s*(?:x|gpus?|devices?)?\s*(?:$|\|)", figure.row.strip(), re.IGNORECASE)
        number = number or re.fullmatch(r"(\d{1,5})\s*(?:x|gpus?|devices?)?", figure.column.strip(), re.IGNORECASE)
        devices = int(number[1]) if number and int(number[1]) else None
    model = figure.model or (found[0] if (found := MODELS.search(f"{words} {title}")) else "")
    device = figure.device or (found[0] if (found := DEVICES.search(f"{words} {title}")) else "")
    options = dict(figure.options)
    if re.search(r"w/o clip|without clip", words, re.IGNORECASE):
        options.setdefault("clip", "off")
    known = precision(figure.column) or precision(figure.row) or precision(title)
    return replace(
        figure,
        table=figure.table or title,
        quantity=quantity,
        unit=figure.unit or _unit(f"{figure.column} {figure.printed}", quantity),
        model=model_of(model),
        device=device,
        nodes=nodes,
        devices=devices,
        origin=figure.origin or "table",
        options=options,
        precision=figure.precision or known,
        batch_of=figure.batch_of or ("device" if figure.batch else ""),
    )


def precision(told: str) -> str:
    """Of a text that names one; of two, as `FP32 - mixed precision`, none."""
    found = [name for name, pattern in PRECISION if re.search(pattern, told, re.IGNORECASE)]
    return found[0] if len(found) == 1 else ""


def _unit(told: str, quantity: str) -> str:
    if quantity == "throughput":
        found = UNITS.search(told)
        return re.sub(r"\s*(/|per)\s*(s|sec|second)\b", "/s", found[0]).lower() if found else ""
    if quantity in ("time_to_train", "other"):
        time = TIMES.search(told)
        return SYNONYMS.get(time[0].lower(), time[0].lower()) if time else "%" if "%" in told else ""
    return "%" if "%" in told else "x" if quantity == "speedup" else ""


def _devices(told: Mapping[str, str]) -> int | None:
    devices, nodes, each = (_whole_number(told.get(key, "")) for key in ("devices", "nodes", "per_node"))
    return devices or (nodes * each if nodes and each else each if each and not nodes else None)


def _whole_number(told: str) -> int | None:
    found = re.match(r"x?\s*(\d{1,7})\b", told)
    return (int(found[1]) or None) if found else None


def _digits(told: str) -> str:
    return "".join(re.findall(r"^\d+", told.replace(",", "")))


def _of(figure: Figure, told: str, table: Table, at: int) -> str:
    """Of a cell with a number for each precision, as `64 , 32`, the one of a figure's."""
    numbers = re.findall(r"\d+", re.sub(r"(?<=\d),(?=\d{3}\b)", "", told))
    if len(numbers) != 2:
        return numbers[0] if len(numbers) == 1 else ""
    order = [narrow for head in table.head for narrow in _order(head) if len(_order(head)) == 2] or [True, False]
    mine = figure.precision not in ("fp32", "tf32", "")
    return numbers[order.index(mine)] if figure.precision else ""


def _order(head: str) -> list[bool]:
    """Of a heading that names two precisions, whether each is a narrow one."""
    names = re.findall(r"mixed precision|FP16|AMP|BF16|FP32|TF32", head, re.IGNORECASE)
    return [not re.fullmatch("FP32|TF32", name, re.IGNORECASE) for name in names]
