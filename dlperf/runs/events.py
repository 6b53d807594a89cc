"""Reads what the workers wrote. A file may be missing, half-written or full of something else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import fmean
from typing import Any

from dlperf.runs import conditions, messages
from dlperf.schema import Failure, Window

#: how frameworks say that another rank is gone
LOST = re.compile(
    r"connection (was )?(closed|reset|refused|aborted|lost)|closed (the )?connection|hung up|by peer|broken pipe|"
    r"socket closed|unavailable|heartbeat|aborted",
    re.IGNORECASE,
)
#: fields of a window that not every worker writes
LATER = ("skew_seconds", "input_seconds", "source", "read_seconds", "conditions")
KINDS = (
    "start",
    "built",
    "product",
    "warm",
    "states",
    "audit",
    "profile",
    "communication",
    "input",
    "trajectory",
    "end",
    "failed",
)
#: of which one number is kept
NUMBERS = {"first_step": "seconds", "second_step": "seconds", "traced": "steps"}


@dataclass(frozen=True)
class Stream:
    """The events of one rank, or of a job of several. `end` is None unless the worker came to its end.

    start: with the versions, once the framework is imported. first_step, second_step: seconds of these of the
    warm-up. first_losses: of these two. traced: steps of a proof so far. written: when its last event was, by its
    host's clock in seconds since 1970; 0 before the first. times: likewise, of the last event of each name. bad_line:
    where it is not what a worker tells, and how; nothing after it is read.

    sampled: what sampled the GPUs says of itself, see dlperf.adapters.nvml. ranks: the streams of a job's ranks; empty
    for a stream of one. servers: those of its parameter servers.
    """

    start: Mapping[str, Any] = field(default_factory=dict)
    built: Mapping[str, Any] = field(default_factory=dict)
    product: Mapping[str, Any] = field(default_factory=dict)
    first_step: float | None = None
    second_step: float | None = None
    warm: Mapping[str, Any] = field(default_factory=dict)
    first_losses: tuple[float, ...] = ()
    states: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] = field(default_factory=dict)
    communication: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    traced: float = 0
    trajectory: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    failed: Mapping[str, Any] | None = None
    bad_line: str = ""
    written: float = 0.0
    times: Mapping[str, float] = field(default_factory=dict)
    sampled: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[Stream, ...] = ()
    servers: tuple[Stream, ...] = ()

    @property
    def failure(self) -> Failure | None:
        """What went wrong as far as the workers and servers could say it; None for a complete stream. A server that
        says nothing was ended when nobody needed it."""
        for number, server in enumerate(self.servers):
            if server.failed is not None and (told := server.failure):
                return replace(told, message=f"server {number}: {told.message}")
        failure = (self._of_ranks() or self._bad) if self.ranks else self._of_one()
        return failure or self._uncounted()

    def _of_one(self) -> Failure | None:
        if self.failed is not None:
            lines = str(self.failed.get("traceback", "")).strip().splitlines()
            return Failure(
                str(self.failed.get("kind", "crash")), str(self.failed.get("message", "")), tuple(lines[-15:])
            )
        if self._bad:
            return self._bad
        if self.end is None or not (self.windows or self.trajectory or self.states):
            return Failure("crash", "the worker exited without reporting an error")
        return None

    def _uncounted(self) -> Failure | None:
        """Whether servers that count have applied as many pushes as workers have sent."""
        counts = [one.end.get("pushes") if one.end else None for one in self.servers]
        sent, applied = (self.end or {}).get("pushes"), [one for one in counts if one is not None]
        if sent is None or len(applied) < len(counts) or not counts or sum(applied) == sent:
            return None
        return Failure("lost_push", f"the workers sent {sent:,} pushes, and the servers applied {sum(applied):,}")

    @property
    def used(self) -> dict[str, str | int | float]:
        """Of a parameter server, see Record.servers."""
        ended = self.end or {}
        kept = ("seconds", "cpu_seconds", "peak_memory_bytes", "imported_memory_bytes", "pushes")
        told = {key: ended[key] for key in kept if key in ended}
        return {"host": self.host, **told, **_stale(ended.get("stale", {}))}

    @property
    def _bad(self) -> Failure | None:
        return Failure("bad_event", self.bad_line) if self.bad_line else None

    def _of_ranks(self) -> Failure | None:
        """Of the rank that failed first: the others fail because they lost it. Then of one that says nothing."""
        told = [number for number, stream in enumerate(self.ranks) if stream.failed is not None]
        silent = [number for number, stream in enumerate(self.ranks) if stream.failure]
        if not silent:
            return None
        first = (
            min(told, key=lambda number: float((self.ranks[number].failed or {}).get("time", 0.0)))
            if told
            else silent[0]
        )
        failure = self.ranks[first].failure
        assert failure is not None
        message = f"{self.name(first)}: {failure.message}"
        gone = [number for number in silent if number not in told and self.ranks[number].built]
        if told and gone and LOST.search(failure.message):
            message = f"{', '.join(map(self.name, gone))} exited without reporting an error; {message}"
            return replace(failure, kind="killed", message=message)
        return replace(failure, message=message)

    @property
    def losses(self) -> dict[int, float]:
        """Of rank 0, by step from 1, as far as they were read: of the first two, of the last of the warm-up and of each
        window."""
        told = (self.ranks or (self,))[0]
        found = dict(enumerate(told.first_losses, 1))
        steps = int(told.warm.get("steps", 0))
        if "loss" in told.warm:
            found[steps] = float(told.warm["loss"])
        for window in told.windows:
            steps += window.steps
            if window.loss is not None:
                found[steps] = window.loss
        return found

    @property
    def host(self) -> str:
        return str(self.start.get("machine", {}).get("host", ""))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each rank; empty for those that never started."""
        return tuple(stream.host for stream in self.ranks or (self,))

    def name(self, rank: int) -> str:
        """ "rank 1 on node2"."""
        return f"rank {rank}" + (f" on {self.hosts[rank]}" if self.hosts[rank] else "")

    @property
    def stage(self) -> str:
        """How far it came, in words."""
        if not self.start:
            return "had not started"
        if not self.built:
            return "was being built, or waited for other ranks"
        if not (self.windows or self.trajectory or self.states):
            return "was warming up"
        return "was training" if self.end is None else "had ended"


