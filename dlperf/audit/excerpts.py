"""The logs and the prose of a document: blocks of code in Markdown, <pre> in HTML, and the text around them. Pure."""

from __future__ import annotations

import html
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dlperf.audit import headings, steps
from dlperf.audit.tables import Table, plain

#: characters of a document's prose that rules look at
PROSE = 50_000
NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_COUNTED = r"(?:images?|imgs?|samples?|sentences?|sequences?|seqs?|tokens?|tok|words?|examples?)"
UNIT = rf"{_COUNTED}\s?(?:/|per)\s?s(?:ec(?:ond)?)?\b(?:\s?(?:/|per)\s?(?:gpu|device|chip|worker|rank)\b)?"
_NAME = r"\b(?:[\w.]*throughput|[\w.]*ips|speed)\b"
RATE = re.compile(
    rf"(?P<total>total\s+)?(?:(?P<unit>{UNIT})|(?P<name>{_NAME}))(?P<sign>\s*[:=]\s*|\s+)?(?P<after>{NUMBER})?", re.I
)
#: DeepSpeed's rate of a line, which has another of all before it; that of all devices by dllogger, likewise
NOW = re.compile(r"\b(?:CurrSamplesPerSec=|train\.total_ips[\"']?: ?)(\d{1,12}(?:\.\d{1,12})?)")
#: of a progress bar that is full: its steps, and how many a second
BAR = re.compile(r"\b100%.{0,200}?\b(\d{1,9})/\1 \[[^\]]{0,40}?, {0,9}(\d{1,9}(?:\.\d{1,9})?)it/s")
#: of the last line of a Hugging Face Trainer
OF_ALL = re.compile(r"\btrain_(samples|tokens)_per_second['\"]?\s{0,9}[:=]\s{0,9}(\d{1,12}(?:\.\d{1,12})?)")
#: of Horovod's synthetic benchmarks, after lines that have rates of one device
ON_ALL = re.compile(rf"\btotal ({UNIT}) on \d{{1,6}} [^:\n]{{1,20}}: {{0,9}}({NUMBER})", re.IGNORECASE)
#: of lines with rates, in small letters: one of these is in each
HINTS = ("/s", "/ s", "per s", "pers", "per_s", "ips", "throughput", "speed")
#: lines at either end of a log whose rates are looked at
LOOKED = 2000
#: of MLPerf's lines, whose rates dlperf.importlogs reads
MLLOG = ":::MLL"
#: a number before its unit, and what stands before that
BEFORE = re.compile(rf"(?P<word>(?<![\w.])[A-Za-z_./]+)?[\s:=]*(?P<number>{NUMBER})\s*$")
OF_RATES = re.compile(rf"{_NAME}|rate|perf\w*|average|avg|mean|at|total", re.IGNORECASE)
STEP_TIME = re.compile(
    r"(?:\b(?:(?:step|iter\w*|batch)[ _-]?time|elapsed time per iteration)\b(?: \((?P<ms>ms)\))?\W{0,3}|"
    r"\bEpoch: \[\d+\] ?\[ *\d+/\d+\]\s+Time\s+|\biter(?:ation)? \d+ .{0,80}?\btime(?: ?[:=])? )"
    rf"({NUMBER})\s*(ms)?",
    re.IGNORECASE,
)
#: seconds that have passed since the start
ELAPSED = re.compile(r"\b(?:elapsed|since start|total time|wall)\W{1,3}(\d{1,9}(?:\.\d{1,9})?) ?s?\b", re.IGNORECASE)
#: a number with its name
NAMED = re.compile(
    r"(?P<name>\b[A-Za-z][\w.]{3,60})['\"]?\s{0,9}[:=]\s{0,9}(?P<number>\d{1,15}(?:\.\d{1,15})?)(?![\d.:])"
)
#: what a log says where it ends, and a text above the end of one, or all of it
ENDED = re.compile(
    r"\b(finished|completed?|done|exit(ing|ed)?|training (time|took|ended)|end of training|stopp(ed|ing))\b|"
    r"total images/sec",
    re.IGNORECASE,
)
WHOLE = re.compile(
    r"\blast (few )?(lines|steps|part)\b|\btail\b|\b(end of|full|complete|whole|entire) (\w+ )?(log|output)\b",
    re.IGNORECASE,
)
CUT = re.compile(r"\W*(\.\.\.|…|⋮|:$|<?(snip|skip|truncat|omitt))", re.IGNORECASE)


