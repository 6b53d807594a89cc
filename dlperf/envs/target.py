"""Where an adapter's environment is, or will be."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf import cache
from dlperf.catalog import locks
from dlperf.errors import RunError

if TYPE_CHECKING:
    from dlperf.catalog.adapter import Adapter
    from dlperf.catalog.environment import EnvironmentSpec

#: written last inside an environment; one without it is not whole
MARKER = "dlperf-environment.json"
BUILDING = ".building-"


@dataclass(frozen=True)
class Target:
    """Where an environment of an adapter is, or will be."""

    adapter: Adapter
    key: str
    spec: EnvironmentSpec
    digest: str
    root: Path

    @property
    def label(self) -> str:
        return f"{self.adapter.name} {self.key}"

    @property
    def folder(self) -> Path:
        return self.root / f"{self.adapter.name}-{self.key}-{self.digest[:12]}"

    @property
    def building(self) -> Path:
        return building_folder(self.folder)

    def error(self, message: str, lines: Sequence[str] = ()) -> RunError:
        return RunError("environment", f"{self.label}: {message}", lines[-15:])


def target_of(adapter: Adapter, key: str) -> Target:
    """RunError if there is no such environment or its lock cannot be read."""
    digest = locks.digest(adapter, key)
    return Target(adapter, key, adapter.environments[key], digest, cache.folder() / "envs")


def from_here(path: str) -> str:
    """Relative to the working folder if it lies inside."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def marker_of(folder: Path) -> dict[str, str]:
    """What the builder noted, or nothing where the environment is not whole."""
    try:
        noted = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(noted, dict) and (folder / "bin" / "python").exists()
    return {str(key): str(value) for key, value in noted.items()} if whole else {}


def building_folder(folder: Path) -> Path:
    """Where an environment is built, and where it goes to be deleted."""
    return folder.parent / (BUILDING + folder.name)


def older_folders(target: Target) -> list[Path]:
    """Environments of the same adapter and key whose lock has changed since."""
    pattern = f"{target.adapter.name}-{target.key}-" + "[0-9a-f]" * 12
    with suppress(OSError):  # another user's
        return sorted(folder for folder in target.root.glob(pattern) if folder != target.folder)
    return []
