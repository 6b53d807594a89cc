"""Our rows beside the closest ones that others published, with all that is known to differ. No ranking, and never in
one table with our own. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from dlperf import sources
from dlperf.figures import closest
from dlperf.figures.published import Figure, Source
from dlperf.figures.summaries import Summary, summarized
from dlperf.report import names, source, text
from dlperf.report.shape import AgainstReport, AgainstTable, Bar, Chart, Column, Panel, Printed
from dlperf.report.view import about, title
from dlperf.schema import Comparison

UNSAID = "not stated"
ON: Mapping[bool | None, str] = {True: "on", False: "off"}
RATIO = (
    "Ours over published stands where model, unit, work, precision and number of devices are the same; it says nothing "
    "about a framework unless nothing else differs, and hardware and versions nearly always do."
)
COLUMNS = (
    Column("our row", whole=True),
    Column("ours", numeric=True),
    Column("n", numeric=True),
    Column("closest published row"),
    Column("as printed", numeric=True),
    Column("ours / published", numeric=True),
    Column("what differs besides"),
)


#: rows that a chart has room for
MOST_PAIRS = 20


@dataclass(frozen=True)
class Beside:
    """One of our rows and the closest of a source; None without any. differs: what, ours, theirs. ratio: empty where
    no_ratio says why."""

    summary: Summary
    source: Source
    unit: str
    figure: Figure | None
    differs: tuple[tuple[str, str, str], ...]
    ratio: str
    no_ratio: str

    @property
    def over(self) -> float:
        """Ours over theirs."""
        assert self.figure
        assert self.summary.throughput
        return self.summary.throughput.centre / (self.figure.value or 1.0)


def pairs(comparison: Comparison, sources: Iterable[Source]) -> list[Beside]:
    """Of each row that has a rate and was run here, in the comparison's order, with each source."""
    rows = [one for one in summarized(comparison).values() if one.throughput and one.job.traits.run]
    return [_beside(comparison, row, one) for one in sources for row in rows]


def _beside(comparison: Comparison, row: Summary, of: Source) -> Beside:
    unit = names.rate_unit(row.job.family)
    found = closest.closest(row.job, of.figures)
    if found is None:
        return Beside(row, of, unit, None, (), "", f"it has no rate of {names.model(row.job.model)} or its family")
    why = closest.no_ratio(row.job, unit, found)
    made = Beside(row, of, unit, found, tuple(_differs(comparison, row, unit, found)), "", why)
    return made if why else replace(made, ratio=text.column([made.over])[0])


def _differs(comparison: Comparison, row: Summary, unit: str, one: Figure) -> Iterator[tuple[str, str, str]]:
    for what, ours, theirs in _sides(comparison, row, unit, one):
        if text.line(ours) != text.line(theirs) and (ours or theirs):
            yield what, text.line(ours) or UNSAID, text.line(theirs) or UNSAID


def _sides(comparison: Comparison, row: Summary, unit: str, one: Figure) -> Iterator[tuple[str, str, str]]:
    """What both have, or one of them; options that a source has no word for are not a difference."""
    job, options = row.job, one.options
    version = text.alternatives(next(iter(run.versions.values()), "") for run in row.done).strip(text.NONE)
    yield "model", names.model(job.model), names.model(one.model)
    apart = closest.precision_apart(job, one)
    yield "precision", names.precision_short(job), names.precision_short(job) if apart == 0 else one.precision
    yield "framework", f"{names.system(job)} {version}".strip(), _framework(one)
    yield "hardware", *_hardware(comparison, row, one)
    yield "devices", _devices(job.nnodes, job.world_size), _devices(one.nodes, one.devices)
    yield "batch", f"{job.batch_size} per device", names.printed_batch(one)
    yield "unit", unit, closest.UNITS.get(one.unit, one.unit)
    yield "estimator", _our_estimator(row), _estimator(one)
    yield "steps timed in a run", _steps(row), one.steps
    if length := options.get("sequence", ""):
        yield "sequence length", closest.sequence(job), length
    if job.family == "bert" or "clip" in options:
        clip = closest.clips(job.options.get("clip_norm", ""))
        theirs = closest.clips(options.get("clip", ""))
        yield "clipping of gradients", ON.get(clip, ""), ON.get(theirs, "")
    yield "input", job.input, _input(one)
    effective = next((run.effective for run in row.done if run.effective), {})
    scaled = str(effective.get("loss_scale", ""))
    if options.get("loss_scale") or scaled not in ("", "none"):
        theirs_scale = options.get("loss_scale", "")
        yield "loss scaling", scaled, scaled if theirs_scale and theirs_scale == scaled.split()[0] else theirs_scale
    if xla := options.get("xla", ""):
        yield "compiler", str(effective.get("compile", "")), f"xla {xla}"
    if layout := options.get("layout", ""):
        yield "layout", str(effective.get("layout", "")), layout.upper()
    said = ("runs", "across_runs", "sequence", "clip", "data", "loss_scale", "xla", "layout")
    if more := ", ".join(f"{name}={value}" for name, value in options.items() if name not in said):
        yield "also published", "", more


