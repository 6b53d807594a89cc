"""Kubernetes: an Indexed Job, one pod for each node, and a headless service by which the pods find each other; or,
where Kubeflow Trainer is installed, a TrainJob, which makes both.

The run's folder and the frameworks' environments must be in the pods too: on a volume that is mounted where they are
here. No cluster has run this yet: the manifests are checked against the published schemas.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple

from dlperf.launchers.api import Launch, Launcher, several, worker
from dlperf.shell import quote

JOB = """\
apiVersion: v1
kind: Service
metadata: {{name: {name}, labels: {{app: dlperf, job-name: {name}}}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{job-name: {name}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{app: dlperf}}}}
spec:
  completionMode: Indexed
  completions: {nnodes}
  parallelism: {nnodes}
  backoffLimit: 0
  template:
    metadata: {{labels: {{app: dlperf, job-name: {name}}}}}
    spec:
      subdomain: {name}
      restartPolicy: Never
      containers:
      - name: node
        image: {image}
        workingDir: {folder}
        command: [sh, {script}, node]
{resources}        volumeMounts:
        - {{name: shared, mountPath: {mount}}}
        - {{name: shm, mountPath: /dev/shm}}
      volumes:
      - {{name: shared, persistentVolumeClaim: {{claimName: {claim}}}}}
      - {{name: shm, emptyDir: {{medium: Memory}}}}
"""

#: The patches came with Kubeflow Trainer 2.2. Its container for the training is called "node".
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: {name}, labels: {{app: dlperf}}}}
spec:
  runtimeRef: {{name: {runtime}}}
  trainer:
    numNodes: {nnodes}
    numProcPerNode: {nproc_per_node}
    image: {image}
    command: [sh, {script}, node]
{resources}  runtimePatches:
  - manager: dlperf/launcher
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template:
              spec:
                template:
                  spec:
                    containers:
                    - name: node
                      volumeMounts:
                      - {{name: shared, mountPath: {mount}}}
                      - {{name: shm, mountPath: /dev/shm}}
                    volumes:
                    - {{name: shared, persistentVolumeClaim: {{claimName: {claim}}}}}
                    - {{name: shm, emptyDir: {{medium: Memory}}}}
"""

#: starts the job, waits for it, keeps the pods' logs and how they ended, and deletes it whatever happens
START = """\
name={name}
kubectl() {{ command kubectl{namespace} "$@"; }}
pods() {{ kubectl get pods -l {label} -o '{pods}' >&2; }}
stop() {{ trap '' TERM INT; kubectl delete --ignore-not-found --wait=false {objects} >&2; }}
trap 'pods; stop; exit 143' TERM INT
cat > manifest.yaml <<MANIFEST
{manifest}MANIFEST
kubectl apply -f manifest.yaml >&2 || {{ stop; exit 1; }}
while :; do
  state="$(kubectl get {job} -o 'jsonpath={{.status.conditions[?(@.status=="True")].type}}')"
  case "$state" in
  *Complete*) code=0; break ;;
  *Failed*) code=1; break ;;
  esac
  sleep 2 & wait $!
done
kubectl logs --prefix --tail=200 -l {label} >&2
[ $code = 0 ] || pods
stop
exit $code
"""
#: "pod NAME on NODE: Failed Evicted MESSAGE", one line for each pod; of one that waits, for what
PODS = (
    "jsonpath={range .items[*]}pod {.metadata.name} on {.spec.nodeName}: {.status.phase} {.status.reason} "
    '{.status.message}{.status.conditions[?(@.reason=="Unschedulable")].message}'
    '{.status.containerStatuses[*].state.waiting.reason}{"\\n"}{end}'
)


class Resource(NamedTuple):
    """What a run is on the cluster. job: the object whose conditions say how it ended. objects: what is deleted at the
    end. label: of its pods. host: the name of a node's pod, by number."""

    manifest: str
    job: str
    objects: str
    label: str
    host: str


INDEXED_JOB = Resource(JOB, '"job/$name"', '"job/$name" "service/$name"', '"job-name=$name"', "{name}-{node}.{name}")
TRAINER = Resource(
    TRAIN_JOB,
    '"trainjob/$name"',
    '"trainjob/$name"',
    '"jobset.sigs.k8s.io/jobset-name=$name"',
    "{name}-node-0-{node}.{name}",
)


