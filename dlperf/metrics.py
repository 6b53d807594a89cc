"""From windows to figures. Pure; every figure comes with its n."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev, variance

from dlperf import proof
from dlperf.schema import Certificate, Comparison, Job, Record

CONFIDENCE = 0.95


def throughput(record: Record) -> float:
    """Samples per second of one run: all samples over all seconds of its windows, never a mean of rates."""
    return sum(window.samples for window in record.windows) / _seconds(record)


def _seconds(record: Record) -> float:
    """Of all windows. A sum of floats that is shown is exact, so that every Python prints the same digits: what `sum`
    rounds to has changed with 3.12."""
    return math.fsum(window.seconds for window in record.windows)


def _cpu_seconds(record: Record) -> float | None:
    """In all windows; None where nobody measured them."""
    known = [window.cpu_seconds for window in record.windows if window.cpu_seconds is not None]
    return math.fsum(known) if len(known) == len(record.windows) else None


def cpu_use(record: Record) -> float | None:
    """CPU seconds per second inside the windows: 2.0 is two cores busy all the time."""
    used = _cpu_seconds(record)
    return None if used is None else used / _seconds(record)


def cpu_seconds_per_sample(record: Record) -> float | None:
    used = _cpu_seconds(record)
    return None if used is None else used / sum(w.samples for w in record.windows)


def product_slowdown(record: Record) -> float | None:
    """How many times as long a matrix product took in the row's precision as NumPy's in float32 took beside it."""
    fp32 = record.product.get("fp32_seconds")
    return record.product["seconds"] / fp32 if fp32 else None


def source(record: Record) -> str:
    """Where the figures of a script that is not ours stand: "runs/x/0/stdout.log:123-222"."""
    places = [window.source.rpartition(":") for window in record.windows if window.source]
    if not places:
        return ""
    lines = [int(number) for _, _, span in places for number in span.split("-")]
    return f"{record.folder}/{places[0][0]}:{min(lines)}-{max(lines)}"


def window_spread(record: Record) -> float:
    """The fastest window's rate over the slowest's, within one run: 1.0 when the machine was perfectly quiet."""
    rates = [window.samples / window.seconds for window in record.windows]
    return max(rates) / min(rates)


def skew(record: Record) -> float:
    """The share of the windows in which the fastest rank was done and the slowest was not."""
    return math.fsum(w.skew_seconds for w in record.windows) / _seconds(record)


def bus_bandwidth(nbytes: float, seconds: float, ranks: int) -> float:
    """Bytes per second of each rank's link while `ranks` all-reduce `nbytes`, whatever the algorithm.

    busbw of nccl-tests (doc/PERFORMANCE.md): each rank must send and receive at least 2 (n - 1) / n of the bytes.
    """
    return 2 * (ranks - 1) / ranks * nbytes / seconds


def all_reduce_bandwidth(record: Record) -> float | None:
    """Bus bandwidth of a run's all-reduce probe; None where it made none."""
    nbytes, seconds = record.communication.get("all_reduce_bytes"), record.communication.get("all_reduce_seconds")
    return bus_bandwidth(nbytes, seconds, record.job.world_size) if nbytes and seconds else None


@dataclass(frozen=True)
class Estimate:
    """The median of n runs, and the 95 % interval of the median that the runs come from (None when n < 2)."""

    median: float
    low: float | None
    high: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate:
    """Median with a 95 % interval: Student's t on the logarithms of the n values.

    Run times are positive and skewed to the right, so the runs are taken as log-normal; then exp(mean of logarithms)
    is the median of the population, and this interval is exact for it. The replicate is the process.
    """
    if len(values) < 2:
        return Estimate(median(values), None, None, len(values))
    logs = [math.log(value) for value in values]
    half = _t(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    centre = fmean(logs)
    return Estimate(median(values), math.exp(centre - half), math.exp(centre + half), len(values))


def ratio(values: Sequence[float], reference: Sequence[float]) -> Estimate:
    """Median of `values` over median of `reference`, with Welch's 95 % interval of the ratio (on logarithms).

    An interval that contains 1 is a tie. n is the smaller of the two. Bounds are None when either has one value.
    """
    middle = median(values) / median(reference)
    n = min(len(values), len(reference))
    if n < 2:
        return Estimate(middle, None, None, n)
    ours, theirs = _logs(values), _logs(reference)
    half = _welch(variance(ours) / len(ours), len(ours) - 1, variance(theirs) / len(theirs), len(theirs) - 1)
    centre = fmean(ours) - fmean(theirs)
    return Estimate(middle, math.exp(centre - half), math.exp(centre + half), n)


def _welch(a: float, freedom_a: int, b: float, freedom_b: int) -> float:
    """Half width of the interval of a difference of means, whose squared standard errors are a and b.

    Degrees of freedom by Welch (1947) and Satterthwaite (1946). 0 when nothing varies.
    """
    if a + b == 0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / freedom_a + b**2 / freedom_b)
    return _t(freedom) * math.sqrt(a + b)