def read(path: messages.File, samples: Sequence[conditions.Sample] = ()) -> Stream:
    """The events in a file, as far as it goes. Never raises for what the file holds: what is none, or cannot be, is its
    `bad_line`. A last line without an end is of a worker that was killed, or is about to go on. samples: of the GPUs
    meanwhile."""
    found: dict[str, Any] = {"windows": [], "times": {}}
    for number, line in enumerate(messages.lines(path), 1):
        try:
            _add(found, messages.event(line), samples)
        except messages.BadEvent as error:
            return Stream(**{**found, "windows": (), "bad_line": f"line {number} of {path.name}: {error}"})
    return Stream(**{**found, "windows": tuple(found["windows"])})


def _add(found: dict[str, Any], event: Mapping[str, Any], samples: Sequence[conditions.Sample]) -> None:
    """One event to the fields of a Stream; BadEvent for a window that is not the next one."""
    name, windows = event["event"], found["windows"]
    if name == "window":
        if event["index"] != len(windows):
            raise messages.BadEvent(f"window.index is {event['index']}, and the next one is {len(windows)}")
        windows.append(_timed(event, samples))
    elif name == "imported":
        found["start"] = {**found.get("start", {}), "versions": event.get("versions", {})}
    elif name in NUMBERS:
        found[name] = float(event.get(NUMBERS[name], 0.0))
        if "loss" in event:
            found["first_losses"] = (*found.get("first_losses", ()), float(event["loss"]))
    elif name in KINDS:
        found[name] = event
    found["written"] = found["times"][name] = float(event.get("time", 0.0))


def _timed(event: Mapping[str, Any], samples: Sequence[conditions.Sample]) -> Window:
    """A window, which ended when its event was written."""
    names = [name for name in Window.__dataclass_fields__ if name not in LATER]
    given, ended = {"cpu_seconds": None, "loss": None, **event}, event.get("time", 0.0)
    during = conditions.during(samples, ended - event["seconds"], ended) if samples else {}
    return Window(
        **{key: given[key] for key in names},
        input_seconds=event.get("input_seconds"),
        read_seconds=event.get("read_seconds"),
        conditions={**event.get("host", {}), **during},
    )


def read_job(folder: messages.Folder, world_size: int, windows: int = 0, servers: int = 0) -> Stream:
    """The events of all ranks as one stream; that of rank 0 where there is one only. windows: that a whole one has at
    least. servers: parameter servers beside the ranks."""
    ranks = tuple(_of_rank(folder, rank) for rank in range(world_size))
    first = ranks[0]
    alone = replace(first, windows=tuple(_window((window,), True, first.hosts) for window in first.windows))
    found = merged(ranks) if world_size > 1 else alone
    if servers:
        told = tuple(read(folder / f"events.server{number}.jsonl") for number in range(servers))
        found = replace(found, servers=told, windows=tuple(map(_without_others, found.windows)))
    if found.end is None or len(found.windows) >= windows or found.bad_line:
        return found
    return replace(found, bad_line=f"it ended after {len(found.windows)} of {windows} windows")


