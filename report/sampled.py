"""What GPUs did while rows were measured, where that makes figures doubtful; each sentence for a reader. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from dlperf.report import names, text
from dlperf.runs import conditions
from dlperf.schema import Record

#: of its clock that a GPU loses between two windows of a run, from which on they are not alike
FELL = 0.05


def caveats(records: Iterable[Record]) -> Iterator[str]:
    done = [record for record in records if record.done]
    for why, unseen in _grouped(done, lambda record: record.not_sampled).items():
        package = " (package nvidia-ml-py)" if why.startswith("pynvml") else ""
        yield f"Clocks, power and temperature of the GPU were not sampled in {_rows(unseen)}: {why}{package}."
    yield from _clocks(done)
    yield from _throttled(done)
    yield from _counted(done, "gpu_others", "Others' processes computed on the GPU ({} at once, at most) in {}.")
    yield from _counted(done, "gpu_ecc_errors", "The GPU's memory had errors (ECC, {} in a run, at most) in {}.")


def _clocks(records: Sequence[Record]) -> Iterator[str]:
    falls = [(fall, record) for record in records if (fall := _fall(record)) > FELL]
    if falls:
        most, rows = _percent(max(fall for fall, _ in falls)), _rows(record for _, record in falls)
        yield (
            f"The GPU's clock fell by more than {_percent(FELL)} between windows of a run (by up to {most}) in {rows}: "
            "it got hot, or ran out of power."
        )


def _fall(record: Record) -> float:
    """Share of its highest clock so far that the GPU lost in a later window, at the most."""
    highest, most = 0.0, 0.0
    for window in record.windows:
        mhz = window.conditions.get("gpu_mhz_median", highest)
        highest = max(highest, mhz)
        most = max(most, 1 - mhz / highest if highest else 0.0)
    return most


def _throttled(records: Sequence[Record]) -> Iterator[str]:
    """By what clocks were held down, and for which share of a row's windows at the most."""
    for why, held in _grouped(records, _why).items():
        shares = [window.conditions.get("gpu_throttled_share", 0.0) for record in held for window in record.windows]
        share = _percent(max(shares))
        yield f"The GPU's clocks were held down by {why} in {_rows(held)}, in up to {share} of a window's samples."


def _why(record: Record) -> str:
    return text.listing(conditions.reasons(_seen(record, "gpu_throttle_reasons")))


def _counted(records: Sequence[Record], name: str, sentence: str) -> Iterator[str]:
    found = [record for record in records if _seen(record, name)]
    if found:
        yield sentence.format(f"{max(_seen(record, name) for record in found):,.0f}", _rows(found))


def _seen(record: Record, name: str) -> float:
    """A condition in all windows of a run; 0 where it is not known."""
    return conditions.together([window.conditions for window in record.windows]).get(name, 0.0)


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
    rows = text.listing(f"{names.system(record.job)} ({record.job.precision_asked})" for record in records)
    return f"{text.count(len(records), 'run')} of {rows}"
