"""One model at one precision on one kind of device: summary, table, chart and what really ran. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from dlperf.figures import ranking, statistics, summaries
from dlperf.figures import standings as standings_
from dlperf.figures.standings import Standing
from dlperf.figures.summaries import Summary
from dlperf.report import bars, effective, finding, inputs, names, overview, power, servers, speeds, stages, text
from dlperf.report.links import links
from dlperf.report.others import others
from dlperf.report.pivot import pivot
from dlperf.report.scaling import scaling
from dlperf.report.shape import Column, Row, Section, Table
from dlperf.schema import Comparison, Failure, Job, Skip, Work


def section(
    summaries: list[Summary], skips: list[Skip], repeats: int, comparison: Comparison, obstacles: Mapping[str, str]
) -> Section:
    """obstacles: why a row is not comparable, by Job.id, see standings.obstacles."""
    first = names.rows((summary.job for summary in summaries), skips)[0]
    every, apart = summaries, tuple(others(summaries, skips, repeats))
    summaries = [summary for summary in summaries if summary.job.traits.ranked]
    skips = [skip for skip in skips if skip.traits.ranked]
    groups = _sized(summaries)
    shown = groups or _sized(every)
    level = ranking.level(comparison.spec)
    standings = [standings_.standings(group, obstacles, level) for group in groups]
    devices = tuple(comparison.spec.get("predict") or ())
    of_device = speeds.columns(comparison, first.device, first.family)
    proofs = {s.job.id: standings_.proof(comparison, s.job) for s in summaries}
    same, work, how = effective.tables(summaries)
    table = _throughput(groups, standings, skips, repeats, proofs, of_device) if summaries or skips else None
    noted = {row.label: row.note for row in table.rows} if table else {}
    named = apart if groups or len(shown) == 1 else ()
    return Section(
        model=first.model,
        anchor=names.anchor(first),
        title=names.section(first),
        about=tuple(_model_facts(first, summaries)),
        summary=" ".join(
            filter(None, [finding.summary(standings, groups, skips, apart, level), *(one.sentence for one in named)])
        ),
        rates=overview.rates(names.section(first), standings),
        throughput=table,
        power=tuple(_power(groups, standings, level)),
        others=apart,
        chart=bars.chart(names.section(first), names.anchor(first), standings, shown, skips),
        why=_why(standings),
        scaling=scaling(every, f"charts/{names.anchor(first)}", names.section(first), devices, obstacles),
        links=links(every, f"charts/{names.anchor(first)}", names.section(first), obstacles),
        input=inputs.table(summaries),
        input_about=inputs.about(summaries),
        stages=stages.table(summaries),
        stages_about=stages.ABOUT,
        servers=servers.table(summaries),
        servers_about=servers.ABOUT,
        work=work,
        how=how,
        same=same,
        pivot=pivot(shown, standings, skips, noted),
    )


def _sized(summaries: Iterable[Summary]) -> list[list[Summary]]:
    """Rows that may be compared with each other."""
    by_work: dict[Work, list[Summary]] = {}
    for summary in summaries:
        by_work.setdefault(summary.job.work, []).append(summary)
    return [by_work[key] for key in sorted(by_work)]


def _power(groups: list[list[Summary]], standings: list[list[Standing]], level: float) -> Iterable[str]:
    for group, ranked in zip(groups, standings, strict=True):
        size = f"{text.capital(names.size(group[0].job))}: " if len(groups) > 1 else ""
        yield from (size + sentence for sentence in power.sentences(ranked, level))


def _why(standings: list[list[Standing]]) -> str:
    """Of the first table, DIR being the report's folder."""
    rows = [one.summary.job for one in standings[0] if not one.obstacle] if standings else []
    if len(rows) < 2 or rows[0].world_size > 1 or rows[0].device != "cpu":
        return ""
    return f"python -m dlperf.why DIR/runs/{rows[0].id} DIR/runs/{rows[-1].id}"


