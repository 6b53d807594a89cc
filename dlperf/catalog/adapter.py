"""An adapter: what it supports, its options, its environments and its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from dlperf.catalog.environment import EnvironmentSpec, ImageSpec
from dlperf.catalog.script import Imported, Script, Source
from dlperf.kind import IMPORTED, NATIVE, UPSTREAM, Kind
from dlperf.models import FAMILIES
from dlperf.precision import TABLE as PRECISIONS

DEVICES = ("cpu", "cuda")
INPUTS = ("synthetic", "native", "dali")
STATUSES = ("yes", "untested", "not_yet", "unavailable", "never")
#: statuses that run
RUNNABLE = frozenset(["yes", "untested"])


@dataclass(frozen=True)
class Tuned:
    """A value of an option with which a row is tuned, on CPUs that have all of `needs`, in some precisions."""

    value: str
    needs: tuple[str, ...]
    precision: tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """A switch of an adapter. `values[0]` is the default; `any` allows others; `family` empty means all.

    defaults: device -> value, where the default there is another, e.g. {"cuda": "on"}.
    labels: value -> what the system's name gets, e.g. {"on": "inductor"} makes "pytorch+inductor".
    environment: value -> variant of the environment that it needs, e.g. {"horovod": "horovod"} for "cpu-horovod".
    launcher: value -> launcher whose program that environment has, see Adapter.launchers.
    tuned: values with which a row is no longer as its framework is released, best first, see dlperf.planning.tuned.
    """

    name: str
    about: str
    values: tuple[str, ...]
    any: bool = False
    family: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: Mapping[str, str] = field(default_factory=dict)
    tuned: tuple[Tuned, ...] = ()

    def default(self, device: str) -> str:
        return self.defaults.get(device, self.values[0])

    def accepts(self, value: str) -> bool:
        return self.any or value in self.values


@dataclass(frozen=True)
class Support:
    """Whether some combinations run; `why` is printed in the cell of those that do not."""

    status: str
    why: str
    family: tuple[str, ...]
    device: tuple[str, ...]
    precision: tuple[str, ...]
    input: tuple[str, ...]

    def covers(self, family: str, device: str, precision: str, input: str) -> bool:
        return family in self.family and device in self.device and precision in self.precision and input in self.input


@dataclass(frozen=True)
class Distributed:
    """Whether several ranks train together on some devices; `why` as in Support."""

    status: str
    why: str
    device: tuple[str, ...]


@dataclass(frozen=True)
class Servers:
    """Whether parameter servers train some families, in some modes; `why` as in Support. mode: see PS_MODES of
    dlperf.adapters.api. options: values of the adapter's for which that is so."""

    status: str
    why: str
    family: tuple[str, ...]
    device: tuple[str, ...]
    mode: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    def covers(self, family: str, device: str, mode: str, options: Mapping[str, str]) -> bool:
        named = family in self.family and device in self.device and mode in self.mode
        return named and self.options.items() <= options.items()


@dataclass(frozen=True)
class Kernels:
    """What the wheel's matrix products and convolutions are in some precisions, on a device that has all of `needs`.

    needs: names as /proc/cpuinfo has them; of a GPU, its compute capability: sm_80. kernels: one of cpu.KERNELS.
    why: of those that are not native, for a reader of the report. options: values that they need of the adapter's.
    """

    family: tuple[str, ...]
    device: tuple[str, ...]
    precision: tuple[str, ...]
    needs: tuple[str, ...]
    kernels: str
    why: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def entry(self) -> dict[str, Any]:
        """As dlperf.adapters.cpu and job.json have it."""
        return {"needs": list(self.needs), "kernels": self.kernels, "why": self.why}


