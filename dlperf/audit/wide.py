"""Plain tables, as pages and spreadsheets have them: a row for each size, a column for each rate. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlperf.audit.cells import model_of
from dlperf.figures.published import NUMBER, Figure

#: what a column is, by its heading with spaces for underscores, the first that fits; all others are figures
_DEVICES = r"(gpus?|devices?|accelerators?|cards?|trainers?|workers?|chips?|ranks?)"
KINDS = (
    ("global_batch", r"global.*batch|total.*batch|effective batch"),
    ("accumulated", r"accumulated.*batch"),
    ("accumulation", r"accumulat"),
    ("batch", r"batch|\bbs\b|\bbsz\b"),
    ("per_node", rf"{_DEVICES}( num)? ?(/|per) ?(node|machine|host)"),
    ("nodes", r"^(num |number of |no\.? )?(of )?(nodes?|machines?|hosts?)( num| number| count)?$"),
    ("devices", rf"^(num |number of |no\.? |# ?)?(of )?{_DEVICES}( num| number| count)?$"),
    ("device", r"^(gpu|device|accelerator|hardware) (type|name|model)$|^hardware$"),
    ("sequence", r"seq(uence)? ?len|^seq(uence)?$"),
    ("model", r"^(model|network)$"),
    ("framework", r"^framework$"),
    ("system", r"^(system|implementation)$"),
    ("precision", r"^(precision|dtype|data ?type)$"),
    ("estimator", r"^estimator$"),
    ("epoch_steps", r"(steps|iterations|batches) ?(per|in an?|/) ?epoch|epoch (steps|length)"),
    ("warmup", r"^warm-? ?up( steps)?$"),
    ("ran", r"steps? (run|ran|logged|measured|executed)|(ran|logged|executed) steps?"),
    ("steps", r"^(num |number of )?(steps|iterations|iters)$"),
    ("runs", r"^(runs|repeats|repetitions|n)$"),
    ("unit", r"^units?$"),
)
#: what a figure is, likewise; a rate, if a table has a number of devices or a batch, or a heading names a rate
QUANTITIES = (
    ("other", r"(time|latency).*speed ?-?up"),
    ("efficiency", r"efficien"),
    ("speedup", r"speed ?-?up|scaling"),
    ("time_to_train", r"time.to.(train|accuracy)|training time|\btime\b.*\(?(h|hrs|min|hours?|minutes)\)?$"),
    ("other", r"^(total |elapsed )?(samples|images|sentences|sequences|tokens)$"),
    ("other", r"^(total |elapsed )?(seconds|elapsed|time|timestamp|clock)( time)?( ?[(\[]s(ec|econds)?[)\]])?$"),
    (
        "other",
        r"late?ncy|lantency|overhead|\bmem|loss|accuracy|\bauc\b|util|usage|vocab|embedding|classes|flop|hidden|"
        r"layers|ratio|parallel|seed|\bstd|deviation|heads|parameter|length|%|"
        r"(ms|s|sec|seconds) ?(/|per) ?(step|it|batch)|step time",
    ),
)
RATE = re.compile(r"throughput|throuthput|\brates?\b|\bips\b", re.IGNORECASE)
SIZE = re.compile(r"(\d+)\s*n(?:odes?)?\s*[x_\- ]*\s*(\d+)\s*([gd])(?:pus?|evices?)?", re.IGNORECASE)
#: a heading that says how many devices
SIZED = re.compile(r"x?\d+\s*(x|gpus?|devices?|nodes?|n\d+[gd])?", re.IGNORECASE)
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
#: how a figure was made, by its heading
ESTIMATED = (
    ("mean_of_rates", r"mean of (the )?(\w+ )?(rates|speeds)|(average|mean) (rate|speed)s?|per-step mean"),
    ("samples_over_seconds", r"samples? (over|/|by) (seconds|time|elapsed)|elapsed|total samples"),
)
OPTIONS = ("sequence", "global_batch", "accumulated", "runs", "ran", "epoch_steps", "warmup")
#: a first column of numbers that are no devices
STEPS = re.compile(r"step|iter|epoch|pass\b|time|seed|run", re.IGNORECASE)
#: what makes the figures of a table rates
SIZES = {"devices", "nodes", "per_node", "batch"}
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
    """title: the headings of the sections that it is in, and the line above it. head: its columns. rows: with their
    line in the file."""

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
    """Of a page; rows that are too short or long are filled or cut, as renderers do."""
    found: list[Table] = []
    headings, note, block = list[tuple[int, str]](), "", list[tuple[int, list[str]]]()
    for number, line in enumerate([*lines, ""], 1):
        if line.lstrip().startswith("|"):
            told = line.strip().removeprefix("|").removesuffix("|")
            block.append((number, [_plain(one) for one in re.split(r"(?<!\\)\|", told)]))
            continue
        if len(block) > 2 and all(re.fullmatch(r":?-+:?", one) for one in block[1][1]):
            head = block[0][1]
            rows = [(at, (row + [""] * len(head))[: len(head)]) for at, row in block[2:]]
            above = [text for _, text in headings]
            title = " ".join(dict.fromkeys(filter(None, (*above, note))))
            found.append(Table(title, head, rows))
        if block:
            block = []
        elif line.strip():
            note = _plain(line.strip("#-* \n"))[:200]
            if level := len(line) - len(line.lstrip("#")):
                headings = [*(one for one in headings if one[0] < level), (level, note)]
    return found


def _plain(told: str) -> str:
    """A cell of Markdown without links, breaks and stars."""
    told = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"<br ?/?>", " ", told))
    return re.sub(r"\s+", " ", told).strip(" *`\t")


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
    found: list[str] = []
    for at, head in enumerate(table.head):
        plain = head.strip().replace("_", " ")
        kind = next((kind for kind, pattern in KINDS if re.search(pattern, plain, re.IGNORECASE)), "")
        named = UNITS.search(plain) or RATE.search(plain) or _quantity(head)
        if named and kind not in ("sequence", "per_node", "devices", "nodes"):
            kind = "figure"
        numbers = sum(bool(NUMBER.fullmatch(row[at])) for _, row in table.rows)
        if kind == "batch" and (re.search(r"=\s*\w", head) or any("." in row[at] for _, row in table.rows)):
            kind = "figure"
        found.append(kind or ("figure" if at and numbers else "label"))
    return found


def _quantity(head: str) -> str:
    plain = head.replace("_", " ")
    return next((kind for kind, pattern in QUANTITIES if re.search(pattern, plain, re.IGNORECASE)), "")


def _told(table: Table, kinds: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """What a row says of all its figures; of batches also the heading, as `batch head`."""
    told: dict[str, str] = {}
    sharded = any("parallel" in head for head in table.head)  # a model's parts share a batch
    for at, kind in enumerate(kinds):
        if kind not in ("figure", "label") and row[at] and not (sharded and "batch" in kind):
            told.setdefault(kind, row[at])
            told.setdefault(f"{kind} head", table.head[at])
        elif kind == "label" and (size := SIZE.search(row[at])):
            told["nodes"], told["per_node"] = size[1], size[2]
            if size[3] in "dD":
                told["devices"] = told.pop("per_node")
        elif (
            kind == "label"
            and not at
            and not STEPS.search(table.head[at])
            and (number := re.fullmatch(r"x?(\d+)\s*(x|gpus?|devices?)?", row[at], re.I))
        ):
            told.setdefault("devices", number[1])
    return told


def _figure(
    name: str, label: str, table: Table, at: int, printed: str, told: Mapping[str, str], path: Path, line: int
) -> Figure:
    head = table.head[at]
    sized = SIZED.fullmatch(head) and not re.search("batch", f"{table.head[0]} {table.title}", re.IGNORECASE)
    estimated = next((name for name, pattern in ESTIMATED if re.search(pattern, head, re.IGNORECASE)), "")
    logged = bool(re.search(r"\blogs?\b|\blogged\b", head, re.IGNORECASE))
    aside = SIZED.fullmatch(head) or estimated or logged
    rated = any(UNITS.search(one) or RATE.search(one) for one in table.head) or sized or told.keys() & SIZES
    options = {key: told[key] for key in OPTIONS if key in told}
    made = Figure(
        table=name,
        row=label,
        column=head,
        printed=printed,
        quantity=_quantity(head) or ("throughput" if rated else "other"),
        unit=told.get("unit", ""),
        estimator=told.get("estimator", "").lower().replace(" ", "_") or estimated,
        model=model_of(told.get("model", "")),
        system=told.get("system", table.title if aside else f"{table.title} {head}".strip()),
        framework=told.get("framework", ""),
        version="",
        precision="",
        options=options,
        nodes=_whole_number(told.get("nodes", "")),
        devices=_devices(told) or (_whole_number(head) if sized and "nodes" not in told else None),
        device=told.get("device", ""),
        batch="",
        batch_of="",
        steps=_digits(told.get("steps", "")),
        origin="log" if logged else "table",
        path=path.name,
        line=line,
        doubt="",
    )
    made = completed(made, f"{table.title} {path.stem}", sizes=False)
    made = replace(made, precision=precision(told.get("precision", "")) or made.precision)
    if "accumulation" in told:
        of = _of(made, told["accumulation"], told["accumulation head"])
        made = replace(made, options={**made.options, "accumulation": of})
    if "batch" in told:
        batch = _of(made, told["batch"], told["batch head"])
        return replace(made, batch=batch, batch_of="device" if batch else "")
    words = f"{head} {label} {table.title}"
    found = re.search(r"\b(?:bsz?|batch(?:[ _]size)?)\s*[=:]?\s*(\d+)", words, re.IGNORECASE)
    return replace(made, batch=found[1], batch_of="device") if found else made


def completed(figure: Figure, title: str = "", sizes: bool = True) -> Figure:
    """A figure with what its labels say where its fields are empty: quantity, unit, precision, model, device, and other
    names of models. sizes: also nodes and devices."""
    words = f"{figure.column} {figure.row}"
    quantity = figure.quantity or _quantity(figure.column) or "throughput"
    nodes, devices = figure.nodes, figure.devices
    if devices is None and sizes and (size := SIZE.search(words)):
        nodes = nodes or int(size[1])
        devices = int(size[2]) * (int(size[1]) if size[3] in "gG" else 1)
    elif devices is None and nodes is None and sizes:
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


def _of(figure: Figure, told: str, head: str) -> str:
    """Of a cell with a number for each precision, as `64 , 32`, the one of a figure's; empty where that is open."""
    order = _order(head)
    numbers = re.findall(r"\d+", told if len(order) == 2 else re.sub(r"(?<=\d),(?=\d{3}\b)", "", told))
    if len(numbers) == 1:
        return str(numbers[0])
    mine = figure.precision not in ("fp32", "tf32")
    return str(numbers[order.index(mine)]) if len(numbers) == len(set(order)) == 2 and figure.precision else ""


def _order(head: str) -> list[bool]:
    """Of a heading that names two precisions, whether each is a narrow one."""
    names = re.findall(r"mixed precision|FP16|AMP|BF16|FP32|TF32", head, re.IGNORECASE)
    return [not re.fullmatch("FP32|TF32", name, re.IGNORECASE) for name in names]
