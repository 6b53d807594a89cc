"""The adapters there are, read from their adapter.toml: environments, support, options. Imports no framework.

An adapter is a folder beside this package's other adapters, or in a folder named by DLPERF_ADAPTERS (several, with a
colon between).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import dlperf.adapters
from dlperf import launchers
from dlperf.adapters import cpu, gpu
from dlperf.catalog.adapter import DEVICES, INPUTS, RUNNABLE, STATUSES, Adapter, Distributed, Kernels, Option, Support
from dlperf.catalog.environment import MACHINES, EnvironmentSpec, ImageSpec, Replacement, SourceBuild
from dlperf.catalog.foreign import Foreign
from dlperf.errors import Problem, UsageError
from dlperf.models import FAMILIES, FAMILY_OF, FORMATS, PROBLEMS
from dlperf.precision import TABLE as PRECISIONS

REASON = "missing; give the reason, which the report shows."

#: of adapter.toml; of one that has figures alone
KEYS = {
    *("title", "homepage", "distribution", "default", "environment", "support", "distributed", "options"),
    *("formats", "source", "script", "imported", "image", "kernels", "launchers", "trains", "proven"),
}
OF_FIGURES = {"title", "homepage", "default", "imported"}


def adapters() -> dict[str, Adapter]:
    """All adapters by name, in alphabetical order. UsageError names every adapter.toml that is wrong, and every trait
    of a family that is."""
    found: dict[str, Adapter] = {}
    problems = [Problem(*one) for one in PROBLEMS]
    for folder in _folders():
        try:
            found.setdefault(folder.name, read(folder))
        except UsageError as error:
            problems += error.problems
    if problems:
        raise UsageError(problems)
    return dict(sorted(found.items()))


def _folders() -> list[Path]:
    extra = [Path(part) for part in os.environ.get("DLPERF_ADAPTERS", "").split(os.pathsep) if part]
    roots = [Path(part) for part in dlperf.adapters.__path__] + extra
    return [toml.parent for root in roots for toml in sorted(root.glob("*/adapter.toml"))]


def read(folder: Path) -> Adapter:
    """Read one adapter.toml. UsageError lists everything that is wrong with it."""
    path = folder / "adapter.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # not UTF-8, numbers of 5,000 digits, too deep
        raise UsageError([Problem(str(path), "", says=f"cannot be read as TOML: {error}.")]) from None
    reader = _Reader(path)
    reader.known("", data, OF_FIGURES if data.get("imported") else KEYS)
    theirs = bool(data.get("script") or data.get("imported"))
    imported = reader.imported(data.get("imported", []))
    families = _families(folder, [*data.get("script", {}), *(one.model for one in imported)])
    adapter = Adapter(
        name=folder.name,
        folder=folder,
        title=reader.text(data, "title"),
        homepage=str(data.get("homepage", "")),
        distribution=() if theirs and "distribution" not in data else reader.texts(data, "distribution"),
        default=bool(data.get("default", not theirs)),
        trains=bool(data.get("trains", True)),
        proven=bool(data.get("proven", True)),
        families=families,
        environments={key: reader.environment(key, table) for key, table in data.get("environment", {}).items()},
        support=[reader.support(index, table, families) for index, table in enumerate(data.get("support", []))],
        options={name: reader.option(name, table) for name, table in data.get("options", {}).items()},
        distributed=[reader.distributed(index, table) for index, table in enumerate(data.get("distributed", []))],
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


def _families(folder: Path, theirs: Iterable[str]) -> tuple[str, ...]:
    """Those that an adapter has a module for, or, by model, a script or figures."""
    foreign = {FAMILY_OF.get(model) for model in theirs}
    return tuple(name for name in FAMILIES if name in foreign or (folder / f"{name}.py").exists())


class _Reader(Foreign):
    """Turns tables into dataclasses and collects what is wrong."""

    def environment(self, key: str, table: Mapping[str, Any]) -> EnvironmentSpec:
        where = f"environment.{key}"
        keys = {"python", "extra_index", "variables", "build", "machines", "unavailable", "gigabytes", "memory"}
        keys |= {"capabilities", "cuda", "otherwise"} if key.startswith("cuda") else set()
        self.known(where + ".", table, keys)
        if key.partition("-")[0] not in DEVICES:
            self.wrong("environment", key, f"{', '.join(DEVICES)}, or one of these with a variant: cpu-horovod")
        if not table.get("python"):
            self.says(where + ".python", "missing; list the minor versions, best first.")
        return EnvironmentSpec(
            key=key,
            python=tuple(table.get("python", ())),
            lock=self.path.parent / f"requirements.{key}.txt",
            extra_index=tuple(table.get("extra_index", ())),
            variables=dict(table.get("variables", {})),
            build=self.build(key, table["build"]) if "build" in table else None,
            machines=self.choices(where, {"machines": MACHINES[:1], **table}, "machines", MACHINES),
            unavailable=self.unavailable(where, table),
            gigabytes=self.positive(where + ".gigabytes", table["gigabytes"]) if "gigabytes" in table else None,
            memory=self.positive(where + ".memory", table.get("memory", 1.0)),
            capabilities=self.capabilities(where, table),
            cuda=self.cuda(where, table),
            otherwise=self.otherwise(where, table),
        )

    def unavailable(self, where: str, table: Mapping[str, Any]) -> dict[str, str]:
        """Reasons, by machine that the lock does not serve."""
        where, reasons = where + ".unavailable", table.get("unavailable", {})
        if not isinstance(reasons, dict):
            self.says(where, f"must be a table of reasons by machine, not {reasons!r}.")
            return {}
        self.known(where + ".", reasons, {one for one in MACHINES if one not in table.get("machines", MACHINES[:1])})
        for machine, why in reasons.items():
            if not isinstance(why, str) or not why:
                self.says(f"{where}.{machine}", REASON)
        return {machine: str(why) for machine, why in reasons.items()}

    def capabilities(self, where: str, table: Mapping[str, Any]) -> tuple[str, ...]:
        found = self.texts(table, "capabilities") if "capabilities" in table else ()
        for one in found:
            if not re.fullmatch(r"(sm|compute)_\d{2,3}", one):
                self.wrong(f"{where}.capabilities", one, "sm_90 for kernels, compute_90 for PTX")
        return found

    def otherwise(self, where: str, table: Mapping[str, Any]) -> str:
        if "otherwise" in table and not table.get("capabilities"):
            self.says(f"{where}.otherwise", "give capabilities too, the newest last: it is for GPUs that came later.")
        return str(table.get("otherwise", ""))

    def cuda(self, where: str, table: Mapping[str, Any]) -> int | None:
        """The major version of CUDA, of those whose least driver is known."""
        known = sorted(gpu.LEAST_DRIVER)
        if "cuda" in table and table["cuda"] not in known:
            self.wrong(f"{where}.cuda", table["cuda"], ", ".join(map(str, known)))
        return table.get("cuda")

    def image(self, device: str, table: Mapping[str, Any]) -> ImageSpec:
        if device not in DEVICES:
            self.wrong("image", device, ", ".join(DEVICES))
        self.known(f"image.{device}.", table, {"ngc", "packages", "named", "capabilities", "cuda"})
        packages = self.texts(table, "packages") if "packages" in table else ()
        named = {str(name): str(reference) for name, reference in table.get("named", {}).items()}
        ngc = self.text(table, "ngc") if "ngc" in table else ""
        where = f"image.{device}"
        return ImageSpec(ngc, packages, named, self.capabilities(where, table), self.cuda(where, table))

    def build(self, key: str, table: Mapping[str, Any]) -> SourceBuild:
        where = f"environment.{key}.build."
        self.known(where, table, {"variables", "replace"})
        for one in table.get("replace", ()):
            self.known(where + "replace.", one, {"file", "old", "new"})
        return SourceBuild(
            lock=self.path.parent / f"requirements.{key}.source.txt",
            variables=dict(table.get("variables", {})),
            replace=tuple(
                Replacement(*(self.text(one, part) for part in ("file", "old", "new")))
                for one in table.get("replace", ())
            ),
        )

    def formats(self, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        self.known("formats.", table, set(INPUTS) - {"synthetic"})
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

    def support(self, index: int, table: Mapping[str, Any], families: tuple[str, ...]) -> Support:
        """families: what an entry that names none stands for."""
        where = f"support[{index}]"
        self.known(where + ".", table, {"family", "device", "precision", "input", "status", "why"})
        status, why = self.status(where, table)
        return Support(
            status=status,
            why=why,
            family=self.choices(where, table, "family", tuple(FAMILIES)) if "family" in table else families,
            device=self.choices(where, table, "device", DEVICES),
            precision=self.choices(where, table, "precision", tuple(PRECISIONS)),
            input=self.choices(where, table, "input", INPUTS),
        )

    def status(self, where: str, table: Mapping[str, Any]) -> tuple[str, str]:
        """Status, and the reason, which those that do not run must have."""
        status, why = str(table.get("status", "")), str(table.get("why", ""))
        if status not in STATUSES:
            self.wrong(f"{where}.status", status, ", ".join(STATUSES))
        if status not in RUNNABLE and not why:
            self.says(f"{where}.why", REASON)
        return status, why

    def kernels(self, index: int, table: Mapping[str, Any]) -> Kernels:
        where = f"kernels[{index}]"
        self.known(where + ".", table, {"family", "device", "precision", "needs", "kernels", "why", "options"})
        kind, why = self.one_of(f"{where}.kernels", table.get("kernels", ""), cpu.KERNELS), str(table.get("why", ""))
        if kind != "native" and not why:
            self.says(f"{where}.why", REASON)
        return Kernels(
            family=self.choices(where, table, "family", tuple(FAMILIES)),
            device=self.choices(where, {"device": ["cpu"], **table}, "device", DEVICES),
            precision=self.choices(where, table, "precision", tuple(PRECISIONS)),
            needs=tuple(str(name) for name in table.get("needs", ())),
            kernels=kind,
            why=why,
            options={str(name): str(value) for name, value in table.get("options", {}).items()},
        )

    def complete(self, adapter: Adapter) -> None:
        """Where kernels are told for a precision, the last entry is that of all other processors."""
        for family, device, precision in product(adapter.families, DEVICES, PRECISIONS):
            entries = adapter.kernels_of(family, device, precision)
            if entries and entries[-1]["needs"]:
                where = f"kernels ({family}, {device}, {precision})"
                self.says(where, "the last entry must have no needs, so that it covers all other processors.")
        for one in adapter.kernels:
            for name, value in one.options.items():
                known = adapter.options[name].values if name in adapter.options else ()
                self.one_of(f"kernels.options.{name}", value, known)

    def distributed(self, index: int, table: Mapping[str, Any]) -> Distributed:
        where = f"distributed[{index}]"
        self.known(where + ".", table, {"device", "status", "why"})
        status, why = self.status(where, table)
        return Distributed(status, why, self.choices(where, table, "device", DEVICES))

    def launchers(self, where: str, named: object) -> tuple[str, ...]:
        """Launchers that an environment has."""
        allowed = [name for name in launchers.names() if named and launchers.find(name).in_environment]
        if not isinstance(named, list):
            self.wrong(where, named, f"a list of {', '.join(allowed)}")
            return ()
        return tuple(self.one_of(where, name, allowed) for name in named)

    def option(self, name: str, table: Mapping[str, Any]) -> Option:
        where = f"options.{name}"
        self.known(
            where + ".", table, {"about", "values", "any", "family", "defaults", "labels", "environment", "launcher"}
        )
        brought = self.strings(where + ".launcher", table.get("launcher", {}))
        self.launchers(where + ".launcher", list(brought.values()))
        values = tuple(str(value) for value in table.get("values", ()))
        if not values:
            self.says(f"{where}.values", "missing; list at least the default.")
        return Option(
            name=name,
            about=str(table.get("about", "")),
            values=values,
            any=bool(table.get("any", False)),
            family=self.choices(where, table, "family", tuple(FAMILIES)) if "family" in table else (),
            defaults=self.defaults(where + ".defaults", table.get("defaults", {}), values),
            labels=self.strings(where + ".labels", table.get("labels", {})),
            environment=self.strings(where + ".environment", table.get("environment", {})),
            launcher=brought,
        )

    def defaults(self, where: str, table: Mapping[str, Any], values: Sequence[str]) -> dict[str, str]:
        """Values of an option by device."""
        self.known(where + ".", table, set(DEVICES))
        return {device: self.one_of(f"{where}.{device}", value, values) for device, value in table.items()}
