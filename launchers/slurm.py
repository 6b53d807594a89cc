"""Slurm: sbatch places the nodes, srun the ranks.

A run is a step of the job that holds the whole comparison (`Launch.step`), or a job of its own, whose script waits for
it and cancels it when it is ended.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from dlperf.adapters import ranks
from dlperf.errors import RunError
from dlperf.launchers.api import Launch, Node, command, comment, several, worker
from dlperf.launchers.jobs import PLACE, WARNED, Batch, Jobs, State, ask, compare, setup
from dlperf.launchers.local import node
from dlperf.shell import quote

#: arguments that become options of sbatch under their own names
SBATCH = {
    "partition": "the partition",
    "account": "the account",
    "qos": "the quality of service",
    "time": "the time limit of a job, as Slurm writes it",
    "constraint": "features that nodes must have",
    "gpus-per-node": "GPUs of each node; default: as many as its ranks, with --device cuda",
    "cpus-per-task": "CPUs of each rank; default: what the partition gives",
    "mem": "memory of each node; default: all of it where the node is ours alone",
}
#: what else a site decides
SITE = {
    "exclusive": "on (default): nodes are ours alone; off: others may have a part of them",
    "setup": "shell commands that a job begins with: module load cuda",
    "python": "the interpreter on the nodes that has dlperf; default: this one",
}
#: and of srun, with the pyxis plug-in
SRUN = {"container-image": "image for pyxis", "container-mounts": "folders for pyxis, with the run's folder among them"}

#: waits for the job; what became of it is the last line that it prints
WAIT = """\
job= silent=0
state() { scontrol -o show job "$job" 2>/dev/null | sed -n 's/.*JobState=\\([^ ]*\\).*/\\1/p'; }
tell() { scontrol -o show job "$job" 2>/dev/null |
  sed -n 's/.*JobState=\\([^ ]*\\) Reason=\\([^ ]*\\).*/Slurm job '"$job"' is \\1 (\\2)/p' >&2; }
stop() { trap '' TERM INT; [ -z "$job" ] || { tell; scancel "$job"; }; exit 143; }
trap stop TERM INT
job="$(sbatch --parsable "$PWD"/launch.sh batch)" || exit
job="${job%%;*}"
while :; do
  case "$(state)" in
  COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE) break ;;
  "") silent=$((silent + 1)); [ $silent -lt 60 ] || { echo "Slurm no longer answers about job $job" >&2; stop; } ;;
  *) silent=0 ;;
  esac
  sleep 0.5 & wait $!
