"""What a reader must know before trusting a figure, each sentence taken from the data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from dlperf.figures import peaks, rates, standings, steady, summaries
from dlperf.figures.steady import Unsettled
from dlperf.kind import KINDS
from dlperf.report import names, sampled, text
from dlperf.schema import Comparison, Record

#: windows of one run that differ more than this were not alike
SPREAD = 1.2
#: a product that takes longer than so many of float32 is not by kernels for this CPU: float64 takes two
SLOW_PRODUCT = 10
#: of its fastest rank's FLOP/s, what the slowest reaches on nodes that are alike
SLOW_NODE = 0.9
#: other work on the machine when the comparison started: load average for each thread
BUSY = 0.1
#: of its windows' time, what a run's reads of losses may take
READ = 0.01

#: a product's share of the fastest library's FLOP/s from which on nothing is said of it
BEHIND = 0.5


def caveats(comparison: Comparison) -> Iterator[str]:
    yield from (text.line(one, 300) for one in comparison.caveats)
    yield from _machine(comparison)
    yield from _kernels(comparison.records)
    yield from _behind(comparison.records)
    yield from _tuned(comparison)
    yield from _environments(comparison.records)
    yield from sampled.caveats(comparison.records)
    yield from _protocol(comparison)
    yield from _work(comparison)
    yield from _measured(comparison)
    yield from _runs(comparison)


def _machine(comparison: Comparison) -> Iterator[str]:
    machine = comparison.machine
    if any(job.device == "cpu" for job in comparison.jobs):
        yield "These are rates on a CPU. They do not tell which system is faster on a GPU."
    emulated = sorted(
        {one.environment["emulated_cpu"] for one in comparison.records if one.environment.get("emulated_cpu")}
    )
    if emulated:
        yield f"The CPU was emulated (qemu-user, {text.listing(emulated)}): no rate here is the speed of any machine."
    if len(machine.get("nodes", ())) > 1:
        differ = {key for one in machine["nodes"] for key in one if one.get(key) != machine["nodes"][0].get(key)}
        named = ", ".join(sorted(key.replace("_", " ") for key in differ - {"count"}))
        yield f"The nodes are of {len(machine['nodes'])} kinds, which differ in {named}: the slowest sets the pace."
    if machine.get("virtual"):
        yield "The machine is virtual: other guests of its host may have slowed some runs."
    if machine.get("cpu_quota"):
        yield f"A control group limits the processes to {text.number(machine['cpu_quota'], 2)} cores' worth of time."
    if machine.get("governor") not in (None, "performance"):
        yield f"The CPU's frequency governor is “{machine['governor']}”, not “performance”: clocks may have varied."
    yield from _slow_nodes(comparison.records)
    yield from busy(comparison)


def _slow_nodes(records: Iterable[Record]) -> Iterator[str]:
    """Those that had the slowest product of a run, one each time that it was well below the fastest."""
    found: dict[str, list[float]] = {}
    for record in records:
        rank, share = int(record.product.get("slowest_rank", 0)), record.product.get("slowest_share", 1.0)
        if record.done and share < SLOW_NODE and rank < len(record.hosts):
            found.setdefault(record.hosts[rank], []).append(share)
    for host, shares in found.items():
        yield (
            f"{text.line(host, 100)} was the slowest node of {text.count(len(shares), 'run')}: a matrix product of its "
            f"own had {100 * median(shares):.0f} % of the FLOP/s of the fastest rank's. The slowest sets the pace."
        )


def busy(comparison: Comparison) -> Iterator[str]:
    """What else the machine did when the comparison started."""
    machine = comparison.machine
    load = next(iter(machine.get("load_average", ())), 0.0)
    if load > BUSY * machine.get("usable_threads", 1):
        yield f"The machine was busy when the comparison started (load average {text.number(load, 2)})."
    if any(job.device == "cuda" for job in comparison.jobs):
        yield from _shared(machine.get("gpus", ()))


def _shared(gpus: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """GPUs on which somebody else had work."""
    for gpu in gpus:
        if gpu.get("shared_bytes"):
            yield (
                f"{gpu['name']} was in use when the comparison started: others held "
                f"{text.gibibytes(gpu['shared_bytes'], 1)} GiB of its memory. Rates may be too low, and large batches "
                "may not fit."
            )


def _kernels(records: Iterable[Record]) -> Iterator[str]:
    """Rows whose products are not those that the CPU is fast with: as their adapters say, and as the workers timed."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        row = f"{names.system(record.job)} ({record.job.precision_asked})"
        if record.done and record.kernels.get("kernels", "native") != "native":
            found.setdefault(f"{record.kernels['kernels']} kernels on this CPU: {record.kernels['why']}", {})[row] = (
                None
            )
    for what, rows in found.items():
        yield f"{text.listing(rows)}: {what}."
    slow: dict[str, list[float]] = {}
    for record in records:
        times = rates.product_slowdown(record)
        if record.done and times is not None:
            slow.setdefault(f"{names.system(record.job)} ({record.job.precision_asked})", []).append(times)
    for row, several in slow.items():
        if median(several) > SLOW_PRODUCT:
            times_ = text.number(median(several), 0)
            yield (
                f"{row}: a matrix product took {times_} times as long as NumPy's in float32, so its kernels do not fit "
                "this CPU."
            )


