"""A Docker engine of our own for tests and for trying things out: its daemon, its images and its socket in one folder.

    with Bed(folder) as bed:
        subprocess.run(["docker", "ps"], env={**os.environ, **bed.environment})
        bed.base("3.11")    # "dlperf-test/base:3.11", from Debian's packages

`python bed.py FOLDER` holds one until Ctrl-C. Needs root, and what install.sh installs. The daemon has no bridge and no
rules of iptables, so that nothing of this machine changes: containers have no network, or the machine's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from dlperf.envs import pythons
from dlperf.errors import handle_signals

PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
PROGRAMS = ("dockerd", "docker", "debootstrap")
#: Debian's release, and the Python that it has
RELEASE, DEBIAN = "bookworm", "3.11"
#: seconds; a start takes about two here
PATIENCE = 60


def missing() -> str:
    """Why there can be no engine here, or nothing."""
    if os.geteuid():
        return "images are built as root only: run `make test-images` as root"
    lacks = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    return f"{', '.join(lacks)} not installed: `make test-images` installs them" if lacks else ""


class Bed:
    """The daemon, from entering to leaving. A folder that was used before keeps its images."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.environment = {"DOCKER_HOST": f"unix://{self.folder}/docker.sock", "PATH": PATH}

    def __enter__(self) -> Bed:
        self.folder.mkdir(parents=True, exist_ok=True)
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        words = [word for flag, name in places.items() for word in (f"--{flag}", str(self.folder / name))]
        words += ["--host", self.environment["DOCKER_HOST"], "--bridge=none", "--iptables=false"]
        with open(self.folder / "dockerd.log", "wb") as log:
            # it ends with whoever started it, however that ends
            command = ["setpriv", "--pdeathsig", "TERM", "dockerd", *words, "--storage-driver", "overlay2"]
            self._daemon = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PATH": PATH}, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE
        answers = False
        while not answers:
            time.sleep(0.2)
            mine = (self.folder / "pid").exists() and (self.folder / "pid").read_text() == str(self._daemon.pid)
            ended = subprocess.run(["docker", "ps"], env=self._environ, capture_output=True)
            answers = mine and ended.returncode == 0  # and not one that was in the folder before
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"dockerd did not start: {(self.folder / 'dockerd.log').read_text()[-2000:]}")
        return self

    def __exit__(self, *raised: object) -> None:
        """The daemon ends its containers and containerd; what it does not end in time is killed with its session."""
        self._daemon.send_signal(signal.SIGTERM)
        try:
            self._daemon.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._daemon.pid, signal.SIGKILL)
            self._daemon.wait()
        # it leaves these mounted
        for held in (*(self.folder / "exec" / "netns").glob("*"), self.folder / "data"):
            subprocess.run(["umount", "--lazy", str(held)], check=False, capture_output=True)

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def docker(self, *words: str) -> str:
        """What a command of the client prints."""
        asked = subprocess.run(["docker", *words], env=self._environ, capture_output=True, text=True, timeout=300)
        assert asked.returncode == 0, asked.stderr
        return asked.stdout

    def base(self, python: str) -> str:
        """The reference of an image with this Python, made of Debian's packages, or of this machine's Python."""
        name = f"dlperf-test/base:{python}"
        if not self.docker("images", "--quiet", name).strip():
            root = self._root()
            if python == DEBIAN:
                self._import(root, name)
            else:
                self._with_python(root, python, name)
        return name

    def _root(self) -> Path:
        """The files of a small Debian with its Python."""
        root = self.folder / "root"
        if not (root / "whole").exists():
            shutil.rmtree(root, ignore_errors=True)
            # the last two are what the images of MXNet and PaddlePaddle ask apt for, if their base lacks them
            include = "--include=ca-certificates,python3,python3-venv,libgomp1,libquadmath0"
            command = ["debootstrap", "--variant=minbase", include, RELEASE, str(root)]
            with open(self.folder / "debootstrap.log", "wb") as log:
                subprocess.run(
                    command, env={**os.environ, "PATH": PATH}, stdout=log, stderr=log, check=True, timeout=600
                )
            shutil.rmtree(root / "var/cache/apt/archives")
            (root / "whole").touch()
        return root

    def _import(self, root: Path, name: str) -> None:
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packed:
            command = ["docker", "import", "-", name]
            subprocess.run(
                command, stdin=packed.stdout, env=self._environ, check=True, capture_output=True, timeout=300
            )

    def _with_python(self, root: Path, python: str, name: str) -> None:
        """Copy this machine's own (pyenv's or uv's, which is one folder) to the same place."""
        found = pythons.find([python]).path
        ask = [str(found), "-c", "import sys; print(sys.base_prefix)"]
        prefix = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
        assert prefix not in (Path("/usr"), Path("/usr/local")), f"{found} is not of pyenv or uv"
        # Not in the home folder of root, into which a container's user may not look. So its library is not where the
        # program says, and is found where all are.
        there = root / "opt" / prefix.name
        library = f"libpython{python}.so.1.0"
        links = {
            root / "usr/local/bin" / f"python{python}": f"/opt/{prefix.name}/bin/python{python}",
            root / "usr/lib" / f"{os.uname().machine}-linux-gnu" / library: f"/opt/{prefix.name}/lib/{library}",
        }
        try:
            skip = shutil.ignore_patterns("test", "__pycache__", "*.a")
            shutil.copytree(prefix, there, symlinks=True, ignore=skip)
            for link, target in links.items():
                link.symlink_to(target)
            self._import(root, name)
        finally:
            shutil.rmtree(there, ignore_errors=True)
            for link in links:
                link.unlink(missing_ok=True)


def main(folder: str) -> None:
    with Bed(Path(folder)) as bed:
        print(f"export DOCKER_HOST={bed.environment['DOCKER_HOST']}", flush=True)
        signal.pause()


if __name__ == "__main__":
    handle_signals()
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
