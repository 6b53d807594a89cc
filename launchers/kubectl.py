"""What is asked of Kubernetes, through kubectl, and what its answers mean.

A job is named as NAMESPACE/NAME, a TrainJob as NAMESPACE/trainjob/NAME.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlperf.errors import RunError
from dlperf.launchers.api import Node
from dlperf.launchers.jobs import WARNED, State, ask

Object = Mapping[str, Any]

#: of a refusal before anything was created, after which asking again may help
UNANSWERED = re.compile("connection refused|handshake timeout|no such host|TooManyRequests|ServiceUnavailable", re.I)
#: of what a pod waits for, where no waiting brings it
NEVER = re.compile(
    r"InvalidImageName|ErrImageNeverPull|CreateContainerConfigError|persistentvolumeclaim \S+ not found"
    r"|(ErrImagePull|ImagePullBackOff)\b.*(not found|unknown|unauthorized|denied|forbidden|authentication)"
    r"|violates PodSecurity|LocalQueue \S+ doesn't exist|Kueue is not installed",
    re.I | re.S,
)
#: reasons of Kubernetes' why a pod was ended -> what that is for its job
DISRUPTED = {
    "PreemptionByScheduler": "PREEMPTED",
    "EvictionByEvictionAPI": "EVICTED",
    "TerminationByKubelet": "EVICTED",
    "DeletionByTaintManager": "NODE_FAIL",
    "DeletionByPodGC": "NODE_FAIL",
    "Evicted": "EVICTED",
    "NodeLost": "NODE_FAIL",
    "Terminated": "NODE_FAIL",
    "NodeShutdown": "NODE_FAIL",
    "DeadlineExceeded": "TIMEOUT",
    "OOMKilled": "OUT_OF_MEMORY",
}
#: exit codes: of `timeout`, of a comparison, and of one that was asked to end
TIMED_OUT, OWN, ASKED = 124, (0, 1, 2, 3, 129, 130, 143), 143
#: of pods, beside which a cluster may put others
CONTAINER = ("--container", "node")
INDEX = "batch.kubernetes.io/job-completion-index"


def create(text: str) -> str:
    """Create the object. Its name; RunError with what kubectl says where it is refused."""
    words = ["kubectl", "create", "-f", "-", "-o", "jsonpath={.metadata.namespace} {.kind} {.metadata.name}"]
    for attempt in (1, 2, 3):
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            namespace, kind, name = done.stdout.split()
            return f"{namespace}/{'trainjob/' if kind == 'TrainJob' else ''}{name}"
        if not UNANSWERED.search(done.stderr):
            break
        time.sleep(2.0**attempt)
    says = " ".join(done.stderr.split()).removeprefix("error: ") or f"exit code {done.returncode}"
    if UNANSWERED.search(says):
        says = says.partition("; if you choose to ignore")[0]
        raise RunError("launcher", f"no cluster answers kubectl, which must work first (kubectl get jobs): {says}")
    raise RunError("launcher", f"Kubernetes refused the job: {says}")


def states(jobs: Sequence[str]) -> dict[str, State] | None:
    """Of those that are there; None where kubectl gets no answer."""
    found = {}
    for job in jobs:
        answer = _get(job, _kind(job), _name(job), "--ignore-not-found")
        if answer is None:
            return None
        if not answer and job in CANCELLED:
            found[job] = State("CANCELLED", "")
        elif answer:
            pods = _get(job, "pods", "-l", _label(job))
            if pods is None:
                return None
            found[job] = state(answer, pods["items"], lambda what, job=job: _more(job, what))
    return found


def logs(job: str) -> dict[str, str]:
    """What pod 0 has printed, by its name; of several, one after the other, the last that ran."""
    if job in CANCELLED:
        return CANCELLED[job]
    pods = _get(job, "pods", "-l", _label(job))
    first = newest(pods["items"] if pods else []).get(0)
    if first is None:
        return {}
    name = first["metadata"]["name"]
    answer = ask(*_kubectl(job), "logs", name, *CONTAINER)
    return {name: answer.stdout} if answer and answer.returncode == 0 else {}


#: logs of jobs that this process has deleted, whose pods are gone
CANCELLED: dict[str, dict[str, str]] = {}


def delete(jobs: Sequence[str]) -> None:
    """Have pods end, and the jobs with them; what pod 0 prints until then is kept."""
    for job in jobs:
        pods = _get(job, "pods", "-l", _label(job))
        first = newest(pods["items"] if pods else []).get(0)
        name = first["metadata"]["name"] if first else ""
        reading = None
        if name:
            words = [*_kubectl(job), "logs", "--follow", name, *CONTAINER]
            reading = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ask(*_kubectl(job), "delete", _kind(job), _name(job), "--ignore-not-found", "--wait=false")
        CANCELLED[job] = {}
        if reading:
            try:
                CANCELLED[job] = {name: reading.communicate(timeout=WARNED + 30)[0]}
            except subprocess.TimeoutExpired:
                reading.kill()
                reading.communicate()


def nodes(labels: Sequence[str], gpu: str) -> tuple[Node, ...]:
    """Those with such labels, as far as the user may list them. gpu: the resource of a GPU."""
    answer = ask("kubectl", "get", "nodes", *(["-l", ",".join(labels)] if labels else []), "-o", "json")
    found = _json(answer)
    free = [node["status"].get("allocatable", {}) for node in found["items"]] if found else []
    return tuple(Node(_number(one.get(gpu, "0")), _number(one.get("cpu", "0"))) for one in free)


def _number(quantity: str) -> int:
    """Of "96" or "95500m", rounded down; 0 of another."""
    match = re.fullmatch(r"(\d+)(m?)", str(quantity))
    return (int(match[1]) // (1000 if match[2] else 1)) if match else 0


def _kubectl(job: str) -> list[str]:
    return ["kubectl", "--namespace", job.partition("/")[0]]


def _kind(job: str) -> str:
    return "trainjob" if job.count("/") == 2 else "job"


def _name(job: str) -> str:
    return job.rpartition("/")[2]


def _label(job: str) -> str:
    label = "jobset.sigs.k8s.io/jobset-name" if _kind(job) == "trainjob" else "batch.kubernetes.io/job-name"
    return f"{label}={_name(job)}"


def _get(job: str, *words: str) -> Any:
    """An answer as JSON has it; empty where there is no such object, None where there is no answer."""
    answer = ask(*_kubectl(job), "get", *words, "-o", "json")
    return {} if answer and answer.returncode == 0 and not answer.stdout.strip() else _json(answer)


def _json(answer: subprocess.CompletedProcess[str] | None) -> Any:
    try:
        return json.loads(answer.stdout) if answer and answer.returncode == 0 else None
    except ValueError:
        return None


def _more(job: str, what: str) -> Sequence[Object] | None:
    """Events of a job, or Kueue's workloads, as far as they are told; None where there is no Kueue."""
    if what == "events":
        words = ["events", "--field-selector", f"involvedObject.name={_name(job)}"]
    else:
        words = ["workloads.kueue.x-k8s.io"]
    answer = ask(*_kubectl(job), "get", *words, "-o", "json")
    if answer and "doesn't have a resource type" in answer.stderr:
        return None
    found = _json(answer)
    return found["items"] if found else []