def _behind(records: Iterable[Record]) -> Iterator[str]:
    """Rows on a CPU whose library has slower kernels for it than another's."""
    timed: dict[tuple[str, str], list[float]] = {}
    for record in records:
        job, flops = record.job, peaks.of_product(record)
        if job.device == "cpu" and flops:
            timed.setdefault((job.precision_asked, names.system(job)), []).append(flops / 1e9)
    fastest = {row: max(several) for row, several in timed.items()}  # others may have used the machine in some runs
    for (precision, system), ours in fastest.items():
        best, theirs = max(
            ((of, one) for (asked, of), one in fastest.items() if asked == precision), key=lambda x: x[1]
        )
        if ours < BEHIND * theirs:
            yield (
                f"{system} ({precision}): a large matrix product ran at {ours:.0f} GFLOP/s, {best}'s at {theirs:.0f}. "
                "Its library has or takes slower kernels on this CPU, and its rate is theirs."
            )


def _tuned(comparison: Comparison) -> Iterator[str]:
    """Rows that are not as their framework is released."""
    found: dict[str, dict[str, None]] = {}
    for job in comparison.jobs:
        if "tuned" in job.about:
            found.setdefault(job.about["tuned"], {})[names.system(job)] = None
    for what, systems in found.items():
        yield f"Tuned, by what its framework does not document: {text.listing(systems)} ({text.line(what, 300)})."


def _environments(records: Iterable[Record]) -> Iterator[str]:
    """Those that are not what their locks say."""
    changed: dict[str, dict[str, None]] = {}
    for record in records:
        if record.environment.get("changed"):
            changed.setdefault(record.environment["changed"], {})[names.system(record.job)] = None
    for files, systems in changed.items():
        which = text.line(files, 300)
        yield f"{text.listing(systems)}: files of its environment were changed after it was made: {which}."


def quick(comparison: Comparison) -> Iterator[str]:
    """That its protocol is none to publish figures of: few steps say how a run began, and few runs how it drifted."""
    few = summaries.few(comparison)
    if few:
        yield (
            f"A run times {text.count(few[0], 'step')}, and a row has {text.count(few[1], 'run')}. Figures to publish "
            f"need {summaries.STEPS} steps or {summaries.RUNS} runs: --protocol dlperf, or --repeats {summaries.RUNS}."
        )


