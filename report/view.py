"""Comparison -> what the templates print: plain strings and lists, every number already formatted. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from dlperf.figures import rates, standings, until
from dlperf.figures import summaries as summaries_
from dlperf.figures.summaries import Summary
from dlperf.report import names, overview, proofs, protocol, speeds, text
from dlperf.report.audits import audits
from dlperf.report.caveats import caveats, disturbed
from dlperf.report.section import section
from dlperf.report.shape import Column, Excerpt, Report, Row, Table
from dlperf.schema import Comparison, Job, Record, Skip

#: DIR is the folder of the report
RESUME = "python -m dlperf.compare --resume DIR"

#: columns of the tables of the machine and of systems
MACHINE = ("property", "value")
SYSTEMS = ("system", "versions", "Python", "environment", "source", "features")

Part = TypeVar("Part")


def view(comparison: Comparison) -> Report:
    """All that the templates need. A part that cannot be made is a caveat, and the others are there."""
    obstacles = standings.obstacles(comparison)
    found = summaries_.summarized(comparison)
    finished = _finished(comparison, found)
    parts = _Parts()
    common = (protocol.repeats(comparison), comparison, obstacles)
    sections = [
        parts(f"The section {_section(*group)}", lambda *given: [section(*given)], *group, *common)
        for group in _groups(comparison, found)
    ]
    proven = parts("The proof of the same work", proofs.proofs, comparison)
    warned = parts("The list of caveats", caveats, comparison)
    happened = parts("What happened while rows were measured", disturbed, comparison)
    failures = parts("The list of failures", _failures, comparison)
    audited = parts("The audit", audits, comparison)
    made = tuple(overview.answered(one) for several in sections for one in several)
    commands, table = tuple(_commands(comparison, found)), overview.overview(made)
    return Report(
        title=title(comparison),
        about=about(comparison),
        progress=_progress(comparison, finished),
        resume="" if finished else RESUME,
        unmet=f"Published although {text.listing(text.line(one) for one in comparison.unmet)}."
        if comparison.unmet
        else "",
        sections=made,
        caveats=(*parts.broken, *warned),
        disturbed=(*parts.broken, *happened),
        machine=machine(comparison),
        topo=str(comparison.machine.get("topo", "")).strip("\n"),
        systems=systems(comparison),
        failures=failures,
        protocol=tuple(protocol.sentences(comparison)),
        environment_commands=tuple(
            Excerpt(name, "", command.rstrip("\n"), anchor=_environment_anchor(name))
            for name, command in comparison.commands.items()
        ),
        commands=commands,
        proofs=proven,
        proof_about=proofs.ABOUT if proven else (),
        audits=audited,
        overview=table,
        pages=overview.pages(made, proven, commands) if table else (),
    )


class _Parts:
    """Makes parts of the report. broken: a sentence for each that could not be made."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def __call__(self, what: str, make: Callable[..., Iterable[Part]], *given: Any) -> tuple[Part, ...]:
        try:
            return tuple(make(*given))
        except Exception as error:  # a mistake of ours, or figures that nobody thought of
            why = text.line(f"{type(error).__name__}: {error}", 300)
            self.broken.append(f"{what} could not be made ({why}); what it is made of is in results.json.")
            return ()


# The head of the report


def title(comparison: Comparison) -> str:
    rows = names.rows(comparison.jobs, comparison.skips)
    if not rows:
        return "Comparison of deep-learning frameworks"
    found = text.listing(names.model(row.model) for row in rows)
    devices = text.listing(names.device(row.device) for row in rows)
    return f"Training throughput on {devices}: {found}"


def about(comparison: Comparison) -> str:
    machine = comparison.machine
    gpus = [str(gpu.get("name")) for gpu in machine.get("gpus", ())]
    parts = [
        str(machine.get("cpu", "an unknown processor")),
        text.count(machine["usable_threads"], "usable thread") if "usable_threads" in machine else "",
        f"{text.gibibytes(machine['memory_bytes'], 1)} GiB of memory" if "memory_bytes" in machine else "",
        text.times(gpus) if gpus else "no GPU",
    ]
    place = ", ".join(part for part in parts if part)
    made = f" ({comparison.revision})" if comparison.revision else ""
    if not _made(comparison):
        of = f"Figures of others, of {_moment(comparison.created)}"
        return f"{of}, put together by dlperf {comparison.version}{made}, which measured none of them."
    return (
        f"Measured with dlperf {comparison.version}{made} on {_moment(comparison.created)}, on this machine: {place}."
    )


def _made(comparison: Comparison) -> bool:
    """Whether any of its rows was to be run, or it has none: others are figures that are known already."""
    return any(job.traits.run for job in comparison.jobs) or not comparison.jobs


def _moment(created: str) -> str:
    """`2026-11-20 10:00 UTC`."""
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return created


