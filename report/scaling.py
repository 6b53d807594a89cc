"""Rows on more devices beside their system's row on one: table, charts and, when asked for, predictions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dlperf.figures import prediction, speedup
from dlperf.figures.prediction import Outlook, Prediction
from dlperf.figures.speedup import Speedup
from dlperf.figures.statistics import Estimate
from dlperf.figures.summaries import Summary
from dlperf.report import names, text
from dlperf.report.shape import Column, Line, LineChart, Point, Row, Scaling, Table
from dlperf.schema import Job

ABOUT = (
    "Speedup is a row's rate over the median rate of the same system on 1 device with the same batch per device (weak "
    "scaling) or, where there is no such row, with the same global batch (strong scaling; noted). Efficiency is the "
    "speedup over the number of devices.",
    "Skew is by how much the slowest rank's windows are longer than the fastest's, as a share of them. Gradients are "
    "what each rank all-reduces in a step. All-reduce is the bus bandwidth of a probe outside of the windows, as "
    "nccl-tests count it: 2 (n - 1)/n of its bytes over its seconds, the median of runs.",
)
PREDICTED = (
    "Predicted rows were not measured: a model was fitted to the measured ones. Their range is from nothing hidden "
    "behind the backward pass to all that can be; the spread of runs is not in it."
)


@dataclass(frozen=True)
class _Series:
    """Rows of one system that belong on one line, the row of one device first where there is one.

    parts: what may set it apart from other lines of the system, e.g. its batch.
    """

    system: str
    parts: tuple[str, ...]
    rows: tuple[Speedup, ...]
    outlook: Outlook | None = None


def scaling(
    summaries: Sequence[Summary], file: str, title: str, devices: Sequence[int], obstacles: Mapping[str, str]
) -> Scaling | None:
    """None where no row has several devices, or where all have them and differ in their links or servers. file: where
    charts go, less their kind; devices: to be predicted."""
    sizes = {summary.job.world_size for summary in summaries}
    if sizes <= {1} or (1 not in sizes and any(one.job.link or one.job.servers for one in summaries)):
        return None
    rows = speedup.speedups(summaries)
    series = list(_series(rows, devices))
    lines = tuple(_lines(series, obstacles))
    about = (*ABOUT, PREDICTED) if any(map(_predictions, series)) else ABOUT
    return Scaling(about, _table(rows, series, obstacles), _charts(lines, file, title), tuple(_statements(series)))


# Lines


def _series(rows: Sequence[Speedup], devices: Sequence[int]) -> Iterator[_Series]:
    """The rows that share a line. Rows with the same number of devices can't: they go by launcher and nodes."""
    groups: dict[tuple[str, ...], list[Speedup]] = {}
    for row in rows:
        if row.summary.job.world_size > 1:
            groups.setdefault(_line_of(row), []).append(row)
    for (system, *parts), several in groups.items():
        base = [row for row in rows if several[0].base is row.summary]
        outlook = _outlook(base, several, devices) if devices else None
        for place, mine in _places(several).items():
            continued = max(several, key=_measured_size) in mine
            rows_ = tuple(base + sorted(mine, key=_size))
            yield _Series(system, (*parts, *place), rows_, outlook if continued else None)


def _line_of(row: Speedup) -> tuple[str, ...]:
    job = row.summary.job
    batch = f"global batch {job.global_batch_size}" if row.kind == "strong" else f"batch {job.batch_size}"
    return names.system(job), batch, job.input, job.link


def _places(rows: Sequence[Speedup]) -> dict[tuple[str, str], list[Speedup]]:
    """All together, or by nodes, or by nodes and launcher: the first where no two have the same number of devices."""
    jobs = [row.summary.job for row in rows]
    by_nodes = [(text.count(job.nnodes, "node"), "") for job in jobs]
    by_both = [(nodes, job.launcher) for (nodes, _), job in zip(by_nodes, jobs, strict=True)]
    for places in ([("", "")] * len(rows), by_nodes, by_both):
        found: dict[tuple[str, str], list[Speedup]] = {}
        for place, row in zip(places, rows, strict=True):
            found.setdefault(place, []).append(row)
        if all(len({_size(row)[0] for row in several}) == len(several) for several in found.values()):
            break
    return found


def _size(row: Speedup) -> tuple[int, int]:
    return row.summary.job.world_size, row.summary.job.nproc_per_node


def _measured_size(row: Speedup) -> tuple[int, int]:
    return _size(row) if row.summary.throughput else (0, 0)


