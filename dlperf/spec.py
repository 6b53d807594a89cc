"""What was asked, checked and resolved. Every wrong field is reported at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlperf import models
from dlperf.adapters import probe
from dlperf.catalog import DEVICES, Adapter
from dlperf.errors import Problem, UsageError, did_you_mean
from dlperf.models import pretraining

PRECISIONS = ("fp32", "tf32", "amp", "fp16", "bf16")


@dataclass(frozen=True)
class Protocol:
    """How often: `repeats` fresh processes, each with warm-up steps and then windows of steps."""

    name: str
    warmup_steps: int
    windows: int
    steps_per_window: int
    repeats: int


#: dlperf: DLPerf's 20 steps of warm-up, 100 measured, 7 repeats. quick: for machines where a step takes seconds.
PROTOCOLS = {"dlperf": Protocol("dlperf", 20, 5, 20, 7), "quick": Protocol("quick", 2, 3, 2, 3)}
#: seconds that one run may take, unless --timeout says otherwise
TIMEOUTS = {"dlperf": 7200.0, "quick": 1200.0}


@dataclass(frozen=True)
class Spec:
    """A comparison as asked.

    precisions: as the user wrote them; `resolve_precision` says what they mean on the device. batch sizes: None means
    the model's default. settings: option -> value, or "adapter.option" -> value. data: "synthetic" or a folder.
    timeout: seconds for one run. threads: CPU threads that each framework may use. verify: whether to make
    certificates that are missing.
    """

    models: tuple[str, ...]
    precisions: tuple[str, ...]
    frameworks: tuple[str, ...]
    device: str
    env: str
    protocol: Protocol
    batch_size: int | None = None
    global_batch_size: int | None = None
    compile: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    data: str = "synthetic"
    timeout: float = TIMEOUTS["quick"]
    seed: int = 1
    threads: int = 1
    verify: bool = True


def spec_from(data: Mapping[str, Any]) -> Spec:
    """The inverse of dataclasses.asdict, from JSON."""
    fields = dict(data)
    fields["protocol"] = Protocol(**fields["protocol"])
    for name in ("models", "precisions", "frameworks", "compile"):
        fields[name] = tuple(fields[name])
    return Spec(**fields)


def resolve_precision(asked: str, device: str) -> str:
    """fp32 and tf32 stay; amp is float16 with dynamic loss scaling on CUDA and bfloat16 on CPU."""
    if asked == "amp":
        return "amp_fp16" if device == "cuda" else "amp_bf16"
    return {"fp16": "amp_fp16", "bf16": "amp_bf16"}.get(asked, asked)


def default_batch_size(model: str, device: str, precision: str) -> int:
    sizes = models.family(model).BATCH_SIZE[device]
    return int(sizes["amp" if precision.startswith("amp") else precision]) if device == "cuda" else int(sizes)


def from_arguments(
    arguments: Mapping[str, Any], adapters: Mapping[str, Adapter], precisions: Sequence[str] = PRECISIONS
) -> Spec:
    """Check the command line's texts and make a Spec. precisions: those allowed. UsageError lists every wrong field."""
    checker = _Checker(arguments)
    frameworks = checker.frameworks(adapters)
    device = checker.device()
    protocol = checker.protocol("dlperf" if device == "cuda" else "quick")
    spec = Spec(
        models=checker.models(),
        precisions=checker.listed("precision", precisions),
        frameworks=frameworks,
        device=device,
        env=checker.choice("env", ("venv", "current")),
        protocol=protocol,
        batch_size=checker.count("batch_size", None),
        global_batch_size=checker.count("global_batch_size", None),
        compile=checker.listed("compile", ("on", "off")) if arguments.get("compile") else (),
        settings=checker.settings(),
        data=arguments["data"],
        timeout=checker.seconds("timeout", TIMEOUTS[protocol.name]),
        seed=checker.count("seed", 1, least=0),
        threads=checker.count("threads", probe.machine_cpus()),
        verify=not arguments.get("no_verify"),
    )
    checker.batch_sizes(spec)
    checker.options(spec, adapters)
    checker.data(spec)
    if checker.problems:
        raise UsageError(checker.problems)
    return spec


