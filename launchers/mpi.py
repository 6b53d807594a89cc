"""Open MPI's mpirun, over ssh on several hosts. MPI only starts the ranks: frameworks bring their own communication."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from dlperf.adapters import ranks
from dlperf.launchers.api import Launch, Launcher, command, extra, several, worker
from dlperf.launchers.local import node


class Mpi(Launcher):
    name = "mpi"
    about = "Open MPI's mpirun, over ssh on several hosts"
    arguments: ClassVar[Mapping[str, str]] = {
        "rsh": "the program in place of ssh",
        "network": "the network between the hosts, as 10.0.0.0/24 or as the name of an interface",
        "extra": "words for mpirun as they are",
    }
    programs: ClassVar[Mapping[str, str]] = {"mpirun": "Debian: openmpi-bin"}
    many_nodes = needs_hosts = starts_servers = True
    ended = re.compile(
        r"process rank (?P<rank>\d+) with PID \d+ on node\s+(?P<host>\S+)\s+(?P<how>exited on\s+signal[^.]*)"
    )

    ended_inside = re.compile(
        r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\](?P<host>)\s+Exit code:\s+(?P<code>13[245679])\s"
    )

    def script(self, launch: Launch) -> str:
        # with servers mpirun starts one process on each node, which starts the ranks and servers there
        each, starts = (1, "node") if launch.servers else (launch.nproc_per_node, "rank")
        words: list[object] = ["-np", launch.nnodes * each, "--bind-to", "none"]
        if launch.hosts:
            slots = [f"{host}:{each}" for host in launch.hosts[: launch.nnodes]]
            words += ["--host", ",".join(slots), "--map-by", f"ppr:{each}:node"]
        else:
            words += ["--oversubscribe"]
        if "rsh" in launch.arguments:
            words += ["--mca", "plm_rsh_agent", launch.arguments["rsh"]]
        if "network" in launch.arguments:
            for part in ("oob", "btl"):
                words += ["--mca", f"{part}_tcp_if_include", launch.arguments["network"]]
        root = '$([ "$(id -u)" = 0 ] && echo --allow-run-as-root)'  # which mpirun wants said
        start = f'exec mpirun {root} {command(*words, *extra(launch))} sh "$PWD"/launch.sh {starts}\n'
        by = "local" if launch.servers else self.name
        own = {"DLPERF_LAUNCHER": by, "DLPERF_HOSTS": ",".join(launch.hosts[: launch.nnodes])}
        names = (*ranks.VARIABLES[self.name], "CUDA_VISIBLE_DEVICES")
        others = {"node": node(launch, f'"${ranks.VARIABLES[self.name][0]}"')} if launch.servers else {}
        return several(launch, worker(launch, own), start, others=others, contained=starts, variables=names)


LAUNCHER = Mpi()