def _protocol(comparison: Comparison) -> Iterator[str]:
    yield from quick(comparison)
    if any(job.input == "synthetic" for job in comparison.jobs):
        yield "Synthetic input: reading and decoding data is not part of these rates."
    read = [job for job in comparison.jobs if job.input != "synthetic" and job.traits.ranked]
    if any(job.format for job in read):
        yield (
            "Input from files is not proven: each loader crops and mirrors at random. What loaders make of an image "
            "without that is compared by dlperf's own tests, not here."
        )
    if not all(job.format for job in read):
        yield (
            "Input from files is not proven: dlperf's reader gives every system the same rows, but proofs are made "
            "with synthetic ones."
        )
    few = [job for job in comparison.jobs if sum(run.done for run in comparison.runs.get(job.id, ())) == 1]
    if few:
        yield f"One run only, so no interval: {text.listing(map(names.system, few))}."


def _work(comparison: Comparison) -> Iterator[str]:
    """Rows that are not comparable, and numbers of parameters that are not alike."""
    barred = standings.obstacles(comparison)
    for kind in KINDS.values():
        theirs = text.listing(names.system(job) for job in comparison.jobs if job.traits is kind)
        if theirs and not kind.ranked:
            yield f"{kind.called}, {kind.caveat}: {theirs}."
    without = [job for job in comparison.jobs if job.id in barred]
    if without:
        rows = text.listing(f"{names.system(job)} ({names.model(job.model)}, {job.precision_asked})" for job in without)
        yield f"Not comparable, and in no ranking, because nothing proves that they did the same work: {rows}."
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in comparison.records:
        if record.done and record.job.traits.ranked:
            job = record.job
            groups.setdefault((job.model, job.precision_asked, job.device), []).append(record)
    for records in groups.values():
        job = records[0].job
        where = f"{names.model(job.model)}, {names.precision_short(job)}"
        counts = [(r, f"{r.parameter_count:,}") for r in records if r.parameter_count is not None]
        yield from _differing(where, "the number of parameters", counts)
        if names.sizes_differ(record.job for record in records):
            yield f"{where}: rows differ in size or input; each is compared only with rows of the same."


def _measured(comparison: Comparison) -> Iterator[str]:
    """What was seen of the runs whose rates are shown, beside their certificates."""
    looked = [record for record in comparison.records if record.done and record.work]
    held = [record.work["steps"] for record in looked if record.work["verdict"] == "same"]
    if held:
        steps = _span(held)
        yield (
            f"{text.count(len(held), 'measured run')} {'was' if len(held) == 1 else 'were'} held against the network "
            f"written out in NumPy, for {steps} from the first, and did the same."
        )
    audited = sum("audited" in record.work for record in looked)
    if audited:
        yield (
            f"{text.count(audited, 'run')}, one of a row and drawn when it was over, "
            f"{'was' if audited == 1 else 'were'} looked at again after the last window: its next step did what the "
            "same network does from the same weights."
        )
    revealed = [record.work["revealed"] for record in looked if "revealed" in record.work]
    if revealed:
        yield (
            f"{text.count(len(revealed), 'row')} ran once more, without dropout and from weights that make small "
            f"mistakes show, for {_span(revealed)}, and did what the same network does."
        )
    placed = sum("placed" in record.work for record in looked)
    if placed:
        yield (
            f"{text.count(placed, 'row')} ran once more, with dropout that drops nearly all, and had zeros "
            "in the gradients where the same network has them: dropout stands where it belongs."
        )
    unheld = _by_reason((record.work["why"], record) for record in looked if record.work["verdict"] == "unproven")
    for why, systems in unheld.items():
        yield f"Measured runs that were held against nothing, since {text.line(why, 300)}: {text.listing(systems)}."
    unaudited = _by_reason((record.work["unaudited"], record) for record in looked if "unaudited" in record.work)
    for why, systems in unaudited.items():
        yield f"Not looked at after the last window, since {text.line(why, 300)}: {text.listing(systems)}."
    hidden = _by_reason((record.work["unrevealed"], record) for record in looked if "unrevealed" in record.work)
    for why, systems in hidden.items():
        unseen = "Not looked at from weights that make small mistakes show"
        yield f"{unseen}, since {text.line(why, 300)}: {text.listing(systems)}."
    unplaced = _by_reason((record.work["unplaced"], record) for record in looked if "unplaced" in record.work)
    for why, systems in unplaced.items():
        yield f"Where dropout stands was not looked at, since {text.line(why, 300)}: {text.listing(systems)}."


