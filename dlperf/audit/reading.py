"""What is audited, read from files: figures.csv, tables, logs, folders of these, comparisons, published sources."""

from __future__ import annotations

import codecs
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from dlperf import sources
from dlperf.audit import cells, excerpts, fields, steps, tables, wide
from dlperf.audit.cells import Cell, Subject, cell
from dlperf.comparison import store
from dlperf.errors import Problem, UsageError
from dlperf.figures import published
from dlperf.importlogs import read, size, trees
from dlperf.importlogs.format import Format
from dlperf.importlogs.formats import formats
from dlperf.importlogs.recognise import Refused

#: bytes of a file, and files of a folder, that are read
MOST, MOST_FILES = 2**27, 5000
LOGS, TABLES = (
    (".log", ".out", ".txt", ".err"),
    (".csv", ".tsv", ".md", ".markdown", ".html", ".htm", ".json", ".jsonl"),
)
#: of these, those that have text, and may quote logs
DOCUMENTS = (".md", ".markdown", ".html", ".htm")
FIELD = "FILE|RUN|SOURCE"


def subjects(named: str) -> list[Subject]:
    """Of a file, a comparison, a published source or a folder of tables and logs. UsageError where it is none."""
    for place in (Path(named), sources.published() / named):
        if place.is_dir() and store.holds(place):
            return [comparison(place, named)]
    place = Path(named)
    if place.is_file():
        ours = place.suffix.lower() == ".json" and _ours(_text(place))
        return [comparison(place, named) if ours else file(place)]
    if place.is_dir() and not sources.holds(place):
        if found := list(_tree(place)):
            return found
        says = "no table is in it, and no log that is known. Name a folder of these, or a file."
        raise UsageError([Problem(FIELD, named, says=says)])
    return [folder(sources.find(named, FIELD))]


def comparison(place: Path, name: str) -> Subject:
    """With what was changed in it by hand."""
    held, warnings = store.read(place)
    return replace(cells.subject(held, name), changed=tuple(f"{warning}" for warning in warnings))


