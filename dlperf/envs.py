"""The environments of the adapters: made on first use in the user's cache folder, shared by parallel callers.

An environment is a venv in `<cache>/envs/<adapter>-<device>-<digest>`, where the digest is that of its lock. It is built
in a folder beside that one and moved into place whole; whoever builds it, and every pip that still writes to it, holds a
file lock, so what lies in an unlocked building folder is left over from a builder that died. Because of the move,
everything in it is started as `bin/python -m ...`: the scripts in bin/ name a folder that is gone.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from dlperf.errors import Problem, RunError, UsageError, did_you_mean

if TYPE_CHECKING:  # reading every adapter.toml costs more than this whole module
    from dlperf.catalog import Adapter, EnvironmentSpec

#: part of every digest: raise it when environments must be made anew although no lock changed
RECIPE = 1
#: written last inside an environment; one without it is not whole
MARKER = "dlperf-environment.json"
BUILDING = ".building-"
#: seconds that a configured package index has for an answer
PROBE_SECONDS = 3.0
#: downloads that are worth a line of progress, in MB
LARGE_MB = 50

Progress = Callable[[str], None]


def _silent(line: str) -> None:
    """Progress that nobody reads."""


@dataclass(frozen=True)
class Environment:
    """An environment that is ready to use.

    kind: "venv", or "current" for the interpreter that runs this. python: its interpreter.
    digest: of what defines it: lock, Python version, recipe; for "current" of the names and versions installed.
    folder: None for "current". variables: to be set for every worker.
    """

    adapter: str
    device: str
    kind: str
    python: Path
    python_version: str
    digest: str
    folder: Path | None
    variables: Mapping[str, str]


class Requirement(NamedTuple):
    """One line of a lock."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class _Target:
    """Where the environment of an adapter on a device is, or will be."""

    adapter: Adapter
    device: str
    spec: EnvironmentSpec
    digest: str
    root: Path

    @property
    def label(self) -> str:
        return f"{self.adapter.name} {self.device}"

    @property
    def folder(self) -> Path:
        return self.root / f"{self.adapter.name}-{self.device}-{self.digest[:12]}"

    @property
    def building(self) -> Path:
        return self.root / (BUILDING + self.folder.name)

    def error(self, message: str, lines: Sequence[str] = ()) -> RunError:
        return RunError("environment", f"{self.label}: {message}", lines[-15:])


