"""The view model: what templates and charts are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """whole: its cells are not broken over lines. minor: not shown on a phone."""

    title: str
    numeric: bool = False
    whole: bool = False
    minor: bool = False


@dataclass(frozen=True)
class Row:
    """kind: "" | fastest | tie | unresolved | incomparable | missing | predicted. `cells` has one for each column.

    note: what a reader must know of this row, e.g. why it is missing; `label` names the row where notes are listed.
    HTML shows a missing row's note in place of its cells from number `first` to the last, `span` of them. strong: the
    numbers of cells that stand out. link: the anchor of the row's command.
    """

    cells: tuple[str, ...]
    kind: str = ""
    label: str = ""
    note: str = ""
    first: int = 1
    span: int = 1
    strong: tuple[int, ...] = ()
    link: str = ""


@dataclass(frozen=True)
class Table:
    """noted: whether a column of notes follows the others."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    noted: bool = False


@dataclass(frozen=True)
class Bar:
    """One bar of a chart, the only numbers in the view: for charts.py, not for a template. runs: of each the rate.
    system: whose colour it has, where its label does not say. hollow: what others published, beside the bar before it,
    which is ours."""

    label: str
    value: float
    low: float | None
    high: float | None
    text: str
    runs: tuple[float, ...] = ()
    system: str = ""
    hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """Bars on one scale. missing: (label, reason) of rows without a bar."""

    title: str
    bars: tuple[Bar, ...]
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Chart:
    """file: relative to the report. title: what it shows, as a finding. alt: the chart in words. axis: what a bar is;
    empty of what dlperf measured."""

    file: str
    title: str
    unit: str
    alt: str
    panels: tuple[Panel, ...]
    axis: str = ""


@dataclass(frozen=True)
class Waterfall:
    """How one row's seconds become another's: begin and end with what they are called, and what is added between."""

    file: str
    title: str
    unit: str
    alt: str
    begin: tuple[str, float]
    steps: tuple[tuple[str, float], ...]
    end: tuple[str, float]


@dataclass(frozen=True)
class Why:
    """What python -m dlperf.why shows: see report/why.py."""

    title: str
    summary: str
    notes: tuple[str, ...]
    kinds: Table
    operations: Table
    systems: Table
    chart: Waterfall
    machine: Table


@dataclass(frozen=True)
class Point:
    """One point of a line, at a number of devices, or Gb/s of a link. predicted: never measured."""

    at: float
    value: float
    low: float | None
    high: float | None
    text: str
    predicted: bool = False


@dataclass(frozen=True)
class Line:
    """system: lines of the same one share a colour. dashed: of gradients that are compressed."""

    system: str
    label: str
    points: tuple[Point, ...]
    dashed: bool = False


@dataclass(frozen=True)
class LineChart:
    """Values over the number of devices. percent: values are shares, ideally 1; else ideally the number of devices.
    title: what it shows, as a finding. about: of what. axis: as a Chart's. links: whether they are rates over the
    bandwidth of links instead, both in logarithms."""

    file: str
    title: str
    about: str
    unit: str
    alt: str
    lines: tuple[Line, ...]
    percent: bool
    axis: str = ""
    links: bool = False


@dataclass(frozen=True)
class Scaling:
    """Rows on more devices beside their system's row on one. predictions: what they rest on, or why there are none."""

    about: tuple[str, ...]
    table: Table
    charts: tuple[LineChart, ...]
    predictions: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """Rows whose links have several bandwidths. findings: below which of them a compression pays."""

    about: tuple[str, ...]
    table: Table
    chart: LineChart | None
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Others:
    """Rows of one kind that is not ranked. sentence: their rates, for the summary; empty without any. declared: what
    they compute, a column for each system; declared_about: what stands before it."""

    title: str
    about: str
    sentence: str
    table: Table
    declared_about: str
    declared: Table | None


