"""Third-party training scripts: their commands. Pure.

An adapter says them in its adapter.toml, see dlperf.catalog.script. A script is started as its authors or DLPerf
document it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dlperf import models
from dlperf.catalog.adapter import Adapter
from dlperf.catalog.checkout import FOLDER
from dlperf.catalog.script import Log, Script
from dlperf.envs.environment import Environment
from dlperf.launchers.containers import LABEL
from dlperf.planning.scripts import declared, holds
from dlperf.planning.spec import Protocol, Spec
from dlperf.schema import Job
from dlperf.shell import quote

#: where a script works, in its run's folder; removed afterwards, since scripts leave checkpoints
WORK = "work"
#: the port of the first rank where a script asks for one
PORT = 29500


class Steps(NamedTuple):
    """Of a run: dropped, of each window, windows, and all that the script is asked for."""

    warmup: int
    window: int
    windows: int
    total: int


def steps(script: Script, protocol: Protocol) -> Steps:
    """The protocol's, as far as the script's log can tell them: whole lines of it, and no fewer."""
    least = script.warmup_steps if protocol.name == "dlperf" else 0
    return logged_steps(script.log, protocol, least, script.extra_steps)


def logged_steps(log: Log, protocol: Protocol, least: int = 0, extra: int = 0) -> Steps:
    """The protocol's in whole lines of a log. least: of the warm-up. extra: after the last window."""
    warmup = _up(max(protocol.warmup_steps, least), log.every)
    window = _up(protocol.steps_per_window, log.every)
    return Steps(warmup, window, protocol.windows, warmup + window * protocol.windows + extra)