def _outlook(base: list[Speedup], rows: list[Speedup], devices: Sequence[int]) -> Outlook:
    if rows[0].kind == "strong":
        return Outlook(None, (), "its rows share a global batch, and the model is of one batch per device")
    return prediction.outlook([row.summary for row in base + rows], devices)


def _label(series: _Series, others: Sequence[_Series]) -> str:
    """The system, and the parts in which lines differ."""
    differ = [len({other.parts[index] for other in others}) > 1 for index in range(len(series.parts))]
    return ", ".join(
        [series.system, *(part for part, shown in zip(series.parts, differ, strict=True) if shown and part)]
    )


def _lines(series: Sequence[_Series], obstacles: Mapping[str, str]) -> Iterator[tuple[str, _Series]]:
    """Series with at least one speedup, and how they are labelled."""
    for one in series:
        if any(row.speedup for row in one.rows):
            aside = any(row.summary.job.id in obstacles for row in one.rows)
            yield _label(one, series) + (" (not comparable)" if aside else ""), one


# Charts


def _charts(lines: Sequence[tuple[str, _Series]], file: str, title: str) -> tuple[LineChart, ...]:
    if not lines:
        return ()
    speedup, efficiency = (
        tuple(Line(one.system, label, tuple(_points(one, percent))) for label, one in lines)
        for percent in (False, True)
    )
    return tuple(
        LineChart(
            file=f"{file}-{what.lower()}.svg",
            title=finding(what, drawn),
            about=title,
            unit=what.lower(),
            alt=alt(what, drawn),
            lines=drawn,
            percent=percent,
        )
        for what, drawn, percent in (("Speedup", speedup, False), ("Efficiency", efficiency, True))
    )


def finding(what: str, lines: Sequence[Line]) -> str:
    """What was measured on most devices: the lowest and the highest."""
    ends = [(line.label, point) for line in lines for point in line.points if not point.predicted]
    most = max(point.at for _, point in ends)
    found = sorted(
        (point.value, f"{point.text.partition(' (')[0]} ({label})") for label, point in ends if point.at == most
    )
    shown = dict.fromkeys((found[0][1], found[-1][1]))
    return f"{what} on {text.count(most, 'device')}: {' to '.join(shown)}"


def _points(series: _Series, percent: bool) -> Iterator[Point]:
    for row in series.rows:
        job = row.summary.job
        if row.base is row.summary and row.summary.throughput:
            yield Point(1, 1.0, None, None, "100 %" if percent else "1")
        elif row.speedup and row.efficiency:
            value = row.efficiency if percent else row.speedup
            words = f"{_shown(value, percent)} (n={value.n})"
            yield Point(job.world_size, value.centre, value.low, value.high, words)
    for made in _predictions(series):
        speedup = _predicted_speedup(made, series)
        if speedup is not None:
            value = Estimate(speedup / made.world_size if percent else speedup, None, None, 0)
            yield Point(
                made.world_size, value.centre, None, None, f"{_shown(value, percent)} predicted", predicted=True
            )


def _shown(value: Estimate, percent: bool) -> str:
    return f"{value.centre * 100:.1f} %" if percent else f"{value.centre:.2f}"


def alt(what: str, lines: Iterable[Line]) -> str:
    found = (f"{line.label} " + ", ".join(f"{point.text} at {point.at}" for point in line.points) for line in lines)
    return f"{what}, by devices: {'; '.join(found)}"


def _predictions(series: _Series) -> tuple[Prediction, ...]:
    return series.outlook.predictions if series.outlook else ()


def _predicted_speedup(made: Prediction, series: _Series) -> float | None:
    base = series.rows[0].summary
    return made.throughput / base.throughput.centre if base.job.world_size == 1 and base.throughput else None


# The table


def _table(rows: Sequence[Speedup], series: Sequence[_Series], obstacles: Mapping[str, str]) -> Table:
    places = _Places.of(rows)
    family = rows[0].summary.job.family
    columns = tuple(_columns(family))
    ordered = sorted(rows, key=lambda row: row.summary.job.work)
    bandwidths = text.column([_scaled(row.summary.all_reduce_bandwidth, 1e9) for row in ordered])
    made = [_row(row, places, b, len(columns), obstacles) for row, b in zip(ordered, bandwidths, strict=True)]
    predicted = [(one, each) for each in series for one in _predictions(each)]
    made += [_predicted(one, each) for one, each in sorted(predicted, key=lambda pair: pair[0].world_size)]
    return Table(columns, tuple(made), noted=any(row.note for row in made))


