"""Processes on this machine, started by `dlperf.adapters.spawn`."""

from __future__ import annotations

import re

from dlperf.launchers.api import Launch, Launcher, command, several, single, worker
from dlperf.shell import quote


class Local(Launcher):
    name = "local"
    about = "processes on this machine"
    ended = re.compile(r"^rank (?P<rank>\d+) on (?P<host>\S+) was (?P<how>ended by signal .*)$", re.MULTILINE)

    def script(self, launch: Launch) -> str:
        if launch.world_size == 1:
            return single(launch)
        spawn = command(launch.python, "-m", "dlperf.adapters.spawn", launch.nproc_per_node)
        start = f'PYTHONPATH="$PWD"/{quote(launch.code)} exec {spawn} sh "$PWD"/launch.sh rank\n'
        return several(launch, worker(launch, {"DLPERF_LAUNCHER": self.name}), start)


LAUNCHER = Local()
