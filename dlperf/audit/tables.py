"""The tables of a file, whatever they are about: CSV, Markdown, HTML, JSON. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import groupby

from dlperf.audit import objects, rst
from dlperf.audit.languages import english, rows_with_points, with_points

#: of the prose of a section, as many characters as rules look at
PROSE = 4000
#: columns and rows that a cell of HTML may span
SPANS = 100
#: columns of a table, above which none of it is read: rules on columns would take minutes
COLUMNS = 1000
#: rows of a table that are read, and cells, where it has many columns
ROWS, CELLS = 20_000, 200_000
#: of a cell's end, the mark of a footnote: 123*, 123 [1], 123†, 123[^a]
MARK = re.compile(r"\s*(?:\[\^?\w{1,3}\]|\\?\*+|[†‡§¹²³])$")
Rows = list[tuple[int | str, list[str]]]


@dataclass(frozen=True)
class Table:
    """title: the headings of the sections that it is in, its caption and the line above it. head: its columns. rows:
    each with its line in the file, or its place in a JSON. notes: other prose of its section, line by line. left: rows
    that were left out."""

    title: str
    head: Sequence[str]
    rows: Sequence[tuple[int | str, Sequence[str]]]
    notes: Sequence[str] = ()
    left: int = 0


def tables(text: str, suffix: str, needed: bool = True) -> list[Table]:
    """Of a file, by its suffix and what it looks like. ValueError, with the line where one is at fault, where there is
    none."""
    lines = text.splitlines(keepends=True)
    first = text.lstrip()[:1]
    piped = sum(line.lstrip().startswith("|") for line in lines)
    told = suffix in (*MARKDOWN, *HTML) or text.lstrip()[:2] in ("{%", "{{")  # of a template
    if suffix in JSON or (not told and first in ("{", "[") and not piped):
        found = [Table(*one) for one in objects.groups(text, suffix in JSON)]
    elif suffix in HTML or (first == "<" and re.search(r"<table\b", text, re.IGNORECASE)):
        found = _html(text)
    elif suffix in (*MARKDOWN, ".rst") or piped > 2:
        found = _markdown(rst.piped(lines))
    else:
        found = _csv(lines, suffix in (".csv", ".tsv"))
    wide = [one for one in found if len(one.head) > COLUMNS]
    if wide and len(wide) == len(found):
        raise ValueError(_wide(wide[0].rows[0][0], len(wide[0].head)))
    found = [_in_english(one) for one in found if len(one.head) <= COLUMNS]
    if wide:
        found[-1] = replace(found[-1], left=found[-1].left + sum(len(one.rows) for one in wide))
    if not found and needed:
        raise ValueError("no table is in it: a first line of column names and a row of figures are needed")
    return found


def _wide(place: int | str, columns: int) -> str:
    where = f"line {place}" if isinstance(place, int) else place or "its first object"
    return f"{where}: it has {columns:,} columns; a table of more than {COLUMNS:,} is not read"


def _in_english(one: Table) -> Table:
    """Its words, and its numbers where they have decimal commas."""
    rows = rows_with_points(_closed(one.rows[: min(ROWS, CELLS // len(one.head))]))
    if not all(cell.isascii() for _, row in rows for cell in row):
        rows = [(line, [english(cell) for cell in row]) for line, row in rows]
    head, notes = [english(head) for head in one.head], [english(note) for note in one.notes]
    return Table(english(one.title), head, rows, notes, one.left + len(one.rows) - len(rows))


#: what separates thousands in a number: also thin and hard spaces, and a plain one where all of a column are numbers
SPACED = re.compile(r"(?<![\d.,])(\d{1,3})((?:[ \u00a0\u2007\u2009\u202f]\d{3})+)(?!\d)")
_SPACES = re.compile(r"[ \u00a0\u2007\u2009\u202f]")


def _closed(rows: Sequence[tuple[int | str, Sequence[str]]]) -> Sequence[tuple[int | str, Sequence[str]]]:
    """3 130.3 as 3130.3."""
    if not any(SPACED.search(cell) for _, row in rows for cell in row):
        return rows
    whole = re.compile(rf"{SPACED.pattern}?[.,]?\d*\D{{0,12}}|[\d.,]*\D{{0,12}}")
    columns = zip(*(row for _, row in rows), strict=True)
    sure = [all(whole.fullmatch(cell) for cell in column) for column in columns]

    def close(cell: str, all_numbers: bool) -> str:
        wanted = all_numbers or not cell.isascii()
        return SPACED.sub(lambda found: found[1] + _SPACES.sub("", found[2]), cell) if wanted else cell

    return [(line, [close(*one) for one in zip(row, sure, strict=True)]) for line, row in rows]


HTML = (".html", ".htm", ".xhtml")
MARKDOWN, JSON = (".md", ".markdown"), (".json", ".jsonl", ".ndjson")


def _csv(lines: Sequence[str], sure: bool) -> list[Table]:
    """Tables with blank lines between them; lines that begin with #, or have one cell only, are titles."""
    text = ["\n" if line.startswith("#") else line for line in lines]
    head = next((line for line in text if line.strip()), "")
    delimiter = max(",\t;", key=head.count)
    if delimiter == ";":
        text = with_points(text)
    titles = [line.strip("# \r\n") for line in lines if line.startswith("#")]
    found: list[Table] = []
    block: Rows = []
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        rows: Rows = [(reader.line_num, [one.strip() for one in row]) for row in reader]
        if not sure and any(len(row) != len(rows[0][1]) for _, row in rows if len(row) > 1):
            return []
    except csv.Error as error:
        if not sure:
            return []
        raise ValueError(f"line {reader.line_num}: {error}") from None
    for line, row in [*rows, (0, [])]:
        told = [one for one in row if one]
        if len(told) > 1 or (told and block):
            block.append((line, row))
        elif block:
            found += _block(block, titles, found)
            block, titles = [], [] if told or row else titles
        if len(told) == 1 and not block:
            titles.append(told[0])
    return found


