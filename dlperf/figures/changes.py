"""Of comparisons A and B, each of one session or several: which rows are the same, and what changed. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from dlperf.figures import standings, steady
from dlperf.figures.statistics import mean_logarithm
from dlperf.figures.summaries import rates_of, summarize
from dlperf.figures.verdicts import Verdict, verdicts
from dlperf.proof import judge
from dlperf.schema import Comparison, Job, Record

#: what a row is called besides `verdicts` words: it has no partner, does other work than it, or has no run
ONLY_A, ONLY_B, OTHER_WORK, NO_RUN = "only in A", "only in B", "not the same work", "no run"
#: of a machine, what says which it is, or how it is set; all else of it changes by itself
MACHINE = (
    *("cpu", "architecture", "sockets", "cores", "threads", "usable_threads", "cpu_quota", "instruction_sets"),
    *("governor", "memory_bytes", "memory_limit_bytes", "kernel", "os", "virtual", "container", "driver", "cuda"),
)
#: of the whole, what may change without a row being another
LOAD, VERSION = "load average at the start", "dlperf"
#: lines of a launch script that set a variable; those with paths, which differ between machines, aside
VARIABLE = re.compile(r"^  ([A-Z_][A-Z0-9_]*)=([^/$\s]*)(?: \\)?$", re.MULTILINE)
#: what a fact is where nobody noted it; several values of one side
UNKNOWN, OR = "–", " / "
#: of a digest that are shown, and are enough
DIGITS = 12


class Fact(NamedTuple):
    """Something that is not the same in A and B."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class Matched:
    """A row of A, of B or of both. rates: geometric means of samples/s, None where it has no run. facts: what changed.
    verdict: of a row that can be judged; word: what it is called. why: of a word that needs it."""

    a: Job | None
    b: Job | None
    rates: tuple[float | None, float | None]
    word: str
    why: str = ""
    verdict: Verdict | None = None
    facts: tuple[Fact, ...] = ()

    @property
    def job(self) -> Job:
        found = self.a or self.b
        assert found is not None
        return found


@dataclass(frozen=True)
class Changes:
    """rows: in the order of A, then those of B alone. facts: what changed for all rows. share: P. turns: whether A and
    B took turns, see `verdicts`."""

    rows: tuple[Matched, ...]
    facts: tuple[Fact, ...]
    share: float
    turns: bool

    @property
    def words(self) -> list[str]:
        return [row.word for row in self.rows]


Sessions = Sequence[Comparison]
Key = tuple[object, ...]


def key(job: Job) -> Key:
    """What a row is, whatever its id."""
    return (*_but_size(job), job.precision, job.batch_size)


def _but_size(job: Job) -> Key:
    return (
        job.model,
        job.system,
        job.device,
        job.nnodes,
        job.nproc_per_node,
        job.servers,
        job.ps_mode,
        job.bandwidth,
        job.latency,
        job.input,
    )


def changes(a: Sessions, b: Sessions, share: float) -> Changes:
    """See `verdicts` for how rows are judged. share: P, between 0 and 1."""
    turns = len(a) == len(b) == 1 and bool(a[0].spec.get("turns")) and a[0].spec["turns"] == b[0].spec.get("turns")
    early = _early([*a, *b])
    ours, theirs = _halves(a, early), _halves(b, early)
    whole = tuple(_differ(_of_whole(a), _of_whole(b)))
    alike = all(fact.what in (LOAD, VERSION) for fact in whole)
    found = [_matched(ours.get(one), theirs.get(one)) for one in dict.fromkeys([*ours, *theirs])]
    able = [number for number, (row, _) in enumerate(found) if not row.word]
    unchanged = [alike and not found[number][0].facts and found[number][1] for number in able]
    rates = [(ours[key(found[number][0].job)].rates, theirs[key(found[number][0].job)].rates) for number in able]
    rows = [row for row, _ in found]
    for number, one in zip(able, verdicts(rates, unchanged, share, turns), strict=True):
        rows[number] = replace(rows[number], word=one.word, why=one.why, verdict=one)
    return Changes(tuple(_partners(rows)), whole, share, turns)


@dataclass(frozen=True)
class _Half:
    """A row on one side. rates: of each session, by block. failure: why it has no run. facts: what is known of it, by
    what it is; known: whether that is enough to say that it did not change."""

    job: Job
    rates: tuple[Mapping[int, float], ...]
    failure: str
    facts: Mapping[str, str]
    known: bool

    @property
    def rate(self) -> float | None:
        means = [mean_logarithm(rates) for rates in self.rates if rates]
        return math.exp(fmean(means)) if means else None


def _matched(a: _Half | None, b: _Half | None) -> tuple[Matched, bool]:
    """word: empty where the row is to be judged. Whether all is known that says that a row did not change."""
    rates = (a.rate if a else None, b.rate if b else None)
    if a is None or b is None:
        return Matched(a.job if a else None, b.job if b else None, rates, ONLY_A if a else ONLY_B), False
    facts = tuple(_differ(a.facts, b.facts))
    found = Matched(a.job, b.job, rates, "", facts=facts)
    lacking = [f"{side} has none: {one.failure}" for side, one in (("A", a), ("B", b)) if one.rate is None]
    if lacking:
        return replace(found, word=NO_RUN, why="; ".join(lacking)), False
    other = [fact for fact in facts if _of_work(a.job, fact)]
    if other:
        said = ", ".join(f"{fact.what} is {fact.a} in A and {fact.b} in B" for fact in other)
        return replace(found, word=OTHER_WORK, why=said), False
    return found, a.known and b.known


