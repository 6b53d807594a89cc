"""How long a step takes on more devices: a model of data parallelism, fitted to measured rows. Pure.

A step on m nodes of k devices, n = m k in all, takes

    seconds       = compute + overhead + communication - hidden      (one device: compute)
    hidden        = overlap * min(communication, 2/3 compute)

overhead is what several devices cost besides the network: waiting for the slowest, sharing a host. communication is
one all-reduce of the gradients (Patarasuk and Yuan 2009); it can hide behind the backward pass, two thirds of the
compute, and overlap is the share of what can hide that does.

    ring          2 (n - m) latencies within a node and 2 (m - 1) between nodes, as NCCL counts them
                  (src/graph/tuning.cc), and 2 (n - 1)/n of the bytes through the slowest link
    hierarchical  a ring of the k devices of each node, then one of the m nodes
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from dlperf.figures.rates import units
from dlperf.figures.summaries import Summary
from dlperf.schema import Job

#: the backward pass's share of a step's arithmetic: it makes two products for each one of the forward pass
BACKWARD = 2 / 3
#: a model that misses a measured row by more predicts nothing: something else decides there, such as shared cores
MISFIT = 0.1


@dataclass(frozen=True)
class Link:
    """Seconds that a message takes whatever its size, and bytes per second."""

    latency: float = 0.0
    bandwidth: float = math.inf


@dataclass(frozen=True)
class Model:
    """Seconds, bytes and shares as in the module's text. between: None where nothing is known of the network."""

    compute: float
    gradient_bytes: float
    within: Link = Link()
    between: Link | None = None
    overlap: float = 0.0
    overhead: float = 0.0
    algorithm: str = "ring"

    def communication(self, nnodes: int, nproc_per_node: int) -> float:
        """Seconds of one all-reduce of the gradients. ValueError across nodes whose network is not known."""
        if nnodes > 1 and self.between is None:
            raise ValueError("the network between nodes is not known")
        between = self.between or Link()
        if self.algorithm == "hierarchical":
            one_node = _ring(self.gradient_bytes, 1, nproc_per_node, self.within, between)
            return one_node + _ring(self.gradient_bytes, nnodes, 1, self.within, between)
        return _ring(self.gradient_bytes, nnodes, nproc_per_node, self.within, between)

    def seconds(self, nnodes: int, nproc_per_node: int) -> float:
        """Seconds of one step, with the batch per device that `compute` is of."""
        if nnodes * nproc_per_node == 1:
            return self.compute
        communication = self.communication(nnodes, nproc_per_node)
        hidden = self.overlap * min(communication, BACKWARD * self.compute)
        return self.compute + self.overhead + (communication - hidden)


def _ring(nbytes: float, nnodes: int, nproc_per_node: int, within: Link, between: Link) -> float:
    n = nnodes * nproc_per_node
    used = [link for link, size in ((within, nproc_per_node), (between, nnodes)) if size > 1]
    if not used:
        return 0.0
    latency = 2 * (n - nnodes) * within.latency + 2 * (nnodes - 1) * between.latency
    return latency + 2 * (n - 1) / n * nbytes / min(link.bandwidth for link in used)


# Fitting


@dataclass(frozen=True)
class Step:
    """A measured row: seconds of one step on nnodes nodes of nproc_per_node devices."""

    nnodes: int
    nproc_per_node: int
    seconds: float


@dataclass(frozen=True)
class Fit:
    """free: the parameters that were fitted; the others were given or are at their defaults. sizes: distinct numbers of
    nodes and devices among the rows. error: the largest relative error of a row's seconds."""

    model: Model
    free: tuple[str, ...]
    sizes: int
    error: float


