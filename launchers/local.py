"""Processes on this machine, started by `dlperf.adapters.spawn`."""

from __future__ import annotations

import re

from dlperf.launchers.api import Launch, Launcher, command, several, single, worker
from dlperf.shell import quote


class Local(Launcher):
    name = "local"
    about = "processes on this machine"
    starts_servers = True
    ended = re.compile(
        r"^(?P<role>rank|server) (?P<rank>\d+) on (?P<host>\S+) was (?P<how>ended by signal .*)$", re.MULTILINE
    )

    def script(self, launch: Launch) -> str:
        if launch.world_size == 1 and not launch.servers:
            return single(launch)
        count = f"{launch.nproc_per_node}" + (f"+{launch.servers}" if launch.servers else "")
        spawn = command(launch.python, "-m", "dlperf.adapters.spawn", count)
        start = f'PYTHONPATH="$PWD"/{quote(launch.code)} exec {spawn} sh "$PWD"/launch.sh rank\n'
        return several(launch, worker(launch, {"DLPERF_LAUNCHER": self.name}), start)


LAUNCHER = Local()
