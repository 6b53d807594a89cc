"""The rows of a table in order, and why some have no rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dlperf.figures import peaks, ranking, statistics
from dlperf.figures.once import once
from dlperf.figures.rates import throughput, units
from dlperf.figures.statistics import Estimate
from dlperf.figures.summaries import Summary, rates_of
from dlperf.proof import judge, peers
from dlperf.schema import Comparison, Job, Record


@dataclass(frozen=True)
class Standing:
    """A row beside the fastest of its group. `relative` is its rate over the fastest's; None for the fastest itself,
    and for a row that is not comparable: `obstacle` says why. ranks: the first and the last that it may have, see
    `ranking.ranks`; None where one run or an obstacle leaves it unknown."""

    summary: Summary
    relative: Estimate | None
    obstacle: str = ""
    ranks: tuple[int, int] | None = None

    @property
    def may_be_fastest(self) -> bool:
        return self.ranks is not None and self.ranks[0] == 1


def standings(
    summaries: Iterable[Summary], obstacles: Mapping[str, str], level: float = ranking.LEVEL
) -> list[Standing]:
    """Rows that have a figure, fastest first, those that are not comparable after the others.

    All have the same model, precision, sizes and input. obstacles: why a row is not comparable, by Job.id. level: see
    `ranking.told_apart`.
    """
    done = [(summary, statistics.mean_logarithm(rates_of(summary))) for summary in summaries if summary.done]
    ranked = [summary for summary, _ in sorted(done, key=lambda pair: -pair[1])]
    able = [summary for summary in ranked if summary.job.id not in obstacles]
    aside = [Standing(other, None, obstacles[other.job.id]) for other in ranked if other.job.id in obstacles]
    if not able:
        return aside
    rates = [rates_of(summary) for summary in able]
    relative = [None, *(statistics.ratio(mine, rates[0]) for mine in rates[1:])]
    rows = zip(able, relative, ranking.ranks(rates, level), strict=True)
    return [Standing(summary, beside, "", ranks) for summary, beside, ranks in rows] + aside


def proof(comparison: Comparison, job: Job) -> str:
    """Of a row, for a cell: `same work: 3e-13 (fp64)`."""
    measured = next((record.effective for record in comparison.runs.get(job.id, ()) if record.done), {})
    return judge.verdict(comparison.proofs.get(job.id, ()), measured)[1]


@once
def obstacles(comparison: Comparison) -> dict[str, str]:
    """Why a row takes no part in "fastest", by Job.id: no proof of the same work, work that differs in a proof or in a
    measured run, or a rate that its device cannot reach.

    Rows of a kind that is never ranked are not here.
    """
    found = dict(_other_work(comparison))
    for job in comparison.jobs:
        if not job.traits.ranked:
            continue
        verdict, phrase = judge.verdict(comparison.proofs.get(job.id, ()))
        if verdict != "same":
            found[job.id] = phrase
    ceilings = peaks.ceilings(comparison)
    for record in comparison.records:
        if not (record.done and record.job.traits.ranked):
            continue
        rate = throughput(record) / units(record.job, [record])
        why = peaks.impossible(record.job, rate, comparison.machine, ceilings)
        if why:
            found[record.job.id] = why
        if record.work.get("verdict") == "different" and record.job.id not in found:
            found[record.job.id] = f"different work: as measured, in run {record.repeat + 1} {record.work['why']}"
    for row, why in peers.odd(comparison):
        found.setdefault(row, f"different work: as measured, {why}")
    return found


def _other_work(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Rows whose runs say that they did other work than most rows of the same model, precision and device."""
    groups: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in comparison.records:
        if record.done and record.job.traits.ranked:
            job = record.job
            group = (job.family, job.model, job.precision_asked, job.device, job.compression)
            groups.setdefault(group, {})[record.job.id] = record
    for (family, *_), records in groups.items():
        for key in judge.work_keys(family):
            values = {
                id_: work(key, record.effective[key]) for id_, record in records.items() if key in record.effective
            }
            ranked = Counter(values.values()).most_common(2)
            most = ranked[0][0] if ranked and (len(ranked) == 1 or ranked[0][1] > ranked[1][1]) else None
            yield from ((id_, _other(key, value, most)) for id_, value in values.items() if value != most)


def work(key: str, value: str) -> str:
    """What of an effective value says how much work is done: of a loss scale, that it is dynamic."""
    return value.partition(" ")[0].rstrip(",") if key == "loss_scale" else value


def _other(key: str, value: str, most: str | None) -> str:
    return f"different work: {key} is {value}" + (
        f", not {most}" if most is not None else ", and not the same in others"
    )