done
cat slurm.log >&2
[ "$(state)" != COMPLETED ] || exit 0
tell
exit 1
"""


#: runs a step, and ends it on all its nodes when it is asked to end: srun alone only passes signals on
STEP = """\
{srun} &
step=$!
stop() {{
  trap '' TERM INT
  kill -TERM $step 2>/dev/null
  for _ in 1 2 3; do kill -0 $step 2>/dev/null || exit 143; sleep 1; done
  squeue -h -s -j "$SLURM_JOB_ID" -o '%i %j' | sed -n {name} | xargs -r scancel --signal=KILL
  exit 143
}}
trap stop TERM INT
wait $step
"""


#: runs a job's script on the first node of the allocation that is held, without keeping its steps from anything
HERE = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--cpu-bind=none")


class Slurm(Jobs):
    name, title = "slurm", "Slurm"
    about = "Slurm: sbatch, and srun inside"
    arguments: ClassVar[Mapping[str, str]] = {**SBATCH, **SITE, **SRUN, "extra": "words for sbatch as they are"}
    programs: ClassVar[Mapping[str, str]] = {
        name: "Debian: slurm-client" for name in ("sbatch", "scontrol", "squeue", "scancel")
    }
    allocations = ("comparison", "row", "run")
    starts_servers = True
    ended = re.compile(
        r"^srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[-,\d]*: (?P<how>(?!Exited).*)$", re.MULTILINE
    )
    ended_inside = re.compile(
        r"^srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[-,\d]*: Exited with exit code (?P<code>13[245679])$",
        re.MULTILINE,
    )
    gone = re.compile(
        r"^srun: error: (?P<said>Node failure on \S+|Task launch for StepId=\S+ failed on node \S+: .*)$", re.MULTILINE
    )
    stopped = re.compile(r"^Slurm job \S+ is (CANCELLED|PREEMPTED|TIMEOUT|DEADLINE|NODE_FAIL) .*$", re.MULTILINE)
    cause = re.compile(r"^(sbatch: error: .*|docker: .*|Slurm job .*|Slurm no longer .*)$", re.MULTILINE)

    def inside(self, environ: Mapping[str, str] = os.environ) -> bool:
        """The shell of salloc on a login node is not."""
        return bool(environ.get("SLURM_JOB_ID") and environ.get("SLURMD_NODENAME"))

    def held(self) -> bool:
        """In salloc's shell."""
        return bool(os.environ.get("SLURM_JOB_ID")) and not self.inside()

    def hosts(self) -> tuple[str, ...]:
        answer = ask("scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", ""))
        return tuple(answer.stdout.split()) if answer else ()

    def nodes(self, arguments: Mapping[str, str]) -> tuple[Node, ...]:
        """Of the partition that a job would go to, as sinfo has them."""
        where = [f"--partition={arguments['partition']}"] if "partition" in arguments else []
        answer = ask("sinfo", "--noheader", "--responding", *where, "--format=%c|%G|%P")
        found = [line.split("|") for line in (answer.stdout.splitlines() if answer else ()) if line.count("|") == 2]
        usual = [words for words in found if words[2].endswith("*")]  # of the default partition
        return tuple(Node(_gpus(gres), int(cpus.rstrip("+"))) for cpus, gres, _ in (found if where else usual or found))

    def script(self, launch: Launch) -> str:
        # with servers srun starts one task on each node, which starts the ranks and servers there
        held = launch.nproc_per_node + launch.servers // launch.nnodes
        each, part = (1, "node") if launch.servers else (launch.nproc_per_node, "rank")
        size = {"nodes": launch.nnodes, "ntasks": launch.nnodes * each, "ntasks-per-node": each}
        gpus = {"gpus-per-node": launch.nproc_per_node} if launch.device == "cuda" else {}
        containers = {key: launch.arguments[key] for key in SRUN if key in launch.arguments}
        rank = worker(launch, {"DLPERF_LAUNCHER": "local" if launch.servers else self.name})
        others = {"node": node(launch, '"$SLURM_PROCID"')} if launch.servers else {}
        names = (*ranks.VARIABLES[self.name], "DLPERF_HOSTS", "CUDA_VISIBLE_DEVICES")
        srun = ["srun", "--kill-on-bad-exit=1", "--cpu-bind=none"]
        if launch.step:
            options = {"job-name": launch.name, **size, "relative": 0, **gpus, **containers}  # rows have the same nodes
            step = command(*srun, *_options(options), "sh") + f' "$PWD"/launch.sh {part}'
            start = HOSTS + STEP.format(srun=step, name=quote(f"s/ {launch.name}$//p"))
            return several(launch, rank, start, others=others, contained=part, variables=names)
        given = {key: value for key, value in launch.arguments.items() if key in SBATCH}
        nodelist = {"nodelist": ",".join(launch.hosts[: launch.nnodes])} if launch.hosts else {}
        asked = {"nodes": launch.nnodes, "ntasks": launch.nnodes * held, "ntasks-per-node": held}
        options = {"job-name": launch.name, **asked, "output": "slurm.log", **nodelist, **gpus, **given}
        words = (*_options({**(size if launch.servers else {}), **containers}), "sh")
        batch = f'{setup(launch.arguments)}{HOSTS}exec {command(*srun, *words)} "$PWD"/launch.sh {part}\n'
        start = "rm -f slurm.log\n" + WAIT
        head = _head(options, "--no-requeue", *_extra(launch.arguments))  # a run that was preempted has failed
        return several(launch, rank, start, head, {**others, "batch": batch}, contained=part, variables=names)

    def batch(self, asked: Batch, working: Path) -> str:
        """The script of a job that runs a comparison on its first node, whose rows are steps."""
        given = {key: value for key, value in asked.arguments.items() if key in SBATCH}
        alone = asked.arguments.get("exclusive", "on") == "on"
        options: dict[str, object] = {
            "job-name": asked.name,
            "nodes": asked.nnodes,
            "ntasks-per-node": asked.nproc_per_node,
            "output": asked.folder / PLACE / "%j.log",
            "open-mode": "append",
            "time": asked.minutes,
            "signal": f"B:TERM@{WARNED}",
            **({"nodelist": ",".join(asked.hosts[: asked.nnodes])} if asked.hosts else {}),
            **({"gpus-per-node": asked.nproc_per_node} if asked.device == "cuda" else {}),
            **({"mem": 0} if alone else {}),
            **given,
        }
        words = [*(["--exclusive"] if alone else []), "--requeue", *_extra(asked.arguments)]
        text = BATCH.format(
            setup=setup(asked.arguments),
            working=quote(working),
            compare=compare(asked, '"$SLURM_JOB_ID"', '"$SLURM_JOB_NODELIST"'),
        )
        return f"#!/bin/sh\n{_head(options, *words)}{text}"

    def submit(self, path: Path, after: str, more: Sequence[str]) -> str:
        """Asks three times where sbatch does not answer."""
        words = ["sbatch", "--parsable", *([f"--dependency=afterany:{after}"] if after else []), str(path), *more]
        for attempt in (1, 2, 3):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout.strip().partition(";")[0]
            says = [line for line in done.stderr.splitlines() if line.strip()]
            if not any(sign in done.stderr for sign in ("Socket timed out", "Unable to contact", "temporarily unable")):
                break
            time.sleep(2.0**attempt)
        why = says[-1].removeprefix("sbatch: error: ") if says else done.returncode
        raise RunError("launcher", f"sbatch refused the job: {why}")

    def states(self, jobs: Sequence[str]) -> dict[str, State] | None:
        answer = ask("squeue", "--noheader", "--states=all", f"--jobs={','.join(jobs)}", "--format=%i|%T|%r")
        if answer is None or (answer.returncode and "Invalid job id" not in answer.stderr):
            return None
        found = (line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2)
        known = {job: _state(name, reason) for job, name, reason in found}
        return {**_accounted([job for job in jobs if job not in known]), **known}

    def cancel(self, jobs: Sequence[str]) -> None:
        ask("scancel", *jobs)