def _framework(one: Figure) -> str:
    """The system's own name, with the framework where that does not say it."""
    if one.framework and one.framework not in one.system.lower().replace(" ", ""):
        return " ".join(filter(None, (one.framework, one.version, f"on {one.system}" if one.system else "")))
    return " ".join(filter(None, (one.system, one.version)))


def _hardware(comparison: Comparison, row: Summary, one: Figure) -> tuple[str, str]:
    machine = comparison.machine
    if row.job.device == "cpu":
        threads = machine.get("usable_threads")
        ours = str(machine.get("cpu", "")) + (f", {text.count(threads, 'thread')}" if threads else "")
    else:
        ours = text.alternatives(str(gpu.get("name", "")) for gpu in machine.get("gpus", ())).strip(text.NONE)
    return ours, one.device


def _devices(nodes: int | None, devices: int | None) -> str:
    return ", ".join(
        text.count(number, noun) for number, noun in ((nodes, "node"), (devices, "device")) if number is not None
    )


def _our_estimator(row: Summary) -> str:
    how = row.job.about.get("estimator", "") or source.ESTIMATORS["samples_over_seconds"]
    return f"{how}, median of {text.count(len(row.done), 'run')}"


def _estimator(one: Figure) -> str:
    runs = one.options.get("runs", "")
    across = f"median of {runs + ' ' if runs else ''}runs" if one.options.get("across_runs") == "median" else ""
    if one.estimator == "median_of_runs":
        return f"a median of {runs + ' ' if runs else ''}runs"
    return ", ".join(filter(None, (source.ESTIMATORS.get(one.estimator, ""), across)))


def _steps(row: Summary) -> str:
    steps = [sum(window.steps for window in run.windows) for run in row.done]
    return f"{median(steps):.0f}" if steps else ""


def _input(one: Figure) -> str:
    told = one.options.get("data", "")
    return {"real": "files"}.get(told, told)


# The page


def against(comparison: Comparison, sources: Sequence[Source]) -> AgainstReport:
    """comparison: cleaned."""
    groups: dict[tuple[str, str], list[Beside]] = {}
    for one in pairs(comparison, sources):
        groups.setdefault((names.section(one.summary.job), one.source.name), []).append(one)
    order = list(dict.fromkeys(section for section, _ in groups))
    anchors = source.anchored(f"{section} {of}" for section, of in groups)
    tables = [
        _table(section, mine, anchors[f"{section} {of}"])
        for (section, of), mine in sorted(groups.items(), key=lambda item: order.index(item[0][0]))
    ]
    told = text.listing(text.line(one.title) for one in sources)
    return AgainstReport(
        title=f"Beside what others published: {title(comparison)}",
        about=f"{about(comparison)} Beside each row the closest one of {told}: nothing here ranks ours with theirs.",
        order=f"The closest is chosen by, the first deciding: {'; '.join(closest.ORDER)}.",
        ratio=RATIO,
        tables=tuple(tables),
    )


def _table(section: str, mine: Sequence[Beside], anchor: str) -> AgainstTable:
    of = mine[0].source
    found = [one for one in mine if one.figure]
    shared = [one for one in found[0].differs if all(one in other.differs for other in found)] if len(found) > 1 else []
    doubts = dict.fromkeys(text.line(one.figure.doubt, 20_000) for one in found if one.figure and one.figure.doubt)
    numbers = {doubt: number for number, doubt in enumerate(doubts, 1)}
    digits = text.decimals(one.summary.throughput for one in mine if one.summary.throughput)
    several = names.sizes_differ(one.summary.job for one in mine)
    rows = []
    for one in mine:
        rate = one.summary.throughput
        assert rate
        head = (
            Printed(names.row(one.summary.job, several)),
            Printed(f"{text.number(rate.centre, digits)} {one.unit}"),
            Printed(str(rate.n)),
        )
        rows.append((*head, *_theirs(one, shared, numbers)))
    return AgainstTable(
        title=f"{section}, beside {text.line(of.title)}",
        anchor=anchor,
        shared=tuple(_said(one) for one in shared),
        columns=COLUMNS,
        rows=tuple(rows),
        notes=tuple(numbers),
        chart=_chart(section, mine, shared, anchor),
    )


