"""The objects that a comparison is on Kubernetes, and their text as YAML. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dlperf.launchers import pods
from dlperf.launchers.api import command
from dlperf.launchers.jobs import PLACE, WARNED, Batch, compare, setup
from dlperf.shell import quote

#: what each pod runs. The first makes the comparison once all pods are there, and prints what came of it
POD = """\
{setup}mkdir -p "$HOME" {place} && cd {mount} || exit
export {pods}={place}/"${{HOSTNAME%-*}}"
if [ "${{JOB_COMPLETION_INDEX:-0}}" != 0 ]; then exec {python} -m dlperf.launchers.pods serve; fi
{python} -m dlperf.launchers.pods serve &
trap 'exit 143' TERM
{python} -m dlperf.launchers.pods wait {nnodes} & wait $! || exit
{compare}{python} -m dlperf.parcel {folder}
{python} -m dlperf.launchers.pods end {nnodes}
exit $code
"""
#: the usual of --launcher-arg gpu and mount
GPU, MOUNT = "nvidia.com/gpu", "/dlperf"
#: seconds until a job that is over is removed with its log
KEPT = 7 * 24 * 3600
#: its value is the same on the job and the pods of a comparison
LABEL = "dlperf/comparison"
#: of Kueue, which starts a suspended job with all its pods at once
QUEUE = "kueue.x-k8s.io/queue-name"

Object = dict[str, Any]


def split(text: str) -> list[str]:
    """What commas or lines are between."""
    return [part.strip() for part in re.split(r"[,\n]", text) if part.strip()]


def job(asked: Batch) -> Object:
    """The Job, or with a runtime the TrainJob, that holds a comparison."""
    return _train_job(asked) if "runtime" in asked.arguments else _job(asked)


def _job(asked: Batch) -> Object:
    given = asked.arguments
    container = {
        "name": "node",
        "image": given["image"],
        **_runs(asked),
        **_some(resources=_resources(asked)),
        **_mounts(asked),
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": WARNED,  # to write the report, and to print the results
        "automountServiceAccountToken": False,
        **_some(priorityClassName=given.get("priority")),
        **_placed(asked),
        "containers": [container],
        "volumes": _volumes(asked),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(asked),
        "spec": {
            **_some(suspend="queue" in given),
            "completionMode": "Indexed",
            "completions": asked.nnodes,
            "parallelism": asked.nnodes,
            "backoffLimit": 0,
            # a pod that was preempted, drained, or lost with its node comes again, and the comparison goes on
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "ttlSecondsAfterFinished": KEPT,
            "template": {"metadata": {"labels": _labels(asked)}, "spec": pod},
        },
    }


def _train_job(asked: Batch) -> Object:
    """Its container for the training is called "node". Patches came with Kubeflow Trainer 2.2."""
    given = asked.arguments
    pod = {**_placed(asked), "containers": [{"name": "node", **_mounts(asked)}], "volumes": _volumes(asked)}
    node = {"name": "node", "template": {"spec": {"template": {"metadata": {"labels": _labels(asked)}, "spec": pod}}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(asked),
        "spec": {
            **_some(suspend="queue" in given),
            "runtimeRef": {"name": given["runtime"]},
            "trainer": {
                "numNodes": asked.nnodes,
                "numProcPerNode": asked.nproc_per_node,
                "image": given["image"],
                **_runs(asked),
                **_some(resourcesPerNode=_resources(asked)),
            },
            "runtimePatches": [
                {
                    "manager": "dlperf/launcher",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}},
                }
            ],
        },
    }


def _metadata(asked: Batch) -> Object:
    queue = {QUEUE: asked.arguments["queue"]} if "queue" in asked.arguments else {}
    return {
        "generateName": f"{asked.name}-",
        **_some(namespace=asked.arguments.get("namespace")),
        "labels": {**_labels(asked), **queue},
    }


def _labels(asked: Batch) -> dict[str, str]:
    return {"app.kubernetes.io/name": "dlperf", LABEL: asked.folder.name}


def _runs(asked: Batch) -> Object:
    """The command of each pod; args: words for a comparison that goes on."""
    given = asked.arguments
    mount, python = given.get("mount", MOUNT), quote(asked.python)
    script = POD.format(
        setup=setup(given),
        place=quote(asked.folder / PLACE),
        mount=quote(mount),
        pods=pods.PODS,
        python=python,
        nnodes=asked.nnodes,
        compare=compare(
            asked, '"${HOSTNAME%-*}"', '""', command("timeout", "-k", WARNED, max(1, 60 * asked.minutes - WARNED)) + " "
        ),
        folder=quote(asked.folder),
    )
    # all pods have the same environments, and the interpreters that these link to
    return {
        "command": ["sh", "-c", script, "dlperf"],
        "args": [],
        "env": [{"name": "HOME", "value": f"{mount}/home"}, {"name": "DLPERF_CACHE", "value": f"{mount}/cache"}],
    }


def _resources(asked: Batch) -> Object:
    """Requests are limits: what a pod has is its own while it measures."""
    given = asked.arguments
    wanted = {key: given[key] for key in ("cpu", "memory") if key in given}
    if asked.device == "cuda":
        wanted[given.get("gpu", GPU)] = given.get("gpus-per-node", str(asked.nproc_per_node))
    return {"requests": wanted, "limits": wanted} if wanted else {}


def _placed(asked: Batch) -> Object:
    """Where a pod may run, and as whom."""
    given = asked.arguments
    user, _, group = given.get("user", "").partition(":")
    apart = {"labelSelector": {"matchLabels": {LABEL: asked.folder.name}}, "topologyKey": "kubernetes.io/hostname"}
    return _some(
        securityContext=_user(int(user), int(group or user)) if user else {},
        serviceAccountName=given.get("service-account"),
        imagePullSecrets=[{"name": name} for name in split(given.get("pull-secret", ""))],
        nodeSelector=dict(one.split("=", 1) for one in split(given.get("node-selector", ""))),
        tolerations=[_toleration(one) for one in split(given.get("tolerations", ""))],
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
        if asked.nnodes > 1
        else {},
    )


def _user(user: int, group: int) -> Object:
    """What Kubernetes' pod security standard "restricted" asks of a pod; see `_mounts` for its container."""
    of = {"runAsUser": user, "runAsGroup": group, "fsGroup": group}
    return {"runAsNonRoot": True, **of, "seccompProfile": {"type": "RuntimeDefault"}}


