"""The figures of plain tables, as pages and spreadsheets have them: a row for each size, a column for each rate, or the
other way round. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dlperf.audit import estimators, headings, networks
from dlperf.audit.cells import model_of
from dlperf.audit.fields import (
    ENTRY,
    IDS,
    OPTIONS,
    SPREAD,
    first_number,
    number_of,
    pair,
    scaled,
    sequence,
    size_of,
    titled,
    turned,
    unit_of,
    whole_number,
)
from dlperf.audit.headings import normal
from dlperf.audit.tables import MARK, Table
from dlperf.figures.published import Figure, number

#: rows by which a column is told
MOST = 1000
#: of a first column of numbers, that they are devices
COUNT = re.compile(r"#|n|x|size|scale|count|", re.IGNORECASE)
#: of a column of models, though all are called by a number: 70B
NAMED = re.compile(r"(model|network|architecture)( name| variant)?s?")
#: what makes the figures of a table rates
SIZES = {"devices", "nodes", "per_node", "parallel", "batch"}
#: a first column of numbers that are no devices
STEPS = re.compile(
    r"step|iter|epoch|pass\b|time|seed|run|thread|layer|\bid\b|date|year|version|rank|p-?server|parameter server",
    re.IGNORECASE,
)
UNCLIPPED = re.compile(r"w/o clip|without (gradient )?clip|no clip", re.IGNORECASE)
#: a heading of MLPerf's summary.csv, whose figures are minutes
MLPERF = re.compile(r"accelerators_(count|per_node)|host_processors?_\w+")
#: of a page, that parts of a model are on several devices
SPLIT = re.compile(r"\b(TP|PP) ?= ?([2-9]|\d\d)|\b(tensor|pipeline)[- ]parallel", re.IGNORECASE)
#: a cell of which nothing was measured
BLANK = re.compile(r"[-–—/.?]*|n\.?/?a\.?|oom|tbd", re.IGNORECASE)


def figures(
    made: Sequence[Table], name: str, stem: str, needed: bool = True, prose: str = ""
) -> tuple[list[Figure], dict[str, str]]:
    """A figure for each cell, and what the parts of row labels are. name, stem: of the file. prose: of all of it.
    ValueError where no table has numbers beside its labels, if they are needed."""
    found: list[Figure] = []
    labels: dict[str, str] = {}
    everything = " ".join([one.title + " " + " ".join(one.notes) for one in made] + [stem, prose])
    devices = {one[1].upper() for one in headings.DEVICES.finditer(everything)}
    for at, table in enumerate(made, 1):
        id_ = f"{stem}-{at}" if len(made) > 1 else stem
        read = Read(id_, name, f"{table.title} {stem}", turned(table), devices.pop() if len(devices) == 1 else "")
        devices = devices or ({read.device} if read.device else set())
        labels[id_] = read.label
        found += read.figures()
    if needed and not any(one.value is not None for one in found):
        raise ValueError("its tables have no numbers beside their labels, so nothing can be audited")
    return found, labels


@dataclass(frozen=True)
class Read:
    """One table as it is understood. id: its name. file: its file's. title: its own, with the file's name. device: the
    one that the page names."""

    id: str
    file: str
    title: str
    table: Table
    device: str

    @cached_property
    def kinds(self) -> list[str]:
        """What each column is: a name of headings.NUMBERS or WORDS, `label`, or `figure`."""
        return [self._kind(at, head) for at, head in enumerate(self.table.head)]

    def _kind(self, at: int, head: str) -> str:
        cells = [MARK.sub("", row[at]) for _, row in self.table.rows[:MOST] if not BLANK.fullmatch(row[at].strip())]
        numbers = sum(first_number(one) is not None for one in cells)
        mostly = numbers * 2 > len(cells)
        if cells and all(any(headings.size(one)) for one in cells):
            return "label"
        named = "model" if mostly and NAMED.fullmatch(normal(head)) else headings.kind(head, mostly)
        if named == "devices" and len(cells) > 2 and cells == [str(number) for number in range(len(cells))]:
            return "label"  # which device it is of
        if named == "estimator" and not any(map(estimators.statistic, cells)):
            return "label"  # as a metric, which says what is measured
        if named == "devices" and any(IDS.fullmatch(one) for one in cells):
            return "label"  # which devices they are
        if named == "clip" and mostly and any((first_number(one) or 0.0) > 10 for one in cells):
            named = ""  # rates of a system without it
        if named in ("batch", "devices") and mostly and headings.rated(head):
            named = ""  # samples/s at a batch size
        if named == "batch" and (any(headings.batch(head)) or any("." in one for one in cells)):
            named = ""
        if not named and headings.STEP.fullmatch(normal(head)) and all(one.isdigit() for one in cells):
            return "label"
        if named == "throttled" or (named and not (headings.rated(head) and named not in OPTIONS)):
            return named
        if mostly or (numbers and headings.rated(head)) or re.search(r"\bloss\b", normal(head)):
            told = headings.rated(head) or headings.quantity(head)
            return "figure" if at or told else "label"
        clocks = headings.quantity(head) == "other" and any(re.search(r"\d:\d\d", one) for one in cells)
        return "figure" if clocks or (at and numbers and headings.quantity(head)) else "label"

    @cached_property
    def columns(self) -> list[str]:
        """Their headings, with a number behind each that another column of figures has before it: each is a system's
        of its own then."""
        seen: dict[str, int] = {}
        made = []
        for head, kind in zip(self.table.head, self.kinds, strict=True):
            seen[head] = seen.get(head, 0) + (kind == "figure")
            made.append(f"{head} ({seen[head]})" if kind == "figure" and seen[head] > 1 else head)
        return made

    @cached_property
    def label(self) -> str:
        return " | ".join(self.table.head[at] for at in self.labels)

    @cached_property
    def labels(self) -> list[int]:
        return [at for at, kind in enumerate(self.kinds) if kind not in ("figure", "listed")]

    @cached_property
    def unit(self) -> str:
        """Of rates whose columns have none of their own."""
        return headings.unit(self.title, True) or headings.unit(" ".join(self.table.notes), True)

    @cached_property
    def rated(self) -> bool:
        """Whether a column says that it is a rate: others that do not are none."""
        return any(headings.rated(head) for head in self.table.head)

    @cached_property
    def of_batches(self) -> bool:
        """Whether its figures are batch sizes, as its title or its file's name says: train-bs-fp16.csv."""
        return bool(
            re.search(r"\b(bs|batch ?sizes?)$|\bbs\b(?!\W*\d)", re.sub(r"[_-]", " ", self.title), re.IGNORECASE)
        )

    @cached_property
    def shares(self) -> set[int]:
        """Columns of which all is at most 1, or per cent: accuracies, by whatever name."""
        found = set()
        for at in range(len(self.table.head)):
            cells = [row[at] for _, row in self.table.rows[:MOST] if first_number(row[at]) is not None]
            if cells and all(cell.endswith("%") or abs(first_number(cell) or 0.0) <= 1 for cell in cells):
                found.add(at)
        return found

    @cached_property
    def scaled(self) -> set[int]:
        return scaled(self.table)

    @cached_property
    def pairs(self) -> set[int]:
        """Columns whose heading names two others, of which it is the ratio then."""
        figures_ = [at for at, kind in enumerate(self.kinds) if kind == "figure"]
        heads = tuple(self.table.head[at] for at in figures_)
        unknown = [at for at in figures_ if headings.quantity(self.table.head[at]) in ("", "other")]
        unknown = [at for at in unknown if not headings.THROUGHPUT.search(normal(self.table.head[at]))]
        return {at for at in unknown if pair(self.table.head[at], heads)}

    @cached_property
    def timed(self) -> bool:
        """Whether its figures are times, as far as its page tells."""
        told = " ".join([self.title, *self.table.notes])
        if any(MLPERF.fullmatch(head) for head in self.table.head):
            return True
        return not self.unit and not headings.RATE.search(told) and bool(headings.TIMED.search(told))

    @cached_property
    def sized(self) -> bool:
        """Whether the table itself tells numbers of devices; else its title may."""
        words = [*self.table.head, *(row[at] for _, row in self.table.rows for at in self.labels)]
        return bool({"devices", "nodes", "per_node"} & set(self.kinds)) or any(any(headings.size(one)) for one in words)

    @cached_property
    def size(self) -> tuple[int | None, int | None]:
        """That of the title, where the prose tells no other."""
        told = {headings.size(one) for one in (self.table.title, *self.table.notes)} - {(None, None)}
        return told.pop() if len(told) == 1 else (None, None)

    @cached_property
    def framework(self) -> str:
        """That of the title, where neither a column nor a row names any."""
        words = [*self.table.head, *(row[at] for _, row in self.table.rows for at in self.labels)]
        return "" if any(map(headings.framework, words)) else headings.framework(self.title)

    @cached_property
    def inferred(self) -> bool:
        return bool(re.search(r"\binference\b|\bserving\b|\bpredict", self.title, re.IGNORECASE))

    @cached_property
    def batched(self) -> bool:
        return bool({"batch", "micro_batch", "global_batch"} & set(self.kinds))

    @cached_property
    def sharded(self) -> bool:
        """Whether the parts of a model share a batch, and how many copies there are is not told."""
        parts = re.compile(r"(tensor|pipeline|model|expert)\W*parallel|^(tp|pp|mp|ep)$")
        told = SPLIT.search(" ".join([self.table.title, *self.table.notes]))
        split = told or any(parts.search(normal(head)) for head in self.table.head)
        return bool(split) and "parallel" not in self.kinds

    def figures(self) -> Iterator[Figure]:
        seen: dict[str, int] = {}
        for place, row in self.table.rows:
            label = " | ".join(row[at] for at in self.labels)
            seen[label] = seen.get(label, 0) + 1
            told = self._told(row)
            label += f" ({seen[label]})" if seen[label] > 1 else ""
            figures_ = [at for at, kind in enumerate(self.kinds) if kind == "figure"]
            if not figures_ and {"batch", "global_batch"} <= {*self.kinds}:
                figures_ = [self.kinds.index("global_batch")]  # a row of settings, which may contradict each other
            for at in figures_:
                yield from self._figures(label, at, row[at], told, place)

    def _told(self, row: Sequence[str]) -> dict[str, str]:
        """What a row says of all its figures; of batches also the heading, as `batch head`."""
        told: dict[str, str] = {}
        free = []
        for at, kind in enumerate(self.kinds):
            if kind == "figure":
                continue
            cell = row[at]
            if self.sharded and kind == "global_batch" and cell:
                told["whole_batch"] = cell
            elif kind != "label" and cell and not (self.sharded and "batch" in kind):
                told.setdefault(kind, cell)
                told.setdefault(f"{kind} head", self.table.head[at])
            elif kind == "label" and cell:
                pair = re.fullmatch(r"(\d+)\s*[x×*]\s*(\d+)", cell)
                if pair and re.search(r"nodes?\W*[x×*]\W*(gpu|device)", normal(self.table.head[at])):
                    told["nodes"], told["per_node"] = pair[1], pair[2]
                    continue
                if not ENTRY.fullmatch(normal(self.table.head[at])):
                    free.append(cell)
                bare = re.fullmatch(r"x?(\d+)\s*x?", cell, re.IGNORECASE)
                if bare and not at and COUNT.fullmatch(self.table.head[at].strip()):
                    told.setdefault("devices", bare[1])
        if "micro_batch" in told:
            told["batch"], told["batch head"] = told.pop("micro_batch"), told.pop("micro_batch head")
        elif "batch" not in told and normal(told.get("global_batch head", "")) == "train batch size":
            # of DeepSpeed it is the global one, of others that of a device
            told["batch"], told["batch head"] = told.pop("global_batch"), told.pop("global_batch head")
        for text in [
            *free,
            told.get("system", ""),
            told.get("device", ""),
            told.get("nodes", ""),
            told.get("devices", ""),
        ]:
            nodes, devices = headings.size(text) if not re.fullmatch(r"\d*", text) else (None, None)
            if nodes or not told.get("devices", "").isdigit():  # a machine may have more than a row used: 8x V100
                told.update({key: str(one) for key, one in (("nodes", nodes), ("devices", devices)) if one})
        told["marks"] = next(filter(None, (_mark(row[at]) for at in self.labels)), "")
        told["label"] = " ".join([*free, told.get("system", ""), told.get("framework", ""), told.get("device", "")])
        return told

    def _figures(
        self, label: str, at: int, printed: str, told: Mapping[str, str], place: int | str
    ) -> Iterator[Figure]:
        """One, or two where a second stands in brackets: 518.80 (77.48%)."""
        printed = MARK.sub("", SPREAD.sub("", printed)) if printed else ""
        one = self._figure(label, at, printed, told, place)
        two = re.fullmatch(r"(.*\d\S*)\s*\(([^()]*\d[^()]*)\)", printed)
        if two and number(two[1]) and number(two[2]):
            kind = "efficiency" if "%" in two[2] else "speedup" if re.search(r"[x×]", two[2]) else "other"
            yield replace(one, printed=two[1])
            yield replace(one, printed=two[2], quantity=kind, unit="%" if "%" in two[2] else "x", estimator="")
        else:
            yield one

    def _figure(self, label: str, at: int, printed: str, told: Mapping[str, str], place: int | str) -> Figure:
        head = self.table.head[at]
        first = normal(self.table.head[0])
        of_batches = bool(re.search(r"batch|\bbsz?\b", first)) and self.kinds[0] == "label"
        bare = headings.bare(head)
        sized = bare and not of_batches and not STEPS.search(first) and "0" not in self.table.head
        size = headings.size(head) if not re.fullmatch(r"\D*\d+\D?", head) else (None, whole_number(head.strip("xX ")))
        nodes, devices = size_of(told)
        if sized or (devices is None and any(size) and not re.fullmatch(r"\d+", head)):
            nodes, devices = size[0] or nodes, size[1]
        if nodes is None and devices is None and not self.sized:
            nodes, devices = self.size
        quantity = "speedup" if at in self.pairs else headings.quantity(head)
        many = sized or bool(told.keys() & SIZES) or bool(self.unit) or of_batches or any(headings.batch(head))
        of_rate = headings.unit(head) or headings.THROUGHPUT.search(normal(head))
        if not quantity or (headings.rated(head) and quantity == "other" and of_rate):
            rate = headings.rated(head) or bool(headings.unit(printed))
            rate = rate or (many and not (self.rated or self.timed or self.of_batches or at in self.shares))
            quantity = "throughput" if rate else "time_to_train" if many and self.timed and not self.rated else "other"
        quantity = "efficiency" if quantity == "speedup" and at in self.scaled else quantity
        words = f"{head} {told['label']}"
        marks = {one.strip(" \\") for one in (told["marks"], _mark(head)) if one}
        note = estimators.footnote((self.table.title, *self.table.notes), marks)
        model = model_of(told.get("model") or headings.model(words) or headings.model(self.title))
        precision = headings.precision(told.get("precision", "")) or headings.precision(head)
        precision = precision or headings.precision(told["label"]) or headings.precision(self.title)
        batch, batch_of = self._batch(head, told, of_batches, precision)
        return Figure(
            table=self.id,
            row=label,
            column=self.columns[at],
            printed=printed,
            quantity=quantity,
            unit=unit_of(quantity, head, printed, told.get("unit", "") or told["label"], self.unit),
            estimator=estimators.statistic(told.get("estimator", "")) or estimators.estimator(head) or note,
            model=model,
            system=self._system("" if sized or (bare and of_batches) else head, told["label"]),
            framework=headings.framework(told.get("framework", "")) or headings.framework(words) or self.framework,
            version="",
            precision=precision,
            options=self._options(head, told, precision),
            nodes=nodes,
            devices=devices,
            device=headings.device(told.get("device", ""))
            or headings.device(words)
            or headings.device(self.title)
            or told.get("device", "")
            or self.device,
            batch=batch,
            batch_of=batch_of if batch else "",
            steps="".join(re.findall(r"^\d+", told.get("steps", "").replace(",", ""))),
            origin="log" if re.search(r"\blogs?\b|\blogged\b", normal(head)) else "table",
            path=self.file if isinstance(place, int) else f"{self.file}: {place}" if place else self.file,
            line=place if isinstance(place, int) else None,
            doubt="",
        )

    def _system(self, head: str, label: str) -> str:
        """See headings.rest; of a number, as steps have it, without looking at each."""
        if not (number := label.strip()).isdecimal():
            return headings.rest(head, label, self.table.title)
        words = headings.rest(head, self.table.title)
        return words if number in words.split() else f"{words} {number}".strip()

    def _options(self, head: str, told: Mapping[str, str], precision: str) -> dict[str, str]:
        options = {
            **titled(self.table.title, tuple(self.table.notes)),
            **{key: told[key] for key in OPTIONS if key in told},
        }
        if "whole_batch" in told:
            options["whole_batch"] = number_of(precision, told["whole_batch"], head)
        if params := networks.stated(told.get("params", ""), told.get("params head", "")):
            options["parameters"] = f"{params:.6g}"
        if self.pairs and self.table.head.index(head) in self.pairs:
            options["over"] = "column"
        if UNCLIPPED.search(f"{head} {told['label']}"):
            options.setdefault("clip", "off")
        if length := sequence(f"{head} {self.title}"):
            options.setdefault("sequence", length)
        if self.inferred:
            options["task"] = "inference"
        if "accumulation" in told:
            options["accumulation"] = number_of(precision, told["accumulation"], told["accumulation head"])
        return options

    def _batch(self, head: str, told: Mapping[str, str], of_batches: bool, precision: str) -> tuple[str, str]:
        """A batch size and of what it is; the first is empty where it is not told."""
        batch, of = headings.batch(head)
        if not batch and of_batches and re.fullmatch(r"\d+", head):
            batch, of = head, "device"
        titled = headings.batch(self.title)
        if not batch and titled[1] == "device" and "global_batch" in told and "batch" not in told:
            batch, of = titled
        if not batch and "batch" in told:
            batch, of = number_of(precision, told["batch"], told["batch head"]), "device"
        elif not batch and "global_batch" in told:
            batch, of = number_of(precision, told["global_batch"], told["global_batch head"]), "global"
        if not batch:
            batch, of = headings.batch(told["label"])
        if not batch and not self.batched:
            return titled
        return batch, of


def _mark(told: str) -> str:
    """Of a footnote, at the end of a heading or label."""
    return found[0].strip(" \\") if (found := MARK.search(told)) else ""
