"""Comparisons through the real kubectl, on a stand-in for a cluster (`apiserver`): no real one has run them."""

import os
import re
import shutil
import signal
import subprocess
import sys

import gpus
import pytest
from apiserver import Cluster
from processes import left_behind, wait_for

from dlperf.comparison import store

pytestmark = pytest.mark.cluster

COMPARE = [sys.executable, "-m", "dlperf.compare"]
FAKE = ["--frameworks", "fake", "--env", "current", "--model", "bert_tiny", "--device", "cpu", "--no-verify"]
SIZES = ["--size", "1n1d,2n2d", "-r", 2, "--set", "step_seconds=0.5"]


@pytest.fixture
def cluster(tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on PATH: make test-cluster installs it")
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()
    wait_for(lambda: not left_behind(tmp_path))


def start(cluster, *words):
    given = {"image": "registry.example/dlperf:1", "claim": "bench", "mount": cluster.folder.parent / "volume"}
    given["python"] = sys.executable
    site = [f"{key} = {str(value)!r}" for key, value in given.items()]
    (cluster.folder / "dlperf.toml").write_text("\n".join(["launcher = 'kubernetes'", "[kubernetes]", *site]))
    return subprocess.Popen(
        [*COMPARE, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cluster.folder,
        env={**os.environ, "KUBECONFIG": str(cluster.config), "HOME": str(cluster.folder)},
    )


def ended(process):
    printed, _ = process.communicate(timeout=300)
    return process.returncode, printed


def compare(cluster, *words):
    """Exit code and output."""
    return ended(start(cluster, *FAKE, "-o", out(cluster), *words))


def out(cluster):
    return cluster.folder.parent / "out"


def records(cluster):
    return list(store.open_folder(out(cluster)).records.values())


def there(cluster):
    """The comparison's folder in the pods."""
    (found,) = (cluster.folder.parent / "volume").glob("out-*")
    return found


def test_one_job_holds_all_rows_and_its_results_come_back(cluster):
    code, printed = compare(cluster, *SIZES)
    assert code == 0, printed
    assert [(record.job.size, record.failure) for record in records(cluster)] == [("1n1d", None), ("2n2d", None)] * 2
    assert len(cluster.jobs) == 1
    machine = store.open_folder(out(cluster)).comparison.machine
    assert (machine["container"], len(machine["nodes"])) == ("kubernetes", 1)  # pods have this machine's name
    assert f"Here: {out(cluster) / 'report.md'}" in printed
    assert "DLPERF RESULTS" not in printed
    assert re.search(r"Its jobs ran for .*, \d+ % of it in measured steps", printed), printed
    whole = {path.relative_to(there(cluster)) for path in there(cluster).rglob("*") if path.is_file()}
    assert {path for path in whole if path.parts[0] not in ("allocation", "lock")} <= {
        path.relative_to(out(cluster)) for path in out(cluster).rglob("*")
    }


@pytest.fixture
def slept(tmp_path, monkeypatch):
    """The words for a framework that sleeps, on GPUs; no device is named, and this machine has none."""
    gpus.adapter(tmp_path / "adapters", monkeypatch, sampled=False)
    return ["--frameworks", "slept", *FAKE[2:6], "--no-verify", "-o", tmp_path / "out"]


def test_what_runs_is_what_the_nodes_have(cluster, slept):
    code, printed = ended(start(cluster, *slept, "--size", "1n8d", "--detach"))
    assert code == 0, printed
    (job,) = cluster.jobs.values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert cluster.said.count("GET /api/v1/nodes") == 1


def test_who_submitted_may_leave_and_come_back(cluster):
    code, printed = compare(cluster, *SIZES, "--detach")
    assert code == 0
    assert f"--attach {out(cluster)}" in printed
    looking = start(cluster, "--attach", out(cluster))
    assert looking.stdout.readline()
    looking.send_signal(signal.SIGINT)
    assert "Its jobs go on" in ended(looking)[1]
    code, printed = ended(start(cluster, "--attach", out(cluster)))
    assert (code, len(records(cluster))) == (0, 4), printed
    assert len(cluster.jobs) == 1


def test_a_cancelled_comparison_goes_on_with_what_is_missing(cluster):
    process = start(cluster, *FAKE, "-o", out(cluster), *SIZES)
    wait_for(lambda: list((cluster.folder.parent / "volume").glob("out-*/records.jsonl")))
    process.terminate()
    code, printed = ended(process)
    assert (code, "was cancelled" in printed) == (143, True), printed
    assert not cluster.jobs
    first = [(record.job.id, record.repeat, record.started) for record in records(cluster)]
    code, printed = ended(start(cluster, "--resume", out(cluster)))
    assert code == 0, printed
    now = [(record.job.id, record.repeat, record.started) for record in records(cluster)]
    assert 0 < len(first) < len(now) == 4
    assert now[: len(first)] == first


@pytest.mark.parametrize(("index", "reason"), [(0, "PreemptionByScheduler"), (1, "DeletionByTaintManager")])
def test_a_pod_that_was_disrupted_comes_again_and_the_comparison_goes_on(cluster, index, reason):
    process = start(cluster, *FAKE, "-o", out(cluster), *SIZES)
    wait_for(lambda: list((cluster.folder.parent / "volume").glob("out-*/runs/*2n*/0/events.rank1.jsonl")))
    cluster.disrupt(index, reason, "it had to go")
    code, printed = ended(process)
    assert code == 0, printed
    assert re.search(rf"dlperf-out-\w+-\w+-{index}-\w+ on node{index + 1}: it had to go, began again", printed), printed
    failed = [record.failure for record in records(cluster) if record.failure]
    assert len(records(cluster)) == 4
    assert len(failed) == index  # a run that lost the second pod; one that lost the first is made again
    assert all(one.message.startswith("the launcher lost a node: pod 1 on ") for one in failed), failed
    if index:
        code, printed = ended(start(cluster, "--resume", out(cluster), "--retry-failed"))
        assert code == 0, printed
        assert [record.failure for record in records(cluster)] == [None] * 4


def test_a_pod_without_memory_ends_the_job_and_resume_goes_on(cluster):
    process = start(cluster, *FAKE, "-o", out(cluster), *SIZES)
    wait_for(lambda: list((cluster.folder.parent / "volume").glob("out-*/runs/*2n*/0/events.rank1.jsonl")))
    cluster.out_of_memory(1)
    code, printed = ended(process)
    assert code == 1
    assert "ran out of memory (pod 1 on node2)" in printed
    assert f"--resume {out(cluster)}" in printed
    code, printed = ended(start(cluster, "--resume", out(cluster)))
    assert (code, len(records(cluster))) == (0, 4), printed


def test_results_that_came_back_damaged_are_told(cluster):
    process = start(cluster, *FAKE, "-o", out(cluster), "-r", 1, "--detach")
    assert ended(process)[0] == 0
    (name,) = cluster.jobs
    wait_for(lambda: cluster.jobs[name]["status"].get("conditions"))
    log = next(cluster.folder.glob("*-0-*.log"))
    text = log.read_text()
    half = len(text) // 2
    log.write_text(f"{text[:half]}{text[half + 4 :]}")
    _, printed = ended(start(cluster, "--attach", out(cluster)))
    assert "came back damaged (ValueError: " in printed
    assert f"They are in the folder {there(cluster)} of the volume" in printed
    assert "Traceback" not in printed


def never(cluster, says, *words):
    """What no waiting brings is told, and cancelled."""
    code, printed = ended(start(cluster, *words))
    assert code == 1, printed
    assert re.search(
        f"Kubernetes job bench/dlperf-out-.* would wait for ever \\(.*{says}.*\\), and was cancelled", printed
    )
    assert not cluster.jobs


def test_an_image_that_is_not_there_is_told_at_once(cluster):
    cluster.unpullable.add("registry.example/dlperf:1")
    never(cluster, "pod 0: ImagePullBackOff: .*not found", *FAKE, "-o", out(cluster))


def test_a_quota_that_is_too_small_is_told_at_once(cluster, slept):
    cluster.quota = 8
    never(cluster, "exceeded quota: gpus, .*limited: requests.nvidia.com/gpu=8", *slept, "--size", "2n16d")


def test_a_queue_without_kueue_is_told_at_once(cluster):
    never(cluster, "Kueue is not installed", *FAKE, "-o", out(cluster), "--launcher-arg", "queue=gpus")


def test_a_queue_says_what_it_waits_for_and_is_not_counted(cluster):
    cluster.kueue = True
    process = start(cluster, *FAKE, "-o", out(cluster), "-r", 1, "--launcher-arg", "queue=gpus", "--timeout", 20)
    wait_for(lambda: cluster.said.count("GET /apis/kueue.x-k8s.io/v1beta1/namespaces/bench/workloads"))
    cluster.admitted = True
    code, printed = ended(process)
    assert code == 0, printed
    assert "is pending (couldn't assign flavors to pod set main: " in printed


def test_nodes_that_are_too_small_are_told_and_waited_for(cluster, slept):
    """An autoscaler may bring others."""
    process = start(cluster, *slept, "--size", "1n9d")
    line = next(line for line in process.stdout if "is pending" in line)
    assert "(pod 0: Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.)" in line
    process.terminate()
    assert ended(process)[0] == 143
    assert not cluster.jobs


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--launcher-arg", "namespace=nosuch"], 'Kubernetes refused the job: .*namespaces "nosuch" not found'),
        (["--max-node-hours", "0.01"], r"--max-node-hours 0\.01"),
    ],
)
def test_what_cannot_be_had_is_told_at_once(cluster, words, says):
    code, printed = compare(cluster, *words)
    assert code in (1, 2)
    assert re.search(says, printed), printed
    assert not out(cluster).exists()
    assert "Traceback" not in printed


def test_a_cluster_that_does_not_answer_is_told(cluster):
    cluster.config.write_text(cluster.config.read_text().replace(str(cluster.server.server_address[1]), "1"))
    code, printed = compare(cluster)
    assert code == 1
    assert re.search("no cluster answers kubectl, which must work first .*connection refused", printed), printed
    assert "--validate" not in printed
