"""What an environment has that is built from source."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from dlperf.catalog.locks import Requirement, read
from dlperf.envs.explain import explained, not_built
from dlperf.envs.making import Making
from dlperf.envs.target import Target

if TYPE_CHECKING:
    from dlperf.catalog.environment import SourceBuild

#: programs that a source build starts, and their Debian packages
TOOLS = {"make": "make", "g++": "g++"}
#: arguments: a file, what it must contain, and what takes its place
REPLACE = (
    "import pathlib, sys; file, old, new = sys.argv[1:]; file = pathlib.Path(file); text = file.read_text(); "
    "old in text or sys.exit(f'{file} has no {old!r} to replace'); file.write_text(text.replace(old, new))"
)


def built_package(build: SourceBuild) -> Requirement:
    """The one package that is built from source."""
    return read(build.lock)[0]


def check_tools(target: Target) -> None:
    """RunError if the machine cannot build from source; said before anything is downloaded."""
    missing = [tool for tool in TOOLS if target.spec.build and shutil.which(tool) is None]
    if missing and target.spec.build:
        what = f"{built_package(target.spec.build)} is built from source, and {' and '.join(missing)} is not on PATH"
        raise target.error(f"{what}. Install it: apt-get install {' '.join(TOOLS[tool] for tool in missing)}")


def build_commands(target: Target) -> list[list[str]]:
    """The commands that fetch, unpack, change, build and install what comes from source; none if nothing does.

    pip can't look for anything then: what the build needs is in the lock.
    """
    build = target.spec.build
    if build is None:
        return []
    package, folder = built_package(build), str(target.building / "source")
    packed = re.sub("[-_.]+", "_", package.name) + f"-{package.version}.tar.gz"  # PEP 625
    python = str(target.building / "bin" / "python")
    fetch = ["--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--progress-bar", "off"]
    variables = [f"{name}={_in_building(target, value)}" for name, value in build.variables.items()]
    return [
        [python, "-I", "-m", "pip", "download", *fetch, "--dest", folder, "-r", str(build.lock)],
        ["tar", "-xzf", f"{folder}/{packed}", "-C", folder, "--strip-components", "1"],
        *([python, "-I", "-c", REPLACE, f"{folder}/{one.file}", one.old, one.new] for one in build.replace),
        [
            "env",
            *variables,
            python,
            "-I",
            "-m",
            "pip",
            "install",
            "--no-build-isolation",
            "--no-deps",
            "--no-index",
            folder,
        ],
        ["rm", "-r", folder],
    ]


def _in_building(target: Target, value: str) -> str:
    return value.replace("{bin}", str(target.building / "bin"))


def build_source(making: Making) -> None:
    """Build without the user's variables: his CXXFLAGS or HOROVOD_GPU_OPERATIONS would make another environment."""
    fetch, *others = build_commands(making.target)
    environ = making.session.sources().for_pip()
    code, lines = making.run(fetch, environ)
    if code:
        raise explained(making.target, lines, "pip failed")
    kept = {name: environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in environ}
    for command in others:
        code, lines = making.run(command, kept)
        if code:
            raise not_built(making.target, lines)
