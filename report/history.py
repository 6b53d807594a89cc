"""What many reports measured, a figure at a time, and what others published before. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from dlperf.figures import standings
from dlperf.figures.dlperf2020 import DEVICES_OF_NODE, GPU, MONTH, Published, job
from dlperf.figures.statistics import Estimate
from dlperf.figures.summaries import Summary, summarized
from dlperf.report import names, text
from dlperf.schema import Comparison, Job, Work

#: of DLPerf's tables
MACHINE = f"{GPU}, {DEVICES_OF_NODE} in a node"
#: characters of a text from a report that a cell has room for
ROOM = 200


@dataclass(frozen=True)
class Archive:
    """Of a report. file: its name, empty where there is none. problem: why it does not verify; empty if it does."""

    file: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Source:
    """A published report. name: of its folder. page: what a figure leads to, in it: report.html where it has one.
    unmet: conditions of publishing that it does not meet, in words."""

    name: str
    comparison: Comparison
    archive: Archive
    page: str
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A row's rate in one report.

    topic: model, precision and device. framework: the adapter's name; title: its own; system: with what sets it apart.
    moment: when the comparison began, in UTC as ISO 8601 has it; empty where that is not known. date: for a reader.
    proof: a phrase; comparable: whether the row may be ranked. source, summary: None of what DLPerf published.
    """

    topic: str
    unit: str
    machine: str
    size: str
    work: Work
    framework: str
    title: str
    system: str
    version: str
    moment: str
    date: str
    estimate: Estimate
    proof: str
    comparable: bool
    anchor: str
    source: Source | None = None
    summary: Summary | None = None


def entries(source: Source) -> Iterator[Entry]:
    """One for each row that has a figure."""
    comparison = source.comparison
    obstacles = standings.obstacles(comparison)
    for summary in summarized(comparison).values():
        job, obstacle = summary.job, obstacles.get(summary.job.id, "")
        if summary.throughput is None:
            continue
        proof = f"not comparable: {obstacle}" if obstacle else standings.proof(comparison, summary.job)
        yield _entry(
            job,
            summary.throughput,
            machine=_machine(comparison, summary),
            version=text.alternatives(next(iter(run.versions.values()), text.NONE) for run in summary.done),
            moment=moment(comparison.created),
            date=date(comparison.created),
            proof=proof if job.traits.ranked else f"{job.traits.called}, not ranked",
            comparable=job.traits.ranked and not obstacle,
            source=source,
            summary=summary,
        )


def of_2020(published: Published) -> Iterator[Entry]:
    """One for each number of devices."""
    for devices, rate in published.rates.items():
        yield _entry(
            job(published, devices),
            Estimate(rate, None, None, 0),
            machine=MACHINE,
            version=text.NONE,
            moment="",
            date=MONTH,
            proof=text.NONE,
            comparable=False,
        )


def _entry(
    job: Job,
    estimate: Estimate,
    *,
    machine: str,
    version: str,
    moment: str,
    date: str,
    proof: str,
    comparable: bool,
    source: Source | None = None,
    summary: Summary | None = None,
) -> Entry:
    return Entry(
        topic=text.line(names.section(job), ROOM),
        unit=names.rate_unit(job.family),
        machine=text.line(machine, ROOM),
        size=names.size(job) + (", input from files" if job.work[-1] == "files" else ""),
        work=job.work,
        framework=text.line(job.adapter, ROOM),
        title=text.line(job.title, ROOM),
        system=text.line(names.system(job), ROOM),
        version=text.line(version, ROOM),
        moment=moment,
        date=date,
        estimate=estimate,
        proof=text.line(proof, ROOM),
        comparable=comparable,
        anchor=names.anchor(job),
        source=source,
        summary=summary,
    )


def _machine(comparison: Comparison, summary: Summary) -> str:
    """What a rate is of: the GPUs, or the model and the cores of the CPU."""
    described = comparison.machine
    emulated = [cpu for run in summary.done if (cpu := run.environment.get("emulated_cpu"))]
    if not summary.job.traits.run:
        return "machines of others"
    if summary.job.device != "cpu":
        return text.times([str(gpu.get("name")) for gpu in described.get("gpus", ())]) or "an unknown GPU"
    if emulated:
        return f"{emulated[0]}, emulated: the speed of no machine"
    usable, threads = described.get("usable_threads"), described.get("threads")
    parts = [str(described.get("cpu", "an unknown processor"))]
    parts += [text.count(described["cores"], "core")] if "cores" in described else []
    parts += [f"{text.count(usable, 'thread')} usable"] if usable and usable != threads else []
    parts += [f"quota of {text.count(described['cpu_quota'], 'core')}"] if "cpu_quota" in described else []
    return ", ".join(parts)


def moment(created: str) -> str:
    """In UTC; a time that names no zone is taken for one in UTC."""
    try:
        found = datetime.fromisoformat(created)
        return f"{(found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError):
        return ""


def date(created: str) -> str:
    """In UTC; a text that is no time as it is."""
    return moment(created)[:10] or text.line(created, ROOM) or "no date"
