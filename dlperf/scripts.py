"""Training scripts that are others': their commands, and the figures in what they print.

An adapter says both in its adapter.toml, see dlperf.catalog.script. A script is started as its authors or DLPerf
document it; what it prints becomes windows like those of our own workers: all samples over all seconds, after the
warm-up that the protocol asks for, whatever the script averages itself.

A log is read as marks: that so many steps were complete at a moment. Where lines have timestamps, the moments are
theirs; else they add up from the seconds, or from samples over the rate, that each line gives for the steps since the
line before. A window goes from mark to mark. Steps that dynamic loss scaling skips are time without a step.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from dlperf import process
from dlperf.adapters import probe
from dlperf.catalog import checkout, locks
from dlperf.catalog.adapter import Adapter
from dlperf.catalog.checkout import FOLDER
from dlperf.catalog.script import Log, Part, Script
from dlperf.envs import kinds
from dlperf.envs.environment import Environment, Progress
from dlperf.errors import RunError
from dlperf.events import Stream
from dlperf.launchers.containers import ENGINES, LABEL
from dlperf.process import Ended
from dlperf.schema import Failure, Job, Window
from dlperf.shell import quote
from dlperf.spec import Protocol, Spec

LOG = "stdout.log"
#: where a script works, in its run's folder; removed afterwards, since scripts leave checkpoints
WORK = "work"
BATCH_MEANS = {
    "device": "images or sentences on each device",
    "node": "of all devices of a node",
    "global": "of all devices",
    "tokens": "tokens on each device",
}
#: the port of the first rank where a script asks for one
PORT = 29500
#: what a tag before each line, as mpirun and horovodrun write it, says of the rank
TAG = re.compile(r"^\[\d+,(?P<rank>\d+)\]<std(?:out|err)>:")
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|\bOOM\b|RESOURCE_EXHAUSTED|ResourceExhausted|cudaMalloc failed")


# Commands


class Steps(NamedTuple):
    """Of a run: dropped, of each window, windows, and all that the script is asked for."""

    warmup: int
    window: int
    windows: int
    total: int


def steps(script: Script, protocol: Protocol) -> Steps:
    """The protocol's, as far as the script's log can tell them: whole lines of it, and no fewer."""
    every = script.log.every
    least = script.warmup_steps if protocol.name == "dlperf" else 0
    warmup = _up(max(protocol.warmup_steps, least), every)
    window = _up(protocol.steps_per_window, every)
    return Steps(warmup, window, protocol.windows, warmup + window * protocol.windows + script.extra_steps)


def _up(number: int, to: int) -> int:
    return -(-number // to) * to


def holds(part: Part, job: Job) -> bool:
    """Whether all conditions of `when` hold for a job."""
    facts = {
        **job.options,
        "device": job.device,
        "precision": job.precision,
        "ranks": "several" if job.world_size > 1 else "one",
        "nodes": "several" if job.nnodes > 1 else "one",
    }
    return all(facts.get(name) in values for name, values in part.when.items())


def declared(parts: Iterable[Part], job: Job) -> dict[str, str]:
    """The values of the parts that hold, later ones over earlier ones; {option} stands for an option's value."""
    found = {name: value for part in parts if holds(part, job) for name, value in part.values.items()}
    names = _Options(job.options)
    return {name: value.format_map(names) for name, value in found.items()}


