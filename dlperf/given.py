"""Options of dlperf.compare that are not on a command line: keywords of Python."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dlperf.cli import unfit
from dlperf.errors import Problem, UsageError, did_you_mean
from dlperf.flags import FLAGS, Flag

#: by all long names
OPTIONS: Mapping[str, Flag] = {key: flag for flag in FLAGS if flag.compare for key in flag.keys}
#: what one of a value's texts may be, in words
TEXTS = "a text, a number or a path"


def arguments(values: Mapping[str, object], place: Callable[[str], str] = str) -> dict[str, object]:
    """What the parser of dlperf.compare would make of options and their values, None where there is none.

    A value is a text, a number or a path; a list of those where the option takes several, a mapping too where it takes
    KEY=VALUE; True or False where it takes none. None stands for not given. place: what a message calls an option.
    UsageError for all that is wrong.
    """
    problems: list[Problem] = []
    found: dict[str, object] = dict.fromkeys(flag.key for flag in OPTIONS.values())
    for name, value in values.items():
        flag = OPTIONS.get(name.replace("-", "_"))
        if flag is None:
            step = did_you_mean(name, OPTIONS) or f"There are {', '.join(OPTIONS)}."
            problems.append(Problem(place(name), "", says=f"there is no such option. {step}"))
        elif value is not None:
            text = _text(flag, value)
            if isinstance(text, Problem):
                problems.append(text._replace(field=place(name)))
            else:
                found[flag.key] = text
    if problems:
        raise UsageError(problems)
    return found


def _text(flag: Flag, value: object) -> object:
    """As argparse has it, or a Problem without its field."""
    if flag.takes == "nothing":
        return value or None if isinstance(value, bool) else Problem("", value, "True, False")
    several = flag.takes in ("list", "several")
    if isinstance(value, Mapping) and flag.takes == "several":
        words: Sequence[object] = [f"{key}={one}" if _is_text(one) else one for key, one in value.items()]
    else:
        words = value if isinstance(value, (list, tuple)) and several else [value]
    wrong = [word for word in words if not _is_text(word)]
    if wrong or not words:
        return Problem("", wrong[0] if wrong else value, f"{TEXTS}, or a list of them" if several else TEXTS)
    texts = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words]
    why = next(filter(None, map(unfit, texts)), "")
    if why:
        return Problem("", repr(value), says=why)
    return texts if flag.takes == "several" else ",".join(texts)


def _is_text(value: object) -> bool:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return number or (isinstance(value, (str, os.PathLike)) and isinstance(os.fspath(value), str))


@contextmanager
def named(places: Mapping[str, str]) -> Iterator[None]:
    """Have a UsageError name options as the user gave them. places: flag -> that."""
    try:
        yield
    except UsageError as error:
        raise UsageError(one._replace(field=places.get(one.field, one.field)) for one in error.problems) from None