def _block(block: Rows, titles: Sequence[str], before: list[Table]) -> Iterator[Table]:
    """One table; rows without a line of names go on with the table before them."""
    head = block[0][1]
    more = before and all(re.fullmatch(r"[\d.,%x ]*", one) for one in head) and len(head) == len(before[-1].head)
    if not more and (len(block) < 2 or len(head) < 2):
        return
    for number, row in block:
        if len(row) != len(head):
            raise ValueError(f"line {number}: it has {len(row)} columns, the first line {len(head)}")
    if more:
        last = before.pop()
        yield Table(last.title, last.head, [*last.rows, *block], last.notes)
    else:
        yield Table(" ".join(titles), head, block[1:], titles)


@dataclass
class _Section:
    """What stands above and below tables under one heading."""

    headings: list[tuple[int, str]] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def title(self, caption: str = "") -> str:
        told = (*(text for _, text in self.headings), *self.prose[-1:], caption)
        return " ".join(dict.fromkeys(filter(None, told)))

    def below(self, level: int, text: str) -> _Section:
        return _Section([*(one for one in self.headings if one[0] < level), (level, text)])

    def found(self) -> Iterator[Table]:
        notes, length = [], 0
        for line in self.prose:
            length += len(line)
            if length <= PROSE:
                notes.append(line)
        for one in self.tables:
            yield replace(one, notes=notes)


#: the line that begins a block of code, or ends it
FENCE = re.compile(r"`{3,}[^`]*$|~{3,}")


