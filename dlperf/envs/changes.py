"""Files of an environment that are not what was installed there: what runs is what is there, whatever a lock says."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlperf.envs.target import MARKER

#: files of which more are not named
NAMED = 3
COMPILED = "__pycache__"


def since(folder: Path) -> list[str]:
    """Files below `lib` that were written after the environment was whole, as paths in it; Python's own compiled ones
    aside. A tenth of a second for each four thousand files."""
    whole = (folder / MARKER).stat().st_mtime_ns
    return sorted(name for name, file in _files(folder) if file.stat(follow_symlinks=False).st_mtime_ns > whole)


def fingerprint(folder: Path, names: Sequence[str]) -> str:
    """SHA-256 of these files' paths and contents."""
    total = hashlib.sha256()
    for name in names:
        total.update(os.fsencode(name) + b"\0" + _sha256(folder / name).digest())
    return total.hexdigest()


def unlike_wheels(folder: Path) -> list[str]:
    """Files that are missing or not what the wheels had, by the hashes in their RECORD; and those that no wheel had.
    Reads them all."""
    listed: dict[str, list[str]] = {}  # a file, and the hashes that it may have: wheels may share one
    for record in sorted(folder.glob("lib/python*/site-packages/*.dist-info/RECORD")):
        with open(record, newline="", encoding="utf-8", errors="surrogateescape") as file:
            for path, digest, *_ in csv.reader(file):
                listed.setdefault(os.path.relpath(record.parent.parent / path, folder), []).append(digest)
    wrong = [name for name, digests in listed.items() if COMPILED not in name and not _fits(folder / name, digests)]
    more = [name for name, _ in _files(folder) if "site-packages" in name and name not in listed]
    return sorted([*wrong, *(name for name in more if not os.path.basename(name).startswith("_virtualenv."))])


def named(names: Sequence[str]) -> str:
    """Some of them, in words, as they are imported: "torch/functional.py and 2 more"."""
    shown = [name.partition("site-packages/")[2] or name for name in names[:NAMED]]
    rest = len(names) - NAMED
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _files(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    waiting = [str(folder / "lib")]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting += [entry.path] if entry.name != COMPILED else []
                else:
                    yield os.path.relpath(entry.path, folder), entry


def _fits(path: Path, digests: Sequence[str]) -> bool:
    """digests: as RECORD has them, "sha256=" and URL-safe base64 without padding; empty of itself, for one."""
    if "" in digests:
        return path.exists()
    try:
        found = base64.urlsafe_b64encode(_sha256(path).digest()).rstrip(b"=").decode()
    except OSError:
        return False
    return f"sha256={found}" in digests


def _sha256(path: Path) -> hashlib._Hash:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256")