def _up(number: int, to: int) -> int:
    return -(-number // to) * to


#: stand in words for the number and the name of the node, which launch.sh is given on each of several
NODE, HOST = "@node_rank@", "@host@"


def command(adapter: Adapter, job: Job, spec: Spec, source: str, python: str, data: str) -> list[str]:
    """The words of a script's command, with NODE and HOST where it runs on several nodes. Pure.

    source: where its folder is; data: where its data are.
    """
    script = adapter.scripts[job.model]
    values = _values(adapter, job, spec, source, python, data)
    return [word.format_map(values) for part in script.command if holds(part, job) for word in part.words]


def variables(adapter: Adapter, job: Job, spec: Spec, source: str, python: str, data: str) -> dict[str, str]:
    """What is set for a script, over what every script gets."""
    values = _values(adapter, job, spec, source, python, data)
    given = declared(adapter.scripts[job.model].variables, job)
    threads = {"OMP_NUM_THREADS": str(spec.threads)} if job.device == "cpu" else {}
    return {"PYTHONUNBUFFERED": "1", **threads, **{name: text.format_map(values) for name, text in given.items()}}


def _values(adapter: Adapter, job: Job, spec: Spec, source: str, python: str, data: str) -> dict[str, object]:
    """What a command's {placeholders} stand for."""
    script = adapter.scripts[job.model]
    hosts = spec.hosts[: job.nnodes] or ("localhost",)
    node_batch_size = job.batch_size * job.nproc_per_node
    count = steps(script, spec.protocol).total
    return {
        **job.options,
        "source": source,
        "root": source.removesuffix("/" + script.folder),
        "python": python,
        "data": data,
        "batch_size": job.batch_size,
        "node_batch_size": node_batch_size,
        "global_batch_size": job.global_batch_size,
        "token_batch_size": job.batch_size * getattr(models.config(job.model), "sequence", 1),  # with padding
        "node_batch_size_over_1000": f"{node_batch_size / 1000:g}",  # the learning rate of some
        "steps": count,
        "samples": job.global_batch_size * count,
        "nnodes": job.nnodes,
        "nproc_per_node": job.nproc_per_node,
        "world_size": job.world_size,
        "node_rank": NODE if job.nnodes > 1 else 0,
        "threads": spec.threads,
        "gpus": ",".join(map(str, range(job.nproc_per_node))),
        "hosts": ",".join(hosts),
        "hosts_slots": ",".join(f"{host}:{job.nproc_per_node}" for host in hosts),
        "hosts_ports": ",".join(f"{host}:{PORT}" for host in hosts),
        "host": hosts[0] if job.nnodes == 1 else HOST,
        "master": hosts[0] if job.nnodes > 1 else "127.0.0.1",
        "port": PORT,
    }


def launch(adapter: Adapter, job: Job, spec: Spec, repeat: int, environment: Environment) -> str:
    """What `sh` runs for one run of a script, in the run's folder: launch.sh. Pure."""
    script, contained, python = adapter.scripts[job.model], bool(environment.image), str(environment.python)
    copied = f"../../../{FOLDER}/{adapter.name}/{script.folder}"
    own = os.path.abspath(job.data_dir) if job.data_dir else ""
    data = script.data if contained else own or script.data or "DIR"
    inside = script.inside if contained else f"../{copied}"
    words = command(adapter, job, spec, inside, python, data)
    settings = variables(adapter, job, spec, inside, python, data)
    env = ["env", *(f"{name}={value}" for name, value in settings.items())]
    line = _folded([*env, *words])
    if contained:
        mounts = {'"$PWD"/' + WORK: "/dlperf"}
        mounts.update({f'"$(cd {quote(copied)} && pwd)"': script.inside} if adapter.name in spec.sources else {})
        mounts.update({quote(own): script.data} if own else {})
        line = in_container(environment, mounts, line)
    else:
        line = f"cd {WORK} &&\nexec {line} 2>&1\n"
    head = f"#!/bin/sh\n# {job.id}, repeat {repeat + 1} of {spec.protocol.repeats}\n"
    here = f'cd "$(dirname "$0")" && mkdir -p {WORK} &&\n'
    if job.nnodes == 1 or script.start == "once":
        return f"{head}{here}{line}"
    return _on_nodes(spec.hosts[: job.nnodes] or ("localhost",), head, here + line)


def _folded(words: Iterable[str], width: int = 110) -> str:
    """Words of a command, quoted, over several lines."""
    lines = [""]
    for word in map(_word, words):
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return " \\\n    ".join(lines)


def in_container(environment: Environment, mounts: Mapping[str, str], line: str) -> str:
    """The shell's lines that run a command in an image: DLPerf's documented flags, which are others than those of
    containers.script, since scripts write as root and find data at their own paths; and what ends it with the run.
    """
    engine = environment.engine
    flags = "--rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host"
    volumes = " \\\n".join(f"  -v {host}:{quote(inside)}" for host, inside in mounts.items())
    return (
        'name="dlperf-$$"\n'
        f"trap '{engine} kill \"$name\" >/dev/null 2>&1; exit 143' TERM INT\n"
        f"{engine} run {flags} \\\n"
        f'  --name "$name" --label "{LABEL}=$(pwd -P)" -w /dlperf \\\n{volumes} \\\n'
        f"  {quote(environment.image)} \\\n  {line} 2>&1 &\nwait $!\n"
    )


def _on_nodes(hosts: Sequence[str], head: str, node: str) -> str:
    """One command on each host, over ssh, which is told its number and name."""
    lines = [
        f'ssh -tt {quote(name)} "sh \'$PWD/launch.sh\' node {index} {quote(name)}" </dev/null &\npids="$pids $!"\n'
        for index, name in enumerate(hosts)
    ]
    return (
        f'{head}case "$1" in\nnode)\n{node}exit\n;;\nesac\ncd "$(dirname "$0")" || exit\n'
        "trap 'kill $pids 2>/dev/null; exit 143' TERM INT\n"
        + "".join(lines)
        + 'code=0\nfor pid in $pids; do wait "$pid" || code=$?; done\nexit $code\n'
    )


def _word(text: str) -> str:
    """One word for the shell, with what launch.sh is given in place of NODE and HOST."""
    quoted = quote(text)
    for name, argument in {NODE: '"$2"', HOST: '"$3"'}.items():
        quoted = quoted.replace(name, argument if quoted == text else f"'{argument}'")
    return quoted