#: on the first node of a job: the names of its nodes
HOSTS = 'DLPERF_HOSTS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr \'\\n\' ,)"\nexport DLPERF_HOSTS\n'


def _options(values: Mapping[str, object]) -> Iterator[str]:
    for key, value in values.items():
        yield f"--{key}={value}"


def _head(options: Mapping[str, object], *words: str) -> str:
    quoted = [f"--{key}={quote(value)}" for key, value in options.items()]
    return "".join(comment(word, "#SBATCH") for word in (*quoted, *words))


def _extra(arguments: Mapping[str, str]) -> list[str]:
    return [arguments["extra"]] if "extra" in arguments else []


def _gpus(gres: str) -> int:
    """Of "gpu:a100:8(S:0-1),fs:1": 8."""
    return sum(int(number) for number in re.findall(r"(?:^|,)gpu(?::[^:,(]+)?:([0-9]+)", gres))


#: reasons of a pending job that no waiting ends: nodes, time or features that the partition, or the user, may not have
NEVER = frozenset(
    ["PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints", "InvalidAccount", "InvalidQOS"]
)


def _state(name: str, reason: str) -> State:
    return State(name, reason, never=name == "PENDING" and reason in NEVER)


def _accounted(jobs: Sequence[str]) -> dict[str, State]:
    """What accounting, where a site has it, knows of jobs that slurmctld has forgotten, minutes after their end."""
    if not jobs:
        return {}
    named = f"--jobs={','.join(jobs)}"
    answer = ask("sacct", "--noheader", "--allocations", "--parsable2", named, "--format=JobID,State")
    found = (line.split("|") for line in (answer.stdout.splitlines() if answer else ()) if line.count("|") == 1)
    return {job: State(state.split()[0], "") for job, state in found if state.strip()}  # "CANCELLED by 0"


BATCH = """\
{setup}cd {working} || exit
{compare}exit $code
"""

LAUNCHER = Slurm()