class _Options(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "{" + name + "}"


def about(adapter: Adapter, job: Job) -> dict[str, str]:
    """What a reader must know of an upstream row, see schema.UPSTREAM."""
    assert adapter.source is not None
    script = adapter.scripts[job.model]
    name = "/".join(adapter.source.repository.rstrip("/").split("/")[-2:])
    return {
        "script": f"{name} at {adapter.source.short}, {script.folder}",
        "image": adapter.image(job.device, job.options),
        "batch": BATCH_MEANS[script.batch],
        "estimator": script.log.estimator,
        "differs": "; ".join(part.text for part in script.differs if holds(part, job)),
        "edits": ", ".join(checkout.edited(adapter, job.model)),
    }


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
        "token_batch_size": job.batch_size * 128,
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


def launch(adapter: Adapter, job: Job, spec: Spec, repeat: int, python: str, contained: bool) -> str:
    """What `sh` runs for one run of a script, in the run's folder: launch.sh. Pure.

    contained: whether it runs in its image, or with `python` of an environment.
    """
    script, image = adapter.scripts[job.model], adapter.image(job.device, job.options)
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
        line = in_container(spec, image, mounts, line)
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


def in_container(spec: Spec, image: str, mounts: Mapping[str, str], line: str) -> str:
    """The shell's lines that run a command in an image: DLPerf's documented flags, which are others than those of
    containers.script, since scripts write as root and find data at their own paths; and what ends it with the run.
    """
    flags = "--rm --init --gpus all --shm-size=16g --ulimit memlock=-1 --ulimit stack=67108864 --privileged --net=host"
    volumes = " \\\n".join(f"  -v {host}:{quote(inside)}" for host, inside in mounts.items())
    return (
        'name="dlperf-$$"\n'
        f"trap '{engine(spec)} kill \"$name\" >/dev/null 2>&1; exit 143' TERM INT\n"
        f"{engine(spec)} run {flags} \\\n"
        f'  --name "$name" --label "{LABEL}=$(pwd -P)" -w /dlperf \\\n{volumes} \\\n'
        f"  {quote(image)} \\\n  {line} 2>&1 &\nwait $!\n"
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


# Logs


class Line(NamedTuple):
    """What one line of a log says. step: how many are complete. time: its timestamp, or seconds since the last one."""

    number: int
    rank: str
    step: int
    time: float
    loss: float | None


@dataclass(frozen=True)
class Mark:
    """`steps` were complete at `clock`, says line `line`; what leads to it begins at line `since`."""

    steps: int
    clock: float
    line: int
    since: int
    loss: float | None


def lines(text: str, log: Log, job: Job) -> Iterator[Line]:
    """The lines with figures, those between carriage returns too. One that is cut off at the end is left out."""
    for number, line in enumerate(text.split("\n")[:-1], 1):
        tag = TAG.match(line)
        for found in log.line.finditer(line.replace("\r", " ")):
            try:
                yield _line(number, tag["rank"] if tag else "", found, log, job)
            except (ValueError, OverflowError, ZeroDivisionError):
                continue  # another rank wrote into the middle of it


def _line(number: int, rank: str, found: re.Match[str], log: Log, job: Job) -> Line:
    groups = found.groupdict()
    loss = float(groups["loss"]) if groups.get("loss") else None
    return Line(number, rank, int(groups["step"]) - log.first + 1, _time(groups, log, job), loss)


def _time(groups: Mapping[str, str], log: Log, job: Job) -> float:
    if log.timestamp == "epoch":
        return float(groups["timestamp"])
    if log.timestamp:
        return datetime.strptime(groups["timestamp"], log.timestamp).replace(tzinfo=UTC).timestamp()
    if "seconds" in groups:
        return float(groups["seconds"]) / (1000 if log.milliseconds else 1)
    counts = {
        "all": 1,
        "node": job.nnodes,
        "device": job.world_size,
        "step": job.global_batch_size,
        "node step": job.batch_size * job.nproc_per_node,
    }
    return log.every * job.global_batch_size / (float(groups["rate"]) * counts[log.rate_of])


def marks(found: Sequence[Line], log: Log) -> list[Mark]:
    """Of the lines of one rank. A step that is told again is a step whose update was skipped before: the last line
    counts, and all the time. Where steps count backwards, training began anew, and the rest is left out."""
    made: list[Mark] = []
    if found and not log.timestamp:
        made = [Mark(found[0].step - log.every, 0.0, found[0].number - 1, found[0].number, None)]
    for line in found:
        last = made[-1] if made else None
        if last and line.step < last.steps:
            break
        clock = line.time if log.timestamp else (last.clock if last else 0.0) + line.time
        again = last is not None and line.step == last.steps
        since = last.since if last and again else line.number
        if again:
            made.pop()
        made.append(Mark(line.step, clock, line.number, since, line.loss))
    return made


def windows(found: Sequence[Mark], wanted: Steps, log: Log, samples_per_step: int) -> list[Window]:
    """As many as the marks have after the warm-up, each of at least as many steps as wanted."""
    rest = iter(found)
    made: list[Window] = []
    start = next((mark for mark in rest if mark.steps >= wanted.warmup), None)
    since: int | None = None
    for mark in rest:
        if start is None or len(made) == wanted.windows:
            break
        since = since or (start.line if log.timestamp else mark.since)
        if mark.steps >= start.steps + wanted.window:
            count = mark.steps - start.steps
            span, seconds = f"{LOG}:{since}-{mark.line}", mark.clock - start.clock
            made.append(Window(len(made), count, count * samples_per_step, seconds, None, mark.loss, source=span))
            start, since = mark, None
    return made


def by_rank(found: Iterable[Line], log: Log, job: Job) -> dict[str, list[Line]]:
    """Lines of each rank that prints, as far as they can be told apart.

    Where several print and nothing tells them apart, their lines become those of the slowest: a step is complete when
    all have told so, and took as long as the longest of them.
    """
    ranks: dict[str, list[Line]] = {}
    for line in found:
        ranks.setdefault(line.rank, []).append(line)
    if _printing(log, job) == 1 or set(ranks) != {""}:
        return ranks
    told: dict[int, list[Line]] = {}
    for line in ranks[""]:
        told.setdefault(line.step, []).append(line)
    whole = [several for several in told.values() if len(several) >= _printing(log, job)]
    return {"": [_slowest(several) for several in whole]}


def _printing(log: Log, job: Job) -> int:
    """How many ranks print."""
    return {"one": 1, "node": job.nnodes, "all": job.world_size}[log.ranks]


def _slowest(several: Sequence[Line]) -> Line:
    losses = [line.loss for line in several if line.loss is not None]
    loss = fmean(losses) if losses else None
    return several[-1]._replace(time=max(line.time for line in several), loss=loss)


def _merged(of_ranks: Sequence[Window]) -> Window:
    """One window of all ranks: the slowest one's seconds."""
    seconds = [window.seconds for window in of_ranks]
    spans = [int(number) for window in of_ranks for number in window.source.rpartition(":")[2].split("-")]
    losses = [window.loss for window in of_ranks if window.loss is not None]
    return replace(
        of_ranks[0],
        seconds=max(seconds),
        skew_seconds=max(seconds) - min(seconds),
        loss=fmean(losses) if losses else None,
        source=f"{LOG}:{min(spans)}-{max(spans)}",
    )


def read(folder: Path, script: Script, job: Job, protocol: Protocol, versions: Mapping[str, str]) -> Stream:
    """What a run's log tells, in place of a worker's events. Never raises for what the log holds."""
    try:
        text = (folder / LOG).read_bytes().decode("utf-8", "replace")  # a carriage return ends no line
    except OSError:
        text = ""
    log, wanted = script.log, steps(script, protocol)
    ranks = by_rank(lines(text, log, job), log, job)
    of_ranks = [windows(marks(mine, log), wanted, log, job.global_batch_size) for mine in ranks.values()]
    found = tuple(_merged(several) for several in zip(*of_ranks, strict=False))
    first = [mine[0].time for mine in ranks.values() if mine and mine[0].step == log.every == 1 and not log.timestamp]
    why = _lack(ranks, found, wanted, script, job)
    return Stream(
        start={"versions": dict(versions)},
        built={"seconds": None} if found else {},
        warm={"effective": declared(script.effective, job), "first_step_seconds": max(first, default=None)},
        windows=found,
        end=None if why else {},
        failed={"kind": why.kind, "message": why.message} if why else None,
    )


def complete(folder: Path, script: Script, job: Job, protocol: Protocol) -> bool:
    """Whether the log has all that is wanted."""
    return read(folder, script, job, protocol, {}).failed is None


def _lack(
    ranks: Mapping[str, Sequence[Line]], found: Sequence[Window], wanted: Steps, script: Script, job: Job
) -> Failure | None:
    """Why a log gives no figures; None if it does."""
    printing = _printing(script.log, job)
    if not ranks:
        return Failure("no_figures", f"no line of {LOG} is of the form {script.log.line.pattern!r}")
    if not any(ranks.values()):
        return Failure("no_figures", f"no step is told {printing} times in {LOG}, once by each rank that should print")
    if script.log.ranks == "all" and set(ranks) != {""} and len(ranks) < printing:
        silent = sorted(set(map(str, range(job.world_size))) - set(ranks), key=int)
        return Failure("no_figures", f"of {job.world_size} ranks, {', '.join(silent)} printed no line with figures")
    for mine in ranks.values():
        for line in mine:
            if line.step > wanted.warmup and line.loss is not None and not math.isfinite(line.loss):
                return Failure("nan", f"the loss is {line.loss} after step {line.step} ({LOG}:{line.number})")
    last = min((mine[-1] for mine in ranks.values()), key=lambda line: line.step)
    if len(found) < wanted.windows:
        need = wanted.warmup + wanted.windows * wanted.window
        message = f"the log ends after step {last.step} ({LOG}:{last.number}); the protocol needs {need}"
        return Failure("no_figures", message)
    for window in found:
        if window.seconds <= 0:
            return Failure("no_figures", f"no time passes in {window.source}")
    return None


def failure(ended: Ended, stream: Stream, folder: Path) -> Failure | None:
    """What went wrong with a run: what its end tells, then what its log does."""
    tail, inside = process.last_lines(folder), stream.failure
    outside = process.outside(ended, tail)
    if outside is None and ended.code:
        outside = Failure("crash", f"it ended with exit code {ended.code}", tail)
    if outside is None or outside.kind == "timeout":
        return outside or (inside and replace(inside, lines=tail))
    said = f"; {inside.message}" if inside else ""
    kind = "out_of_memory" if OUT_OF_MEMORY.search("\n".join(tail)) else outside.kind
    kind = "nan" if inside and inside.kind == "nan" else kind
    return replace(outside, kind=kind, message=outside.message + said)


# What must be there


def environment(adapter: Adapter, job: Job, spec: Spec, folder: Path, note: Progress) -> Environment:
    """The script, copied into a comparison's folder, and what runs it: its image, or an environment.

    RunError (kind "environment") says what is missing and how to get it.
    """
    assert adapter.source is not None
    contained = in_image(adapter, job, spec)
    if not contained and spec.env in ENGINES:
        raise RunError("environment", f"{adapter.name} runs in no image: leave out --env {spec.env}")
    given = spec.sources.get(adapter.name)
    target = folder / FOLDER / adapter.name
    if given and not target.exists():
        # it may have changed since the comparison was asked for
        wrong = checkout.problem(adapter, Path(given), spec.models)
        if wrong:
            raise RunError("environment", str(wrong))
        checkout.copy(adapter, Path(given), target, spec.models)
    if contained:
        made = _image(adapter, job, engine(spec))
    elif spec.env != "current" and job.environment not in adapter.environments:
        step = f"make one as {adapter.homepage} tells, and run dlperf in it with --env current"
        raise RunError("environment", f"{adapter.name} has no environment of ours on {job.device}: {step}")
    if not given and (not contained or any(checkout.edited(adapter, job.model))):
        step = f"{adapter.source.checkout}; then --source {adapter.name}=DIR"
        raise RunError("environment", f"{adapter.name} needs its script: {step}")
    theirs = adapter.scripts[job.model].data
    if not contained and job.input != "synthetic" and not job.data_dir and not (theirs and Path(theirs).exists()):
        choices = adapter.options_of(job.family)
        other = ", or --set input=synthetic" if "input" in choices and choices["input"].accepts("synthetic") else ""
        where = f" (nothing is in {theirs})" if theirs else ""
        raise RunError("environment", f"{adapter.name} needs its data: --data DIR{other}{where}")
    return made if contained else kinds.ensure(adapter, job.environment, spec.env, note)


def planned(adapter: Adapter, job: Job, spec: Spec) -> Environment:
    """What `environment` would return. Runs nothing."""
    if in_image(adapter, job, spec):
        return Environment(adapter.name, job.environment, "image", Path("python3"), "", "", None, {})
    if spec.env == "current" or job.environment in adapter.environments:
        return kinds.planned(adapter, job.environment, spec.env)
    return Environment(adapter.name, job.environment, "none", Path("python3"), "", "", None, {})


def in_image(adapter: Adapter, job: Job, spec: Spec) -> bool:
    """Whether a job runs in an image; with --env current we are in one, or do without."""
    return spec.env != "current" and bool(adapter.image(job.device, job.options))


def engine(spec: Spec) -> str:
    """What containers of others' scripts are started with."""
    return spec.env if spec.env in ENGINES else "docker"


def get(adapter: Adapter, job: Job, spec: Spec) -> str:
    """The commands that bring what a job needs, as text."""
    assert adapter.source is not None
    lines = [] if adapter.name in spec.sources else [adapter.source.checkout]
    if in_image(adapter, job, spec):
        lines.append(f"{engine(spec)} pull {job.environment}")
    elif spec.env == "venv" and job.environment in adapter.environments:
        lines += kinds.commands(adapter, job.environment)
    return "\n".join(lines)


def _image(adapter: Adapter, job: Job, engine: str) -> Environment:
    image = job.environment
    pull = f"image {image} is not here: {engine} pull {image}"
    if engine == "apptainer":
        raise RunError("environment", f"{adapter.name} runs as root in its image: choose --env docker or podman")
    try:
        words = [engine, "image", "inspect", "--format", "{{.Id}}", image]
        found = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError("environment", f"{pull} ({engine} cannot be run: {error})") from None
    if found.returncode:
        said = found.stderr.strip().splitlines()[-1:]
        raise RunError("environment", f"{pull} ({' '.join(said) or f'{engine} gives no reason'})")
    if job.device == "cuda" and not probe.gpus():
        raise RunError("environment", f"{adapter.name} needs CUDA, and nvidia-smi finds no GPU here")
    return Environment(adapter.name, image, "image", Path("python3"), "", found.stdout.strip(), None, {})


def versions(adapter: Adapter, environment: Environment) -> dict[str, str]:
    """Of the framework, where a lock says so."""
    if environment.kind != "venv":
        return {}
    pinned = locks.read(adapter.environments[environment.key].lock)
    return {one.name: one.version for one in pinned if one.name in adapter.distribution}
