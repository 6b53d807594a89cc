"""From the command line's texts to a Spec. Every wrong field is reported at once."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlperf import launchers, machine, models
from dlperf.adapters import cpu
from dlperf.adapters.compression import KINDS
from dlperf.catalog import checkout
from dlperf.catalog.adapter import Adapter
from dlperf.errors import UsageError, did_you_mean, either
from dlperf.launchers import containers
from dlperf.launchers.api import EMULATOR
from dlperf.launchers.containers import ARGUMENTS, ENGINES
from dlperf.planning import tuned
from dlperf.planning.devices import Devices
from dlperf.planning.often import Often
from dlperf.planning.places import Places
from dlperf.planning.sizes import Sizes
from dlperf.planning.spec import (
    AUTO,
    TIMEOUTS,
    Spec,
    default_batch_size,
    without_amp,
)
from dlperf.precision import ASKED


@functools.cache
def emulated_flags(model: str) -> frozenset[str] | None:
    """What dlperf.adapters.cpu finds under an emulated CPU; None if it cannot be emulated."""
    command = [EMULATOR, "-cpu", model, sys.executable, "-I", str(Path(cpu.__file__))]
    try:
        asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return frozenset(asked.stdout.split()) if asked.returncode == 0 else None


def from_arguments(
    arguments: Mapping[str, Any], adapters: Mapping[str, Adapter], precisions: Sequence[str] = ASKED
) -> Spec:
    """Check the command line's texts and make a Spec. precisions: those allowed. UsageError lists every wrong field."""
    checker = _Checker(arguments)
    if arguments["dry_run"] not in (None, False, True, "plan", "rows", "full"):
        checker.wrong("dry_run", arguments["dry_run"], "plan, rows, full")
    frameworks = checker.frameworks(adapters)
    places = checker.places(any(adapters[name].kind.run for name in frameworks))
    device = checker.device([adapters[name] for name in frameworks], places)
    chosen_models = checker.models()
    protocol = checker.protocol(device, chosen_models)
    emulated = checker.emulated([adapters[name] for name in frameworks], device, places)
    instructions = checker.instructions(device, places, emulated)
    spec = Spec(
        models=chosen_models,
        precisions=checker.precisions(
            precisions, [adapters[name] for name in frameworks], chosen_models, device, instructions
        ),
        frameworks=frameworks,
        device=device,
        env=checker.choice("env", ("venv", "current", *ENGINES)),
        protocol=protocol,
        batch_size=checker.batch_size(),
        largest_batch=arguments.get("batch_size") == "max",
        global_batch_size=checker.count("global_batch_size", None),
        compile=checker.listed("compile", ("on", "off")) if arguments.get("compile") else (),
        tuned=checker.choice("tuned", tuned.CHOICES) if arguments.get("tuned") else "off",
        settings=checker.settings(),
        data=arguments["data"],
        timeout=checker.seconds("timeout", TIMEOUTS[protocol.name]),
        seed=checker.count("seed", 1, least=0),
        # the same for all rows, so that a device is the same in all
        threads=checker.count("threads", max(1, checker.cores(places) // max(places["nproc_per_node"]))),
        verify=not arguments.get("no_verify"),
        predict=checker.counts("predict", ()),
        inputs=checker.inputs(),
        formats=checker.formats(chosen_models),
        images=checker.images(frameworks),
        container_arguments=checker.container_arguments(),
        sources=checker.sources([adapters[name] for name in frameworks], chosen_models),
        instructions=None if instructions is None else tuple(sorted(instructions)),
        emulate_cpu=emulated,
        allow_reference=bool(arguments.get("allow_reference")),
        aa=checker.count("aa", int(protocol.name == "dlperf" and len(set(frameworks)) > 1), least=0),
        gpus=checker.gpus(device, places),
        until=checker.until(),
        max_time=checker.seconds("max_time", 0.0) if arguments.get("max_time") else 0.0,
        **places,
    )
    checker.words("only")
    checker.containers(spec)
    checker.batch_sizes(spec, [adapters[name] for name in frameworks])
    checker.options(spec, adapters)
    checker.data(spec, adapters)
    checker.output()
    if spec.predict and max(spec.world_sizes) == 1:
        says = "no row has several devices, so there is nothing to predict from. Ask for some with --nproc-per-node."
        checker.problem("predict", arguments["predict"], says)
    if checker.problems:
        raise UsageError(checker.problems)
    return spec


class _Checker(Devices, Often, Places, Sizes):
    """Checks what flags mean together, and on this machine."""

    def cores(self, places: Mapping[str, Any]) -> int:
        node = self.node(places)
        here = launchers.find(places["launcher"]).nodes_here(max(places["nnodes"]))
        return node.threads if node else max(1, int(machine.usable_cores()) // here)

    def precisions(
        self,
        allowed: Sequence[str],
        chosen: Sequence[Adapter],
        chosen_models: Sequence[str],
        device: str,
        instructions: frozenset[str] | None,
    ) -> tuple[str, ...]:
        """auto stands alone: it is amp, or fp32 where amp would leave too little to compare."""
        if self.arguments["precision"] != AUTO or "amp" not in allowed:
            return self.listed("precision", allowed, alone=AUTO if "amp" in allowed else "")
        families = {models.FAMILY_OF[model] for model in chosen_models}
        return ("fp32",) if without_amp(chosen, families, device, instructions) else ("amp",)

    def emulated(self, chosen: Sequence[Adapter], device: str, places: Mapping[str, Any]) -> str:
        """The CPU that --emulate-cpu names, if this machine can emulate it."""
        model = str(self.arguments.get("emulate_cpu") or "")
        alone = places["launcher"] == "local" and max(places["nproc_per_node"]) == 1
        alone = alone and all(one.kind.worker for one in chosen)
        if model and (device != "cpu" or not alone or self.arguments["env"] not in ("venv", "current")):
            fits = "native rows of one rank on this machine's CPU, with --env venv or current"
            self.problem("emulate_cpu", model, f"only {fits}, can run on an emulated CPU. Leave out --emulate-cpu.")
        elif model and not shutil.which(EMULATOR):
            self.problem("emulate_cpu", model, f"{EMULATOR} is not on PATH. Install it (Debian: qemu-user-static).")
        elif model and emulated_flags(model) is None:
            says = f"Python does not run on it. Choose another CPU, such as Haswell; {EMULATOR} -cpu help lists them."
            self.problem("emulate_cpu", model, says)
        else:
            return model
        return ""

    def instructions(self, device: str, places: Mapping[str, Any], emulated: str) -> frozenset[str] | None:
        """Of the CPU that runs the rows, where that is this machine's."""
        if device != "cpu" or launchers.find(places["launcher"]).elsewhere(max(places["nnodes"]), places["hosts"]):
            return None
        return emulated_flags(emulated) if emulated else cpu.flags()

    def frameworks(self, adapters: Mapping[str, Adapter]) -> tuple[str, ...]:
        if not self.arguments["frameworks"] or self.arguments["frameworks"] == "all":
            return tuple(name for name, adapter in adapters.items() if adapter.default)
        return self.listed("frameworks", tuple(adapters), again=True, alone="all")

    def sources(self, chosen: Sequence[Adapter], chosen_models: Sequence[str]) -> dict[str, str]:
        """--source DIR, for all scripts that are not ours, or ADAPTER=DIR with commas."""
        scripts = {adapter.name: adapter for adapter in chosen if adapter.source}
        found: dict[str, str] = {}
        for word in self.words("source"):
            name, sign, folder = word.partition("=")
            if sign and name not in scripts:
                known = ", ".join(scripts) or "none, as no framework in --frameworks runs a third-party script"
                self.wrong("source", name, known, did_you_mean(name, scripts))
                continue
            if (
                not sign
                and len(scripts) != 1
                and len({one.source.commit for one in scripts.values() if one.source}) != 1
            ):
                says = f"it is for one script. Name one for each: {','.join(f'{name}=DIR' for name in scripts)}."
                none = "no framework in --frameworks runs a third-party script. Leave it out."
                self.problem("source", word, says if scripts else none)
                continue
            for adapter in [scripts[name]] if sign else scripts.values():
                wrong = checkout.problem(adapter, Path(folder if sign else word), chosen_models)
                if wrong:
                    self.problems.append(wrong)
                found[adapter.name] = os.path.abspath(folder if sign else word)
        return found

    def images(self, frameworks: Sequence[str]) -> dict[str, str]:
        """REF, or ADAPTER=REF, with commas."""
        found: dict[str, str] = {}
        for word in self.words("image"):
            adapter, sign, reference = word.rpartition("=")
            if sign and adapter not in frameworks:
                self.wrong("image", adapter, ", ".join(frameworks), did_you_mean(adapter, frameworks))
            elif adapter in found:
                whom = adapter or "all frameworks"
                self.problem("image", word, f"{whom} already had the image {found[adapter]}. Name one.")
            else:
                found[adapter] = reference
        return found

    def container_arguments(self) -> dict[str, str]:
        given = self.pairs("container_arg", "KEY=VALUE")
        checks = {
            "infiniband": r"on|off",
            "shm-size": r"[0-9]{1,15}[bkmg]?",
            "gpus": r"all|none|[0-9]{1,4}(\+[0-9]{1,4})*",
        }
        for key, value in given.items():
            if key not in ARGUMENTS:
                allowed = ", ".join(ARGUMENTS)
                self.wrong("container_arg", key, allowed, did_you_mean(key, ARGUMENTS))
            elif key in checks and not re.fullmatch(checks[key], value):
                self.problem("container_arg", f"{key}={value}", f"{key} takes {ARGUMENTS[key]}.")
        try:
            shlex.split(given.get("extra", ""))
        except ValueError as error:
            self.problem("container_arg", f"extra={given['extra']}", f"a shell cannot split it into words: {error}.")
        return given

    def containers(self, spec: Spec) -> None:
        """What only containers take, and what they can't."""
        if spec.env not in ENGINES:
            for name in ("image", "container_arg"):
                if self.arguments.get(name):
                    says = f"--env {spec.env} uses no container. Choose --env {either(list(ENGINES))}, or leave it out."
                    self.problem(name, self.arguments[name], says)
            return
        for reference in spec.images.values():
            if allowed := containers.problem(reference, spec.env):
                self.wrong("image", reference, allowed)
        launcher = launchers.find(spec.launcher)
        if launcher.no_containers:
            self.problem("launcher", spec.launcher, f"{launcher.no_containers}.")
        folder = str(self.arguments.get("output") or self.arguments.get("resume") or os.getcwd())
        for name, path in (("output", folder), ("data", spec.data)):
            if set(path) & set(',"'):
                says = "containers take no folder whose name has a comma or a quotation mark. Choose another folder."
                self.problem(name, path, says)

    def output(self) -> None:
        if self.arguments.get("retry_failed"):
            self.problem(
                "retry_failed", "", "it goes on with a comparison that was made. Name its folder with --resume."
            )
        folder = os.path.abspath(self.arguments.get("output") or "runs")
        if "output" in self.arguments and os.pathsep in folder:
            says = "a folder whose path has a colon cannot be in PYTHONPATH, which workers need. Choose another one."
            self.problem("output", folder, says)

    def settings(self) -> dict[str, str]:
        found = self.pairs("set", "OPTION=VALUE or FRAMEWORK.OPTION=VALUE")
        if self.arguments.get("gradient_compression"):
            if "compression" in found:
                says = "--set compression is given too. Leave out one of them."
                self.problem("gradient_compression", self.arguments["gradient_compression"], says)
            found["compression"] = ",".join(self.listed("gradient_compression", tuple(KINDS)))
        return found

    def options(self, spec: Spec, adapters: Mapping[str, Adapter]) -> None:
        """A setting must fit at least one row; rows that it does not fit are skipped with the reason, see plan."""
        for key, values in spec.settings.items():
            for value in values.split(","):
                self._option(spec, adapters, key, value)

    def _option(self, spec: Spec, adapters: Mapping[str, Adapter], key: str, value: str) -> None:
        framework, dot, option = key.rpartition(".")
        flag = "gradient_compression" if key == "compression" and self.arguments.get("gradient_compression") else "set"
        if dot and framework not in spec.frameworks:
            self.wrong("set", framework, ", ".join(spec.frameworks), did_you_mean(framework, spec.frameworks))
            return
        chosen = [adapters[name] for name in ([framework] if dot else spec.frameworks)]
        families = {models.FAMILY_OF[model] for model in spec.models}
        available = {n: o for adapter in chosen for family in families for n, o in adapter.options_of(family).items()}
        if option not in available:
            names = ", ".join(sorted(available)) or "none, for these frameworks and models"
            self.wrong(flag, option, names, did_you_mean(option, available))
            return
        fitting = [o for a in chosen for f in families for n, o in a.options_of(f).items() if n == option]
        if not any(one.accepts(value) for one in fitting):
            allowed = sorted({allowed for one in fitting for allowed in one.values})
            self.wrong(
                flag, f"{key}={value}" if flag == "set" else value, ", ".join(allowed), did_you_mean(value, allowed)
            )

    def inputs(self) -> tuple[str, ...]:
        if self.arguments["data"] == "synthetic":
            if self.arguments.get("input"):
                says = "without --data, input is synthetic. Name a prepared folder with --data, or leave out --input."
                self.problem("input", self.arguments["input"], says)
            return ("synthetic",)
        return self.listed("input", ("native", "dali")) if self.arguments.get("input") else ("native",)

    def formats(self, chosen_models: Sequence[str]) -> tuple[str, ...]:
        """Those in the data folder, of those that are asked for; none for a folder that has none."""
        asked = self.listed("format", models.FORMATS) if self.arguments.get("format") else models.FORMATS
        data = self.arguments["data"]
        for reads in filter(None, map(models.input_of, chosen_models)):
            if there := reads.formats(data):
                found = tuple(format for format in asked if format in there)
                if not found:
                    step = f"To make another: {reads.COMMAND} --format {self.arguments['format']}."
                    self.problem("format", self.arguments["format"], f"{data} has {', '.join(there)}. {step}")
                return found
        return ()

    def data(self, spec: Spec, adapters: Mapping[str, Adapter]) -> None:
        if spec.data == "synthetic":
            return
        folder = Path(spec.data)
        if not os.path.isdir(folder):  # False for a name that is too long, too
            self.problem("data", spec.data, "there is no such folder. Make it with python -m dlperf.data.")
            return
        if not os.access(folder, os.R_OK | os.X_OK):
            self.problem("data", spec.data, "you do not have permission to read this folder.")
            return
        if not any(adapters[name].kind.worker for name in spec.frameworks):
            return  # others' scripts have formats of their own
        for model in spec.models:
            self._readable(spec, model)

    def _readable(self, spec: Spec, model: str) -> None:
        reads = models.input_of(model)
        if reads is None:
            self.problem("data", spec.data, f"{model} reads no folder. Leave out --data, or compare other models.")
            return
        each = max(spec.batches, default=0) or spec.batch_size or default_batch_size(model, spec.device, "fp32")
        batch = spec.global_batch_size or each * max(spec.world_sizes)
        for problem in reads.check(spec.data, models.config(model), batch, spec.formats):
            self.problem("data", "", problem)