def cache_folder() -> Path:
    """$DLPERF_CACHE, else dlperf in the user's cache folder."""
    own = os.environ.get("DLPERF_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dlperf"


def _target(adapter: Adapter, device: str) -> _Target:
    spec = adapter.environments.get(device)
    if spec is None:
        known = ", ".join(adapter.environments) or "none"
        raise RunError("environment", f"{adapter.name} has no environment for {device}; it has: {known}")
    try:
        lock = spec.lock.read_bytes()
    except OSError as error:
        raise RunError("environment", f"{adapter.name} {device}: the lock {spec.lock} cannot be read: {error}") from None
    digest = _digest(str(RECIPE), os.uname().machine, *spec.python, lock.decode(errors="replace"))
    return _Target(adapter, device, spec, digest, cache_folder() / "envs")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# --- the interface ----------------------------------------------------------------------------------------------------


def commands(adapter: Adapter, device: str) -> list[str]:
    """The shell commands that would make the environment. Runs nothing, and looks at nothing but the lock."""
    target = _target(adapter, device)
    python = f"python{target.spec.python[0]}"
    lines = [
        ["mkdir", "-p", str(target.root)],
        [python, "-m", "venv", str(target.building)],
        _pip_install(target),
        ["mv", str(target.building), str(target.folder)],
    ]
    return [shlex.join(line) for line in lines]


def state(adapter: Adapter, device: str) -> str:
    """"ready", "building" (by some process, now), "stale" (only of an older lock) or "not made". Starts nothing."""
    target = _target(adapter, device)
    if _held(target.folder):
        return "building"
    if _marker(target.folder):
        return "ready"
    return "stale" if _older(target) else "not made"


def ensure(adapter: Adapter, device: str, kind: str = "venv", progress: Progress = _silent) -> Environment:
    """The environment, made first if needed. Several processes and threads may ask at once: one makes it.

    RunError (kind "environment") if it cannot be made, with the last lines of pip; nothing half-made is left then,
    nor after KeyboardInterrupt.
    """
    if kind == "current":
        return _current(adapter, device)
    target = _target(adapter, device)
    found = _ready(target)
    if found:
        return found
    try:
        target.root.mkdir(parents=True, exist_ok=True)
        with _guard(target.folder, lambda: progress(f"{target.label}: waiting for another process that makes it")) as held:
            return _ready(target) or _make(target, held, progress)
    except OSError as error:
        raise _os_error(target, error) from None


def check(env: Environment) -> None:
    """Cheap: RunError if the environment has vanished since."""
    if env.folder is not None and not (env.folder / MARKER).exists():
        raise RunError("environment", f"{env.adapter} {env.device}: its environment {env.folder} has vanished")
    if not env.python.exists():
        raise RunError("environment", f"{env.adapter} {env.device}: its interpreter {env.python} has vanished")


def find_python(versions: Sequence[str]) -> Path:
    """An interpreter of the first of these minor versions that there is: this one, on PATH, in pyenv, through uv.

    Each is run before it is believed: pyenv puts a python3.10 on PATH that only says that it is not there.
    Where none is found and uv is on PATH, uv may download one. RunError says what to install.
    """
    return _find_python(versions, _silent)[0]


def remove(adapter: Adapter, device: str) -> list[Path]:
    """Delete the environment, those of older locks too; RunError if one is being made. Returns what was deleted."""
    target = _target(adapter, device)
    removed = []
    for folder in [target.folder, *_older(target)]:
        if not folder.exists() and not target.building.exists():
            continue
        with _guard(folder, busy=lambda: _refuse(target)):
            if folder.exists():
                removed.append(folder)
            _discard(folder)
    return removed


def _refuse(target: _Target) -> NoReturn:
    raise target.error("another process is making it; wait for that, or end it, and remove then")


# --- the folder: found, locked, discarded -----------------------------------------------------------------------------


def _marker(folder: Path) -> dict[str, str]:
    """What the builder noted, or nothing where the environment is not whole."""
    try:
        noted = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(noted, dict) and (folder / "bin" / "python").exists()
    return {str(key): str(value) for key, value in noted.items()} if whole else {}


def _ready(target: _Target) -> Environment | None:
    """The environment if it is whole and its interpreter runs (the Python that it was made from may be gone)."""
    if not _marker(target.folder):
        return None
    python = target.folder / "bin" / "python"
    runs = _interpreter(str(python))
    if runs is None:
        return None
    packages = target.folder / "lib" / f"python{_minor(runs.version)}" / "site-packages"
    digest = _digest(target.digest, runs.version)
    variables = _variables(target.spec, packages)
    return Environment(
        target.adapter.name, target.device, "venv", python, runs.version, digest, target.folder, variables
    )


def _variables(spec: EnvironmentSpec, packages: Path) -> dict[str, str]:
    given = spec.variables or {}
    return {name: value.replace("{site_packages}", str(packages)) for name, value in given.items()}


def _current(adapter: Adapter, device: str) -> Environment:
    import importlib.metadata
    import sysconfig

    installed = {
        (one.metadata["Name"] or "").lower().replace("_", "-"): one.version
        for one in importlib.metadata.distributions()
    }
    if not any(name in installed for name in adapter.distribution):
        names = " or ".join(adapter.distribution)
        message = f"{adapter.name} {device}: {names} is not installed in the running Python, {sys.executable}"
        raise RunError("environment", f"{message}; install it there, or leave out --env current")
    version = ".".join(str(part) for part in sys.version_info[:3])
    digest = _digest(version, *(f"{name}=={installed[name]}" for name in sorted(installed)))
    spec = adapter.environments.get(device)
    variables = _variables(spec, Path(sysconfig.get_paths()["purelib"])) if spec else {}
    return Environment(adapter.name, device, "current", Path(sys.executable), version, digest, None, variables)


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


@contextmanager
def _guard(folder: Path, busy: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of an environment. Where another holds it, call `busy`, which may raise, then wait.

    The file descriptor goes to every child that writes to the environment, so that the lock outlives a killed builder.
    """
    held = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(held, fcntl.LOCK_EX)
        yield held
    finally:
        os.close(held)


def _held(folder: Path) -> bool:
    """Whether some process makes or removes the environment now."""
    try:
        probe = os.open(_lock_file(folder), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False


def _older(target: _Target) -> list[Path]:
    """Environments of the same adapter and device whose lock has changed since."""
    pattern = f"{target.adapter.name}-{target.device}-" + "[0-9a-f]" * 12
    return sorted(folder for folder in target.root.glob(pattern) if folder != target.folder)


def _discard(folder: Path) -> None:
    """Delete an environment and what its dead builders left. The caller holds its lock.

    Renamed first: an environment that is deleted halfway must not look whole.
    """
    leftover = folder.parent / (BUILDING + folder.name)
    shutil.rmtree(leftover, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.rename(folder, leftover)
    if leftover.exists():
        shutil.rmtree(leftover)


def _sweep(root: Path) -> None:
    """Delete what dead builders of other environments left."""
    for leftover in root.glob(BUILDING + "*"):
        folder = root / leftover.name.removeprefix(BUILDING)
        if not _held(folder):
            with _guard(folder, busy=lambda: None):
                shutil.rmtree(leftover, ignore_errors=True)


def _size(folder: Path) -> int:
    """Bytes on disk."""
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in files)


# --- making one -------------------------------------------------------------------------------------------------------


def _make(target: _Target, held: int, progress: Progress) -> Environment:
    """Build aside, move into place. The caller holds the lock `held`."""
    requirements = read_lock(target.spec.lock)
    _discard(target.folder)
    _sweep_others(target)
    started = time.monotonic()
    try:
        _build(target, requirements, held, progress)
        size = _size(target.building)
        noted = {"adapter": target.adapter.name, "device": target.device, "digest": target.digest, "bytes": size}
        (target.building / MARKER).write_text(json.dumps(noted) + "\n", encoding="utf-8")
        os.rename(target.building, target.folder)
    finally:  # Ctrl-C and a full disk included
        shutil.rmtree(target.building, ignore_errors=True)
    made = _ready(target)
    if made is None:
        raise target.error(f"the interpreter in {target.folder} does not run; remove that folder and try again")
    seconds = time.monotonic() - started
    progress(f"{target.label}: ready after {seconds:.0f} s, {_gigabytes(size)} in {target.folder}")
    return made