class Kubernetes(Launcher):
    name = "kubernetes"
    about = "Kubernetes: an Indexed Job with a headless service, or a TrainJob of Kubeflow Trainer"
    arguments: ClassVar[Mapping[str, str]] = {
        "image": "the image of the pods; with --env docker that of the run",
        "claim": "the PersistentVolumeClaim that has the output folder and the environments",
        "mount": "where it is mounted, here and in the pods",
        "runtime": "a ClusterTrainingRuntime, as torch-distributed: makes a TrainJob (Kubeflow Trainer 2.2 or newer)",
        "namespace": "the namespace; default: kubectl's own",
        "python": "the interpreter in the image; default: that of the environment",
        "gpu": "the resource of a GPU; default: nvidia.com/gpu",
        "cpu": "CPUs asked for each pod",
        "memory": "memory asked for each pod, as 64Gi",
    }
    required = ("image", "claim", "mount")
    folders = ("mount",)
    programs: ClassVar[Mapping[str, str]] = {"kubectl": "kubernetes.io/docs/tasks/tools"}
    many_nodes = True
    ended = re.compile(r"rank (?P<rank>\d+) on (?P<host>\S+) was (?P<how>ended by signal .*)$", re.MULTILINE)
    cause = re.compile(
        r"^(error: .*|Error from server.*|pod .*: (?:Failed|Pending) .*|The connection to .*)$", re.MULTILINE
    )

    def script(self, launch: Launch) -> str:
        name, given = _object_name(launch.name), launch.arguments
        kind = TRAINER if "runtime" in given else INDEXED_JOB
        manifest = kind.manifest.format(
            name=name,
            runtime=_yaml(given.get("runtime", "")),
            nnodes=launch.nnodes,
            nproc_per_node=launch.nproc_per_node,
            image=_yaml(given.get("image") or (launch.container.image if launch.container else "")),
            claim=_yaml(given.get("claim", "")),
            mount=_yaml(given.get("mount", "")),
            folder='"$PWD"',
            script='"$PWD/launch.sh"',
            resources=_resources(launch, kind),
        )
        namespace = f" --namespace {quote(given['namespace'])}" if "namespace" in given else ""
        hosts = ",".join(kind.host.format(name=name, node=node) for node in range(launch.nnodes))
        python = quote(given.get("python", launch.python))
        node = (
            f'cd "$(dirname "$0")" &&\nNODE_RANK="$JOB_COMPLETION_INDEX" NNODES={launch.nnodes} DLPERF_HOSTS={hosts} '
            f'PYTHONPATH="$PWD"/{quote(launch.code)} \\\n'
            f'exec {python} -m dlperf.adapters.spawn {launch.nproc_per_node} sh "$PWD"/launch.sh rank\n'
        )
        words = {"job": kind.job, "objects": kind.objects, "label": kind.label, "pods": PODS}
        start = START.format(name=name, namespace=namespace, manifest=manifest, **words)
        rank = worker(launch, {"DLPERF_LAUNCHER": self.name}).replace(quote(launch.python) + " -m", python + " -m")
        return several(replace(launch, container=None), rank, start, others={"node": node})  # the pod is the container


def _resources(launch: Launch, kind: Resource) -> str:
    given = launch.arguments
    wanted = {key: given[key] for key in ("cpu", "memory") if key in given}
    if launch.device == "cuda":
        wanted[given.get("gpu", "nvidia.com/gpu")] = str(launch.nproc_per_node)
    if not wanted:
        return ""
    listed = ", ".join(f"{_yaml(key)}: {_yaml(value, plain=False)}" for key, value in wanted.items())
    wanted_of_a_node = f"{{requests: {{{listed}}}, limits: {{{listed}}}}}\n"
    return ("    resourcesPerNode: " if kind is TRAINER else "        resources: ") + wanted_of_a_node


#: of YAML, which are no texts
WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def _yaml(text: str, plain: bool = True) -> str:
    """A scalar in the manifest, a here-document of the shell's. plain: without quotation marks if it can be."""
    if plain and re.fullmatch(r"[A-Za-z/]([\w./:@+-]*[\w/])?", text) and text.lower() not in WORDS:
        return text
    return re.sub(r"([\\$`])", r"\\\1", json.dumps(text))


def _object_name(text: str) -> str:
    """A DNS label: what the objects of a run are called, so short that pods' names, which begin with it, are labels
    too."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower())[:28].strip("-")
    return f"dlperf-{label}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


LAUNCHER = Kubernetes()