def _ours(text: str) -> bool:
    """Whether a JSON is a comparison, as dlperf writes it."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and {"schema", "records", "jobs"} <= told.keys()


def folder(place: Path) -> Subject:
    """Of a published source. UsageError where its source.toml cannot be read."""
    made = file(place / sources.FIGURES, place.name)
    if not (place / sources.TOLD).exists():
        return made
    return Subject(made.name, made.cells, labels={one.id: one.row for one in sources.read_source(place).told.table})


def file(path: Path, name: str = "") -> Subject:
    """Of a figures.csv, a plain table or a log. UsageError that names file, line and column."""
    name = name or path.name
    text, over = _last_updates(_text(path))
    try:
        if path.suffix.lower() not in tables.MARKDOWN and is_figures(text):
            found = published.numbered(text.splitlines(keepends=True), partial=True)
            of_lines = [of(fields.completed(figure, path.stem), name, f"{path.name}:{line}") for line, figure in found]
            return Subject(name, of_lines, plain=True)
        logged = path.suffix.lower() in LOGS or (not path.suffix and "loss" in text)
        if logged and (made := log(path, path.name, name, text)) and made.cells:
            return replace(made, left=made.left + over)
        quoted = excerpts.excerpts(text) if path.suffix.lower() in DOCUMENTS else []
        found_ = tables.tables(text, path.suffix.lower(), needed=not quoted)
        prose = excerpts.prose(text) if path.suffix.lower() in DOCUMENTS else ""
        figures, labels = wide.figures(found_, path.name, path.stem, needed=not quoted, prose=prose)
        left = over + sum(one.left for one in found_)
        for one in quoted:
            more, of_log = wide.figures([one.table], path.name, f"{path.stem}: log in line {one.line}", needed=False)
            figures += [replace(figure, origin="log") for figure in more]
            labels |= of_log
        made_ = [of(figure, name, "") for figure in figures]
        notes = tuple(dict.fromkeys(line for one in found_ for line in one.notes))
        made = Subject(name, made_, labels=labels, plain=True, left=left, notes=notes)
        if path.suffix.lower() not in DOCUMENTS:
            return made
        return replace(made, excerpts=quoted, named=excerpts.named(text), prose=prose)
    except ValueError as error:
        raise UsageError([Problem(str(path), "", says=f"{error}.")]) from None


#: of a line that a progress bar writes over and over, the updates that are read
UPDATES = 1000


def _last_updates(text: str) -> tuple[str, int]:
    """Without all but the last updates of each line, and how many these were."""
    if text.count("\r") - text.count("\r\n") <= UPDATES:
        return text, 0
    lines = [line.split("\r") for line in text.split("\n")]
    over = sum(max(0, len(parts) - UPDATES) for parts in lines)
    return "\n".join("\r".join(parts[-UPDATES:]) for parts in lines), over


def log(path: Path, shown: str, name: str, text: str) -> Subject | None:
    """Its figures, as dlperf.importlogs has them, and its lines as a table of steps; None of what has neither."""
    lines = steps.logged(text)
    labels: dict[str, str] = {}
    figures_, why = _figures(path, shown)
    made = [of(replace(_ran(one, lines), origin="log"), name, shown) for one in figures_]
    if why and lines and not NO_TRAINING.search(why) and (ended := _ended(path, shown, lines)):
        made.append(of(ended, name, shown))
    if lines and any(any(row[1:]) for _, row in lines.rows):
        kept = replace(lines, rows=lines.rows[: tables.ROWS])
        figures, labels = wide.figures([kept], shown, shown, needed=False)
        made += [of(replace(figure, origin="log"), name, "") for figure in figures]
    if not any(one.figure.column == "loss" for one in made) and (nan := _nan(shown, text)):
        made.append(of(nan, name, shown))
    unread = {shown: why} if why and (lines or path.suffix.lower() in (".log", ".out", ".err")) else {}
    left = max(0, len(lines.rows) - tables.ROWS) if lines else 0
    return Subject(name, made, labels=labels, plain=True, unread=unread, left=left) if made or unread else None


#: of why a log is not read, that its steps are none of training
NO_TRAINING = re.compile("which is not|of evaluation")


def _ended(path: Path, shown: str, lines: tables.Table) -> published.Figure | None:
    """The step that a log without figures ends at, and in `ended` how many can have run; None where several ranks
    print."""
    ran = steps.most(lines)
    if ran is None:
        return None
    told = size.of_path(PurePath(path.absolute()), [])
    nodes, each = (int(told[key]) if key in told else None for key in ("nodes", "devices_per_node"))
    return _of_line(
        shown,
        int(lines.rows[-1][0]),
        row="its end",
        column="last step",
        printed=lines.rows[-1][1][0],
        model=cells.model_of(size.MODELS.get(told.get("model", ""), "")),
        precision=told.get("precision", ""),
        options={"ended": str(ran)},
        nodes=nodes,
        devices=nodes * each if nodes and each else None,
        batch=told.get("batch", ""),
        batch_of="device" if "batch" in told else "",
    )


def _of_line(shown: str, line: int, **told: Any) -> published.Figure:
    """What a line of a log tells that is no rate, and nothing else."""
    blank: dict[str, Any] = dict.fromkeys((one.name for one in dataclasses.fields(published.Figure)), "")
    blank |= {"options": {}, "nodes": None, "devices": None, "quantity": "other", "origin": "log"}
    return published.Figure(**{**blank, "table": shown, "path": shown, "line": line, **told})


def _nan(shown: str, text: str) -> published.Figure | None:
    """The first loss of a log without steps that is no number."""
    found = NAN.search(text)
    if not found:
        return None
    line = text.count("\n", 0, found.start()) + 1
    return _of_line(shown, line, row=f"line {line}", column="loss", printed=found[1])


NAN = re.compile(
    r"(?:\bloss['\"]?\s{0,9}[:=]\s{0,9}['\"]?|\(jitter = [\d.]{1,9}\)\t)(nan|[-+]?inf(?:inity)?)\b", re.IGNORECASE
)


def _ran(one: published.Figure, lines: tables.Table | None) -> published.Figure:
    """With how many steps can have run, and the step that its log ends at where that is before those that it claims;
    not where several ranks print."""
    last = steps.most(lines) if lines else None
    if not lines or last is None:
        return one
    ends = one.steps.isdigit() and last <= int(one.steps)
    ran = {"ran": lines.rows[-1][1][0]} if ends else {}
    return replace(one, options={**one.options, "ended": str(last), **ran})


#: what stands in for what neither a log nor its path tells, and something else, to see which figures are of it
ABSENT = {
    "nodes": ("1", "2"),
    "devices_per_node": ("1", "4"),
    "batch": ("1", "7"),
    "precision": ("fp32", "fp32"),
}


#: devices that a log may be of whose path does not tell: of these one fits batch, clock and printed rates, or none
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
UNLIKE = re.compile("are not the samples of a step|ranks that should print")


def _figures(path: Path, shown: str) -> tuple[list[published.Figure], str]:
    """Of a log: those that need nothing which neither it nor its path tells; that is blank in them. Why there are none,
    where it looks like a log of training."""
    absent: list[str] = []
    for _ in (*ABSENT, ""):  # nodes may tell how many devices each has
        try:
            found = _needing_none(path, shown, absent)
            return found, "" if found else _without(absent)
        except Refused as refused:
            if "batch" in absent and "tells batch" in str(refused):  # of what it is told once devices are known
                absent.remove("batch")
                continue
            missing = [name for name in ABSENT if name.replace("_", " ") in str(refused) and name not in absent]
            if not missing and absent and UNLIKE.search(str(refused)):  # by what stands in for what is absent
                return [], _without(absent)
            if not missing:
                return [], f"{refused}"
            absent += [name for name in missing if name != "devices_per_node"] or missing
    return [], "neither it nor its path tells its size"


def _without(absent: Sequence[str]) -> str:
    return f"its figures need {', '.join(absent).replace('_', ' ')}, which neither it nor its path tells"


def _needing_none(path: Path, shown: str, absent: Sequence[str]) -> list[published.Figure]:
    """Refused where more is absent."""
    if not absent:
        return _read(path, shown, {})
    one, other = (_read(path, shown, {name: ABSENT[name][at] for name in absent}) for at in (0, 1))
    blank: dict[str, Any] = {name: "" for name in absent if name in ("batch", "precision")}
    blank |= {"batch_of": ""} if "batch" in absent else {}
    if "devices_per_node" in absent:
        known = {"nodes": "1", "precision": ABSENT["precision"][0]}
        told = [] if "batch" in absent else [_read(path, shown, {**known, "devices_per_node": str(n)}) for n in NUMBERS]
        fit = [figures for figures in told if figures and not any(UNLIKE.search(each.doubt) for each in figures)]
        if len(fit) == 1:
            return [replace(figure, nodes=None, **blank) for figure in fit[0]]
        blank |= {"nodes": None, "devices": None}
    same = {(figure.column, figure.printed) for figure in other}
    return [replace(figure, **blank) for figure in one if (figure.column, figure.printed) in same]


def _read(path: Path, shown: str, given: Mapping[str, str]) -> list[published.Figure]:
    return list(read.read(path, shown, _formats(), None, given).figures)


@cache
def _formats() -> dict[str, Format]:
    return dict(formats())


def _tree(place: Path) -> Iterator[Subject]:
    """Each table of a folder, and all its logs as one."""
    logs: list[Subject] = []
    tables_: list[Subject] = []
    others: list[excerpts.Excerpt] = []
    for number, (path, name, why) in enumerate(trees.files(place)):
        if number >= MOST_FILES:
            says = f"it has more than {MOST_FILES:,} files. Name a smaller folder."
            raise UsageError([Problem(str(place), "", says=says)])
        if why or path.stat().st_size > MOST or path.name == sources.TOLD:
            continue
        suffix = path.suffix.lower()
        if suffix in LOGS or not suffix or (suffix == ".json" and path.read_bytes()[:5] == b"DLLL "):
            text, over = _last_updates(path.read_bytes().decode("utf-8", "replace"))
            made = log(path, name, place.name, text)
            if made:
                known = any("format" in one.figure.options for one in made.cells)
                told = excerpts.of_log(text, name, known)
                others += [told] if told else []
                read_ = told and (told.rates or told.total)  # tables are held against it as it is
                logs.append(replace(made, left=made.left + over, unread={} if read_ else made.unread))
        elif suffix in TABLES:
            try:
                if suffix != ".json" or not _ours(_text(path)):
                    tables_.append(file(path, name))
            except UsageError:
                continue  # of a folder, what is no table is passed over
    yield from (replace(one, excerpts=[*one.excerpts, *others]) for one in tables_)
    if logs:
        held = [one for several in logs for one in several.cells]
        labels = {key: label for one in logs for key, label in one.labels.items()}
        unread = {key: why for one in logs for key, why in one.unread.items()}
        left = sum(one.left for one in logs)
        yield Subject(f"{place.name}: logs", held, labels=labels, plain=True, unread=unread, left=left)


def of(figure: published.Figure, source: str, where: str) -> Cell:
    """where: of the line itself, for a figure that names no document."""
    place = f"{figure.path}:{figure.line}" if figure.path and figure.line else figure.path or where
    return cell(figure, source, place)


def is_figures(text: str) -> bool:
    """Whether it is a line for each cell: the columns that such a file must have."""
    first = text.partition("\n")[0].strip().lower().split(",")
    return {one.strip().strip('"') for one in first} >= published.NEEDED


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST:
            says = f"it has {path.stat().st_size:,} bytes; at most {MOST:,} are read."
            raise UsageError([Problem(str(path), "", says=says)])
        held = path.read_bytes()
        if held.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UsageError([Problem(str(path), "", says="it is UTF-16. Convert it to UTF-8 first.")])
        if b"\0" in held[:4096]:
            raise UsageError([Problem(str(path), "", says="it is binary. Name a table, a log, or a results.json.")])
        return held.decode("utf-8-sig")
    except OSError as error:
        raise UsageError([Problem(str(path), "", says=f"cannot be read: {error.strerror}.")]) from None
    except UnicodeDecodeError as error:
        says = f"it is no text in UTF-8 (byte {error.start}). Name a figures.csv, a table, or a results.json."
        raise UsageError([Problem(str(path), "", says=says)]) from None
