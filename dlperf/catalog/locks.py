"""Locks: the packages that an environment consists of, each with its version and hash."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dlperf.catalog.adapter import Adapter
from dlperf.errors import RunError

#: part of every digest: raise it when environments must be made again although no lock changed
RECIPE = 2


class Requirement(NamedTuple):
    """One line of a lock."""

    name: str
    version: str

    def __str__(self) -> str:  # for people; the lock has ==
        return f"{self.name} {self.version}"


def read(path: Path) -> list[Requirement]:
    """The packages of a lock, but for those of another architecture alone. RunError names the file and the line that
    is not `name==version --hash=sha256:...`."""
    found, elsewhere = [], re.compile(rf"platform_machine (== '(?!{os.uname().machine}')|!= '{os.uname().machine}')")
    for number, line in logical_lines(path):
        match = re.fullmatch(
            r"([A-Za-z0-9._-]+)(?:\[[\w,.-]+\])?==([^\s;]+)\s*(?:;\s*([^#]*?))?(?:\s+--hash=sha256:[0-9a-f]{64})+", line
        )
        if not match:
            shown = line if len(line) < 60 else line[:57] + "..."
            raise bad_line(path, number, f"{shown!r} is not name==version --hash=sha256:...")
        if not elsewhere.match(match[3] or ""):
            found.append(Requirement(match[1].lower(), match[2]))
    if not found:
        raise bad_line(path, 1, "it lists no package")
    return found


def logical_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of the lines, those that end in a backslash joined; no comments, no empty ones."""
    start, text = 1, ""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        start = start if text else number
        text += " " + re.sub(r"(^|\s)#.*", "", line).strip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        if text.strip():
            yield start, text.strip()
        text = ""
    if text.strip():
        yield start, text.strip()


def bad_line(path: Path, number: int, what: str) -> RunError:
    step = "Restore the file from the repository, or make it again with `make lock`."
    return RunError("environment", f"{path}, line {number}: {what}. {step}")


def digest(adapter: Adapter, key: str) -> str:
    """Of what defines an environment, without the Python that it is made with. RunError if there is no such environment
    or its lock cannot be read."""
    spec = adapter.environments.get(key)
    if spec is None:
        known = ", ".join(adapter.environments) or "none"
        raise RunError("environment", f"{adapter.name} has no environment {key}; it has: {known}")
    try:
        contents = [lock.read_bytes().decode(errors="replace") for lock in spec.locks]
    except FileNotFoundError as error:
        why = f"it has no lock for {os.uname().machine}: there is no {error.filename}"
        raise RunError("environment", f"{adapter.name} {key}: {why}") from None
    except OSError as error:
        raise RunError(
            "environment", f"{adapter.name} {key}: the lock {error.filename} cannot be read: {error}"
        ) from None
    build = [repr((sorted(spec.build.variables.items()), spec.build.replace))] if spec.build else []
    return digest_of(str(RECIPE), os.uname().machine, *spec.python, *contents, *build)


def digest_of(*parts: str) -> str:
    """SHA-256 of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
