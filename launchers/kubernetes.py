"""Kubernetes: an Indexed Job whose pods are the nodes, or, where Kubeflow Trainer is installed, a TrainJob.

Pod 0 makes the comparison, in the image and on a volume that all pods have; the other pods run its ranks
(`dlperf.launchers.pods`). The machine that submits needs `kubectl` and neither of both. No cluster has run this yet:
the objects are held to the published schemas.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from dlperf.launchers import kubectl, objects, pods
from dlperf.launchers.api import Launch, Node, several, worker
from dlperf.launchers.jobs import Batch, Jobs, State
from dlperf.launchers.local import node
from dlperf.shell import quote

#: what a site decides; of those that name several things, commas or lines are between them
ARGUMENTS = {
    "image": "the image of the pods, which has dlperf",
    "claim": "the PersistentVolumeClaim for the results and environments; for several nodes ReadWriteMany",
    "mount": "where it is mounted in the pods; default: /dlperf",
    "namespace": "the namespace; default: kubectl's own",
    "queue": "the LocalQueue of Kueue, which starts all pods at once",
    "priority": "the PriorityClass",
    "node-selector": "labels that nodes must have, as KEY=VALUE",
    "tolerations": "taints that nodes may have, as KEY:EFFECT, KEY=VALUE:EFFECT or KEY",
    "gpu": "the resource of a GPU; default: nvidia.com/gpu",
    "gpus-per-node": "GPUs of each pod; default: as many as its ranks, with --device cuda",
    "cpu": "CPUs of each pod, as 64",
    "memory": "memory of each pod, as 512Gi",
    "shm": "the most of it that /dev/shm may take, as 64Gi; default: all",
    "pull-secret": "Secrets for the image's registry",
    "service-account": "the ServiceAccount",
    "user": "the user, as 1000 or 1000:1000, and no privileges, as namespaces may ask for; default: the image's",
    "time": "the limit of a job in minutes, from when all its pods run",
    "setup": "shell commands that each pod begins with",
    "python": "the interpreter in the image that has dlperf; default: python3",
    "runtime": "a ClusterTrainingRuntime, as torch-distributed: makes a TrainJob (Kubeflow Trainer 2.2 or newer)",
}
#: of a Kubernetes name, label's key and label's value
NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
KEY = r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
QUANTITY = r"[0-9]+(\.[0-9]+)?(m|[kMGTP]|[KMGTP]i)?"
#: what a value must look like, and in words; of those with several, each
FORMS = {
    **dict.fromkeys(
        ("claim", "namespace", "queue", "priority", "pull-secret", "service-account", "runtime"),
        (NAME, "the name of an object of Kubernetes: small letters, digits, - and ."),
    ),
    "image": (r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", "an image, as registry.example/dlperf:1"),
    "mount": (r"/[^:]+", "an absolute path without a colon"),
    "node-selector": (f"{KEY}={VALUE}", "labels, as nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"),
    "tolerations": (
        f"{KEY}(={VALUE})?(:(NoSchedule|PreferNoSchedule|NoExecute))?",
        "taints, as nvidia.com/gpu:NoSchedule or dedicated=bench:NoExecute",
    ),
    "gpu": (KEY, "a resource, as nvidia.com/gpu or nvidia.com/mig-1g.10gb"),
    "gpus-per-node": (r"[1-9][0-9]{0,3}", "a whole number"),
    "cpu": (r"[0-9]+(\.[0-9]+)?|[0-9]+m", "a number of CPUs, as 64 or 500m"),
    "memory": (QUANTITY, "an amount of memory, as 512Gi"),
    "shm": (QUANTITY, "an amount of memory, as 64Gi"),
    "user": (r"[1-9][0-9]{0,9}(:[0-9]{1,10})?", "numbers of a user and a group, as 1000 or 1000:1000"),
    "time": (r"[1-9][0-9]{0,6}", "a whole number of minutes"),
}
SEVERAL = ("node-selector", "tolerations", "pull-secret")

#: runs a part of launch.sh in this pod, and in the first pods
HERE = 'exec sh "$PWD/launch.sh" node 0\n'
START = 'exec {python} -m dlperf.launchers.pods run {nnodes} sh "$PWD/launch.sh" node\n'


class Kubernetes(Jobs):
    name, title, suffix, shares = "kubernetes", "Kubernetes", ".yaml", False
    about = "Kubernetes: an Indexed Job, or a TrainJob of Kubeflow Trainer"
    arguments: ClassVar[Mapping[str, str]] = ARGUMENTS
    required = ("image", "claim")
    programs: ClassVar[Mapping[str, str]] = {"kubectl": "Debian: kubernetes-client; or kubernetes.io/docs/tasks/tools"}
    allocations = ("comparison",)
    starts_servers = True
    no_containers = "a pod is a container: name its image with --launcher-arg image=..., and leave out --env"
    python = "python3"
    ended = re.compile(
        r"(?P<role>rank|server) (?P<rank>\d+) on (?P<host>\S+) was (?P<how>ended by signal .*)$", re.MULTILINE
    )
    gone = re.compile(r"^(?P<said>pod \d+ on .* was lost: .*)$", re.MULTILINE)

    def inside(self, environ: Mapping[str, str] = os.environ) -> bool:
        return pods.PODS in environ

    def hosts(self) -> tuple[str, ...]:
        return tuple(one["host"] for one in pods.told(Path(os.environ[pods.PODS])).values())

    def missing(self) -> str:
        """The pods ask Kubernetes nothing."""
        return "" if self.inside() else super().missing()

    def nodes(self, arguments: Mapping[str, str]) -> tuple[Node, ...]:
        """Those with the labels that are asked for, as far as the user may list nodes."""
        return kubectl.nodes(objects.split(arguments.get("node-selector", "")), arguments.get("gpu", objects.GPU))

    def wrong(self, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for key, (form, words) in FORMS.items():
            values = objects.split(given.get(key, "")) if key in SEVERAL else [given[key]] if key in given else []
            if not all(re.fullmatch(form, value) for value in values):
                yield key, words
        if "runtime" in given and "priority" in given:
            yield "priority", "none beside runtime, which has its own"

    def there(self, folder: Path, arguments: Mapping[str, str]) -> Path:
        """On the volume, under a name that no other comparison has."""
        label = re.sub(r"[^a-z0-9]+", "-", folder.name.lower())[:24].strip("-")
        return Path(arguments.get("mount", objects.MOUNT), f"{label}-{secrets.token_hex(3)}".strip("-"))

    def script(self, launch: Launch) -> str:
        """Of a run in the pods."""
        rank = worker(launch, {"DLPERF_LAUNCHER": self.name})
        python = quote(launch.arguments.get("python", self.python))
        start = START.format(python=python, nnodes=launch.nnodes) if launch.nnodes > 1 else HERE
        return several(launch, rank, start, others={"node": node(launch, '"$2"')})

    def limit(self, arguments: Mapping[str, str]) -> int | None:
        return int(arguments["time"]) if "time" in arguments else None

    def batch(self, asked: Batch, working: Path) -> str:
        """The object that is created, as YAML."""
        return objects.yaml(objects.job(asked))

    def submit(self, path: Path, after: str, more: Sequence[str]) -> str:
        text = path.read_text(encoding="utf-8")
        return kubectl.create(text.replace("args: []\n", f"args: {json.dumps(list(more))}\n"))

    def states(self, jobs: Sequence[str]) -> dict[str, State] | None:
        return kubectl.states(jobs)

    def printed(self, job: str) -> dict[str, str]:
        return kubectl.logs(job)

    def cancel(self, jobs: Sequence[str]) -> None:
        kubectl.delete(jobs)


LAUNCHER = Kubernetes()