def _progress(comparison: Comparison, finished: bool) -> str:
    """How many of the planned runs are there."""
    records = comparison.records
    if not _made(comparison):
        return ""
    failed = sum(not record.done for record in records)
    done = f"{text.count(len(records) - failed, 'run')} succeeded" + (f", {failed} failed" if failed else "")
    if not finished:
        planned = text.count(comparison.planned, "planned run")
        return f"This comparison is not finished: {len(records)} of {planned} took place; {done}."
    left = comparison.planned - len(records) if not until.stopped(comparison) else 0
    tail = f"; {text.count(left, 'run')} of rows that only failed were not tried" if left > 0 else ""
    return f"{done}{tail}." if records else "Nothing was run."


def _finished(comparison: Comparison, found: Mapping[str, Summary]) -> bool:
    asked = protocol.repeats(comparison)
    return not any(summaries_.missing_runs(summary, asked) for summary in found.values())


# One section per model, precision and device


def _groups(comparison: Comparison, found: Mapping[str, Summary]) -> list[tuple[list[Summary], list[Skip]]]:
    """Rows by model, precision and device, in the order in which they were asked for."""
    groups: dict[tuple[str, ...], tuple[list[Summary], list[Skip]]] = {}
    for row in names.rows(comparison.jobs, comparison.skips):
        key = (row.model, row.precision_asked, row.precision, row.device)
        summaries, skips = groups.setdefault(key, ([], []))
        if isinstance(row, Job):
            summaries.append(found[row.id])
        elif row not in skips:
            skips.append(row)
    return list(groups.values())


def _section(summaries: Sequence[Summary], skips: Sequence[Skip]) -> str:
    return names.section(names.rows((summary.job for summary in summaries), skips)[0])


# Machine and systems


def machine(comparison: Comparison) -> Table:
    nodes = *_nodes(comparison.machine), ("runs on", _hosts(comparison))
    told = (*_machine_rows(comparison.machine), *nodes, *speeds.measured(comparison))
    rows = [(title, value) for title, value in told if value]
    rows = rows or [("machine", "not described")]
    return Table(tuple(map(Column, MACHINE)), tuple(Row((title, text.line(value, 400))) for title, value in rows))