@dataclass(frozen=True)
class Pivot:
    """Rows of several sizes: a row for each size, a column for each system. speedups: None where no row has any. notes:
    what numbers in the cells stand for."""

    about: str
    rates: Table
    speedups: Table | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Rates:
    """Of one table of a section: by system, in `unit`. size: on how much. first: those that may be fastest."""

    title: str
    size: str
    unit: str
    cells: Mapping[str, str]
    first: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """One model at one precision on one kind of device. throughput: of ranked systems, None without any; others: of
    each other kind. power: what the runs of each size can tell. why: the command that explains the difference between
    the fastest row and the slowest; empty where there is none. scaling: None where all rows are of one device. links:
    None where no row's were shaped.
    input: None where no row reads and decodes while it trains; input_about: what stands before it.
    stages: where the rows' wall time went; None where no run tells. servers: what parameter servers used; None without.

    What really ran: `work`, differences that change how much is done; `how`, other differences; `same`, the rest.
    What the report begins with: where all rows have one size, `brief`, which has throughput's notes, and the size;
    else `pivot`.
    """

    model: str
    anchor: str
    title: str
    about: tuple[str, ...]
    summary: str
    rates: tuple[Rates, ...]
    throughput: Table | None
    power: tuple[str, ...]
    others: tuple[Others, ...]
    chart: Chart | None
    why: str
    scaling: Scaling | None
    links: Links | None
    input: Table | None
    input_about: str
    stages: Table | None
    stages_about: str
    servers: Table | None
    servers_about: str
    work: Table | None
    how: Table | None
    same: Table | None
    pivot: Pivot | None
    brief: Table | None = None
    size: str = ""


@dataclass(frozen=True)
class Proof:
    """The certificates of one model and precision: a row for each system, and one for each pair of them."""

    model: str
    title: str
    about: tuple[str, ...]
    systems: Table
    pairs: Table | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Excerpt:
    """A heading, a sentence, and verbatim text under it. model: which it concerns, where that is one. anchor: of the
    first that is of a row, and of an environment. environment: the anchor of that which it ran in. runs: what the row's
    rate is the median of; None without any."""

    title: str
    about: str
    text: str
    model: str = ""
    anchor: str = ""
    environment: str = ""
    runs: Table | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Overview:
    """The rates of all models in one table."""

    about: str
    table: Table


@dataclass(frozen=True)
class Page:
    """What a report over several models has of one, in a file beside it."""

    title: str
    file: str
    sections: tuple[Section, ...]
    proofs: tuple[Proof, ...]
    commands: tuple[Excerpt, ...]


@dataclass(frozen=True)
class Audit:
    """What `dlperf.audit` found: a sentence, and a table where there is something."""

    about: str
    table: Table | None


@dataclass(frozen=True)
class Report:
    """audits: one; none where it could not be made, or of nothing. overview, pages: of several models; None and empty
    where all is in one page. unmet: a sentence; empty where all conditions of publishing are met, or were not
    looked at. disturbed: the caveats that a terminal tells, too."""

    title: str
    about: str
    progress: str
    resume: str
    unmet: str
    sections: tuple[Section, ...]
    caveats: tuple[str, ...]
    disturbed: tuple[str, ...]
    machine: Table
    topo: str
    systems: Table
    failures: tuple[Excerpt, ...]
    protocol: tuple[str, ...]
    environment_commands: tuple[Excerpt, ...]
    commands: tuple[Excerpt, ...]
    proofs: tuple[Proof, ...]
    proof_about: tuple[str, ...]
    audits: tuple[Audit, ...]
    overview: Overview | None
    pages: tuple[Page, ...]


@dataclass(frozen=True)
class Printed:
    """Something that others printed. link: what it leads to; empty for nothing. notes: numbers of what is said under
    the table."""

    text: str
    link: str = ""
    notes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PrintedTable:
    """One table of others, cell for cell; where its rows stand is its last column. where: it stands. about: what all
    its cells share. footnotes: its own. notes: what is known of single cells, the first being number 1. differ: what
    its cells do not share; None where that is nothing. speedups: computed from its rates; None without any."""

    anchor: str
    title: str
    where: Printed
    about: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[tuple[Printed, ...], ...]
    footnotes: tuple[str, ...]
    notes: tuple[str, ...]
    differ: Table | None
    charts: tuple[Chart | LineChart, ...]
    speedups: Table | None


@dataclass(frozen=True)
class SourceReport:
    """What one source published. facts: where it is. excerpts: verbatim text. doubts: of the source as a whole."""

    title: str
    about: str
    facts: tuple[tuple[str, Printed], ...]
    tables: tuple[PrintedTable, ...]
    hardware: Table | None
    software: Table | None
    excerpts: tuple[Excerpt, ...]
    doubts: tuple[Excerpt, ...]
    cited: tuple[Printed, ...]


@dataclass(frozen=True)
class AgainstTable:
    """Our rows of one section beside those of one source. shared: what differs in all of them. notes: doubts about
    theirs, the first being number 1. chart: None where no row has a ratio, or too many have."""

    title: str
    anchor: str
    shared: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[tuple[Printed, ...], ...]
    notes: tuple[str, ...]
    chart: Chart | None


@dataclass(frozen=True)
class AgainstReport:
    """order: how the closest rows were chosen. ratio: what ours over theirs can say."""

    title: str
    about: str
    order: str
    ratio: str
    tables: tuple[AgainstTable, ...]
