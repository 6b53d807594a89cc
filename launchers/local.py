"""Processes on this machine, started by `dlperf.adapters.spawn`."""

from __future__ import annotations

from dlperf.launchers.api import SPAWNED, Launch, Launcher, command, several, single, worker
from dlperf.shell import quote


class Local(Launcher):
    name = "local"
    about = "processes on this machine"
    starts_servers = True
    ended = SPAWNED

    def script(self, launch: Launch) -> str:
        if launch.world_size == 1 and not launch.servers:
            return single(launch)
        spawn = command(launch.python, "-m", "dlperf.adapters.spawn", launch.of_node)
        start = f'PYTHONPATH="$PWD"/{quote(launch.code)} exec {spawn} sh "$PWD"/launch.sh rank\n'
        return several(launch, worker(launch, {"DLPERF_LAUNCHER": self.name}), start)


def node(launch: Launch, number: str) -> str:
    """The part that starts all processes of one node. number: which it is, for the shell to expand."""
    spawn = command(launch.python, "-m", "dlperf.adapters.spawn", launch.of_node)
    path = f'PYTHONPATH="$PWD"/{quote(launch.code)}'
    return (
        f'cd "$(dirname "$0")" &&\nNODE_RANK={number} NNODES={launch.nnodes} {path} \\\n'
        f'exec {spawn} sh "$PWD"/launch.sh rank\n'
    )


LAUNCHER = Local()