def fit(
    steps: Sequence[Step],
    gradient_bytes: float,
    within: Link | None = None,
    between: Link | None = None,
    algorithm: str = "ring",
    overlap: float | None = None,
) -> Fit:
    """The model that is nearest to the rows: least squares on the logarithms of seconds.

    A link that is None and that rows use is fitted, without latency. Never more parameters than sizes: see `_choices`.
    overlap: given rather than fitted. ValueError where the rows are too few to say anything of communication.
    """
    template = Model(1.0, gradient_bytes, within or Link(), between, overlap or 0.0, algorithm=algorithm)
    if between is None and any(step.nnodes > 1 for step in steps):
        template = replace(template, between=Link())
    sizes = len({(step.nnodes, step.nproc_per_node) for step in steps})
    fits = []
    for free in _choices(steps, sizes, within, between):
        free = tuple(name for name in free if name != "overlap" or overlap is None)
        model = _solve(free, steps, template)
        error = max(abs(model.seconds(step.nnodes, step.nproc_per_node) / step.seconds - 1) for step in steps)
        fits.append(Fit(model, free, sizes, error))
    return min(fits, key=lambda found: round(found.error, 6))  # the first where two are alike


def _choices(steps: Iterable[Step], sizes: int, within: Link | None, between: Link | None) -> Iterator[tuple[str, ...]]:
    """What these rows can tell. Beside `compute` and the links that are not known, a third size tells the overhead.

    Where links are known, two sizes show that communication costs more than the links explain (overhead), or less
    (overlap), and three tell one from the other. Where a link is fitted, what hides behind compute looks like a faster
    link: overlap can't be seen, and is 0.
    """
    steps = list(steps)
    seen = {
        "within": within is None and any(s.nnodes == 1 < s.nproc_per_node for s in steps),
        "between": between is None and any(s.nnodes > 1 for s in steps),
    }
    unknown = [name for name, free in seen.items() if free]
    left = sizes - 1 - len(unknown)
    if sizes < 2 or left < 0:
        raise ValueError(f"too few sizes were measured to tell what communication costs: {sizes}")
    if unknown or left == 0:
        yield ("compute", *unknown, *(["overhead"] if left else []))
    elif left == 1:
        yield ("compute", "overhead")
        yield ("compute", "overlap")
    else:
        yield ("compute", "overhead", "overlap")


def _solve(free: tuple[str, ...], steps: Sequence[Step], template: Model) -> Model:
    from scipy.optimize import least_squares  # a slow import that only a prediction needs

    unit = min(step.seconds for step in steps)  # so that all parameters are near 1
    measured = [math.log(step.seconds) for step in steps]

    def errors(values: Sequence[float]) -> list[float]:
        model = _with(template, free, values, unit)
        return [
            math.log(model.seconds(step.nnodes, step.nproc_per_node)) - log
            for step, log in zip(steps, measured, strict=True)
        ]

    least = [1e-6 if name == "compute" else 0.0 for name in free]
    most = [1.0 if name == "overlap" else math.inf for name in free]
    found = []
    for share in (0.1, 0.9):  # the model has a kink where all that can hide does: start on both sides of it
        start = [1.0 if name == "compute" else share for name in free]
        tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
        found.append(least_squares(errors, start, bounds=(least, most), **tight))
    return _with(template, free, min(found, key=lambda one: float(one.cost)).x, unit)


def _with(template: Model, free: Sequence[str], values: Iterable[float], unit: float) -> Model:
    """The template with these values, in units of `unit` seconds; a link's value is the gradients' time on it."""
    changes: dict[str, Any] = {}
    for name, value in zip(free, map(float, values), strict=True):
        if name in ("within", "between"):
            changes[name] = Link(bandwidth=template.gradient_bytes / (value * unit) if value > 0 else math.inf)
        else:
            changes[name] = value if name == "overlap" else value * unit
    return replace(template, **changes)


def bracket(steps: Sequence[Step], gradient_bytes: float, **given: Any) -> tuple[Fit, Fit, Fit]:
    """The fit, and those where nothing and where all that can hides behind the backward pass. Arguments as of `fit`."""
    nothing, everything = (fit(steps, gradient_bytes, overlap=overlap, **given) for overlap in (0.0, 1.0))
    return fit(steps, gradient_bytes, **given), nothing, everything


# What a report shows


@dataclass(frozen=True)
class Prediction:
    """Samples/s of all devices, never measured. low, high: where nothing and where all that can hides behind the
    backward pass, or the other way round; the spread of the measured rows is not in them."""

    nnodes: int
    nproc_per_node: int
    throughput: float
    low: float
    high: float

    @property
    def world_size(self) -> int:
        return self.nnodes * self.nproc_per_node