class _Checker:
    """Reads texts, returns a usable value in any case, and collects what is wrong."""

    def __init__(self, arguments: Mapping[str, Any]):
        self.arguments = arguments
        self.problems: list[Problem] = []

    def wrong(self, field: str, value: object, allowed: str, step: str = "") -> None:
        self.problems.append(Problem("--" + field.replace("_", "-"), value, allowed, step))

    def listed(self, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
        values = _split(self.arguments[name])
        for value in values:
            if value not in allowed:
                self.wrong(name, value, ", ".join(allowed), did_you_mean(value, allowed))
        if not values:
            self.wrong(name, self.arguments[name], ", ".join(allowed))
        return tuple(value for value in values if value in allowed) or (allowed[0],)

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        value = str(self.arguments[name])
        if value not in allowed:
            self.wrong(name, value, ", ".join(allowed), did_you_mean(value, allowed))
            return allowed[0]
        return value

    def models(self) -> tuple[str, ...]:
        known = [*models.ALIASES, *models.NAMES]
        return tuple(dict.fromkeys(models.ALIASES.get(name, name) for name in self.listed("model", known)))

    def frameworks(self, adapters: Mapping[str, Adapter]) -> tuple[str, ...]:
        if not self.arguments["frameworks"] or self.arguments["frameworks"] == "all":
            return tuple(name for name, adapter in adapters.items() if adapter.default)
        return self.listed("frameworks", tuple(adapters))

    def device(self) -> str:
        device = self.choice("device", ("auto", *DEVICES))
        if device == "cpu":
            return device
        gpus = probe.gpus()
        if device == "cuda" and not gpus and not self.arguments["dry_run"]:
            self.wrong("device", "cuda", "cpu on this machine", "nvidia-smi finds no GPU: is the driver installed?")
        return device if device == "cuda" else ("cuda" if gpus else "cpu")

    def protocol(self, default: str) -> Protocol:
        name = self.choice("protocol", tuple(PROTOCOLS)) if self.arguments["protocol"] else default
        base = PROTOCOLS[name]
        return Protocol(
            name=name,
            warmup_steps=self.count("warmup_steps", base.warmup_steps),
            windows=self.count("windows", base.windows),
            steps_per_window=self.count("steps_per_window", base.steps_per_window),
            repeats=self.count("repeats", base.repeats),
        )

    def count(self, name: str, default: Any, least: int = 1) -> Any:
        text = self.arguments.get(name)
        if text is None:
            return default
        if not str(text).isascii() or not str(text).isdigit() or int(text) < least:
            self.wrong(name, text, f"a whole number, {least} or more")
            return default
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        text = self.arguments.get(name)
        try:
            value = default if text is None else float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            self.wrong(name, text, "seconds, more than 0")
            return default
        return value

    def batch_sizes(self, spec: Spec) -> None:
        if spec.batch_size is not None and spec.global_batch_size is not None:
            both = f"{spec.batch_size} with --global-batch-size {spec.global_batch_size}"
            self.wrong("batch_size", both, "one of the two", "Leave out --batch-size or --global-batch-size.")

    def settings(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in self.arguments.get("set") or ():
            key, sign, value = text.partition("=")
            if not sign or not key or not value:
                self.wrong("set", text, "OPTION=VALUE or FRAMEWORK.OPTION=VALUE")
            elif found.get(key, value) != value:
                self.wrong("set", text, f"one value for {key}", f"It was already set to {found[key]!r}.")
            else:
                found[key] = value
        return found

    def options(self, spec: Spec, adapters: Mapping[str, Adapter]) -> None:
        """A setting must fit at least one row; rows that it does not fit are skipped with the reason, see plan."""
        for key, value in spec.settings.items():
            self._option(spec, adapters, key, value)

    def _option(self, spec: Spec, adapters: Mapping[str, Adapter], key: str, value: str) -> None:
        framework, dot, option = key.rpartition(".")
        if dot and framework not in spec.frameworks:
            self.wrong("set", key, ", ".join(spec.frameworks), did_you_mean(framework, spec.frameworks))
            return
        chosen = [adapters[name] for name in ([framework] if dot else spec.frameworks)]
        families = {models.FAMILY_OF[model] for model in spec.models}
        available = {n: o for adapter in chosen for family in families for n, o in adapter.options_of(family).items()}
        if option not in available:
            names = "an option of the chosen frameworks and models: " + (", ".join(sorted(available)) or "none")
            self.wrong("set", key, names, did_you_mean(option, available))
            return
        fitting = [o for a in chosen for f in families for n, o in a.options_of(f).items() if n == option]
        if not any(one.accepts(value) for one in fitting):
            allowed = sorted({allowed for one in fitting for allowed in one.values})
            self.wrong("set", f"{key}={value}", ", ".join(allowed), did_you_mean(value, allowed))

    def data(self, spec: Spec) -> None:
        if spec.data == "synthetic":
            return
        folder = Path(spec.data)
        if not folder.is_dir():
            self.wrong("data", spec.data, "synthetic, or an existing folder", "Make one with python -m dlperf.data.")
            return
        if not os.access(folder, os.R_OK | os.X_OK):
            self.wrong("data", spec.data, "a folder that you may read")
            return
        for model in spec.models:
            if models.FAMILY_OF[model] == "bert":
                batch = spec.batch_size or default_batch_size(model, spec.device, "fp32")
                for problem in pretraining.check(spec.data, models.config(model), batch):
                    self.wrong("data", spec.data, f"a folder made by python -m dlperf.data bert: {problem}")


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in str(text).split(",") if part.strip()))
