"""The adapters there are, read from their adapter.toml: environments, support, options. Imports no framework.

An adapter is a folder beside this package's other adapters, or in a folder named by DLPERF_ADAPTERS (several, with a
colon between).
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import dlperf.adapters
from dlperf import launchers
from dlperf.adapters import cpu, gpu
from dlperf.adapters.api import PS_MODES
from dlperf.catalog import keys
from dlperf.catalog.adapter import (
    DEVICES,
    INPUTS,
    RUNNABLE,
    STATUSES,
    Adapter,
    Distributed,
    Kernels,
    Option,
    Servers,
    Support,
    Tuned,
)
from dlperf.catalog.environment import MACHINES, EnvironmentSpec, ImageSpec, SourceBuild
from dlperf.catalog.foreign import Foreign, replacements
from dlperf.catalog.tables import listed
from dlperf.errors import Problem, UsageError
from dlperf.models import FAMILIES, FAMILY_OF, FORMATS, PROBLEMS
from dlperf.precision import TABLE as PRECISIONS

REASON = "missing; give the reason, which the report shows."

#: adapter.toml is no longer than this
LONGEST = 2**20
#: of an adapter's folder, which is a module, an option's value and part of file names
NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def _complain(warning: str) -> None:
    print(warning, file=sys.stderr)


def adapters(named: Iterable[str] = (), warn: Callable[[str], None] = _complain) -> dict[str, Adapter]:
    """All adapters by name, in alphabetical order. One whose adapter.toml is wrong is left out, with a warning, so that
    it does not stop the others; where a command line has named it, UsageError says all that is wrong. So does one for
    each trait of a family that is."""
    if PROBLEMS:
        raise UsageError(Problem(*one) for one in PROBLEMS)
    found: dict[str, Adapter] = {}
    wrong: dict[str, Sequence[Problem]] = {}
    for folder in _folders():
        if folder.name not in found:
            try:
                found[folder.name] = read(folder)
            except UsageError as error:
                wrong[folder.name] = error.problems
    asked = [problem for name in dict.fromkeys(named) for problem in wrong.get(name, ())]
    if asked:
        raise UsageError(asked)
    for folder in _named():
        if not os.path.isdir(folder):
            warn(f"DLPERF_ADAPTERS: there is no folder {folder}, so none of its adapters is here.")
    for name, problems in wrong.items():
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        warn(f"{name!r} is left out. {problems[0]}{more}")
    return dict(sorted(found.items()))


def _named() -> list[Path]:
    return [Path(part) for part in os.environ.get("DLPERF_ADAPTERS", "").split(os.pathsep) if part]


def _folders() -> list[Path]:
    roots = [Path(part) for part in dlperf.adapters.__path__] + _named()
    return [toml.parent for root in roots for toml in sorted(root.glob("*/adapter.toml"))]


def read(folder: Path) -> Adapter:
    """Read one adapter.toml. UsageError lists everything that is wrong with it."""
    path = folder / "adapter.toml"
    data = _toml(path)
    reader = _Reader(path)
    if not NAME.fullmatch(folder.name):
        reader.says("", "an adapter's folder is named with letters, digits, ., _ and -, 64 at most.")
    reader.fit("", data, keys.Figures if "imported" in data else keys.Adapter)
    theirs = bool(data.get("script") or data.get("imported"))
    if not theirs and "distribution" not in data:
        reader.says("distribution", "missing.")
    if reader.problems:
        raise UsageError(reader.problems)
    imported = reader.imported(data.get("imported", []))
    families = _families(folder, [*data.get("script", {}), *(one.model for one in imported)])
    adapter = Adapter(
        name=folder.name,
        folder=folder,
        title=data["title"],
        homepage=data.get("homepage", ""),
        distribution=listed(data.get("distribution", ())),
        default=data.get("default", not theirs),
        trains=data.get("trains", True),
        proven=data.get("proven", True),
        families=families,
        environments={key: reader.environment(key, table) for key, table in data.get("environment", {}).items()},
        support=[reader.support(index, table, families) for index, table in enumerate(data.get("support", []))],
        options={name: reader.option(name, table) for name, table in data.get("options", {}).items()},
        distributed=[reader.distributed(index, table) for index, table in enumerate(data.get("distributed", []))],
        servers=[reader.servers(index, table, families) for index, table in enumerate(data.get("servers", []))],
        source=reader.source(data["source"]) if "source" in data else None,
        scripts={model: reader.script(model, table) for model, table in data.get("script", {}).items()},
        imported=imported,
        formats=reader.formats(data.get("formats", {})),
        images={device: reader.image(device, table) for device, table in data.get("image", {}).items()},
        kernels=[reader.kernels(index, table) for index, table in enumerate(data.get("kernels", []))],
        launchers=reader.launchers("launchers", data.get("launchers", [])),
    )
    reader.complete(adapter)
    reader.variants(adapter)
    reader.upstream(adapter)
    if reader.problems:
        raise UsageError(reader.problems)
    return adapter


def _toml(path: Path) -> dict[str, Any]:
    """UsageError where a file is none, or none that an adapter could have."""
    try:
        if not path.is_file():
            raise UsageError([Problem(str(path), "", says="it is not a file.")])
        if path.stat().st_size > LONGEST:
            raise UsageError([Problem(str(path), "", says=f"it is longer than {LONGEST} bytes.")])
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # not UTF-8, numbers of 5,000 digits, too deep
        raise UsageError([Problem(str(path), "", says=f"cannot be read as TOML: {error}.")]) from None


def _families(folder: Path, theirs: Iterable[str]) -> tuple[str, ...]:
    """Those that an adapter has a module for, or, by model, a script or figures."""
    foreign = {FAMILY_OF.get(model) for model in theirs}
    return tuple(name for name in FAMILIES if name in foreign or (folder / f"{name}.py").exists())


class _Reader(Foreign):
    """Turns tables into dataclasses and collects what is wrong."""

    def environment(self, key: str, table: keys.Environment) -> EnvironmentSpec:
        where = f"environment.{key}"
        if key.partition("-")[0] not in DEVICES:
            self.wrong("environment", key, f"{', '.join(DEVICES)}, or one of these with a variant: cpu-horovod")
        for one in ("capabilities", "cuda", "otherwise"):
            if one in table and not key.startswith("cuda"):
                self.says(f"{where}.{one}", "only an environment of cuda has it.")
        if table.get("otherwise") and "capabilities" not in table:
            self.says(f"{where}.otherwise", "give capabilities too, the newest last: it is for GPUs that came later.")
        machines = self.choices(where, {"machines": MACHINES[:1], **table}, "machines", MACHINES)
        for one in table.get("unavailable", {}):
            self.one_of(f"{where}.unavailable.{one}", one, [machine for machine in MACHINES if machine not in machines])
        return EnvironmentSpec(
            key=key,
            python=tuple(table["python"]),
            lock=self.path.parent / f"requirements.{key}.txt",
            extra_index=tuple(table.get("extra_index", ())),
            variables=table.get("variables", {}),
            build=self.build(key, table["build"]) if "build" in table else None,
            machines=machines,
            unavailable=table.get("unavailable", {}),
            gigabytes=table.get("gigabytes"),
            memory=table.get("memory", 1.0),
            capabilities=self.capabilities(where, table),
            cuda=self.cuda(where, table),
            otherwise=table.get("otherwise", ""),
        )

    def capabilities(self, where: str, table: keys.Environment | keys.Image) -> tuple[str, ...]:
        found = listed(table.get("capabilities", ()))
        for one in found:
            if not re.fullmatch(r"(sm|compute)_\d{2,3}", one):
                self.wrong(f"{where}.capabilities", one, "sm_90 for kernels, compute_90 for PTX")
        return found

    def cuda(self, where: str, table: keys.Environment | keys.Image) -> int | None:
        """The major version of CUDA, of those whose least driver is known."""
        known = sorted(gpu.LEAST_DRIVER)
        if "cuda" in table and table["cuda"] not in known:
            self.wrong(f"{where}.cuda", table["cuda"], ", ".join(map(str, known)))
        return table.get("cuda")

    def image(self, device: str, table: keys.Image) -> ImageSpec:
        self.one_of("image", device, DEVICES)
        where = f"image.{device}"
        return ImageSpec(
            table.get("ngc", ""),
            listed(table.get("packages", ())),
            table.get("named", {}),
            self.capabilities(where, table),
            self.cuda(where, table),
        )

    def build(self, key: str, table: keys.Build) -> SourceBuild:
        lock = self.path.parent / f"requirements.{key}.source.txt"
        return SourceBuild(lock, table.get("variables", {}), replacements(table))

    def formats(self, table: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        for input in table:
            self.one_of("formats", input, [one for one in INPUTS if one != "synthetic"])
        return {input: self.choices("formats", table, input, FORMATS) for input in table}

    def variants(self, adapter: Adapter) -> None:
        """An option's environments and launchers are of its values, and some device has the environments."""
        for name, option in adapter.options.items():
            for value in option.launcher:
                if not option.accepts(value):
                    self.wrong(f"options.{name}.launcher", value, ", ".join(option.values))
            for value, variant in option.environment.items():
                where = f"options.{name}.environment"
                if not option.accepts(value):
                    self.wrong(where, value, ", ".join(option.values))
                if not any(f"{device}-{variant}" in adapter.environments for device in DEVICES):
                    self.says(where, f"there is no [environment.cpu-{variant}].")

    def support(self, index: int, table: keys.Support, families: tuple[str, ...]) -> Support:
        """families: what an entry that names none stands for."""
        where = f"support[{index}]"
        status, why = self.status(where, table)
        return Support(
            status=status,
            why=why,
            family=self.choices(where, table, "family", tuple(FAMILIES)) if "family" in table else families,
            device=self.choices(where, table, "device", DEVICES),
            precision=self.choices(where, table, "precision", tuple(PRECISIONS)),
            input=self.choices(where, table, "input", INPUTS),
        )

    def status(self, where: str, table: keys.Support | keys.Distributed | keys.Servers) -> tuple[str, str]:
        """Status, and the reason, which those that do not run must have."""
        status = self.one_of(f"{where}.status", table["status"], STATUSES)
        if status not in RUNNABLE and not table.get("why"):
            self.says(f"{where}.why", REASON)
        return status, table.get("why", "")

    def kernels(self, index: int, table: keys.Kernels) -> Kernels:
        where = f"kernels[{index}]"
        kind = self.one_of(f"{where}.kernels", table["kernels"], cpu.KERNELS)
        if kind != "native" and not table.get("why"):
            self.says(f"{where}.why", REASON)
        return Kernels(
            family=self.choices(where, table, "family", tuple(FAMILIES)),
            device=self.choices(where, {"device": ["cpu"], **table}, "device", DEVICES),
            precision=self.choices(where, table, "precision", tuple(PRECISIONS)),
            needs=tuple(table.get("needs", ())),
            kernels=kind,
            why=table.get("why", ""),
            options=table.get("options", {}),
        )

    def complete(self, adapter: Adapter) -> None:
        """Where kernels are told for a precision, the last entry is that of all other processors."""
        for family, device, precision in product(adapter.families, DEVICES, PRECISIONS):
            entries = adapter.kernels_of(family, device, precision)
            if entries and entries[-1]["needs"]:
                where = f"kernels ({family}, {device}, {precision})"
                self.says(where, "the last entry must have no needs, so that it covers all other processors.")
        named = [("kernels", one.options) for one in adapter.kernels]
        named += [("servers", one.options) for one in adapter.servers]
        for where, name, value in ((where, *pair) for where, options in named for pair in options.items()):
            known = adapter.options[name].values if name in adapter.options else ()
            self.one_of(f"{where}.options.{name}", value, known)

    def distributed(self, index: int, table: keys.Distributed) -> Distributed:
        where = f"distributed[{index}]"
        status, why = self.status(where, table)
        return Distributed(status, why, self.choices(where, table, "device", DEVICES))

    def servers(self, index: int, table: keys.Servers, families: Sequence[str]) -> Servers:
        where = f"servers[{index}]"
        status, why = self.status(where, table)
        return Servers(
            status,
            why,
            self.choices(where, table, "family", families),
            self.choices(where, table, "device", DEVICES),
            self.choices(where, table, "mode", tuple(PS_MODES)),
            table.get("options", {}),
        )

    def launchers(self, where: str, named: Iterable[str]) -> tuple[str, ...]:
        """Launchers that an environment has."""
        allowed = [name for name in launchers.names() if launchers.find(name).in_environment] if named else []
        return tuple(self.one_of(where, name, allowed) for name in named)

    def option(self, name: str, table: keys.Option) -> Option:
        where = f"options.{name}"
        brought = table.get("launcher", {})
        self.launchers(where + ".launcher", brought.values())
        return Option(
            name=name,
            about=table.get("about", ""),
            values=tuple(table["values"]),
            any=table.get("any", False),
            family=self.choices(where, table, "family", tuple(FAMILIES)) if "family" in table else (),
            defaults=self.defaults(where + ".defaults", table.get("defaults", {}), table["values"]),
            labels=table.get("labels", {}),
            environment=table.get("environment", {}),
            launcher=brought,
            tuned=tuple(self.tuned(where, one, table["values"]) for one in table.get("tuned", ())),
        )

    def tuned(self, where: str, table: keys.Tuned, values: Sequence[str]) -> Tuned:
        value = self.one_of(f"{where}.tuned.value", table["value"], values)
        return Tuned(
            value, tuple(table["needs"]), self.choices(where + ".tuned", table, "precision", tuple(PRECISIONS))
        )

    def defaults(self, where: str, table: Mapping[str, str], values: Sequence[str]) -> Mapping[str, str]:
        """Values of an option by device."""
        for device, value in table.items():
            self.one_of(f"{where}.{device}", device, DEVICES)
            self.one_of(f"{where}.{device}", value, values)
        return table
