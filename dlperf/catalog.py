"""The adapters there are, read from their adapter.toml: environments, support, options. Imports no framework.

An adapter is a folder beside this package's other adapters, or in a folder named by DLPERF_ADAPTERS (several, with a
colon between).
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import dlperf.adapters
from dlperf.adapters import cpu
from dlperf.adapters.api import PRECISIONS
from dlperf.errors import Problem, UsageError
from dlperf.models import FAMILIES, FAMILY_OF, NAMES, images

DEVICES = ("cpu", "cuda")
INPUTS = ("synthetic", "native", "dali")
#: architectures that locks are made for, as platform.machine() has them
MACHINES = ("x86_64", "aarch64")
STATUSES = ("yes", "untested", "not_yet", "upstream", "never")
#: statuses that run
RUNNABLE = frozenset(["yes", "untested"])


@dataclass(frozen=True)
class Option:
    """A switch of an adapter. `values[0]` is the default; `any` allows others; `family` empty means all.

    labels: value -> what the system's name gets, e.g. {"on": "inductor"} makes "pytorch+inductor".
    environment: value -> variant of the environment that it needs, e.g. {"horovod": "horovod"} for "cpu-horovod".
    """

    name: str
    about: str
    values: tuple[str, ...]
    any: bool = False
    family: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def default(self) -> str:
        return self.values[0]

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


#: what a script calls its batch size -> the placeholder that has it
BATCHES = ("device", "node", "global", "tokens")
#: what the rate that a script prints is of
RATES = ("all", "node", "device", "step", "node step")
#: conditions that `when` may have besides an adapter's options, and their values
CONDITIONS = {
    "device": DEVICES,
    "precision": tuple(PRECISIONS),
    "ranks": ("one", "several"),
    "nodes": ("one", "several"),
}


@dataclass(frozen=True)
class Source:
    """Where a script that is not ours comes from. It is given by --source, checked and copied, never kept here.

    commit: its hash, or where nobody tells it a tag or branch. replace: edits of the copy.
    """

    repository: str
    commit: str
    replace: tuple[Replacement, ...] = ()

    @property
    def short(self) -> str:
        return self.commit[:7] if re.fullmatch("[0-9a-f]{40}", self.commit) else self.commit

    @property
    def checkout(self) -> str:
        """The commands that get it."""
        folder = self.repository.rstrip("/").rpartition("/")[2]
        return f"git clone {self.repository} && git -C {folder} checkout {self.commit}"


@dataclass(frozen=True)
class Part:
    """Some of a script's command, variables, declarations or remarks, where each condition of `when` holds.

    when: condition or option -> the values for which it holds.
    """

    when: Mapping[str, tuple[str, ...]]
    words: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Log:
    """How a script tells its progress.

    line: with the named groups `step`, and of `timestamp`, `seconds` and `rate` the one that times it: the moment that
    the step ended, the seconds of the steps since the line before, their rate; `loss` where it is printed.
    first: what the script calls its first step. every: steps from line to line. timestamp: its format, as
    strptime has it, or "epoch". rate_of: what a rate counts, one of RATES. milliseconds: whether `seconds` are those.
    ranks: "one" if one rank prints, "node" if one of each node does, "all" if each does.
    """

    line: re.Pattern[str]
    first: int = 0
    every: int = 1
    timestamp: str = ""
    rate_of: str = "all"
    milliseconds: bool = False
    ranks: str = "one"

    @property
    def estimator(self) -> str:
        """What the seconds of a window are, in words."""
        groups = self.line.groupindex
        if "timestamp" in groups:
            return "difference of its log's timestamps"
        return "sum of its log's seconds" if "seconds" in groups else "sum of samples over its log's rates"


@dataclass(frozen=True)
class Script:
    """How the script of others for one model is run and read.

    folder: what of the repository is needed. inside: where an image gets it mounted, or has it. input: what feeds it,
    one of INPUTS; an option of that name goes over it. data: where an image gets --data mounted, or has its data.
    batch: what its argument for the batch size means, one of BATCHES. batch_size: precision -> DLPerf's batch per
    device, where it is not that of the others. start: "node" where its command must run on each node. stops: whether it
    ends by itself after `steps`. warmup_steps: the least that DLPerf's protocol drops. extra_steps: run at
    the end, but not measured. command, variables, effective (what it computes, by reading it), differs (what it
    computes otherwise than the native scripts): see Part.
    """

    model: str
    folder: str
    inside: str
    input: str
    data: str
    batch: str
    batch_size: Mapping[str, int]
    start: str
    stops: bool
    warmup_steps: int
    extra_steps: int
    log: Log
    command: tuple[Part, ...]
    variables: tuple[Part, ...]
    effective: tuple[Part, ...]
    differs: tuple[Part, ...]


@dataclass(frozen=True)
class EnvironmentSpec:
    """How an environment of an adapter is made.

    key: its device, with a variant that some option asks for: "cpu", "cuda", "cpu-horovod". python: minor versions,
    best first. extra_index: where pip also looks if the usual index lacks a package. variables: set for every worker;
    `{site_packages}` stands for the environment's. build: what its lock cannot bring. machines: of MACHINES, those that
    its lock serves. unavailable: why upstream has nothing for another of them. gigabytes: on disk, as
    `python -m dlperf.envs list` has it; None where nobody looked. memory: of its runs, over what dlperf.estimate
    expects.
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
    the wheels leave to the system. named: those that others' scripts run in, by the values of the option `image`."""

    ngc: str = ""
    packages: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Adapter:
    """One framework's adapter. `folder` holds its adapter.toml, requirements and modules.

    distribution: the packages that may bring the framework (tensorflow, tensorflow-cpu); one is installed.
    formats: input -> formats of dlperf.models.images that its loaders read, the best first. images: by device. source,
    scripts: of an adapter whose training scripts are others' (an upstream system), by model.
    """

    name: str
    folder: Path
    title: str
    homepage: str
    distribution: tuple[str, ...]
    default: bool
    environments: Mapping[str, EnvironmentSpec]
    support: Sequence[Support]
    options: Mapping[str, Option]
    distributed: Sequence[Distributed] = ()
    formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    images: Mapping[str, ImageSpec] = field(default_factory=dict)
    source: Source | None = None
    scripts: Mapping[str, Script] = field(default_factory=dict)
    kernels: Sequence[Kernels] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """Those on which anything of it runs."""
        found = {device for entry in self.support if entry.status in RUNNABLE for device in entry.device}
        return tuple(device for device in DEVICES if device in found)

    def image(self, device: str, options: Mapping[str, str]) -> str:
        """The image that the option `image` chooses for a script of others; empty for none."""
        named = self.images[device].named if device in self.images else {}
        chosen = options.get("image", "")
        return named.get(chosen, chosen) if named else ""

    def distributed_on(self, device: str) -> Distributed:
        """The one entry that covers a device."""
        for entry in self.distributed:
            if device in entry.device:
                return entry
        return Distributed("not_yet", "this adapter trains in one process", (device,))

    def support_of(self, family: str, device: str, precision: str, input: str) -> Support:
        """The one entry that covers a combination."""
        for entry in self.support:
            if entry.covers(family, device, precision, input):
                return entry
        return Support("not_yet", "adapter.toml does not mention it", (), (), (), ())

    def kernels_of(
        self, family: str, device: str, precision: str, options: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """What its kernels are, best first, as dlperf.adapters.cpu takes it; empty where nobody looked. options: of the
        row; default: the adapter's defaults."""
        chosen = {**{name: option.default for name, option in self.options.items() if option.values}, **(options or {})}
        return [
            one.entry
            for one in self.kernels
            if family in one.family and device in one.device and precision in one.precision
            if one.options.items() <= chosen.items()
        ]

    def options_of(self, family: str) -> dict[str, Option]:
        return {name: option for name, option in self.options.items() if not option.family or family in option.family}

    def environment_key(self, device: str, options: Mapping[str, str], input: str = "synthetic") -> str:
        """The environment that these options and this input need on a device, whether there is one or not."""
        variants = [self.options[name].environment.get(value) for name, value in options.items()]
        variants += ["dali"] if input == "dali" else []
        return "-".join([device, *filter(None, variants)])


def combinations() -> Iterator[tuple[str, str, str, str]]:
    """Every (family, device, precision, input)."""
    return product(FAMILIES, DEVICES, PRECISIONS, INPUTS)


def adapters() -> dict[str, Adapter]:
    """All adapters by name, in alphabetical order. UsageError names every adapter.toml that is wrong."""
    found: dict[str, Adapter] = {}
    problems: list[Problem] = []
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
        raise UsageError([Problem(str(path), error, "a readable TOML file")]) from None
    reader = _Reader(path)
    keys = {"title", "homepage", "distribution", "default", "environment", "support", "distributed", "options"}
    reader.known("", data, {*keys, "formats", "source", "script", "image", "kernels"})
    adapter = Adapter(
        name=folder.name,
        folder=folder,
        title=reader.text(data, "title"),
        homepage=str(data.get("homepage", "")),
        distribution=reader.texts(data, "distribution") if "script" not in data or "distribution" in data else (),
        default=bool(data.get("default", True)),
        environments={key: reader.environment(key, table) for key, table in data.get("environment", {}).items()},
        support=[reader.support(index, table) for index, table in enumerate(data.get("support", []))],
        options={name: reader.option(name, table) for name, table in data.get("options", {}).items()},
        distributed=[reader.distributed(index, table) for index, table in enumerate(data.get("distributed", []))],
        source=reader.source(data["source"]) if "source" in data else None,
        scripts={model: reader.script(model, table) for model, table in data.get("script", {}).items()},
        formats=reader.formats(data.get("formats", {})),
        images={device: reader.image(device, table) for device, table in data.get("image", {}).items()},
        kernels=[reader.kernels(index, table) for index, table in enumerate(data.get("kernels", []))],
    )
    reader.complete(adapter)
    reader.variants(adapter)
    reader.upstream(adapter)
    if reader.problems:
        raise UsageError(reader.problems)
    return adapter


class _Reader:
    """Turns tables into dataclasses and collects what is wrong."""

    def __init__(self, path: Path):
        self.path = path
        self.problems: list[Problem] = []

    def known(self, where: str, table: Mapping[str, Any], keys: set[str]) -> None:
        for key in sorted(set(table) - keys):
            self.problems.append(
                Problem(f"{self.path}: {where}{key}", table[key], f"a key of {', '.join(sorted(keys))}")
            )

    def text(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str) or not value:
            self.problems.append(Problem(f"{self.path}: {key}", value, "a text"))
        return str(value)

    def texts(self, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
        """A text, or a list of them."""
        value = table.get(key, "")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str) and one for one in values):
            self.problems.append(Problem(f"{self.path}: {key}", value, "a text, or a list of texts"))
        return tuple(str(one) for one in values)

    def choices(self, where: str, table: Mapping[str, Any], key: str, allowed: Sequence[str]) -> tuple[str, ...]:
        values = table.get(key, list(allowed))
        for value in values:
            if value not in allowed:
                self.problems.append(Problem(f"{self.path}: {where}.{key}", value, ", ".join(allowed)))
        return tuple(values)

    def environment(self, key: str, table: Mapping[str, Any]) -> EnvironmentSpec:
        where = f"environment.{key}"
        keys = {"python", "extra_index", "variables", "build", "machines", "unavailable", "gigabytes", "memory"}
        self.known(where + ".", table, keys)
        if key.partition("-")[0] not in DEVICES:
            allowed = f"{', '.join(DEVICES)}, or one of these with a variant: cpu-horovod"
            self.problems.append(Problem(f"{self.path}: environment", key, allowed))
        if not table.get("python"):
            self.problems.append(Problem(f"{self.path}: {where}.python", "", "minor versions, best first"))
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
            self.wrong(where, reasons, "a table of reasons by machine")
            return {}
        self.known(where + ".", reasons, {one for one in MACHINES if one not in table.get("machines", MACHINES[:1])})
        for machine, why in reasons.items():
            if not isinstance(why, str) or not why:
                self.wrong(f"{where}.{machine}", why, "the reason, for the report's cell")
        return {machine: str(why) for machine, why in reasons.items()}

    def image(self, device: str, table: Mapping[str, Any]) -> ImageSpec:
        if device not in DEVICES:
            self.problems.append(Problem(f"{self.path}: image", device, ", ".join(DEVICES)))
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
        return {input: self.choices("formats", table, input, images.FORMATS) for input in table}

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
            self.wrong("source.commit", source.commit, "a commit's hash, or where nobody tells it a tag or branch")
        return source

    def wrong(self, where: str, value: object, allowed: str, step: str = "") -> None:
        self.problems.append(Problem(f"{self.path}: {where}", value, allowed, step))

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

    def one_of(self, where: str, value: object, allowed: Sequence[str]) -> str:
        if value not in allowed:
            self.wrong(where, value, ", ".join(allowed))
        return str(value)

    def number(self, where: str, value: object, least: int = 0) -> int:
        if not isinstance(value, int) or value < least:
            self.wrong(where, value, f"a whole number, {least} or more")
            return least
        return value

    def positive(self, where: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            self.wrong(where, value, "a number, more than 0")
            return 1.0
        return float(value)

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
                self.wrong(place + ".words", rest["words"], f"a command line ({error})")
            if content != "values" and not rest.get(content):
                self.wrong(f"{place}.{content}", "", "a text")
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
            self.wrong(where + ".line", text, f"a regular expression ({error})")
            line = re.compile("")
        groups = set(line.groupindex)
        timed = groups & {"timestamp", "seconds", "rate"}
        if "step" not in groups or len(timed) != 1 or groups - timed - {"step", "loss"}:
            self.wrong(where + ".line", text, "named groups: step, one of timestamp, seconds and rate, and maybe loss")
        if ("timestamp" in groups) != bool(table.get("timestamp")):
            self.wrong(where + ".timestamp", table.get("timestamp", ""), "the format of the group timestamp")
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
            self.wrong("source", adapter.source or "", "a table with repository and commit, where there are [script.*]")
        for device, one in adapter.images.items():
            values = adapter.options["image"].values if "image" in adapter.options else ()
            if set(one.named) != set(values):
                self.wrong(
                    f"image.{device}.named",
                    ", ".join(one.named),
                    f"the values of the option image: {', '.join(values)}",
                )
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
        """An option's environments are of its values, and some device has them."""
        for name, option in adapter.options.items():
            for value, variant in option.environment.items():
                where = f"{self.path}: options.{name}.environment"
                if not option.accepts(value):
                    self.problems.append(Problem(where, value, f"a value of {name}: {', '.join(option.values)}"))
                if not any(f"{device}-{variant}" in adapter.environments for device in DEVICES):
                    self.problems.append(Problem(where, variant, f"the variant of a table [environment.cpu-{variant}]"))

    def support(self, index: int, table: Mapping[str, Any]) -> Support:
        where = f"support[{index}]"
        self.known(where + ".", table, {"family", "device", "precision", "input", "status", "why"})
        status, why = self.status(where, table)
        return Support(
            status=status,
            why=why,
            family=self.choices(where, table, "family", tuple(FAMILIES)),
            device=self.choices(where, table, "device", DEVICES),
            precision=self.choices(where, table, "precision", tuple(PRECISIONS)),
            input=self.choices(where, table, "input", INPUTS),
        )

    def status(self, where: str, table: Mapping[str, Any]) -> tuple[str, str]:
        """Status, and the reason, which those that do not run must have."""
        status, why = str(table.get("status", "")), str(table.get("why", ""))
        if status not in STATUSES:
            self.problems.append(Problem(f"{self.path}: {where}.status", status, ", ".join(STATUSES)))
        if status not in RUNNABLE and not why:
            self.problems.append(Problem(f"{self.path}: {where}.why", why, "the reason, for the report's cell"))
        return status, why

    def kernels(self, index: int, table: Mapping[str, Any]) -> Kernels:
        where = f"kernels[{index}]"
        self.known(where + ".", table, {"family", "device", "precision", "needs", "kernels", "why", "options"})
        kind, why = self.one_of(f"{where}.kernels", table.get("kernels", ""), cpu.KERNELS), str(table.get("why", ""))
        if kind != "native" and not why:
            self.wrong(f"{where}.why", why, "the reason, for the report")
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
        for family, device, precision in product(FAMILIES, DEVICES, PRECISIONS):
            entries = adapter.kernels_of(family, device, precision)
            if entries and entries[-1]["needs"]:
                where = f"kernels ({family}, {device}, {precision})"
                self.wrong(where, ", ".join(entries[-1]["needs"]), "a last entry without needs")
        for one in adapter.kernels:
            for name, value in one.options.items():
                known = adapter.options[name].values if name in adapter.options else ()
                self.one_of(f"kernels.options.{name}", value, known)

    def distributed(self, index: int, table: Mapping[str, Any]) -> Distributed:
        where = f"distributed[{index}]"
        self.known(where + ".", table, {"device", "status", "why"})
        status, why = self.status(where, table)
        return Distributed(status, why, self.choices(where, table, "device", DEVICES))

    def option(self, name: str, table: Mapping[str, Any]) -> Option:
        where = f"options.{name}"
        self.known(where + ".", table, {"about", "values", "any", "family", "labels", "environment"})
        values = tuple(str(value) for value in table.get("values", ()))
        if not values:
            self.problems.append(Problem(f"{self.path}: {where}.values", "", "at least the default"))
        return Option(
            name=name,
            about=str(table.get("about", "")),
            values=values,
            any=bool(table.get("any", False)),
            family=self.choices(where, table, "family", tuple(FAMILIES)) if "family" in table else (),
            labels={str(value): str(label) for value, label in table.get("labels", {}).items()},
            environment={str(value): str(variant) for value, variant in table.get("environment", {}).items()},
        )
