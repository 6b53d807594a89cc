"""The manifests, against Kubernetes' published schemas, and the script's whole path with a stand-in for kubectl.

No cluster ran any of this. The stand-in runs each pod as a process of this machine.
"""

import os
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import standin
import yaml
from commands import FAKE, call, records
from processes import time_is_up_when, working_in

from dlperf import launchers
from dlperf.launchers import Launch

GIVEN = ["image=registry.example/dlperf:1", "claim=bench", "mount=/tmp"]
WORDS = ["--launcher", "kubernetes", *(word for one in GIVEN for word in ("--launcher-arg", one))]

KUBECTL = """\
import os, signal, subprocess, sys, time
words, state = sys.argv[1:], {state!r}
with open(state + "/calls", "a") as file:
    file.write(" ".join(words) + "\\n")
def pids():
    return [int(name[4:]) for name in os.listdir(state) if name.startswith("pid.")]
def code(pid):
    path = f"{{state}}/code.{{pid}}"
    return int(open(path).read() or -1) if os.path.exists(path) else None
if words[0] == "apply":
    import yaml
    job = list(yaml.safe_load_all(open(words[2])))[-1]
    spec = job["spec"]
    if job["kind"] == "TrainJob":
        container, nodes = spec["trainer"], spec["trainer"]["numNodes"]
    else:
        container, nodes = spec["template"]["spec"]["containers"][0], spec["completions"]
    for index in range(nodes):
        environ = dict(os.environ, JOB_COMPLETION_INDEX=str(index))
        run = ["sh", "-c", '"$@"; echo $? > {state}/code.$$', "pod", *container["command"]]
        pod = subprocess.Popen(run, env=environ, cwd=container.get("workingDir"), start_new_session=True,
                               stdout=open(f"{{state}}/log.{{index}}", "w"), stderr=subprocess.STDOUT)
        open(f"{{state}}/pid.{{pod.pid}}", "w").close()
elif words[0] == "get" and "job/" in words[1]:
    codes = [code(pid) for pid in pids()]
    if any(codes):
        print("Failed")
    elif None not in codes:
        print("Complete")
elif words[0] == "get":
    for index in range(len(pids())):
        print(f"pod p-{{index}} on node{{index}}: Failed Evicted The node was low on resource: memory.")
elif words[0] == "logs":
    for name in sorted(os.listdir(state)):
        if name.startswith("log."):
            print(open(f"{{state}}/{{name}}").read())
elif words[0] == "delete":
    for pid in pids():
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    open(state + "/deleted", "w").close()
"""


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """The folder where the stand-in keeps what it saw."""
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "kubectl"
    program.write_text(standin.START + KUBECTL.format(state=str(state)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return state


def compare(folder, *words):
    return call("compare", *FAKE, "-r", 1, *WORDS, "-o", folder / "out", *words)


def manifests(tmp_path, **changes):
    """The manifest as the script writes it."""
    fields = {
        "title": "t",
        "name": "bert_base-fp32-pytorch-2n8d-b32-r1",
        "python": Path("/venv/bin/python"),
        "code": Path("../../../code"),
        "device": "cuda",
        "threads": 4,
        "variables": {},
        "nnodes": 2,
        "nproc_per_node": 8,
        "arguments": dict(one.split("=") for one in [*GIVEN, "cpu=64", "memory=512Gi", "namespace=bench"]),
    }
    script = launchers.find("kubernetes").script(Launch(**{**fields, **changes}))
    (tmp_path / "launch.sh").write_text(script.replace("\nkubectl apply", "\nexit 0; kubectl apply"))
    subprocess.run(["sh", tmp_path / "launch.sh"], check=True)
    return list(yaml.safe_load_all((tmp_path / "manifest.yaml").read_text()))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_manifests_are_valid_by_kubernetes_schemas(tmp_path, device):
    for document in manifests(tmp_path, device=device):
        kubernetes_validate.validate(document, "1.32", strict=True)


def test_a_wrong_manifest_would_be_noticed(tmp_path):
    _, job = manifests(tmp_path)
    job["spec"]["paralellism"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.32", strict=True)


def test_the_objects_of_a_run_have_one_name_that_dns_takes(tmp_path):
    service, job = manifests(tmp_path)
    assert service["metadata"]["name"] == job["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]
    assert len(job["metadata"]["name"] + "-1") <= 63
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


@pytest.mark.slow
@pytest.mark.parametrize(("words", "kind"), [((), "job"), (("--launcher-arg", "runtime=torch"), "trainjob")])
def test_pods_train_together_and_are_deleted(kubectl, tmp_path, words, kind):
    ended = compare(tmp_path, "--nnodes", 2, "--nproc-per-node", 2, *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (record,) = records(tmp_path / "out")
    assert record.failure is None
    assert record.windows[0].samples == 4 * 4 * 2
    calls = (kubectl / "calls").read_text()
    assert "apply -f manifest.yaml" in calls
    assert f"delete --ignore-not-found --wait=false {kind}/dlperf-" in calls


@pytest.mark.slow
def test_an_evicted_pod_is_named(kubectl, tmp_path):
    """The stand-in says of each pod that ended badly what Kubernetes says of an evicted one."""
    compare(tmp_path, "--nnodes", 2, "--set", "behave=killed", "--set", "rank=all")
    (record,) = records(tmp_path / "out")
    assert "Evicted" in "\n".join([record.failure.message, *record.failure.lines])
    assert (kubectl / "deleted").exists()


@pytest.mark.slow
def test_the_timeout_deletes_the_job(kubectl, tmp_path, monkeypatch):
    time_is_up_when(monkeypatch, lambda: "sleep 1000 " in working_in(tmp_path))
    compare(tmp_path, "--nnodes", 2, "--set", "behave=hang", "--set", "rank=1")
    (record,) = records(tmp_path / "out")
    assert record.failure.kind == "timeout"
    assert "pod p-1 on node1" in (next((tmp_path / "out").glob("runs/*/0/stderr.log"))).read_text()
    assert (kubectl / "deleted").exists()