# What the answers mean


def newest(pods: Sequence[Object]) -> dict[int, Object]:
    """By its index, the last pod of each: one that was disrupted stays beside the one that came for it."""
    found: dict[int, Object] = {}
    for pod in sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or ""):
        labels = {**pod["metadata"].get("annotations", {}), **pod["metadata"].get("labels", {})}
        found[int(labels.get(INDEX, "0"))] = pod
    return dict(sorted(found.items()))


def state(job: Object, pods: Sequence[Object], more: Any) -> State:
    """Of a Job or a TrainJob, from what Kubernetes says of it and of its pods. more: asks for the job's "events", or
    for "workloads"."""
    conditions = {one["type"]: one for one in job.get("status", {}).get("conditions", ()) if one["status"] == "True"}
    last = newest(pods)
    if "Complete" in conditions:
        return State("COMPLETED", "", 0)
    if "Failed" in conditions:
        return _failed(conditions["Failed"], last)
    if job["spec"].get("suspend"):
        return _pending(_queued(job, more("workloads")))
    waiting = [f"pod {index}: {why}" for index, pod in last.items() if (why := _waits(pod))]
    count = job["spec"].get("completions") or job["spec"].get("trainer", {}).get("numNodes", 1)
    if len(last) < count and (why := _not_created(more("events"))):
        return _pending(why, _beyond(why, count))
    if waiting or len(last) < count:
        return _pending("; ".join(waiting[:1]))
    return State("RUNNING", _lost([pod for pod in pods if pod not in last.values()]))


