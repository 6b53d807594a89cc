"""What went wrong while an environment was made, in a sentence."""

from __future__ import annotations

import errno
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from dlperf.catalog.locks import bad_line, logical_lines, read
from dlperf.envs import indexes, pythons
from dlperf.envs.environment import installed
from dlperf.envs.target import Target
from dlperf.errors import RunError

#: what makes an environment where no index can be reached
NO_INDEX = "; name a mirror in UV_DEFAULT_INDEX, or a folder with the wheels of the lock in UV_FIND_LINKS"


def missing_package(lines: Iterable[str], lock: Path) -> str:
    """The package of the lock that pip or uv did not find, as `name==version`, or nothing."""
    text = " ".join(" ".join(lines).split())
    of_pip = re.search(r"No matching distribution found for (\S+)", text)
    of_uv = re.search(r"[Bb]ecause (?:there (?:is|are) no versions? of |only )?([\w.-]+?)(?:[=<>]\S+)? ", text)
    if of_pip or not of_uv:
        return of_pip[1] if of_pip else ""
    return next((f"{one.name}=={one.version}" for one in read(lock) if one.name == of_uv[1]), of_uv[1])


def _wrong_hash(text: str, target: Target) -> RunError | None:
    """What pip or uv says of a file that is not the one that the lock means."""
    if "DO NOT MATCH THE HASHES" in text:
        text = text[text.index("DO NOT MATCH") :]
        found = re.search(r"^\s+(\S+) from \S+ \(from -r (.+) \(line (\d+)\)\)", text, re.MULTILINE)
        package, lock, line = found.groups() if found else ("a package", target.spec.lock, 1)
    elif found := re.search(r"Hash mismatch for `([^`]+)`", text):
        package, lock = found[1], target.spec.lock
        pinned = re.compile(re.escape(package.replace("==", "\0")).replace("\0", r"(\[.*\])?=="))
        line = next((number for number, said in logical_lines(lock) if pinned.match(said.lower())), 1)
    else:
        return None
    return bad_line(Path(lock), int(line), f"the hash of {package} is not that of the file that the index offers")


def explained(target: Target, lines: Sequence[str], otherwise: str) -> RunError:
    """What the output of uv or pip means."""
    text, blamed = "\n".join(lines), indexes.blamed(lines)
    if re.search(r"No space left on device|Errno 28\b|Disk quota exceeded", text):
        return full(target, lines)
    if text.endswith("No module named pip"):  # uv has nothing that downloads for another Python
        step = f"Install it: {pythons.uv()} pip install --python {sys.executable} pip"
        return target.error(f"the wheels of an image are downloaded by pip, which {sys.executable} lacks. {step}")
    if error := _wrong_hash(text, target):
        return RunError("environment", f"{target.label}: {error}", lines[-15:])
    missing = missing_package(lines, target.spec.lock)
    if indexes.unreachable(lines):
        place = re.search(r"Failed to fetch: `?([^\s`]+)", text)
        what = f"uv cannot reach {place[1]}" if place else "a package index cannot be reached"
        what += f", so {missing} was not found" if missing else ""
        return target.error(f"no network: {what}{_at_hand(target) or NO_INDEX}{blamed}", lines)
    if missing:
        return target.error(f"no package index offers {missing} for this Python and machine{blamed}", lines)
    return target.error(f"{otherwise}: {indexes.reason(lines)}{blamed}", lines)


def _at_hand(target: Target) -> str:
    """How a comparison goes on without an index, where the running Python has the framework."""
    here = [f"{one} {version}" for one, version in installed().items() if one in target.adapter.distribution]
    return f"; {sys.executable} has {here[0]}: --env current runs it" if here else ""


def not_built(target: Target, lines: Sequence[str]) -> RunError:
    """A source build that failed: the first error in its output, and what stands around it."""
    signs = re.compile(r"\berror:(?! subprocess-exited)|CMake Error|to replace$")
    first = next((number for number, line in enumerate(lines) if signs.search(line)), len(lines) - 1)
    if not lines or re.search(r"No space left on device|Disk quota exceeded", "\n".join(lines)):
        return explained(target, lines, "the build from source failed")
    return target.error(f"the build from source failed: {lines[first].strip()}", lines[: first + 10])


def full(target: Target, lines: Sequence[str] = ()) -> RunError:
    free = ""
    with suppress(OSError):
        free = f" ({gigabytes(shutil.disk_usage(target.root).free)} free in {target.root})"
    step = "free some, or set DLPERF_CACHE, UV_CACHE_DIR (uv's own cache) and TMPDIR to folders on another disk"
    return target.error(f"the disk is full{free}; {step}", lines)


def os_error(target: Target, error: OSError) -> RunError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(target)
    ours = str(error.filename or "").startswith(str(target.root.parent))
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    step = f"; set DLPERF_CACHE to another folder than {target.root.parent}" if ours else ""
    return target.error(f"{what}{step}")


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