def _columns(family: str) -> Iterator[Column]:
    yield from (Column("node num", numeric=True), Column("device num", numeric=True), Column("system", whole=True))
    yield from (Column("batch per device", numeric=True), Column("global batch", numeric=True), Column("launcher"))
    figures = [
        *("n", f"median ({names.rate_unit(family)})", "95 % interval", "speedup", "95 % interval"),
        *("efficiency (%)", "95 % interval", "skew (%)", "gradients (MB/step)", "all-reduce (GB/s)"),
    ]
    yield from (Column(title, numeric=True) for title in figures)


@dataclass(frozen=True)
class _Places:
    """Places after the point of each column."""

    rate: int
    speedup: int
    efficiency: int

    @staticmethod
    def of(rows: Sequence[Speedup]) -> _Places:
        return _Places(
            text.decimals(row.summary.throughput for row in rows if row.summary.throughput),
            text.decimals(row.speedup for row in rows if row.speedup),
            text.decimals(_percent(row.efficiency) for row in rows if row.efficiency),
        )


def _percent(value: Estimate) -> Estimate:
    low, high = (bound * 100 if bound is not None else None for bound in (value.low, value.high))
    return replace(value, centre=value.centre * 100, low=low, high=high)


def _scaled(value: float | None, by: float) -> float | None:
    return value / by if value is not None else None


def _head(job: Job) -> tuple[str, ...]:
    sizes = (f"{size:,}" for size in (job.batch_size, job.global_batch_size))
    return f"{job.nnodes:,}", f"{job.world_size:,}", names.system(job), *sizes, job.launcher or text.NONE


def _row(row: Speedup, places: _Places, bandwidth: str, columns: int, obstacles: Mapping[str, str]) -> Row:
    summary, job = row.summary, row.summary.job
    label, head = _row_label(job), _head(job)
    if summary.throughput is None:
        short = "failed" if summary.failed else "not run yet"
        cells = (*head, text.NONE, short, *(text.NONE,) * (columns - len(head) - 2))
        return Row(cells, "missing", label, f"{short}; see the table above", len(head), columns - len(head) + 1)
    cells = (
        *head,
        str(summary.throughput.n),
        *(text.number(summary.throughput.centre, places.rate), text.interval(summary.throughput, places.rate)),
        *_beside_base(row, places),
        text.number(_scaled(summary.skew, 0.01), 1),
        text.number(_scaled(summary.gradient_bytes, 1e6), 1),
        bandwidth,
    )
    notes = [f"not comparable: {text.line(obstacles[job.id], 1000)}"] if job.id in obstacles else []
    notes += [row.why] if row.why else ["strong scaling"] if row.kind == "strong" else []
    return Row(cells, "incomparable" if job.id in obstacles else "", label, "; ".join(notes))


def _beside_base(row: Speedup, places: _Places) -> tuple[str, ...]:
    if row.base is row.summary:
        return "1", text.NONE, "100", text.NONE
    if row.speedup is None or row.efficiency is None:
        return (text.NONE,) * 4
    speedup, efficiency = row.speedup, _percent(row.efficiency)
    return (
        *(text.number(speedup.centre, places.speedup), text.interval(speedup, places.speedup)),
        *(text.number(efficiency.centre, places.efficiency), text.interval(efficiency, places.efficiency)),
    )


def _row_label(job: Job) -> str:
    return f"{names.system(job)}, {job.nnodes}×{job.nproc_per_node}, batch {job.batch_size}"


def _predicted(made: Prediction, series: _Series) -> Row:
    """A row that nobody measured: the word stands in its name, it has neither n nor interval, and three digits."""
    like = replace(series.rows[-1].summary.job, nnodes=made.nnodes, nproc_per_node=made.nproc_per_node)
    nodes, devices, system, *rest = _head(like)
    speedup = _predicted_speedup(made, series)
    figures = [made.throughput, speedup, _scaled(speedup, made.world_size / 100)]
    paired = [cell for figure in figures for cell in (text.column([figure])[0], text.NONE)]
    cells = (nodes, devices, f"{system}, predicted", *rest, text.NONE, *paired, *(text.NONE,) * 3)
    low, high = (text.column([rate])[0] for rate in (made.low, made.high))
    note = f"predicted, not measured: {low} to {high} {names.rate_unit(like.family)}"
    return Row(cells, "predicted", _row_label(like), note)


# What predictions rest on


def _statements(series: Sequence[_Series]) -> Iterator[str]:
    for one in series:
        if one.outlook is None:
            continue
        label = _label(one, series)
        if one.outlook.predictions and one.outlook.fit:
            yield f"{label}: {prediction.describe(one.outlook.fit)}."
        if one.outlook.why:
            yield f"{label}: no prediction: {one.outlook.why}."
