"""Debian for arm64 in a folder, whose Python runs here under qemu. Needs what install.sh installs, and root.

Nothing is registered, mounted or left running: qemu is given the program, and the folder that has its libraries. So
what runs there starts no other program of that folder, and a worker starts none. The packages are unpacked, not
configured: that would run Debian's scripts under qemu for minutes, and Python needs nothing that they make.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

#: Debian's release, and the Python that it has
RELEASE, PYTHON = "bookworm", "3.11"
PROGRAMS = ("qemu-aarch64-static", "debootstrap", "dpkg-deb")
PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def missing() -> str:
    """Why there can be no such Debian here, or nothing."""
    if os.geteuid():
        return "debootstrap works as root only: run `make test-arm` as root"
    lacks = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    return f"{', '.join(lacks)} not installed: `make test-arm` installs them" if lacks else ""


class Debian:
    """A folder with Debian, made first if need be, and the frameworks' packages beside it."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.root = self._once("debian", self._install)

    @property
    def python(self) -> list[str]:
        """The command that stands for its Python."""
        return ["qemu-aarch64-static", "-L", str(self.root), str(self.root / "usr/bin" / f"python{PYTHON}")]

    def packages(self, name: str, lock: Path) -> Path:
        """A folder with the wheels of a lock for Arm, unpacked. Hashes are checked."""
        target = ["--python-version", PYTHON, "--python-platform", "aarch64-manylinux_2_28", "--target"]
        checked = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
        uv = [sys.executable, "-m", "uv", "pip", "install", *checked, *target]
        return self._once(name, lambda folder: self._call(*uv, str(folder), "-r", str(lock)))

    def _install(self, root: Path) -> None:
        options = ["--arch=arm64", "--foreign", "--variant=minbase", "--include=python3"]
        self._call("debootstrap", *options, RELEASE, str(root))
        for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
            self._call("dpkg-deb", "--extract", str(package), str(root))

    def _once(self, name: str, make: Callable[[Path], None]) -> Path:
        """A folder that is there whole, or not at all."""
        done, building = self.folder / name, self.folder / f".building-{name}"
        if not done.exists():
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir(parents=True)
            make(building)
            building.rename(done)
        return done

    def _call(self, *words: str) -> None:
        with open(self.folder / "log", "ab") as log:
            subprocess.run(words, env={**os.environ, "PATH": PATH}, stdout=log, stderr=log, check=True, timeout=900)
