"""Charts of what others published: bars of rates as printed, and lines of the speedups that follow from them. What was
read off a chart is in neither. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlperf.figures.published import Figure
from dlperf.report import names, scaling, text
from dlperf.report.shape import Bar, Chart, Column, Line, LineChart, Panel, Point, Row, Table

PRINTED = "as printed"
COMPUTED = "computed from the printed rates"
#: bars in a chart, and lines
BARS, LINES = 40, 14


def drawn(title: str, figures: Iterable[Figure], anchor: str) -> tuple[tuple[Chart | LineChart, ...], tuple[Line, ...]]:
    """The charts of one table, and the lines of speedups in them."""
    by_unit: dict[str, list[Figure]] = {}
    for one in figures:
        if one.quantity == "throughput" and one.origin == "table" and one.value:
            by_unit.setdefault(one.unit, []).append(one)
    charts: list[Chart | LineChart] = []
    found: list[Line] = []
    for unit, mine in by_unit.items():
        file = f"charts/{anchor}" + (f"-{text.slug(unit)}" if len(by_unit) > 1 else "")
        if bars := _bars(mine, f"{file}.svg", title, text.line(unit)):
            charts.append(bars)
        lines = _lines(mine)
        if lines and len(lines) <= LINES:
            charts.append(
                LineChart(
                    file=f"{file}-speedup.svg",
                    title=scaling.finding("Speedup", lines),
                    about=title,
                    unit="speedup",
                    alt=scaling.alt("Speedup", lines),
                    lines=lines,
                    percent=False,
                    axis=COMPUTED,
                )
            )
        found += lines
    return tuple(charts), tuple(found)


# Bars


def _bars(figures: Sequence[Figure], file: str, title: str, unit: str) -> Chart | None:
    """A panel for each number of devices, in the table's order. Of very many rows that number of devices alone which
    most of them have; None where that is too many, and of one bar."""
    shown, aside = figures, ""
    if len(figures) > BARS:
        devices = [one.devices or 0 for one in figures]
        most = max(set(devices), key=lambda number: (devices.count(number), number))
        shown = [one for one in figures if (one.devices or 0) == most]
        aside = f" on {text.count(most, 'device')}" if most else ""
    panels = _panels(shown)
    if not 2 <= len(shown) <= BARS:
        return None
    told = "; ".join(f"{one.title}: {', '.join(f'{bar.label} {bar.text}' for bar in one.bars)}" for one in panels)
    return Chart(file, f"Throughput{aside}: {title}", unit, f"{title}, {unit}: {told}", panels, PRINTED)


def _panels(figures: Sequence[Figure]) -> tuple[Panel, ...]:
    """By model and devices, or by model alone where each of these would have one bar."""
    fine: dict[tuple[str, int], list[Figure]] = {}
    for one in figures:
        fine.setdefault((one.model, one.devices or 0), []).append(one)
    if any(len(mine) > 1 for mine in fine.values()):
        groups = [(*key, mine) for key, mine in sorted(fine.items(), key=lambda item: item[0][1])]
    else:
        models = dict.fromkeys(model for model, _ in fine)
        groups = [(model, 0, [one for one in figures if one.model == model]) for model in models]
    several = len({model for model, *_ in groups}) > 1
    made = []
    for model, devices, mine in groups:
        title = ", ".join(
            filter(None, (model if several or not devices else "", text.count(devices, "device") if devices else ""))
        )
        labels = _labels(mine)
        bars = [
            Bar(label, one.value or 0.0, None, None, text.line(one.printed), system=one.framework)
            for label, one in zip(labels, mine, strict=True)
        ]
        made.append(Panel(text.line(title), tuple(bars)))
    return tuple(made)


def _labels(figures: Sequence[Figure]) -> list[str]:
    """Each by its column, its row, or its column with what else sets it apart: the first that tells all apart."""
    columns, rows = ([getattr(one, name) for one in figures] for name in ("column", "row"))
    more = ([_batch(one) for one in figures], [_sequence(one) for one in figures], rows)
    tried = [
        columns,
        rows,
        *([f"{column}, {part}" for column, part in zip(columns, parts, strict=True)] for parts in more),
    ]
    return [
        text.line(label) for label in next(each for each in tried if len(set(each)) == len(each) or each is tried[-1])
    ]


def _batch(one: Figure) -> str:
    return f"batch {told}" if (told := names.printed_batch(one)) else ""


def _sequence(one: Figure) -> str:
    return f"sequence {told}" if (told := one.options.get("sequence", "")) else ""


# Speedups


def _lines(figures: Sequence[Figure]) -> tuple[Line, ...]:
    """Of cells that differ in the number of devices alone, where one is of 1 device and others of more."""
    of_column: dict[str, set[int | None]] = {}
    for one in figures:
        of_column.setdefault(one.column, set()).add(one.devices)
    by_row = all(len(devices) == 1 for devices in of_column.values()) and len(of_column) > 1
    groups: dict[tuple[str, ...], dict[int, Figure]] = {}
    twice = set()
    for one in figures:
        label = one.row if by_row else one.column
        key = (label, one.model, _batch(one), _sequence(one), one.precision, one.device)
        if one.devices:
            if one.devices in groups.setdefault(key, {}):
                twice.add(key)
            groups[key][one.devices] = one
    sound = {key: mine for key, mine in groups.items() if key not in twice and 1 in mine and len(mine) > 1}
    differ = [len({key[part] for key in sound}) > 1 and part in (0, 2, 3) for part in range(6)]
    if len({tuple(part for part, shown in zip(key, differ, strict=True) if shown) for key in sound}) < len(sound):
        differ = [len({key[part] for key in sound}) > 1 for part in range(6)]
    if not any(differ):
        differ[0] = True
    return tuple(
        Line(
            mine[1].framework or key[0],
            text.line(", ".join(part for part, shown in zip(key, differ, strict=True) if shown and part)),
            tuple(_points(mine)),
        )
        for key, mine in sound.items()
    )


def _points(mine: dict[int, Figure]) -> Iterable[Point]:
    base = mine[1].value
    assert base
    for devices, one in sorted(mine.items()):
        value = (one.value or 0.0) / base
        yield Point(devices, value, None, None, "1" if devices == 1 else f"{value:.2f}")


def speedups(lines: Sequence[Line]) -> Table | None:
    if not lines:
        return None
    sizes = sorted({point.at for line in lines for point in line.points})
    rows = []
    for line in lines:
        values = {point.at: point.text for point in line.points}
        rows.append(Row((line.label, *(values.get(size, text.NONE) for size in sizes))))
    columns = (Column("system", whole=True), *(Column(text.count(size, "device"), numeric=True) for size in sizes))
    return Table(columns, tuple(rows))
