"""What a framework's processes live in, and where environments are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf.envs import changes
from dlperf.launchers.containers import Container

if TYPE_CHECKING:
    from dlperf.catalog.environment import EnvironmentSpec

Note = Callable[[str], None]


def silent(line: str) -> None:
    """Note that nobody reads."""


@dataclass(frozen=True)
class Environment:
    """An environment that is ready to use.

    key: device, or device and variant: "cpu", "cpu-horovod". kind: which of dlperf.envs.kinds.KINDS it is: "venv",
    "current", "docker", "podman" or "apptainer"; "none" where there is none. python: its interpreter. digest: of what
    defines it: locks, source build, Python version, recipe; for "current" of the names and versions installed; of an
    image its own; and of files that were changed since. folder: None but for "venv". variables: to be set for every
    worker. image: its reference, or file; empty but for containers. public: the digest by which its registry has the
    image. emulated: the CPU that qemu-user emulates for its workers. changed: see dlperf.envs.changes.
    """

    adapter: str
    key: str
    kind: str
    python: Path
    python_version: str
    digest: str
    folder: Path | None
    variables: Mapping[str, str]
    image: str = ""
    public: str = ""
    emulated: str = ""
    changed: tuple[str, ...] = ()

    @property
    def stored(self) -> dict[str, str]:
        """What records and certificates say of it."""
        emulated = {"emulated_cpu": self.emulated} if self.emulated else {}
        image = {"image": self.image, "image_public_digest": self.public} if self.image else {}
        changed = {"changed": changes.named(self.changed)} if self.changed else {}
        return {"kind": self.kind, "python": self.python_version, "digest": self.digest, **image, **emulated, **changed}

    @property
    def engine(self) -> str:
        """Of its containers; empty if it has none."""
        return self.kind if self.image else ""

    def container(self, device: str, arguments: Mapping[str, str], data: str | None = None) -> Container | None:
        """What its workers run in. arguments: --container-arg. data: a folder to read."""
        return Container(self.kind, self.image, device, data or "", arguments) if self.image else None


def none(adapter: str, key: str) -> Environment:
    """For what runs in none, or in one that is not made here."""
    return Environment(adapter, key, "none", Path("python3"), "", "", None, {})


NO_IMAGES: Mapping[str, str] = {}


def variables_of(spec: EnvironmentSpec, packages: Path) -> dict[str, str]:
    given = spec.variables or {}
    return {name: value.replace("{site_packages}", str(packages)) for name, value in given.items()}


def installed() -> dict[str, str]:
    """The packages of the running Python, by name in small letters with hyphens, and their versions."""
    import importlib.metadata

    return {
        (one.metadata["Name"] or "").lower().replace("_", "-"): one.version
        for one in importlib.metadata.distributions()
    }
