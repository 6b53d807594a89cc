"""What is created on Kubernetes, against its published schemas, and what its answers mean. No cluster made the answers:
they are what the documentation of the API says. `tests/cluster` has the whole path, with the real kubectl."""

import json
import re
from pathlib import Path

import kubernetes_validate
import places
import pytest
import yaml
from commands import call

from dlperf import launchers
from dlperf.launchers import kubectl, objects
from dlperf.launchers.jobs import Batch, State

GOLDEN = places.GOLDEN / "kubernetes"
ALL = {
    "namespace": "bench",
    "queue": "gpus",
    "priority": "high",
    "node-selector": "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3,zone=",
    "tolerations": "nvidia.com/gpu:NoSchedule\ndedicated=bench:NoExecute, spot",
    "cpu": "64",
    "memory": "512Gi",
    "shm": "64Gi",
    "pull-secret": "registry,other",
    "service-account": "bench",
    "user": "1000:2000",
    "setup": "pip install --no-index dlperf\nulimit -l unlimited",
}
OBJECTS = {
    "job-1n1d": (1, 1, "cpu", {}),
    "job-2n16d": (2, 8, "cuda", {}),
    "job-all": (4, 8, "cuda", ALL),
    "job-mig": (1, 1, "cuda", {"gpu": "nvidia.com/mig-1g.10gb", "gpus-per-node": "2", "mount": "/bench data"}),
    "trainjob": (4, 8, "cuda", {"runtime": "torch-distributed", **{key: ALL[key] for key in ALL if key != "priority"}}),
}


def batch(name):
    nnodes, nproc_per_node, device, given = OBJECTS[name]
    folder = Path(given.get("mount", "/dlperf"), "out-ab12cd")
    return Batch(
        "dlperf-out-ab12cd",
        nnodes,
        nproc_per_node,
        device,
        60,
        folder,
        ["--model", "bert", "--size", f"{nnodes}n{nnodes * nproc_per_node}d", "--output", str(folder)],
        ["--resume", str(folder)],
        "python3",
        (),
        {"image": "registry.example/dlperf:1", "claim": "bench", **given},
    )


@pytest.mark.parametrize("name", OBJECTS)
def test_the_object(name, request):
    text = launchers.find("kubernetes").batch(batch(name), Path("/here"))
    path = GOLDEN / f"{name}.yaml"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text()
    assert yaml.safe_load(text) == objects.job(batch(name))


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", [name for name in OBJECTS if name != "trainjob"])
def test_it_is_valid_by_kubernetes_schemas(name, version):
    kubernetes_validate.validate(objects.job(batch(name)), version, strict=True)


@pytest.mark.parametrize(("part", "key"), [("spec", "paralellism"), ("metadata", "label")])
def test_a_wrong_object_would_be_noticed(part, key):
    job = objects.job(batch("job-all"))
    job[part][key] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.32", strict=True)


def test_pods_of_a_train_job_are_valid_too():
    """The TrainJob has no published schema here; what it patches pods with is a part of theirs."""
    job = objects.job(batch("trainjob"))
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template, trainer = node["template"]["spec"]["template"], job["spec"]["trainer"]
    (container,) = template["spec"]["containers"]
    container |= {key: trainer[key] for key in ("image", "command", "args", "env")}
    container["resources"] = trainer["resourcesPerNode"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", **template["metadata"]},
        "spec": template["spec"],
    }
    kubernetes_validate.validate(pod, "1.32", strict=True)


@pytest.mark.parametrize(
    ("words", "hours", "seconds"),
    [
        (["--launcher-arg", "time=90"], 6, 90 * 60 - 120),
        (["--launcher-arg", "time=90", "--max-node-hours", "2"], 2, 30 * 60 - 120),
    ],
)
def test_the_limit_is_in_the_object_and_in_the_hours_that_are_told(words, hours, seconds):
    site = ["--launcher-arg", "image=x:1", "--launcher-arg", "claim=bench", "--size", "4n4d"]
    ended = call("compare", "-m", "bert", "--launcher", "kubernetes", "--dry-run", "plan", *site, *words)
    assert f"of up to 4 nodes, at most {hours} node-hours." in ended.stdout
    assert f" timeout -k 120 {seconds} " in ended.stdout


