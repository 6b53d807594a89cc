"""Options of dlperf.compare that are not on a command line: keywords of Python, a file, and variables."""

from __future__ import annotations

import difflib
import json
import numbers
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dlperf import launchers
from dlperf.cli import unfit
from dlperf.errors import Problem, UsageError, did_you_mean, reason
from dlperf.flags import FLAGS, Flag

#: by all long names
OPTIONS: Mapping[str, Flag] = {key: flag for flag in FLAGS if flag.compare for key in flag.keys}
#: of dlperf besides. DLPERF_SET, DLPERF_HOSTS and DLPERF_LAUNCHER are what scripts tell workers, so the options of
#: these names have no variable
OURS = frozenset(
    f"DLPERF_{name}" for name in ("ADAPTERS", "CACHE", "DROPPED", "HOSTS", "LAUNCHER", "PODS", "ROLE", "SET")
)
VARIABLES: Mapping[str, Flag] = {
    name: flag for key, flag in OPTIONS.items() if (name := f"DLPERF_{key.upper()}") not in OURS
}
#: what a variable of an option without a value may be
SWITCH = {"1": True, "true": True, "0": False, "false": False}


class Words(NamedTuple):
    """What a value may be, as its language says it. switch: of an option without a value. text: of one of a value's
    texts; several: what stands behind where there may be more. shown: of a value that is none of these."""

    switch: str
    text: str
    several: str
    shown: Callable[[object], object]


PYTHON = Words("True, False", "a text, a number or a path", ", or a list of them", lambda value: value)
TOML = Words(
    "true, false, without quotation marks",
    "a string or a number",
    ", or an array of them",
    lambda value: value if isinstance(value, str) else json.dumps(value, default=str),
)


def arguments(values: Mapping[str, object], place: Callable[[str], str] = str) -> dict[str, object]:
    """What the parser of dlperf.compare would make of options and their values, None where there is none.

    A value is a text, a number or a path; a list of those where the option takes several, a mapping too where it takes
    KEY=VALUE; True or False where it takes none. None stands for not given. place: what a message calls an option.
    UsageError for all that is wrong.
    """
    problems: list[Problem] = []
    found = _read(values, place, PYTHON, problems)
    if problems:
        raise UsageError(problems)
    return found


def _read(
    values: Mapping[str, object], place: Callable[[str], str], words: Words, problems: list[Problem]
) -> dict[str, object]:
    """What can be read of them; `problems` gets the rest."""
    found: dict[str, object] = dict.fromkeys(flag.key for flag in OPTIONS.values())
    for name, value in values.items():
        flag = OPTIONS.get(name.replace("-", "_"))
        if flag is None:
            step = did_you_mean(name, OPTIONS) or f"There are {', '.join(OPTIONS)}."
            problems.append(Problem(place(name), "", says=f"there is no such option. {step}"))
        elif value is not None:
            text = _text(flag, value, words)
            if isinstance(text, Problem):
                problems.append(text._replace(field=place(name)))
            else:
                found[flag.key] = text
    return found


def _text(flag: Flag, value: object, words: Words) -> object:
    """As argparse has it, or a Problem without its field."""
    if flag.takes == "nothing":
        return value if isinstance(value, bool) else Problem("", words.shown(value), words.switch)
    if flag.takes.startswith("=") and isinstance(value, bool):
        return flag.takes[1:].partition(",")[0] if value else None
    several = flag.takes in ("list", "several")
    if isinstance(value, Mapping) and flag.takes == "several":
        parts: Sequence[object] = [*_pairs(value)]
    else:
        parts = value if isinstance(value, (list, tuple)) and several else [value]
    wrong = [part for part in parts if not _is_text(part)]
    if wrong or not parts:
        allowed = words.text + (words.several if several else "")
        return Problem("", words.shown(wrong[0] if wrong else value), allowed)
    texts = [os.fspath(part) if isinstance(part, os.PathLike) else str(part) for part in parts]
    why = next(filter(None, map(unfit, texts)), "")
    if why:
        return Problem("", repr(value), says=why)
    return texts if flag.takes == "several" else ",".join(texts)


