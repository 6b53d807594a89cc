"""An environment of one's own: a venv, made on first use in the user's cache folder, shared by parallel callers.

It lies in `<cache>/envs/<adapter>-<key>-<digest>`, where key is its device, with a variant that some options need
("cpu", "cpu-horovod"), and the digest is that of its lock and of what is built from source. It is built by uv in a
folder beside that one and moved into place whole. Its files are links to those of uv's cache where the disk allows
that.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dlperf.catalog.locks import digest_of, read
from dlperf.envs import changes, current, pythons
from dlperf.envs.environment import Environment, variables_of
from dlperf.envs.explain import explained, gigabytes, os_error
from dlperf.envs.guard import discard, guard, is_held, size_of, sweep
from dlperf.envs.install import BEST_MATCH, from_indexes, summary_of
from dlperf.envs.making import Making, Session, wait_for_other
from dlperf.envs.source import build_commands, build_source, built_package, check_tools
from dlperf.envs.target import MARKER, Target, building_folder, from_here, marker_of, older_folders, target_of
from dlperf.errors import RunError
from dlperf.shell import quote

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter


def planned(adapter: Adapter, key: str, chosen: Mapping[str, str]) -> Environment:
    """The environment that `ensure` would return, as far as that is known before: without the Python's last digits."""
    target = target_of(adapter, key)
    version = target.spec.python[0]
    packages = target.folder / "lib" / f"python{version}" / "site-packages"
    python = target.folder / "bin" / "python"
    variables = variables_of(target.spec, packages)
    return Environment(adapter.name, key, "venv", python, version, target.digest, target.folder, variables)


def check(env: Environment) -> None:
    """Cheap: RunError if the environment has vanished since."""
    if env.folder is not None and not os.path.exists(env.folder / MARKER):
        raise RunError("environment", f"{env.adapter} {env.key}: its environment {env.folder} has vanished")
    current.check(env)


def commands(adapter: Adapter, key: str, chosen: Mapping[str, str]) -> list[str]:
    """The shell commands that would make the environment. Runs nothing, and looks at nothing but the locks."""
    target = target_of(adapter, key)
    lines = [
        ["mkdir", "-p", str(target.root)],
        _venv(target, target.spec.python[0]),
        _install(target),
        *build_commands(target),
        ["mv", "-T", str(target.building), str(target.folder)],
    ]
    ours = [pythons.uv(), *map(str, target.spec.locks)]
    return [" ".join(quote(from_here(word) if word in ours else word) for word in line) for line in lines]


def ensure(adapter: Adapter, key: str, chosen: Mapping[str, str], session: Session) -> Environment:
    """The environment, made first if needed."""
    target = target_of(adapter, key)
    try:
        found = _ready(target)
        if found:
            return found
        target.root.mkdir(parents=True, exist_ok=True)
        with guard(target.folder, wait_for_other(target, session)) as held:
            return _ready(target) or _make(Making(target, held, session))
    except OSError as error:
        raise os_error(target, error) from None


def remove(adapter: Adapter, key: str) -> list[Path]:
    """Delete the environment, those of older locks too; RunError if one is being made. Returns what was deleted."""
    target = target_of(adapter, key)
    removed = []
    try:
        for folder in [target.folder, *older_folders(target)]:
            if folder.exists() or building_folder(folder).exists() or is_held(folder):
                with guard(folder, busy=lambda: _refuse(target)):
                    removed += [folder] if folder.exists() else []
                    discard(folder)
    except OSError as error:
        raise target.error(f"cannot be removed: {error}") from None
    return removed


def _refuse(target: Target) -> NoReturn:
    raise target.error("another process is making it; wait for that, or end it, and remove then")


def _ready(target: Target) -> Environment | None:
    """The environment if it is whole and its interpreter runs (the Python that it was made from may be gone)."""
    if not marker_of(target.folder):
        return None
    python = target.folder / "bin" / "python"
    runs = pythons.interpreter(str(python))
    if runs is None:
        return None
    packages = target.folder / "lib" / f"python{pythons.minor(runs.version)}" / "site-packages"
    digest, changed = _digest(target.folder, target.digest, runs.version)
    return Environment(
        target.adapter.name,
        target.key,
        "venv",
        python,
        runs.version,
        digest,
        target.folder,
        variables_of(target.spec, packages),
        changed=tuple(changed),
    )


def digest_in(folder: Path) -> str:
    """Of the environment in a folder, as Environment.digest has it, whatever lock it is of; empty where none is whole
    or its interpreter does not run."""
    noted, runs = marker_of(folder).get("digest"), pythons.interpreter(str(folder / "bin" / "python"))
    return _digest(folder, noted, runs.version)[0] if noted and runs else ""


def _digest(folder: Path, of_lock: str, version: str) -> tuple[str, list[str]]:
    """With the files that were changed since it was made."""
    changed = changes.since(folder)
    now = [changes.fingerprint(folder, changed)] if changed else []
    return digest_of(of_lock, version, *now), changed


def _make(making: Making) -> Environment:
    """Build aside, move into place."""
    target = making.target
    for lock in target.spec.locks:
        read(lock)
    check_tools(target)
    discard(target.folder)
    sweep(target.root)
    started = time.monotonic()
    try:
        version = _build(making)
        size, shared = size_of(target.building)
        noted = {"python": version, "digest": target.digest, "bytes": size}
        (target.building / MARKER).write_text(json.dumps(noted) + "\n", encoding="utf-8")
        os.rename(target.building, target.folder)
    finally:  # Ctrl-C and a full disk included
        shutil.rmtree(target.building, ignore_errors=True)
    made = _ready(target)
    if made is None:
        raise target.error(f"the interpreter in {target.folder} does not run; remove that folder and try again")
    linked = f", of which {gigabytes(shared)} are links to uv's cache" if shared else ""
    making.say(f"ready after {time.monotonic() - started:.0f} s, {gigabytes(size)}{linked}")
    return made


def _build(making: Making) -> str:
    """Fill the building folder: a venv with what the locks list. Returns its Python version."""
    target, sources = making.target, making.session.sources()
    found = pythons.find(target.spec.python, making.begin, lambda command: making.run(command, sources.for_uv()))
    steps = 1 + len(target.spec.locks)
    making.begin(f"making an environment with Python {found.version} (1 of {steps})")
    command = _venv(target, str(found.path)) + (sources.uv_options() if target.spec.build else [])
    code, lines = making.run(command, sources.for_uv())
    if code:
        raise explained(target, lines, f"uv cannot make a venv with {found.path}")
    making.begin(f"installing {summary_of(target.adapter, read(target.spec.lock))} (2 of {steps})")
    from_indexes(making, [*_install(target), *sources.uv_options()], sources.for_uv)
    if target.spec.build:
        source = built_package(target.spec.build)
        making.begin(f"building {source} from source, which takes some minutes ({steps} of {steps})")
        build_source(making)
    return found.version


def _venv(target: Target, python: str) -> list[str]:
    """With pip where it is to fetch and build a source distribution. Its scripts survive the move."""
    seed = ["--seed", *BEST_MATCH] if target.spec.build else []
    return [pythons.uv(), "venv", *seed, "--relocatable", "--python", python, str(target.building)]


def _install(target: Target) -> list[str]:
    """Everything is pinned with its hash, so nothing is resolved; wheels only, so nothing is built."""
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", *BEST_MATCH]
    python = str(target.building / "bin" / "python")
    return [pythons.uv(), "pip", "install", "--python", python, *options, "-r", str(target.spec.lock)]
