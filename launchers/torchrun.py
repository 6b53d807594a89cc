"""PyTorch's own launcher; over ssh on several hosts, one agent on each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from dlperf.launchers.api import Launch, Launcher, command, extra, several, worker
from dlperf.shell import quote

PORT = "29400"


class Torchrun(Launcher):
    name = "torchrun"
    about = "torchrun, which comes with PyTorch; on several hosts one agent on each, over ssh"
    arguments: ClassVar[Mapping[str, str]] = {
        "rsh": "the program in place of ssh",
        "port": f"where the agents meet, on the first host; default: {PORT}",
        "extra": "words for torchrun as they are",
    }
    in_environment = many_nodes = needs_hosts = True
    ended = re.compile(
        r"Root Cause \(first observed failure\):\n.*\n\s*time .*\n\s*host\s*: (?P<host>\S+)\n"
        r"\s*rank\s*: (?P<rank>\d+) .*\n\s*exitcode\s*: -\d+ .*\n.*\n\s*traceback : (?P<how>Signal .*)"
    )

    def script(self, launch: Launch) -> str:
        rank = worker(launch, {"DLPERF_LAUNCHER": self.name, "DLPERF_HOSTS": ",".join(launch.hosts)})
        python = f'PYTHONPATH="$PWD"/{quote(launch.code)} exec {command(launch.python)} -m torch.distributed.run'
        tail = f'--no-python {command(*extra(launch))} sh "$PWD"/launch.sh rank\n'.replace("  ", " ")
        if launch.nnodes == 1:
            return several(launch, rank, f"{python} --standalone --nproc-per-node {launch.nproc_per_node} {tail}")
        port = launch.arguments.get("port", PORT)
        agent = (
            f'cd "$(dirname "$0")" &&\n{python} --nnodes {launch.nnodes} --nproc-per-node {launch.nproc_per_node} '
            f'--node-rank "$2" --master-addr {quote(launch.hosts[0])} --master-port {quote(port)} {tail}'
        )
        return several(launch, rank, _over_ssh(launch), others={"node": agent}, contained="node")


def _over_ssh(launch: Launch) -> str:
    """One agent on each host. -tt: the remote side ends with its ssh."""
    rsh = quote(launch.arguments.get("rsh", "ssh"))
    lines = [
        f'{rsh} -tt {quote(host)} "sh \'$there/launch.sh\' node {number}" </dev/null &\npids="$pids $!"'
        for number, host in enumerate(launch.hosts[: launch.nnodes])
    ]
    return (
        "trap 'kill $pids 2>/dev/null; exit 143' TERM INT\n"
        # for the other side's shell, between quotation marks
        + r"""there="$(printf '%s' "$PWD" | sed "s/'/'\\\\''/g")" """.rstrip()
        + "\n"
        + "\n".join(lines)
        + '\ncode=0\nfor pid in $pids; do wait "$pid" || code=$?; done\nexit $code\n'
    )


LAUNCHER = Torchrun()