def _pairs(values: Mapping[str, object], above: str = "") -> Iterator[object]:
    """KEY=VALUE; of a value that is no text itself. In a mapping of mappings KEY is "pytorch.layout"."""
    for key, value in values.items():
        if isinstance(value, Mapping) and not above:
            yield from _pairs(value, f"{key}.")
        else:
            words = value if isinstance(value, (list, tuple)) and value else [value]
            wrong = [word for word in words if not _is_text(word)]
            yield wrong[0] if wrong else f"{above}{key}={','.join(map(str, words))}"


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


def merged(
    arguments: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    check: Callable[[Mapping[str, object]], object] = lambda found: None,
) -> tuple[dict[str, object], dict[str, str]]:
    """Arguments, below them what the file asks for that they name as `spec`, and below that the variables; and what a
    message calls an option that is not of the arguments, by its flag. For a comparison that goes on, which keeps its
    request, no file is read and no variable that would contradict it.

    check: where some cannot be read, called with the others, so that what it says of these is told with the rest.
    """
    problems: list[Problem] = []
    values, names = from_environment(environ or {}, problems)
    if arguments["attach"] or arguments["resume"] or values["resume"]:
        asks = [key for key in values if OPTIONS[key].asks or key in ("output", "dry_run", "spec")]
        layers = [({**values, **dict.fromkeys(asks)}, names)]
    else:
        layers = [(values, names)]
        spec = arguments["spec"] or values["spec"]
        if spec:
            with named({} if arguments["spec"] else {"--spec": names["spec"]}):
                layers.insert(0, from_file(Path(str(spec)), problems))
        site, called_there, tables = from_site(problems)
        layers.append((site, called_there))
    found, places = dict(arguments), dict[str, str]()
    found["site"] = {} if arguments["attach"] or arguments["resume"] or values["resume"] else tables
    for below, called in layers:
        taken = [key for key, value in below.items() if value is not None and found[key] is None]
        found |= {key: below[key] for key in taken}
        places |= {OPTIONS[key].flag: called[key] for key in taken if key in called}
    if problems:
        try:
            with named(places):
                check(found)
        except UsageError as error:
            problems += error.problems
        raise UsageError(problems)
    return found, places


def from_site(problems: list[Problem]) -> tuple[dict[str, object], dict[str, str], dict[str, dict[str, str]]]:
    """What this site's files ask for where nothing else does: `~/.config/dlperf.toml`, and above it `dlperf.toml` of
    the working directory. Options as `from_file` has them, by key what a message calls each, and by launcher what a
    table of its name says of --launcher-arg. UsageError where a file is none. problems: gets the options that cannot
    be read."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    values, places, tables = dict[str, object](), dict[str, str](), dict[str, dict[str, str]]()
    for path in (Path(config, "dlperf.toml"), Path("dlperf.toml")):
        if not path.is_file():
            continue
        text, found = _toml(path)
        for name in launchers.names():
            if name in found:
                tables[name] = {**tables.get(name, {}), **_table(path, name, found.pop(name))}
        called = {key: f"{path}{_line(text, key)}: {key}" for key in found}
        asked = _read(found, called.__getitem__, TOML, problems)
        values |= {key: value for key, value in asked.items() if value is not None}
        known = {key: OPTIONS.get(key.replace("-", "_")) for key in found}
        places |= {flag.key: called[key] for key, flag in known.items() if flag}
    return {**dict.fromkeys(flag.key for flag in OPTIONS.values()), **values}, places, tables


def _table(path: Path, name: str, table: object) -> dict[str, str]:
    """Of a launcher: its arguments, of which one that has several lines may be a list of them."""
    known = launchers.find(name).arguments
    if not isinstance(table, dict):
        raise UsageError([Problem(f"{path}: {name}", table, f"a table: [{name}]")])
    problems = [
        Problem(f"{path}: {name}.{key}", value, ", ".join(known), did_you_mean(key, known))
        for key, value in table.items()
        if key not in known
    ]
    if problems:
        raise UsageError(problems)
    lines = {key: value if isinstance(value, list) else [value] for key, value in table.items()}
    words = {True: "on", False: "off"}
    return {
        key: "\n".join(words[one] if isinstance(one, bool) else str(one) for one in value)
        for key, value in lines.items()
    }


def _toml(path: Path, field: str = "") -> tuple[str, dict[str, Any]]:
    """A file's text, and what it says. field: what a message calls it, if not by its name."""
    from dlperf.stored import DAMAGED, content

    def wrong(says: str) -> UsageError:
        return UsageError([Problem(field or str(path), path if field else "", says=says)])

    try:
        text = content(path).decode("utf-8")
    except OSError as error:
        raise wrong(f"cannot be read: {error.strerror}.") from None
    except ValueError:
        raise wrong("this is no text file. Name a TOML file.") from None
    try:
        return text, _request(text) if path.suffix == ".json" else tomllib.loads(text)
    except DAMAGED as error:
        what = "not what dlperf wrote" if path.suffix == ".json" else "cannot be read as TOML"
        raise wrong(f"{what} ({reason(error)}).") from None


