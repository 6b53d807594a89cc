"""A new launcher is a package with an entry point: comparisons start their ranks with it, and no line here names it."""

import os
import subprocess
import sys

import pytest

from dlperf.comparison import store

ENTRY_POINT = "[dlperf.launchers]\ntoy = toy_launcher:LAUNCHER\n"
MODULE = '''\
import re

from dlperf.launchers.api import Launcher, several, worker

START = """\\
pids= code=0
for rank in $(seq 0 {last}); do
  RANK=$rank WORLD_SIZE={size} LOCAL_RANK=$rank LOCAL_WORLD_SIZE={size} nice -n {nice} sh "$PWD"/launch.sh rank &
  pids="$pids $!"
done
rank=0
for pid in $pids; do
  wait $pid || {{ code=$?; [ $code != 137 ] || echo "toy: rank $rank on $(hostname) was killed" >&2; }}
  rank=$((rank + 1))
done
exit $code
"""


class Toy(Launcher):
    name = "toy"
    about = "a loop of the shell"
    arguments = {"nice": "what is added to the ranks' niceness; default: 0"}
    ended = re.compile(r"^toy: rank (?P<rank>\\d+) on (?P<host>\\S+) (?P<how>was killed)$", re.MULTILINE)

    def script(self, launch):
        size, nice = launch.nproc_per_node, launch.arguments.get("nice", "0")
        start = START.format(last=size - 1, size=size, nice=nice)
        return several(launch, worker(launch, {"DLPERF_LAUNCHER": self.name}), start)


LAUNCHER = Toy()
'''


@pytest.fixture
def compare(tmp_path):
    packages = tmp_path / "packages"
    (packages / "toy_launcher-1.0.dist-info").mkdir(parents=True)
    (packages / "toy_launcher-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-launcher\n")
    (packages / "toy_launcher-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINT)
    (packages / "toy_launcher.py").write_text(MODULE)
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    words = ["-f", "fake", "--env", "current", "-m", "bert_tiny", "--device", "cpu", "--no-verify", "--launcher", "toy"]
    command = [sys.executable, "-m", "dlperf.compare", *words, "-r", "1", "-o", str(tmp_path / "out")]

    def run(*more):
        return subprocess.run([*command, *more], env=environ, capture_output=True, text=True, timeout=600)

    return run


def records(folder):
    return list(store.open_folder(folder / "out").records.values())


@pytest.mark.slow
def test_it_starts_the_ranks_of_a_comparison(compare, tmp_path):
    ended = compare("--nproc-per-node", "1,3", "--launcher-arg", "nice=1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = {record.job.world_size: record for record in records(tmp_path)}
    assert {size: (record.failure, record.job.launcher) for size, record in found.items()} == {
        1: (None, "toy"),
        3: (None, "toy"),
    }
    assert len(found[3].hosts) == 3
    assert "nice -n 1 sh" in found[3].command
    assert "3 devices" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.slow
def test_the_rank_that_it_says_was_killed_is_named(compare, tmp_path):
    ended = compare("--nproc-per-node", "2", "--set", "behave=killed", "--set", "rank=1")
    assert ended.returncode == 1
    (record,) = records(tmp_path)
    assert record.failure.kind == "killed"
    assert record.failure.message.startswith("rank 1 on ")
    assert record.failure.message.endswith(": was killed")


def test_it_is_offered_and_checked_like_the_others(compare):
    assert "emulated, toy" in " ".join(compare("--help").stdout.split())
    wrong = compare("--launcher-arg", "nic=1", "--dry-run")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--launcher-arg: 'nic' is not usable; allowed: nice (launcher toy). Did you mean 'nice'?" in wrong.stderr
    several = compare("--nnodes", "2", "--dry-run")
    assert "--launcher toy: it starts a loop of the shell. For 2 nodes choose torchrun, mpi," in several.stderr
