"""Figures as the rules look at them: numbers with the range that their digits leave open, and which cells are the same
but for the number of devices. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from dlperf import models
from dlperf.audit import headings
from dlperf.audit.excerpts import Excerpt
from dlperf.figures import rates, summaries
from dlperf.figures.published import NUMBER, Figure, number
from dlperf.schema import Comparison

#: options that say how often and where a figure was taken, or that differ with the number of devices anyway
NOTES = frozenset(
    [
        *("start_ms", "stop_ms", "fail", "n", "sem", "std", "peak_memory", "score", "weight", "notes", "batch_file"),
        *("key", "step", "from_end", "runs", "across_runs", "benchmarks", "over", "heading", "source_label", "epochs"),
        *(
            "ran",
            "ran_steps",
            "steps_run",
            "steps_ran",
            "logged_steps",
            "epoch_steps",
            "warmup",
            "global_batch",
            "whole_batch",
        ),
        *("accumulated", "parameters"),
    ]
)
OF_SIZE = frozenset(
    [
        *("accumulation", "gradient_accumulation_steps", "trainers", "dali", "horovod", "ib", "cross_replica_sync"),
        *("loader_workers", "variable_update", "local_parameter_device", "d_batch_size", "accelerators_per_node"),
    ]
)
#: what is counted in a second, by the first word of a unit
COUNTED = {
    **dict.fromkeys(
        ("im", "img", "imgs", "image", "images", "sample", "samples", "sentence", "sentences", "seq"), "rows"
    ),
    **dict.fromkeys(("sequence", "sequences", "example", "examples", "ins", "instances", "records", "pairs"), "rows"),
    **dict.fromkeys(("token", "tokens", "tok", "tks", "word", "words"), "tokens"),
    **dict.fromkeys(("step", "steps", "it", "iter", "iters", "iterations", "batch", "batches"), "steps"),
    **dict.fromkeys(("line", "lines"), "lines"),
}
#: of a unit that is of a part
PARTS = {name: {*of.split("|"), *(f"{one}s" for one in of.split("|"))} for name, of in headings.PARTS.items()}
#: of a unit that is not of seconds
SLOW = {"minute": ("min", "minute", "minutes"), "hour": ("h", "hour", "hours")}
#: below which a whole number may have been cut, by as much as matters
FEW = 100
#: digits that a float holds, and what no figure is larger than
SHARPEST, LARGEST = 15, 1e18
SECONDS = {
    **{"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0},
    **{"h": 3600.0, "hours": 3600.0, "days": 86400.0},
}


@dataclass(frozen=True, eq=False)
class Cell:
    """A figure and where it stands. value: None where it is no number, or was read off a chart: nothing is computed
    with it then. low, high: what it may have been before it was rounded, or the 95 % interval of a measured row.
    runs: of a row that was measured here."""

    figure: Figure
    source: str
    where: str
    value: float | None
    low: float = 0.0
    high: float = 0.0
    runs: int | None = None

    @cached_property
    def size(self) -> int | None:
        """Devices of all nodes; nodes, where these are all that is known."""
        return self.figure.devices or self.figure.nodes

    @cached_property
    def parts(self) -> int | None:
        """How many of what its rate is of make up the whole: 1 of a rate of all devices; None where it is not known."""
        what = counted(self.figure.unit)
        if what.endswith("per node"):
            return self.figure.nodes
        return self.size if what.endswith("per device") else 1

    @cached_property
    def of_each(self) -> bool:
        """Whether its rate is that of one device."""
        return counted(self.figure.unit).endswith("per device")

    @property
    def of_log(self) -> bool:
        """Whether it was read from a log here, which gives several figures of one run."""
        return self.figure.origin == "log" and "format" in self.figure.options

    @property
    def number(self) -> float:
        """Its value; 0 where it has none."""
        return self.value or 0.0

    @property
    def devices(self) -> int:
        """Its size; 0 where it is not known."""
        return self.size or 0

    @cached_property
    def decimals(self) -> int:
        return max(0, -round(math.log10(self.ulp)))

    @cached_property
    def digits(self) -> int:
        """How many of them its number has, without leading and trailing zeros."""
        found = NUMBER.fullmatch(self.figure.printed.strip())
        return min(SHARPEST, len(re.sub(r"\D|[eE].*", "", found[1]).strip("0"))) if found else 0

    @cached_property
    def ulp(self) -> float:
        """One of its last digit."""
        found = number(self.figure.printed)
        return found[1] if found else 1.0

    @cached_property
    def setting(self) -> tuple[Hashable, ...]:
        """What was measured on what, but for batch and number of devices."""
        one = self.figure
        options = tuple(sorted((k, v) for k, v in one.options.items() if k not in NOTES and k not in OF_SIZE))
        system = re.sub(r"^\d+\s?x\s|_n\d+\b", "", one.system)
        return one.model, one.framework, one.version, one.precision, counted(one.unit), one.device, system, options

    @cached_property
    def split(self) -> bool:
        """Whether several devices share a copy of the model, and with it a batch."""
        parallel = stated(self.figure.options.get("parallel", ""))
        return bool(parallel and self.figure.devices and parallel < self.figure.devices)

    @property
    def copies(self) -> int | None:
        """Of a model: as many as devices, but where these share one."""
        return int(stated(self.figure.options["parallel"]) or 0) if self.split else self.figure.devices

    @cached_property
    def batch(self) -> tuple[str, float | None]:
        """Of each device, as far as it is known."""
        one = self.figure
        number = float(one.batch) if re.fullmatch(r"\d{1,12}(\.\d+)?", one.batch) else None
        if one.batch_of == "global" and number and one.devices:
            return "device", number / one.devices
        return one.batch_of or "unknown", number

    @cached_property
    def global_batch(self) -> tuple[str, float | None]:
        kind, number = self.batch
        if self.split and self.figure.batch_of == "device":
            return "global", stated(self.figure.options.get("global_batch", ""))
        return ("global", number * self.figure.devices) if number and self.figure.devices else (kind, number)

    @property
    def accumulated(self) -> tuple[str, float | None]:
        """Its global batch times the parts that a step accumulates, as far as it is known."""
        kind, number = self.global_batch
        parts = stated(self.figure.options.get("accumulation", ""))
        return (kind, number * parts) if number and parts else (kind, number)


@dataclass(frozen=True, eq=False)
class Subject:
    """All that is audited together: the cells of one source, or those of a comparison, with it. labels: what the parts
    of a row's label are, by table: `GPUs | Sequence Length | Global Batch Size`.
    plain: whether it is a file, which may belong to others that are named with it. changed: what somebody did to the
    files of a comparison by hand. unread: logs that no figure could be read of, and why.
    left: rows of its tables that were left out. notes: what its file says beside tables, line by line. excerpts, named,
    prose: of a document, logs that it quotes, the numbers with a name in its code, and its text."""

    name: str
    cells: Sequence[Cell]
    comparison: Comparison | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    plain: bool = False
    changed: Sequence[str] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    left: int = 0
    excerpts: Sequence[Excerpt] = ()
    named: Mapping[str, Sequence[tuple[int, str]]] = field(default_factory=dict)
    prose: str = ""
    notes: Sequence[str] = ()

    @cached_property
    def tables(self) -> Mapping[str, Sequence[Cell]]:
        found: dict[str, list[Cell]] = {}
        for one in self.cells:
            found.setdefault(one.figure.table, []).append(one)
        return found

    @cached_property
    def columns(self) -> Mapping[tuple[str, str], Sequence[Cell]]:
        """By table and heading."""
        found: dict[tuple[str, str], list[Cell]] = {}
        for one in self.cells:
            found.setdefault((one.figure.table, one.figure.column), []).append(one)
        return found

    @cached_property
    def rates(self) -> Sequence[Cell]:
        """Above 0: others are none, see dlperf.audit.peak, and nothing is computed with them."""
        return [one for one in self.cells if one.figure.quantity == "throughput" and one.number > 0]

    @cached_property
    def same_batch(self) -> Sequence[Sequence[Cell]]:
        """Rates that differ in the number of devices alone: series with the same batch on each, or in all."""
        return series(self.rates, (lambda one: one.batch, lambda one: one.global_batch))

    @cached_property
    def any_batch(self) -> Sequence[Sequence[Cell]]:
        return series(self.rates, (lambda one: None,))


def cell(figure: Figure, source: str, where: str) -> Cell:
    """As printed: its digits leave half of the last one open, those of a small whole number what may have been cut."""
    found = None if figure.origin == "chart" else number(figure.printed)
    if found is None or found[0] >= LARGEST:
        return Cell(figure, source, where, None)
    value, ulp = found
    cut = ulp == 1 and 0 <= value < FEW and figure.quantity == "throughput"  # as printed with %d
    return Cell(figure, source, where, value, value - ulp / 2, value + (ulp if cut else ulp / 2))


def series(
    cells: Iterable[Cell], batches: Iterable[Callable[[Cell], Hashable]], least: int = 2
) -> list[Sequence[Cell]]:
    """Cells of a table with one setting on several numbers of devices, by these: down a column, or else along a row.
    batches: what else must be the same, tried one after the other."""
    todo = [one for one in cells if one.size and one.number > 0]
    found: list[Sequence[Cell]] = []
    for batch in batches:
        for axis in ("column", "row"):
            groups: dict[Hashable, list[Cell]] = {}
            for one in todo:
                key = (one.figure.table, getattr(one.figure, axis), one.setting, batch(one))
                groups.setdefault(key, []).append(one)
            todo = []
            for group in groups.values():
                for run in _runs(group):
                    if len(run) >= least:
                        found.append(sorted(run, key=lambda one: one.devices))
                    else:
                        todo += run
    return found


def _runs(group: Sequence[Cell]) -> Iterator[list[Cell]]:
    """A group with each size once; else its stretches of growing size, as where a table goes on with longer rows."""
    if len({one.size for one in group}) == len(group):
        yield list(group)
        return
    run: list[Cell] = []
    for one in group:
        if run and one.devices <= run[-1].devices:
            yield run
            run = []
        run.append(one)
    yield run


def subject(comparison: Comparison, name: str) -> Subject:
    """Of a comparison: a table for each model, precision and device, a row for each size, a column for each system."""
    return Subject(name, list(_rows(comparison, name)), comparison)


def _rows(comparison: Comparison, name: str) -> Iterator[Cell]:
    gpus = {str(gpu.get("name")) for gpu in comparison.machine.get("gpus", ())}
    gpu = gpus.pop() if len(gpus) == 1 else ""
    for summary in summaries.summarized(comparison).values():
        job, found = summary.job, summary.throughput
        if found is None:
            continue
        known = job.model in models.FAMILY_OF
        figure = Figure(
            table=f"{job.model}-{job.precision_asked}-{job.device}",
            row=f"{job.size}-b{job.batch_size}" + ("" if job.input == "synthetic" else f"-{job.input}"),
            column=job.system + job.id.removeprefix(job.duplicate_of).replace("-again", "#")
            if job.duplicate_of
            else job.system,
            printed=rates.shown(found.centre),
            quantity="throughput",
            unit=models.family(job.model).RATE_UNIT if known else "samples/s",
            estimator="samples_over_seconds" if job.traits.worker else "",
            model=job.model,
            system=job.system,
            framework=job.adapter,
            version="",
            precision={"amp_fp16": "amp", "amp_bf16": "bf16"}.get(job.precision, job.precision),
            options={key: value for key, value in job.options.items() if " " not in value},
            nodes=job.nnodes,
            devices=job.world_size,
            device=gpu if job.device == "cuda" else job.device,
            batch=str(job.batch_size),
            batch_of="device",
            steps="",
            origin="table" if job.traits.run and job.traits.worker else "log",
            path="",
            line=None,
            doubt="",
        )
        made = cell(figure, name, f"results.json: {job.id}")
        if found.low is not None and found.high is not None:
            made = replace(made, value=found.centre, low=found.low, high=found.high)
        yield replace(made, runs=len(summary.done) if job.traits.run else None)


def outside(one: Cell, low: float, high: float) -> float:
    """By which share a rate lies below or above two others, by its digits; 0 of one between them."""
    return max(low / one.high, one.low / high, 1.0) - 1


@lru_cache(maxsize=2**12)
def counted(unit: str) -> str:
    """What a rate counts: rows, tokens, steps, lines, or the unit itself; with `a minute` and `per device`, where it
    says so; `per node` likewise."""
    words = re.split(r"[\s/]+|\bper\b", unit.strip().lower())
    what = COUNTED.get(words[0], unit)
    each = next(
        (f" per {name}" for name, of in PARTS.items() if any(word.strip("()[] ") in of for word in words[1:])), ""
    )
    slow = next((f" a {name}" for name in ("minute", "hour") if any(word in SLOW[name] for word in words[1:])), "")
    return f"{what}{slow}{each}"


@lru_cache(maxsize=2**12)
def model_of(name: str) -> str:
    """The name that dlperf.models has for a model; as it is where it has none."""
    if name in models.FAMILY_OF:
        return name
    plain = re.sub(r"[^a-z0-9]+", "", name.lower())
    if re.fullmatch(r"(resnet|rn)50(v15|v1|v1b)?|resnetv15", plain):  # the last is NVIDIA's for MXNet
        return "resnet50"
    if plain in ("vgg16", "gpt2", "gpt2medium", "gpt2large", "gpt2xl"):
        return plain.replace("gpt2", "gpt2_") if len(plain) > len("gpt2") and plain != "vgg16" else plain
    if found := re.fullmatch(r"seresne(x?)t(50)", plain):
        return f"se_resne{found[1]}t50"
    if found := re.fullmatch(r"bert(base|large)?(pretraining|pretrain)?", plain):
        return f"bert_{found[1] or 'base'}" if found[1] else name
    return models.ALIASES.get(name.lower(), name)


@lru_cache(maxsize=2**14)
def stated(told: str) -> float | None:
    """The number of an option or a batch, as a table states it."""
    plain = told.replace(",", "")
    return float(plain) if re.fullmatch(r"\d{1,12}(\.\d+)?", plain) else None
