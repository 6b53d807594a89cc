"""What the command lines of several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from dlperf.errors import did_you_mean
from dlperf.launchers.containers import ARGUMENTS, ENGINES

#: flags that make the spec, with the value that stands for "not given"
DEFAULTS: dict[str, object] = {
    "model": "resnet50,bert",
    "precision": "fp32",
    "frameworks": "all",
    "batch_size": None,
    "global_batch_size": None,
    "device": "auto",
    "env": "venv",
    "image": None,
    "container_arg": None,
    "protocol": None,
    "warmup_steps": None,
    "windows": None,
    "steps_per_window": None,
    "repeats": None,
    "compile": None,
    "set": None,
    "data": "synthetic",
    "input": None,
    "format": None,
    "timeout": None,
    "seed": None,
    "threads": None,
    "no_verify": None,
    "nnodes": None,
    "nproc_per_node": None,
    "hosts": None,
    "hostfile": None,
    "launcher": None,
    "launcher_arg": None,
    "predict": None,
    "source": None,
    "emulate_cpu": None,
    "allow_reference": None,
}


class Parser(argparse.ArgumentParser):
    """argparse, with a suggestion for a flag that does not exist."""

    def error(self, message: str) -> NoReturn:
        flags = [flag for action in self._actions for flag in action.option_strings]
        unknown = [word for word in message.split() if word.startswith("--")] if "unrecognized" in message else []
        hints = [did_you_mean(word.partition("=")[0], flags) for word in unknown]
        self.exit(2, f"{self.prog}: {message}. {' '.join(filter(None, hints))}".rstrip(". ") + ".\n")


def add_environment(add: Callable[..., object]) -> None:
    """The flags that say what a framework's processes live in."""
    engines = ", ".join(ENGINES)
    add("--env", metavar="E", help=f"venv (default: made on first use), current (this interpreter), {engines}")
    add("--image", metavar="I,...", help="for containers: REF, ngc or FRAMEWORK=REF; default: python -m dlperf.images")
    arguments = ", ".join(ARGUMENTS)
    add("--container-arg", action="append", metavar="KEY=VALUE", help=f"for containers: {arguments}")
