"""The wheels that an image is made from."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.markers import Marker

from dlperf import cache
from dlperf.catalog.locks import logical_lines, read
from dlperf.envs.environment import Note, silent
from dlperf.envs.explain import os_error
from dlperf.envs.guard import discard, guard, sweep
from dlperf.envs.install import from_indexes, summary_of
from dlperf.envs.making import Making, Session, wait_for_other
from dlperf.envs.target import Target, from_here, target_of
from dlperf.shell import quote

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter

#: in a folder of wheels: the lock, and the wheels
LOCKED, WHEELS = "requirements.txt", "wheels"


def _wheels_target(adapter: Adapter, key: str) -> Target:
    return replace(target_of(adapter, key), root=cache.folder() / "wheels")


def folder(adapter: Adapter, key: str) -> Path:
    """Where `wheels` puts them."""
    return _wheels_target(adapter, key).folder


def commands(adapter: Adapter, key: str) -> list[str]:
    """The shell commands by which `wheels` would fill its folder."""
    target = _wheels_target(adapter, key)
    download = _pip_download(target, target.spec.lock)
    download[0] = f"python{target.spec.python[0]}"  # pip takes markers for the Python that runs it, see `_chosen`
    lines = [
        ["mkdir", "-p", str(target.building)],
        ["cp", str(target.spec.lock), str(target.building / LOCKED)],
        download,
        ["mv", "-T", str(target.building), str(target.folder)],
    ]
    return [
        " ".join(quote(from_here(word) if word == str(target.spec.lock) else word) for word in line) for line in lines
    ]


def fetch(adapter: Adapter, key: str, progress: Note = silent) -> Path:
    """A folder with an environment's lock and all wheels that it lists, for the environment's Python: what an image is
    built from. Downloaded on first use, aside, and moved into place whole; errors as in `ensure`.
    """
    target, session = _wheels_target(adapter, key), Session(progress)
    try:
        if not (target.folder / LOCKED).exists():
            target.root.mkdir(parents=True, exist_ok=True)
            with guard(target.folder, wait_for_other(target, session)) as held:
                if not (target.folder / LOCKED).exists():
                    _download(Making(target, held, session))
    except OSError as error:
        raise os_error(target, error) from None
    return target.folder


def _pip_download(target: Target, lock: Path) -> list[str]:
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    place = ["--python-version", target.spec.python[0], "--dest", str(target.building / WHEELS)]
    return [sys.executable, "-I", "-m", "pip", "download", *options, *place, "-r", str(lock)]


def _chosen(target: Target) -> str:
    """The lines of the lock that hold for the environment's Python: with --python-version, pip chooses wheels for that
    one, but asks the markers of the one that runs it."""
    python = {"python_version": target.spec.python[0], "python_full_version": f"{target.spec.python[0]}.0"}
    found = []
    for _, line in logical_lines(target.spec.lock):
        marker = re.search(r";\s*(.*?)\s+--hash", line)
        if marker is None or Marker(marker[1]).evaluate(python):
            found.append(line.replace(marker[0], " --hash", 1) if marker else line)
    return "".join(f"{line}\n" for line in found)


def _download(making: Making) -> None:
    target = making.target
    making.begin(f"downloading {summary_of(target.adapter, read(target.spec.lock))}")
    discard(target.folder)
    sweep(target.root)
    try:
        (target.building / WHEELS).mkdir(parents=True)
        chosen = target.building / "chosen.txt"
        chosen.write_text(_chosen(target), encoding="utf-8")
        from_indexes(making, _pip_download(target, chosen), making.session.sources().for_pip)
        chosen.unlink()
        shutil.copy(target.spec.lock, target.building / LOCKED)
        os.rename(target.building, target.folder)
    finally:
        shutil.rmtree(target.building, ignore_errors=True)
