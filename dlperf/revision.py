"""Which dlperf this is: the commit of its checkout or, where it is none, the digest of its files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import dlperf
from dlperf.catalog.checkout import git

#: packages whose folders are beside dlperf's own in a checkout, and in it where dlperf is installed
BESIDE = ("adapters", "docker", "launchers", "models", "report")
CHANGED = " with changes"


def revision() -> str:
    """ "ebe69e0"; "ebe69e0 with changes" where files that git tracks differ from that commit; "sha256:0123456789ab", of
    the package's own files, where git does not track them, with changes where they are not as installed.
    """
    folder = Path(dlperf.__file__).parent
    tracked, _ = git(
        folder, "ls-files", "--error-unmatch", "--", "__init__.py"
    )  # not of a project that has it in .venv
    head, _ = git(folder, "rev-parse", "--short=7", "HEAD")
    changed, _ = git(folder, "status", "--porcelain", "--untracked-files=no")
    if tracked is None or head is None or changed is None:
        return f"sha256:{_digest([('.', folder), *_beside()])[:12]}{'' if _as_installed() else CHANGED}"
    return head + (CHANGED if changed else "")


def _as_installed() -> bool:
    """Whether what a wheel installed has the digests that its RECORD lists; a package without one is taken as it is."""
    try:
        files = metadata.files("dlperf") or ()
    except metadata.PackageNotFoundError:
        return True
    for file in files:
        if file.hash and file.suffix == ".py":
            try:
                found = hashlib.new(file.hash.mode, Path(str(file.locate())).read_bytes()).digest()
            except OSError:
                return False
            if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != file.hash.value:
                return False
    return True


def _beside() -> Iterator[tuple[str, Path]]:
    for name in BESIDE:
        found = find_spec(f"dlperf.{name}")
        assert found is not None, name
        yield from ((name, Path(place)) for place in found.submodule_search_locations or ())


def _digest(folders: Iterable[tuple[str, Path]]) -> str:
    """Over names and contents of all files but what Python compiled and reports that were published."""
    files = {
        (Path(name) / path.relative_to(folder)).as_posix(): path
        for name, folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not {"__pycache__", "published"} & set(path.relative_to(folder).parts)
    }
    total = hashlib.sha256()
    for file, path in sorted(files.items()):
        total.update(file.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