@dataclass(frozen=True)
class Excerpt:
    """A log in a document, or beside a table. line: its first. file: its own, if so. above: the text before it. table:
    its steps. rates: of its lines that tell one, each with its line, step and rate a second. total: the one that it
    prints of all of them. unit: of them, `time` where they are made of times. ended: whether its last line is the end
    of the run. cut: whether dots stand for lines that were left out. read: whether its figures are known otherwise.
    precision: by what its first lines say, `fp32`, `half` or empty."""

    line: int
    above: str
    table: Table
    rates: Sequence[tuple[int, int, float]]
    total: tuple[int, float] | None
    unit: str
    ended: bool
    cut: bool
    file: str = ""
    read: bool = False
    precision: str = ""

    def at(self, line: int) -> str:
        return f"{self.file}:{line}" if self.file else f"line {line}"


def excerpts(text: str) -> list[Excerpt]:
    return [made for line, above, block in _blocks(text) if (made := _excerpt(line, above, block))]


def of_log(text: str, name: str, read: bool) -> Excerpt | None:
    """A log that is a file; None of what has no two lines of steps, nor a rate of all. read: see Excerpt."""
    made = _excerpt(1, re.sub(r"[_.-]+", " ", name), text.splitlines())
    return replace(made, file=name, ended=True, read=read) if made else None


def named(text: str) -> dict[str, list[tuple[int, str]]]:
    """Of all blocks of code the numbers that stand behind a name, `name: 1.5` or `name=1.5`, each with its line."""
    found: dict[str, list[tuple[int, str]]] = {}
    for line, _, block in _blocks(text):
        for number, told in enumerate(block, line):
            for one in NAMED.finditer(told[:2000]):
                found.setdefault(headings.normal(one["name"]), []).append((number, one["number"]))
    return found


def prose(text: str) -> str:
    """Without code, tables and tags, a paragraph a line."""
    told = re.sub(r"<(pre|table|script|style)\b.*?</\1>", "\n", text, flags=re.IGNORECASE | re.DOTALL)
    told = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "\n", told, flags=re.DOTALL | re.MULTILINE)
    lines = [plain(html.unescape(re.sub(r"<[^>]{1,200}>", " ", line))) for line in told.splitlines() if "|" not in line]
    return "\n".join(filter(None, lines))[:PROSE]


