"""The files of a tree of logs, without what leads out of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def files(place: Path) -> Iterator[tuple[Path, str, str]]:
    """Each file in order: where, its name within the tree, and why it is not read, if so."""
    if not place.is_dir():
        label = str(Path(*place.parts[-2:])) if place.parent.name else place.name
        yield place, label, "" if place.is_file() else "it is no regular file"
        return
    errors: list[OSError] = []
    for folder, folders, names in os.walk(place, onerror=errors.append):
        folders.sort()
        for name in sorted([*names, *(one for one in folders if os.path.islink(os.path.join(folder, one)))]):
            path = Path(folder, name)
            yield path, str(path.relative_to(place)), _why(path, place)
    for error in errors:
        yield Path(error.filename), os.path.relpath(error.filename, place), f"cannot be read: {error.strerror}"


def _why(path: Path, place: Path) -> str:
    if path.is_symlink():
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return "a link to nothing, or to itself"
        if not target.is_relative_to(place.resolve()):
            return "a link that leaves the tree"
        return "a link: what it leads to is read where it is"
    try:
        return "" if stat.S_ISREG(path.lstat().st_mode) else "it is no regular file"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