def _of_work(job: Job, fact: Fact) -> bool:
    """Whether a fact says how much work is done."""
    group, _, name = fact.what.partition(" ")
    if group not in ("effective", "option") or name not in judge.work_keys(job.family) or UNKNOWN in (fact.a, fact.b):
        return False
    return standings.work(name, fact.a) != standings.work(name, fact.b)


def _partners(rows: Sequence[Matched]) -> Iterator[Matched]:
    """Rows that one side alone has, together with one of the other side that differs in batch or precision alone."""
    alone = {id(row): row for row in rows if row.word in (ONLY_A, ONLY_B)}
    for row in rows:
        if id(row) not in alone and row.word in (ONLY_A, ONLY_B):
            continue  # told with its partner
        alone.pop(id(row), None)
        others = [
            one for one in alone.values() if row.word == ONLY_A and one.word == ONLY_B and _nearly(row.job, one.job)
        ]
        if not others:
            yield row
            continue
        other = min(others, key=lambda one: one.job.precision != row.job.precision)
        del alone[id(other)]
        pair = (row.job, other.job)
        said = [
            f"{what} is {mine} in A and {theirs} in B"
            for what, mine, theirs in (
                ("batch", *(job.batch_size for job in pair)),
                ("precision", *(job.precision for job in pair)),
            )
            if mine != theirs
        ]
        yield Matched(*pair, (row.rates[0], other.rates[1]), OTHER_WORK, ", ".join(said))


def _nearly(one: Job, other: Job) -> bool:
    return _but_size(one) == _but_size(other)


def _early(sessions: Sessions) -> dict[Key, int]:
    """Windows that are left out of each row's runs: where the warm-up was not over on one side, of both."""
    found: dict[Key, int] = {}
    for one in sessions:
        for table in steady.found(one):
            for job in table.jobs:
                found[key(job)] = max(table.windows, found.get(key(job), 0))
    return found


def _halves(sessions: Sessions, early: Mapping[Key, int]) -> dict[Key, _Half]:
    rows: dict[Key, list[tuple[Comparison, Job | None]]] = {}
    for number, one in enumerate(sessions):
        for job in one.jobs:
            there = rows.setdefault(key(job), [(other, None) for other in sessions])
            there[number] = (one, job)
    return {which: _half(row, early.get(which, 0)) for which, row in rows.items()}


def _half(row: Sequence[tuple[Comparison, Job | None]], early: int) -> _Half:
    job = next(job for _, job in row if job)
    runs = [one.runs.get(job.id, ()) if job else () for one, job in row]
    done = [[record for record in session if record.done] for session in runs]
    rates = tuple(rates_of(summarize(job, [_late(record, early) for record in session])) for session in done)
    failed = [record.failure for session in runs for record in session if record.failure]
    failure = f"{failed[-1].kind}: {failed[-1].message}" if failed else "it was not run"
    all_done = [record for session in done for record in session]
    facts = {
        **_together([_of_run(record) for record in all_done]),
        "not comparable": _either(_obstacle(one, job) for one, job in row if job),
    }
    known = job.traits.worker and all(record.code and record.environment.get("digest") for record in all_done)
    return _Half(job, rates, failure, facts, known)


def _late(record: Record, early: int) -> Record:
    return replace(record, windows=record.windows[early:]) if early < len(record.windows) else record


def _obstacle(comparison: Comparison, job: Job) -> str:
    return standings.obstacles(comparison).get(job.id, UNKNOWN)


def _of_run(record: Record) -> dict[str, str]:
    """What is known of how a row was run."""
    job = record.job
    named = {"launcher": job.launcher, "format": job.format, "code": record.code[:DIGITS], "image": job.image}
    environment = {
        f"environment {name}": value[:DIGITS] if name == "digest" else value
        for name, value in record.environment.items()
    }
    groups = {
        "version": record.versions,
        "effective": record.effective,
        "option": job.options,
        "variable": dict(VARIABLE.findall(record.command)),
    }
    grouped = {f"{group} {name}": value for group, values in groups.items() for name, value in values.items()}
    return {name: value for name, value in {**named, **environment, **grouped}.items() if value}


def _of_whole(sessions: Sessions) -> dict[str, str]:
    return _together([_of_session(one) for one in sessions])


def _of_session(one: Comparison) -> dict[str, str]:
    machine, protocol = one.machine, one.spec.get("protocol") or {}
    found = {f"machine {name}": _text(machine[name]) for name in MACHINE if name in machine}
    gpus = [f"{card.get('name')} ({card.get('compute_capability', UNKNOWN)})" for card in machine.get("gpus", ())]
    found |= {"machine gpus": _text(gpus)} if gpus else {}
    found |= {f"protocol {name}": _text(value) for name, value in protocol.items() if name not in ("name", "repeats")}
    found |= {name: _text(one.spec[name]) for name in ("threads", "seed") if name in one.spec}
    loads = machine.get("load_average") or []
    return {**found, VERSION: one.version, **({LOAD: f"{loads[0]:g}"} if loads else {})}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _together(several: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Of several runs or sessions all values of each."""
    names = dict.fromkeys(name for one in several for name in one)
    return {name: _either(one.get(name, UNKNOWN) for one in several) for name in names}


def _either(values: Iterable[str]) -> str:
    return OR.join(dict.fromkeys(values))


def _differ(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Fact]:
    for name in dict.fromkeys([*a, *b]):
        if a.get(name, UNKNOWN) != b.get(name, UNKNOWN):
            yield Fact(name, a.get(name, UNKNOWN), b.get(name, UNKNOWN))
