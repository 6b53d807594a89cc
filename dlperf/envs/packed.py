"""Environments as one file, for machines that have no network: with the Pythons that they were made from, unless those
are the system's."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlperf import cache
from dlperf.catalog.adapter import Adapter
from dlperf.envs import pythons
from dlperf.envs.changes import COMPILED
from dlperf.envs.environment import Note
from dlperf.envs.explain import gigabytes
from dlperf.envs.guard import discard, guard
from dlperf.envs.target import MARKER, marker_of, target_of
from dlperf.errors import RunError

#: the last member of the file: by environment, its Python's path in the file, "" for the system's, and its version
CONTENTS = "contents.json"
#: folders of Pythons that belong to the system: these are not packed
SYSTEMS = (Path("/usr"), Path("/usr/local"))
#: an environment's links to its Python; and what was installed beside that, which environments do not see
UNNEEDED = re.compile(r"envs/[^/]+/bin/python[\d.]*$|pythons/[^/]+/lib/python[\d.]+/site-packages/.")


def pack(pairs: Sequence[tuple[Adapter, str]], file: Path, say: Note) -> None:
    """Write environments that are made into a new file. RunError where one is not, or the file is there."""
    if file.exists():
        raise RunError("environment", f"{file} is there already; name another file")
    folders = [target_of(adapter, key).folder for adapter, key in pairs]
    missing = [f"{one.name} {key}" for (one, key), folder in zip(pairs, folders, strict=True) if not marker_of(folder)]
    if missing:
        raise RunError("environment", f"not made: {', '.join(missing)}. Make them: python -m dlperf.envs install")
    part = file.with_name(file.name + ".part")
    contents: dict[str, tuple[str, str]] = {}
    prefixes: dict[str, Path] = {}
    try:
        with tarfile.open(part, "w") as tar:
            for folder in folders:
                python = Path(os.path.realpath(folder / "bin" / "python"))
                prefix = python.parent.parent
                inside = "" if prefix in SYSTEMS else f"pythons/{prefix.name}/bin/{python.name}"
                prefixes |= {prefix.name: prefix} if inside else {}
                contents[folder.name] = inside, marker_of(folder)["python"]
                tar.add(folder, f"envs/{folder.name}", filter=_kept)
                say(f"{folder.name}: packed, with {'Python ' + contents[folder.name][1] if inside else 'no Python'}")
            for name, prefix in prefixes.items():
                tar.add(prefix, f"pythons/{name}", filter=_kept)
            _note(tar, contents)
        os.rename(part, file)
    except OSError as error:
        raise RunError("environment", f"{error.filename or part}: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
    say(f"{file}: {gigabytes(file.stat().st_size)}")


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Of no owner; without what Python compiled, and what is not needed."""
    if COMPILED in member.name.split("/") or UNNEEDED.match(member.name):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _note(tar: tarfile.TarFile, contents: Mapping[str, tuple[str, str]]) -> None:
    with tempfile.TemporaryFile() as told:
        told.write(json.dumps(contents).encode())
        member = tarfile.TarInfo(CONTENTS)
        member.size = told.tell()
        told.seek(0)
        tar.addfile(member, told)


def unpack(file: Path, say: Note) -> None:
    """Put what `pack` wrote where environments are. RunError where it is not that, or a Python is missing."""
    root = cache.folder()
    root.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=root))
    try:
        with tarfile.open(file, "r|") as tar:
            tar.extractall(place, filter="data")  # nothing outside of the folder
        contents = _contents(place / CONTENTS)
        for folder in sorted((place / "pythons").glob("*")):
            _replace(folder, root / "pythons" / folder.name)
        for name, (inside, version) in contents.items():
            _place(place / "envs" / name, root / "envs" / name, inside and root / inside, version)
            say(f"{name}: ready in {root / 'envs' / name}")
    except (tarfile.TarError, EOFError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise RunError("environment", f"{file}: not what `python -m dlperf.envs pack` wrote ({error})") from None
    except OSError as error:
        raise RunError("environment", f"{error.filename or file}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _contents(path: Path) -> dict[str, tuple[str, str]]:
    """See CONTENTS. ValueError, or what json and indexing raise, where it is damaged."""
    try:
        told = {str(name): (str(one[0]), str(one[1])) for name, one in json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        raise ValueError("its list of contents is missing: it was cut off") from None
    for name, (inside, _) in told.items():
        if not re.fullmatch(r"[\w+-][\w.+-]*", name) or not re.fullmatch(
            r"(pythons/[\w+-][\w.+-]*/bin/[\w.+-]+)?", inside
        ):
            raise ValueError(f"{name!r} and {inside!r} are not what it names")
    return told


def _replace(made: Path, folder: Path) -> None:
    """A Python: other environments may use the one that is there."""
    folder.parent.mkdir(exist_ok=True)
    if not folder.exists():
        os.rename(made, folder)


def _place(made: Path, folder: Path, python: Path | str, version: str) -> None:
    """An environment, linked to its Python."""
    found = pythons.interpreter(str(python)) if python else pythons.at_hand([pythons.minor(version)])
    if found is None:
        what = "its Python does not run on this machine" if python else f"no Python {pythons.minor(version)} is here"
        raise RunError("environment", f"{folder.name}: {what}")
    for name in ("python", "python3", f"python{pythons.minor(version)}"):
        (made / "bin" / name).symlink_to(found.path if name == "python" else "python")
    settings = (made / "pyvenv.cfg").read_text(encoding="utf-8")
    settings = re.sub(r"(?m)^home = .*$", lambda _: f"home = {found.path.parent}", settings)
    (made / "pyvenv.cfg").write_text(settings, encoding="utf-8")
    os.utime(made / MARKER)  # files that are newer would be changes
    folder.parent.mkdir(exist_ok=True)
    with guard(folder, busy=lambda: _refuse(folder)):
        discard(folder)
        os.rename(made, folder)


def _refuse(folder: Path) -> None:
    raise RunError("environment", f"{folder.name}: another process is making it; wait for that, or end it")
