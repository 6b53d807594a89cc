"""How B's rates differ from A's, as text, Markdown and JSON. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlperf import markdown
from dlperf.errors import clean
from dlperf.figures import rates
from dlperf.figures.changes import NO_RUN, ONLY_A, ONLY_B, OTHER_WORK, Changes, Fact, Matched
from dlperf.figures.verdicts import CONTROL, FASTER, SAME, SLOWER, UNDECIDED
from dlperf.report import names, text
from dlperf.report.shape import Column, Row, Table
from dlperf.schema import SCHEMA, Job

#: of the table, and whether they are of numbers
TITLES = {"row": False, "A": True, "B": True, "unit": False, "B/A": True, "95 %": True, "verdict": False}
#: of a value that changed, characters
LIMIT = 100
#: in the last sentence, in this order
COUNTED = (SLOWER, FASTER, SAME, UNDECIDED, CONTROL, NO_RUN, OTHER_WORK, ONLY_A, ONLY_B)


def row(job: Job) -> str:
    """ "bert_base fp32 pytorch, CPU, batch 4"."""
    size = f", {job.size}" if job.world_size > 1 or job.servers else ""
    read = "" if job.input == "synthetic" else f", {job.input} input"
    device = names.device(job.device)
    return text.line(f"{job.model} {job.precision} {job.system}, {device}{size}, batch {job.batch_size}{read}")


def sentence(one: Matched, share: float) -> str:
    """What a reader can quote of a row."""
    label, ratio = row(one.job), one.verdict.ratio if one.verdict else None
    if ratio is None:
        return f"{label}: {one.word}" + (f" ({text.line(one.why)})." if one.why else ".")
    times = f"{ratio.centre:.3f} times A's rate" + (
        f" (95 % interval {ratio.low:.3f} to {ratio.high:.3f})" if ratio.low is not None else ""
    )
    if one.verdict and one.verdict.controlled:
        times += ", beside the rows that did not change"
    percent = f"{100 * share:g} %"
    said = {
        SLOWER: f"B is slower by more than {percent}: {times}",
        FASTER: f"B is faster by more than {percent}: {times}",
        SAME: f"the same within {percent}: {times}",
        CONTROL: f"nothing that is known changed, so it measures the session: {times}",
    }
    return f"{label}: {said.get(one.word, f'undecided, {one.why}: {times}')}."


def conclusion(found: Changes) -> str:
    """ "slower by more than 3 %: 1 row; same: 2 rows." """
    words = Counter(found.words)
    return "; ".join(f"{word}: {text.count(words[word], 'row')}" for word in COUNTED if words[word]) + "."


def notes(found: Changes) -> Iterator[str]:
    """How to read the table."""
    yield (
        "A and B are geometric means of rates over runs, or over sessions. A verdict is given where the 95 % interval "
        f"of B/A lies beyond {100 * found.share:g} % of 1, or within. Holm's method holds the error of all rows "
        "together at 5 %: of several rows an interval, which is shown of each alone, must be clearer than of one."
    )
    words = set(found.words)
    if found.turns:
        yield "A and B took turns in one session, block by block: ratios are of runs of the same block."
    elif CONTROL in words:
        yield "Rows that did not change measure what the session did to all rows; B/A of the others is over theirs."
    elif UNDECIDED in words:
        yield (
            "Without a control an interval is of runs, and does not say how much sessions vary. What decides: two "
            "sessions or more of each side (A1,A2 B1,B2), a row of both that did not change, or --rerun."
        )


def as_text(found: Changes, sides: Sequence[str]) -> str:
    """For a terminal."""
    lines = [*_heads(sides), "", *text.in_columns(_table(found)), ""]
    for one in found.rows:
        lines += [sentence(one, found.share), *(f"    {_fact(fact)}" for fact in one.facts)]
    lines += ["", *_whole(found, "    "), "", *notes(found), "", conclusion(found)]
    return clean("\n".join(lines)) + "\n"


def as_markdown(found: Changes, sides: Sequence[str]) -> str:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(map(markdown.escape, cells))} |"

    table = _table(found)
    rule = "|".join(" ---: " if column.numeric else " --- " for column in table.columns)
    lines = ["# B beside A", "", *(f"- {markdown.escape(head)}" for head in _heads(sides)), ""]
    lines += [markdown.escape(conclusion(found)), ""]
    lines += [line(column.title for column in table.columns), f"|{rule}|", *(line(one.cells) for one in table.rows), ""]
    for one in found.rows:
        lines += [f"- {markdown.escape(sentence(one, found.share))}"]
        lines += [f"  - {markdown.escape(_fact(fact))}" for fact in one.facts]
    first, *facts = _whole(found, "")
    lines += ["", markdown.escape(first), "", *(f"- {markdown.escape(fact)}" for fact in facts)]
    return "\n".join([*lines, "", *(f"{markdown.escape(note)}\n" for note in notes(found))])


def as_json(found: Changes, sides: Sequence[str]) -> str:
    data = {
        "schema": SCHEMA,
        "a": sides[0],
        "b": sides[1],
        "fail_above": found.share,
        "turns": found.turns,
        "conclusion": conclusion(found),
        "changed": _facts(found.facts),
        "rows": [_data(one, found.share) for one in found.rows],
    }
    return json.dumps(data, indent=1) + "\n"


FORMATS: Mapping[str, Callable[[Changes, Sequence[str]], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
}


def _data(one: Matched, share: float) -> dict[str, Any]:
    job, seen = one.job, one.verdict
    return {
        "a": one.a.id if one.a else None,
        "b": one.b.id if one.b else None,
        "model": job.model,
        "system": job.system,
        "device": job.device,
        "precision": job.precision,
        "nnodes": job.nnodes,
        "nproc_per_node": job.nproc_per_node,
        "servers": job.servers,
        "ps_mode": job.ps_mode,
        "bandwidth": job.bandwidth,
        "latency": job.latency,
        "batch_size": job.batch_size,
        "input": job.input,
        "a_samples_per_second": one.rates[0],
        "b_samples_per_second": one.rates[1],
        "ratio": {"centre": seen.ratio.centre, "low": seen.ratio.low, "high": seen.ratio.high, "n": seen.ratio.n}
        if seen
        else None,
        "controlled": bool(seen and seen.controlled),
        "verdict": one.word,
        "why": one.why,
        "changed": _facts(one.facts),
        "sentence": sentence(one, share),
    }


def _facts(facts: Sequence[Fact]) -> list[dict[str, str]]:
    return [fact._asdict() for fact in facts]


def _table(found: Changes) -> Table:
    return Table(
        tuple(Column(title, numeric=numeric) for title, numeric in TITLES.items()),
        tuple(Row(_cells(one)) for one in found.rows),
    )


def _cells(one: Matched) -> tuple[str, ...]:
    seen = one.verdict.ratio if one.verdict else None
    both = [text.NONE if rate is None else rates.shown(rate) for rate in one.rates]
    ratio = (f"{seen.centre:.3f}", text.interval(seen, 3)) if seen else (text.NONE, text.NONE)
    return (row(one.job), *both, names.rate_unit(one.job.family), *ratio, one.word)


def _heads(sides: Sequence[str]) -> list[str]:
    return [f"{name}: {text.line(side)}" for name, side in zip("AB", sides, strict=True)]


def _fact(fact: Fact) -> str:
    return f"{text.line(fact.what)}: {text.line(fact.a, LIMIT)} → {text.line(fact.b, LIMIT)}"


def _whole(found: Changes, indent: str) -> list[str]:
    if not found.facts:
        return ["For all rows nothing changed that is known."]
    return ["For all rows:", *(f"{indent}{_fact(fact)}" for fact in found.facts)]