def _toleration(text: str) -> Object:
    """Of KEY=VALUE:EFFECT, as `kubectl taint` has it, without a value or an effect any."""
    taint, _, effect = text.partition(":")
    key, sign, value = taint.partition("=")
    matched = {"operator": "Equal", "value": value} if sign else {"operator": "Exists"}
    return {"key": key, **matched, **_some(effect=effect)}


def _mounts(asked: Batch) -> Object:
    """What a container has of its pod."""
    mount = asked.arguments.get("mount", MOUNT)
    unprivileged = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        **_some(securityContext=unprivileged if "user" in asked.arguments else {}),
        "volumeMounts": [{"name": "results", "mountPath": mount}, {"name": "shm", "mountPath": "/dev/shm"}],
    }


def _volumes(asked: Batch) -> list[Object]:
    """The runtime's 64 MiB of /dev/shm are too few for frameworks, which hand batches over in it."""
    memory = {"medium": "Memory", **_some(sizeLimit=asked.arguments.get("shm"))}
    return [
        {"name": "results", "persistentVolumeClaim": {"claimName": asked.arguments["claim"]}},
        {"name": "shm", "emptyDir": memory},
    ]


def _some(**fields: Any) -> Object:
    """Those that are not empty."""
    return {key: value for key, value in fields.items() if value}


# YAML


def yaml(value: Any) -> str:
    """A document of mappings, lists, texts, whole numbers and truths; a text of several lines as a block."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _entry(f"{_text(key)}:", inner)
    else:
        for inner in value:
            first, *rest = _lines(inner) if isinstance(inner, (Mapping, list)) and inner else [*_entry("", inner)]
            yield f"- {first.strip()}"
            yield from (f"  {line}" for line in rest)


def _entry(key: str, value: Any) -> Iterator[str]:
    """A value behind its key, or behind nothing."""
    if isinstance(value, (Mapping, list)) and value:
        yield key
        yield from (f"{'' if isinstance(value, list) else '  '}{line}" for line in _lines(value))
    elif isinstance(value, str) and BLOCK.fullmatch(value):
        yield f"{key} |"
        yield from (f"  {line}" if line else "" for line in value.split("\n")[:-1])
    else:
        yield f"{key} {_scalar(value)}"


#: printed as it is, line by line
BLOCK = re.compile(r"[!-~][ -~]*\n([!-~][ -~]*\n|[ ]+[!-~][ -~]*\n|\n)*[ ]*[!-~][ -~]*\n")
#: of YAML 1.1, which are no texts
WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _text(value) if isinstance(value, str) else ("{}" if isinstance(value, Mapping) else "[]")


def _text(text: str) -> str:
    """Without quotation marks if it can be."""
    if re.fullmatch(r"[A-Za-z/]([\w./:@+-]*[\w/])?", text, re.ASCII) and text.lower() not in WORDS:
        return text
    escaped = re.sub(r'[^ -~]|["\\]', lambda one: f"\\{one[0]}" if one[0] in '"\\' else f"\\U{ord(one[0]):08x}", text)
    return f'"{escaped}"'