def from_environment(environ: Mapping[str, str], problems: list[Problem]) -> tuple[dict[str, object], dict[str, str]]:
    """What variables ask for, as `arguments` has it, and by key the name of each. One that is empty is not given; where
    an option may be given again and again, its values are words as a shell has them. problems: gets those that cannot
    be read."""
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    for name, flag in VARIABLES.items():
        text = environ.get(name, "")
        if not text:
            continue
        places[flag.key] = name
        if flag.takes == "nothing" and text.lower() not in SWITCH:
            problems.append(Problem(name, text, ", ".join(SWITCH)))
        elif flag.takes == "several":
            try:
                values[flag.key] = shlex.split(text)
            except ValueError as error:
                problems.append(Problem(name, text, says=f"a shell cannot split it into words: {error}."))
        else:
            switch = flag.takes == "nothing" or flag.takes.startswith("=")
            values[flag.key] = SWITCH.get(text.lower(), text) if switch else text
    return _read(values, lambda key: places[key], PYTHON, problems), places


def slips(environ: Mapping[str, str]) -> Iterator[str]:
    """A warning for each variable that is none of dlperf's, and nearly one of an option's."""
    for name in sorted(environ):
        if name.startswith("DLPERF_") and name not in OURS and name not in VARIABLES:
            near = difflib.get_close_matches(name.removeprefix("DLPERF_"), _suffixes(), n=1, cutoff=0.75)
            if near:
                yield f"{name} is no variable of dlperf. Did you mean 'DLPERF_{near[0]}'?"


def _suffixes() -> list[str]:
    return [name.removeprefix("DLPERF_") for name in VARIABLES]


def from_file(path: Path, problems: list[Problem]) -> tuple[dict[str, object], dict[str, str]]:
    """What a file asks for, as `arguments` has it, and by key what a message calls each. It is TOML with the options'
    names, or the comparison.json or results.json of a comparison, whose request it is. UsageError where it is none.
    problems: gets the options that cannot be read."""
    text, values = _toml(path, "--spec")
    places = {key: f"{path}{_line(text, key)}: {key}" for key in values}
    if values.pop("spec", None) is not None:
        problems.append(Problem(places["spec"], "", says="a file of options names no other."))
    found = _read(values, lambda key: places[key], TOML, problems)
    known = {key: OPTIONS.get(key.replace("-", "_")) for key in values}
    return found, {flag.key: places[key] for key, flag in known.items() if flag}


def _request(text: str) -> dict[str, object]:
    """One of DAMAGED where there is none."""
    from dlperf.planning import again
    from dlperf.planning.spec import spec_from
    from dlperf.stored import decoded

    return again.options(spec_from(msgspec.convert(decoded(text), dict[str, Any])["spec"]))


def _line(text: str, key: str) -> str:
    """ ", line 3", where TOML has a key; empty where nobody can tell."""
    begins = re.compile(rf"""\s*(\[\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
    found = [number for number, line in enumerate(text.splitlines(), 1) if begins.match(line)]
    return f", line {found[0]}" if len(found) == 1 else ""
