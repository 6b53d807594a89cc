"""Rows whose nodes have links of several bandwidths or latencies, with and without compression of gradients. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlperf.figures.links import Fit, crossing, fit, step_seconds
from dlperf.figures.summaries import Summary
from dlperf.report import names, text
from dlperf.report.shape import Column, Line, LineChart, Links, Point, Row, Table
from dlperf.schema import Job

ABOUT = (
    "Each node's link is shaped to a bandwidth or late by a latency, one way, and measured before each run: what is "
    "asked for and what was found stand beside each other. Waiting for the link is the share of a step that a fit of "
    "seconds = fixed + gigabits / bandwidth leaves for it; what the backward pass hides is not in it. Sent is what one "
    "node's network counted in a step, headers and other ranks' messages included."
)
ONE_MACHINE = "All nodes share this machine's processors, so a step is no shorter on more of them."


def links(summaries: Sequence[Summary], file: str, title: str, obstacles: Mapping[str, str]) -> Links | None:
    """None where no row has a link of which anything was asked. file: where its chart goes, less its kind."""
    rows = [one for one in summaries if one.job.link]
    if not rows:
        return None
    series = [_Series(tuple(each)) for each in _alike(rows)]
    found = tuple(said for _, said in sorted(_findings(series), reverse=True))
    return Links((ABOUT, ONE_MACHINE), _table(series, obstacles), _chart(series, file, title, found), found)


@dataclass(frozen=True)
class _Series:
    """Rows that differ in their bandwidth alone, from the narrowest to the widest."""

    rows: tuple[Summary, ...]

    @property
    def job(self) -> Job:
        return self.rows[0].job

    @cached_property
    def fit(self) -> Fit | None:
        return fit([(row.job.bandwidth, at) for row in self.rows if row.job.bandwidth and (at := step_seconds(row))])

    @property
    def name(self) -> str:
        """`pytorch`, or `pytorch at 5 ms`."""
        return names.system(self.job) + (f" at {self.job.latency:g} ms" if self.job.latency else "")


def _alike(rows: Sequence[Summary]) -> Iterable[list[Summary]]:
    found: dict[tuple[object, ...], list[Summary]] = {}
    for one in sorted(rows, key=lambda one: (one.job.adapter, one.job.system, *one.job.work)):
        job = one.job
        found.setdefault((job.system, *job.work[:7], job.input), []).append(one)
    return found.values()


def _findings(series: Sequence[_Series]) -> Iterator[tuple[float, str]]:
    """Below which bandwidth each compression pays, beside the row of the same system without; and how to say it."""
    for one in series:
        plain = next((other for other in series if _is_plain(other.job, one.job)), None)
        if plain is None or plain.fit is None or one.fit is None:
            continue
        at = crossing(plain.fit, one.fit)
        mine, theirs = one.name, plain.name
        if at is None:
            yield math.inf, f"{mine} is faster than {theirs} at any bandwidth, by these fits"
        elif at == 0:
            yield at, f"{mine} is slower than {theirs} at any bandwidth, by these fits"
        else:
            yield at, f"{mine} is faster than {theirs} below about {at:.2g} Gb/s"


def _is_plain(one: Job, job: Job) -> bool:
    """Whether a row is another without its compression."""
    if job.compression == "none" or one.compression != "none":
        return False
    alike = _but_compression(one) == _but_compression(job)
    return alike and {**job.options, "compression": "none"} == dict(one.options)


def _but_compression(job: Job) -> tuple[object, ...]:
    return job.adapter, *job.work[:5], job.latency, job.input


def _table(series: Sequence[_Series], obstacles: Mapping[str, str]) -> Table:
    every = [row for one in series for row in one.rows]
    unit = names.rate_unit(every[0].job.family)
    titles = ["asked (Gb/s)", "found (Gb/s)", "n", f"median ({unit})", "95 % interval", "sent (MB/step)", "waiting (%)"]
    late = any(row.job.latency for row in every)
    titles[2:2] = ["asked (ms)", "found (ms)"] if late else []
    columns = (Column("system", whole=True), *(Column(one, numeric=True) for one in titles))
    places = text.decimals(one.throughput for one in every if one.throughput)
    rows = tuple(_row(row, one.fit, places, obstacles, late) for one in series for row in one.rows)
    return Table(columns, rows, noted=any(row.note for row in rows))


def _row(one: Summary, fitted: Fit | None, places: int, obstacles: Mapping[str, str], late: bool) -> Row:
    """late: whether any row of the table has a latency."""
    job = one.job
    label = f"{names.system(job)}, {job.link}"
    links = [(job.bandwidth, one.link_gigabits), *([(job.latency, one.link_milliseconds)] if late else [])]
    head = [names.system(job)]
    for asked, found in links:
        head += [f"{asked:g}" if asked else text.NONE, text.column([found])[0]]
    if one.throughput is None:
        short = "failed" if one.failed else "not run yet"
        at = len(head) + 1
        return Row(
            (*head, text.NONE, short, *(text.NONE,) * 3), "missing", label, f"{short}; see the table above", at, 4
        )
    rate = (text.number(one.throughput.centre, places), text.interval(one.throughput, places))
    sent = text.column([one.sent_bytes / 1e6 if one.sent_bytes is not None else None])[0]
    share = text.number(100 * fitted.share(job.bandwidth) if fitted and job.bandwidth else None, 0)
    note = f"not comparable: {text.line(obstacles[job.id], 1000)}" if job.id in obstacles else ""
    return Row((*head, str(one.throughput.n), *rate, sent, share), "incomparable" if note else "", label, note)


def _chart(series: Sequence[_Series], file: str, title: str, found: Sequence[str]) -> LineChart | None:
    lines = tuple(
        Line(names.system(one.job), one.name, points, one.job.compression != "none")
        for one in series
        if (points := tuple(_points(one.rows)))
    )
    if not lines:
        return None
    unit = names.rate_unit(series[0].job.family)
    by = (f"{line.label} " + ", ".join(f"{point.text} at {point.at:g} Gb/s" for point in line.points) for line in lines)
    return LineChart(
        file=f"{file}-links.svg",
        title=text.capital(found[0]) if found else "Throughput by the bandwidth of links",
        about=title,
        unit=unit,
        alt=f"{unit}, by bandwidth: {'; '.join(by)}",
        lines=lines,
        percent=False,
        links=True,
    )


def _points(rows: Sequence[Summary]) -> Iterator[Point]:
    for one in rows:
        if one.throughput and one.job.bandwidth:
            rate = one.throughput
            yield Point(one.job.bandwidth, rate.centre, rate.low, rate.high, text.column([rate.centre])[0])
