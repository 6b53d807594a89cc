"""The test bed is two hosts: both run programs, one can go away, links have a rate, and its end is the end."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testbed import PROGRAMS, SLURM, Testbed, TestbedError, missing

FOLDER = Path(__file__).parent

#: Another test bed beside the fixture's.
OTHER = {"name": "dlperfx", "network": "10.78.0"}

RECEIVE = """
import socket, sys, time
with socket.create_server((sys.argv[1], 5555)) as server:
    print("ready", flush=True)
    connection = server.accept()[0]
    begin, size = time.monotonic(), 0
    while block := connection.recv(1 << 16):
        size += len(block)
    print(size * 8 / 1e6 / (time.monotonic() - begin))
"""
SEND = "import socket, sys; socket.create_connection((sys.argv[1], 5555)).sendall(bytes(16_000_000))"


def run(command, timeout=300, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)


def slurm(testbed, *command):
    done = run(command, env={**os.environ, **testbed.environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def mpirun(testbed, *command):
    network = f"{testbed.network}.0/24"
    hosts = ",".join(f"{address}:2" for address in testbed.addresses)
    rsh = ["--allow-run-as-root", "--mca", "plm_rsh_agent", testbed.rsh]
    interfaces = ["--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network]
    return run(["mpirun", *rsh, *interfaces, "--host", hosts, "-np", "4", *command])


def test_install_sh_knows_each_program():
    assert set(PROGRAMS) <= set((FOLDER / "install.sh").read_text().split())


@pytest.mark.cluster
def test_mpirun_starts_ranks_on_both_hosts(testbed):
    done = mpirun(testbed, "hostname")
    assert sorted(done.stdout.split()) == ["node1", "node1", "node2", "node2"], done.stderr


@pytest.mark.cluster
def test_slurm_runs_on_both_hosts(testbed, tmp_path):
    assert sorted(slurm(testbed, "srun", "-N2", "hostname").split()) == ["node1", "node2"]
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH -N2 --ntasks-per-node=2 --output={tmp_path}/out\nhostname\nsrun hostname\n")
    slurm(testbed, "sbatch", "--wait", str(script))
    first, *rest = (tmp_path / "out").read_text().split()
    assert first == "node1"
    assert sorted(rest) == ["node1", "node1", "node2", "node2"]


@pytest.mark.cluster
def test_an_urgent_job_preempts_a_normal_one(testbed, tmp_path):
    whole = ["sbatch", "--parsable", "-N2", "--exclusive", f"--chdir={tmp_path}"]
    job = slurm(testbed, *whole, "--wrap=srun sleep 600").strip()
    try:
        until(lambda: slurm(testbed, "squeue", "--noheader", "--format=%T", f"--jobs={job}") == "RUNNING\n")
        slurm(testbed, *whole, "--wait", "--partition=urgent", "--wrap=true")
        assert "JobState=PREEMPTED" in slurm(testbed, "scontrol", "show", "job", job)
    finally:
        slurm(testbed, "scancel", job)


@pytest.mark.cluster
def test_each_host_has_its_own_links_and_its_own_local_folder(testbed):
    for i, address in enumerate(testbed.addresses, 1):
        seen = run(testbed.on(i, "sh", "-c", f"ls /sys/class/net; ip -brief address; touch {testbed.local}/{i}")).stdout
        assert seen.startswith("eth0\nlo\n")
        assert f"{address}/24" in seen
        assert os.listdir(testbed.local) == []
        assert run([testbed.rsh, address, "ls", testbed.local]).stdout == f"{i}\n"


@pytest.mark.cluster
def test_ssh_says_why_a_host_does_not_answer(testbed):
    address = testbed.addresses[1]
    assert "Connection refused" in run([testbed.rsh, "-p", "23", address, "hostname"]).stderr
    testbed.down(2)
    try:
        done = run([testbed.rsh, address, "hostname"], timeout=300)
    finally:
        testbed.up(2)
    assert done.returncode == 255
    assert re.search(rf"connect to host {address} port 22: (Connection timed out|No route to host)", done.stderr)
    assert run([testbed.rsh, address, "hostname"]).stdout == "node2\n"


def rate(testbed, sender, receiver):
    """Mb/s of one connection between two hosts."""
    address = testbed.addresses[receiver - 1]
    command = testbed.on(receiver, sys.executable, "-c", RECEIVE, address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        run(testbed.on(sender, sys.executable, "-c", SEND, address), check=True)
        return float(process.communicate(timeout=300)[0])


@pytest.mark.cluster
@pytest.mark.parametrize(("sender", "receiver"), [(1, 2), (2, 1)])
def test_a_shaped_link_has_its_rate(testbed, sender, receiver):
    testbed.shape("100mbit")
    try:
        shaped = rate(testbed, sender, receiver)
    finally:
        testbed.unshape()
    assert shaped < 100
    assert rate(testbed, sender, receiver) > 5 * shaped


@pytest.fixture
def folder(tmp_path):
    """For a test bed with the name of OTHER, of which nothing may be left at the end."""
    if reason := missing():
        pytest.skip(reason)
    assert remains(tmp_path) == []
    yield tmp_path
    assert remains(tmp_path) == []


def remains(folder):
    """What there is of OTHER: namespaces, links, and processes that name the folder."""
    namespaces = [str(path) for path in Path("/run/netns").glob(f"{OTHER['name']}*")]
    links = [path.name for path in Path("/sys/class/net").glob(f"{OTHER['name']}*")]
    return namespaces + links + [line for line in command_lines() if str(folder) in line]


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace").replace("\0", " ").strip()


def until(is_so, seconds=300):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start_work(testbed, folder):
    """A process on a host, one in a session of ssh and one in a job of Slurm; returns what started the first two."""
    sleep = "touch {0}; sleep 600; : {0}"
    command, session, job = (sleep.format(folder / name) for name in ("command", "session", "job"))
    started = [
        subprocess.Popen(testbed.on(1, "sh", "-c", command), start_new_session=True),
        subprocess.Popen([testbed.rsh, testbed.addresses[1], session], stdin=subprocess.DEVNULL),
    ]
    slurm(testbed, "sbatch", "--output=/dev/null", f"--chdir={folder}", "-N2", f"--wrap=srun sh -c '{job}'")
    until(lambda: all((folder / name).exists() for name in ("command", "session", "job")))
    return started


def assert_ended(processes):
    try:
        for process in processes:
            process.wait(timeout=300)
    finally:
        for process in processes:
            process.kill()


@pytest.mark.cluster
def test_its_end_leaves_nothing(folder):
    with Testbed(folder / "bed", **OTHER) as bed:
        started = start_work(bed, folder)
        assert len(remains(folder)) > 10
    assert_ended(started)


@pytest.mark.cluster
def test_an_exception_leaves_nothing(folder):
    with pytest.raises(ZeroDivisionError), Testbed(folder / "bed", **OTHER):
        _ = 1 / 0


@pytest.mark.cluster
def test_a_start_that_fails_leaves_nothing_and_says_why(folder, monkeypatch):
    monkeypatch.setattr("testbed.SLURM", SLURM.replace("SelectType=", "SelectTypo="))
    with pytest.raises(TestbedError, match=r"(?s)slurmctld ended with 1.*SelectTypo"), Testbed(folder / "bed", **OTHER):
        pass


@contextlib.contextmanager
def command_up(folder):
    """`testbed.py up`, when it is up."""
    options = [word for key, value in OTHER.items() for word in (f"--{key}", value)]
    command = [sys.executable, FOLDER / "testbed.py", "up", folder, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: process.stdout.readline().startswith("Up."))
            yield process
        finally:
            process.kill()


@pytest.mark.cluster
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_command_takes_all_down_when_it_is_stopped(folder, end):
    with command_up(folder / "bed") as process:
        process.send_signal(end)
        assert process.wait(timeout=300) == 0


@pytest.mark.cluster
def test_what_a_killed_one_left_is_removed_by_the_next(folder):
    with command_up(folder / "bed") as process:
        started = start_work(Testbed(folder / "bed", **OTHER), folder)
        process.kill()
        process.wait()
    assert all(str(folder / name) in "".join(remains(folder)) for name in ("command", "session", "job"))
    with Testbed(folder / "bed", **OTHER) as bed:
        assert_ended(started)
        assert sorted(slurm(bed, "srun", "-N2", "hostname").split()) == ["node1", "node2"]


@pytest.mark.cluster
def test_a_second_of_the_same_name_is_refused_and_does_no_harm(testbed, tmp_path):
    with pytest.raises(TestbedError, match=rf"'dlperf' is up already, held by process {os.getpid()}; end it"):
        Testbed(tmp_path).__enter__()
    assert mpirun(testbed, "hostname").returncode == 0


@pytest.mark.cluster
def test_folders_that_cannot_be_used_are_refused(folder):
    (folder / "mine").touch()
    with pytest.raises(TestbedError, match="has other files in it"):
        Testbed(folder, **OTHER).__enter__()
    with pytest.raises(TestbedError, match="white space"):
        Testbed(folder / "a b", **OTHER).__enter__()
    with pytest.raises(TestbedError, match="at most 67 characters"):
        Testbed(folder / ("a" * 60), **OTHER).__enter__()
    assert [path.name for path in folder.iterdir()] == ["mine"]