def _machine_rows(machine: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    get = machine.get
    yield "CPU", str(get("cpu", "")) + (f" ({machine['architecture']})" if get("architecture") else "")
    yield "cores", _cores(machine)
    yield "instruction sets", ", ".join(get("instruction_sets", ()))
    yield "frequency governor", get("governor", "")
    yield "memory", f"{text.gibibytes(machine['memory_bytes'], 1)} GiB" if "memory_bytes" in machine else ""
    limit = get("memory_limit_bytes")
    yield "memory limit", f"{text.gibibytes(limit, 1)} GiB (control group)" if limit else ""
    yield "GPUs", text.times([_gpu(gpu) for gpu in get("gpus", ())]) or "none"
    yield "driver", get("driver", "")
    yield "CUDA of the driver", get("cuda", "")
    yield "kernel", get("kernel", "")
    yield "OS", get("os", "")
    yield "virtual machine", get("virtual", "")
    yield "container", get("container", "")
    loads = get("load_average", ())
    yield "load average at the start", ", ".join(text.number(load, 2) for load in loads)


def _nodes(machine: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Of nodes that runs were on, each kind in a line: only what it is told by."""
    for kind in machine.get("nodes", ()):
        memory = f"{text.gibibytes(kind['memory_bytes'], 1)} GiB" if "memory_bytes" in kind else ""
        gpus, driver = text.times([_gpu(gpu) for gpu in kind.get("gpus", ())]), kind.get("driver", "")
        told = [
            kind.get("cpu", ""),
            _cores(kind),
            memory,
            gpus,
            f"driver {driver}" if driver else "",
            kind.get("kernel", ""),
        ]
        yield text.count(kind["count"], "node"), "; ".join(filter(None, told))


def _hosts(comparison: Comparison) -> str:
    """Where there are several: each, and how many runs it had a part in; results.csv has those of each run."""
    found: dict[str, int] = {}
    for record in comparison.records:
        for host in dict.fromkeys(filter(None, record.hosts)):
            found[host] = found.get(host, 0) + 1
    named = [f"{host}: {number}" for host, number in sorted(found.items())]
    return f"{', '.join(named)}; results.csv has the hosts of each run" if len(named) > 1 else ""


def _cores(machine: Mapping[str, Any]) -> str:
    counts = [
        text.count(machine[key], noun)
        for key, noun in (("sockets", "socket"), ("cores", "core"), ("threads", "thread"))
        if key in machine
    ]
    usable = [f"{machine['usable_threads']} usable"] if "usable_threads" in machine else []
    quota = [f"quota of {text.number(machine['cpu_quota'], 2)} cores"] if "cpu_quota" in machine else []
    return ", ".join([*counts, *usable, *quota])


def _gpu(gpu: Mapping[str, Any]) -> str:
    size, capability = gpu.get("memory_bytes"), gpu.get("compute_capability")
    told = [f"{text.gibibytes(size, 1)} GiB"] if size else []
    told += [f"compute capability {capability}"] if capability else []
    return str(gpu.get("name")) + (f" ({', '.join(told)})" if told else "")


def systems(comparison: Comparison) -> Table:
    """One row per system and device: what it is made of, as its runs say."""
    rows: dict[tuple[str, str], list[Job | Skip]] = {}
    for row in names.rows(comparison.jobs, comparison.skips):
        rows.setdefault((row.system, row.device), []).append(row)
    return Table(
        tuple(map(Column, SYSTEMS)),
        tuple(_system(mine, comparison) for mine in rows.values()),
    )


def _system(mine: Sequence[Job | Skip], comparison: Comparison) -> Row:
    first = mine[0]
    jobs = [row for row in mine if isinstance(row, Job)]
    runs = [record for job in jobs for record in comparison.runs.get(job.id, ())]
    cells = (
        names.system(first),
        text.alternatives(", ".join(f"{k} {v}" for k, v in run.versions.items()) for run in runs if run.versions),
        text.alternatives(run.environment["python"] for run in runs if run.environment.get("python")),
        text.alternatives(_environment(run.environment) for run in runs if run.environment),
        f"adapters/{first.adapter}",
        ", ".join([names.device(first.device), *_features(jobs)]),
    )
    return Row(tuple(text.line(cell) for cell in cells))


def _environment(environment: Mapping[str, str]) -> str:
    """`venv 3f2a9c01d4b7`: the digest's first places tell environments apart; results.json has all of it. An image goes
    with its name, and with the digest by which others can pull it, where there is one."""
    public = environment.get("image_public_digest", "")
    image = environment.get("image", "") + (f"@{public}" if public else "")
    return " ".join(part for part in (environment.get("kind", ""), image, environment.get("digest", "")[:12]) if part)


def _features(jobs: Iterable[Job]) -> list[str]:
    """Input and options; where they depend on the model, all values."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        found.setdefault("input", []).append(job.input)
        for key, value in job.options.items():
            found.setdefault(key, []).append(value)
    return [f"{key}={'/'.join(dict.fromkeys(values))}" for key, values in found.items()]


# Failures, protocol, commands


def _failures(comparison: Comparison) -> Iterable[Excerpt]:
    """One excerpt per row and reason, with the last lines of the latest of its runs."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in comparison.records:
        if record.failure:
            groups.setdefault((record.job.id, record.failure.kind, record.failure.message), []).append(record)
    for (_, kind, message), records in groups.items():
        job, failure = records[-1].job, records[-1].failure
        assert failure is not None
        yield Excerpt(
            title=f"{names.titled(job)}: {names.status(kind)}",
            about=f"{_folders(records)}: {text.line(message, 1000) or 'no message'}",
            text=text.last_lines(failure.lines),
        )


def _folders(records: Sequence[Record]) -> str:
    """Where these runs have their logs."""
    return text.listing(record.folder for record in records) or "Not started"


def _environment_anchor(name: str) -> str:
    """The anchor of an environment's command."""
    return f"environment-{text.slug(name)}"


def _commands(comparison: Comparison, found: Mapping[str, Summary]) -> Iterable[Excerpt]:
    """The script of each row; once where its runs differ in nothing but their folder and comments."""
    for job in comparison.jobs:
        shown: dict[str, list[Record]] = {}
        for record in comparison.runs.get(job.id, ()):
            if record.command:
                shown.setdefault(_essence(record), []).append(record)
        for records in shown.values():
            same = f"; of {text.count(len(records) - 1, 'more run')} but for the folder the same" if records[1:] else ""
            about = f"{records[0].folder}/launch.sh{same}."
            anchor = names.command(job) if records is next(iter(shown.values())) else ""
            name = f"{job.adapter} {job.image or job.environment}"
            environment = _environment_anchor(name) if name in comparison.commands else ""
            runs = _runs(found[job.id], {record.folder for record in records})
            yield Excerpt(
                names.titled(job), about, records[0].command.rstrip("\n"), job.model, anchor, environment, runs=runs
            )


def _runs(row: Summary, folders: Container[str]) -> Table | None:
    """Those of a row that succeeded in these folders: rate, and what it is the quotient of."""
    done = [record for record in row.done if record.folder in folders and record.windows]
    if not (done and row.throughput):
        return None
    unit, places = names.rate_unit(row.job.family), text.decimals([row.throughput])
    titles = (unit, unit.removesuffix("/s"), "seconds", "windows")
    cells = (
        (
            record.folder,
            text.number(rates.throughput(record), places),
            f"{sum(window.samples for window in record.windows):,}",
            text.number(rates.seconds(record), 3),
            str(len(record.windows)),
        )
        for record in done
    )
    return Table((Column("run"), *(Column(title, numeric=True) for title in titles)), tuple(map(Row, cells)))


def _essence(record: Record) -> str:
    """A run's script without its comments, its folder replaced."""
    script = re.sub(r"^#.*\n", "", record.command, flags=re.MULTILINE)
    return script.replace(record.folder, "FOLDER") if record.folder else script
