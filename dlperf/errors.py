"""Errors that a user reads: each names the field and the value, and says what is wrong or allowed and what to do."""

from __future__ import annotations

import difflib
import re
import signal
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, NoReturn

#: of a value, in a message: paths are no longer on most machines
SHOWN = 1024
#: problems that are told at once: a file may have one on each line
TOLD = 50


class Problem(NamedTuple):
    """One thing that is wrong with what was asked: `field`, a flag, file or key, has `value`.

    allowed: what it may be, where that is a closed set, a range or a form; step: what to do, a sentence. says: in place
    of both, for all else: sentences that say what is wrong and what to do.
    """

    field: str
    value: object
    allowed: str = ""
    step: str = ""
    says: str = ""

    def __str__(self) -> str:
        value = shortened(str(self.value))
        if self.says:
            return clean(f"{' '.join(filter(None, (self.field, value)))}: {self.says}")
        step = f" {self.step}" if self.step else ""
        return f"{self.field}: {value!r} is not usable; allowed: {self.allowed}.{step}"


def shortened(text: str) -> str:
    """What a message shows of a text that may be very long."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class UsageError(Exception):
    """The request is wrong. Carries every problem found, not only the first. Exit code 2."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems: Sequence[Problem] = tuple(problems)
        more = len(self.problems) - TOLD
        told = [*map(str, self.problems[:TOLD]), *([f"... and {more:,} more."] if more > 0 else [])]
        super().__init__("\n".join(told))


class RunError(Exception):
    """Something that a row of the report states: an environment that cannot be made, a job that failed.

    `kind` is one word for the table; the message is what a person needs; `lines` are the last lines of output.
    """

    def __init__(self, kind: str, message: str, lines: Sequence[str] = ()):
        self.kind = kind
        self.lines = tuple(lines)
        super().__init__(message)


def whole_number(text: object, least: int = 1, most: int = 10**18) -> int | None:
    """The whole number that a text is, or None where it is none, or not within these."""
    digits = str(text)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):  # of thousands, int makes a ValueError
        return None
    return int(digits) if least <= int(digits) <= most else None


def decimal(text: object) -> float | None:
    """The number of 0 or more that a text is; None for what float reads besides: nan, inf, 1_000, digits of other
    scripts."""
    written = re.fullmatch(r"\+?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][-+]?[0-9]{1,3})?", str(text))
    return float(written[0]) if written else None


def unprintable(text: str) -> str:
    """Why a text can stand in no line of a UTF-8 file; empty if it can."""
    if text.isascii() and text.isprintable():
        return ""
    categories = set(map(unicodedata.category, text))
    if categories & {"Cc", "Zl", "Zp"}:
        return "has a line break or another control character"
    return "is not UTF-8" if "Cs" in categories else ""


#: sequences by which a terminal is told colours, titles, links and places
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\n]*(\x07|\x1b\\)?|[ -/]*[0-~])")
#: characters that no page or terminal shows as they are: control characters, other ends of lines, what turns the order
#: of letters round, halves of surrogates, and those that XML forbids
HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Text from outside as a page or a terminal can show it, and UTF-8 can have it; lines and tabs are kept."""
    if text.isascii() and text.isprintable():  # as most are
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return HIDDEN.sub("\ufffd", ESCAPES.sub("", text))


def shown(text: str) -> str:
    """A name as one line of a terminal or a file has it."""
    return ascii(text)[1:-1] if unprintable(text) else text


def nearest(value: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, or nothing."""
    return next(iter(difflib.get_close_matches(value, list(known), n=1, cutoff=0.5)), "")


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known name, or nothing."""
    near = nearest(value, known)
    return f"Did you mean {near!r}?" if near else ""


def either(names: Sequence[str]) -> str:
    """ "mpi, slurm or kubernetes"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def reason(error: Exception) -> str:
    """An error that is not one of ours, in a few words."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"{type(error).__name__}: {error}"


def handle_signals() -> None:
    """Make Ctrl-C, SIGTERM and a terminal that hangs up raise KeyboardInterrupt, once, also where a shell that started
    us in the background had the first two ignored; nohup's hang-up is ignored as before. For the commands: they clean
    up on it, which another signal does not stop."""
    _heeded.clear()
    _turn(_interrupt)


def hold_signals() -> None:
    """Have them wait for `release_signals`: what begins now needs an end."""
    if _ours.get():
        _waiting.clear()
    _turn(_wait)


def release_signals() -> None:
    """Heed them again. KeyboardInterrupt if one waited."""
    _turn(_interrupt)
    if _waiting and _ours.get():
        first = _waiting[0]
        _waiting.clear()
        _interrupt(first)


def ignore_signals() -> None:
    """From now on nothing stops what is being done."""
    _turn(_nothing)


def interrupts(error: BaseException) -> bool:
    """Whether an error is a KeyboardInterrupt, or the RuntimeError that Python 3.11 makes of one in __set_name__, while
    it imports."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)


def interrupted_code() -> int:
    """Of a command that a signal ended, as shells have it: 130 after Ctrl-C, 143 after SIGTERM, 129 after a hang-up."""
    return 128 + (_heeded or [signal.SIGINT])[0]


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ours: ContextVar[Sequence[int]] = ContextVar("_ours", default=ENDING)
_waiting: list[int] = []
_heeded: list[int] = []


@contextmanager
def lent_signals() -> Iterator[None]:
    """For what others' programs call: the functions above turn Ctrl-C alone, where Python's own handler was to heed it
    and this is the main thread, and afterwards it has that again."""
    usual, main = signal.default_int_handler, threading.current_thread() is threading.main_thread()
    lent = main and signal.getsignal(signal.SIGINT) is usual
    token = _ours.set((signal.SIGINT,) if lent else ())
    try:
        handle_signals()
        yield
    finally:
        if lent:
            signal.signal(signal.SIGINT, usual)
        _ours.reset(token)


def _turn(handler: Callable[..., None]) -> None:
    """A handler that does nothing, not SIG_IGN: of a signal that has come and whose handler is taken away before it
    runs Python prints a traceback."""
    for number in _ours.get():
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupt(number: int, frame: object = None) -> NoReturn:
    _heeded.append(number)
    ignore_signals()
    raise KeyboardInterrupt


def _wait(number: int, frame: object) -> None:
    _waiting.append(number)


def _nothing(number: int, frame: object) -> None:
    pass
