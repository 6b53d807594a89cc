"""The code that a run uses: a copy inside the run's folder, so that every run keeps the code that ran."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

import msgspec

import dlperf.models
from dlperf.catalog.adapter import Adapter
from dlperf.stored import DAMAGED, decoded

_IGNORE = shutil.ignore_patterns("__pycache__", "*.pyc")
#: the digest of each file, beside the copy
LIST = "files.json"


def copy_code(folder: Path, adapters: Iterable[Adapter]) -> None:
    """Copy the worker side to `folder`/dlperf. An existing copy stays as it is, without what Python compiled of it."""
    package = folder / "dlperf"
    for compiled in list(folder.rglob("__pycache__")):
        shutil.rmtree(compiled, ignore_errors=True)
    if not package.exists():
        building = folder.with_name(folder.name + ".building")
        shutil.rmtree(building, ignore_errors=True)
        _copy(building / "dlperf", adapters)
        (building / LIST).write_text(json.dumps(_digests(building / "dlperf"), indent=1), encoding="utf-8")
        building.rename(folder)


def listed(folder: Path) -> str:
    """SHA-256 of the list of a copy, which has the digests of its files; empty for older copies, which have none."""
    try:
        return hashlib.sha256((folder / LIST).read_bytes()).hexdigest()
    except OSError:
        return ""


def changed(folder: Path, noted: str | None) -> list[str]:
    """The files of a copy that are not as they were copied, and those that were put beside it, where Python would find
    them, too; relative to it. noted: what `listed` gave then; None, as of older comparisons, if nobody knows."""
    if noted is not None and listed(folder) != noted:
        return [LIST]
    try:
        copied = msgspec.convert(decoded((folder / LIST).read_bytes()), dict[str, str])
    except FileNotFoundError:
        return []  # an older copy
    except (OSError, *DAMAGED):
        return [LIST]
    beside = [path.name for path in folder.iterdir() if path.name not in (LIST, "dlperf")]
    found = _digests(folder / "dlperf")
    odd = [f"dlperf/{name}" for name in copied.keys() | found.keys() if copied.get(name) != found.get(name)]
    return sorted(odd + beside)


def _digests(package: Path) -> dict[str, str]:
    """Of each file; a symbolic link, of which there are none, has none."""
    files = sorted(path for path in package.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(package)): _digest(path) for path in files}


def _digest(path: Path) -> str:
    return "" if path.is_symlink() or not path.is_file() else hashlib.sha256(path.read_bytes()).hexdigest()


def _copy(package: Path, adapters: Iterable[Adapter]) -> None:
    package.mkdir(parents=True)
    shutil.copy(Path(dlperf.__file__), package / "__init__.py")
    shutil.copytree(Path(dlperf.models.__file__).parent, package / "models", ignore=_IGNORE)
    worker_side = Path(dlperf.adapters.__file__).parent
    (package / "adapters").mkdir()
    for file in worker_side.glob("*.py"):
        shutil.copy(file, package / "adapters")
    for adapter in adapters:
        shutil.copytree(adapter.folder, package / "adapters" / adapter.name, ignore=_IGNORE)


def digest(package: Path, adapter: str) -> str:
    """SHA-256 over names and contents of the modules that one adapter's workers run: its own, and those they share."""
    shared = [*(package / "models").glob("*.py"), *(package / "adapters").glob("*.py")]
    files = [*shared, *(package / "adapters" / adapter).rglob("*.py")]
    return digest_of({file.relative_to(package): file.read_bytes() for file in files})


def digest_of(modules: Mapping[PurePath, bytes]) -> str:
    """The same of these modules' contents."""
    total = hashlib.sha256()
    for file, content in sorted(modules.items()):
        total.update(str(file).encode() + b"\0" + content + b"\0")
    return total.hexdigest()