def _model_facts(row: Job | Skip, summaries: list[Summary]) -> list[str]:
    facts = [names.precision(row)]
    counts = {record.parameter_count for summary in summaries for record in summary.done} - {None}
    work = names.flops(row.model)
    if counts:
        facts.append(f"{text.listing(f'{count:,}' for count in sorted(counts, key=str))} trained parameters.")
    if work:
        gigaflops = text.column([work / 1e9])[0]
        facts.append(f"One {names.sample(row.family)} takes {gigaflops} GFLOP, forward and backward.")
    inputs = text.listing(summary.job.input for summary in summaries) if summaries else ""
    return [*facts, f"Input: {inputs}."] if inputs else facts


# The throughput table


def _throughput(
    groups: list[list[Summary]],
    standings: list[list[Standing]],
    skips: list[Skip],
    repeats: int,
    proofs: Mapping[str, str],
    of_device: speeds.Columns,
) -> Table:
    on_device = any(summary.peak_device_memory_bytes is not None for group in groups for summary in group)
    several = len(groups) > 1
    family = names.rows((summary.job for group in groups for summary in group), skips)[0].family
    places = finding.decimals(standing for ranked in standings for standing in ranked)
    per_sample = _per_sample(standings)
    apart = names.apart(summary.job for group in groups for summary in group)
    columns = tuple(_columns(family, apart, on_device, of_device[0]))
    rows: list[Row] = []
    for ranked, group in zip(standings, groups, strict=True):
        for s in ranked:
            more = of_device[1](s.summary)
            row = _figures(s, places, per_sample[s.summary.job.id], apart, on_device, several, repeats, more)
            rows.append(replace(row, cells=(*row.cells, _proof(s, proofs[s.summary.job.id]))))
        rows += [_unfinished(summary, len(columns), apart, several, repeats) for summary in group if not summary.done]
    rows += [_skipped(skip, len(columns), apart) for skip in skips]
    return Table(columns, tuple(rows), noted=any(row.note for row in rows))


def _proof(standing: Standing, phrase: str) -> str:
    """A cell: the proof; or of what stands in the way the first words, since the note has it all."""
    return f"not comparable: {standing.obstacle.partition(':')[0]}" if standing.obstacle else phrase


def _columns(family: str, apart: Sequence[str], on_device: bool, of_device: tuple[str, ...]) -> list[Column]:
    device_memory = ["peak device memory (GiB)"] if on_device else []
    numeric = [
        *("nodes", "devices", *apart, "batch per device", "global batch", "n"),
        *(f"median ({names.rate_unit(family)})", "95 % interval", "relative to fastest", "95 % interval", "rank"),
        *of_device,
        *("peak memory (GiB)", *device_memory, "CPU cores busy", f"CPU (s per {names.sample(family)})"),
        "first step (s)",
    ]
    return [Column("system"), *(Column(title, numeric=True) for title in numeric), Column("proof", whole=True)]


def _per_sample(standings: list[list[Standing]]) -> dict[str, str]:
    """CPU seconds per sample by job, with points that line up."""
    summaries = [standing.summary for ranked in standings for standing in ranked]
    cells = text.column([summary.cpu_seconds_per_sample for summary in summaries])
    return {summary.job.id: cell for summary, cell in zip(summaries, cells, strict=True)}


def _sizes(job: Job, apart: Sequence[str]) -> list[str]:
    return [
        f"{job.nnodes:,}",
        f"{job.world_size:,}",
        *names.told(job, apart),
        f"{job.batch_size:,}",
        f"{job.global_batch_size:,}",
    ]