def _markdown(lines: Sequence[str]) -> list[Table]:
    """Rows that are too short or long are filled or cut, as renderers do."""
    found: list[Table] = []
    section, block, html = _Section(), list[tuple[int | str, list[str]]](), list[str]()
    fence, wide = "", list[tuple[int, int]]()
    for number, line in enumerate([*lines, ""], 1):
        told = line.strip()
        if html or re.match(r"(<\w+[^>]*>)*<table\b", told, re.IGNORECASE):
            html.append(line)
            if "</table" in line.lower() or number > len(lines):
                for one in _html("\n" * (number - len(html)) + "".join(html)):
                    title = " ".join(filter(None, (section.title(), one.title)))
                    section.tables.append(Table(title, one.head, one.rows))
                html = []
            continue
        if GRID.fullmatch(told):  # of reStructuredText
            if "=" in told:
                block.append((number, ["---"] * (told.count("+") - 1)))
            continue
        if told.startswith("|") or (block and "|" in told) or _ruled(lines, number):
            if told.count("|") > 2 * COLUMNS:
                wide.append((number, told.count("|")))
                continue
            cells = re.split(r"(?<!\\)\|", re.sub(r"^\||(?<!\\)\|$", "", told))
            block.append((number, [plain(one) for one in cells]))
            continue
        if len(block) > 2 and all(re.fullmatch(r":?-+:?", one) for one in block[1][1]):
            head = block[0][1]
            rows = [(at, (row + [""] * len(head))[: len(head)]) for at, row in block[2:]]
            section.tables.append(Table(section.title(), head, rows))
        block = []
        if not told:
            continue
        if FENCE.match(told) and (not fence or (told.startswith(fence) and not told.strip(fence[0]))):
            fence = "" if fence else told[: len(told) - len(told.lstrip(told[0]))]
            continue
        level = len(told) - len(told.lstrip("#"))
        if 0 < level < 7 and not fence:  # in code a comment
            found += section.found()
            section = section.below(level, plain(told.strip("# "))[:200])
        else:
            section.prose.append(plain(told)[:500])
    found += section.found()
    if wide and not found:
        raise ValueError(_wide(*wide[0]))
    return [*found[:-1], replace(found[-1], left=len(wide))] if found else _unruled(lines)


def _unruled(lines: Sequence[str]) -> list[Table]:
    """Lines of a terminal with bars between their columns and no rule below the first, where nothing else is a table:
    three or more with as many bars, of which the first has no numbers."""
    found, prose = list[Table](), list[str]()
    for bars, several in groupby(enumerate(lines, 1), key=lambda one: min(one[1].count("|"), COLUMNS)):
        block = [(number, [plain(cell) for cell in line.strip().strip("|").split("|")]) for number, line in several]
        if bars < 2 or bars == COLUMNS:
            prose += [row[0] for _, row in block if row[0]]
        elif len(block) > 2 and not any(re.match(r"[\d.]+$", cell) for cell in block[0][1]):
            width = len(block[0][1])
            rows = [(at, (row + [""] * width)[:width]) for at, row in block[1:]]
            found.append(Table(" ".join(prose[-1:]), block[0][1], rows, prose[-20:]))
    return found


def _ruled(lines: Sequence[str], number: int) -> bool:
    """Whether the line below is the rule of a table, as `a | b` has it without pipes at its ends."""
    below = lines[number].strip() if number < len(lines) else ""
    return "|" in below and "|" in lines[number - 1] and bool(re.fullmatch(r"[|:\- ]+", below))


GRID = re.compile(r"\+(?:-{2,}\+)+|\+(?:={2,}\+)+")
INLINE = re.compile(r"</?(?:b|i|u|em|strong|small|big|mark|font|sub|span|div|p|center|code|kbd|a)\b[^>]*>")


