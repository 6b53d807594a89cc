"""`python -m dlperf.envs`: list, install, check, remove, pack and unpack the frameworks' environments."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dlperf import cache
from dlperf.catalog.adapter import Adapter
from dlperf.catalog.reader import adapters
from dlperf.cli import Parser, exit_code, named, say, tell
from dlperf.envs import changes, packed, pythons
from dlperf.envs.explain import gigabytes
from dlperf.envs.guard import is_held, size_of
from dlperf.envs.kinds import ensure_all
from dlperf.envs.target import BUILDING, from_here, marker_of, older_folders, target_of
from dlperf.envs.venv import remove
from dlperf.errors import Problem, RunError, UsageError
from dlperf.shell import quote
from dlperf.words import columns


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m dlperf.envs`; returns the exit status."""
    return exit_code(lambda: _command(arguments), interrupted="interrupted; nothing half-made is left")


def parser(known: Mapping[str, Adapter]) -> Parser:
    """known: the adapters by name."""
    made = Parser(prog="python -m dlperf.envs", description="Environments of the frameworks.")
    verbs = ["list", "install", "remove", "check", "pack", "unpack"]
    made.add_argument("verb", choices=verbs, help="what to do; pack and unpack: for machines without a network")
    about = "an adapter (default: all; to install or pack, those of dlperf compare); to unpack, what pack wrote"
    made.add_argument("names", nargs="*", metavar="NAME", help=about)
    about = "with a variant, as cpu-horovod, an environment that some options need; default: cpu to install, or all"
    made.add_argument("--device", choices=_keys(known), help=about.replace("to install", "to install or pack"))
    made.add_argument("-o", "--output", metavar="FILE", help="what pack writes (default: dlperf-envs.tar)")
    return made


def _keys(known: Mapping[str, Adapter]) -> list[str]:
    """Of all environments."""
    return list(dict.fromkeys(key for one in known.values() for key in one.environments))


def _command(arguments: Sequence[str] | None) -> int:
    known = adapters(sys.argv[1:] if arguments is None else arguments)
    asked = parser(known).parse_args(arguments)
    if asked.output and asked.verb != "pack":
        raise UsageError([Problem("--output", asked.output, says="it is of pack. Leave it out.")])
    if asked.verb == "unpack":
        return _unpack_all(asked.names)
    new = asked.verb in ("install", "pack")
    every = [one for one in known.values() if one.default or not new]
    chosen = named(asked.names, known) or every
    keys = [asked.device] if asked.device else ["cpu"] if new else _keys(known)
    # an environment may be missing or have no lock, but saying so is due only where one asked for it
    has = Adapter.has_lock if not new else lambda one, key: bool(asked.names) or key in one.environments
    pairs = [(one, key) for one in chosen for key in keys if has(one, key)]
    if asked.verb == "pack":
        packed.pack(pairs, Path(asked.output or "dlperf-envs.tar"), say)
        return 0
    if asked.verb == "list":
        print(_table(pairs))
        return 0
    verbs = {"install": _install_all, "remove": _remove_all, "check": _check_all}
    code = verbs[asked.verb](pairs)
    if asked.verb != "install" and not (asked.names or asked.device):
        for folder in _unexplained(known):
            size = gigabytes(size_of(folder)[0])
            say(f"{folder}: {size}, of no lock that is here, so nothing uses it; rm -r {quote(folder)} deletes it")
    return code


def _unpack_all(names: Sequence[str]) -> int:
    absent = [name for name in names or [""] if not os.path.isfile(name)]
    if absent:
        raise UsageError(Problem("FILE", name, "a file that pack wrote") for name in absent)
    for name in names:
        packed.unpack(Path(name), say)
    return 0


def _unexplained(known: Mapping[str, Adapter]) -> Iterator[Path]:
    """Folders among the environments that no lock explains and nobody is making; those of an older lock, which `list`
    calls stale, too."""
    explained = set()
    for one in known.values():
        for key in one.environments:
            with suppress(RunError):  # a lock that cannot be read, which the verbs tell
                explained.add(target_of(one, key).folder)
    root = cache.folder() / "envs"
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if folder.is_dir() and folder not in explained and not is_held(root / folder.name.removeprefix(BUILDING)):
            yield folder


def _install_all(pairs: Sequence[tuple[Adapter, str]]) -> int:
    """1 if one failed, which is said; the others are made."""
    failed = 0
    for made in ensure_all(pairs, progress=say):
        if isinstance(made, RunError):
            failed = 1
            tell(made)
        else:
            say(f"{made.adapter} {made.key}: ready in {made.folder}")
    return failed


def _remove_all(pairs: Sequence[tuple[Adapter, str]]) -> int:
    failed = removed = 0
    for adapter, key in pairs:
        try:
            for folder in remove(adapter, key):
                removed += 1
                say(f"{adapter.name} {key}: removed {folder}")
        except RunError as error:
            failed = 1
            tell(error)
    if removed:
        say(f"what was downloaded is still in uv's cache; `{from_here(pythons.uv())} cache clean` deletes it")
    return failed


def _check_all(pairs: Sequence[tuple[Adapter, str]]) -> int:
    """1 if one is not what its wheels had."""
    folders = [(f"{one.name} {key}", target_of(one, key).folder) for one, key in pairs]
    ready = [(label, folder) for label, folder in folders if marker_of(folder)]
    wrong = 0
    for label, folder in ready:
        found = changes.unlike_wheels(folder)
        wrong += bool(found)
        say(f"{label}: not as its wheels have it: {changes.named(found)}" if found else f"{label}: as installed")
    if not ready:
        say("none of them is made")
    return 1 if wrong else 0


def _table(pairs: Sequence[tuple[Adapter, str]]) -> str:
    rows = [("adapter", "device", "state", "python", "size", "folder")]
    rows += [row for adapter, key in pairs for row in _rows(adapter, key)]
    return columns(rows)


def _rows(adapter: Adapter, key: str) -> list[tuple[str, str, str, str, str, str]]:
    """One line for the environment, and one for each of an older lock."""
    target = target_of(adapter, key)
    folders = [
        (target.folder, "building" if is_held(target.folder) else ""),
        *((one, "stale") for one in older_folders(target)),
    ]
    rows = []
    for folder, state in folders:
        noted = marker_of(folder)
        size = gigabytes(int(noted.get("bytes", 0))) if noted else "-"
        shown = str(folder) if os.path.exists(folder) else "-"
        ready = "ready" if noted else "not made"
        rows.append((adapter.name, key, state or ready, noted.get("python", "-"), size, shown))
    return rows


if __name__ == "__main__":
    sys.exit(main())