def test_names_of_pods_are_labels_of_dns():
    there = launchers.find("kubernetes").there(Path("/here/What a Long Name of a Folder! 2026-11-28"), {})
    assert there.parent == Path("/dlperf")
    assert len(f"dlperf-{there.name}-xxxxx-node-0-1023-xxxxx") <= 63
    assert there != launchers.find("kubernetes").there(Path("/here/What a Long Name of a Folder! 2026-11-28"), {})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("claim=Bench", "the name of an object of Kubernetes"),
        ("mount=volume", "an absolute path without a colon"),
        ("tolerations=nvidia.com/gpu:NoSchedul", "taints, as nvidia.com/gpu:NoSchedule"),
        ("node-selector=zone", "labels, as "),
        ("memory=512GB", "an amount of memory, as 512Gi"),
        ("cpu=many", "a number of CPUs"),
        ("time=1h", "a whole number of minutes"),
        ("gpus-per-node=0", "a whole number"),
        ("user=root", "numbers of a user and a group"),
        ("imgae=x", "Did you mean 'image'?"),
    ],
)
def test_an_argument_that_cannot_be_is_told(given, says):
    rest = [f"--launcher-arg={one}" for one in ("image=x:1", "claim=bench") if not given.startswith(one[:5])]
    ended = call("compare", "-m", "bert", "--launcher", "kubernetes", "--dry-run", f"--launcher-arg={given}", *rest)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--allocation", "row"], "--allocation: 'row' is not usable; allowed: comparison"),
        (["--env", "docker"], "a pod is a container: name its image"),
        (["--launcher-arg", "runtime=torch", "--launcher-arg", "priority=high"], "none beside runtime"),
    ],
)
def test_what_kubernetes_does_not_do_is_told(words, says):
    site = ["--launcher-arg", "image=x:1", "--launcher-arg", "claim=bench"]
    ended = call("compare", "-m", "bert", "--launcher", "kubernetes", "--dry-run", *site, *words)
    assert ended.returncode == 2
    assert says in ended.stderr


# What answers mean


def job(kind=None, reason="", message="", **spec):
    """Of two pods."""
    conditions = [{"type": kind, "status": "True", "reason": reason, "message": message}] if kind else []
    return {"metadata": {"uid": "1"}, "spec": {"completions": 2, **spec}, "status": {"conditions": conditions}}


def pod(index, phase="Running", state=None, at=0, node="node1", **status):
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    meta = {"name": f"x-{index}-{at}", "annotations": labels, "creationTimestamp": f"2026-11-28T00:00:{at:02}Z"}
    states = {"containerStatuses": [{"name": "node", "state": state}]} if state else {}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase, **states, **status}}


def ended(code, reason="Error"):
    return {"terminated": {"exitCode": code, "reason": reason}}


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


def disrupted(reason, message):
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]


def workload(message):
    condition = {"type": "QuotaReserved", "status": "False", "message": message}
    return {"metadata": {"ownerReferences": [{"uid": "1"}]}, "status": {"conditions": [condition]}}


def refused(requested, limited):
    of = f"requested: requests.nvidia.com/gpu={requested}, used: requests.nvidia.com/gpu=0"
    message = f'Error creating: pods "x-0" is forbidden: exceeded quota: gpus, {of}, limited: '
    return {"reason": "FailedCreate", "message": f"{message}requests.nvidia.com/gpu={limited}"}


