"""Checkouts of training scripts that are others': given by --source, checked against the commit that an adapter was
written for, and copied to where a comparison keeps the code that ran. Nothing of them is kept in dlperf."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from dlperf.catalog.adapter import Adapter
from dlperf.catalog.script import Source
from dlperf.errors import Problem, RunError

#: in a comparison's folder, one folder for each adapter
FOLDER = "source"


def folders(adapter: Adapter, models: Iterable[str]) -> list[str]:
    """What of its repository an adapter's scripts for some models need."""
    return sorted({adapter.scripts[model].folder for model in models if model in adapter.scripts})


def problem(adapter: Adapter, folder: Path, models: Iterable[str]) -> Problem | None:
    """Why a folder is no clean checkout of what the adapter runs for some models, and what to do; None if it is.
    What the scripts do not need may have changed."""
    source = _source(adapter)
    if not os.path.isdir(folder):
        return Problem("--source", folder, says=f"there is no such folder. Make it: {source.checkout}")
    top, said = git(folder, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != folder.resolve():
        why = said or f"it is part of the checkout {top}, not a checkout of {source.repository}."
        return Problem("--source", folder, says=f"{why} Make one: {source.checkout}")
    head, said = git(folder, "rev-parse", "HEAD")
    asked = _resolved(folder, source.commit)
    if head is None or head != asked:
        fetch = "" if asked else f"git -C {folder} fetch {source.repository} {source.commit} && "
        at = f"it is at {head}, not at {source.commit}." if head else said
        return Problem("--source", folder, says=f"{at} Run: {fetch}git -C {folder} checkout {source.commit}")
    changed, said = git(folder, "status", "--porcelain", "--untracked-files=no", "--", *folders(adapter, models))
    if changed is None or changed:
        first = (changed or said).splitlines()[0].strip()
        step = f"Keep them with git -C {folder} stash, or make a new checkout."
        return Problem("--source", folder, says=f"it has changes ({first}). {step}")
    return None


def _source(adapter: Adapter) -> Source:
    assert adapter.source is not None, f"{adapter.name} has scripts of its own"
    return adapter.source


def _resolved(folder: Path, commit: str) -> str | None:
    """The hash of a commit, tag or branch; None if the checkout has none such."""
    names = (commit, f"origin/{commit}")
    found = (git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")[0] for name in names)
    return next((one for one in found if one), None)


def head(folder: Path) -> str:
    """The commit of a checkout."""
    return git(folder, "rev-parse", "HEAD")[0] or ""


def git(folder: Path, *words: str) -> tuple[str | None, str]:
    """What git says on standard output; or None, and its error as a sentence."""
    try:
        ended = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, env=_environ())
    except OSError as error:
        return None, f"git cannot be run: {error.strerror}."
    if ended.returncode:
        return None, (ended.stderr.strip().splitlines() or ["git fails"])[0].rstrip(".") + "."
    return ended.stdout.strip(), ""


def _environ() -> dict[str, str]:
    """Without what names another repository, as in a hook of git."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def copy(adapter: Adapter, checkout: Path, target: Path, models: Iterable[str]) -> None:
    """Put what the adapter's scripts for some models need of its commit into `target`, edited as adapter.toml says.
    RunError if the checkout has no such folder, or an edit finds nothing to replace."""
    source, needed = _source(adapter), folders(adapter, models)
    exactly = ["-c", "tar.umask=0", "-c", "core.autocrlf=false"]  # whatever the user has set
    words = ["git", "-C", str(checkout), *exactly, "archive", "--format=tar", source.commit, "--", *needed]
    made = subprocess.run(words, capture_output=True, env=_environ())
    if made.returncode:
        said = made.stderr.decode(errors="replace").strip()
        raise RunError("environment", f"{checkout} cannot be copied: {said}")
    building = target.with_name(target.name + ".building")
    shutil.rmtree(building, ignore_errors=True)
    _unpack(made.stdout, building)
    _edit(source, building, needed)
    building.rename(target)


def _unpack(tar: bytes, folder: Path) -> None:
    """Write the files of a commit, and its links after them, so that nothing is written through a link. RunError if
    one would lead out of the folder. By hand, because tarfile checks neither before Python 3.11.4."""
    folder.mkdir(parents=True)
    links: list[tuple[Path, str]] = []
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            place = _inside(folder, member.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                links.append((place, member.linkname))
            elif content := archive.extractfile(member):
                place.write_bytes(content.read())
                place.chmod(0o755 if member.mode & 0o100 else 0o644)
            else:
                place.mkdir(exist_ok=True)
    for place, target in links:
        place.symlink_to(target)
    for place, _ in links:
        _inside(folder, place)


def _inside(folder: Path, name: str | Path) -> Path:
    place = folder / name
    if not place.resolve().is_relative_to(folder.resolve()):
        raise RunError("environment", f"{name} of the checkout leads out of it, to {place.resolve()}: not copied")
    return place


def _edit(source: Source, folder: Path, needed: Iterable[str]) -> None:
    for name, other in source.copies.items():
        if _within(name, needed):
            if not (folder / name).is_file():
                raise RunError("environment", f"there is no {name} at {source.short} to copy")
            shutil.copyfile(folder / name, _inside(folder, other))
    for change in source.replace:
        if not _within(change.file, needed):
            continue
        file = folder / change.file
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if change.old not in text:
            raise RunError("environment", f"{change.file} at {source.short} has no text {change.old!r} to replace")
        file.write_text(text.replace(change.old, change.new), encoding="utf-8")


def edited(adapter: Adapter, model: str) -> Iterable[str]:
    """Files of a model's script that are edited."""
    needed = folders(adapter, [model])
    changed = dict.fromkeys(change.file for change in _source(adapter).replace)
    return [file for file in changed if _within(file, needed)]


def _within(file: str, needed: Iterable[str]) -> bool:
    return any(folder == "." or file.startswith(folder + "/") for folder in needed)
