"""What the hardware did while a window ran, from what dlperf.adapters.nvml wrote beside the events, and from what the
workers read of their hosts (dlperf.adapters.host). Pure, but for `read`.

cpu_busy_share           of the time of a host's CPUs, what all processes took, the run's and others'
cpu_others_share         likewise, what processes took that are not the run's; a host counts in hundredths of a second,
                         so it may be a little off, and below 0
cpu_steal_share          likewise, what other guests of a virtual machine's host took
cpu_mhz                  clock of a CPU after the window, the highest
cpu_throttles            times that a CPU was slowed for its temperature
cpu_quota_seconds        that a control group's limit held processes back, over its threads
network_sent_bytes       of the node that sent most, by the interface at which other ranks reach it
gpu_mhz_min, gpu_mhz_median, gpu_memory_mhz_median   clocks
gpu_watts_mean           power of a card
gpu_joules               energy of all cards together
gpu_celsius_max          temperature
gpu_memory_bytes_max     taken on a card, by whomever
gpu_throttled_share      of the samples in which something but idleness held the clocks down
gpu_throttle_reasons     what did, as the bits of THROTTLE
gpu_others               processes of others on a card, at the most
gpu_ecc_errors           new ones
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from operator import or_
from statistics import fmean, median
from typing import Any

import msgspec

from dlperf.runs import messages
from dlperf.schema import Window

#: bits of nvmlClocksEventReasons (nvml.h) that hold clocks down, in words
THROTTLE = {
    0x02: "clocks set by an application",
    0x04: "the power limit",
    0x08: "a hardware slowdown",
    0x10: "a group of cards with one clock",
    0x20: "its temperature",
    0x40: "its temperature (in hardware)",
    0x80: "the power supply",
    0x100: "the display's clocks",
}
#: seconds around a window's end within which energy is taken to grow as before
GAP = 0.5
#: how conditions of several windows, or of the same window on several nodes, are put together; others: their mean
TOGETHER: Mapping[str, Callable[[list[float]], float]] = {
    "cpu_throttles": math.fsum,
    "cpu_quota_seconds": math.fsum,
    "network_sent_bytes": math.fsum,
    "gpu_mhz_min": min,
    "gpu_mhz_median": median,
    "gpu_memory_mhz_median": median,
    "gpu_joules": math.fsum,
    "gpu_celsius_max": max,
    "gpu_memory_bytes_max": max,
    "gpu_throttle_reasons": lambda values: reduce(or_, map(int, values)),
    "gpu_others": max,
    "gpu_ecc_errors": sum,
}
#: of a host, as its ranks read it around a window
READINGS = ("cpus", "busy_seconds", "steal_seconds", "throttles", "quota_seconds", "mhz", "sent_bytes")
Card = Mapping[str, float]
#: when, in seconds since 1970, and the readings of each card
Sample = tuple[float, Sequence[Card]]


def read(path: messages.File) -> tuple[dict[str, Any], list[Sample]]:
    """The first line of a sampler's file, and its samples as far as they go; never raises for what the file holds."""
    head: dict[str, Any] = {"not_sampled": "the sampler wrote nothing"}
    samples: list[Sample] = []
    with suppress(StopIteration, ValueError, RecursionError):
        lines = messages.lines(path)
        head = dict(msgspec.json.decode(next(lines), type=messages.Sampler))
        for line in lines:
            told: messages.Sampled = msgspec.json.decode(line, type=messages.Sampled)
            if len(told["gpus"]) != len(head.get("gpus", ())):
                break
            samples.append((told["time"], told["gpus"]))
    return head, samples