def _chart(section: str, mine: Sequence[Beside], shared: Sequence[tuple[str, str, str]], anchor: str) -> Chart | None:
    """Of each row that has a ratio a full bar, and a hollow one of what was published; in the comparison's order, since
    they are not ranked with each other."""
    drawn = [one for one in mine if one.ratio]
    if not 1 <= len(drawn) <= MOST_PAIRS:
        return None
    of = text.line(mine[0].source.title)
    hardware = next(((ours, theirs) for what, ours, theirs in shared if what == "hardware"), None)
    ours, theirs = (f" on {one}" if one else "" for one in hardware or ("", ""))
    several = names.sizes_differ(one.summary.job for one in mine)
    digits = text.decimals(one.summary.throughput for one in mine if one.summary.throughput)
    bars = tuple(bar for one in drawn for bar in _bars(one, several, digits, hardware is None))
    unit = f"{drawn[0].unit} per device"
    return Chart(
        file=f"charts/against-{anchor.strip('-')}.svg",
        title=_finding(drawn),
        unit=unit,
        alt=f"{section}, {unit}, in pairs: {'; '.join(f'{bar.label} {bar.text}' for bar in bars)}",
        panels=(Panel(f"{section}. Full bars: ours{ours}. Hatched: {of}{theirs}", bars),),
        axis="each row of ours and the closest published one; no ranking",
    )


def _finding(drawn: Sequence[Beside]) -> str:
    """`Ours is 0.0075 to 0.0369 times the closest published rate, on other hardware`."""
    ends = dict.fromkeys(end(drawn, key=lambda one: one.over).ratio for end in (min, max))
    other = all(any(what == "hardware" for what, *_ in one.differs) for one in drawn)
    return f"Ours is {' to '.join(ends)} times the closest published rate{', on other hardware' if other else ''}"


def _bars(one: Beside, several: bool, digits: int, hardware: bool) -> Iterator[Bar]:
    """hardware: whether it is to be named."""
    figure, rate, devices = one.figure, one.summary.throughput, one.summary.job.world_size
    assert figure
    assert rate
    of = f" on {text.count(devices, 'device')}" if devices > 1 else ""
    low, high = (end / devices if end else None for end in (rate.low, rate.high))
    ours = f"{text.number(rate.centre / devices, digits)} (n={rate.n}{of})"
    yield Bar(names.row(one.summary.job, several), rate.centre / devices, low, high, ours)
    value, printed = (figure.value or 0.0) / devices, text.line(_printed(figure))
    label = ", ".join(filter(None, (_framework(figure), figure.device if hardware else "")))
    told = f"{text.column([value])[0]} ({printed}{of})" if of else printed
    yield Bar(text.line(label), value, None, None, told, system=figure.framework, hollow=True)


def _theirs(one: Beside, shared: Sequence[tuple[str, str, str]], notes: dict[str, int]) -> tuple[Printed, ...]:
    figure = one.figure
    if figure is None:
        return Printed(f"none: {one.no_ratio}"), *(Printed(text.NONE) for _ in range(3))
    heads = {head.id: head.title for head in one.source.told.table}
    where = f"{heads.get(figure.table) or figure.table}: {figure.row} / {figure.column}"
    link = sources.link(one.source.told, figure.path, [figure.line] if figure.line else [])
    noted = (notes[doubt],) if (doubt := text.line(figure.doubt, 20_000)) in notes else ()
    differ = "; ".join(_said(each) for each in one.differs if each not in shared)
    return (
        Printed(text.line(where, 1000), link, noted),
        Printed(text.line(_printed(figure))),
        Printed(one.ratio or f"none: {one.no_ratio}"),
        Printed(differ or "nothing else"),
    )


def _printed(figure: Figure) -> str:
    """With its unit, where that is not printed with it."""
    return figure.printed if figure.printed.strip().endswith(figure.unit) else f"{figure.printed} {figure.unit}"


def _said(differs: tuple[str, str, str]) -> str:
    what, ours, theirs = differs
    return f"{what}: {theirs}" if what == "also published" else f"{what}: ours {ours}, published {theirs}"


# As data


def lines(found: Iterable[Beside]) -> Iterator[dict[str, object]]:
    """One for each row and source, with the columns of against.csv."""
    for one in found:
        job, figure, rate = one.summary.job, one.figure, one.summary.throughput
        yield {
            "job": job.id,
            "system": job.system,
            "model": job.model,
            "precision": job.precision,
            "devices": job.world_size,
            "batch_size": job.batch_size,
            "rate": rate.centre if rate else None,
            "unit": one.unit,
            "n": rate.n if rate else 0,
            "source": one.source.name,
            "table": figure.table if figure else "",
            "row": figure.row if figure else "",
            "column": figure.column if figure else "",
            "printed": figure.printed if figure else "",
            "published_unit": figure.unit if figure else "",
            "ours_over_published": one.ratio,
            "no_ratio": one.no_ratio,
            "differs": "; ".join(map(_said, one.differs)),
            "path": figure.path if figure else "",
            "line": figure.line if figure else None,
            "doubt": figure.doubt if figure else "",
        }