def _figures(
    standing: Standing,
    places: int,
    per_sample: str,
    apart: Sequence[str],
    on_device: bool,
    several: bool,
    repeats: int,
    gpu: tuple[str, ...],
) -> Row:
    summary = standing.summary
    estimate = summary.throughput
    assert estimate is not None
    cells = (
        names.system(summary.job),
        *_sizes(summary.job, apart),
        str(estimate.n),
        *(text.number(estimate.centre, places), text.interval(estimate, places)),
        *beside_fastest(standing),
        ranks(standing),
        *gpu,
        text.gibibytes(summary.peak_memory_bytes),
        *([text.gibibytes(summary.peak_device_memory_bytes)] if on_device else []),
        *(text.number(summary.cpu_use, 2), per_sample, text.number(summary.first_step_seconds, 2)),
    )
    note = "; ".join(_notes(standing, repeats, places))
    link = names.command(summary.job) if any(record.command for record in summary.done) else ""
    return Row(cells, finding.kind(standing), names.row(summary.job, several), note, link=link)


def beside_fastest(standing: Standing) -> tuple[str, str]:
    if standing.relative is None:
        return text.NONE if standing.obstacle else "1", text.NONE
    return text.number(standing.relative.centre, 3), text.interval(standing.relative, 3)


def ranks(standing: Standing) -> str:
    """`1–3`: all that the runs leave open."""
    return "–".join(map(str, dict.fromkeys(standing.ranks))) if standing.ranks else text.NONE


def _notes(standing: Standing, repeats: int, places: int) -> list[str]:
    summary = standing.summary
    notes = [finding.TIE] if finding.kind(standing) == "tie" else []
    notes += [f"not comparable: {text.line(standing.obstacle, 1000)}"] if standing.obstacle else []
    if len(summary.done) == 1:
        notes.append("one run: no interval")
    speeds = statistics.two_speeds(list(summaries.rates_of(summary).values()))
    if speeds:
        near = (f"{len(group)} near {text.number(median(group), places)}" for group in speeds)
        notes.append(f"its runs have two speeds ({' and '.join(near)}), so that the median says little")
    if summary.failed:
        notes.append(f"{len(summary.failed)} of {text.count(repeats, 'run')} failed: {finding.failures(summary)}")
    return [*notes, *_left(summary, repeats)]


def _left(summary: Summary, repeats: int) -> list[str]:
    """How its batch size was found, what is still to come, and what nobody vouches for."""
    left = summaries.missing_runs(summary, repeats)
    to_come = [f"{text.count(left, 'run')} not made yet"] if left else []
    found = [summary.job.about["found"]] if "found" in summary.job.about else []
    return [*found, *to_come, *(["untested combination"] if summary.job.untested else [])]


def _unfinished(summary: Summary, columns: int, apart: Sequence[str], several: bool, repeats: int) -> Row:
    """A row without a figure: none of its runs succeeded."""
    job = summary.job
    reasons = text.listing(_reason(record.failure) for record in summary.failed if record.failure)
    failures = [f"{len(summary.failed)} of {text.count(repeats, 'run')} failed: {reasons}"] if summary.failed else []
    if len(summary.failed) < repeats and summaries.given_up(summary.failed):
        failures.append("the others were not tried")
    note = "; ".join([*failures, *_left(summary, repeats)])
    short = "failed" if summary.failed else "not run yet"
    return _missing((names.system(job), *_sizes(job, apart)), short, columns, names.row(job, several), note or short)


def _reason(failure: Failure) -> str:
    message = text.line(failure.message).rstrip(".")
    return f"{names.status(failure.kind)} ({message})" if message else names.status(failure.kind)


def _skipped(skip: Skip, columns: int, apart: Sequence[str]) -> Row:
    name, short = names.system(skip), names.status_short(skip.status)
    note = f"{names.status(skip.status)}: {text.line(skip.why).rstrip('.')}"
    return _missing((name, *(text.NONE,) * (4 + len(apart))), short, columns, name, note)


def _missing(head: tuple[str, ...], short: str, columns: int, label: str, note: str) -> Row:
    """`short` stands where the rate would: after the sizes and n."""
    cells = (*head, text.NONE, short)
    rest = columns - len(cells)
    span = columns - len(head) + 1  # the cells after the sizes, and the note's
    return Row((*cells, *(text.NONE,) * rest), "missing", label, note, first=len(head), span=span)