UNFIT = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
]
NO_CLAIM = [{**UNFIT[0], "message": 'persistentvolumeclaim "bench" not found'}]
FAILED = job("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
PULLED = 'Back-off pulling image "x:1": ErrImagePull: rpc error: code = NotFound desc = x:1: not found'
SLOW = 'Back-off pulling image "x:1": dial tcp: i/o timeout'
STATES = {
    "both run": (job(), [pod(0), pod(1)], "RUNNING", "", False),
    "one starts": (job(), [pod(0), pod(1, "Pending")], "PENDING", "pod 1: is starting", False),
    "no room": (
        job(),
        [pod(0), pod(1, "Pending", conditions=UNFIT)],
        "PENDING",
        "3 Insufficient nvidia.com/gpu",
        False,
    ),
    "no claim": (job(), [pod(0, "Pending", conditions=NO_CLAIM)], "PENDING", '"bench" not found', True),
    "no image": (job(), [pod(0, "Pending", waiting("ImagePullBackOff", PULLED))], "PENDING", "x:1: not found", True),
    "a slow registry": (job(), [pod(0, "Pending", waiting("ImagePullBackOff", SLOW))], "PENDING", "timeout", False),
    "a name of no image": (
        job(),
        [pod(0, "Pending", waiting("InvalidImageName"))],
        "PENDING",
        "InvalidImageName",
        True,
    ),
    "done": (job("Complete"), [pod(0, "Succeeded", ended(0))], "COMPLETED", "", False),
    "out of memory": (
        FAILED,
        [pod(0), pod(1, "Failed", ended(137, "OOMKilled"))],
        "OUT_OF_MEMORY",
        "pod 1 on node1",
        False,
    ),
    "evicted": (
        FAILED,
        [pod(0, "Failed", reason="Evicted", message="low on memory")],
        "EVICTED",
        "low on memory",
        False,
    ),
    "its deadline": (job("Failed", "DeadlineExceeded"), [], "TIMEOUT", "", False),
    "its limit": (FAILED, [pod(0, "Failed", ended(124))], "TIMEOUT", "", False),
    "nothing ran": (FAILED, [pod(0, "Failed", ended(1)), pod(1, "Failed", ended(143))], "FAILED", "", False),
    "another pod": (
        FAILED,
        [pod(0, "Failed", ended(137)), pod(1, "Failed", ended(5))],
        "FAILED",
        "exit code 137",
        False,
    ),
    "preempted": (
        job(),
        [pod(0), pod(1, "Failed", conditions=disrupted("PreemptionByScheduler", "by y")), pod(1, at=9)],
        "RUNNING",
        "x-1-0 on node1: by y, began again",
        False,
    ),
    "a lost node": (
        job(),
        [pod(0, "Failed", conditions=disrupted("DeletionByTaintManager", "gone")), pod(0, "Pending", at=9), pod(1)],
        "PENDING",
        "pod 0: is starting",
        False,
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state(name):
    one, pods, expected, reason, never = STATES[name]
    found = kubectl.state(one, pods, lambda what: [])
    assert (found.name, found.never) == (expected, never)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("workloads", "reason", "never"),
    [
        (None, "Kueue is not installed", True),
        ([], "Kueue has not started it", False),
        ([workload("couldn't assign flavors to pod set main")], "couldn't assign flavors", False),
        ([workload("LocalQueue gpus doesn't exist")], "LocalQueue gpus doesn't exist", True),
    ],
)
def test_a_job_that_kueue_has_not_started_says_why(workloads, reason, never):
    found = kubectl.state(job(suspend=True), [], lambda what: workloads if what == "workloads" else [])
    assert (found.name, found.never) == ("PENDING", never)
    assert reason in found.reason


@pytest.mark.parametrize(("requested", "limited", "never"), [(8, 16, False), (8, 8, True)])
def test_a_quota_that_two_pods_do_not_fit_is_for_ever(requested, limited, never):
    found = kubectl.state(job(), [], lambda what: [refused(requested, limited)])
    assert (found.name, found.never) == ("PENDING", never)
    assert "exceeded quota" in found.reason


def test_a_namespace_that_wants_fewer_privileges_is_told_at_once():
    message = 'pods "x-0" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
    found = kubectl.state(job(), [], lambda what: [{"reason": "FailedCreate", "message": message}])
    assert (found.name, found.never, "allowPrivilegeEscalation" in found.reason) == ("PENDING", True, True)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State("PENDING", ""), "is pending"),
        (State("OUT_OF_MEMORY", "pod 1 on node1"), "ran out of memory (pod 1 on node1)"),
        (State("UNKNOWN", ""), "is not known to Kubernetes any more"),
    ],
)
def test_a_state_in_words(state, words):
    assert state.words("Kubernetes") == words