@dataclass(frozen=True)
class Adapter:
    """One framework's adapter. `folder` holds its adapter.toml, requirements and modules.

    families: those that it has a module, scripts or figures for.
    distribution: the packages that may bring the framework (tensorflow, tensorflow-cpu); one is installed.
    formats: input -> those of dlperf.models.FORMATS that its loaders read, the best first. images: by device. source,
    scripts: of an adapter whose training scripts are others' (an upstream system), by model. imported: of one that has
    figures alone. launchers: those that are not on PATH but in an environment (Launcher.in_environment), and are in
    this framework's. trains: False of one whose steps only sleep, so that its runs have nothing to prove. proven: False
    of one whose trainer hands out no tensors, so that no proof of its rows is tried.
    """

    name: str
    folder: Path
    title: str
    homepage: str
    distribution: tuple[str, ...]
    default: bool
    families: tuple[str, ...]
    environments: Mapping[str, EnvironmentSpec]
    support: Sequence[Support]
    options: Mapping[str, Option]
    distributed: Sequence[Distributed] = ()
    servers: Sequence[Servers] = ()
    formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    images: Mapping[str, ImageSpec] = field(default_factory=dict)
    source: Source | None = None
    scripts: Mapping[str, Script] = field(default_factory=dict)
    imported: Sequence[Imported] = ()
    kernels: Sequence[Kernels] = ()
    launchers: tuple[str, ...] = ()
    trains: bool = True
    proven: bool = True

    @property
    def kind(self) -> Kind:
        """Of its systems."""
        return IMPORTED if self.imported else UPSTREAM if self.scripts else NATIVE

    @property
    def provable(self) -> bool:
        """Whether its rows can be proven: their trainer hands out tensors."""
        return self.kind.proven and self.proven

    @property
    def devices(self) -> tuple[str, ...]:
        """Those on which anything of it runs, or ran."""
        found = {device for entry in self.support if entry.status in RUNNABLE for device in entry.device}
        found |= {one.device for one in self.imported}
        return tuple(device for device in DEVICES if device in found)

    def image(self, device: str, options: Mapping[str, str]) -> str:
        """The image that the option `image` chooses for a third-party script; empty for none."""
        named = self.images[device].named if device in self.images else {}
        chosen = options.get("image", "")
        return named.get(chosen, chosen) if named else ""

    def has_lock(self, key: str) -> bool:
        """Whether an environment can be made from a lock."""
        return key in self.environments and self.environments[key].lock.exists()

    def distributed_on(self, device: str) -> Distributed:
        """The one entry that covers a device."""
        for entry in self.distributed:
            if device in entry.device:
                return entry
        return Distributed("not_yet", "this adapter trains in one process", (device,))

    def servers_of(self, family: str, device: str, mode: str, options: Mapping[str, str] | None = None) -> Servers:
        """The first entry that covers a combination. options: as of `kernels_of`."""
        chosen = self._chosen(device, options)
        for entry in self.servers:
            if entry.covers(family, device, mode, chosen):
                return entry
        what = "has no parameter servers yet" if not self.servers else f"does not mention servers that are {mode}"
        return Servers("not_yet", f"this adapter {what}", (family,), (device,), (mode,))

    def support_of(self, family: str, device: str, precision: str, input: str) -> Support:
        """The one entry that covers a combination."""
        for entry in self.support:
            if entry.covers(family, device, precision, input):
                return entry
        why = "adapter.toml does not mention it" if family in self.families else "not implemented in this adapter yet"
        return Support("not_yet", why, (), (), (), ())

    def imported_of(self, model: str, device: str, precision: str) -> list[Imported]:
        """Its figures of all sizes."""
        asked = (model, device, precision)
        return [one for one in self.imported if (one.model, one.device, one.precision) == asked]

    def kernels_of(
        self, family: str, device: str, precision: str, options: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """What its kernels are, best first, as dlperf.adapters.cpu takes it; empty where nobody looked. options: of the
        row; default: the adapter's defaults."""
        chosen = self._chosen(device, options)
        return [
            one.entry
            for one in self.kernels
            if family in one.family and device in one.device and precision in one.precision
            if one.options.items() <= chosen.items()
        ]

    def _chosen(self, device: str, options: Mapping[str, str] | None) -> dict[str, str]:
        usual = {name: option.default(device) for name, option in self.options.items() if option.values}
        return {**usual, **(options or {})}

    def options_of(self, family: str) -> dict[str, Option]:
        return {name: option for name, option in self.options.items() if not option.family or family in option.family}

    def lacks_launcher(self, launcher: str, options: Mapping[str, str]) -> str:
        """Why the environment that these options need does not have a launcher's program; empty if it does."""
        settings = [
            f"{name}={value}"
            for name, option in self.options.items()
            for value, brought in option.launcher.items()
            if brought == launcher
        ]
        if launcher in self.launchers or any(f"{name}={value}" in settings for name, value in options.items()):
            return ""
        step = f"; --set {' or '.join(settings)} brings it" if settings else ""
        return f"its environment does not have the launcher {launcher}{step}"

    def environment_key(
        self, device: str, options: Mapping[str, str], input: str = "synthetic", on_servers: bool = False
    ) -> str:
        """The environment that these options and this input need on a device, whether there is one or not. For
        parameter servers an adapter may have one of their own."""
        variants = [self.options[name].environment.get(value) for name, value in options.items()]
        variants += ["dali"] if input == "dali" else []
        variants += ["servers"] if on_servers and f"{device}-servers" in self.environments else []
        return "-".join(dict.fromkeys([device, *filter(None, variants)]))


def combinations() -> Iterator[tuple[str, str, str, str]]:
    """Every (family, device, precision, input); a family that reads no folder has synthetic input alone."""
    for name, family in FAMILIES.items():
        yield from product([name], DEVICES, PRECISIONS, INPUTS if family.INPUT else INPUTS[:1])
