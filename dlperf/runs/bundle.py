"""The code that a run uses: a copy inside the run's folder, so that every run keeps the code that ran."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import dlperf.models
from dlperf.catalog.adapter import Adapter

_IGNORE = shutil.ignore_patterns("__pycache__", "*.pyc")
#: the digest of each file, beside the copy
LIST = "files.json"


def copy_code(folder: Path, adapters: Iterable[Adapter]) -> None:
    """Copy the worker side to `folder`/dlperf. An existing copy stays as it is."""
    package = folder / "dlperf"
    if not package.exists():
        building = folder.with_name(folder.name + ".building")
        shutil.rmtree(building, ignore_errors=True)
        _copy(building / "dlperf", adapters)
        (building / LIST).write_text(json.dumps(_digests(building / "dlperf"), indent=1), encoding="utf-8")
        building.rename(folder)


def changed(folder: Path) -> list[str]:
    """The files of a copy that are not as they were copied, relative to it; older copies tell nothing."""
    try:
        copied = json.loads((folder / LIST).read_text(encoding="utf-8"))
    except OSError:
        return []
    except ValueError:
        return [LIST]
    found = _digests(folder / "dlperf")
    return sorted(f"dlperf/{name}" for name in copied.keys() | found.keys() if copied.get(name) != found.get(name))


def _digests(package: Path) -> dict[str, str]:
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {str(path.relative_to(package)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


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
    total = hashlib.sha256()
    for file in sorted([*shared, *(package / "adapters" / adapter).rglob("*.py")]):
        total.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()
