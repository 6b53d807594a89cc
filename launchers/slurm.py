"""Slurm: sbatch places the nodes, srun the ranks; the script waits for the job, and cancels it when it is ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from dlperf.adapters import ranks
from dlperf.launchers.api import Launch, Launcher, command, comment, several, worker
from dlperf.shell import quote

#: arguments that become options of sbatch under their own names
SBATCH = {
    "partition": "the partition",
    "account": "the account",
    "qos": "the quality of service",
    "time": "the time limit of a job, as Slurm writes it",
    "constraint": "features that nodes must have",
    "gpus-per-node": "GPUs of each node",
    "cpus-per-task": "CPUs of each rank; default: what the partition gives",
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


class Slurm(Launcher):
    name = "slurm"
    about = "Slurm: sbatch, and srun inside"
    arguments: ClassVar[Mapping[str, str]] = {**SBATCH, **SRUN, "extra": "words for sbatch as they are"}
    programs: ClassVar[Mapping[str, str]] = {
        name: "Debian: slurm-client" for name in ("sbatch", "scontrol", "squeue", "scancel")
    }
    many_nodes = True
    ended = re.compile(
        r"^srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[-,\d]*: (?P<how>(?!Exited).*)$", re.MULTILINE
    )
    ended_inside = re.compile(
        r"^srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[-,\d]*: Exited with exit code (?P<code>13[245679])$",
        re.MULTILINE,
    )
    cause = re.compile(r"^(sbatch: error: .*|docker: .*|Slurm job .*|Slurm no longer .*)$", re.MULTILINE)

    def script(self, launch: Launch) -> str:
        options = {
            "job-name": launch.name,
            "nodes": launch.nnodes,
            "ntasks": launch.world_size,
            "ntasks-per-node": launch.nproc_per_node,
            "output": "slurm.log",
            **({"nodelist": ",".join(launch.hosts[: launch.nnodes])} if launch.hosts else {}),
            **{key: value for key, value in launch.arguments.items() if key in SBATCH},
        }
        words = [f"--{key}={quote(value)}" for key, value in options.items()]
        words += ["--no-requeue"]  # a run that was preempted has failed
        words += [launch.arguments["extra"]] if "extra" in launch.arguments else []
        head = "".join(comment(word, "#SBATCH") for word in words)
        containers = [f"--{key}={launch.arguments[key]}" for key in SRUN if key in launch.arguments]
        srun = command("srun", "--kill-on-bad-exit=1", "--cpu-bind=none", *containers)
        batch = (
            'DLPERF_HOSTS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr \'\\n\' ,)"\nexport DLPERF_HOSTS\n'
            f'exec {srun} sh "$PWD"/launch.sh rank\n'
        )
        rank = worker(launch, {"DLPERF_LAUNCHER": self.name})
        names = (*ranks.VARIABLES[self.name], "DLPERF_HOSTS", "CUDA_VISIBLE_DEVICES")
        start = "rm -f slurm.log\n" + WAIT
        return several(launch, rank, start, head, {"batch": batch}, contained="rank", variables=names)


LAUNCHER = Slurm()
