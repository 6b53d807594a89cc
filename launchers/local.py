"""One process on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlperf.shell import quote

#: glibc gives large blocks back to the system at once and takes them again in the next step; keeping them made
#: PyTorch's ResNet-50 step 17 % faster on two cores. Every CPU worker gets the same settings.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "67108864",
}


@dataclass(frozen=True)
class Launch:
    """What a launcher needs to know of one run. code: the bundle, relative to the run's folder, which has job.json."""

    title: str
    python: Path
    code: Path
    device: str
    threads: int
    variables: Mapping[str, str]


def script(launch: Launch) -> str:
    """The shell script that runs the worker, to lie in the run's folder; `sh launch.sh` repeats the run. Pure."""
    variables = {
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(launch.threads),
        **(KEEP_MEMORY if launch.device == "cpu" else {}),
        **launch.variables,
    }
    settings = " \\\n".join(f"  {name}={_value(name, value)}" for name, value in variables.items())
    return (
        f'#!/bin/sh\n# {launch.title}\ncd "$(dirname "$0")" &&\nexec env \\\n'
        f'  PYTHONPATH="$PWD"/{quote(launch.code)} \\\n{settings} \\\n'
        f"  {quote(launch.python)} -m dlperf.adapters.worker job.json .\n"
    )


def _value(name: str, value: str) -> str:
    """A variable's value for the shell; the folders of libraries go before those that the user has set."""
    return quote(value) + ("${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" if name == "LD_LIBRARY_PATH" else "")
