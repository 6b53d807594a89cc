"""Nodes that are emulated on this machine: network namespaces, with a link to each, whose bandwidth and latency may be
asked for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import ClassVar

from dlperf.launchers.api import Launch, command, several, worker
from dlperf.launchers.local import Local
from dlperf.shell import quote

#: what makes a namespace: as root, or as root of a namespace of users
OWN = "--user --map-root-user"


class Emulated(Local):
    """`dlperf.adapters.emulated` makes the nodes and starts their ranks. All of them are in a namespace of their own,
    which is gone when they are: nothing has a name outside, and nothing is left."""

    name = "emulated"
    about = "processes on nodes that are emulated on this machine"
    programs: ClassVar[Mapping[str, str]] = {
        "ip": "Debian: iproute2",
        "tc": "Debian: iproute2",
        "unshare": "Debian: util-linux",
    }
    many_nodes = True
    emulates = True
    no_containers = "emulated: its nodes are namespaces of this machine, and a container would have one of its own"
    cause = re.compile(r"^(emulated: .*|unshare: .*)$", re.MULTILINE)

    def missing(self) -> str:
        lacking = super().missing()
        if lacking:
            return lacking
        tried = [subprocess.run(["unshare", *own, "--net", "true"], capture_output=True) for own in ([], OWN.split())]
        if all(one.returncode for one in tried):
            why = tried[-1].stderr.decode(errors="replace").strip()
            return f"this user may make no network namespaces ({why}). Run it as root"
        return ""

    def elsewhere(self, nnodes: int, hosts: Sequence[str]) -> bool:
        return False

    def script(self, launch: Launch) -> str:
        if launch.nnodes == 1:
            return super().script(launch)
        words = (launch.nnodes, f"{launch.bandwidth:g}", f"{launch.latency:g}", launch.of_node)
        nodes = command(launch.python, "-m", "dlperf.adapters.emulated", *words)
        start = (
            f"own=\nunshare --net true 2>/dev/null || own={quote(OWN)}\n"
            f'PYTHONPATH="$PWD"/{quote(launch.code)} exec unshare $own --net {nodes} sh "$PWD"/launch.sh rank\n'
        )
        return several(launch, worker(launch, {"DLPERF_LAUNCHER": "local"}), start)


LAUNCHER = Emulated()