def during(samples: Sequence[Sample], began: float, ended: float) -> dict[str, float]:
    """The conditions between two times; empty without a sample in between."""
    cards = [card for time, gpus in samples if began <= time <= ended for card in gpus]
    mhz, celsius, memory = (_values(cards, name) for name in ("sm_mhz", "celsius", "memory_bytes"))
    watts, reasons = _values(cards, "watts"), [int(value) & sum(THROTTLE) for value in _values(cards, "throttle")]
    found = {
        "gpu_mhz_min": min(mhz, default=None),
        "gpu_mhz_median": median(mhz) if mhz else None,
        "gpu_memory_mhz_median": median(clocks) if (clocks := _values(cards, "memory_mhz")) else None,
        "gpu_watts_mean": fmean(watts) if watts else None,
        "gpu_joules": _joules(samples, began, ended) if cards else None,
        "gpu_celsius_max": max(celsius, default=None),
        "gpu_memory_bytes_max": max(memory, default=None),
        "gpu_throttled_share": fmean(map(bool, reasons)) if reasons else None,
        "gpu_throttle_reasons": reduce(or_, reasons) if reasons else None,
        "gpu_others": max(_values(cards, "others"), default=None),
        "gpu_ecc_errors": _new_errors(samples, began, ended),
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _values(cards: Sequence[Card], name: str) -> list[float]:
    return [card[name] for card in cards if name in card]


def _joules(samples: Sequence[Sample], began: float, ended: float) -> float | None:
    """Of all cards; None where some card tells neither energy nor power at both ends."""
    found = []
    for number in range(len(samples[0][1])):
        energy = _energy([(time, gpus[number]) for time, gpus in samples])
        first, last = _at(energy, began), _at(energy, ended)
        if first is None or last is None:
            return None
        found.append(last - first)
    return math.fsum(found)


def _energy(card: Sequence[tuple[float, Card]]) -> list[tuple[float, float]]:
    """Joules since some moment, over time: as the card counts them, or else its power, added up."""
    counted = [(time, values["joules"]) for time, values in card if "joules" in values]
    if counted:
        return counted
    power = [(time, values["watts"]) for time, values in card if "watts" in values]
    total, points = 0.0, [(time, 0.0) for time, _ in power[:1]]
    for (before, watts), (now, more) in pairwise(power):
        total += (now - before) * (watts + more) / 2
        points.append((now, total))
    return points


def _at(points: Sequence[tuple[float, float]], time: float) -> float | None:
    """A value between the points around it, or not more than GAP beyond the last two; None elsewhere."""
    if len(points) < 2 or not points[0][0] - GAP <= time <= points[-1][0] + GAP:
        return None
    after = min(max(bisect(points, (time, math.inf)), 1), len(points) - 1)
    (before, low), (then, high) = points[after - 1], points[after]
    return low + (high - low) * (time - before) / (then - before) if then > before else high


def _new_errors(samples: Sequence[Sample], began: float, ended: float) -> float | None:
    """Of all cards, since the last count before the window, or else the first in it."""
    counts = [(time, sum(each)) for time, gpus in samples if (each := _values(gpus, "ecc_errors"))]
    before = [count for time, count in counts if time <= began]
    until = [count for time, count in counts if time <= ended]
    return until[-1] - (before[-1] if before else until[0]) if until else None


def together(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of several windows, or nodes: what those of them say that know it."""
    combine = TOGETHER.get
    return {
        name: float(combine(name, fmean)([one[name] for one in several if name in one])) for name in _names(several)
    }


def of_window(hosts: Sequence[str], ranks: Sequence[Window]) -> dict[str, float]:
    """Of one that each rank has, with what it read of its host; of several hosts the worst. hosts: of each rank."""
    mine: dict[str, list[Window]] = {}
    for host, window in zip(hosts, ranks, strict=True):
        mine.setdefault(host, []).append(window)
    found = [_of_host(windows) for windows in mine.values()]
    worst = {
        name: (min if name == "cpu_mhz" else max)(one[name] for one in found if name in one) for name in _names(found)
    }
    known = together([window.conditions for window in ranks])
    return {**{name: value for name, value in known.items() if name not in READINGS}, **worst}


def _of_host(ranks: Sequence[Window]) -> dict[str, float]:
    """Of one host's ranks. Its CPUs' time is of all processes: what is left without the run's is of others."""
    told = [window.conditions for window in ranks]
    most = {name: max(one[name] for one in told if name in one) for name in _names(told) if name in READINGS}
    found = {f"cpu_{name}": most[name] for name in ("mhz", "throttles", "quota_seconds") if name in most}
    if "sent_bytes" in most:
        found["network_sent_bytes"] = most["sent_bytes"]
    whole = most.get("cpus", 0.0) * max(window.seconds for window in ranks)
    counted = {"busy_seconds", "steal_seconds"} <= most.keys()
    if whole and counted and all(window.cpu_seconds is not None for window in ranks):
        others = most["busy_seconds"] - math.fsum(window.cpu_seconds or 0.0 for window in ranks)
        found["cpu_busy_share"] = most["busy_seconds"] / whole
        found["cpu_others_share"] = others / whole
        found["cpu_steal_share"] = most["steal_seconds"] / whole
    return found


def _names(several: Sequence[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for one in several for name in one))


def reasons(bits: float) -> list[str]:
    """What held clocks down, in words."""
    return [words for bit, words in THROTTLE.items() if int(bits) & bit]
