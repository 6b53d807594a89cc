"""The conditions of publishing a comparison, each judged as the report's caveats and rankings judge it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dlperf.figures import standings, summaries
from dlperf.report import caveats, names, sampled, text
from dlperf.report.protocol import repeats
from dlperf.revision import CHANGED
from dlperf.schema import Comparison

#: runs of a ranked row, at least
LEAST = 3
#: what a report that was published anyway says of each that is not met
CONDITIONS = {
    "protocol": "few steps were timed, and few runs made",
    "runs": f"a ranked row has fewer than {LEAST} runs",
    "load": "the machine was busy when it began",
    "contention": "others took time from its runs",
    "proof": "a row is not proven to do the same work",
    "failures": "a row lacks runs and nothing says why",
    "commit": "no commit of dlperf says what made it",
    "records": "its records were changed by hand",
}


class Unmet(NamedTuple):
    """condition: a key of CONDITIONS. says: where it is not met, and what to do."""

    condition: str
    says: str


def unmet(comparison: Comparison, changed: Sequence[str] = ()) -> list[Unmet]:
    """The conditions that a comparison does not meet. changed: what `store.read` says of its folder."""
    done = [record for record in comparison.records if record.done]
    found: dict[str, Iterable[str]] = {
        "protocol": caveats.quick(comparison),
        "runs": _runs(comparison),
        "load": (f"{one} Measure again when it is idle." for one in caveats.busy(comparison)),
        "contention": (
            f"{one} Measure again when nothing else runs."
            for one in (*sampled.taken_from_rows(done), *sampled.shared(done))
        ),
        "proof": _proof(comparison),
        "failures": _failures(comparison),
        "commit": _commit(comparison.revision),
        "records": (f"{one.rstrip('.')}. Measure again." for one in (*comparison.caveats, *changed)),
    }
    return [Unmet(condition, text.line(says, 1000)) for condition, told in found.items() for says in told]


def told(conditions: Iterable[str]) -> tuple[str, ...]:
    """What a report says of those that are not met, as Comparison.unmet has it."""
    return tuple(CONDITIONS[one] for one in dict.fromkeys(conditions))


def of_published(comparison: Comparison) -> tuple[str, ...]:
    """The same of a published report: those that it was published without, and those that it does not meet. None of a
    report without rows of our own."""
    if not any(job.traits.worker for job in comparison.jobs):
        return ()
    return tuple(dict.fromkeys((*comparison.unmet, *told(one.condition for one in unmet(comparison)))))


def _runs(comparison: Comparison) -> Iterator[str]:
    barred = standings.obstacles(comparison)
    for summary in summaries.summarized(comparison).values():
        job, made = summary.job, len(summary.done)
        if job.traits.ranked and 0 < made < LEAST and job.id not in barred:
            step = f"Make {LEAST} or more: with --repeats, or where some failed with --resume RUN --retry-failed"
            yield f"{names.titled(job)}: {text.count(made, 'run')}. {step}."


def _proof(comparison: Comparison) -> Iterator[str]:
    barred, found = standings.obstacles(comparison), summaries.summarized(comparison)
    for job in comparison.jobs:
        if job.id in barred and found[job.id].done:
            step = "See its certificate in the report; --resume RUN makes one that is missing"
            yield f"{names.titled(job)}: {barred[job.id]}. {step}."


def _failures(comparison: Comparison) -> Iterator[str]:
    """Rows without figures and without a reason, and rows whose runs are still to be made."""
    asked = repeats(comparison)
    for summary in summaries.summarized(comparison).values():
        row, missing = names.titled(summary.job), summaries.missing_runs(summary, asked)
        if missing:
            yield f"{row}: {text.count(missing, 'run')} of {asked} were not made. Make them with --resume RUN."
        silent = [record for record in summary.failed if record.failure and not record.failure.message.strip()]
        if silent:
            where = text.listing(record.folder or "no folder" for record in silent)
            yield f"{row}: nothing says why it failed ({where}). Run it again with --resume RUN --retry-failed."


def _commit(revision: str) -> Iterator[str]:
    if not revision:
        yield "It does not say which dlperf made it: one from before that was noted. Measure again."
    elif CHANGED in revision:
        yield f"It was made by dlperf {revision}. Commit them, and measure again."