def tie(relative: Estimate) -> bool:
    """Whether a ratio's interval contains 1. False too when there is no interval: see `unresolved`."""
    return relative.low is not None and relative.high is not None and relative.low <= 1 <= relative.high


def unresolved(relative: Estimate) -> bool:
    """Whether a ratio has no interval, as one run gives none: nobody knows whether the two differ."""
    return relative.low is None


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _t(freedom: float) -> float:
    from scipy import stats  # a slow import that only a report needs

    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))


@dataclass(frozen=True)
class Summary:
    """One row's figures. `done` are the runs that ended well, `failed` the others; figures are None without any.

    throughput in samples/s; peak memory in bytes; cpu_use in cores; first_step_seconds includes compilation.
    Of rows with several devices: skew as a share of the windows, gradient_bytes of a step, all_reduce_bandwidth in
    bytes/s.
    Of rows with a loader: its throughput alone in samples/s, and the share of the windows that steps waited for input.
    """

    job: Job
    done: tuple[Record, ...]
    failed: tuple[Record, ...]
    throughput: Estimate | None
    cpu_use: float | None
    cpu_seconds_per_sample: float | None
    peak_memory_bytes: int | None
    peak_device_memory_bytes: int | None
    first_step_seconds: float | None
    skew: float | None = None
    gradient_bytes: float | None = None
    all_reduce_bandwidth: float | None = None
    loader_throughput: float | None = None
    input_wait: float | None = None