def _pending(why: str, never: bool = False) -> State:
    return State("PENDING", why, never=never or bool(NEVER.search(why)))


def _failed(condition: Object, pods: Mapping[int, Object]) -> State:
    """Why: the first pod that did not end by its own will, or what the comparison's exit code says."""
    ended = [(name, index, why) for index, pod in pods.items() for name, why in [_ended(pod)] if name]
    if condition.get("reason") == "DeadlineExceeded":
        return State("TIMEOUT", condition.get("message", ""))
    if ended:
        name, index, why = ended[0]
        return State(name, f"pod {index}{why}")
    code = _code(pods[0]) if 0 in pods else None
    if code == TIMED_OUT:
        return State("TIMEOUT", "", ASKED)
    if code in OWN:
        return State("FAILED", "", code)
    bad = next(((index, code) for index, pod in pods.items() if (code := _code(pod))), None)
    return State("FAILED", f"pod {bad[0]} ended with exit code {bad[1]}" if bad else condition.get("message", ""))


def _ended(pod: Object) -> tuple[str, str]:
    """What ended a pod from outside, by Slurm's names, and in words; empty where nothing did."""
    status = pod["status"]
    disrupted: Object = next((one for one in status.get("conditions", ()) if one["type"] == "DisruptionTarget"), {})
    reasons = [status.get("reason"), disrupted.get("reason"), *(one.get("reason") for one in _terminated(pod))]
    name = next((DISRUPTED[reason] for reason in reasons if reason in DISRUPTED), "")
    message = (status.get("message") or disrupted.get("message") or "").strip()
    node = pod["spec"].get("nodeName")
    return name, (f" on {node}" if node else "") + (f": {message}" if message else "")


def _terminated(pod: Object) -> Iterator[Object]:
    for one in pod["status"].get("containerStatuses", ()):
        if "terminated" in one.get("state", {}):
            yield one["state"]["terminated"]


def _code(pod: Object) -> int | None:
    """The exit code of its container."""
    return next((one.get("exitCode") for one in _terminated(pod)), None)


def _waits(pod: Object) -> str:
    """What a pod waits for; empty if it runs, or has ended."""
    status = pod["status"]
    if status.get("phase") != "Pending":
        return ""
    for one in status.get("containerStatuses", ()):
        waiting = one.get("state", {}).get("waiting")
        if waiting:
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    for one in status.get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return ": ".join(filter(None, (one.get("reason"), one.get("message"))))
    return "is starting"


def _lost(pods: Sequence[Object]) -> str:
    """Of pods that others came for: the last, and why."""
    for pod in reversed(pods):
        name, why = _ended(pod)
        if name:
            return f"{pod['metadata']['name']}{why}, began again"
    return ""


def _not_created(events: Sequence[Object]) -> str:
    """Why a job has fewer pods than it should: a quota, an admission rule."""
    found = [one.get("message", "") for one in events if one.get("reason") == "FailedCreate"]
    return found[-1].removeprefix("Error creating: ") if found else ""


def _beyond(message: str, count: int) -> bool:
    """Whether so many pods are more than a quota ever allows: "exceeded quota: q, requested: pods=1, used: pods=9,
    limited: pods=9"."""
    parts = dict(re.findall(r"(requested|limited): ((?:[\w./-]+=\d+\b,?)+)", message))
    asked, most = (dict(re.findall(r"([\w./-]+)=(\d+)", parts.get(key, ""))) for key in ("requested", "limited"))
    return any(int(asked[key]) * count > int(most[key]) for key in asked.keys() & most.keys())


def _queued(job: Object, workloads: Sequence[Object] | None) -> str:
    """What Kueue says of a job that it has not started."""
    if workloads is None:
        return "Kueue is not installed, and nothing else starts a suspended job"
    uid = job["metadata"].get("uid")
    for one in workloads:
        if any(owner.get("uid") == uid for owner in one["metadata"].get("ownerReferences", ())):
            for condition in one.get("status", {}).get("conditions", ()):
                if condition["type"] == "QuotaReserved" and condition["status"] == "False":
                    return str(condition.get("message", ""))
    return "Kueue has not started it"
