"""A stand-in for a Kubernetes cluster, for the real kubectl: the few paths of the API that dlperf uses, over HTTP.

It is none: nothing of Kubernetes' own code runs but kubectl. Objects are held to the published schemas, strictly; the
Job controller is what its documentation says of Indexed Jobs, backoffLimit 0 and podFailurePolicy; a pod is a process
of this machine, in no image, whose volume is a folder. `Cluster` has what a test does to it.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

INDEX = "batch.kubernetes.io/job-completion-index"
#: kind, plural, of each group and version
RESOURCES = {
    "v1": [("Pod", "pods"), ("Event", "events"), ("Node", "nodes")],
    "batch/v1": [("Job", "jobs")],
    "kueue.x-k8s.io/v1beta1": [("Workload", "workloads")],
}
FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


class Refused(Exception):
    """Code, reason and message of a Status."""


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Cluster:
    """gpus: of each of two nodes. kueue: whether it is installed. quota: of GPUs in the namespace. unpullable: images.
    admitted: whether Kueue starts what is suspended. said: each request."""

    def __init__(self, folder, gpus=8, kueue=False):
        self.folder, self.kueue, self.quota = folder, kueue, None
        self.nodes = {f"node{number}": {"cpu": "8", "nvidia.com/gpu": str(gpus)} for number in (1, 2)}
        self.unpullable, self.admitted, self.said = set(), False, []
        self.jobs, self.pods, self.events, self.processes = {}, {}, [], {}
        self.lock = threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        threading.Thread(target=self._control, daemon=True).start()
        self.config = folder / "kubeconfig"
        self.config.write_text(json.dumps(self._config()))

    def _config(self):
        address = f"http://127.0.0.1:{self.server.server_address[1]}"
        context = {"cluster": "here", "user": "me", "namespace": "bench"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": address}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "here", "context": context}],
            "current-context": "here",
        }

    def close(self):
        self.server.shutdown()
        for name in list(self.processes):
            self._kill(name)

    # What a test does

    def running(self, index):
        """The name of the last pod of an index that runs; none while there is none."""
        with self.lock:
            names = [name for name, pod in self.pods.items() if pod["metadata"]["labels"][INDEX] == str(index)]
            return names[-1] if names and self.pods[names[-1]]["status"]["phase"] == "Running" else None

    def disrupt(self, index, reason, message, status_reason=None):
        """End a pod as an eviction, a preemption or the loss of its node does."""
        with self.lock:
            name = self.running(index)
            target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
            self.pods[name]["status"]["conditions"] = [target]
            if status_reason:
                self.pods[name]["status"] |= {"reason": status_reason, "message": message}
            self._kill(name)

    def out_of_memory(self, index):
        with self.lock:
            name = self.running(index)
            self.pods[name]["metadata"]["killed"] = "OOMKilled"
            self._kill(name)

    @staticmethod
    def _kill(name):
        """All processes of a pod, which share no group."""
        mark = f"POD={name}".encode()
        for number in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{number}/environ", "rb") as environ:
                if mark in environ.read().split(b"\0"):
                    os.kill(int(number), signal.SIGKILL)

    # The API

    def create(self, job):
        try:
            kubernetes_validate.validate(job, "1.32", strict=True)
        except kubernetes_validate.ValidationError as error:
            raise Refused(400, "BadRequest", error.message) from None
        meta = job["metadata"]
        if meta.get("namespace", "bench") != "bench":
            raise Refused(404, "NotFound", f'namespaces "{meta["namespace"]}" not found')
        meta.setdefault("name", f"{meta.get('generateName')}{uuid.uuid4().hex[:5]}")
        meta |= {"uid": uuid.uuid4().hex, "creationTimestamp": now(), "namespace": "bench"}
        job["status"] = {}
        with self.lock:
            self.jobs[meta["name"]] = job
        return job

    def delete(self, name):
        with self.lock:
            job = self.jobs.pop(name, None)
            if job is None:
                raise Refused(404, "NotFound", f'jobs.batch "{name}" not found')
            for pod in self._of(name):
                if pod in self.processes:
                    with contextlib.suppress(ProcessLookupError):
                        self.processes[pod].terminate()  # its first process alone, as a kubelet does
                else:
                    del self.pods[pod]
        return job

    def _of(self, job):
        return [name for name, pod in self.pods.items() if pod["metadata"]["labels"].get(JOB) == job]

    def log(self, name):
        return self.folder / f"{name}.log"

    # The controllers

    def _control(self):
        while True:
            with self.lock:
                for name in [*self.pods]:
                    self._look(name)
                for job in [*self.jobs.values()]:
                    self._steer(job)
            time.sleep(0.1)

    def _look(self, name):
        """A kubelet: whether a pod's process has ended."""
        pod, process = self.pods[name], self.processes.get(name)
        if pod["status"]["phase"] == "Running" and process.poll() is not None:
            code = process.returncode if process.returncode >= 0 else 128 - process.returncode
            killed = pod["metadata"].pop("killed", None)
            ended = {"exitCode": code, "reason": killed or ("Completed" if code == 0 else "Error")}
            pod["status"]["phase"] = "Failed" if code else "Succeeded"
            pod["status"]["containerStatuses"] = [{"name": "node", "state": {"terminated": ended}}]
            self._kill(name)  # what the container has left
            if pod["metadata"]["labels"][JOB] not in self.jobs:
                del self.pods[name]

    def _steer(self, job):
        """The Job controller."""
        if job["status"].get("conditions") or (job["spec"].get("suspend") and not self.admitted):
            return
        job["spec"].pop("suspend", None)
        name, count = job["metadata"]["name"], job["spec"]["completions"]
        last = {self.pods[pod]["metadata"]["labels"][INDEX]: pod for pod in self._of(name)}
        for index in range(count):
            pod = self.pods.get(last.get(str(index)))
            if pod is None or (pod["status"]["phase"] == "Failed" and self._disrupted(pod)):
                self._make(job, index)
            elif pod["status"]["phase"] == "Failed":
                self._end(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
                return
        phases = [self.pods[pod]["status"]["phase"] for pod in last.values()]
        if phases.count("Succeeded") == count:
            self._end(job, "Complete", "CompletionsReached", "")

    @staticmethod
    def _disrupted(pod):
        return any(one["type"] == "DisruptionTarget" for one in pod["status"].get("conditions", ()))

    def _end(self, job, kind, reason, message):
        job["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": message}]
        for pod in self._of(job["metadata"]["name"]):
            if self.pods[pod]["status"]["phase"] == "Running":
                self.processes[pod].terminate()

    def _make(self, job, index):
        template, name = job["spec"]["template"], job["metadata"]["name"]
        wanted = int(template["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
        if self.quota is not None and wanted * (1 + len(self._of(name))) > self.quota:
            self._refuse(name, wanted)
            return
        pod = f"{name}-{index}-{uuid.uuid4().hex[:5]}"
        labels = {**template["metadata"]["labels"], JOB: name, INDEX: str(index)}
        meta = {"name": pod, "namespace": "bench", "uid": uuid.uuid4().hex, "labels": labels}
        made = {"metadata": {**meta, "creationTimestamp": f"{now()[:-1]}.{time.monotonic_ns():020}Z"}}
        made |= {"apiVersion": "v1", "kind": "Pod", "spec": dict(template["spec"]), "status": {"phase": "Pending"}}
        self.pods[pod] = made
        node = list(self.nodes)[index % 2]
        if wanted > int(self.nodes[node]["nvidia.com/gpu"]):
            message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
            unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            made["status"]["conditions"] = [unfit]
            return
        made["spec"]["nodeName"] = node
        container = template["spec"]["containers"][0]
        if container["image"] in self.unpullable:
            message = f'Back-off pulling image "{container["image"]}": manifest unknown: not found'
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
            made["status"]["containerStatuses"] = [{"name": "node", "state": waiting}]
            return
        self._run(pod, f"{name}-{index}", index, container)

    def _refuse(self, job, wanted):
        of = f"requests.nvidia.com/gpu={wanted}, used: requests.nvidia.com/gpu=0"
        message = f'pods "{job}-0" is forbidden: exceeded quota: gpus, requested: {of}, '
        message += f"limited: requests.nvidia.com/gpu={self.quota}"
        event = {"reason": "FailedCreate", "message": f"Error creating: {message}", "involvedObject": {"name": job}}
        self.events = [{"metadata": {"name": "refused"}, **event}]

    def _run(self, pod, hostname, index, container):
        variables = {one["name"]: one["value"] for one in container["env"]}
        environ = {**os.environ, **variables, "HOSTNAME": hostname, "JOB_COMPLETION_INDEX": str(index)}
        with open(self.log(pod), "wb") as log:
            self.processes[pod] = subprocess.Popen(
                [*container["command"], *container["args"]],
                env={**environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD": pod},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pods[pod]["status"]["phase"] = "Running"

    # What is asked

    def listed(self, plural, query):
        with self.lock:
            found = {"pods": self.pods, "jobs": self.jobs}.get(plural, {}).values()
            if plural == "nodes":
                found = [{"metadata": {"name": name}, "status": {"allocatable": n}} for name, n in self.nodes.items()]
            elif plural == "events":
                found = self.events
            elif plural == "workloads":
                found = [self._workload(job) for job in self.jobs.values()]
            for selector in filter(None, query.get("labelSelector", [""])[0].split(",")):
                key, _, value = selector.partition("=")
                found = [one for one in found if one["metadata"].get("labels", {}).get(key) == value]
            return json.loads(json.dumps(list(found)))

    def _workload(self, job):
        message = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
        waiting = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
        owner = {"uid": job["metadata"]["uid"]}
        return {"metadata": {"name": "w", "ownerReferences": [owner]}, "status": {"conditions": [waiting]}}


JOB = "batch.kubernetes.io/job-name"


def _handler(cluster):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words):
            pass

        def do_GET(self):
            self._answer(self._get)

        def do_POST(self):
            self._answer(lambda parts, query: cluster.create(self._body()))

        def do_DELETE(self):
            self._body()
            self._answer(lambda parts, query: cluster.delete(parts[-1]))

        def _body(self):
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

        def _answer(self, ask):
            address = urlsplit(self.path)
            cluster.said.append(f"{self.command} {address.path}")
            try:
                found = ask(address.path.strip("/").split("/"), parse_qs(address.query))
            except Refused as refused:
                code, reason, message = refused.args
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
                return self._send(code, {**status, "message": message})
            if found is not None:
                self._send(201 if self.command == "POST" else 200, found)
            return None

        def _send(self, code, found):
            data = b"" if found is None else json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _get(self, parts, query):
            if parts == [
                "openapi",
                "v2",
            ]:  # what kubectl asked before 1.27: no schemas, by which it holds nothing to them
                return self._send(200, None)
            found = _discovery(cluster, parts)
            if found is not None:
                return found
            if parts[-1] == "log":
                return self._log(parts[-2], "follow" in query)
            plurals = [plural for resources in RESOURCES.values() for _, plural in resources]
            if parts[-1] in plurals:
                version = "v1" if parts[0] == "api" else f"{parts[1]}/{parts[2]}"
                kind = next(kind for kind, plural in RESOURCES[version] if plural == parts[-1])
                items = [{"apiVersion": version, "kind": kind, **one} for one in cluster.listed(parts[-1], query)]
                return {"apiVersion": version, "kind": f"{kind}List", "metadata": {}, "items": items}
            with cluster.lock:
                plural, name = ("", *parts)[-2:]
                one = {"pods": cluster.pods, "jobs": cluster.jobs}.get(plural, {}).get(name)
                if one is None:
                    raise Refused(404, "NotFound", f'{plural} "{name}" not found')
                return json.loads(json.dumps(one))

        def _log(self, name, follow):
            """To the end of the container, if it is to be followed."""
            if name not in cluster.processes:
                raise Refused(400, "BadRequest", f'container "node" in pod "{name}" is waiting to start')
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Connection", "close")
            self.end_headers()
            with open(cluster.log(name), "rb") as log:
                while True:
                    over = not follow or cluster.processes[name].poll() is not None
                    self.wfile.write(log.read())
                    if over:
                        break
                    time.sleep(0.1)
            self.close_connection = True

    return Handler


def _discovery(cluster, parts):
    versions = [one for one in RESOURCES if "kueue" not in one or cluster.kueue]
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        groups = []
        for one in versions[1:]:
            version = {"groupVersion": one, "version": one.partition("/")[2]}
            groups.append({"name": one.partition("/")[0], "versions": [version], "preferredVersion": version})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts == ["version"]:
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.4"}
    if parts == ["openapi", "v3"]:
        return {"paths": {"apis/batch/v1": {"serverRelativeURL": "/openapi/v3/apis/batch/v1"}}}
    if parts[:2] == ["openapi", "v3"]:
        kind = {"group": "batch", "version": "v1", "kind": "Job"}
        patch = {"x-kubernetes-group-version-kind": kind, "parameters": [FIELD_VALIDATION], "responses": {}}
        return {"openapi": "3.0.0", "info": {"title": "", "version": ""}, "paths": {"/jobs/{name}": {"patch": patch}}}
    version = "/".join(parts[1:]) if parts[0] in ("api", "apis") else ""
    if version not in versions:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "watch"]
    resources = [
        {"name": plural, "singularName": kind.lower(), "namespaced": kind != "Node", "kind": kind, "verbs": verbs}
        for kind, plural in RESOURCES[version]
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