def _without_others(window: Window) -> Window:
    """Beside parameter servers, whose time in a window nobody knows, that of other processes is not known either."""
    known = {name: value for name, value in window.conditions.items() if name != "cpu_others_share"}
    return replace(window, conditions=known)


def _of_rank(folder: messages.Folder, rank: int) -> Stream:
    """Its events, with the conditions of its node's GPUs if it is the rank that has them sampled."""
    sampled, samples = conditions.read(folder / f"gpu.rank{rank}.jsonl")
    return replace(read(folder / f"events.rank{rank}.jsonl", samples), sampled=sampled)


def merged(ranks: Sequence[Stream]) -> Stream:
    """One stream for several ranks: rank 0's, where times are the slowest rank's and memory is the largest.

    Whole only if all ranks are: a window that one of them lacks is left out.
    """
    first = ranks[0]
    ended = [stream.end for stream in ranks if stream.end is not None]
    peaks = ("peak_memory_bytes", "peak_device_memory_bytes")
    cards = [card for stream in ranks for card in stream.sampled.get("gpus", ())]
    per_rank, hosts = [stream.windows for stream in ranks], [stream.host for stream in ranks]
    return replace(
        first,
        ranks=tuple(ranks),
        built={**first.built, **_largest("seconds", [stream.built for stream in ranks])},
        warm={**first.warm, **_largest("first_step_seconds", [stream.warm for stream in ranks])},
        communication={
            **first.communication,
            **_largest("all_reduce_seconds", [stream.communication for stream in ranks]),
        },
        input=_loaders([stream.input for stream in ranks if stream.input]),
        product={**first.product, **_apart(ranks)},
        windows=tuple(_window(each, len(cards) == len(ranks), hosts) for each in zip(*per_rank, strict=False)),
        end={**ended[0], **{k: v for peak in peaks for k, v in _largest(peak, ended).items()}, **_pushes(ended)}
        if len(ended) == len(ranks)
        else None,
    )


def _stale(counted: Mapping[str, int]) -> dict[str, int]:
    """How many updates were between a pull and its push: the median, and what 95 % of pushes are not beyond. counted:
    so many, how often."""
    each, found = sorted((int(updates), often) for updates, often in counted.items() if updates.isdecimal()), {}
    for name, share in (("stale_median", 0.5), ("stale_95", 0.95)) if each else ():
        most = share * sum(often for _, often in each)
        sums = accumulate(often for _, often in each)
        found[name] = next(updates for (updates, _), so_far in zip(each, sums, strict=True) if so_far >= most)
    return found


def _pushes(ended: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    told = [one["pushes"] for one in ended if "pushes" in one]
    return {"pushes": sum(told)} if told else {}


def _apart(ranks: Sequence[Stream]) -> dict[str, Any]:
    """On several hosts: the rank whose large product had the fewest FLOP/s, and how many of the fastest rank's."""
    told = [stream.product for stream in ranks if stream.product.get("large_seconds")]
    if len(told) < len(ranks) or len({stream.host for stream in ranks}) == 1:
        return {}
    speeds = [one["large_size"] ** 3 / one["large_seconds"] for one in told]
    return {"slowest_rank": speeds.index(min(speeds)), "slowest_share": min(speeds) / max(speeds)}


def _loaders(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All ranks' loaders alone, at work at the same time."""
    return {"samples": sum(one["samples"] for one in found), **_largest("seconds", found)} if found else {}


def _largest(key: str, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [event[key] for event in events if event.get(key) is not None]
    return {key: max(values)} if values else {}


def _window(windows: tuple[Window, ...], whole: bool, hosts: Sequence[str]) -> Window:
    """One that each rank has. whole: whether the GPUs of all ranks were sampled; else nobody knows their energy."""
    seconds = [window.seconds for window in windows]
    waited = [window.input_seconds for window in windows if window.input_seconds is not None]
    known = conditions.of_window(hosts, windows)
    return replace(
        windows[0],
        input_seconds=max(waited, default=None),
        seconds=max(seconds),
        skew_seconds=max(seconds) - min(seconds),
        cpu_seconds=_over(math.fsum, [window.cpu_seconds for window in windows]),
        loss=_over(fmean, [window.loss for window in windows]),
        read_seconds=_over(max, [window.read_seconds for window in windows]),
        conditions={name: value for name, value in known.items() if whole or name != "gpu_joules"},
    )


def _over(combine: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return combine(known) if known else None