def _blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Of each block of code its first line, the text above, and its lines."""
    above: list[str] = []
    block: list[str] = []
    fence, kind, since = "", "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        told = line.strip()
        if kind:
            closed = told.startswith(fence) if kind == "fence" else "</pre" in told.lower()
            if kind == "indent" and told and not line.startswith(("    ", "\t")):
                closed = True
            if not closed:
                block.append(line)
                continue
            block += [line[: line.lower().index("</pre")]] if kind == "pre" else []
            yield since, " ".join(above[-2:]), [html.unescape(re.sub(r"<[^>]*>", "", one)) for one in block]
            kind, block = "", []
            if closed and (fence or not told or "</pre" in told.lower()):
                fence = ""
                continue
        if found := re.match(r"(`{3,}|~{3,})", told):
            kind, fence, since = "fence", found[1], number + 1
        elif found := re.search(r"<pre\b[^>]*>(.*)", line, re.IGNORECASE):
            kind, fence, since, block = "pre", "", number, [found[1]]
            if "</pre" in found[1].lower():
                kind, block = "", []
        elif line.startswith(("    ", "\t")) and told and not told.startswith(("|", "-", "*")) and number > 1:
            kind, fence, since, block = "indent", "", number, [line]
        elif told and "|" not in told:
            above.append(plain(re.sub(r"<[^>]{1,200}>", " ", told))[:500])
    if block:
        yield since, " ".join(above[-2:]), block


def _excerpt(line: int, above: str, block: Sequence[str]) -> Excerpt | None:
    """None of what has no two lines of steps, nor a rate of all."""
    made = steps.logged("\n".join(block)) or Table("", ["step", "loss", "timestamp"], [])
    rows = [(line + int(at) - 1, row) for at, row in made.rows]
    looked = block if len(block) <= 2 * LOOKED else [*block[:LOOKED], *block[-LOOKED:]]
    places = [*range(min(len(block), LOOKED)), *range(max(LOOKED, len(block) - LOOKED), len(block))]
    found = {line + at: rate for at, one in zip(places, looked, strict=True) if (rate := _rate(one))}
    units = {unit for _, _, unit in found.values() if unit}
    totals = [(at, value) for at, (value, total, _) in found.items() if total]
    bars = [
        (at, int(one[1]), float(one[2])) for at, text in enumerate(block, line) if (one := BAR.search(text[-2000:]))
    ]
    if not rows and not totals and len(bars) < 2:
        return None
    rates = [(at, int(row[0]), found[at][0]) for at, row in rows if at in found and not found[at][1]]
    if not rates:
        rates = [(at, int(row[0]), 1 / time) for at, row in rows if (time := _step_time(block[at - line]))] or bars
        units = {"time"} if rates else units
    if not rates and (passed := _passed(rows, {at: block[at - line] for at, _ in rows})):
        rates, units = passed, {"time"}
    rest = "\n".join(block[rows[-1][0] - line + 1 :]) if rows else ""
    return Excerpt(
        line=line,
        above=above,
        table=Table("", made.head, rows),
        rates=rates,
        total=totals[-1] if totals else None,
        unit=units.pop() if len(units) == 1 else "",
        ended=bool(ENDED.search(rest) or WHOLE.search(above)),
        cut=any(CUT.match(one) for one in block),
        precision=_precision("\n".join(one[:2000] for one in block[:HEAD])),
    )


#: lines of a log that tell how it was started, and of these what tells a precision
HEAD = 200
HALF = re.compile(
    r"\b(?:amp|fp16|bf16|use_amp|use_fp16|mixed_precision)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<on>true|1|fp16|bf16|on|O[12]|"
    r"(?P<off>false|0|off|no|none|O0))\b|\b(?:precision|dtype)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<name>fp32|float32|amp|fp16|"
    r"float16|bf16|bfloat16)\b",
    re.IGNORECASE,
)


def _precision(text: str) -> str:
    found = {
        "fp32" if one["off"] or (one["name"] or "").lower() in ("fp32", "float32") else "half"
        for one in HALF.finditer(text)
    }
    return found.pop() if len(found) == 1 else ""


def _rate(line: str) -> tuple[float, bool, str] | None:
    """Of a line: its rate, whether it is one of all lines, and what it counts."""
    low = line[:2000].lower()
    if not any(hint in low for hint in HINTS) or MLLOG in line:  # many times as fast as what follows
        return None
    if "_per_second" in low and (whole := OF_ALL.search(line[:2000])):
        return float(whole[2]), True, f"{whole[1]}/s"
    if ("persec" in low or "total_ips" in low) and (now := NOW.search(line[:2000])):
        return float(now[1]), False, "samples/s"
    if "total" in low and (whole := ON_ALL.search(line[:2000])):
        return float(whole[2].replace(",", "")), True, whole[1].lower()
    for found in RATE.finditer(line[:2000]):
        before = BEFORE.search(line[: found.start()])
        free = before and (not before["word"] or OF_RATES.fullmatch(before["word"]) or before["word"][-1] in "./")
        signed = bool(found["sign"] and found["sign"].strip())
        told = before["number"] if before and free and found["unit"] and not signed else found["after"]
        if told and (value := float(told.replace(",", ""))):
            unit = found["unit"] or next((each[0] for each in re.finditer(UNIT, line, re.IGNORECASE)), "")
            return value, bool(found["total"]), unit.lower()
    return None


def _passed(rows: Sequence[tuple[int, Sequence[str]]], lines: Mapping[int, str]) -> list[tuple[int, int, float]]:
    """Steps a second from line to line, of a log whose lines tell how many seconds have passed since its start."""
    told = [(at, int(row[0]), float(found[1])) for at, row in rows if (found := ELAPSED.search(lines[at][:2000]))]
    ascend = all(a[1] < b[1] and a[2] < b[2] for a, b in pairwise(told))
    return [(b[0], b[1], (b[1] - a[1]) / (b[2] - a[2])) for a, b in pairwise(told)] if ascend else []


def _step_time(line: str) -> float:
    found = STEP_TIME.search(line[:2000])
    return float(found[2].replace(",", "")) / (1000 if found[3] or found["ms"] else 1) if found else 0.0


def steady(one: Excerpt) -> list[tuple[int, int, float]]:
    """Its rates but for those of a first line that is slower than half of the others."""
    usual = statistics.median(rate for _, _, rate in one.rates) if one.rates else 0.0
    return [each for at, each in enumerate(one.rates) if at or each[2] * 2 > usual]
