"""Builds images from the wheels of an environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from dlperf import __version__
from dlperf.catalog import locks
from dlperf.catalog.adapter import Adapter
from dlperf.docker import dockerfile, engine
from dlperf.docker.dockerfile import BASES, FOLDER, PREFIX
from dlperf.shell import quote

#: builder -> the engine that has its images
BUILDERS = {"docker": "docker", "buildah": "podman", "podman": "podman"}


def labels(adapter: Adapter, key: str, base: str) -> dict[str, str]:
    """What an image says of itself. Given on the command line, so that a new revision does not build again."""
    lock = adapter.environments[key].lock
    packages = [one for one in locks.read(lock) if one.name in adapter.distribution]
    return {
        "dlperf.adapter": adapter.name,
        "dlperf.device": key,
        "dlperf.lock": "sha256:" + hashlib.sha256(lock.read_bytes()).hexdigest(),
        "dlperf.python": adapter.environments[key].python[0],
        "dlperf.versions": ", ".join(map(str, packages)),
        "dlperf.base": base,
        "dlperf.version": __version__,
        "org.opencontainers.image.revision": _revision(),
        "org.opencontainers.image.title": f"{adapter.title} for dlperf, {key}",
    }


def _revision() -> str:
    """Of the source that builds, or "unknown"."""
    with suppress(OSError, subprocess.TimeoutExpired):
        command = [
            "git",
            "-C",
            str(Path(__file__).parent),
            "describe",
            "--always",
            "--dirty",
            "--abbrev=40",
            "--exclude=*",
        ]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=10)
        return asked.stdout.strip() or "unknown"
    return "unknown"


def command(builder: str, adapter: Adapter, key: str, wheels: Path, base: str = "") -> list[str]:
    """The builder's command, with the Dockerfile on its standard input. wheels: the folder that it builds from."""
    shown = base or BASES.get(adapter.environments[key].python[0], "")
    words = [builder, "build", "--file", "-", "--tag", dockerfile.name(adapter, key)]
    # apt may be asked: by the machine's network, as a daemon need not have another
    words += ["--network", "host" if dockerfile.packages(adapter, key) else "none"]
    words += ["--progress", "plain"] if builder == "docker" else ["--layers"]
    words += ["--build-arg", f"BASE={base}"] if base else []
    for label, value in labels(adapter, key, shown).items():
        words += ["--label", f"{label}={value}"]
    return [*words, str(wheels)]


def shell(builder: str, adapter: Adapter, key: str, wheels: Path, base: str = "") -> str:
    """The same, as a line for a shell."""
    words = " ".join(map(quote, command(builder, adapter, key, wheels, base)))
    kit = "DOCKER_BUILDKIT=1 " if builder == "docker" else ""
    file = FOLDER / f"{adapter.name}.{key}.Dockerfile"
    text = dockerfile.text(adapter, key)
    source = f"< {quote(os.path.relpath(file))}" if file.exists() else f"<<'END'\n{text}END"
    return f"{kit}{words} {source}"


def program(builder: str) -> str:
    """The program of a builder that can build. RunError says what is missing, before anything is downloaded."""
    found = _docker_with_buildkit() if builder == "docker" else builder
    if shutil.which(found) is None:
        raise engine.missing(builder, "choose another --builder")
    if builder != "buildah":
        list(engine.local(builder, PREFIX))  # whether it answers
    return found


def build(program: str, builder: str, adapter: Adapter, key: str, wheels: Path, base: str) -> None:
    """Build an image. RunError says what went wrong."""
    lines = []
    with subprocess.Popen(
        [program, *command(builder, adapter, key, wheels, base)[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(dockerfile.text(adapter, key))
                process.stdin.close()
            lines = [line.rstrip() for line in process.stdout]
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        shown = base or BASES.get(adapter.environments[key].python[0], "its base image")
        raise engine.explained(BUILDERS[builder], shown, "\n".join(lines), f"{adapter.name} {key}")


def _docker_with_buildkit() -> str:
    """The first docker on PATH that builds with BuildKit: by its plug-in buildx, or, before version 23, by itself."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = [path for path in dict.fromkeys(str(Path(folder, "docker")) for folder in folders if folder)]
    there = [path for path in found if os.access(path, os.X_OK)]
    if not there:
        raise engine.missing("docker", "choose another --builder")
    for path in there:
        if engine.call(path, "buildx", "version").returncode == 0:
            return path
        version = engine.call(path, "--version").stdout
        major = version.partition("version ")[2].partition(".")[0]
        if major.isdigit() and 18 < int(major) < 23:
            return path
    raise engine.explained("docker", "", "buildx component is missing", " and ".join(there))