def summarize(job: Job, records: Iterable[Record]) -> Summary:
    """The figures of one job from the records of its runs: medians over runs, peaks as the largest."""
    mine = [record for record in records if record.job.id == job.id]
    done = tuple(record for record in mine if record.done)
    failed = tuple(record for record in mine if not record.done)
    host_memory = [r.peak_memory_bytes for r in done if r.peak_memory_bytes is not None]
    device_memory = [r.peak_device_memory_bytes for r in done if r.peak_device_memory_bytes is not None]
    first_steps = [r.first_step_seconds for r in done if r.first_step_seconds is not None]
    several = done if job.world_size > 1 and not job.upstream else ()  # others' scripts do not tell these
    gradients = [r.communication["gradient_bytes"] for r in several if "gradient_bytes" in r.communication]
    bandwidths = [found for found in map(all_reduce_bandwidth, several) if found is not None]
    loaders = [record.input["samples"] / record.input["seconds"] for record in done if record.input.get("seconds")]
    waits = [found for found in map(input_wait, done) if found is not None]
    return Summary(
        job=job,
        done=done,
        failed=failed,
        throughput=estimate([throughput(r) for r in done]) if done else None,
        cpu_use=_median(map(cpu_use, done)),
        cpu_seconds_per_sample=_median(map(cpu_seconds_per_sample, done)),
        peak_memory_bytes=max(host_memory, default=None),
        peak_device_memory_bytes=max(device_memory, default=None),
        first_step_seconds=median(first_steps) if first_steps else None,
        skew=median(skew(r) for r in several) if several else None,
        gradient_bytes=median(gradients) if gradients else None,
        all_reduce_bandwidth=median(bandwidths) if bandwidths else None,
        loader_throughput=median(loaders) if loaders else None,
        input_wait=median(waits) if waits else None,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def input_wait(record: Record) -> float | None:
    """Share of the windows' time in which steps waited for their batches; None without a loader."""
    waited = [window.input_seconds for window in record.windows if window.input_seconds is not None]
    return math.fsum(waited) / _seconds(record) if waited else None


def given_up(records: Sequence[Record]) -> bool:
    """Whether a row with these runs gets no more of them, unless asked: two failed and none ended well, or its
    environment could not be made."""
    failed = [record.failure.kind for record in records if record.failure]
    return len(failed) == len(records) and (len(failed) >= 2 or "environment" in failed)


def missing_runs(summary: Summary, repeats: int) -> int:
    """Runs of a row that are still to be made of the `repeats` that were asked for."""
    made = [*summary.done, *summary.failed]
    return 0 if given_up(made) else max(0, repeats - len(made))


@dataclass(frozen=True)
class Standing:
    """A row beside the fastest of its group. `relative` is its rate over the fastest's; None for the fastest itself,
    and for a row that is not comparable: `obstacle` says why."""

    summary: Summary
    relative: Estimate | None
    obstacle: str = ""


def standings(summaries: Iterable[Summary], obstacles: Mapping[str, str]) -> list[Standing]:
    """Rows that have a figure, fastest first, those that are not comparable after the others.

    All have the same model, precision, sizes and input. obstacles: why a row is not comparable, by Job.id.
    """
    done = [(summary, summary.throughput.median) for summary in summaries if summary.throughput]
    ranked = [summary for summary, _ in sorted(done, key=lambda pair: -pair[1])]
    able = [summary for summary in ranked if summary.job.id not in obstacles]
    aside = [Standing(other, None, obstacles[other.job.id]) for other in ranked if other.job.id in obstacles]
    if not able:
        return aside
    best = _rates(able[0])
    return [Standing(able[0], None)] + [Standing(other, ratio(_rates(other), best)) for other in able[1:]] + aside


def obstacles(comparison: Comparison) -> dict[str, str]:
    """Why a row takes no part in "fastest", by Job.id: no proof of the same work, or work that differs.

    Upstream rows are in no ranking anyway, and not here.
    """
    found = dict(_other_work(comparison))
    for job in comparison.jobs:
        if job.upstream:
            continue
        verdict, phrase = proof.verdict(comparison.proofs.get(job.id, ()))
        if verdict != "same":
            found[job.id] = phrase
    return found


def _other_work(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Rows whose runs say that they did other work than most rows of the same model, precision and device."""
    groups: dict[tuple[str, str, str], dict[str, Record]] = {}
    for record in comparison.records:
        if record.done and not record.job.upstream:
            group = (record.job.model, record.job.precision_asked, record.job.device)
            groups.setdefault(group, {})[record.job.id] = record
    for records in groups.values():
        for key in proof.WORK:
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


def _rates(summary: Summary) -> list[float]:
    return [throughput(record) for record in summary.done]


@dataclass(frozen=True)
class Scaling:
    """A row beside its system's row on one device, `base`; the row on one device is its own.

    kind: "weak", the same batch per device; "strong", the same global batch. speedup: its rate over the base's;
    efficiency: that over the number of devices; None for the row on one device, and where `why` says why.
    """

    summary: Summary
    kind: str
    base: Summary | None
    speedup: Estimate | None = None
    efficiency: Estimate | None = None
    why: str = ""


def scaling(summaries: Sequence[Summary]) -> list[Scaling]:
    """Each row beside the one of the same system, model, precision, input and options on one device of one node.

    Of two such rows the one with the same batch per device is taken: weak scaling.
    """
    return [_scaling(summary, summaries) for summary in summaries]


def _scaling(summary: Summary, others: Iterable[Summary]) -> Scaling:
    job = summary.job
    if job.world_size == 1:
        return Scaling(summary, "weak", summary)
    alone = [other for other in others if other.job.world_size == 1 and _alike(other.job) == _alike(job)]
    weak = [other for other in alone if other.job.batch_size == job.batch_size]
    strong = [other for other in alone if other.job.batch_size == job.global_batch_size]
    base = next(iter(weak + strong), None)
    if base is None:
        sizes = f"batch {job.batch_size} per device or {job.global_batch_size} in all"
        return Scaling(summary, "weak", None, why=f"no speedup: there is no row of 1 device with {sizes}")
    kind = "weak" if weak else "strong"
    if not base.done or not summary.done:
        which = "the row" if base.done else "its row of 1 device"
        return Scaling(summary, kind, base, why=f"no speedup: {which} has no figure")
    speedup = ratio(_rates(summary), _rates(base))
    return Scaling(summary, kind, base, speedup, _divided(speedup, job.world_size))


def _alike(job: Job) -> tuple[object, ...]:
    """What a row and its row on one device have in common."""
    what = (job.system, job.model, job.precision_asked, job.precision, job.device, job.input, job.format, job.data_dir)
    return *what, tuple(sorted(job.options.items()))


def _divided(value: Estimate, by: int) -> Estimate:
    low, high = (bound / by if bound is not None else None for bound in (value.low, value.high))
    return Estimate(value.median / by, low, high, value.n)


def rows(comparison: Comparison) -> list[dict[str, object]]:
    """One flat row per run, failed ones included: what results.csv and `dlperf.load` show.

    Units are in the names; None where a run has no such figure. Options, versions and what really ran follow as
    option.x, version.x and effective.x; every row has the same keys in the same order.
    """
    flat = [(record, _groups(record)) for record in comparison.records]
    extra = sorted({key for _, groups in flat for key in groups}, key=_group_order)
    return [
        {**_row(record, comparison.proofs.get(record.job.id, ())), **{key: groups.get(key) for key in extra}}
        for record, groups in flat
    ]


def _row(record: Record, proofs: Sequence[Certificate]) -> dict[str, object]:
    job, failure = record.job, record.failure
    measured = record.done and bool(record.windows)
    return {
        "job": job.id,
        "system": job.system,
        "adapter": job.adapter,
        "framework_version": next(iter(record.versions.values()), None),
        "model": job.model,
        "device": job.device,
        "precision_asked": job.precision_asked,
        "precision": job.precision,
        "input": job.input,
        "format": job.format or None,
        "batch_size_per_device": job.batch_size,
        "global_batch_size": job.global_batch_size,
        "nnodes": job.nnodes,
        "nproc_per_node": job.nproc_per_node,
        "launcher": job.launcher,
        "hosts": " ".join(dict.fromkeys(record.hosts)) or None,
        "origin": "upstream" if job.upstream else "native",
        "untested": job.untested,
        "proof": proof.verdict(proofs)[1] if not job.upstream else None,
        "repeat": record.repeat,
        "started": record.started,
        "run_seconds": record.seconds,
        "throughput_samples_per_second": throughput(record) if measured else None,
        "samples": sum(window.samples for window in record.windows),
        "steps": sum(window.steps for window in record.windows),
        "windows": len(record.windows),
        "window_seconds": _seconds(record),
        "skew_seconds": math.fsum(window.skew_seconds for window in record.windows),
        "gradient_bytes": record.communication.get("gradient_bytes"),
        "all_reduce_bus_bytes_per_second": all_reduce_bandwidth(record),
        "loader_samples_per_second": record.input["samples"] / record.input["seconds"] if record.input else None,
        "input_wait_share": input_wait(record),
        "cpu_cores_busy": cpu_use(record) if measured else None,
        "cpu_seconds_per_sample": cpu_seconds_per_sample(record) if measured else None,
        "peak_memory_bytes": record.peak_memory_bytes,
        "peak_device_memory_bytes": record.peak_device_memory_bytes,
        "start_seconds": record.start_seconds,
        "first_step_seconds": record.first_step_seconds,
        "last_loss": record.windows[-1].loss if record.windows else None,
        "parameter_count": record.parameter_count,
        "failure_kind": failure.kind if failure else None,
        "failure_message": failure.message if failure else None,
        "environment_kind": record.environment.get("kind"),
        "environment_digest": record.environment.get("digest"),
        "python": record.environment.get("python"),
        "folder": record.folder,
        "figures_from": source(record) or None,
    }


def _groups(record: Record) -> dict[str, object]:
    groups = {"option": record.job.options, "version": record.versions, "effective": record.effective}
    return {f"{group}.{key}": value for group, values in groups.items() for key, value in values.items()}


def _group_order(key: str) -> tuple[int, str]:
    return ("option", "version", "effective").index(key.split(".")[0]), key