def test_nodes_that_may_not_be_listed_tell_nothing(monkeypatch, tmp_path):
    (tmp_path / "kubectl").write_text(
        "#!/bin/sh\necho 'Error from server (Forbidden): nodes is forbidden' >&2\nexit 1\n"
    )
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert kubectl.nodes([], "nvidia.com/gpu") == ()
    listed = {"items": [{"status": {"allocatable": {"cpu": "95500m", "nvidia.com/gpu": "8"}}}]}
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\necho '{json.dumps(listed)}'\n")
    assert kubectl.nodes([], "nvidia.com/gpu") == ((8, 95),)


# The page


def test_the_page_for_a_user_of_kubernetes_is_what_works(tmp_path, monkeypatch):
    """Its file and its command, word by word, but for --dry-run."""
    page = (places.ROOT / "launchers" / "README.md").read_text().partition("## On Kubernetes")[2].partition("\n## ")[0]
    blocks = [re.sub("(?m)^    ", "", block) for block in re.findall(r"(?:(?<=\n\n)|(?<=\n))(?: {4}\S.*\n)+", page)]
    site = next(block for block in blocks if "[kubernetes]" in block)
    words = next(block for block in blocks if block.startswith("python -m dlperf.compare ")).split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "dlperf.toml").write_text(site)
    ended = call("compare", *words[3:], "--frameworks", "pytorch,jax", "--dry-run", "plan", "--threads", 8)
    assert ended.returncode == 0, ended.stderr
    assert "# Kubernetes: one job of up to 4 nodes, at most " in ended.stdout
    assert "# from dlperf.toml: image='registry.example/dlperf:1' claim='bench' " in ended.stdout
    text = ended.stdout.partition("job.yaml\n")[2].partition("\n#")[0]
    job = yaml.safe_load(text)
    kubernetes_validate.validate(job, "1.32", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
    assert job["metadata"]["namespace"] == "bench"


# What is asked


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What kubectl was called with, by one that prints what a test says."""
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\ncat {tmp_path}/says\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.parametrize(
    ("says", "job", "words"),
    [
        ("bench Job x", "bench/x", ("job x", "batch.kubernetes.io/job-name=x")),
        ("bench TrainJob x", "bench/trainjob/x", ("trainjob x", "jobset.sigs.k8s.io/jobset-name=x")),
    ],
)
def test_a_job_is_asked_for_by_its_kind(asked, says, job, words):
    (asked / "says").write_text(says)
    assert kubectl.create("kind: any") == job
    answer = {**globals()["job"]("Complete"), "items": []}
    (asked / "says").write_text(json.dumps(answer))
    assert kubectl.states([job]) == {job: State("COMPLETED", "", 0)}
    _, one, pods = (asked / "calls").read_text().splitlines()
    assert one == f"--namespace bench get {words[0]} --ignore-not-found -o json"
    assert pods == f"--namespace bench get pods -l {words[1]} -o json"


def test_what_is_not_there_and_what_does_not_answer_are_two_things(asked):
    (asked / "says").write_text("")
    assert kubectl.states(["bench/x"]) == {}
    (asked / "says").write_text("{")
    assert kubectl.states(["bench/x"]) is None
