"""The Pythons of this machine, and those that uv fetches."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dlperf.envs import indexes
from dlperf.envs.indexes import Sources
from dlperf.errors import RunError

#: runs uv, and returns its exit status and lines
Run = Callable[[Sequence[str]], tuple[int, list[str]]]
#: why this process fetches no Python any more, once the network failed; uv tries for some ten seconds each time
_no_network: list[str] = []
_fetching = threading.Lock()


class Interpreter(NamedTuple):
    """lacks: why no environment is made with it, in words; empty if nothing is missing."""

    path: Path
    version: str
    lacks: str = ""


def uv() -> str:
    """The uv that was installed with dlperf, else one on PATH."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        message = "uv, which makes environments, is not installed beside dlperf nor on PATH"
        raise RunError("environment", f"{message}. Install it: python -m pip install 'uv>=0.9'")
    return found


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _run(command: Sequence[str]) -> tuple[int, list[str]]:
    environ, out = Sources({}).for_uv(), subprocess.PIPE
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout.splitlines()


def interpreter(path: str) -> Interpreter | None:
    """What an interpreter says of itself, or None where it does not run, or wheels for CPython do not fit it."""
    ask = (
        "import os, sys; sys.exit(2) if sys.implementation.name != 'cpython' or 't' in sys.abiflags else 0; "
        "print(os.path.realpath(sys.executable)); print('%d.%d.%d' % sys.version_info[:3]); sys.stdout.flush(); "
        "import ctypes, ssl, zlib"
    )
    try:
        asked = subprocess.run(
            [path, "-I", "-S", "-c", ask],
            env=indexes.plain(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said, why = asked.stdout.splitlines(), asked.stderr.splitlines() or ["it fails"]
    return Interpreter(Path(said[0]), said[1], why[-1] if asked.returncode else "") if len(said) == 2 else None


def find(versions: Sequence[str], say: Callable[[str], None] = lambda line: None, run: Run = _run) -> Interpreter:
    """The first of these minor versions that is at hand; else uv fetches the first one, which `run` runs.

    RunError says what is missing and what to install.
    """
    unfit: dict[str, str] = {}
    return at_hand(versions, unfit, run) or _fetched(versions, unfit, say, run)


def at_hand(versions: Sequence[str], unfit: dict[str, str] | None = None, run: Run = _run) -> Interpreter | None:
    """This interpreter, one on PATH, in pyenv or of uv's own. Fetches nothing.

    Each is run before it is believed: pyenv puts a python3.10 on PATH that only says that it is not there.
    unfit: is given those that run but lack something, and what.
    """
    known: dict[str, Interpreter | None] = {}
    for version in versions:
        for path in _candidates(version, run):
            if path not in known:
                known[path] = interpreter(path)
            found = known[path]
            if found and minor(found.version) == version:
                if not found.lacks:
                    return found
                if unfit is not None:
                    unfit[str(found.path)] = found.lacks
    return None


def _candidates(version: str, run: Run) -> Iterator[str]:
    """Interpreters that may be of a minor version, the likely ones first. None of them need be readable."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    yield sys.executable
    yield from (path for folder in folders if os.path.exists(path := os.path.join(folder, f"python{version}")))
    for root in _pyenv_roots():
        yield from sorted(glob.glob(f"{glob.escape(root)}/versions/{version}.*/bin/python"), key=_patch, reverse=True)
    plain = (os.path.join(folder, name) for name in ("python3", "python") for folder in folders)
    yield from (path for path in plain if os.path.exists(path))
    managed = _managed(version, run)
    if managed:
        yield managed


def _pyenv_roots() -> list[str]:
    """Where pyenv keeps its versions: as it is told, in the home folder, or beside the pyenv that is on PATH."""
    roots = [os.path.expanduser(os.environ.get("PYENV_ROOT") or "~/.pyenv")]
    command = shutil.which("pyenv")
    return [*roots, os.path.dirname(os.path.dirname(os.path.realpath(command)))] if command else roots


def _patch(path: str) -> int:
    """9 of .../3.10.9/bin/python"""
    digits = re.search(r"/\d+\.\d+\.(\d+)[^/]*/bin/python$", path)
    return int(digits[1]) if digits else -1


def _managed(version: str, run: Run) -> str:
    """The one that uv fetched, or nothing. uv's own look at PATH fails at pyenv's shims."""
    command = [uv(), "python", "find", "--system", "--managed-python", "--no-python-downloads", version]
    code, lines = run(command)
    return lines[-1] if code == 0 and lines else ""


def _fetched(versions: Sequence[str], unfit: Mapping[str, str], say: Callable[[str], None], run: Run) -> Interpreter:
    best = versions[0]
    with _fetching:
        found = _of_uv(best, run)  # another thread may just have fetched it
        if found:
            return found
        why = _no_network[0] if _no_network else ""
        if os.environ.get("UV_PYTHON_DOWNLOADS") == "manual":
            why = "UV_PYTHON_DOWNLOADS is manual"
        if not why:
            say(f"no Python {best} here; uv fetches one")
            code, lines = run([uv(), "python", "install", "--no-bin", best])
            found = _of_uv(best, run)
            if found:
                return found
            why = indexes.reason(lines) + indexes.blamed(lines) if code else "the one that it fetched does not run"
            if code and indexes.unreachable(lines):
                _no_network.append(why)
    raise _none(versions, unfit, why)


def _of_uv(version: str, run: Run) -> Interpreter | None:
    path = _managed(version, run)
    found = interpreter(path) if path else None
    return None if found is None or found.lacks else found


def _none(versions: Sequence[str], unfit: Mapping[str, str], why: str) -> RunError:
    best = versions[0]
    wanted = best if len(versions) == 1 else f"{', '.join(versions[:-1])} or {versions[-1]}"
    broken = "".join(f"; {path} is not usable: {lacks}" for path, lacks in unfit.items())
    ways = f"`uv python install {best}`, `pyenv install {best}`, or your system's python{best}"
    message = f"no Python {wanted} on PATH, in pyenv or in uv{broken}, and uv cannot fetch one: {why}"
    return RunError("environment", f"{message}. Install one: {ways}")
