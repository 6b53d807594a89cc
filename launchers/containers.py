"""Containers of runs: which engines there are, and the command that starts one, as text for a shell. Pure.

A container sees the comparison's folder at its own path, the data folder to read, and nothing else of the machine. It
runs as the user who starts it, on the processors that he may use, and ends with the client that started it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlperf.shell import quote

#: engine -> where to get it
ENGINES = {
    "docker": "Debian's docker.io, or docs.docker.com/engine/install",
    "podman": "Debian's podman",
    "apptainer": "apptainer.org/docs (a .deb or .rpm)",
}
#: stands in --image for the image of NVIDIA that adapter.toml names
NGC = "ngc"
#: how apptainer is told of a registry
SCHEMES = ("docker://", "oras://", "library://")
#: keys of --container-arg
ARGUMENTS = {
    "gpus": "all (default on CUDA), none, or their numbers with a plus: 0+1",
    "network": "the network, as host; default: the engine's, and host where ranks are in several containers",
    "infiniband": "on: the devices in /dev/infiniband and locked memory",
    "shm-size": "size of /dev/shm, as 16g (default; where ranks are in several containers that of the machine)",
    "extra": "words for the engine as they are",
}
#: on every container, with the folder of its run: by it what is left is found
LABEL = "dlperf.run"
#: DLPerf's. Frameworks hand batches over in it, so NVIDIA asks for 1 GB or more; only what is used takes memory.
SHM_SIZE = "16g"
#: as NVIDIA's images ask for. Not on CPUs, where a container shall differ from a venv by its files alone.
ULIMITS = ("memlock=-1", "stack=67108864")
#: ends the client with its parent: what kills dlperf or an engine's daemon would leave the container behind
ENDS_WITH_PARENT = "$(setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM)"
#: the processors that this process may use, unless it may use all: a container does not inherit them
CPUS = """\
cpus="$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
[ "$cpus" != "$(cat /sys/devices/system/cpu/online)" ] || cpus=
"""


@dataclass(frozen=True)
class Container:
    """What the runs of one environment are started in. data: a folder to read, or empty. arguments: --container-arg."""

    engine: str
    image: str
    device: str = "cpu"
    data: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)


def problem(reference: str, engine: str) -> str:
    """What --image may be where this one cannot be; empty if it can."""
    if reference == NGC:
        return ""
    if engine == "apptainer":
        fits = reference.startswith(SCHEMES) or Path(reference).exists()
        return "" if fits else "a .sif file or a folder that there is, or docker://NAME:TAG, for apptainer"
    repository = reference.partition("@")[0].rpartition("/")[2].partition(":")[0]
    plain = all(letter.isalnum() or letter in "-._/:@" for letter in reference) and reference[:1].isalnum()
    fits = plain and repository == repository.lower() and reference.isascii() and "//" not in reference
    return "" if fits else "a reference as NAME:TAG or REGISTRY/NAME@sha256:..., in small letters, or ngc"


def script(
    one: Container, root: str, command: str, variables: Sequence[str] = (), apart: bool = False, terminal: bool = False
) -> str:
    """Shell commands that become a container, in the working folder of both.

    root: what the shell makes the folder that is mounted. command: what runs inside, as text for the shell. variables:
    names of those that go in as they are. apart: whether other ranks are in other containers. terminal: for a person.
    """
    options = _apptainer(one) if one.engine == "apptainer" else _docker(one, variables, apart, terminal)
    lines = [*options, *_extra(one), f"{quote(one.image)} {command}"]
    verb = "exec" if one.engine == "apptainer" else "run"
    cpus = "" if one.engine == "apptainer" else CPUS
    start = f"exec {ENDS_WITH_PARENT} {one.engine} {verb}"
    return f'root="{root}"\n{cpus}' + " \\\n  ".join([start, *lines]) + "\n"


def _docker(one: Container, variables: Sequence[str], apart: bool, terminal: bool) -> list[str]:
    given, podman = one.arguments, one.engine == "podman"
    network = given.get("network", "host" if apart else "")
    memory = f"--shm-size {quote(given.get('shm-size', SHM_SIZE))}"
    lines = [
        "--rm --init --pull never" + (" --interactive --tty" if terminal else ""),
        '--user "$(id -u):$(id -g)"',
        "--env HOME=/tmp --env USER=dlperf",
        *([f"--env {' --env '.join(variables)}"] if variables else []),
        f'--label "{LABEL}=$(pwd -P)"',
        '--mount "type=bind,src=$root,dst=$root" --workdir "$PWD"',
        *([f"--mount {quote(f'type=bind,src={one.data},dst={one.data},readonly')}"] if one.data else []),
        '${cpus:+--cpuset-cpus "$cpus"}',
        "--uts host",  # ranks say the host's name
        f"--network {quote(network)}" if network else "",
        "--ipc host" if apart and "shm-size" not in given else memory,
        *(f"--ulimit {limit}" for limit in ULIMITS if one.device == "cuda"),
        *_gpus(one),
    ]
    if given.get("infiniband") == "on":
        lines += ["--device /dev/infiniband --cap-add IPC_LOCK"]
        lines += [f"--ulimit {ULIMITS[0]}"] if one.device != "cuda" else []
    if podman:  # else an ordinary user is another one inside, and SELinux hides the folders
        lines += ['$([ "$(id -u)" = 0 ] || echo --userns=keep-id) --security-opt label=disable']
    return [line for line in lines if line]


def _gpus(one: Container) -> list[str]:
    asked = one.arguments.get("gpus", "all" if one.device == "cuda" else "none")
    if asked == "none":
        return []
    numbers = asked.split("+")
    if one.engine == "podman":
        return [f"--device nvidia.com/gpu={quote(number)}" for number in numbers]
    return ["--gpus " + ("all" if asked == "all" else quote(f'"device={",".join(numbers)}"'))]


def _apptainer(one: Container) -> list[str]:
    """It keeps the user, his variables, his processors and the machine's network and memory by itself."""
    asked = one.arguments.get("gpus", "all" if one.device == "cuda" else "none")
    lines = [
        "--home /tmp",
        '--mount "type=bind,src=$root,dst=$root" --pwd "$PWD"',
        *([f"--mount {quote(f'type=bind,src={one.data},dst={one.data},ro')}"] if one.data else []),
        *(["--nv"] if asked != "none" else []),
        *([f"--env CUDA_VISIBLE_DEVICES={quote(asked.replace('+', ','))}"] if asked not in ("all", "none") else []),
    ]
    return lines


def _extra(one: Container) -> list[str]:
    words = shlex.split(one.arguments.get("extra", ""))
    return [" ".join(map(quote, words))] if words else []
