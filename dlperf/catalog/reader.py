"""The adapters there are, read from their adapter.toml: environments, support, options. Imports no framework.

An adapter is a folder beside this package's other adapters, or in a folder named by DLPERF_ADAPTERS (several, with a
colon between).
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import dlperf.adapters
from dlperf import launchers
from dlperf.adapters import cpu
from dlperf.catalog.adapter import DEVICES, INPUTS, RUNNABLE, STATUSES, Adapter, Distributed, Kernels, Option, Support
from dlperf.catalog.environment import MACHINES, EnvironmentSpec, ImageSpec, Replacement, SourceBuild
from dlperf.catalog.script import BATCHES, RATES, Log, Part, Script, Source
from dlperf.catalog.tables import Tables
from dlperf.errors import Problem, UsageError
from dlperf.models import FAMILIES, FAMILY_OF, FORMATS, NAMES, PROBLEMS
from dlperf.precision import TABLE as PRECISIONS

REASON = "missing; give the reason, which the report shows."
#: conditions that `when` may have besides an adapter's options, and their values
CONDITIONS = {
    "device": DEVICES,
    "precision": tuple(PRECISIONS),
    "ranks": ("one", "several"),
    "nodes": ("one", "several"),
}


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
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError([Problem(str(path), "", says=f"cannot be read as TOML: {error}.")]) from None
    reader = _Reader(path)
    keys = {"title", "homepage", "distribution", "default", "environment", "support", "distributed", "options"}
    reader.known("", data, {*keys, "formats", "source", "script", "image", "kernels", "launchers"})
    families = _families(folder, data.get("script", {}))
    adapter = Adapter(
        name=folder.name,
        folder=folder,
        title=reader.text(data, "title"),
        homepage=str(data.get("homepage", "")),
        distribution=reader.texts(data, "distribution") if "script" not in data or "distribution" in data else (),
        default=bool(data.get("default", True)),
        families=families,
        environments={key: reader.environment(key, table) for key, table in data.get("environment", {}).items()},
        support=[reader.support(index, table, families) for index, table in enumerate(data.get("support", []))],
        options={name: reader.option(name, table) for name, table in data.get("options", {}).items()},
        distributed=[reader.distributed(index, table) for index, table in enumerate(data.get("distributed", []))],
        source=reader.source(data["source"]) if "source" in data else None,
        scripts={model: reader.script(model, table) for model, table in data.get("script", {}).items()},
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


def _families(folder: Path, scripts: Iterable[str]) -> tuple[str, ...]:
    """Those that an adapter has a module or a script for."""
    theirs = {FAMILY_OF.get(model) for model in scripts}
    return tuple(name for name in FAMILIES if name in theirs or (folder / f"{name}.py").exists())


class _Reader(Tables):
    """Turns tables into dataclasses and collects what is wrong."""

    def environment(self, key: str, table: Mapping[str, Any]) -> EnvironmentSpec:
        where = f"environment.{key}"
        keys = {"python", "extra_index", "variables", "build", "machines", "unavailable", "gigabytes", "memory"}
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

    def image(self, device: str, table: Mapping[str, Any]) -> ImageSpec:
        if device not in DEVICES:
            self.wrong("image", device, ", ".join(DEVICES))
        self.known(f"image.{device}.", table, {"ngc", "packages", "named"})
        packages = self.texts(table, "packages") if "packages" in table else ()
        named = {str(name): str(reference) for name, reference in table.get("named", {}).items()}
        return ImageSpec(self.text(table, "ngc") if "ngc" in table else "", packages, named)

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

    def source(self, table: Mapping[str, Any]) -> Source:
        self.known("source.", table, {"repository", "commit", "replace"})
        for one in table.get("replace", ()):
            self.known("source.replace.", one, {"file", "old", "new"})
        source = Source(
            self.text(table, "repository"),
            self.text(table, "commit"),
            tuple(
                Replacement(self.text(one, "file"), self.text(one, "old"), str(one.get("new", "")))
                for one in table.get("replace", ())
            ),
        )
        if not re.fullmatch(r"[\w][\w./-]*", source.commit):
            self.wrong("source.commit", source.commit, "a commit's hash, or if that is unknown a tag or branch")
        return source

    def script(self, model: str, table: Mapping[str, Any]) -> Script:
        where = f"script.{model}."
        texts = {"folder", "inside", "input", "data", "batch", "start"}
        parts = {"command", "variables", "effective", "differs"}
        self.known(where, table, {*texts, *parts, "stops", "warmup_steps", "extra_steps", "log", "batch_size"})
        self.one_of("script", model, NAMES)
        return Script(
            model=model,
            folder=self.text(table, "folder"),
            inside=str(table.get("inside", "")),
            input=self.one_of(where + "input", table.get("input", "native"), INPUTS),
            data=str(table.get("data", "")),
            batch=self.one_of(where + "batch", table.get("batch", ""), BATCHES),
            batch_size={
                self.one_of(where + "batch_size", precision, tuple(PRECISIONS)): self.number(
                    where + "batch_size", size, 1
                )
                for precision, size in table.get("batch_size", {}).items()
            },
            start=self.one_of(where + "start", table.get("start", "once"), ("once", "node")),
            stops=bool(table.get("stops", True)),
            warmup_steps=self.number(where + "warmup_steps", table.get("warmup_steps", 0)),
            extra_steps=self.number(where + "extra_steps", table.get("extra_steps", 0)),
            log=self.log(where + "log", table.get("log", {})),
            command=self.parts(where + "command", table, "words"),
            variables=self.parts(where + "variables", table, "values"),
            effective=self.parts(where + "effective", table, "values"),
            differs=self.parts(where + "differs", table, "text"),
        )

    def parts(self, where: str, table: Mapping[str, Any], content: str) -> tuple[Part, ...]:
        """Tables with `when` and a command line (words), NAME = VALUE (values) or a sentence (text)."""
        found = []
        for index, one in enumerate(table.get(where.rpartition(".")[2], ())):
            place = f"{where}[{index}]"
            self.known(place + ".", one, {"when", content} if content != "values" else set(one))
            when = {str(name): self._listed(values) for name, values in one.get("when", {}).items()}
            rest = {str(name): str(value) for name, value in one.items() if name != "when"}
            words: tuple[str, ...] = ()
            try:
                words = tuple(shlex.split(rest.get("words", "")))
            except ValueError as error:
                self.says(place + ".words", f"a shell cannot split it into words: {error}.")
            if content != "values" and not rest.get(content):
                self.says(f"{place}.{content}", "missing.")
            found.append(Part(when, words, rest if content == "values" else {}, rest.get("text", "")))
        return tuple(found)

    @staticmethod
    def _listed(values: object) -> tuple[str, ...]:
        return tuple(str(value) for value in values) if isinstance(values, list) else (str(values),)

    def log(self, where: str, table: Mapping[str, Any]) -> Log:
        self.known(where + ".", table, {"line", "first", "every", "timestamp", "rate_of", "milliseconds", "ranks"})
        text = str(table.get("line", ""))
        try:
            line = re.compile(text)
        except re.error as error:
            self.says(where + ".line", f"not a regular expression: {error}.")
            line = re.compile("")
        groups = set(line.groupindex)
        timed = groups & {"timestamp", "seconds", "rate"}
        if "step" not in groups or len(timed) != 1 or groups - timed - {"step", "loss"}:
            needed = "step, and exactly one of timestamp, seconds and rate; it may have loss"
            self.says(where + ".line", f"must have the named groups {needed}.")
        if ("timestamp" in groups) != bool(table.get("timestamp")):
            self.says(where + ".timestamp", "give the format of the group timestamp, if and only if the line has one.")
        return Log(
            line=line,
            first=self.number(where + ".first", table.get("first", 0)),
            every=self.number(where + ".every", table.get("every", 1), least=1),
            timestamp=str(table.get("timestamp", "")),
            rate_of=self.one_of(where + ".rate_of", table.get("rate_of", "all"), RATES),
            milliseconds=bool(table.get("milliseconds", False)),
            ranks=self.one_of(where + ".ranks", table.get("ranks", "one"), ("one", "node", "all")),
        )

    def upstream(self, adapter: Adapter) -> None:
        """Scripts have a source, conditions that can hold, and images that an option names."""
        if bool(adapter.scripts) != bool(adapter.source):
            self.says("source", "[source] and [script.*] belong together; one of them is missing.")
        for device, one in adapter.images.items():
            values = adapter.options["image"].values if "image" in adapter.options else ()
            if set(one.named) != set(values):
                self.wrong(f"image.{device}.named", ", ".join(one.named), f"the option image's: {', '.join(values)}")
        for script in adapter.scripts.values():
            for part in (*script.command, *script.variables, *script.effective, *script.differs):
                options = adapter.options_of(FAMILY_OF.get(script.model, ""))
                self.conditions(f"script.{script.model}", part, options)

    def conditions(self, where: str, part: Part, options: Mapping[str, Option]) -> None:
        known = {**CONDITIONS, **{name: option.values for name, option in options.items()}}
        for name, values in part.when.items():
            if name not in known:
                self.wrong(f"{where}.when", name, ", ".join(known))
            elif name not in options or not options[name].any:
                for value in values:
                    self.one_of(f"{where}.when.{name}", value, known[name])

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
        self.known(where + ".", table, {"about", "values", "any", "family", "labels", "environment", "launcher"})
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
            labels=self.strings(where + ".labels", table.get("labels", {})),
            environment=self.strings(where + ".environment", table.get("environment", {})),
            launcher=brought,
        )
