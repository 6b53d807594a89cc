"""What an adapter's environments and images are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: architectures that locks are made for, as platform.machine() has them
MACHINES = ("x86_64", "aarch64")


def gpu_kernels(capabilities: Sequence[str]) -> list[dict[str, Any]]:
    """Kernels and PTX as entries of dlperf.adapters.cpu.kernels; none where nobody looked."""
    if not capabilities:
        return []
    why = f"its wheels have kernels for {', '.join(capabilities)} only"
    found = [{"needs": [one], "kernels": "native", "why": ""} for one in capabilities]
    return [*found, {"needs": [], "kernels": "none", "why": why}]


@dataclass(frozen=True)
class Replacement:
    """A change of one file of a source distribution: each `old` becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class SourceBuild:
    """A package that is built from source in an environment whose lock is installed.

    lock: names it, with the hash of its source distribution. variables: set for the build.
    """

    lock: Path
    variables: Mapping[str, str]
    replace: tuple[Replacement, ...]


@dataclass(frozen=True)
class EnvironmentSpec:
    """How an environment of an adapter is made.

    key: its device, with a variant that some option asks for: "cpu", "cuda", "cpu-horovod". python: minor versions,
    best first. extra_index: where pip also looks if the usual index lacks a package. variables: set for every worker;
    `{site_packages}` stands for the environment's. build: what its lock cannot bring. machines: of MACHINES, those that
    its lock serves. unavailable: why the framework has nothing for another of them. gigabytes: on disk, as
    `python -m dlperf.envs list` has it; None where nobody looked. memory: of its runs, over what
    dlperf.comparison.estimate expects. capabilities: of GPUs, what its wheels have: sm_90, kernels; compute_90, PTX;
    empty where nobody looked. cuda: the major version that they are of. otherwise: what runs on GPUs that came after
    these.
    """

    key: str
    python: tuple[str, ...]
    lock: Path
    extra_index: tuple[str, ...] = ()
    variables: Mapping[str, str] | None = None
    build: SourceBuild | None = None
    machines: tuple[str, ...] = MACHINES[:1]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    gigabytes: float | None = None
    memory: float = 1.0
    capabilities: tuple[str, ...] = ()
    cuda: int | None = None
    otherwise: str = ""

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """What it has for GPUs."""
        return gpu_kernels(self.capabilities)

    def lacks(self, machine: str) -> str:
        """Why there is nothing to install on a machine of this architecture; empty if there is."""
        if machine in self.machines:
            return ""
        ours = f"{self.key} is locked for {' and '.join(self.machines)} only; this machine is {machine or 'of no name'}"
        return self.unavailable.get(machine, ours)

    @property
    def locks(self) -> tuple[Path, ...]:
        return (self.lock, self.build.lock) if self.build else (self.lock,)


@dataclass(frozen=True)
class ImageSpec:
    """Of a device's image. ngc: NVIDIA's, which --image ngc means; may be empty. packages: Debian's, for libraries that
    the wheels leave to the system. named: those that others' scripts run in, by the values of the option `image`.
    capabilities, cuda: of NVIDIA's, as in EnvironmentSpec."""

    ngc: str = ""
    packages: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    cuda: int | None = None

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """What NVIDIA's has for GPUs."""
        return gpu_kernels(self.capabilities)