@dataclass(frozen=True)
class Outlook:
    """What one system would do with the same batch per device on more devices, or why that is not known."""

    fit: Fit | None
    predictions: tuple[Prediction, ...]
    why: str = ""


def outlook(summaries: Sequence[Summary], devices: Iterable[int]) -> Outlook:
    """Predictions for these numbers of devices, from rows of one system with one batch per device.

    Nodes are as in the largest row. Links are as the rows' all-reduce probes found them, else fitted.
    """
    done = [summary for summary in summaries if summary.throughput]
    gradients = [summary.gradient_bytes for summary in done if summary.gradient_bytes]
    if not gradients:
        return Outlook(None, (), "no run on several devices says how many bytes it all-reduces in a step")
    steps = [_step(summary) for summary in done]
    within, between = _probed(done, across=False), _probed(done, across=True)
    try:
        found, *ends = bracket(steps, gradients[-1], within=within, between=between)
    except ValueError as error:
        return Outlook(None, (), str(error))
    last = max(done, key=lambda summary: (summary.job.world_size, summary.job.nproc_per_node))
    largest, each = last.job, last.job.batch_size * units(last.job, last.done)
    if found.model.between is None:
        return Outlook(found, (), "no row has several nodes, so the network between them is not known")
    if found.error > MISFIT:
        return Outlook(found, (), f"the model misses a measured row by {found.error:.0%}")
    whys = {n: why for n in sorted(set(devices)) if (why := _unfit(n, largest))}
    made = [_prediction(n, largest.nproc_per_node, each, found, *ends) for n in sorted(set(devices)) if n not in whys]
    return Outlook(found, tuple(made), "; ".join(whys.values()))


def _unfit(devices: int, largest: Job) -> str:
    if devices <= largest.world_size:
        return f"{devices} devices are not more than the {largest.world_size} that were measured"
    if devices % largest.nproc_per_node:
        return f"{devices} devices do not fill nodes of {largest.nproc_per_node}"
    return ""


def _prediction(devices: int, nproc_per_node: int, samples: float, *fits: Fit) -> Prediction:
    """samples: of a step on each device."""
    size = (devices // nproc_per_node, nproc_per_node)
    rates = [devices * samples / one.model.seconds(*size) for one in fits]
    return Prediction(*size, rates[0], min(rates), max(rates))


def _step(summary: Summary) -> Step:
    job = summary.job
    assert summary.throughput is not None
    samples = job.global_batch_size * units(job, summary.done)
    return Step(job.nnodes, job.nproc_per_node, samples / summary.throughput.centre)


def _probed(summaries: Iterable[Summary], across: bool) -> Link | None:
    """The link within nodes, or across them, as rows on one node and on several found it: bytes/s, latency included."""
    found = [
        summary.all_reduce_bandwidth
        for summary in summaries
        if summary.all_reduce_bandwidth and (summary.job.nnodes > 1) == across
    ]
    return Link(bandwidth=median(found)) if found else None


def describe(found: Fit) -> str:
    """What was fitted, what was given, and what the number of rows allows to say of the error."""
    model, free = found.model, found.free
    links = {"within": ("within a node", model.within), "between": ("between nodes", model.between)}
    values = {
        "compute": f"{_milliseconds(model.compute)} for a step without communication",
        "overhead": f"{_milliseconds(model.overhead)} for other costs of several devices",
        "overlap": f"{model.overlap:.0%} hidden of what can hide behind the backward pass",
        **{name: f"{link.bandwidth / 1e9:,.2f} GB/s {place}" for name, (place, link) in links.items() if link},
    }
    given = [f"{model.gradient_bytes / 1e6:,.1f} MB of gradients"]
    given += [f"{value}" for name, value in values.items() if name not in free and "inf" not in value]
    doubt = "" if len(free) < found.sizes else ", which with as many parameters says nothing of a prediction's error"
    error = f"within {found.error:.1%} of them{doubt}"
    fitted = f"Fitted to {found.sizes} sizes, {error}: {', '.join(values[name] for name in free)}."
    return f"{model.algorithm} all-reduce. {fitted} Not fitted: {', '.join(given)}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"
