"""The command over two hosts, by each engine that reaches them: rows, and faults that name rank, host and cause."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import gpus
import pytest
from processes import left_behind, wait_for

from dlperf.comparison import store

pytestmark = pytest.mark.cluster

COMPARE = [sys.executable, "-m", "dlperf.compare"]
FAKE = ["--frameworks", "fake", "--env", "current", "--model", "bert_tiny", "--device", "cpu", "--no-verify", "-r", 1]


@pytest.fixture(params=["mpi", "slurm"])
def engine(request, testbed):
    """The words that choose an engine on the testbed."""
    return engines(testbed)[request.param]


def engines(testbed):
    hosts = ["--hosts", ",".join(testbed.addresses), "--launcher-arg", f"rsh={testbed.rsh}"]
    return {
        "mpi": ["--launcher", "mpi", *hosts, "--launcher-arg", f"network={testbed.network}.0/24"],
        "torchrun": ["--launcher", "torchrun", *hosts],
        "slurm": ["--launcher", "slurm"],
        "slurm, a job for each run": ["--launcher", "slurm", "--allocation", "run"],
    }


def start(testbed, folder, *words):
    command = [str(word) for word in (*COMPARE, "-o", folder / "out", *words)]
    environ = {**os.environ, **testbed.environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)


def compare(testbed, folder, *words, timeout=300):
    """Exit code and output of the command; its folder is `folder`/out."""
    process = start(testbed, folder, *words)
    try:
        printed, _ = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, printed


def records(folder):
    return list(store.open_folder(folder / "out").records.values())


def queue(testbed):
    environ = {**os.environ, **testbed.environment}
    return subprocess.run(["squeue", "-h"], env=environ, capture_output=True, text=True, check=True).stdout.split("\n")


# --- rows -----------------------------------------------------------------------------------------------------------


def test_nodes_and_ranks_are_rows_on_both_hosts(testbed, engine, tmp_path):
    code, printed = compare(testbed, tmp_path, *FAKE, *engine, "--nnodes", "1,2", "--nproc-per-node", "1,2")
    assert code == 0, printed
    found = {(r.job.nnodes, r.job.nproc_per_node): r for r in records(tmp_path)}
    assert [found[size].failure for size in sorted(found)] == [None] * 4
    assert found[2, 2].hosts == ("node1", "node1", "node2", "node2")
    assert found[2, 1].hosts == ("node1", "node2")
    assert found[2, 2].windows[0].samples == 4 * 4 * 2
    assert "srun" in found[2, 2].command or "mpirun" in found[2, 2].command


def test_servers_are_beside_workers_on_both_hosts(testbed, engine, tmp_path):
    words = ["--parallelism", "parameter-server", "--servers", 2, "--workers", 4, "--ps-mode", "async"]
    code, printed = compare(testbed, tmp_path, *FAKE, *engine, "--nnodes", 2, *words)
    assert code == 0, printed
    (record,) = records(tmp_path)
    assert record.failure is None
    assert record.hosts == ("node1", "node1", "node2", "node2")
    assert [one["host"] for one in record.servers] == ["node1", "node2"]


# --- faults ---------------------------------------------------------------------------------------------------------


def one_row(testbed, folder, engine, *words, **kwargs):
    """The failure of one row of two nodes, of which nothing is left."""
    compare(testbed, folder, *FAKE, *engine, "--nnodes", 2, *words, **kwargs)
    (record,) = records(folder)
    wait_for(lambda: not left_behind(folder))
    wait_for(lambda: not any(queue(testbed)))
    return record.failure


def test_a_killed_rank_is_named_with_its_host(testbed, engine, tmp_path):
    failure = one_row(testbed, tmp_path, engine, "--set", "behave=killed", "--set", "rank=1")
    assert failure.kind == "killed"
    # an engine may notice first that rank 0 gave up
    assert failure.message.startswith(
        ("rank 1 on node2: ", "rank 1 on node2 exited without reporting an error; rank 0 on node1: ")
    )


def test_a_rank_that_raises_is_named_with_what_it_said(testbed, engine, tmp_path):
    failure = one_row(testbed, tmp_path, engine, "--set", "behave=crash", "--set", "rank=1")
    assert (failure.kind, failure.message) == (
        "crash",
        "rank 1 on node2: RuntimeError: the fake framework crashed, as asked",
    )


def test_a_rank_that_hangs_is_ended_with_the_timeout(testbed, engine, tmp_path):
    words = ["--set", "behave=hang", "--set", "rank=1", "--timeout", 12]
    failure = one_row(testbed, tmp_path, engine, *words)
    assert failure.kind == "timeout"
    assert "rank 1 on node2 was" in failure.message or "rank 0 on node1, rank 1 on node2 was" in failure.message


def test_a_host_that_cannot_be_reached_is_named(testbed, tmp_path):
    testbed.down(2)
    try:
        failure = one_row(testbed, tmp_path, engines(testbed)["mpi"], "--timeout", 40)
    finally:
        testbed.up(2)
    assert failure.kind == "launcher"
    assert testbed.addresses[1] in "\n".join([failure.message, *failure.lines])


def slurm_while(testbed, folder, action, *words):
    """The failure of a row through Slurm; `action` is called once its job runs."""
    environ = {**os.environ, **testbed.environment}

    def act():
        out = folder / "out" / "runs"
        with contextlib.suppress(AssertionError):
            wait_for(lambda: list(out.glob("*/0/events.rank1.jsonl")))
            subprocess.run(action, env=environ, check=False, timeout=300, cwd=folder)

    thread = threading.Thread(target=act)
    thread.start()
    slow = ["--set", "step_seconds=3", "--timeout", 90]
    failure = one_row(testbed, folder, engines(testbed)["slurm, a job for each run"], *slow, *words)
    thread.join()
    return failure


def test_a_cancelled_slurm_job_says_so(testbed, tmp_path):
    failure = slurm_while(testbed, tmp_path, ["sh", "-c", "scancel $(squeue -h -o %i | head -1)"])
    assert "CANCELLED" in "\n".join([failure.message, *failure.lines])


def test_a_preempted_slurm_job_says_so(testbed, tmp_path):
    urgent = ["srun", "-p", "urgent", "-N2", "--exclusive", "true"]
    failure = slurm_while(testbed, tmp_path, urgent)
    assert "PREEMPTED" in "\n".join([failure.message, *failure.lines])


def test_a_full_queue_ends_with_the_timeout_and_says_what_it_waited_for(testbed, tmp_path):
    environ = {**os.environ, **testbed.environment}
    wrap = ["sbatch", "--parsable", "-N2", "--exclusive", "--output", "/dev/null", "--wrap", "sleep 300"]
    blocker = subprocess.run(wrap, env=environ, capture_output=True, text=True, check=True).stdout.strip()
    try:
        each = engines(testbed)["slurm, a job for each run"]
        compare(testbed, tmp_path, *FAKE, *each, "--nnodes", 2, "--timeout", 8)
    finally:
        subprocess.run(["scancel", blocker], env=environ, check=True)
    (record,) = records(tmp_path)
    assert record.failure.kind == "timeout"
    assert "PENDING" in "\n".join([record.failure.message, *record.failure.lines])
    wait_for(lambda: not any(queue(testbed)))


@pytest.mark.parametrize("each", ["comparison", "run"])
def test_ctrl_c_cancels_the_slurm_job(testbed, tmp_path, each):
    slow = ["--launcher", "slurm", "--allocation", each, "--nnodes", 2, "--set", "step_seconds=30"]
    process = start(testbed, tmp_path, *FAKE, *slow)
    wait_for(lambda: list((tmp_path / "out" / "runs").glob("*/0/events.rank1.jsonl")))
    process.terminate()
    process.communicate(timeout=300)
    assert process.returncode == 143
    wait_for(lambda: not any(queue(testbed)))
    wait_for(lambda: not left_behind(tmp_path))


@pytest.mark.parametrize("name", ["mpi", "slurm, a job for each run"])
def test_nodes_that_do_not_share_the_folder_are_told_before_anything_runs(testbed, name, tmp_path):
    engine = engines(testbed)[name]
    inner = testbed.local / f"out-{tmp_path.name}"  # each host has a folder of its own there
    try:
        code, printed = compare(testbed, inner, *FAKE, *engine, "--nnodes", 2)
        assert code == 2, printed
        assert "--output" in printed
        assert "of 2 nodes, " in printed
        assert "All nodes must share both" in printed
        assert not list(inner.glob("out/runs/*"))
    finally:
        shutil.rmtree(inner, ignore_errors=True)


def test_a_job_whose_first_node_lacks_the_folder_says_so(testbed, tmp_path):
    inner = testbed.local / f"out-{tmp_path.name}"
    try:
        code, printed = compare(testbed, inner, *FAKE, "--launcher", "slurm")
    finally:
        shutil.rmtree(inner, ignore_errors=True)
    assert code == 1
    assert "all nodes must share the output folder" in printed


# --- a comparison in one job -----------------------------------------------------------------------------------------


SLOW = [*FAKE[:-2], "-r", 2, "--launcher", "slurm", "--nnodes", "1,2", "--set", "step_seconds=0.5"]


def jobs(folder, event):
    lines = (folder / "out" / "allocation" / "jobs.jsonl").read_text().splitlines()
    return [line["job"] for line in map(json.loads, lines) if line["event"] == event]


def test_one_job_holds_all_rows_and_its_nodes_say_what_they_are(testbed, tmp_path, monkeypatch):
    """This machine, which submits it, has no GPU."""
    gpus.adapter(tmp_path / "adapters", monkeypatch, sampled=False)
    words = ["--frameworks", "slept", "--env", "current", "--model", "bert_tiny", "--no-verify", "-r", 2]
    short = ["--warmup-steps", 1, "--windows", 1, "--steps-per-window", 1, "--aa", 0]
    code, printed = compare(testbed, tmp_path, *words, *short, "--launcher", "slurm", "--size", "1n1d,1n2d,2n4d")
    assert code == 0, printed
    made = store.open_folder(tmp_path / "out").comparison
    assert len(jobs(tmp_path, "began")) == 1
    assert re.search(r"\nIts jobs ran for .* s, \d+ % of it in measured steps\.\n$", printed), printed
    assert (made.spec["device"], len(made.machine["gpus"]), made.spec["gpus"][0][0]) == ("cuda", 8, "NVIDIA H200")
    assert [(kind["count"], len(kind["gpus"])) for kind in made.machine["nodes"]] == [(2, 8)]
    assert {record.job.size: set(record.hosts) for record in made.records} == {
        "1n1d": {"node1"},
        "1n2d": {"node1"},
        "2n4d": {"node1", "node2"},
    }
    assert [record.job.size for record in made.records] == ["1n1d", "1n2d", "2n4d"] * 2  # rows take turns
    assert "2 nodes" in (tmp_path / "out" / "report.md").read_text()


def test_who_submitted_may_leave_and_come_back(testbed, tmp_path):
    code, printed = compare(testbed, tmp_path, *SLOW, "--detach")
    assert code == 0
    assert f"--attach {tmp_path / 'out'}" in printed
    attach = [*COMPARE, "--attach", str(tmp_path / "out")]
    environ = {**os.environ, **testbed.environment}
    looking = subprocess.Popen(attach, stdout=subprocess.PIPE, text=True, env=environ)
    assert any("Slurm job" in line for line in looking.stdout)  # from here on it is told of Ctrl-C
    wait_for(lambda: jobs_began(tmp_path))
    looking.send_signal(signal.SIGINT)
    assert "Its jobs go on" in looking.communicate(timeout=60)[0]
    ended = subprocess.run(attach, capture_output=True, text=True, env=environ, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Report: " in ended.stdout
    assert len(records(tmp_path)) == 4


def jobs_began(folder):
    with contextlib.suppress(OSError):
        return jobs(folder, "began")
    return []


def test_a_cancelled_comparison_goes_on_with_what_is_missing(testbed, tmp_path):
    environ = {**os.environ, **testbed.environment}
    process = start(testbed, tmp_path, *SLOW)
    wait_for(lambda: (tmp_path / "out" / "records.jsonl").exists())
    subprocess.run(["sh", "-c", "scancel $(squeue -h -o %i)"], env=environ, check=True)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 143, printed
    assert "was cancelled" in printed
    first = [(record.job.id, record.repeat, record.started) for record in records(tmp_path)]
    resumed = subprocess.run(
        [*COMPARE, "--resume", tmp_path / "out"], capture_output=True, text=True, env=environ, timeout=300
    )
    assert resumed.returncode == 0, resumed.stdout
    now = [(record.job.id, record.repeat, record.started) for record in records(tmp_path)]
    assert 0 < len(first) < len(now) == 4
    assert now[: len(first)] == first
    assert len(jobs(tmp_path, "began")) == 2


@pytest.mark.long  # Slurm waits two minutes before it starts a job again
def test_a_node_that_dies_costs_the_run_that_it_had(testbed, tmp_path):
    """The job is requeued, and does what is missing when the node is back."""
    process = start(testbed, tmp_path, *FAKE, "--launcher", "slurm", "--nnodes", "1,2", "--set", "step_seconds=5")
    wait_for(lambda: [*(tmp_path / "out" / "runs").glob("*-2n1d-*/0/events.rank1.jsonl")])
    try:
        testbed.down(2)
        wait_for(lambda: "NODE FAILURE" in job_log(tmp_path), 120)
    finally:
        testbed.up(2)
    printed, _ = process.communicate(timeout=400)
    assert process.returncode == 0, printed
    assert len(jobs(tmp_path, "began")) == 2
    assert [record.job.nnodes for record in records(tmp_path)] == [1, 2]
    assert "DUE TO NODE FAILURE" in printed


def job_log(folder):
    return "".join(path.read_text() for path in (folder / "out" / "allocation").glob("*.log"))


@pytest.mark.parametrize("how", ["salloc", "sbatch"])
def test_inside_of_a_job_its_nodes_are_used(testbed, tmp_path, how):
    """The shell of salloc is on this machine, the script of sbatch on the first node."""
    command = [*COMPARE, "-o", tmp_path / "out", *FAKE, "--launcher", "slurm", "--nnodes", "1,2"]
    options = ["-N2", "--exclusive"]
    if how == "sbatch":
        command = ["--wait", f"--output={tmp_path}/log", f"--wrap={shlex.join(map(str, command))}"]
    environ = {**os.environ, **testbed.environment}
    words = [str(word) for word in (how, *options, *command)]
    ended = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {record.job.nnodes: set(record.hosts) for record in records(tmp_path)} == {
        1: {"node1"},
        2: {"node1", "node2"},
    }
    assert not (tmp_path / "out" / "allocation" / "submitted.jsonl").exists()


def test_a_job_for_each_row_one_after_the_other(testbed, tmp_path):
    code, printed = compare(testbed, tmp_path, *SLOW, "--allocation", "row")
    assert code == 0, printed
    assert len(jobs(tmp_path, "began")) == 2
    assert [record.job.nnodes for record in records(tmp_path)] == [1, 1, 2, 2]


def test_the_queue_is_not_counted(testbed, tmp_path):
    environ = {**os.environ, **testbed.environment}
    wrap = ["sbatch", "--parsable", "-N2", "--exclusive", "--output", "/dev/null", "--wrap", "sleep 300"]
    blocker = subprocess.run(wrap, env=environ, capture_output=True, text=True, check=True).stdout.strip()
    process = start(testbed, tmp_path, *FAKE, "--launcher", "slurm", "--nnodes", 2, "--timeout", 20)
    try:
        time.sleep(25)
    finally:
        subprocess.run(["scancel", blocker], env=environ, check=True)
    printed, _ = process.communicate(timeout=300)
    assert (process.returncode, "is pending" in printed) == (0, True), printed
    assert [record.failure for record in records(tmp_path)] == [None]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--launcher-arg", "partition=nosuch"],
            "refused the job: Batch job submission failed: Invalid partition name",
        ),
        (["--max-node-hours", "0.01"], r"--max-node-hours 0\.01"),
        # Slurm gives one of two reasons for three nodes of two: PartitionConfig or PartitionNodeLimit
        (["--nnodes", 3], r"would wait for ever \(Partition(Config|NodeLimit)\), and was cancelled"),
        (["--size", "2n3d"], "--size: '2n3d'"),
        (["--only", "none"], "--only: 'none'"),
    ],
)
def test_what_cannot_be_had_is_told_at_once(testbed, tmp_path, words, says):
    code, printed = compare(testbed, tmp_path, *FAKE, "--launcher", "slurm", *words)
    assert code in (1, 2)
    assert re.search(says, printed), printed
    assert "Traceback" not in printed


# --- real frameworks ------------------------------------------------------------------------------------------------


REAL = "pytorch,jax,mxnet"


@pytest.mark.framework
@pytest.mark.parametrize("launcher", ["mpi", pytest.param("slurm", marks=pytest.mark.long)])
def test_three_frameworks_train_over_both_hosts_and_prove_it(testbed, tmp_path, launcher):
    words = ["-f", REAL, "-m", "bert_tiny", "-p", "fp32", "--device", "cpu", "-r", 1, "--threads", 1, "--nnodes", "1,2"]
    code, printed = compare(testbed, tmp_path, *words, *engines(testbed)[launcher], timeout=900)
    assert code == 0, printed
    found = records(tmp_path)
    assert [record.failure for record in found] == [None] * 6, printed
    assert {r.hosts for r in found if r.job.nnodes == 2} == {("node1", "node2")}
    assert "not comparable" not in printed


@pytest.mark.framework
def test_torchrun_has_an_agent_on_each_host(testbed, tmp_path):
    words = [
        "-f",
        "pytorch",
        "-m",
        "bert_tiny",
        "-p",
        "fp32",
        "--device",
        "cpu",
        "-r",
        1,
        "--threads",
        1,
        "--no-verify",
    ]
    torchrun = engines(testbed)["torchrun"]
    code, printed = compare(testbed, tmp_path, *words, *torchrun, "--nnodes", 2, "--nproc-per-node", 2)
    assert code == 0, printed
    (record,) = records(tmp_path)
    assert record.hosts == ("node1", "node1", "node2", "node2")


@pytest.mark.framework
def test_a_slow_network_shows_in_the_all_reduce(testbed, tmp_path):
    """At 100 Mb/s an all-reduce takes at least as long as its bytes take through the link, once each way."""
    words = ["-f", "pytorch", "-m", "resnet50", "-p", "fp32", "--device", "cpu", "-r", 1, "--threads", 1, "--no-verify"]
    short = ["-b", 1, "--warmup-steps", 1, "--windows", 1, "--steps-per-window", 1, "--nnodes", 2]
    mpi = engines(testbed)["mpi"]
    seconds = {}
    for rate in ("", "100mbit"):
        if rate:
            testbed.shape(rate)
        try:
            compare(testbed, tmp_path / f"at{rate}", *words, *short, *mpi)
        finally:
            testbed.unshape()
        (record,) = records(tmp_path / f"at{rate}")
        assert record.failure is None
        seconds[rate] = record.communication["all_reduce_seconds"]
    assert seconds["100mbit"] >= 0.9 * record.communication["all_reduce_bytes"] * 8 / 100e6
    assert seconds["100mbit"] > seconds[""], seconds
