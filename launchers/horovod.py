"""horovodrun with Gloo, over ssh on several hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from dlperf.launchers.api import Launch, Launcher, command, extra, several, worker
from dlperf.shell import quote


class Horovod(Launcher):
    name = "horovod"
    about = "horovodrun (Gloo), over ssh on several hosts; for --set communication=horovod"
    arguments: ClassVar[Mapping[str, str]] = {
        "network": "names of the network interfaces between the hosts, as eth0",
        "identity": "the file with ssh's private key",
        "port": "ssh's port",
        "extra": "words for horovodrun as they are",
    }
    in_environment = many_nodes = needs_hosts = True
    no_containers = "horovodrun is in no image: the launchers local and mpi start Horovod's ranks in containers too"
    ended = re.compile(r"Process (?P<rank>\d+)(?P<host>) (?P<how>exit with status code -\d+)")

    def rsh(self, arguments: Mapping[str, str]) -> list[str]:
        flags = (("identity", "-i"), ("port", "-p"))
        return [*super().rsh({}), *(word for key, flag in flags if key in arguments for word in (flag, arguments[key]))]

    def script(self, launch: Launch) -> str:
        hosts = launch.hosts[: launch.nnodes] or ("localhost",)
        slots = ",".join(f"{host}:{launch.nproc_per_node}" for host in hosts)
        words: list[object] = ["--gloo", "-np", launch.world_size, "-H", slots]
        for key, flag in (("network", "--network-interfaces"), ("identity", "--ssh-identity-file"), ("port", "-p")):
            if key in launch.arguments:
                words += [flag, launch.arguments[key]]
        run = command(launch.python, "-m", "horovod.runner.launch", *words, *extra(launch))
        own = {"DLPERF_LAUNCHER": self.name, "DLPERF_HOSTS": ",".join(launch.hosts[: launch.nnodes])}
        start = f'PYTHONPATH="$PWD"/{quote(launch.code)} exec {run} sh "$PWD"/launch.sh rank\n'
        return several(launch, worker(launch, own), start)


LAUNCHER = Horovod()
