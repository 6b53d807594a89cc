"""What hosts and GPUs did while rows were measured, where that makes figures doubtful; each sentence for a reader.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from dlperf.figures import disturbances
from dlperf.figures.disturbances import FELL, TAKERS
from dlperf.report import names, text
from dlperf.runs import conditions
from dlperf.schema import Record


def caveats(records: Iterable[Record]) -> Iterator[str]:
    done = [record for record in records if record.done]
    yield from taken(done)
    yield from _moved(done)
    yield from _counted(done, "cpu_throttles", "CPUs were slowed for their temperature ({} times, at most) in {}.")
    yield from _counted(
        done, "cpu_quota_seconds", "A control group's limit held processes back ({} s of threads, at most) in {}."
    )
    for why, unseen in _grouped(done, lambda record: record.not_sampled).items():
        package = " (package nvidia-ml-py)" if why.startswith("pynvml") else ""
        yield f"Clocks, power and temperature of the GPU were not sampled in {_rows(unseen)}: {why}{package}."
    yield from _clocks(done)
    yield from _throttled(done)
    yield from shared(done)
    yield from _counted(done, "gpu_ecc_errors", "The GPU's memory had errors (ECC, {} in a run, at most) in {}.")


def taken(done: Sequence[Record]) -> Iterator[str]:
    """Runs that others took CPU time from."""
    for taker, found in _taken([[record] for record in done]):
        yield f"{taker} in {_rows(one for each in found for one in each)}."


def taken_from_rows(done: Sequence[Record]) -> Iterator[str]:
    """Rows that others took CPU time from, over all their runs: as much as a row's rate may be too low."""
    runs: dict[str, list[Record]] = {}
    for record in done:
        runs.setdefault(record.job.id, []).append(record)
    for taker, found in _taken(list(runs.values())):
        yield f"{taker} in all runs together of {_systems(each[0] for each in found)}."


def shared(done: Sequence[Record]) -> Iterator[str]:
    """Runs during which others computed on their GPU."""
    yield from _counted(done, "gpu_others", "Others' processes computed on the GPU ({} at once, at most) in {}.")


def _taken(groups: Sequence[Sequence[Record]]) -> Iterator[tuple[str, list[Sequence[Record]]]]:
    """Who took a larger share of the CPUs' time than they may, and of which groups of runs."""
    for name, most, who in TAKERS:
        found = [(much, group) for group in groups if (much := disturbances.share(group, name)) > most]
        if found:
            largest, taken = _percent(max(much for much, _ in found)), [one for _, one in found]
            yield f"{who} took more than {_percent(most)} of the CPUs' time (up to {largest})", taken


def _moved(records: Sequence[Record]) -> Iterator[str]:
    found = [record for record in records if disturbances.fall(record, "cpu_mhz") > FELL]
    if found:
        most = _percent(max(disturbances.fall(record, "cpu_mhz") for record in found))
        yield (
            f"The CPU's clock fell by more than {_percent(FELL)} between windows of a run (by up to {most}) in "
            f"{_rows(found)}."
        )


def _clocks(records: Sequence[Record]) -> Iterator[str]:
    falls = [(lost, record) for record in records if (lost := disturbances.fall(record, "gpu_mhz_median")) > FELL]
    if falls:
        most, rows = _percent(max(lost for lost, _ in falls)), _rows(record for _, record in falls)
        yield (
            f"The GPU's clock fell by more than {_percent(FELL)} between windows of a run (by up to {most}) in {rows}: "
            "it got hot, or ran out of power."
        )


def _throttled(records: Sequence[Record]) -> Iterator[str]:
    """By what clocks were held down, and for which share of a row's windows at the most."""
    for why, held in _grouped(records, _why).items():
        shares = [window.conditions.get("gpu_throttled_share", 0.0) for record in held for window in record.windows]
        share = _percent(max(shares))
        yield f"The GPU's clocks were held down by {why} in {_rows(held)}, in up to {share} of a window's samples."


def _why(record: Record) -> str:
    return text.listing(conditions.reasons(disturbances.seen(record, "gpu_throttle_reasons")))


def _counted(records: Sequence[Record], name: str, sentence: str) -> Iterator[str]:
    found = [record for record in records if disturbances.seen(record, name)]
    if found:
        yield sentence.format(f"{max(disturbances.seen(record, name) for record in found):,.0f}", _rows(found))


def _percent(share: float) -> str:
    return f"{text.number(100 * share, 0)} %"


def _grouped(records: Iterable[Record], why: Callable[[Record], str]) -> dict[str, list[Record]]:
    """Those that have a reason, by it."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if reason := text.line(why(record)):
            groups.setdefault(reason, []).append(record)
    return groups


def _rows(records: Iterable[Record]) -> str:
    """`3 runs of PyTorch (amp) and JAX (amp)`."""
    records = list(records)
    return f"{text.count(len(records), 'run')} of {_systems(records)}"


def _systems(records: Iterable[Record]) -> str:
    return text.listing(f"{names.system(record.job)} ({record.job.precision_asked})" for record in records)
