"""What single labels and cells of a table say: sizes, units, numbers; and what the labels of a figure say besides its
fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dlperf.audit import headings
from dlperf.audit.cells import model_of
from dlperf.audit.headings import normal
from dlperf.audit.tables import Table
from dlperf.figures.published import Figure, number

TIMES = re.compile(r"\b(ms|sec(?:onds)?|s|min(?:utes)?|h(?:ours?)?|days?)\b", re.IGNORECASE)
SYNONYMS = {"sec": "s", "seconds": "s", "minutes": "min", "hours": "h", "hour": "h", "day": "days"}
SPREAD = re.compile(r"\s*(±|\+/-|\+-).*$")

#: what a row tells that becomes an option of its figures
OPTIONS = (
    *(
        "sequence",
        "global_batch",
        "accumulated",
        "runs",
        "ran",
        "epoch_steps",
        "from_step",
        "warmup",
        "dataset",
        "parallel",
    ),
    *("clip", "loss_scale", "optimizer", "data", "params", "image_size", "throttled", "listed"),
)
#: of a column that tells one row from the others, and nothing of what was measured
ENTRY = re.compile(r"(public |submission |run |entry |row )?(id|entry|index|key|no\.?|#)")
#: a list of devices
IDS = re.compile(r"\[?\d{1,2}(, ?\d{1,2})+\]?")


#: between the two columns that a heading names: A/B, A vs B, A over B
_OVER = re.compile(
    r"\s*(?:/|÷|\bvs\b\.?|\bversus\b|\bover\b|\bto\b|\bagainst\b|\brelative to\b|\bcompared (?:to|with)\b|"
    r"\bdivided by\b|(?<=\s)[:–-](?=\s))\s*"
)
#: what else it says
_RATIO = re.compile(
    r"\b(speed-? ?ups?|ratios?|gains?|factors?|times|x|of|the|from|improvements?|throughputs?|latency|latencies|in|%|"
    r"relative|performance|faster)\b|[()\[\]%]"
)


@headings.cache
def pair(head: str, others: tuple[str, ...]) -> tuple[str, str] | None:
    """The two columns that a heading names, as `amp / fp32` does beside `fp32 img/s` and `AMP img/s`: by all words of
    each part, and by none that others have too."""
    parts = [_words(_RATIO.sub(" ", part)) for part in _OVER.split(normal(head))]
    if len(parts) != 2 or not all(parts) or headings.unit(head):
        return None
    told = {other: _words(normal(other)) for other in others if other != head}
    found = [[other for other, words in told.items() if part <= words] for part in parts]
    exact = [[other for other in several if told[other] == part] for several, part in zip(found, parts, strict=True)]
    chosen = [a if len(a) == 1 else b for a, b in zip(exact, found, strict=True)]
    return (chosen[0][0], chosen[1][0]) if [len(one) for one in chosen] == [1, 1] and chosen[0] != chosen[1] else None


def _words(told: str) -> set[str]:
    return set(re.findall(r"[^\W_]+(?:[.+][^\W_]+)*", told))


#: rows of a table of two columns that are settings by their names, as batch and GPUs, and so are columns of one row
SETTINGS = 3
#: of a first column, whose rows are systems and whose columns are sizes or batches
TRANSPOSED = re.compile(r"^(metric|quantity|measure|)$", re.IGNORECASE)


def turned(table: Table) -> Table:
    """With a row for each size, where it has a column for each and a row for each kind of figure."""
    first = [str(row[0]) for _, row in table.rows]
    if len(table.head) == 2 and sum(bool(headings.kind(one, True)) for one in first) >= SETTINGS:
        return Table(table.title, first, [(table.rows[0][0], [row[1] for _, row in table.rows])], table.notes)
    several = len({headings.quantity(one) or headings.unit(one) for one in first}) > 1
    if not (len(table.head) > 2 and several and all(map(headings.bare, table.head[1:]))):
        return table
    rows = [
        (table.rows[0][0], [head, *(row[at] for _, row in table.rows)]) for at, head in enumerate(table.head[1:], 1)
    ]
    return Table(table.title, [table.head[0] or "devices", *first], rows, table.notes)


def completed(figure: Figure, title: str = "") -> Figure:
    """A figure with what its labels say where its fields are empty, and other names of models."""
    words = f"{figure.column} {figure.row}"
    quantity = figure.quantity or headings.quantity(figure.column) or "throughput"
    nodes, devices = figure.nodes, figure.devices
    if devices is None and nodes is None:
        nodes, devices = headings.size(words)
        number = re.match(r"(?:x ?)?(\d{1,5})\s*x?\s*(?:$|\|)", figure.row.strip(), re.IGNORECASE)
        number = number or re.fullmatch(r"(\d{1,5})\s*x?", figure.column.strip(), re.IGNORECASE)
        devices = devices or (int(number[1]) or None if number and not nodes else None)
    options = dict(figure.options)
    if re.search(r"w/o clip|without clip", words, re.IGNORECASE):
        options.setdefault("clip", "off")
    known = figure.precision or next(filter(None, map(headings.precision, (figure.column, figure.row, title))), "")
    return replace(
        figure,
        table=figure.table or title,
        quantity=quantity,
        unit=figure.unit or unit_of(quantity, figure.column, figure.printed),
        model=model_of(figure.model or headings.model(f"{words} {title}")),
        device=figure.device or headings.device(f"{words} {title}"),
        nodes=nodes,
        devices=devices,
        origin=figure.origin or "table",
        options=options,
        precision=known,
        batch_of=figure.batch_of or ("device" if figure.batch else ""),
    )


def first_number(told: str) -> float | None:
    """The number of a cell, whatever stands behind it in brackets or as its spread."""
    found = number(re.sub(r"\s*\(.*\)$", "", SPREAD.sub("", told)))
    numbers = re.fullmatch(r"\d+(\s*(,|/|and|\|)\s*\d+)+", told)  # of two precisions: 64 , 32
    return found[0] if found else 0.0 if numbers else None


def unit_of(quantity: str, head: str, printed: str, stated: str = "", of_all: str = "") -> str:
    if quantity == "throughput":
        short = stated if re.fullmatch(r"\S+", stated) else ""
        return headings.unit(head) or headings.unit(stated, True) or short or headings.unit(printed) or of_all
    if quantity in ("time_to_train", "other"):
        time = TIMES.search(f"{normal(head)} {printed} {stated}")
        return SYNONYMS.get(time[0].lower(), time[0].lower()) if time else "%" if "%" in head + printed else ""
    return "%" if "%" in head + printed else "x" if quantity == "speedup" else ""


def size_of(told: Mapping[str, str]) -> tuple[int | None, int | None]:
    devices, nodes, each, parallel = (
        whole_number(told.get(key, "")) for key in ("devices", "nodes", "per_node", "parallel")
    )
    whole = devices or (nodes * each if nodes and each else each if each and not nodes else None)
    return nodes, whole or (parallel if not nodes else None)


def whole_number(told: str) -> int | None:
    found = re.match(r"x?\s*(\d{1,7})\b", told.replace(",", ""))
    return (int(found[1]) or None) if found else None


def number_of(precision: str, told: str, head: str) -> str:
    """Of a cell with a number for each precision, as `64 , 32`, the one of this precision; empty where that is open."""
    order = headings.order(head)
    numbers = re.findall(r"\d+", headings.whole_numbers(told, head))
    if len(numbers) == 1:
        return str(numbers[0])
    mine = precision not in ("fp32", "tf32")
    return str(numbers[order.index(mine)]) if len(numbers) == len(set(order)) == 2 and precision else ""


LENGTH = re.compile(r"\bseq(?:uence)?[ _]?(?:len(?:gth)?)?\s*(?:of|=|:)?\s*(\d{2,5})\b", re.IGNORECASE)
FEW = re.compile(r"\b(?:a |one |only )(?:single )?run\b|\bsingle run\b|\b(?:two|2) runs\b|\brun once\b", re.IGNORECASE)
#: of a page, the pixels of its images, where they are not those of ImageNet
SQUARE = re.compile(r"\b(\d{2,4}) ?[x×] ?\1\b(?! ?gpu)|\b(?:cifar|mnist|svhn)", re.IGNORECASE)
#: of a title, over how many parts gradients are added up
ACCUMULATED = re.compile(r"\baccumulat\w*(?: steps| over)?\W{0,9}(?:of |is )?(\d{1,5})\b(?![.,]\d)", re.IGNORECASE)


@headings.cache
def titled(title: str, notes: tuple[str, ...]) -> dict[str, str]:
    """What a title, and the prose with it, says of all figures, as their options have it where no column does."""
    found: dict[str, str] = {}
    if parts := ACCUMULATED.search(title):
        found["accumulation"] = parts[1]
    if pixels := SQUARE.search(title):
        found["image_size"] = pixels[1] or "32"
    if few := FEW.search(" ".join([title, *notes])):
        found["runs"] = "2" if re.search("two|2", few[0]) else "1"
    return found


@headings.cache
def sequence(told: str) -> str:
    """The tokens of a row that a text tells."""
    found = LENGTH.search(told)
    return found[1] if found else ""


#: of a heading and its cell, that it is scaling in per cent, and the most that an efficiency has
WHOLE = 115.0
SCALING = re.compile(r"\bscal(ing|ability)\b")
PERCENT = re.compile(r"\bscal(ing|ability)\b.*(%|percent|pct)")


def scaled(table: Table) -> set[int]:
    """Columns of scaling in per cent, or of shares, which are all at most WHOLE: efficiencies, and no speedups."""
    found = set()
    for at, head in enumerate(table.head):
        if not SCALING.search(normal(head)):
            continue
        cells = [row[at] for _, row in table.rows if first_number(row[at]) is not None]
        most = max((first_number(cell) or 0.0 for cell in cells), default=0.0)
        told = all(PERCENT.search(f"{normal(head)} {cell}") for cell in cells)
        shares = len(cells) > 1 and most <= WHOLE / 100
        if cells and ((told and most <= WHOLE) or shares):
            found.add(at)
    return found