def plain(told: str) -> str:
    """A cell of Markdown without links, breaks, stars and tags; an index as [1], but not where it is all of a cell."""
    told = re.sub(r"^\s*<su([bp])>([^<]*)</su\1>\s*$", r"\2", told) if "<" in told else told
    told = re.sub(r"<sup>\s*(.*?)\s*</sup>", r" [\1]", re.sub(r"<br ?/?>", " ", told)) if "<" in told else told
    told = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", told) if "](" in told else told
    told = INLINE.sub("", told) if "<" in told else told
    told = re.sub(r"\s+", " ", re.sub(r"\\([*|_~\[\]])", r"\1", told)).strip(" `\t")
    return re.sub(r"^(\*\*|__)(.*?)(\*\*|__)", r"\2", told).strip()


class _Page(HTMLParser):
    """Tables with their headings, captions and the text around them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Table] = []
        self.section = _Section()
        self.text: list[str] = []
        self.depth = self.silent = 0
        self.rows: list[tuple[int, list[tuple[str, int, int, bool]]]] = []
        self.spans, self.bold = (1, 1), False
        self.caption = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "svg"):
            self.silent += 1
        elif tag == "table":
            self._prose()
            self.depth += 1
            if self.depth == 1:
                self.rows, self.caption = [], ""
        elif self.depth == 1 and tag == "tr":
            self._cell()
            self.rows.append((self.getpos()[0], []))
        elif self.depth == 1 and tag in ("td", "th"):
            self._cell()
            told, self.bold = dict(attrs), tag == "th"
            self.spans = _span(told.get("colspan")), _span(told.get("rowspan"))
            self.text = [""]
        elif tag in ("br", "p", "div", "li") and self.depth:
            self.text.append(" ")
        elif tag == "sup":
            self.text.append(" [")
        elif tag in BLOCKS:
            self._prose()

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "svg"):
            self.silent = max(0, self.silent - 1)
        elif tag == "sup":
            self.text.append("]")
        elif tag == "table" and self.depth:
            if self.depth == 1:
                self._cell()
                self._table()
            self.depth -= 1
        elif self.depth == 1 and tag in ("td", "th"):
            self._cell()
        elif tag == "caption" and self.depth == 1:
            self.caption, self.text = _joined(self.text), []
        elif not self.depth and (level := re.fullmatch(r"h([1-6])", tag)):
            told, self.text = _joined(self.text), []
            self.found += self.section.found()
            self.section = self.section.below(int(level[1]), told[:200])
        elif tag in BLOCKS and not self.depth:
            self._prose()

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.text.append(data)

    def _cell(self) -> None:
        if self.rows and self.text and self.depth:
            told = re.sub(r"^\[(\d[\d.,]+)\]$", r"\1", plain(_joined(self.text)))  # all of it raised is no index
            if told or self.text[0] == "":
                self.rows[-1][1].append((told, *self.spans, self.bold))
        self.text, self.spans, self.bold = [], (1, 1), False

    def _prose(self) -> None:
        if not self.depth:
            if told := _joined(self.text):
                self.section.prose.append(told[:500])
            self.text = []

    def _table(self) -> None:
        grid = _grid([cells for _, cells in self.rows])
        lines = [line for line, _ in self.rows]
        first = next((n for n, (_, cells) in enumerate(self.rows) if not all(one[3] for one in cells)), len(grid))
        first = max(first, 1)
        if len(grid) <= first or not grid[0]:
            return
        columns = zip(*grid[:first], strict=True)
        head = [" ".join(dict.fromkeys(filter(None, column))) for column in columns]
        rows = list(zip(lines[first:], grid[first:], strict=True))
        self.section.tables.append(Table(self.section.title(self.caption), head, rows))


BLOCKS = {"p", "div", "li", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "section", "body", "html"}


def _span(told: str | None) -> int:
    return min(SPANS, max(1, int(told))) if told and re.fullmatch(r"\d{1,3}", told) else 1


def _joined(text: Sequence[str]) -> str:
    return " ".join("".join(text).split())


def _grid(rows: Sequence[Sequence[tuple[str, int, int, bool]]]) -> list[list[str]]:
    """Cells in their places, repeated over what they span."""
    grid: list[dict[int, str]] = [{} for _ in rows]
    for at, cells in enumerate(rows):
        column = 0
        for told, wide, high, _ in cells:
            while column in grid[at]:
                column += 1
            for below in grid[at : at + high]:
                below.update(dict.fromkeys(range(column, column + wide), told))
            column += wide
    width = max((max(row, default=-1) + 1 for row in grid), default=0)
    return [[row.get(n, "") for n in range(width)] for row in grid]


def _html(text: str) -> list[Table]:
    page = _Page()
    page.feed(text)
    page.close()
    page._prose()
    return [*page.found, *page.section.found()]
