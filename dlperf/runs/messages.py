"""What a worker may tell: the types and ranges of its events, which are what `dlperf.adapters.worker` lists. One that
does not fit makes a failed row, never a wrong figure. Fields that are not here are passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Annotated, Any, Literal, Protocol, TypedDict

import msgspec
from msgspec import Meta

from dlperf.schema import Count, Gigabits, Milliseconds, Number, Seconds, Some
from dlperf.stored import TOGETHER, whole

#: since 1970
Time = Annotated[float, Meta(ge=0, le=1e11)]
#: of one rank; a record holds the sum of all ranks
Each = Annotated[int, Meta(ge=1, le=2**40)]
#: no text is longer
Text = Annotated[str, Meta(max_length=100_000)]
Texts = Annotated[dict[Text, Text], Meta(max_length=1000)]
Numbers = Annotated[dict[Text, Annotated[float, Meta(ge=-1e12, le=1e12)]], Meta(max_length=1000)]


class Machine(TypedDict, total=False):
    host: Text


class Event(TypedDict, total=False):
    event: Text
    time: Time


class Start(Event, total=False):
    rank: Count
    world_size: Some
    pid: Some
    machine: Machine
    kernels: dict[Text, Text | list[Text] | Number | bool | None] | None
    variables: Texts
    dropped: list[Text]


class Imported(Event, total=False):
    versions: Texts


class Built(Event, total=False):
    seconds: Seconds
    parameter_count: Count


class Product(Event, total=False):
    size: Some
    seconds: Seconds
    fp32_seconds: Seconds
    large_size: Some
    large_seconds: Seconds
    large_fp32_seconds: Seconds
    copy_bytes: Some
    copy_seconds: Seconds


class Step(Event, total=False):
    seconds: Seconds
    loss: Number


class _Warm(Event):
    seconds: Seconds
    first_step_seconds: Seconds


class Warm(_Warm, total=False):
    steps: Some
    steps_per_window: Some
    loss: Number
    effective: Texts
    shapes: dict[Text, list[Count]]


class States(Event, total=False):
    file: Text
    steps: list[Count]


class Audit(Event, total=False):
    steps: Count
    loss: Number
    seconds: Seconds
    why: Text


class Communication(Event, total=False):
    gradient_bytes: Count
    all_reduce_bytes: Count
    all_reduce_seconds: Seconds
    link_gigabits: Gigabits
    link_milliseconds: Milliseconds


class _Window(Event):
    index: Count
    steps: Each
    samples: Each
    seconds: Annotated[float, Meta(ge=1e-9, le=1e8)]


class Window(_Window, total=False):
    cpu_seconds: Seconds | None
    loss: Number | None
    read_seconds: Seconds | None
    input_seconds: Seconds | None
    host: Numbers


class Profile(Event, total=False):
    steps: Some
    seconds: Seconds
    waited_seconds: Number  # a little less than none, where clocks differ
    operations: Annotated[list[tuple[Text, Text, Seconds, Count]], Meta(max_length=100_000)]
    why: Text


class Input(Event, total=False):
    samples: Each
    seconds: Seconds


class Traced(Event, total=False):
    steps: Count


class Trajectory(Event, total=False):
    file: Text
    losses: list[Number]
    gradient_norms: list[Number | None]
    step_seconds: list[Seconds]
    read_seconds: list[Seconds]
    weights: Text
    effective: Texts
    shapes: dict[Text, list[Count]]


class End(Event, total=False):
    peak_memory_bytes: Count | None
    peak_device_memory_bytes: Count | None
    imported_memory_bytes: Count
    cpu_seconds: Seconds
    seconds: Seconds
    pushes: Count
    stale: dict[Text, Count]


class Failed(Event, total=False):
    kind: Text
    message: Text
    traceback: Text


class Sampler(TypedDict, total=False):
    """The first line of what samples GPUs: which, or why none."""

    gpus: list[Text]
    python: Text
    not_sampled: Text


class Sampled(TypedDict):
    """Of each GPU, what it knows; see dlperf.adapters.nvml."""

    time: Time
    gpus: list[dict[Text, Annotated[float, Meta(ge=0, le=1e15)]]]


EVENTS: dict[str, Any] = {
    "start": Start,
    "imported": Imported,
    "built": Built,
    "product": Product,
    "first_step": Step,
    "second_step": Step,
    "warm": Warm,
    "states": States,
    "audit": Audit,
    "communication": Communication,
    "window": Window,
    "profile": Profile,
    "input": Input,
    "traced": Traced,
    "trajectory": Trajectory,
    "end": End,
    "failed": Failed,
}
#: of a value, what a message shows
SHOWN = 80


class BadEvent(ValueError):
    """A line is not an event, or one that cannot be; the message says what of it."""


#: bytes of a line at most; the longest that a worker writes, of a trajectory, has some tens of thousands
LONGEST = 2**24


class File(Protocol):
    """What is read of a Path, which an archive has too."""

    @property
    def name(self) -> str: ...
    def open(self, mode: Literal["rb"]) -> IO[bytes]: ...


class Folder(Protocol):
    def __truediv__(self, name: str) -> File: ...


def lines(path: File) -> Iterator[bytes]:
    """The lines of a file that have an end; one that is too long is cut, and the last."""
    with suppress(OSError), path.open("rb") as file:
        while (line := file.readline(LONGEST)).endswith(b"\n"):
            yield line[:-1]
        if len(line) == LONGEST:
            yield line


def event(line: bytes) -> dict[str, Any]:
    """The event in a line of JSON, with all its fields. BadEvent where it is none."""
    if len(line) == LONGEST:
        raise BadEvent(f"it has more than {LONGEST:,} bytes")
    try:
        told = msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"it is not JSON ({error})") from None
    name = told.get("event") if isinstance(told, dict) else None
    if not isinstance(name, str):
        raise BadEvent("it has no event")
    try:
        msgspec.convert(told, EVENTS.get(name, Event))
    except (ValueError, RecursionError) as error:
        raise BadEvent(_said(name, told, str(error))) from None
    try:
        if name in TOGETHER:
            whole(name, told)
        elif name == "start":
            whole("kernels", told.get("kernels") or {})
    except ValueError as error:
        raise BadEvent(str(error)) from None
    return dict(told)


def _said(name: str, told: Any, error: str) -> str:
    """ "window.seconds is -1000: expected `float` > 0.0"."""
    what, _, place = error.partition(" - at `$")
    path, value = place.rstrip("`"), told
    for key in re.findall(r"\w+", path):
        value = value.get(key) if isinstance(value, dict) else value
    shown = msgspec.json.encode(value).decode()
    shown = shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"
    return f"{name}{path} is {shown}: {what[:1].lower()}{what[1:]}" if path else f"{name}: {what[:1].lower()}{what[1:]}"