def _span(steps: Sequence[int]) -> str:
    """`2 steps`, `2 to 6 steps`."""
    most = text.count(max(steps), "step")
    return most if min(steps) == max(steps) else f"{min(steps)} to {most}"


def _by_reason(reasons: Iterable[tuple[str, Record]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for why, record in reasons:
        found.setdefault(why, []).append(names.system(record.job))
    return found


def _differing(where: str, what: str, values: Iterable[tuple[Record, str]]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for record, value in values:
        found.setdefault(text.line(value), []).append(names.system(record.job))
    if len(found) > 1:
        which = "; ".join(f"{value} in {text.listing(systems)}" for value, systems in found.items())
        yield f"{where}: {what} is not the same in all systems, so they do not do the same work: {which}."


def disturbed(comparison: Comparison) -> Iterator[str]:
    """Of the caveats those on what happened while rows were measured, which a terminal tells too."""
    yield from busy(comparison)
    yield from sampled.caveats(comparison.records)
    yield from _windows(comparison)


def _runs(comparison: Comparison) -> Iterator[str]:
    failed = sum(not record.done for record in comparison.records)
    if failed:
        yield f"{text.count(failed, 'run')} failed and {'is' if failed == 1 else 'are'} in no figure; see Failures."
    untested = text.listing(names.system(job) for job in comparison.jobs if job.untested)
    if untested:
        yield f"Combinations that nobody tested before: {untested}."
    yield from _windows(comparison)
    late = [record for record in comparison.records if record.done and rates.read_share(record) > READ]
    if late:
        yield (
            f"Reading the loss after a window, outside of its clock, took more than {100 * READ:g} % of it: "
            f"{text.listing(names.system(record.job) for record in late)}."
        )
    yield from _changed(comparison.records)


def _windows(comparison: Comparison) -> Iterator[str]:
    """Windows of a run that were not alike, and those that are left out."""
    uneven = [record for record in comparison.records if record.done and rates.window_spread(record) > SPREAD]
    if uneven:
        worst = max(rates.window_spread(record) for record in uneven)
        yield (
            f"In {text.count(len(uneven), 'run')} the fastest window was more than {SPREAD} times as fast as the "
            f"slowest (up to {text.number(worst, 2)} times): the machine was not quiet, or the warm-up too short."
        )
    yield from map(_unsettled, steady.found(comparison))


def _unsettled(table: Unsettled) -> str:
    """That windows are left out of a table, and for which of its rows."""
    job = table.jobs[0]
    left = "the first window of every run is" if table.windows == 1 else f"each run's first {table.windows} windows are"
    slower = text.listing(f"{names.system(row)} (by {text.number(100 * share, 1)} %)" for row, share in table.slower)
    return (
        f"{names.model(job.model)}, {names.precision_short(job)}: {left} in no figure, because the first was slower "
        f"than later ones, as in a warm-up that is not over: {slower}."
    )


def _changed(records: Iterable[Record]) -> Iterator[str]:
    """Systems whose runs did not all have the same environment, as after an update between a run and its resumption."""
    found: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for record in records:
        if record.done and record.job.traits.run:
            made = (record.environment.get("digest", ""), *map(str, record.versions.values()))
            found.setdefault((record.job.system, record.job.device), set()).add(made)
    for (system, _), all_made in found.items():
        if len(all_made) > 1:
            yield f"{system}: its environment or versions changed between runs; see Systems."
